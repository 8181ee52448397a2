"""Who can write to the record store, and to nothing else.

Tried: the stored links of a page, which are followed when its server says that it has not changed: addresses of our own
network, other schemes, callbacks that are no callbacks, bombs, garbage. Texts in records are those of a site, see
test_site_text.py and tests/unit/test_terminal_escapes.py; what references to the archive lead to is tried in
test_archive_writer.py.

Not prevented: records say what their writer likes, and a page whose row is broken becomes a dead letter, once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from gossamer import Page, Spider
from gossamer.settings import Settings
from tests.journey.crawling import Aftermath, crawled, settings_for
from tests.sites.hostile_server import HostileSite, hostile_site


class Curious(Spider):
    allowed_domains = "*"
    called: list[str] = []  # noqa: RUF012 - what the test reads

    def parse(self, page: Page) -> Iterator[Any]:
        yield {"url": page.url}
        yield from page.follow_all("a")

    def _hidden(self, page: Page) -> None:
        self.called.append("_hidden")


def visitor(site: HostileSite) -> Curious:
    spider = Curious()
    spider.start_urls = [site.url("/"), site.url("/b")]
    return spider


def settings(folder: Path) -> Settings:
    return settings_for(folder, fetch__allow_hosts=["127.0.0.1"], politeness__robots=False)


async def again_with(site: HostileSite, folder: Path, links: bytes) -> Aftermath:
    """A second crawl, after somebody has replaced the stored links of the first page, which has not changed since."""
    site.show("/", '<a href="/b">b</a>', 'ETag: "1"')
    other = site.show("/b", "<p>b")
    await crawled(visitor(site), settings(folder))
    with sqlite3.connect(folder / "gossamer-data" / "records.db") as records:
        changed = records.execute("UPDATE pages SET links = ? WHERE etag <> ''", (links,)).rowcount
    records.close()
    assert changed == 1
    site.show("/", "", 'ETag: "1"', status=304)
    site.log.clear()
    after = await crawled(visitor(site), settings(folder), name="again", fresh=True)
    assert after.report.ended
    assert after.fate(other) == ("done", "")  # whatever the row says, the other page is had
    return after


def packed(*links: Any) -> bytes:
    return zstandard.compress(msgspec.json.encode(links))


BROKEN = {
    "garbage": b"garbage",
    "half a frame": b"\x28\xb5\x2f\xfdxx",
    "a bomb": zstandard.compress(b"[" + b" " * 300_000_000),
    "nesting without end": zstandard.compress(b"[" * 100_000),
    "wrong types": zstandard.compress(b'[{"url":5}]'),
}


@pytest.mark.parametrize("links", BROKEN.values(), ids=BROKEN)
async def test_links_that_cannot_be_read_fail_their_page_alone(tmp_path: Path, links: bytes) -> None:
    async with hostile_site() as site:
        after = await again_with(site, tmp_path, links)
        assert after.fate(site.url("/")) == ("dead", "parse")

        # The next crawl does not ask whether the page has changed, and has it again.
        site.show("/", '<a href="/b">b</a>', 'ETag: "1"')
        site.log.clear()
        healed = await crawled(visitor(site), settings(tmp_path), name="third", fresh=True)
        assert [seen.headers.get("if-none-match") for seen in site.seen("/")] == [None]
        assert healed.fate(site.url("/")) == ("done", "")


async def test_stored_links_lead_nowhere_where_links_of_a_page_could_not(tmp_path: Path) -> None:
    async with hostile_site() as site, hostile_site() as canary:
        private = canary.url("/secret", "127.0.0.2")
        links = packed(["parse", [private, "file:///etc/passwd", "javascript:1", "gopher://127.0.0.1/"]])
        after = await again_with(site, tmp_path, links)
        assert after.fate(site.url("/")) == ("unchanged", "")
        assert after.fate(private) == ("dead", "private-address")
        assert canary.connections == 0


@pytest.mark.parametrize("kind", ["_hidden", "__class__", "__init__", "start", "login", "_method", "name"])
async def test_a_stored_name_calls_nothing_but_callbacks(tmp_path: Path, kind: str) -> None:
    async with hostile_site() as site:
        target = site.show("/target", "<p>t")
        after = await again_with(site, tmp_path, packed([kind, [target]]))
        assert after.fate(target) == ("dead", "parse")
        assert Curious.called == []
