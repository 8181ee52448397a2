"""A job that a schedule began: its source is read by the worker, fresh pages are left out, windows are kept, a budget
goes where pages change. The site's own log says what was asked of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from gossamer.crawl.page_facts import rhythm_of
from gossamer.crawl.seed_context import SOURCE_PAUSES
from gossamer.model.events import NullSink
from gossamer.model.job import Job, JobState
from gossamer.model.task import DropReason
from gossamer.parse.spider import Spider
from gossamer.project.jobs.slots import PoolTerms
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.schedule.sources import parse_source
from gossamer.settings import Settings, load
from gossamer.store.contract import RecordQuery
from gossamer.terms import coverage_of, job_terms
from tests.patience import until
from tests.sites.moving import MovingShop, moving_shop

SPIDER = """
from gossamer import Spider

class Things(Spider):
    def parse(self, page):
        yield {"url": page.url, "title": page.css("h1::text").get()}
"""


def settings_in(folder: Path, **flags: Any) -> Settings:
    (folder / "spiders").mkdir(exist_ok=True)
    (folder / "spiders" / "things.py").write_text(SPIDER, encoding="utf-8")
    return load(
        start=folder,
        environ={},
        flags={"politeness.rate": "unlimited", "fetch.allow_hosts": ["127.0.0.1"], "retry.base": "10ms", **flags},
    )


async def ran(
    settings: Settings, name: str, *, source_pauses: tuple[timedelta, ...] = SOURCE_PAUSES, **terms: Any
) -> tuple[Job, Project]:
    """Open a job as a tick would, and let a pool work until nothing is left."""
    async with open_project(settings) as system:
        usual = job_terms(settings, Spider())
        own = {"schedule": name, "spider": "things", "coverage": coverage_of(Spider(), terms.get("source", ""))}
        job, _ = await system.state.jobs.open_job(name, msgspec.structs.replace(usual, **{**own, **terms}), fresh=True)
        await WorkerPool(system, NullSink(), until_idle=True, terms=PoolTerms(source_pauses=source_pauses)).run()
        ended = await system.state.jobs.job(job.id)
        assert ended is not None
        assert ended.state is JobState.FINISHED
        return ended, system


def source(**table: Any) -> str:
    return msgspec.json.encode(parse_source(table)).decode()


def pages(shop: MovingShop) -> Counter[str]:
    return Counter(path for path in shop.hits if path.startswith("/p/"))


async def test_the_worker_reads_the_source_of_the_schedule(tmp_path: Path) -> None:
    with moving_shop(20) as shop:
        settings = settings_in(tmp_path)
        job, _ = await ran(settings, "nightly", source=source(urls=[f"{shop.url}p/{{1..5}}"]), priority=3)
        assert pages(shop) == {f"/p/{n}": 1 for n in range(1, 6)}
        assert (job.schedule, job.ending) == ("nightly", "done")


async def test_a_page_that_was_fetched_lately_is_left_out(tmp_path: Path) -> None:
    with moving_shop(20) as shop:
        settings = settings_in(tmp_path)
        terms: dict[str, Any] = {"min_age": timedelta(hours=1)}
        await ran(settings, "hourly", source=source(urls=[f"{shop.url}p/{{1..3}}"]), **terms)
        job, _ = await ran(settings, "hourly", source=source(urls=[f"{shop.url}p/{{1..5}}"]), **terms)
        assert pages(shop) == {f"/p/{n}": 1 for n in range(1, 6)}
        async with open_project(settings) as system:
            counts = await system.state.jobs.counts(job.id)
            assert (counts.done, counts.dropped) == (2, 3)


async def test_a_source_that_fails_ends_its_job_and_says_so(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    job, _ = await ran(settings, "broken", source_pauses=(), source=source(file=str(tmp_path / "no-such-file.txt")))
    assert job.ending.startswith("source failed: ")
    assert "no-such-file.txt" in job.ending


async def test_pages_wait_for_the_window_of_their_site(tmp_path: Path) -> None:
    with moving_shop(3) as shop:
        settings = settings_in(tmp_path)
        closed = msgspec.structs.replace(
            settings, domains={"127.0.0.1": msgspec.structs.replace(settings.domain("x"), windows=_never_now())}
        )
        async with open_project(closed) as system:
            usual = job_terms(closed, Spider())
            job, _ = await system.state.jobs.open_job(
                "night",
                msgspec.structs.replace(
                    usual, schedule="night", spider="things", source=source(urls=[f"{shop.url}p/{{1..3}}"])
                ),
                fresh=True,
            )
            pool = WorkerPool(system, NullSink())
            await _until_waiting(pool, system, job.id)
            [story] = await system.state.queue.story("127.0.0.1", system.rules.fingerprint(f"{shop.url}p/1"))
        assert pages(shop) == {}
        assert story.reason == "window"


def _never_now() -> str:
    """A window of an hour that begins in twelve hours."""
    begin = (datetime.now(UTC) + timedelta(hours=12)).strftime("%H")
    end = (datetime.now(UTC) + timedelta(hours=13)).strftime("%H")
    return f"{begin}:00-{end}:00 UTC"


async def _until_waiting(pool: WorkerPool, system: Project, job: str) -> None:
    import asyncio

    async def waits() -> bool:
        return (await system.state.jobs.counts(job)).waiting > 0

    running = asyncio.create_task(pool.run())
    try:
        await until(waits)
    finally:
        pool.drain()
        await running


async def test_a_budget_goes_where_pages_change(tmp_path: Path) -> None:
    with moving_shop(10) as shop:
        settings = settings_in(tmp_path)
        listed = source(urls=[f"{shop.url}p/{{1..10}}"])
        await ran(settings, "adaptive", source=listed)
        await ran(settings, "adaptive", source=listed, budget=4, min_interval=timedelta(milliseconds=1))
        assert sorted(pages(shop).values()) == [1] * 6 + [2] * 4


async def test_pages_without_a_copy_come_first(tmp_path: Path) -> None:
    with moving_shop(10) as shop:
        settings = settings_in(tmp_path)
        await ran(settings, "adaptive", source=source(urls=[f"{shop.url}p/{{1..3}}"]))
        everything = source(urls=[f"{shop.url}p/{{1..10}}"])
        await ran(settings, "adaptive", source=everything, budget=7, min_interval=timedelta(milliseconds=1))
        assert pages(shop) == {f"/p/{n}": 1 for n in range(1, 11)}


def an_hour_from_now() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


async def test_pages_that_their_sitemap_calls_unchanged_are_left_out_where_that_is_believed(tmp_path: Path) -> None:
    with moving_shop(4) as shop:
        settings = settings_in(tmp_path)
        listed = source(sitemap=f"{shop.url}sitemap.xml", only_changed=True)
        shop.lastmods = {1: "2020-01-01", 2: "2020-01-01T10:00:00Z", 3: "2020-01-01"}
        await ran(settings, "changes", source=listed)
        shop.lastmods[3] = an_hour_from_now()
        job, _ = await ran(settings, "changes", source=listed)
        assert pages(shop) == {"/p/1": 1, "/p/2": 1, "/p/3": 2, "/p/4": 2}  # nothing is said of the fourth
        async with open_project(settings) as system:
            counts = await system.state.jobs.counts(job.id)
            [story, _] = await system.state.queue.story("127.0.0.1", system.rules.fingerprint(f"{shop.url}p/1"))
            assert (counts.done, counts.dropped, story.reason) == (2, 2, DropReason.UNMODIFIED)


async def test_a_budget_goes_first_to_pages_that_announce_a_change(tmp_path: Path) -> None:
    with moving_shop(10) as shop:
        settings = settings_in(tmp_path)
        listed = source(sitemap=f"{shop.url}sitemap.xml")
        await ran(settings, "adaptive", source=listed)
        shop.lastmods = dict.fromkeys((3, 8), an_hour_from_now())
        await ran(settings, "adaptive", source=listed, budget=2, min_interval=timedelta(milliseconds=1))
        assert {path for path, hits in pages(shop).items() if hits == 2} == {"/p/3", "/p/8"}
        async with open_project(settings) as system:
            fingerprint = system.rules.fingerprint(f"{shop.url}p/3")
            rhythm = rhythm_of((await system.records.facts([fingerprint]))[fingerprint])
        assert rhythm is not None
        assert (rhythm.checks, rhythm.false_alarms) == (1, 1)  # it was announced, and was none


async def test_what_has_dropped_out_of_a_sitemap_is_gone_in_the_runs_of_its_schedule(tmp_path: Path) -> None:
    with moving_shop(4) as shop:
        settings = settings_in(tmp_path)
        listed = source(sitemap=f"{shop.url}sitemap.xml")
        await ran(settings, "listed", source=listed)
        await ran(settings, "others", source=listed, schedule="others")
        shop.products = 3
        await ran(settings, "listed", source=listed)
        async with open_project(settings) as system:
            gone = [record.url async for record in system.records.records(RecordQuery(gone=True))]
        assert gone == [f"{shop.url}p/4"]


async def test_a_run_of_another_list_says_nothing_of_the_first(tmp_path: Path) -> None:
    with moving_shop(4) as shop:
        settings = settings_in(tmp_path)
        await ran(settings, "listed", source=source(urls=[f"{shop.url}p/{{1..2}}"]))
        await ran(settings, "listed", source=source(urls=[f"{shop.url}p/{{3..4}}"]))
        async with open_project(settings) as system:
            there = [await system.records.count(RecordQuery(gone=gone)) for gone in (False, True)]
        assert there == [4, 0]
