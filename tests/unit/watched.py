"""A project on a clock that the test moves, a leader, and a watch that looks when it is told to; a receiver is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gossamer.clock import VirtualClock
from gossamer.model.alert import AlertState, Standing
from gossamer.project.alerts.watch import AlertWatch
from gossamer.project.open import Project, open_project
from gossamer.schedule.leadership import Lead
from gossamer.settings import load
from tests.journey.crawling import Heard
from tests.server.receiver import Receiver
from tests.unit.commandline import candidate

START = 1_800_000_000.0
MINUTE = 60.0
STEP = 30.0  # seconds between two looks
SITE = "https://shop.example"


class Watched:
    """One scheduler's part of alerts: it leads and looks. `told` is what the receiver has got."""

    def __init__(self, project: Project, clock: VirtualClock, receiver: Receiver | None, name: str = "one") -> None:
        self.project, self.clock, self.receiver = project, clock, receiver
        self.heard = Heard()
        self.lead = Lead(project.state.ticks, project.clock, self.heard, name)
        self.watch = AlertWatch(project, self.lead, self.heard)

    async def turn(self, seconds: float = 0.0) -> None:
        """Move the clock; lead, look and tell."""
        self.clock.advance(seconds)
        await self.lead.keep()
        await self.watch.turn()
        await self.watch.delivered()

    async def pass_time(self, seconds: float) -> None:
        """Look every STEP for so long."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            await self.turn(min(STEP, end - self.clock.now()))

    async def standing(self, alert: str, subject: str = "") -> Standing | None:
        found = {one.key: one for one in await self.project.state.alerts.standings()}
        return found.get((alert, subject))

    async def state(self, alert: str, subject: str = "") -> AlertState:
        found = await self.standing(alert, subject)
        return found.state if found is not None else AlertState.INACTIVE

    def told(self, alert: str) -> list[tuple[str, list[str]]]:
        """What the receiver was told of the alert, in order: the state and the subjects."""
        assert self.receiver is not None
        found = [one.told["data"] for one in self.receiver.deliveries]
        return [
            (one["state"], [subject["subject"] for subject in one["subjects"]])
            for one in found
            if one["alert"] == alert
        ]

    async def job(self, pages: int, name: str = "books") -> str:
        """A job with that many pages in its queue."""
        from gossamer.frontier.contract import JobTerms

        job, _ = await self.project.state.jobs.open_job(name, JobTerms(), fresh=False)
        await self.more(job.id, 0, pages)
        await self.project.state.jobs.seal_seeds(job.id)
        return job.id

    async def more(self, job: str, first: int, count: int) -> None:
        pages = [candidate(f"{SITE}/{n}") for n in range(first, first + count)]
        await self.project.state.frontier.add(job, pages)


@asynccontextmanager
async def watched(folder: Path, receiver: Receiver | None = None, toml: str = "") -> AsyncIterator[Watched]:
    """A project in `folder` with one webhook, if there is a receiver."""
    channel = f'[channels.hook]\nkind = "webhook"\nurl = "{receiver.url}"\nallow_private = true\n' if receiver else ""
    usual = '[politeness]\nrate = "unlimited"\nconcurrency = "none"\n'
    (folder / "gossamer.toml").write_text(toml + usual + channel)
    clock = VirtualClock(START)
    async with open_project(load(start=folder, environ={}), clock=clock) as project:
        bench = Watched(project, clock, receiver)
        try:
            yield bench
        finally:
            await bench.watch.stop()
