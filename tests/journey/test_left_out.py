"""Nothing is left out in silence: what the site's own log says was asked, beside the outcome of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer import Item, Page, Spider
from gossamer.model.events import Gone, Trouble
from gossamer.project.jobs.crawl import RunningCrawl
from gossamer.project.open import Project
from gossamer.schedule.sources import parse_source
from gossamer.store.contract import RecordQuery
from tests.journey.crawling import Heard, crawled, look, settings_for
from tests.journey.test_outcomes import outcome_of
from tests.journey.test_scheduled_jobs import ran, settings_in
from tests.patience import until
from tests.services.valkey import running_valkey
from tests.sites.moving import MovingShop, moving_shop


class Thing(Item, key="url"):
    title: str


class Shop(Spider):
    """Follows the links of the front page, or starts from `urls`."""

    def __init__(self, shop: MovingShop, urls: list[str] | None = None) -> None:
        self.start_urls = urls or [shop.url]

    def parse(self, page: Page) -> Any:
        yield from page.follow_all("li a")
        if "/p/" in page.url:
            yield Thing(url=page.url, title=page.css("h1::text").get() or "")


def products(shop: MovingShop) -> list[str]:
    return [path for path in shop.hits if path.startswith("/p/")]


async def gone(read: Any) -> int:
    async def ask(project: Project) -> int:
        return await project.records.count(RecordQuery(gone=True))

    return await look(read, ask)  # type: ignore[no-any-return]


def local(folder: Path, **flags: Any) -> Any:
    return settings_for(folder, fetch__allow_hosts=["127.0.0.1"], **flags)


async def test_start_urls_beyond_the_limit_of_their_pattern_are_all_fetched(tmp_path: Path) -> None:
    with moving_shop(150) as shop:
        urls = [f"{shop.url}p/{n}" for n in range(1, 151)]
        after = await crawled(Shop(shop, urls), local(tmp_path, crawl__max_urls_per_pattern=100))
    assert sorted(products(shop)) == sorted(f"/p/{n}" for n in range(1, 151))
    assert outcome_of(after) == ("done", [])


async def test_a_range_of_a_schedule_beyond_the_limit_of_its_pattern_is_fetched_whole(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, **{"crawl.max_urls_per_pattern": 20, "crawl.max_urls_per_site": 20})
    with moving_shop(50) as shop:
        source = msgspec.json.encode(parse_source({"urls": [f"{shop.url}p/{{1..50}}"]}, "here")).decode()
        job, _ = await ran(settings, "range", source=source)
    assert sorted(products(shop)) == sorted(f"/p/{n}" for n in range(1, 51))
    assert job.outcome is not None
    assert job.outcome.outcome == "done"


async def test_a_seed_that_looks_like_a_trap_is_fetched_and_so_is_the_page_it_redirects_to(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        shop.moved = {1, 2, 3}
        urls = [f"{shop.url}p/{n}" for n in (1, 2, 3)] + [f"{shop.url}p/1?{'x' * 3000}"]
        after = await crawled(Shop(shop, urls), local(tmp_path, crawl__max_urls_per_pattern=1))
    assert {"/p/1?moved", "/p/2?moved", "/p/3?moved"} < set(products(shop))
    assert any(len(path) > 3000 for path in products(shop))
    assert outcome_of(after) == ("done", [])


async def test_links_beyond_the_limit_of_their_pattern_make_a_run_incomplete_and_none_of_its_records_gone(
    tmp_path: Path,
) -> None:
    with moving_shop(30) as shop:
        await crawled(Shop(shop), local(tmp_path))
        for limit in ("max_urls_per_pattern", "max_urls_per_site"):
            after = await crawled(Shop(shop), local(tmp_path, **{f"crawl__{limit}": 25}))
            word, codes = outcome_of(after)
            assert (word, codes) == ("incomplete", [limit.removeprefix("max_urls_per_") + "-limit"])
            assert f"crawl.{limit}" in after.report.job.outcome.in_words
            assert await gone(local(tmp_path)) == 0


async def test_a_full_queue_delays_links_and_leaves_out_none(tmp_path: Path) -> None:
    with moving_shop(500) as shop:
        after = await crawled(Shop(shop), local(tmp_path, crawl__max_queued=50))
    assert sorted(products(shop)) == sorted(f"/p/{n}" for n in range(1, 501))
    assert outcome_of(after) == ("done", [])
    assert after.report.counts.dropped == after.report.counts.postponed == 0
    after.assert_adds_up()


async def test_links_that_look_like_traps_are_a_warning_and_no_evidence_of_what_is_gone(tmp_path: Path) -> None:
    with moving_shop(30) as shop:
        await crawled(Shop(shop), local(tmp_path))
        shop.sold_out = {1}
        tight = local(tmp_path, crawl__max_path_segments=1)  # "/p/2" has two
        after = await crawled(Shop(shop, [shop.url, f"{shop.url}p/30"]), tight)
    assert outcome_of(after)[0] == "done with warnings"
    assert "trap" in outcome_of(after)[1]
    assert await gone(tight) == 0


async def test_a_limit_that_the_user_named_is_no_fault_but_no_baseline_and_no_evidence(tmp_path: Path) -> None:
    with moving_shop(30) as shop:
        await crawled(Shop(shop), local(tmp_path, expect__max_change=0.2))
        after = await crawled(Shop(shop), local(tmp_path, crawl__limit=10, expect__max_change=0.2))
        assert outcome_of(after) == ("done", ["limit"])
        assert after.report.job.ending == "limit"
        assert after.report.job.outcome.in_words == "done: stopped at your limit of 10 pages"
        assert await gone(local(tmp_path)) == 0
        # the run before it is what the next is compared with
        after = await crawled(Shop(shop), local(tmp_path, expect__max_change=0.2), fresh=True)
        assert outcome_of(after) == ("done", [])
        # and what failed still counts
        shop.members = {1, 2, 3}
        after = await crawled(Shop(shop), local(tmp_path, crawl__limit=10, retry__max_attempts=1), fresh=True)
        assert outcome_of(after) == ("done with warnings", ["dead-letters", "limit"])


async def test_redirects_count_neither_towards_the_limit_nor_as_pages(tmp_path: Path) -> None:
    with moving_shop(30) as shop:
        shop.moved = set(range(1, 31))
        after = await crawled(Shop(shop), local(tmp_path, crawl__limit=10))
        counts = after.report.counts
        assert (counts.pages, counts.towards_limit) == (10, 10)
        assert counts.redirected > 0
        assert len(after.records) == 9
    with moving_shop(10) as shop:
        shop.moved = set(range(1, 11))  # as many redirects as pages: the limit is not reached
        after = await crawled(Shop(shop), local(tmp_path, crawl__limit=12), fresh=True)
        assert outcome_of(after) == ("done", [])


# -- a state without memory ---------------------------------------------------------------------------------------


class Tree(Spider):
    """Every page is linked from one other page only: a link that is lost is not found again."""

    def __init__(self, shop: MovingShop) -> None:
        self.start_urls = [f"{shop.url}p/1"]

    def parse(self, page: Page) -> Any:
        number = int(page.url.rpartition("/")[2])
        yield Thing(url=page.url, title=page.css("h1::text").get() or "")
        yield from (page.follow(f"/p/{n}") for n in (2 * number, 2 * number + 1) if n <= PAGES)


PAGES = 127


@pytest.mark.parametrize("crawled_before", [False, True])
async def test_a_server_without_memory_for_a_while_costs_no_page_and_no_record(
    tmp_path: Path, crawled_before: bool
) -> None:
    with moving_shop(PAGES) as shop, running_valkey("--maxmemory-policy", "noeviction") as valkey:
        read = local(tmp_path, project="tree", state=valkey.address(), crawl__concurrency=4, politeness__concurrency=4)
        if crawled_before:
            await crawled(Tree(shop), read)
        began, heard = len(shop.hits), Heard()

        async def starve(running: RunningCrawl) -> None:
            await until(lambda: len(shop.hits) > began + PAGES // 8)
            valkey.say("CONFIG", "SET", "maxmemory", "1mb")
            await until(lambda: any("out of memory" in event.message for event in heard.of(Trouble)))
            valkey.say("CONFIG", "SET", "maxmemory", "0")

        after = await crawled(Tree(shop), read, attend=starve, heard=heard)

    assert set(shop.hits[began:]) - {"/robots.txt"} == {f"/p/{n}" for n in range(1, PAGES + 1)}
    assert outcome_of(after) == ("done", [])
    assert (len(after.records), after.report.counts.dropped) == (PAGES, 0)
    after.assert_adds_up()
    assert not heard.of(Gone)
