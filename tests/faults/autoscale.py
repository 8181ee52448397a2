"""A day under `gossamer up --autoscale`, in compressed time: an empty night, one huge slow site, a burst of many polite
ones, and an empty night again. What came of it is for a test, and at full size for `python -m bench.autoscale`."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gossamer.project.open import open_project
from gossamer.project.workers.scaling import Scaling, scaling
from gossamer.settings import load
from tests.faults.commands import Command, CommandProject, until
from tests.sites.running import Park, park

LOOK = 0.25  # seconds between two looks at the processes
SETTINGS = """
[politeness]
rate = "{rate:g}/s"
[scaling]
look = "500ms"
calm = "5s"
"""


@dataclass(frozen=True)
class Plan:
    """How large the day is. Workers have two pages in flight at most, and each page takes `latency_ms`: so one worker
    cannot do the burst alone, however quick the machine is."""

    domains: int  # of the burst
    pages: int  # of each of them
    huge: int  # pages of the slow site
    rate: float = 2.0  # pages a second of each site
    most: int = 4  # workers
    latency_ms: int = 400


@dataclass(frozen=True)
class Moment:
    at: float  # seconds since the day began
    phase: str
    workers: int  # processes
    pages: int  # so far
    wanted: Scaling | None  # by the project's own figures, every few moments


@dataclass(frozen=True)
class Day:
    """What came of it."""

    plan: Plan
    moments: list[Moment]
    changes: list[int]  # numbers of workers, as `up` told them
    lost: int  # pages that nobody asked for
    repeated: int
    early: int  # requests that came sooner than their site allows
    records_differ: int

    @property
    def turns(self) -> int:
        """How often the number of workers went from growing to shrinking, or back. Once is a day; more is flapping."""
        steps = [after > before for before, after in itertools.pairwise([0, *self.changes])]
        return sum(one != other for one, other in itertools.pairwise(steps))

    @property
    def spent(self) -> float:
        """Worker-seconds."""
        return sum(now.workers * (later.at - now.at) for now, later in itertools.pairwise(self.moments))

    @property
    def fixed(self) -> float:
        """Worker-seconds of a fleet that is always as large as this one at its largest."""
        return max(now.workers for now in self.moments) * (self.moments[-1].at - self.moments[0].at)

    def most(self, phase: str) -> int:
        return max(now.workers for now in self.moments if now.phase == phase)


class Watched:
    """The worker processes of an `up`, and what the project wants, looked at in a thread."""

    def __init__(self, command: Command, project: CommandProject, site: Park, *, figures: bool) -> None:
        self._command, self._project, self._site, self._figures = command, project, site, figures
        self._ended = threading.Event()
        self.phase, self.moments = "night", list[Moment]()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._watch()), daemon=True)
        self._thread.start()

    def now(self) -> int:
        """Its children but for the scheduler."""
        files = [Path(f"/proc/{pid}/cmdline") for pid in self._command.children()]
        return sum(b"worker" in file.read_bytes() for file in files if file.exists())

    async def _watch(self) -> None:
        began = time.monotonic()
        async with open_project(load(start=self._project.folder, environ={}), to_look=True) as project:
            while not self._ended.is_set():
                looks = self._figures and len(self.moments) % 20 == 0
                wanted = await scaling(project) if looks else None
                at = time.monotonic() - began
                self.moments.append(Moment(at, self.phase, self.now(), self._site.count(), wanted))
                await asyncio.sleep(LOOK)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def a_day(folder: Path, plan: Plan, *, figures: bool = False) -> Day:
    """Live through it. Fails when the number of workers does not get where the phase wants it."""
    pages_of = {"site0.localhost": plan.huge}
    with park(pages=plan.pages, hosts=plan.domains + 1, pages_of=pages_of, latency_ms=plan.latency_ms, links=6) as site:
        project = CommandProject(folder, [], SETTINGS.format(rate=plan.rate))
        for name, part in (("huge", slice(0, 1)), ("wide", slice(1, None))):
            (folder / f"{name}.txt").write_text("\n".join(site.seeds()[part]))
        try:
            up = project.run("up", "--no-server", "--autoscale", f"0..{plan.most}", "--concurrency", "2")
            until(lambda: f"A scheduler and 0 to {plan.most} workers" in up.said(), up)
            watched = Watched(up, project, site, figures=figures)
            try:
                _live(watched, project, site, up, plan)
            finally:
                watched.end()
            up.signal(signal.SIGTERM)
            assert up.ended() == 0, up.said()
            project.assert_sound()
            return _judged(watched.moments, project, site, up, plan)
        finally:
            project.close()


def _live(watched: Watched, project: CommandProject, site: Park, up: Command, plan: Plan) -> None:
    until(lambda: len(watched.moments) > 20, up)
    watched.phase = "one huge slow site"
    project.done("schedule", "add", "huge", "--spider", "park", "--file", "huge.txt", "--every", "30d")
    until(lambda: len(site.hits(host=0)) >= 10, up)
    watched.phase = "many polite sites"
    project.done("schedule", "add", "wide", "--spider", "park", "--file", "wide.txt", "--every", "30d")
    wide = plan.domains * plan.pages
    until(lambda: site.count() >= wide + 10 and len(site.hits()) - len(site.hits(host=0)) >= wide, up)
    watched.phase = "what is left"
    until(lambda: len(site.hits()) >= wide + plan.huge, up)
    watched.phase = "night again"
    until(lambda: watched.now() == 0 and "0 workers instead of" in up.said(), up)
    quiet = len(watched.moments) + 20
    until(lambda: len(watched.moments) > quiet, up)


def _judged(moments: list[Moment], project: CommandProject, site: Park, up: Command, plan: Plan) -> Day:
    hits = Counter((hit.host, hit.path) for hit in site.hits())
    early = 0
    for host in site.hosts:
        times = sorted(hit.at for hit in site.hits(host=host))
        early += sum(after - before < 0.9 / plan.rate for before, after in itertools.pairwise(times))
    return Day(
        plan=plan,
        moments=moments,
        changes=[int(found) for found in re.findall(r"^(\d+) workers? instead of", up.said(), re.M)],
        lost=plan.domains * plan.pages + plan.huge - len(hits),
        repeated=hits.total() - len(hits),
        early=early,
        records_differ=len(project.records().keys() ^ site.truth().keys()),
    )
