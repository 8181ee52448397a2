"""A project with one spider, its state on a clock that the test moves, and a scheduler that it turns by hand."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from gossamer.clock import VirtualClock
from gossamer.model.events import ScheduleFired
from gossamer.model.schedule import Schedule
from gossamer.project.open import open_project
from gossamer.project.workers.service import scheduler_of
from gossamer.schedule.spider_loader import SpiderLoader
from gossamer.settings import load
from tests.patience import PATIENCE

SPIDER = """
from gossamer import Spider

class Books(Spider):
    start_urls = ["https://a.test/"]
    limit = 70
    max_attempts = 2

    def parse(self, page):
        return None

    def product(self, page):
        return None
"""
WAITING = """
import time
from pathlib import Path
from gossamer import Spider

class {name}(Spider):
    def __init__(self):
        super().__init__()
        Path({root!r}, "begun").touch()
        deadline = time.monotonic() + 100
        while not Path({root!r}, "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def parse(self, page):
        return None
"""
HOURLY = Schedule(name="prices", spider="books", trigger="every 1h")
HOUR, DAY = 3600.0, 86400.0


class Ear:
    """Keeps what was said."""

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(event)

    def heard(self, kind):
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found


def patient_scheduler(system, events, *, name=""):
    """A scheduler that waits for its spiders however long a busy machine takes to load them."""
    loader = SpiderLoader(system.settings, patience=timedelta(seconds=PATIENCE))
    return scheduler_of(system, events, name=name, loader=loader)


class Bench:
    """A project with a spider, its state, and one scheduler that the test turns by hand."""

    def __init__(self, system, clock):
        self.system, self.clock, self.ear = system, clock, Ear()
        self.scheduler = patient_scheduler(system, self.ear, name="one")
        self.began = clock.now()

    async def add(self, schedule, **changes):
        assert await self.system.state.schedules.put(msgspec.structs.replace(schedule, **changes), origin="added")

    async def change(self, schedule, **changes):
        changed = msgspec.structs.replace(schedule, **changes)
        assert await self.system.state.schedules.put(changed, origin="added", replace=True)

    async def look(self, advance=0.0, scheduler=None):
        """Move the clock and let the scheduler do all that is due then."""
        self.clock.advance(advance)
        for _ in range(5):
            await (scheduler or self.scheduler).turn()

    async def standing(self, name="prices"):
        (found,) = [one for one in await self.system.state.schedules.schedules() if one.schedule.name == name]
        return found

    async def end(self, job):
        await self.system.state.jobs.seal_seeds(job)
        assert await self.system.state.jobs.close_job(job, "done")

    def fired(self):
        """When the runs that have begun since the last call were due, in seconds from the beginning."""
        return [round(event.due - self.began, 3) for event in self.ear.heard(ScheduleFired)]

    async def running(self):
        return [job.id for job in await self.system.state.jobs.running_jobs()]


@asynccontextmanager
async def bench_in(folder, toml=""):
    (folder / "spiders").mkdir(exist_ok=True)
    (folder / "spiders" / "books.py").write_text(SPIDER)
    (folder / "gossamer.toml").write_text(toml)
    clock = VirtualClock()
    async with open_project(load(start=folder, environ={}), clock=clock) as system:
        yield Bench(system, clock)


@pytest.fixture
async def bench(tmp_path):
    async with bench_in(tmp_path) as bench:
        yield bench
