"""The source of a run is read by one worker, and what can go wrong with it does not hurt the schedule: nothing is lost,
nothing is fetched beyond the budget, and every job comes to an end."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.crawl.page_facts import rhythm_of
from gossamer.crawl.seeding import Seeder
from gossamer.frontier.admission import Admission, LinkScope
from gossamer.frontier.contract import JobTerms
from gossamer.model.events import NullSink
from gossamer.model.job import Job
from gossamer.model.task import Request
from gossamer.parse.discovery import load_spider
from gossamer.parse.spider import Spider
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.project.wiring import seed_context
from gossamer.settings import Settings
from gossamer.terms import job_terms, scope_of
from tests.journey.test_scheduled_jobs import pages, ran, settings_in, source
from tests.patience import PATIENCE, until
from tests.sites.moving import MovingShop, moving_shop

FOLLOWS = """
from gossamer import Spider

class Follows(Spider):
    def parse(self, page):
        yield {"url": page.url}
        yield from page.follow_all("a")
"""


@asynccontextmanager
async def opened(settings: Settings, **terms: Any) -> AsyncIterator[tuple[Project, Job]]:
    """A job as a tick opens it. Nobody works on it yet."""
    async with open_project(settings) as system:
        usual = job_terms(settings, Spider())
        wanted = {"schedule": "listed", "spider": "things", **terms}
        job, _ = await system.state.jobs.open_job("listed", msgspec.structs.replace(usual, **wanted), fresh=True)
        yield system, job


def seeder_of(system: Project, job: Job, terms: JobTerms) -> Seeder:
    settings = system.settings
    spider = load_spider(terms.spider, settings.root, settings.spiders)()
    sites: set[str] = set()
    return Seeder(
        seed_context(system), spider, job.id, terms, scope_of(settings, job, spider, sites), sites, NullSink()
    )


def linked(folder: Path, shop: MovingShop, **flags: Any) -> Settings:
    """A project with a spider that follows links, and a file that lists the front page alone."""
    settings = settings_in(folder, **flags)
    (folder / "spiders" / "follows.py").write_text(FOLLOWS, encoding="utf-8")
    (folder / "list.txt").write_text(f"{shop.url}\n", encoding="utf-8")
    return settings


async def test_a_worker_that_comes_after_the_seeds_follows_the_same_links(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        settings = linked(tmp_path, shop)
        async with opened(settings, spider="follows", source=source(file="list.txt")) as (system, job):
            await seeder_of(system, job, await system.state.jobs.terms(job.id)).run()
            assert await system.state.jobs.is_sealed(job.id)
            await WorkerPool(system, NullSink(), until_idle=True).run()  # it has never seen the list
            assert (await system.state.jobs.counts(job.id)).done == 4
        assert pages(shop) == {f"/p/{n}": 1 for n in (1, 2, 3)}


async def test_a_budget_holds_when_the_source_is_read_again(tmp_path: Path) -> None:
    with moving_shop(20) as shop:
        settings = settings_in(tmp_path)
        listed = source(urls=[f"{shop.url}p/{{1..20}}"])
        async with opened(settings, source=listed, budget=5, limit=5) as (system, job):
            await _sown_but_not_sealed(system, job)
            assert not await system.state.jobs.is_sealed(job.id)
            await WorkerPool(system, NullSink(), until_idle=True).run()
        assert len(pages(shop)) == 5


async def _sown_but_not_sealed(system: Project, job: Job) -> None:
    """As if the worker had died just before the last step."""

    async def die(*_: object) -> None:
        raise ConnectionAbortedError

    state = msgspec.structs.replace(system.state, jobs=_Without(system.state.jobs, seal_seeds=die))
    dying = msgspec.structs.replace(system, state=state)
    with pytest.raises(ConnectionAbortedError):
        await seeder_of(dying, job, await system.state.jobs.terms(job.id)).run()


class _Without:
    """Another book of jobs, but for one verb."""

    def __init__(self, jobs: Any, **verbs: Any) -> None:
        self._jobs, self._verbs = jobs, verbs

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._jobs, name)


async def test_pages_that_never_answer_do_not_take_the_budget_for_ever(tmp_path: Path) -> None:
    with moving_shop(2) as shop:
        settings = settings_in(tmp_path, **{"retry.max_attempts": 1})
        listed = source(urls=["http://127.0.0.1:8/a", "http://127.0.0.1:8/b", f"{shop.url}p/{{1..2}}"])
        for _ in range(2):
            await ran(settings, "adaptive", source=listed, budget=2, limit=2)
        assert pages(shop) == {"/p/1": 1, "/p/2": 1}


async def test_what_was_learned_of_a_page_outlives_a_failed_visit(tmp_path: Path) -> None:
    with moving_shop(1) as shop:
        settings = settings_in(tmp_path)
        listed = source(urls=[f"{shop.url}p/1"])
        for missing in (False, False, True):
            shop.missing = {1} if missing else set()
            await ran(settings, "watched", source=listed)
        async with open_project(settings) as system:
            fingerprint = system.rules.fingerprint(f"{shop.url}p/1")
            facts = (await system.records.facts([fingerprint]))[fingerprint]
        rhythm = rhythm_of(facts)
        assert rhythm is not None
        assert (facts.failure, rhythm.checks) == ("http-404", 1)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def start(self):\n        raise ValueError('no list today')", "no list today"),
        ("pass", "nothing to start from"),
    ],
)
async def test_a_run_whose_spider_cannot_start_ends_and_says_why(tmp_path: Path, code: str, words: str) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "spiders" / "broken.py").write_text(
        f"from gossamer import Spider\n\n\nclass Broken(Spider):\n    {code}\n", encoding="utf-8"
    )
    job, _ = await ran(settings, "broken", source_pauses=(), spider="broken")
    assert job.ending.startswith("source failed: ")
    assert words in job.ending


async def test_a_young_page_of_the_spiders_own_start_is_left_out(tmp_path: Path) -> None:
    with moving_shop(1) as shop:
        settings = settings_in(tmp_path)
        (tmp_path / "spiders" / "own.py").write_text(
            f"from gossamer import Spider\n\n\nclass Own(Spider):\n    start_urls = ['{shop.url}p/1']\n\n"
            "    def parse(self, page):\n        yield {'url': page.url}\n",
            encoding="utf-8",
        )
        for _ in range(2):
            await ran(settings, "own", spider="own", min_age=timedelta(hours=1))
        assert pages(shop) == {"/p/1": 1}


async def test_one_worker_reads_the_source_for_all(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        settings = settings_in(tmp_path)
        program = f"open('runs', 'a').write('x'); import time; time.sleep(1); print('{shop.url}p/1')"
        listed = source(command=[sys.executable, "-c", program])
        async with opened(settings, source=listed) as (system, job), open_project(settings) as beside:
            other = msgspec.structs.replace(beside, worker="another-host/1/1")  # this process has one name
            pools = [WorkerPool(one, NullSink(), until_idle=True) for one in (system, other)]
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(pool.run() for pool in pools))
            assert (await system.state.jobs.counts(job.id)).done == 1
        assert (tmp_path / "runs").read_text() == "x"


async def test_a_queue_that_holds_few_takes_a_long_list_bit_by_bit(tmp_path: Path) -> None:
    with moving_shop(30) as shop:
        settings = settings_in(tmp_path, **{"crawl.max_queued": 7, "crawl.concurrency": 2})
        listed = source(urls=[f"{shop.url}p/{{1..30}}"])
        job, _ = await ran(settings, "bounded", source=listed)
        assert job.ending == "done"
        assert pages(shop) == {f"/p/{n}": 1 for n in range(1, 31)}


async def test_what_was_wrong_with_a_source_is_noted_with_its_job(tmp_path: Path) -> None:
    with moving_shop(1) as shop:
        settings = settings_in(tmp_path)
        (tmp_path / "list.txt").write_text(f"{shop.url}p/1\nno address\n", encoding="utf-8")
        job, _ = await ran(settings, "faulty", source=source(file="list.txt"))
        async with open_project(settings) as system:
            assert "list.txt line 2" in (await system.state.seeds.findings(job.id)).trouble
        assert (job.ending, pages(shop)) == ("done", {"/p/1": 1})


@pytest.mark.parametrize("text", ["no address\n", "no address\nnone either\n"])
async def test_a_list_without_one_address_that_can_be_used_has_failed(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.txt").write_text(text, encoding="utf-8")
    job, _ = await ran(settings_in(tmp_path), "faulty", source_pauses=(), source=source(file="list.txt"))
    assert job.ending.startswith("source failed: ")
    assert "list.txt line 1" in job.ending


async def test_a_list_that_is_empty_is_told(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# nothing today\n", encoding="utf-8")
    settings = settings_in(tmp_path)
    job, _ = await ran(settings, "empty", source=source(file="list.txt"))
    assert job.ending == "done"
    async with open_project(settings) as system:
        assert (await system.state.seeds.findings(job.id)).trouble == "Its source listed no URL."
    assert job.outcome is not None
    assert "by the rules" not in job.outcome.in_words


async def test_who_takes_over_from_a_dead_sower_follows_the_links_of_what_is_in(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        settings = linked(tmp_path, shop)
        program = (
            "import os, time\n"
            "while os.path.exists('again') and not os.path.exists('fetched'): time.sleep(0.01)\n"
            f"open('again', 'w'); print('{shop.url}')"
        )
        listed = source(command=[sys.executable, "-c", program])
        async with opened(settings, spider="follows", source=listed) as (system, job):
            await _sown_but_not_sealed(system, job)
            # The page is fetched while the list is read for the second time.
            working = asyncio.create_task(WorkerPool(system, NullSink(), until_idle=True).run())
            await until(lambda: "/" in shop.hits)
            (tmp_path / "fetched").touch()
            await working
            counts = await system.state.jobs.counts(job.id)
        assert (counts.done, counts.dropped) == (4, 0)


async def test_a_page_of_a_site_that_another_worker_has_found_keeps_its_links(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        settings = linked(tmp_path, shop)
        async with opened(settings, spider="follows", source=source(file="list.txt")) as (system, job):
            # given a page in the queue, and another worker that has just found its site
            await system.state.seeds.claim(job.id, "another-host/1/1", timedelta(minutes=1))
            page = Admission(LinkScope(), system.rules).judge([Request(url=shop.url)])
            await system.state.seeds.note(job.id, ["127.0.0.1"])
            await system.state.frontier.add(job.id, page.candidates)
            pool = WorkerPool(system, NullSink())
            running = asyncio.create_task(pool.run())

            async def four_are_done() -> bool:
                return (await system.state.jobs.counts(job.id)).done >= 4

            await until(four_are_done)
            pool.drain()
            await running


async def test_addresses_that_lead_elsewhere_take_their_turn_under_a_budget(tmp_path: Path) -> None:
    with moving_shop(6) as shop:
        settings = settings_in(tmp_path)
        listed = source(urls=[f"{shop.url}to/{{1..6}}"])
        for _ in range(3):
            await ran(settings, "moved", source=listed, budget=4, limit=4)  # two addresses and where they lead
        assert {path for path in shop.hits if path.startswith("/to/")} == {f"/to/{n}" for n in range(1, 7)}


async def test_a_young_page_is_left_out_also_when_the_page_before_it_has_not_changed(tmp_path: Path) -> None:
    with moving_shop(2) as shop:
        settings = linked(tmp_path, shop)
        shop.etag = True
        terms: dict[str, Any] = {"spider": "follows", "source": source(file="list.txt")}
        await ran(settings, "listed", **terms)
        with sqlite3.connect(tmp_path / "gossamer-data" / "records.db") as records:
            records.execute("UPDATE pages SET fetched_at = fetched_at - 7200 WHERE url = ?", (shop.url,))
        job, _ = await ran(settings, "listed", min_age=timedelta(hours=1), **terms)
        async with open_project(settings) as system:
            counts = await system.state.jobs.counts(job.id)
        assert (counts.unchanged, counts.dropped) == (1, 2)
        assert pages(shop) == {"/p/1": 1, "/p/2": 1}


async def test_errors_of_ours_in_a_start_end_the_run_as_well(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "spiders" / "broken.py").write_text(
        "from gossamer import Spider\nfrom gossamer.errors import ParseFailed\n\n\nclass Broken(Spider):\n"
        "    def start(self):\n        raise ParseFailed('no list in it')\n",
        encoding="utf-8",
    )
    job, _ = await ran(settings, "broken", source_pauses=(), spider="broken")
    assert job.ending.startswith("source failed: ")


async def test_a_run_with_a_limit_fills_the_queue_no_further_than_that(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        settings = settings_in(tmp_path)
        listed = source(urls=[f"{shop.url}p/{{1..3}}?{{1..1000}}"])
        job, _ = await ran(settings, "few", source=listed, limit=5)
        async with open_project(settings) as system:
            counts = await system.state.jobs.counts(job.id)
        assert (job.ending, counts.settled) == ("limit", 5)
        assert counts.discovered <= 1000  # of 3,000: two parts of the list


async def test_sources_on_one_site_are_read_one_request_at_a_time(tmp_path: Path) -> None:
    with moving_shop(0) as shop:
        settings = settings_in(tmp_path, **{"politeness.rate": "2/s", "politeness.robots": False})
        async with open_project(settings) as system:
            for n in range(4):
                terms = job_terms(settings, Spider())
                wanted = {
                    "schedule": f"map-{n}",
                    "spider": "things",
                    "source": source(sitemap=f"{shop.url}sitemap.xml"),
                }
                await system.state.jobs.open_job(f"map-{n}", msgspec.structs.replace(terms, **wanted), fresh=True)
            await WorkerPool(system, NullSink(), until_idle=True).run()
    gaps = [later - earlier for earlier, later in pairwise(shop.times)]
    assert len(gaps) == 3
    # By the site's own clock, which may be late by as much as the difference; without taking turns all come at once.
    assert min(gaps) >= 0.2
