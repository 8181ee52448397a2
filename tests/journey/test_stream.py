"""`gossamer.stream` and `report.items()`: items inside a program, in a notebook or a service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossamer
from gossamer.errors import Misconfigured
from gossamer.project.jobs.item_stream import BUFFER
from gossamer.project.open import open_project
from gossamer.settings import load
from gossamer.store.contract import RecordQuery
from tests.patience import until
from tests.services.threaded import in_thread

from .test_forget import SPIDER, Site

PEOPLE = 300
SLOW = 0.02  # seconds that a slow program takes for an item


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(PEOPLE)
    with in_thread(site):
        yield site


@pytest.fixture
def spider(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "gossamer.toml").write_text('[fetch]\nallow_private = true\n[politeness]\nrate = "unlimited"\n')
    (tmp_path / "people.py").write_text(SPIDER.replace("{home}", site.home))
    monkeypatch.chdir(tmp_path)
    return "people.py"


async def test_every_item_comes_once_also_to_a_slow_program(spider: str, site: Site) -> None:
    emails: list[str] = []
    async for item in gossamer.stream(spider):
        emails.append(item["email"])
        if len(emails) < 50:
            await asyncio.sleep(SLOW)  # the crawl is over long before

    assert sorted(emails) == sorted(f"{name}@example.org" for name in site.names())


async def test_items_come_while_the_crawl_goes_on(spider: str, site: Site) -> None:
    site.slow = "mark-299"  # the last page is answered when the first item has come
    async for item in gossamer.stream(spider):
        assert item["visits"] == 1
        site.answers.set()


async def test_a_stream_that_is_left_stops_the_crawl_which_goes_on_later(spider: str, site: Site) -> None:
    site.slow = "mark-299"
    async for _ in gossamer.stream(spider):
        break
    site.answers.set()
    settings = load(start=Path.cwd())
    async with open_project(settings) as project:

        async def idle() -> bool:
            return not await project.state.workers.workers()

        await until(idle, "the worker has signed off")
        (job,) = await project.state.jobs.running_jobs()

    rest = [item["email"] async for item in gossamer.stream(spider)]

    async with open_project(settings) as project:
        assert [one.id for one in await project.state.jobs.jobs()] == [job.id]
        assert await project.records.count(RecordQuery(job=job.id)) == PEOPLE
    assert len(rest) == len(set(rest)) == PEOPLE  # with those that the job had seen before


async def test_an_error_of_the_crawl_is_raised_by_the_stream(spider: str) -> None:
    with pytest.raises(Misconfigured):
        await anext(gossamer.stream("no_such_spider"))


async def test_a_report_has_the_items_and_one_line(spider: str, site: Site) -> None:
    report = await gossamer.crawl(spider)

    emails = [item["email"] for item in report.items()]  # in a running loop, as in a notebook
    first = next(iter(report.items()))  # left after one: its thread ends

    assert sorted(emails) == sorted(f"{name}@example.org" for name in site.names())
    assert set(first) == {"email", "name", "visits"}
    assert repr(report).startswith(f"<people-1: done, {PEOPLE + 30} pages, {PEOPLE} records, 0 dead letters, ")
    assert "\n" not in repr(report)
    assert BUFFER < PEOPLE
