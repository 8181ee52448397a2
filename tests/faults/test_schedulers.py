"""Schedulers and workers that are killed at random. Witnesses: the book, the jobs, and what the processes logged.

Ticks come every second, so that half a minute holds as many as usually a day. Takes about 25 s, most of which is
waiting for terms of dead leaders to end.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter, defaultdict
from itertools import pairwise
from uuid import uuid4

import pytest

from gossamer.model.job import Job, JobCounts, JobState
from gossamer.model.schedule import ScheduleProgress
from gossamer.project.open import open_project
from gossamer.settings import load
from tests import patience
from tests.faults.commands import Command, CommandProject, until
from tests.services.valkey import ValkeyServer
from tests.sites.running import Park, park

pytestmark = pytest.mark.long

SCHEDULERS, WORKERS = 3, 4
LEADERS_KILLED = 2
WORKERS_KILLED_EACH = 2  # with each leader
PAGES = 24  # of a run, which takes as long as a tick or three
TAKE_OVER = 40.0  # seconds after which another scheduler leads: ten, and what a busy machine takes for it
INTERVALS = {"skip": 1, "queue": 1, "replace": 2}  # seconds; a schedule for each policy

SPIDER = """
from gossamer import Page, Spider

class Look(Spider):
    def parse(self, page: Page):
        return None
"""


class Storm(CommandProject):
    """Three schedules on Valkey, and crews of processes whose dead are replaced."""

    def __init__(self, folder, site: Park, server: ValkeyServer) -> None:
        tables = "".join(
            f'[schedules.{overlap}]\nspider = "look"\nevery = "{interval}s"\noverlap = "{overlap}"\n'
            f'urls = ["{site.url(0, "/page/")}{{1..{PAGES}}}"]\n'
            for overlap, interval in INTERVALS.items()
        )
        super().__init__(
            folder,
            [],
            f'state = "{server.address()}"\nproject = "storm-{uuid4().hex[:8]}"\n{tables}'
            '[politeness]\nrate = "unlimited"\nconcurrency = 4\n[store]\nkeep_pages = false\n',
        )
        (folder / "spiders" / "look.py").write_text(SPIDER)
        self.schedulers = [self.run("scheduler", "--json-logs") for _ in range(SCHEDULERS)]
        self.workers = [self.run("worker", "--json-logs", "--concurrency", "4") for _ in range(WORKERS)]
        self.logs: dict[str, list[Command]] = {"scheduler": [*self.schedulers], "worker": [*self.workers]}

    def kill(self, crew: list[Command], place: int, verb: str) -> None:
        """kill -9, and another one takes its place."""
        crew[place].process.kill()
        crew[place].process.wait()
        flags = ("--concurrency", "4") if verb == "worker" else ()
        crew[place] = self.run(verb, "--json-logs", *flags)
        self.logs[verb].append(crew[place])

    def leader(self) -> int | None:
        """The place of the scheduler that leads, as far as those that live have said."""
        for place, scheduler in enumerate(self.schedulers):
            said = [event["leads"] for event in scheduler.logged("Leading")]
            if said and said[-1]:
                return place
        return None

    def heard(self, verb: str, kind: str) -> list[dict]:
        return [event for command in self.logs[verb] for event in command.logged(kind)]

    def end(self, crew: list[Command]) -> None:
        for command in crew:
            command.signal(signal.SIGTERM)
        for command in crew:
            code = command.ended()
            assert code in (0, -signal.SIGTERM), command.said()[-2000:]  # one that had not begun yet dies of it


async def ask(project: CommandProject, question):
    async with open_project(load(start=project.folder, environ={}), to_look=True) as system:
        return await question(system)


async def come_to_rest(system) -> None:
    """No more ticks, and wait for what is running, and for workers to drop what replaced jobs have left."""
    for name in INTERVALS:
        assert await system.state.schedules.pause(name, True)
    jobs, schedules = system.state.jobs, system.state.schedules

    async def all_done() -> bool:
        if await jobs.running_jobs() or any(one.waiting_due for one in await schedules.schedules()):
            return False
        return not any([(await jobs.counts(job.id)).open for job in await jobs.jobs()])

    await patience.until(all_done, every=0.1)


async def outcome(system) -> tuple[dict[str, ScheduleProgress], list[Job], dict[str, JobCounts]]:
    jobs = await system.state.jobs.jobs()
    schedules_now = {one.schedule.name: one for one in await system.state.schedules.schedules()}
    return schedules_now, jobs, {job.id: await system.state.jobs.counts(job.id) for job in jobs}


def wait_for_pages(site: Park, more: int, project: Storm) -> None:
    def count() -> int:
        return site.log.read_bytes().count(b"\n")  # hits() would read each line of it

    goal = count() + more
    until(lambda: count() >= goal, *project.schedulers, *project.workers)


def test_whoever_is_killed_no_tick_fires_twice_or_is_forgotten_and_every_job_ends_once(tmp_path, valkey):
    chance = random.Random(6)
    with park(pages=PAGES + 1, latency_ms=100) as site:
        project = Storm(tmp_path, site, valkey)
        try:
            # when leaders die again and again, and workers too, each at a moment that nobody chose
            for _ in range(LEADERS_KILLED):
                until(lambda: project.leader() is not None, *project.schedulers)
                for _ in range(WORKERS_KILLED_EACH):
                    wait_for_pages(site, chance.randrange(1, 2 * PAGES), project)
                    project.kill(project.workers, chance.randrange(WORKERS), "worker")
                wait_for_pages(site, chance.randrange(1, 2 * PAGES), project)
                project.kill(project.schedulers, project.leader(), "scheduler")
            until(lambda: project.leader() is not None, *project.schedulers)
            # and all come to rest
            asyncio.run(ask(project, come_to_rest))
            project.end([*project.schedulers, *project.workers])
        finally:
            project.close()
        schedules_now, jobs, counts = asyncio.run(ask(project, outcome))

    assert len({event["term"] for event in project.heard("scheduler", "Leading")}) > LEADERS_KILLED
    check_ticks(project, schedules_now, jobs)
    check_jobs(project, jobs, counts)


def check_ticks(project: Storm, schedules_now: dict[str, ScheduleProgress], jobs: list[Job]) -> None:
    """Every tick fired at most once, and none waited longer than until another scheduler led."""
    decided: dict[str, set[float]] = defaultdict(set)
    for kind in ("ScheduleFired", "ScheduleSkipped", "ScheduleQueued"):
        told = Counter((event["schedule"], event["due"]) for event in project.heard("scheduler", kind))
        assert set(told.values()) <= {1}, kind
        for name, due in told:
            decided[name].add(due)
    for name, interval in INTERVALS.items():
        progress, runs = schedules_now[name], [job for job in jobs if job.schedule == name]
        dues = [job.due for job in runs]
        assert len(dues) == len(set(dues)) == progress.runs > 0
        assert progress.last_job == max(runs, key=lambda job: job.created_at).id
        assert (progress.failures, progress.waiting_due) == (0, None)
        # A leader that was killed may have had no time to tell of its last tick; the book knows it.
        moments = sorted(decided[name] | set(dues))
        ticks = [(due - progress.created_at) / interval for due in moments]
        assert all(abs(tick - round(tick)) < 0.01 for tick in ticks)
        assert max(later - earlier for earlier, later in pairwise(moments)) <= TAKE_OVER + interval


def check_jobs(project: Storm, jobs: list[Job], counts: dict[str, JobCounts]) -> None:
    """Every job ended, told by one worker at most, and its numbers add up."""
    ended = Counter(event["job"] for event in project.heard("worker", "JobEnded"))
    assert set(ended.values()) == {1}
    done = [job.id for job in jobs if job.ending == "done"]
    assert set(ended) <= set(done)
    killed = LEADERS_KILLED * WORKERS_KILLED_EACH
    assert len(set(done) - set(ended)) <= killed  # they may have died before they told of it
    for job in jobs:
        assert (job.state, job.ending in ("done", "replaced")) == (JobState.FINISHED, True)
        count = counts[job.id]
        assert count.open == count.dead == 0
        assert count.discovered == count.settled + count.dropped + count.duplicates
        if job.ending == "done":
            assert count.settled == PAGES
    assert {job.schedule for job in jobs if job.ending == "replaced"} <= {"replace"}
