"""Never a green Done that is wrong: the outcome of a crawl, and which records it may call gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer import Drop, Item, Page, Spider
from gossamer.errors import BackendUnavailable
from gossamer.model.job import Job
from gossamer.project.jobs.crawl import RunningCrawl, crawl
from gossamer.project.jobs.jobs import JobView, show_job
from gossamer.project.open import Project
from gossamer.store.contract import RecordQuery
from tests.journey.commands import QUICK, gossamer
from tests.journey.crawling import crawled, look, settings_for
from tests.sites.moving import MovingShop, moving_shop


class Thing(Item, key="url"):
    title: str


class Shop(Spider):
    """`selector` is what a layout is read by; `arguments` is how a run differs from another of the same spider."""

    def __init__(self, shop: MovingShop, *, selector: str = "h1", start: str = "", **arguments: str) -> None:
        self.start_urls = [f"{shop.url}{start}"]
        self.selector = selector
        self.arguments = arguments

    def parse(self, page: Page) -> Any:
        wanted = self.arguments.get("only")
        yield from page.follow_all(f"li a[href*='{wanted}']" if wanted else "li a", self.thing)

    def thing(self, page: Page) -> Any:
        for title in page.css(f"{self.selector}::text").getall():
            yield Thing(url=page.url, title=title)


def outcome_of(after: Any) -> tuple[str, list[str]]:
    found = after.report.job.outcome
    return found.outcome.value, [reason.code for reason in found.reasons]


async def gone(read: Any) -> list[str]:
    async def ask(project: Project) -> list[str]:
        found = [record async for record in project.records.records(RecordQuery(gone=True))]
        return sorted(record.url.rpartition("/")[2] for record in found)

    return await look(read, ask)  # type: ignore[no-any-return]


async def test_every_crawl_ends_with_the_outcome_that_the_site_saw(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(8) as shop:
        assert outcome_of(await crawled(Shop(shop), read)) == ("done", [])
        # a layout that the selectors do not fit any more
        assert outcome_of(await crawled(Shop(shop, selector="h3"), read)) == ("empty", ["no-records", "nothing-found"])
        limited = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"], crawl__limit=3)
        assert outcome_of(await crawled(Shop(shop), limited)) == ("done", ["limit"])
        # a catalogue that halves, as the expectation says; pages that do not exist are no warning
        shop.sold_out, shop.missing = {1, 2, 3}, {4}
        strict = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"], expect__max_change=0.4, expect__min_records=6)
        assert outcome_of(await crawled(Shop(shop), strict)) == ("done with warnings", ["min-records", "max-change"])
        assert outcome_of(await crawled(Shop(shop), read)) == ("done", [])
        shop.url = "http://127.0.0.1:9/"  # nobody is there
        assert outcome_of(await crawled(Shop(shop), read)) == ("failed", ["nothing-came"])


async def test_a_crawl_whose_items_are_all_left_out_does_not_blame_the_selectors(tmp_path: Path) -> None:
    class Sieve(Shop):
        pipeline = (lambda item, page: Drop("not wanted"),)

    with moving_shop(8) as shop:
        found = (
            await crawled(Sieve(shop), settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"]))
        ).report.job.outcome
    assert [reason.code for reason in found.reasons] == ["no-records", "not-stored"]
    assert found.reasons[1].message == "items were found, and none is stored: 8 yielded = 8 dropped by a step"


async def test_a_crawl_that_is_cancelled_before_a_page_came_has_not_failed(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"], retry__base="60s", retry__cap="60s")

    async def cancel(running: RunningCrawl) -> None:
        await running.project.state.jobs.cancel_job(running.job.id)

    with moving_shop(1) as shop:
        shop.url = "http://127.0.0.1:9/"  # nobody is there
        after = await crawled(Shop(shop), read, attend=cancel)
    assert outcome_of(after) == ("incomplete", ["cancelled"])
    assert (after.report.ended, after.report.failure) == (True, "")  # of which the exit code is made


async def test_a_layout_that_is_not_understood_marks_nothing_as_gone_also_where_a_page_failed(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(24) as shop:
        await crawled(Shop(shop), read)
        shop.members = {3}  # a dead letter: the run did not get everywhere
        after = await crawled(Shop(shop, selector="h3"), read)
    assert outcome_of(after)[0] == "empty"
    assert await gone(read) == []


SPIDER = """
from gossamer import Drop, Item, Page, Spider

class Thing(Item, key="url"):
    title: str

class Things(Spider):
    start_urls = ["{url}"]

    def parse(self, page: Page):
        yield from page.follow_all("li a", self.thing)

    def thing(self, page: Page):
        for title in page.css("h1::text").getall():
            yield Thing(url=page.url, title=title)
"""


@pytest.mark.long
async def test_the_exit_code_tells_the_outcome_and_status_history_and_json_tell_it_too(tmp_path: Path) -> None:
    toml = QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]')
    (tmp_path / "gossamer.toml").write_text(toml, encoding="utf-8")
    (tmp_path / "spiders").mkdir()
    spider = tmp_path / "spiders" / "things.py"
    with moving_shop(5) as shop:
        spider.write_text(SPIDER.format(url=shop.url), encoding="utf-8")
        codes = [
            (await gossamer(tmp_path, "crawl", "things", "--quiet", *flags)).code
            for flags in ((), ("--min-records", "6"), ("--limit", "2"))
        ]
        spider.write_text(SPIDER.format(url=shop.url).replace("h1", "h3"), encoding="utf-8")
        empty = await gossamer(tmp_path, "crawl", "things")
        listed = await gossamer(tmp_path, "job", "list", "--json")
        shown = await gossamer(tmp_path, "status", "things-4")
    assert (codes, empty.code) == ([0, 3, 0], 4)
    assert "Empty: no record came from 6 pages" in empty.err.replace("\n", " ")
    assert "Done" not in empty.err
    assert '"outcome": "empty"' in listed.out
    assert '"code": "min-records"' in listed.out
    assert "no record came from 6 pages" in shown.out
    assert "its spider yielded no item" in shown.out


class SameShop(Shop):
    """Another spider that gives the same records."""


async def test_a_spider_whose_records_another_one_has_found_first_is_not_empty(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(4) as shop:
        await crawled(Shop(shop), read)
        second = await crawled(SameShop(shop), read)

    assert second.report.records == 4
    assert outcome_of(second) == ("done", [])


async def test_a_run_marks_only_records_as_gone_that_it_stood_for(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(24) as shop:
        # Given a run of the whole catalogue, and the same spider with an argument: it sees a part of it
        await crawled(Shop(shop), read)
        await crawled(Shop(shop, only="/p/1"), read)
        assert await gone(read) == []

        # When one thing is sold out, then the run with the argument speaks for its own records alone
        shop.sold_out = {2, 11}
        await crawled(Shop(shop, only="/p/1"), read)
        assert await gone(read) == ["11"]
        # and another start is another run, too
        await crawled(Shop(shop, start="?page=2"), read)
        assert await gone(read) == ["11"]

        # When the whole catalogue is run again, all that is gone is known
        await crawled(Shop(shop), read)
        assert await gone(read) == ["11", "2"]


class Named(Item, key="title"):
    title: str


class ByTitle(Shop):
    def thing(self, page: Page) -> Any:
        yield Named(title=page.css("h1::text").get(""))


async def test_a_page_that_led_elsewhere_for_a_time_is_read_in_full_when_it_is_back(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(3) as shop:
        shop.etag = True
        await crawled(ByTitle(shop), read)
        shop.moved = {2}
        await crawled(ByTitle(shop), read)
        shop.moved = set()
        back = await crawled(ByTitle(shop), read)

    assert back.fate(f"{shop.url}p/1") == ("unchanged", "")
    assert back.fate(f"{shop.url}p/2") == ("done", "")
    assert await gone(read) == []


class Members(Spider):
    def __init__(self, site: MovingShop) -> None:
        self.start_urls = [site.url]

    def parse(self, page: Page) -> Any:
        yield from page.follow_all("li a", self.thing)

    def thing(self, page: Page) -> Any:
        yield Thing(url=page.url, title=page.css("h1::text").get(""))


async def test_a_redirect_to_a_login_page_is_a_block(tmp_path: Path) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(6) as shop:
        shop.members = {4, 5, 6}
        after = await crawled(Members(shop), read)
        assert outcome_of(after) == ("done with warnings", ["dead-letters"])
        assert {reason for _, state, reason in after.fates if state == "dead"} == {"blocked-login"}
        assert "redirects to a login page" in after.letters[f"{shop.url}p/5"].message
        assert "/login" not in " ".join(shop.hits)

        # Nothing but walls: not one record, and the reason is told
        shop.members = set(range(1, 7))
        assert outcome_of(await crawled(Members(shop), read)) == (
            "empty",
            ["no-records", "logged-out", "nothing-found", "dead-letters"],
        )


class Fussy(Shop):
    """Cannot read the pages of these products."""

    unread: frozenset[str] = frozenset()

    def thing(self, page: Page) -> Any:
        if page.url.rpartition("/")[2] in self.unread:
            raise ValueError("not understood")
        yield from super().thing(page)


@pytest.mark.parametrize("unread", [frozenset("1234"), frozenset("12")])
async def test_an_outcome_is_settled_again_when_a_later_run_has_the_pages_that_failed(
    tmp_path: Path, unread: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
    with moving_shop(4) as shop:
        monkeypatch.setattr(Fussy, "unread", unread)
        first = await crawled(Fussy(shop), read)
        assert outcome_of(first)[0] == ("empty" if len(unread) == 4 else "done with warnings")
        monkeypatch.setattr(Fussy, "unread", frozenset())
        await crawled(Fussy(shop), read)

    async def ask(project: Project) -> JobView:
        return await show_job(project, first.report.job.id)

    view = await look(read, ask)
    # it saw no records itself where it could read none; what failed is no longer counted against it
    assert [reason.code for reason in view.reasons if reason.code == "dead-letters"] == []
    assert view.dead == 0
    assert view.first_ended == view.finished
    assert view.settled_again > view.first_ended


@pytest.mark.parametrize("fetch", [False, True])
async def test_an_outcome_is_settled_again_when_dead_letters_are_replayed(tmp_path: Path, fetch: bool) -> None:
    toml = QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]')
    (tmp_path / "gossamer.toml").write_text(toml, encoding="utf-8")
    (tmp_path / "spiders").mkdir()
    spider = tmp_path / "spiders" / "things.py"
    with moving_shop(5) as shop:
        spider.write_text(SPIDER.format(url=shop.url).replace("yield Thing(", "yield Thing(oops,"), encoding="utf-8")
        assert (await gossamer(tmp_path, "crawl", "things", "--quiet")).code == 4
        spider.write_text(SPIDER.format(url=shop.url), encoding="utf-8")
        assert (await gossamer(tmp_path, "dead", "replay", "--all", *(("--fetch",) if fetch else ()))).code == 0
        if fetch:
            assert (await gossamer(tmp_path, "crawl", "things", "--quiet")).code == 0
        shown = json.loads((await gossamer(tmp_path, "job", "show", "things-1", "--json")).out)
        status = json.loads((await gossamer(tmp_path, "status", "things-1", "--json")).out)
        assert "settled again" in (await gossamer(tmp_path, "status", "things-1")).out
    assert (shown["outcome"], shown["reasons"], shown["dead"]) == ("done", [], 0)
    assert shown["settled_again"] > shown["first_ended"] > shown["started"]
    assert [status[name] for name in ("settled_again", "first_ended")] == [shown["settled_again"], shown["first_ended"]]


async def test_a_store_that_is_away_for_a_moment_when_a_crawl_has_ended_does_not_fail_it(tmp_path) -> None:
    calls: list[str] = []

    async def write(project: Project, job: Job) -> None:
        calls.append(job.id)
        if len(calls) < 3:
            raise BackendUnavailable("The records are away.")

    with moving_shop(3) as shop:
        report = await crawl(Shop(shop), settings_for(tmp_path, fetch__allow_private=True), after=write)

    assert report.ended
    assert len(calls) == 3
