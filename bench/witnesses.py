"""What is known after a storm, from four sides: the book of schedules and jobs, the log of attempts, what the processes
logged, and what the site saw. Nothing is judged here.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from gossamer.model.job import Job, JobCounts
from gossamer.model.schedule import ScheduleProgress
from gossamer.project.open import open_project

from .scheduler_storm import Life, Storm

TOLD = ("ScheduleFired", "ScheduleSkipped", "ScheduleQueued")  # what is told of a tick

Span = tuple[float, float]


@dataclass
class Witnesses:
    """All that is known afterwards."""

    standings: dict[str, ScheduleProgress]
    jobs: dict[str, list[Job]]  # by schedule, oldest first
    counts: dict[str, JobCounts]  # by job
    attempted: dict[str, Counter[str]]  # by job: URLs that were fetched and stored, and how often
    hits: dict[str, dict[str, list[float]]]  # by schedule and URL: when the site was asked for it
    gaps: list[Span]  # times in which nobody led
    faults: list[str] = field(default_factory=list)

    def expect(self, kept: bool, fault: str) -> None:
        if not kept:
            self.faults.append(fault)


async def gather(blown: Storm) -> Witnesses:
    async with open_project(blown.settings(), to_look=True) as system:
        standings = {one.schedule.name: one for one in await system.state.schedules.schedules()}
        jobs: dict[str, list[Job]] = defaultdict(list)
        for job in sorted(await system.state.jobs.jobs(), key=lambda job: job.created_at):
            jobs[job.schedule].append(job)
        counts = {job.id: await system.state.jobs.counts(job.id) for runs in jobs.values() for job in runs}
    attempted: dict[str, Counter[str]] = defaultdict(Counter)
    rows = blown.sql("records.db", "SELECT job, url FROM attempts WHERE outcome IN ('done', 'unchanged')")
    for job_id, url in rows:
        attempted[job_id][url] += 1
    return Witnesses(standings, jobs, counts, attempted, hits_of(blown), gaps_of(blown))


def hits_of(blown: Storm) -> dict[str, dict[str, list[float]]]:
    """By the wall clock, oldest first. Pages only: robots.txt and sitemaps may be read as often as somebody likes."""
    shift = time.time() - time.monotonic()
    hits: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for seen in blown.site.log:
        _, name, *rest = seen.path.split("/")
        if rest and rest[0].isdecimal():
            hits[name][f"http://{seen.headers['host']}{seen.path}"].append(seen.at + shift)
    return hits


def gaps_of(blown: Storm) -> list[Span]:
    """The times in which no scheduler led that was awake, after the first that did."""
    led = sorted(span for life in blown.lives if life.verb == "scheduler" for span in reigns(life))
    gaps: list[Span] = []
    until = led[0][1] if led else 0.0
    for begin, end in led:
        if begin > until:
            gaps.append((until, begin))
        until = max(until, end)
    return [gap for gap in gaps if gap[0] < blown.calmed_at]


def reigns(life: Life) -> list[Span]:
    """When it led, by its own words, without the times in which it was frozen."""
    spans: list[Span] = []
    since: float | None = None
    events = life.command.logged("Leading", *TOLD)
    for event in events:
        if event.get("leads") and since is None:
            since = moment(event["at"])
        elif event.get("leads") is False and since is not None:
            spans.append((since, moment(event["at"])))
            since = None
    if since is not None:
        spans.append((since, life.ended or time.time()))
    for asleep, awake in life.frozen:
        # One whose first word is that it leads no more, or that dies before it, had lost its lead in its sleep.
        first = next((event for event in events if moment(event["at"]) > awake), None)
        lost = first is None or first.get("leads") is False
        back = max((end for begin, end in spans if begin < awake), default=awake) if lost else awake
        spans = [part for begin, end in spans for part in ((begin, min(end, asleep)), (max(begin, back), end))]
        spans = [(begin, end) for begin, end in spans if begin < end]
    return spans


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
