"""Items add up, as URLs do: every item that a callback yields ends in one state, and the run says so."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer import Drop, Item, Page, Spider
from gossamer.model.events import QualityChanged, Stored
from gossamer.parse.discovery import load_spider
from gossamer.project.jobs.crawl import CrawlReport, RunningCrawl
from gossamer.project.open import Project
from gossamer.store.contract import RecordQuery
from tests.journey.commands import QUICK, gossamer
from tests.journey.crawling import Heard, crawled, look, settings_for
from tests.patience import until
from tests.sites.api import Asked, api_site
from tests.sites.moving import moving_shop
from tests.sites.sayings import Sayings, sayings_site

ALLOWED = QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]')


class Quote(Item, key="url"):
    text: str


def account(report: CrawlReport) -> dict[str, int]:
    """The states of a crawl's items. They add up, whatever happened."""
    assert report.account is not None
    assert report.account.yielded == sum(report.account.states().values())
    return report.account.states()


def outcome_of(report: CrawlReport) -> tuple[str, list[str]]:
    assert report.job.outcome is not None
    return report.job.outcome.outcome.value, [reason.code for reason in report.job.outcome.reasons]


class Plain(Spider):
    """What a newcomer writes first: dicts, ten on a page, with the page's URL."""

    name = "plain"

    def __init__(self, site: Sayings) -> None:
        self.start_urls = [site.url]

    def parse(self, page: Page) -> Any:
        for quote in page.css(".saying::text").getall():
            yield self.item(page, quote)
        yield from page.follow_all("a")

    def item(self, page: Page, quote: str) -> Any:
        return {"url": page.url, "text": quote}


class Rated(Plain):
    """Every item is faulty: no site has a rating of 7 out of 5."""

    name = "rated"
    min_quality = 0.8
    concurrency = 1

    def item(self, page: Page, quote: str) -> Any:
        return {"url": page.url, "text": quote, "rating": 7}


class OneKey(Plain):
    def item(self, page: Page, quote: str) -> Any:
        return Quote(url="https://same.example/", text=quote)


@pytest.fixture
def site() -> Iterator[Sayings]:
    with sayings_site() as running:
        yield running


async def test_ten_dicts_on_a_page_are_ten_records(tmp_path: Path, site: Sayings) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    first = await crawled(Plain(site), read)
    assert account(first.report) == {"new": 100}
    assert first.report.records == 100
    assert outcome_of(first.report) == ("done", [])
    # The same again, and then one text changes: a change, and no new record.
    assert account((await crawled(Plain(site), read)).report) == {"unchanged": 100}
    site.texts[3][2] = "It changed."
    assert account((await crawled(Plain(site), read)).report) == {"unchanged": 99, "changed": 1}


async def test_items_of_many_pages_with_one_key_are_in_conflict(tmp_path: Path, site: Sayings) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    after = await crawled(OneKey(site), read)
    assert account(after.report) == {"new": 1, "conflict": 99}
    assert outcome_of(after.report) == ("done with warnings", ["conflict"])
    (reason,) = after.report.job.outcome.reasons  # type: ignore[union-attr]
    assert reason.message.startswith("99 items share a key with a different item: `url` is not unique on these pages")
    assert "https://same.example/" in reason.message


async def test_what_steps_drop_and_what_goes_with_a_failing_callback_is_counted(tmp_path: Path, site: Sayings) -> None:
    class Careless(Plain):
        def __init__(self, site: Sayings) -> None:
            super().__init__(site)
            self.pipeline = [no_sevens]

        def parse(self, page: Page) -> Any:
            yield from super().parse(page)
            if page.url.endswith("/page/4"):
                raise ValueError("a bug")

    def no_sevens(item: Any, page: Page) -> Any:
        return Drop("a seven") if " 7 of" in item["text"] else item

    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    after = await crawled(Careless(site), read)
    assert account(after.report) == {"new": 81, "dropped": 9, "lost": 10}
    assert after.report.account is not None
    assert after.report.account.reasons == {"no_sevens: a seven": 9}


DEAR = """
from gossamer import Drop, Item, Spider

class Ware(Item, key="sku"):
    sku: str

class Maker(Item, key="name"):
    name: str

def affordable(item, page):
    return Drop(f"too dear: SKU-{item.sku}") if isinstance(item, Ware) else item

def named(item, page):
    return Drop(f"unwanted {item.name}") if isinstance(item, Maker) and item.name.startswith("a") else item

class Dear(Spider):
    name = "dear"
    start_urls = ["URL/page/1"]
    pipeline = (affordable, named)

    def parse(self, page):
        for number in range(60):
            yield Ware(sku=f"{number:04}")
            yield Maker(name="a" + "xyzuvw"[number % 6] * (number + 1))
        yield Maker(name="b")
        yield {"of": page.url}
"""


async def test_reasons_are_grouped_and_the_command_of_the_summary_works_for_items_of_several_types(
    tmp_path: Path, site: Sayings
) -> None:
    (tmp_path / "gossamer.toml").write_text(ALLOWED)
    (tmp_path / "dear.py").write_text(DEAR.replace("URL", site.url))

    said = await gossamer(tmp_path, "crawl", "dear.py", environ={"COLUMNS": "200"})

    assert said.code == 0, said
    reasons = '60 by affordable: too dear: SKU-…, 60 by named, such as "unwanted a'
    assert reasons in said.err
    words = shlex.split(next(line for line in said.err.splitlines() if "gossamer export" in line))
    command = words[1 : words.index("the")]
    assert command == ["export", "--job", "dear-1", "--type", "Maker", "-o", "items.csv"]
    assert (await gossamer(tmp_path, *command)).code == 0


async def test_a_replayed_page_moves_its_lost_items(tmp_path: Path, site: Sayings) -> None:
    (tmp_path / "gossamer.toml").write_text(ALLOWED)
    spider = """
from gossamer import Spider
class Plain(Spider):
    name = "plain"
    start_urls = ["{url}"]
    def parse(self, page):
        for text in page.css(".saying::text").getall():
            yield {{"url": page.url, "text": text}}
        {bug}
        yield from page.follow_all("a")
"""
    folder = tmp_path / "spiders"
    folder.mkdir()
    bug = "if page.url.endswith('/page/4'): raise ValueError('a bug')"
    (folder / "plain.py").write_text(spider.format(url=site.url, bug=bug))
    said = await gossamer(tmp_path, "crawl", "plain")
    assert said.code == 3, said
    shown = json.loads((await gossamer(tmp_path, "job", "show", "plain", "--json")).out)["items"]
    assert (shown["yielded"], shown["new"], shown["lost"]) == (100, 90, 10)

    (folder / "plain.py").write_text(spider.format(url=site.url, bug=""))
    replay = await gossamer(tmp_path, "dead", "replay", "--job", "plain-1")
    assert replay.code == 0, replay
    status = json.loads((await gossamer(tmp_path, "status", "plain", "--json")).out)["items"]
    assert (status["yielded"], status["new"]) == (100, 100)
    assert "lost" not in status


async def test_a_summary_shows_the_sum_and_exits_with_a_warning(tmp_path: Path, site: Sayings) -> None:
    (tmp_path / "gossamer.toml").write_text(ALLOWED)
    (tmp_path / "one.py").write_text(
        f"""
from gossamer import Item, Spider
class Quote(Item, key="url"):
    text: str
class One(Spider):
    name = "one"
    start_urls = ["{site.url}"]
    def parse(self, page):
        for text in page.css(".saying::text").getall():
            yield Quote(url=page.url, text=text)
        yield from page.follow_all("a")
"""
    )
    said = await gossamer(tmp_path, "crawl", "one.py")
    assert said.code == 3, said
    words = " ".join((said.out + said.err).split())
    assert "100 yielded = 10 new + 90 in conflict" in words
    assert "90 items share a key with a different item: `url` is not unique on these pages" in words
    for verb in (["status", "one"], ["job", "show", "one"]):
        assert "100 yielded = 10 new + 90 in conflict" in " ".join((await gossamer(tmp_path, *verb)).out.split())


async def test_spiders_that_share_a_type_find_what_each_of_them_saw(tmp_path: Path, site: Sayings) -> None:
    class Other(Plain):
        name = "other"

    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    await crawled(Plain(site), read)
    second = await crawled(Other(site), read)
    items = second.report.account
    assert items is not None
    assert (items.shared, items.shared_with) == (100, "plain")

    async def seen(project: Project) -> list[int]:
        return [await project.records.count(RecordQuery(spider=name)) for name in ("plain", "other", "nobody")]

    assert await look(read, seen) == [100, 100, 0]


async def test_a_spider_parses_pages_that_another_one_of_its_file_has_read(tmp_path: Path) -> None:
    class Titles(Spider):
        def parse(self, page: Page) -> Any:
            yield {"title": page.css("title::text").get(), "url": page.url}

    class Headings(Spider):
        def parse(self, page: Page) -> Any:
            yield {"heading": page.css("h1::text").get(), "url": page.url}

    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(3) as shop:
        shop.etag = True
        for spider in (Titles(), Headings()):
            spider.start_urls = [shop.url]
            after = await crawled(spider, read)
            assert after.report.account is not None
            assert after.report.account.yielded == 1, spider.name


async def test_a_restart_in_the_middle_of_a_bad_run_does_not_open_the_guard(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    heard = Heard()

    async def stop_when_it_closes(running: RunningCrawl) -> None:
        await until(lambda: heard.of(QualityChanged), every=0.001)
        running.pool.drain()

    with sayings_site(pages=200, each=1) as site:
        first = await crawled(Rated(site), read, attend=stop_when_it_closes, heard=heard)
        assert not first.report.ended
        stored = account(first.report)["new"]
        second = await crawled(Rated(site), read)
    assert second.report.resumed
    assert account(second.report) == {"new": stored, "held": 200 - stored}
    assert second.report.account is not None
    assert second.report.account.reasons == {"the quality guard": 200 - stored}
    assert outcome_of(second.report)[0] == "held back"


SCRAPY = """
import scrapy

class Plain(scrapy.Spider):
    name = "plain"
    start_urls = ["{url}"]

    def parse(self, response):
        for text in response.css(".saying::text").getall():
            yield {{"url": response.url, "text": text}}
        yield from response.follow_all(css="a")
"""


async def test_the_same_body_in_a_scrapy_spider_has_the_same_records(tmp_path: Path, site: Sayings) -> None:
    (tmp_path / "theirs.py").write_text(SCRAPY.format(url=site.url))
    scrapy_spider = load_spider("theirs.py", tmp_path, "spiders")()
    found = []
    for place, spider in enumerate((Plain(site), scrapy_spider)):
        read = settings_for(tmp_path / str(place), fetch__allow_hosts=["127.0.0.1"])
        after = await crawled(spider, read)
        found.append({(record.key, record.data["text"]) for record in after.records})
        assert account(after.report) == {"new": 100}
        site.texts[5][5] += " Changed."
        assert account((await crawled(spider, read)).report) == {"unchanged": 99, "changed": 1}
        site.texts[5][5] = site.texts[5][5].removesuffix(" Changed.")
    assert found[0] == found[1]


async def test_the_items_of_errbacks_and_of_failing_pages_are_counted_with_their_page(
    tmp_path: Path, site: Sayings
) -> None:
    class Heedful(Plain):
        def parse(self, page: Page) -> Any:
            yield from super().parse(page)
            if page.url == site.url:
                yield page.follow("/nothing-here")
            if page.url.endswith("/page/2"):
                raise ValueError("a bug")

        def failed(self, failure: Any) -> Any:
            yield {"url": failure.url, "text": failure.reason}

    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    assert account((await crawled(Heedful(site), read)).report) == {"new": 92, "lost": 10}


@pytest.mark.parametrize(("policy", "states"), [("store", {"new": 100}), ("drop", {"faulty": 100})])
async def test_a_spider_says_what_becomes_of_faulty_items(
    tmp_path: Path, site: Sayings, policy: Any, states: dict[str, int]
) -> None:
    class Chosen(Rated):
        min_quality = None
        on_fault = policy

    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    assert account((await crawled(Chosen(site), read)).report) == states


async def test_a_faulty_item_may_fail_its_page(tmp_path: Path, site: Sayings) -> None:
    class Strict(Rated):
        min_quality = None
        on_fault = "fail"

        def item(self, page: Page, quote: str) -> Any:
            return {"url": page.url, "text": quote, "rating": 7 if "Saying 3 of page 4" in quote else 4}

    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    after = await crawled(Strict(site), read)
    assert account(after.report) == {"new": 90, "faulty": 1, "lost": 9}
    assert outcome_of(after.report) == ("done with warnings", ["dead-letters"])


async def test_a_callback_knows_how_deep_its_page_lies_and_what_was_stored_is_told(tmp_path: Path) -> None:
    async with api_site() as web:

        def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
            """Each page leads to the next one."""
            if asked.path == "/robots.txt":
                return 404, {}, b""
            number = int(asked.path.removeprefix("/"))
            link = f"<a href=/{number + 1}>next</a>" if number < 3 else ""
            return 200, {"Content-Type": "text/html"}, f"<p>{'A calm page. ' * 20}</p>{link}".encode()

        class Deep(Spider):
            start_urls = (web.url("/0"),)

            def parse(self, page: Page) -> Any:
                yield {"url": page.url, "depth": page.depth}
                yield from page.follow_all("a")

        web.answer = answer  # type: ignore[method-assign]
        settings = settings_for(tmp_path, fetch__allow_private=True)
        first, second = [await crawled(Deep(), settings) for _ in range(2)]
    assert {record.url.rpartition("/")[2]: record.data["depth"] for record in first.records} == {
        str(depth): depth for depth in range(4)
    }
    told = [[(event.items, event.changed) for event in after.heard.of(Stored)] for after in (first, second)]
    assert told == [[(1, 1)] * 4, [(1, 0)] * 4]
