"""A page whose parse failed is parsed again, also when the server would say that it has not changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gossamer import Page, Spider
from gossamer.frontier.contract import DeadFilter, UrlStory
from gossamer.model.url import site_of
from gossamer.project.dead_letters.dead_letters import (
    DeadLetterChoice,
    Replayed,
    list_letters,
    replay_letters,
)
from gossamer.project.open import Project
from tests.journey.crawling import crawled, look, settings_for
from tests.sites.running import park

PAGES = 5


class Fickle(Spider):
    """The same code fails or not, as a fault in a module that it imports would have it."""

    broken = True

    def parse(self, page: Page) -> Iterator[Any]:
        yield from page.follow_all("a")
        if self.broken and page.url.endswith("/page/3"):
            raise ValueError("not today")
        yield {"url": page.url, "title": page.title}


async def test_a_replayed_parse_failure_is_fetched_in_full_and_parsed(tmp_path):
    with park(pages=PAGES, validators=True) as site:
        read = settings_for(tmp_path, fetch__allow_private=True)
        spider = Fickle()
        spider.start_urls = site.seeds()
        failed = await crawled(spider, read)
        assert list(failed.letters) == [site.url(path="/page/3")]

        assert await look(read, lambda system: system.state.queue.replay(DeadFilter(reason="parse"))) == 1
        spider.broken = False
        mended = await crawled(spider, read)

        assert mended.letters == {}
        assert mended.fate(site.url(path="/page/3")) == ("done", "")
        assert len(mended.records) == PAGES
        assert [hit.status for hit in site.hits(path="/page/3")] == [200, 200]


async def test_the_next_crawl_shows_the_same_failure_again(tmp_path):
    with park(pages=PAGES, validators=True) as site:
        read = settings_for(tmp_path, fetch__allow_private=True)
        spider = Fickle()
        spider.start_urls = site.seeds()
        await crawled(spider, read)
        again = await crawled(spider, read)

        assert again.fate(site.url(path="/page/3")) == ("dead", "parse")
        assert Counter(hit.status for hit in site.hits()) == {200: PAGES + 1, 304: PAGES - 1}


async def test_an_address_that_failed_in_three_jobs_is_listed_once_and_closed_when_a_later_run_has_it(tmp_path):
    with park(pages=PAGES) as site:
        read = settings_for(tmp_path, fetch__allow_private=True)
        spider = Fickle()
        spider.start_urls = site.seeds()
        jobs = [(await crawled(spider, read)).report.job.id for _ in range(3)]

        listed = await look(read, lambda project: list_letters(project, DeadLetterChoice(), limit=10))
        assert [(letter.url, letter.jobs) for letter in listed.dead_letters] == [(site.url(path="/page/3"), jobs[::-1])]

        spider.broken = False
        after = await crawled(spider, read)

        listed = await look(read, lambda project: list_letters(project, DeadLetterChoice(), limit=10))
        assert (listed.total, listed.dead_letters) == (0, [])
        [story] = [
            one
            for one in await look(read, lambda project: stories(project, site.url(path="/page/3")))
            if one.job == jobs[0]
        ]
        assert (story.state, story.reason) == ("done", f"{after.report.job.id} had it")


async def stories(project: Project, url: str) -> list[UrlStory]:
    return await project.state.queue.story(site_of(url), project.rules.fingerprint(url))


async def test_replay_tells_the_jobs_and_one_command_and_limits_hold_for_it(tmp_path):
    with park(pages=40) as site:
        limited = settings_for(tmp_path, fetch__allow_private=True, crawl__limit=8)
        spider = Fickle()
        spider.start_urls = site.seeds()
        first = (await crawled(spider, limited)).report.job.id
        before = len(site.hits())

        async def replay(project: Project) -> Replayed:
            return await replay_letters(project, DeadLetterChoice(reason="parse"), fetch=True)

        replayed = await look(limited, replay)
        assert (replayed.opened, replayed.command) == ([first], "gossamer crawl fickle")
        # the command says nothing of a limit, and that of the job holds: one page more, the one that was given up
        spider.broken = False
        again = await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))
        assert (again.report.job.id, again.report.job.limit) == (first, 8)
        assert len(site.hits()) == before + 1

        spider.broken = True
        await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))
        await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))
        replayed = await look(limited, replay)
        assert (len(replayed.opened), replayed.command) == (2, "gossamer worker --until-idle")
