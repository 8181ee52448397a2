"""Workers that parse archived pages again and die at every named point and at any moment: nothing is lost, nothing is
stored twice, nobody is asked for a page. On a laptop's SQLite, and on Valkey and PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.model.job import JobCounts
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult, StoredRecord
from gossamer.model.url import fingerprint
from gossamer.project.open import open_project
from gossamer.settings import load
from gossamer.store.contract import AttemptQuery, RecordQuery
from tests.faults import crashing
from tests.faults.fleet import WorkerProcess, own_services, poll_until, wait_for_all, workers
from tests.sites.running import ROOT

pytestmark = pytest.mark.long

PAGES = 300
CONCURRENCY = 8
SHOP = "https://shop.example"  # there is no such host, and nobody asks for it
POINTS = ("mid-store", "before-settle", "after-settle")
SPIDER = """
from gossamer import Item, Page, Spider

class Thing(Item, key="sku"):
    sku: str
    title: str

class Shop(Spider):
    start_urls = ["https://shop.example/"]

    def parse(self, page: Page):
        yield Thing(sku=page.url.rpartition("/")[2], title=page.css("h1::text").get())
"""


class Archived:
    """A project with archived pages and no records of them."""

    def __init__(self, folder: Path, addresses: str) -> None:
        self.folder = folder
        self._started = 0
        (folder / "spiders").mkdir()
        (folder / "spiders" / "shop.py").write_text(SPIDER)
        # A pace at which a crawl of these pages would take weeks.
        terms = '[politeness]\nrate = "1/h"\nconcurrency = 1\n[lease]\nmax_deliveries = 30\n'
        (folder / "gossamer.toml").write_text(f"{addresses}{terms}")
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        async with open_project(load(start=self.folder, environ={})) as system:
            now = system.clock.now()
            urls = [f"{SHOP}/{number}" for number in range(PAGES)]
            html = Headers([("content-type", "text/html")])
            refs = await system.archive.put(
                [
                    Snapshot(
                        url=url, requested_url=url, status=200, headers=html, fetched_at=now, kind="parse",
                        job="shop-1", body=f"<h1>Thing {url.rpartition('/')[2]}</h1>".encode(),
                    )
                    for url in urls
                ]
            )  # fmt: skip
            results = [
                PageResult(
                    attempt=Attempt(
                        at=now, job="shop-1", url=url, fingerprint=fingerprint(url), site="shop.example",
                        worker="elsewhere/1/1", attempt=1, outcome="done", status=200,
                    ),
                    page=PageFacts(
                        fingerprint=fingerprint(url), url=url, job="shop-1", fetched_at=now, status=200,
                        archive_ref=ref, spider="shop",
                    ),
                )
                for url, ref in zip(urls, refs, strict=True)
            ]  # fmt: skip
            await system.records.save(results)

    def start(self, *words: str, fault: str = "") -> WorkerProcess:
        self._started += 1
        log = self.folder / f"process-{self._started}.txt"
        process = subprocess.Popen(
            [sys.executable, "-m", crashing.__name__, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "FAULT": fault},
            stdin=subprocess.DEVNULL,
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        return WorkerProcess(process, log)

    def worker(self, fault: str = "") -> WorkerProcess:
        return self.start("worker", "--until-idle", "--concurrency", str(CONCURRENCY), fault=fault)

    def counts(self) -> JobCounts:
        return asyncio.run(self._counts())

    async def _counts(self) -> JobCounts:
        async with open_project(load(start=self.folder, environ={}), to_look=True) as system:
            (job,) = await system.state.jobs.jobs()
            return await system.state.jobs.counts(job.id)

    async def outcome(self) -> tuple[str, list[StoredRecord], Counter[str], set[str]]:
        """The ending of the job, all records, how often each page was parsed for the first time, all routes."""
        async with open_project(load(start=self.folder, environ={}), to_look=True) as system:
            (job,) = await system.state.jobs.jobs()
            records = [one async for one in system.records.records(RecordQuery())]
            first, routes, cursor = Counter[str](), set[str](), None
            while True:
                page = await system.records.attempt_log(AttemptQuery(job=job.id), limit=500, before=cursor)
                first.update(one.url for one in page.attempts if one.outcome == "reparsed" and not one.reason)
                routes |= {one.route for one in page.attempts}
                if (cursor := page.next) is None:
                    return job.ending, records, first, routes


@pytest.fixture(params=["sqlite", "fleet"])
def archived(request, tmp_path) -> Iterator[Archived]:
    if request.param == "sqlite":
        yield Archived(tmp_path, "")
        return
    with own_services(request.getfixturevalue("s3")) as services:
        state, records = services.valkey.address(), services.postgres.address()
        archive = services.s3.address("reparsed")
        yield Archived(
            tmp_path, f'project = "again"\nstate = "{state}"\nrecords = "{records}"\narchive = "{archive}"\n'
        )


def test_workers_that_die_at_every_point_and_at_any_moment_parse_every_page_once(archived):
    # given a reparse that is left to the workers
    begun = archived.start("reparse", "--detach")
    wait_for_all([begun])
    assert "reparse-shop-1 has started" in begun.said()
    chance = random.Random(5)
    with workers() as crew:
        # when one after the other dies at a named point
        for point in POINTS:
            crew.append(archived.worker(f"{point}:{chance.randrange(2, 8)}"))
            assert crew[-1].wait() == -signal.SIGKILL, crew[-1].said()
        # and two of them at moments that nobody chose
        crew += [archived.worker(), archived.worker()]
        for place in (-1, -2):
            goal = min(archived.counts().done + chance.randrange(1, 30), PAGES)  # quick ones may have done them all
            poll_until(lambda goal=goal: archived.counts().done >= goal)
            crew[place].kill()
        last = [archived.worker(), archived.worker()]
        crew += last
        wait_for_all(last)

    # then every page was parsed, is settled once, and gave one record in its first version
    counts = archived.counts()
    assert (counts.done, counts.open, counts.dead) == (PAGES, 0, 0)
    assert counts.discovered == counts.done + counts.duplicates
    assert counts.stats["records"] == PAGES
    ending, records, first, routes = asyncio.run(archived.outcome())
    assert ending == "done"
    assert {one.key: one.data["title"] for one in records} == {str(n): f"Thing {n}" for n in range(PAGES)}
    assert {(one.version, one.job) for one in records} == {(1, "reparse-shop-1")}
    assert all(count == 1 for count in first.values())
    assert routes == {"archive"}


def test_a_killed_command_goes_on_where_it_was(archived):
    first = archived.start("reparse", "--processes", "1", fault="after-settle:40")
    assert first.wait() == -signal.SIGKILL, first.said()
    done = archived.counts().done
    assert 0 < done < PAGES

    second = archived.start("reparse", "--processes", "1")

    assert second.wait() == 0, second.said()
    assert "reparse-shop-1 is resumed" in second.said()
    assert (archived.counts().done, archived.counts().open) == (PAGES, 0)
    assert len(asyncio.run(archived.outcome())[1]) == PAGES
