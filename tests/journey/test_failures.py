"""Failures reach the spider: what an errback gives is stored and queued with the dead letter, and counted once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer import Failure, Page, Request, Spider
from gossamer.backends.sqlite.frontier import SqliteFrontier
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.model.events import Buried, Retried, Stored
from tests.journey.crawling import crawled, look, settings_for
from tests.sites.hostile import HostileSite, hostile_site


class Careful(Spider):
    """Asks for pages that fail, and hears of each."""

    def parse(self, page: Page) -> Iterator[Any]:
        self.stats.add("starts")
        yield page.follow("/gone", errback=self.lost, data={"n": 1})
        yield page.follow("/broken", "breaks", errback="lost")
        yield page.follow("/also-gone")
        yield page.follow("/gone-too", errback=self.fails)

    def breaks(self, page: Page) -> Any:
        self.stats.add("not counted")
        raise KeyError("price")

    async def lost(self, failure: Failure) -> AsyncIterator[Any]:
        self.stats.add("lost", 2)
        text = failure.page.css("p::text").get() if failure.page is not None else None
        yield {"url": failure.url, "reason": failure.reason, "status": failure.status, "text": text,
               "attempts": failure.attempts, "data": failure.data}  # fmt: skip
        yield failure.page.follow("/instead", self.instead) if failure.page is not None else None

    def instead(self, page: Page) -> Iterator[Any]:
        yield {"url": page.url}

    def fails(self, failure: Failure) -> Any:
        self.stats.add("not counted")
        raise ValueError("and this")

    def failed(self, failure: Failure) -> Any:
        return {"url": failure.url, "reason": failure.reason, "by": "failed"}


@pytest.fixture
async def site() -> AsyncIterator[HostileSite]:
    async with hostile_site() as site:
        site.show("/start", "<p>Start</p>")
        site.show("/broken", "<p>No price</p>")
        site.show("/instead", "<p>Here</p>")
        for path in ("/gone", "/also-gone", "/gone-too"):
            site.show(path, "<p>Gone</p>", status=404)
        yield site


def spider_of(site: HostileSite) -> Careful:
    spider = Careful()
    spider.start_urls = [site.url("/start")]
    return spider


async def test_an_errback_hears_of_the_failure_and_may_give_items_and_requests(
    tmp_path: Path, site: HostileSite
) -> None:
    left = await crawled(spider_of(site), settings_for(tmp_path, fetch__allow_private=True))

    left.assert_adds_up()
    assert sum(event.changed for event in left.heard.of(Stored)) == len(left.records)
    assert left.record(site.url("/gone")) == {
        "url": site.url("/gone"), "reason": "http-404", "status": 404, "text": "Gone", "attempts": 1, "data": {"n": 1},
    }  # fmt: skip
    assert left.record(site.url("/broken"))["reason"] == "parse"
    assert left.record(site.url("/also-gone"))["by"] == "failed"
    assert left.record(site.url("/instead")) == {"url": site.url("/instead")}
    assert left.fate(site.url("/gone")) == ("dead", "http-404")
    assert left.fate(site.url("/broken")) == ("dead", "parse")
    assert len(site.seen("/instead")) == 1  # asked for by two failures
    assert left.report.counts.stats == {"starts": 1, "lost": 4}


async def test_an_errback_that_fails_leaves_a_dead_letter_with_both_reasons(tmp_path: Path, site: HostileSite) -> None:
    left = await crawled(spider_of(site), settings_for(tmp_path, fetch__allow_private=True))

    raised = left.letters[site.url("/gone-too")]
    assert raised.reason == "http-404"
    assert "Its errback failed too: Careful.fails failed on" in raised.message
    assert 'raise ValueError("and this")' in raised.message


@pytest.mark.parametrize("way", ["start", "parse"])
async def test_an_errback_that_is_not_there_is_told_before_anything_is_asked_for(
    tmp_path: Path, site: HostileSite, way: str
) -> None:
    class Typo(Careful):
        def start(self) -> Any:
            return [Request(url=site.url("/start"), errback="losst" if way == "start" else None)]

        def parse(self, page: Page) -> Iterator[Any]:
            yield page.follow("/gone", errback="losst")

    crawl = crawled(Typo(), settings_for(tmp_path, fetch__allow_private=True))
    if way == "start":
        with pytest.raises(Misconfigured, match=r"no such method .*did you mean 'lost'"):
            await crawl
    else:
        letter = (await crawl).letters[site.url("/start")]
        assert letter.reason == "parse"
        assert "has the errback 'losst', and the spider has no such method" in letter.message
    assert not site.seen("/gone")


async def test_an_errback_hears_of_a_page_that_robots_forbids(tmp_path: Path, site: HostileSite) -> None:
    site.answer_robots(200, "User-agent: *\nDisallow: /gone\n")
    left = await crawled(spider_of(site), settings_for(tmp_path, fetch__allow_private=True))

    left.assert_adds_up()
    assert left.fate(site.url("/gone")) == ("dropped", "robots")
    assert site.url("/gone") not in left.letters
    told = left.record(site.url("/gone"))
    assert (told["reason"], told["status"], told["attempts"], told["data"]) == ("robots", None, 0, {"n": 1})
    assert left.fate(site.url("/gone-too")) == ("dropped", "robots")  # its errback raises
    assert left.report.counts.stats == {"starts": 1, "lost": 4}
    assert not site.seen("/gone")


async def test_a_crash_between_storing_and_settling_repeats_the_errback_and_not_its_effect(
    tmp_path: Path, site: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a state that goes away the first time that a page is buried
    bury, broken = SqliteFrontier.bury, []

    async def bury_late(self: SqliteFrontier, *args: Any, **more: Any) -> Any:
        if args[0].task.url.endswith("/gone") and not broken:
            broken.append(args[0].task.url)
            raise BackendUnavailable("The disk is full.")
        return await bury(self, *args, **more)

    monkeypatch.setattr(SqliteFrontier, "bury", bury_late)
    left = await crawled(spider_of(site), settings_for(tmp_path, fetch__allow_private=True))

    left.assert_adds_up()
    assert broken
    assert left.report.counts.stats == {"starts": 1, "lost": 4}
    assert [record.url for record in left.records].count(site.url("/gone")) == 1
    assert len(site.seen("/instead")) == 1


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_a_failing_page_has_one_reason_in_its_attempts_and_in_its_dead_letter(
    tmp_path: Path, site: HostileSite, status: int
) -> None:
    site.show("/failing", "<p>No</p>", status=status)
    spider = Spider()
    spider.start_urls = [site.url("/failing")]
    settings = settings_for(tmp_path, fetch__allow_private=True)

    after = await crawled(spider, settings)

    (letter,) = after.letters.values()
    attempts = await look(settings, lambda project: project.records.attempts(letter.fingerprint))
    assert {one.reason for one in attempts} == {letter.reason} == {f"http-{status}"}
    assert {event.reason for event in after.heard.of(Retried, Buried)} == {letter.reason}
