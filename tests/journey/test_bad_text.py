"""Half characters and NUL, which few stores take: in pages, headers, items, requests, errors and logs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gossamer import Item, Page
from gossamer.clock import SystemClock
from gossamer.model.events import ItemDropped
from gossamer.model.record import StoredRecord
from gossamer.monitor.logs import JsonLog
from gossamer.pipeline.steps import Drop
from gossamer.project.jobs.crawl import crawl
from gossamer.store.contract import RecordQuery
from tests.journey.crawling import look, settings_for
from tests.journey.visiting import Curious, among_good_pages
from tests.sites.hostile import hostile_site

BAD = "a\ud800b\x00c"
MENDED = "a\ufffdb\ufffdc"


class Thing(Item, key="name"):
    name: str
    note: str = ""
    tags: tuple[str, ...] = ()


class Careless(Curious):
    """`parse` sends each page to the method of its name; what that gives is full of bad text."""

    pipeline = (lambda item, page: Drop(BAD) if page.url.endswith("/dropped") else item,)

    def parse(self, page: Page) -> Iterator[Any]:
        yield from super().parse(page)
        if page.url.endswith("/start"):
            for name in ("typed", "plain_dict", "as_url", "raised", "in_data", "nul_in_data", "in_link", "nul_in_link"):
                yield page.follow(f"/{name}", name)
            yield page.follow("/dropped", "plain_dict")

    def typed(self, page: Page) -> Iterator[Any]:
        yield Thing(url=page.url, name=BAD, note=BAD, tags=(BAD,))

    def plain_dict(self, page: Page) -> Iterator[Any]:
        yield {"url": page.url, BAD: [BAD, {BAD: BAD}]}

    def as_url(self, page: Page) -> Iterator[Any]:
        yield {"url": BAD}

    def raised(self, page: Page) -> None:
        raise ValueError(BAD)

    def in_data(self, page: Page) -> Iterator[Any]:
        yield page.follow("/never", data={"x": "\ud800"})

    def nul_in_data(self, page: Page) -> Iterator[Any]:
        yield page.follow("/told", "told", data={"x": "a\x00b"})

    def told(self, page: Page) -> Iterator[Any]:
        yield {"url": page.url, "is_whole": page.data == {"x": "a\x00b"}}

    def in_link(self, page: Page) -> Iterator[Any]:
        yield page.follow("/x\ud800")

    def nul_in_link(self, page: Page) -> Iterator[Any]:
        yield page.follow("/x\x00y")


@pytest.fixture
async def site():
    async with hostile_site() as site:
        for name in ("typed", "plain_dict", "as_url", "raised", "in_data", "nul_in_data", "in_link", "nul_in_link"):
            site.show(f"/{name}", "<title>x</title>")
        for path in ("/dropped", "/told", "/x%00y"):
            site.show(path, "<title>x</title>")
        yield site


async def test_bad_text_from_a_spider_is_mended_or_refused_and_nothing_else_suffers(site, tmp_path):
    after = await among_good_pages(site, tmp_path, [], spider=Careless())

    kept = {record.url.rpartition("/")[2]: record for record in after.records}
    assert kept["typed"].key == MENDED
    assert kept["typed"].data == {"url": site.url("/typed"), "name": MENDED, "note": MENDED, "tags": [MENDED]}
    assert kept["plain_dict"].data == {"url": site.url("/plain_dict"), MENDED: [MENDED, {MENDED: MENDED}]}
    assert kept["as_url"].key == MENDED
    assert kept["told"].data["is_whole"]
    assert after.fate(site.url("/x%00y")) == ("done", "")
    assert after.fate(site.url("/raised")) == ("dead", "parse")
    assert f"ValueError: {MENDED}" in after.letters[site.url("/raised")].message
    assert after.fate(site.url("/in_data")) == ("dead", "parse")
    assert "is not JSON" in after.letters[site.url("/in_data")].message
    assert after.fate(site.url("/in_link")) == ("dead", "parse")
    assert "lone surrogate" in after.letters[site.url("/in_link")].message
    assert after.fate(site.url("/dropped")) == ("done", "")
    assert [drop.reason for drop in after.heard.of(ItemDropped)] == [BAD]


async def test_every_line_of_the_log_is_json_all_the_same(site, tmp_path):
    stream = io.StringIO()
    spider = Careless()
    spider.start_urls = [site.show("/start", "<title>Start</title>")]

    await crawl(spider, settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]), events=JsonLog(stream, SystemClock()))

    stream.getvalue().encode()  # it can be written to any file
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["reason"] for line in lines if line["event"] == "ItemDropped"] == [BAD]
    assert [line["message"] for line in lines if line["event"] == "Buried" and MENDED in line["message"]]
    assert not [line for line in lines if line["event"] == "Trouble"]


async def test_bad_text_from_a_page_arrives_as_what_browsers_show(tmp_path):
    async with hostile_site() as site:
        page = site.show(
            "/page", b"<title>a\x00b&#0;c&#xD800;d\xed\xa0\x80e</title><a href='/li\x00nk\xed\xa0\x80'>x</a>"
        )
        odd = site.show("/odd", "<title>Odd</title>", 'ETag: "\x80\xff"', "Last-Modified: \xe9")
        after = await among_good_pages(site, tmp_path, [page, odd])

        title = after.record(page)["title"]
        assert title.startswith("a")
        assert title.endswith("e")
        assert "\x00" not in title
        title.encode()
        assert after.fate(odd) == ("done", "")
        (link,) = [fate for fate in after.fates if "/li" in fate[0]]
        assert link[1:] == ("dead", "http-404")

        # what is stored can be read again
        async def every(system: Any) -> list[StoredRecord]:
            return [record async for record in system.records.records(RecordQuery())]

        assert len(await look(settings_for(tmp_path), every)) == len(after.records)


async def test_a_second_visit_sends_odd_validators_back_unharmed_or_not_at_all(tmp_path):
    async with hostile_site() as site:
        odd = site.show("/odd", "<title>Odd</title>", 'ETag: "\x80\xff\xe9"', "Last-Modified: \xff\xfe yesterday")
        await among_good_pages(site, tmp_path, [odd])
        after = await among_good_pages(site, tmp_path, [odd])
        assert after.fate(odd) == ("done", "")
