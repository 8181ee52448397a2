"""Figures after kills: never more than was stored, and all of it. Witnesses: the audit log and the site's own log."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from gossamer.model.figures import Figures
from gossamer.project.open import open_project
from gossamer.project.records.figures import Point, history, totals
from gossamer.settings import load
from gossamer.store.record_rows import DumpedPage
from tests.faults.fleet import FleetProject, assert_whole, own_services, poll_until, wait_for_all, workers
from tests.sites.running import Park, park

pytestmark = pytest.mark.long

SITE = {"hosts": 5, "pages": 100, "latency_ms": 5, "body_bytes": 1500, "links": 5}
SETTINGS = "[lease]\nmax_deliveries = 30\n"
WORKERS = 3
IN_FLIGHT = 16  # of one worker


async def read(folder: Path) -> tuple[Figures, Point, Counter[str], Counter[str]]:
    """The total, the last hour of the history, and the audit log by outcome and by site."""
    async with open_project(load(start=folder, environ={}), to_look=True) as project:
        total = await totals(project)
        whole = (await history(project, since=project.clock.now() - 3600)).whole
        outcomes, sites = Counter[str](), Counter[str]()
        async for batch in project.records.stream.dump():
            for one in batch:
                for attempt in one.attempts if isinstance(one, DumpedPage) else ():
                    outcomes[attempt.outcome] += 1
                    sites[attempt.site] += 1
        return total, whole, outcomes, sites


def crawl_under_kills(project: FleetProject, site: Park, faults: list[str]) -> int:
    """Crawl with workers that die of their faults, and some at moments that nobody chose; return how many died."""
    chance, died = random.Random(7), 0
    with workers(*project.crew(WORKERS, *(faults.pop() for _ in range(WORKERS)))) as crew:
        while faults:
            poll_until(lambda: any(worker.code is not None for worker in crew))
            place = next(n for n, worker in enumerate(crew) if worker.code is not None)
            assert crew[place].code == -signal.SIGKILL, crew[place].said()
            died += 1
            crew[place] = project.start(faults.pop())
            # in the middle of it: no more than what was stored, which is no more than what was asked for
            total, _, stored, _ = asyncio.run(read(project.folder))
            assert sum(total.outcomes().values()) <= sum(stored.values()) <= len(site.hits())
        goal = len(site.hits()) + chance.randrange(10, 40)
        poll_until(lambda: len(site.hits()) >= goal or all(worker.code is not None for worker in crew))
        if crew[0].code is None:
            crew[0].kill()
            crew[0] = project.start()
        for place in range(WORKERS):
            if crew[place].wait() == -signal.SIGKILL:
                died += 1
                crew[place] = project.start()
        wait_for_all(crew)
    return died + 1


def assert_counted(project: FleetProject, died: int) -> None:
    assert_whole(project, extra=died * IN_FLIGHT)
    total, whole, outcomes, sites = asyncio.run(read(project.folder))
    assert total.outcomes() == whole.pages == outcomes
    assert {name: sum(one.pages.values()) for name, one in total.domains.items()} == sites
    assert total.items == outcomes["done"]
    hits = len(project.site.hits())
    assert hits - died * IN_FLIGHT <= outcomes["done"] <= hits


def test_kills_lose_and_double_no_count_on_a_fleet(tmp_path, s3):
    with own_services(s3) as services, park(**SITE) as site:
        project = services.project(tmp_path, site, settings=SETTINGS)
        died = crawl_under_kills(
            project, site, [f"{point}:{n}" for n in (5, 11) for point in ("mid-store", "before-settle", "after-settle")]
        )
        assert_counted(project, died)


def test_kills_lose_and_double_no_count_on_a_laptop(tmp_path):
    with park(**SITE) as site:
        project = FleetProject(
            tmp_path, site, state="sqlite:///state.db", records="sqlite:///records.db", settings=SETTINGS
        )
        died = crawl_under_kills(
            project, site, [f"{point}:{n}" for n in (4, 9) for point in ("mid-store", "mid-parse")]
        )
        assert_counted(project, died)
