"""Runs for people to read: the jobs of a project with their counts, each with one word for where it stands.

The verbs are in job.py, look.py and schedule.py. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from ..clock import iso_time
from ..crawl.heartbeat import MISSING_AFTER
from ..frontier.contract import WorkerCard
from ..model.job import Job, JobCounts, JobState
from ..model.url import site_of
from ..project.open import Project
from ..schedule.sources import FeedSource, SitemapSource, source_of
from ..schedule.windows import is_open, opens_at, parse_windows
from ..settings import Settings
from ..text import distance, span
from .app import out
from .layout import Column, number, print_table
from .timetable import opening_at

RUNNING, READING, WAITING, UNSERVED, PAUSED = "running", "reading", "waiting", "unserved", "paused"
SITES_LOOKED_AT = 1000  # of one job; with more of them nobody says that all are closed
TAKEN_UP_WITHIN = timedelta(seconds=10)  # a worker looks for jobs every second, and says every five on what it works


class Shut(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of all sites are closed to which a job could go on. The first of them opens at `opens`."""

    sites: tuple[str, ...]
    opens: float | None  # None: never
    source: bool = False  # it waits for the site of its source


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its counts, as it was at `now`. `sealed`: all its seeds are in. `served`: a worker says that it works
    on it, or may be about to."""

    job: Job
    counts: JobCounts
    now: float
    sealed: bool = True
    served: bool = True
    shut: Shut | None = None  # by the windows of its sites
    trouble: str = ""  # of reading its source, where a part of it could be had

    @property
    def state(self) -> str:
        """Where it stands, in a word: running, reading (its source, and nothing has come yet), waiting (for its
        window or those of its sites), unserved (no worker works on it), paused; or how it ended."""
        job, counts = self.job, self.counts
        if job.state is not JobState.RUNNING:
            return job.ending.partition(":")[0] or job.state.value
        if job.paused:
            return PAUSED
        if counts.leased:
            return RUNNING
        if not self.is_open or self.shut is not None:
            return WAITING  # for that no worker is needed
        if not self.served:
            return UNSERVED
        return RUNNING if self.sealed or counts.discovered else READING

    @property
    def is_open(self) -> bool:
        """Is one of its windows open, or has it none?"""
        return not self.job.windows or is_open(parse_windows(self.job.windows), self.now)

    @property
    def story(self) -> str:
        """As `state`, with what a reader would ask next."""
        match self.state:
            case "waiting":
                return self._waiting
            case "reading":
                return "reading its source"
            case "unserved":
                return "unserved: no worker works on it just now; start one (gossamer up), or see what they say"
            case word:
                return word

    @property
    def _waiting(self) -> str:
        if not self.is_open:
            return f"waiting for its window, {opening_at(self.opens, self.now)}"
        assert self.shut is not None
        site, *others = self.shut.sites
        whose = f"the window of {site}" if not others else f"the windows of {1 + len(others):,} sites"
        when = ("the first " if others else "") + opening_at(self.opens, self.now)
        return f"waiting{': its source waits' if self.shut.source else ''} for {whose}, {when}"

    @property
    def opens(self) -> float | None:
        """When it may go on, where it waits for a window."""
        if self.state != WAITING:
            return None
        if not self.is_open:
            return opens_at(parse_windows(self.job.windows), self.now)
        return self.shut.opens if self.shut is not None else None

    @property
    def fault(self) -> str:
        """Why it ended before its time, where more is known than a word: what was wrong with its source."""
        return self.job.ending.partition(": ")[2]

    @property
    def total(self) -> int:
        """Every address that it knows, each once."""
        return self.counts.discovered - self.counts.duplicates

    @property
    def seconds(self) -> float:
        """From its beginning to its end, or to now; pauses and closed windows count."""
        end = self.job.finished_at if self.job.finished_at is not None else self.now
        return max(0.0, end - self.job.created_at)

    @property
    def rate(self) -> float:
        """Pages settled per second, on average over all of its time."""
        return self.counts.settled / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining(self) -> int:
        """Pages that are open and that its limit still lets it fetch."""
        limit = self.job.limit
        return self.counts.open if limit is None else max(0, min(self.counts.open, limit - self.counts.settled))

    @property
    def eta(self) -> float | None:
        """Seconds to its end, if the rest goes as fast as all did so far. None when that says nothing."""
        if self.state != RUNNING or not self.rate:
            return None
        return self.remaining / self.rate

    @property
    def rate_words(self) -> str:
        return f"{self.rate:.1f}/s" if self.rate >= 1 or not self.rate else f"{self.rate * 60:.1f}/m"

    @property
    def took(self) -> str:
        return span(self.seconds)

    def as_json(self) -> dict[str, Any]:
        job, counts = self.job, self.counts
        return {
            "id": job.id,
            "name": job.name,
            "spider": job.spider_name,
            "schedule": job.schedule or None,
            "due": iso_time(job.due) if job.due is not None else None,
            "state": job.state.value,
            "paused": job.paused,
            "standing": self.state,
            "ending": job.ending or None,
            "trouble": self.trouble or None,
            "started": iso_time(job.created_at),
            "finished": iso_time(job.finished_at) if job.finished_at is not None else None,
            "seconds": round(self.seconds, 3),
            "limit": job.limit,
            "windows": job.windows or None,
            "opens": iso_time(self.opens) if self.opens is not None else None,
            "total": self.total,
            "done": counts.done,
            "unchanged": counts.unchanged,
            "dropped": counts.dropped,
            "dead": counts.dead,
            "open": counts.open,
            "retries": counts.retries,
            "pages_per_second": round(self.rate, 4),
            "eta_seconds": round(self.eta, 3) if self.eta is not None else None,
        }


async def runs_of(project: Project, jobs: Iterable[Job]) -> list[Run]:
    """The jobs with their counts, as they are now."""
    found = list(jobs)
    runs: list[Run] = []
    goes_on = any(job.state is JobState.RUNNING for job in found)
    cards = await project.state.workers.workers() if goes_on else []
    for job in found:
        is_running = job.state is JobState.RUNNING
        counts = await project.state.jobs.counts(job.id)
        sealed = await project.state.jobs.is_sealed(job.id) if is_running else True
        now = project.clock.now()
        served = is_served(job, cards, now) if is_running else True
        shut = await _shut(project, job, sealed, now) if is_running and not counts.leased else None
        runs.append(Run(job=job, counts=counts, now=now, sealed=sealed, served=served, shut=shut))
    return runs


async def _shut(project: Project, job: Job, sealed: bool, now: float) -> Shut | None:
    """None when a site of it may be visited now, or nothing is known that it could go on with."""
    settings = project.settings
    if not any(domain.windows for domain in settings.domains.values()):
        return None  # nearly always; spares the queue a question
    sites = [load.site for load in await project.state.queue.sites(job.id, SITES_LOOKED_AT)]
    if len(sites) == SITES_LOOKED_AT:
        return None
    source = None
    if not sealed:
        match source_of((await project.state.jobs.terms(job.id)).source):
            case SitemapSource(url=url) | FeedSource(url=url):
                source = site_of(url)
    wanted = dict.fromkeys([*([source] if source is not None else ()), *sites])
    if not wanted or not all(closed_until(settings, site, now)[0] for site in wanted):
        return None
    openings = [at for site in wanted if (at := closed_until(settings, site, now)[1]) is not None]
    only_source = source is not None and not sites
    return Shut(sites=tuple(wanted), opens=min(openings, default=None), source=only_source)


def closed_until(settings: Settings, site: str, now: float) -> tuple[bool, float | None]:
    """Is the site's own window closed, and when does it open? None: never."""
    text = settings.domain(site).windows
    windows = parse_windows(text) if text else ()
    if not windows or is_open(windows, now):
        return False, None
    return True, opens_at(windows, now)


async def run_of(project: Project, job: Job) -> Run:
    """As `runs_of`, with what was wrong with its source."""
    (run,) = await runs_of(project, [job])
    trouble = (await project.state.seeds.findings(job.id)).trouble if job.schedule else ""
    return msgspec.structs.replace(run, trouble=trouble)


def is_served(job: Job, cards: Collection[WorkerCard], now: float) -> bool:
    """Does a worker say that it works on the job? A new job has some seconds to be taken up, if anybody is there."""
    alive = [card for card in cards if now - card.seen_at <= MISSING_AFTER.total_seconds()]
    if any(job.id in card.job.split(", ") for card in alive):
        return True
    return bool(alive) and now - job.created_at < TAKEN_UP_WITHIN.total_seconds()


def print_runs(runs: list[Run], *, indent: int = 0) -> None:
    """A table of jobs with their counts. Those that add up to the total stay, however narrow the terminal is."""
    print_table(
        (
            Column("JOB", "bold"), Column("SCHEDULE", spare=4), Column("STATE"), Column("STARTED", spare=1),
            Column("TOOK", right=True, spare=2), Column("TOTAL", right=True), Column("DONE", "green", right=True),
            Column("UNCHANGED", right=True), Column("DEAD", "red", right=True), Column("DROPPED", right=True),
            Column("OPEN", "cyan", right=True), Column("RATE", right=True, spare=3),
        ),
        [_row(run) for run in runs],
        indent=indent,
    )  # fmt: skip


def _row(run: Run) -> list[str]:
    job, counts = run.job, run.counts
    on_terminal = out.is_terminal
    figures = (run.total, counts.done, counts.unchanged, counts.dead, counts.dropped, counts.open)
    return [
        job.id,
        job.schedule,
        run.state,
        distance(job.created_at, run.now) if on_terminal else iso_time(job.created_at),
        run.took if on_terminal else f"{run.seconds:.1f}s",
        *(number(figure) for figure in figures),
        run.rate_words,
    ]
