"""Reads the situation of a project that the alert rules judge (model/alert_rules.py).

What it does: reads numbers from state and records. Expensive ones are read every SLOW; in between, the last reading
applies. How it fails: Transient if the state does not answer, because then nothing is known. A record store that is
away is part of the situation. A part that cannot be read for another reason is named in `unread`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from ...backends.open import open_records
from ...clock import iso_time
from ...errors import Transient
from ...model.alert import Activity, AlertMemory, AlertTerms, Sample, Standing
from ...model.figures import FAILURES, OTHER, SUCCESSES
from ...model.incident import Subject
from ...model.job import Job, JobCounts
from ...model.record import day_of
from ...model.schedule import ScheduleProgress
from ...model.situation import (
    ALL_SITES,
    BudgetReading,
    DiskReading,
    JobReading,
    LayoutReading,
    LoginReading,
    PoolReading,
    QualityReading,
    ScheduleReading,
    Situation,
    SpoolReading,
    Traffic,
)
from ...model.windows import is_open, parse_windows
from ...pipeline.inspection import WHOLE
from ...schedule.triggers import next_due
from ...settings import Settings
from ...store.contract import Measured
from ...units import seconds_of
from ..open import Project
from ..outputs.outputs import output_readings
from ..schedules.timetable import trigger_of
from ..sites.proxies import proxy_pools
from ..sites.routes import route_report
from ..sites.sessions import failing_sessions
from ..spiders.layout_change import layout_changes
from ..upkeep.disk import disk_words, disks
from ..workers.spools import SpoolView, list_spools
from ..workers.workers import ARCHIVE_FULL, CLOCK_OFF_SECONDS, SET_ASIDE, WorkerView, clock_in_words, list_workers
from .failed_work import CALLBACKS_ASKED, last_runs, letters_by_site, receivers

SLOW = timedelta(seconds=30)  # between two readings of an expensive part
PAST_EVERY = timedelta(minutes=30)  # between two readings of the previous day
PAST = timedelta(hours=24)  # with which a site's current errors are compared
CHUNK = timedelta(hours=1)  # of figures in memory at once
SAMPLE_EVERY = timedelta(seconds=30)  # at most, of the queue
SAMPLES = 120  # in the window of `backlog`
MOST_JOBS = 200  # running jobs that are examined
ASLEEP = timedelta(seconds=30)  # a job idle for less than this is not asked for its ready pages
GRACE = timedelta(minutes=2)  # after which finished work should be among the figures
SITES_ASKED = 50

T = TypeVar("T")
Terms = dict[str, AlertTerms]
Part = Callable[[Terms, float], Awaitable[dict[str, Any]]]  # Any: fields of a Situation


class Readings:
    """Reads the situation repeatedly and caches the expensive parts. Alive while entered."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._stack = AsyncExitStack()
        self._kept: dict[str, tuple[float, Any]] = {}  # part -> when it was read, and its value
        self._causes: dict[str, Subject] = {}  # of runs that came to nothing, by job
        self._fired: dict[str, float] = {}  # site -> since when its dead letters are too many

    async def __aenter__(self) -> Readings:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def situation(
        self, terms: Terms, memory: AlertMemory, known: Iterable[Standing] = ()
    ) -> tuple[Situation, AlertMemory]:
        """The current situation, and what the rules must remember of it. Raises Transient, from the state alone."""
        self._fired = {one.subject: one.began_at for one in known if one.alert == "dead-letters" and one.state.holds}
        now = self._project.clock.now()
        fields: dict[str, Any] = {"unread": {}, "stores": {}}
        await self._try("queue", self._queue(terms, memory, now), fields)
        await self._try("workers", self._workers(terms, now), fields)
        parts: dict[str, Part] = {
            "pools": self._pools,
            "budgets": self._budgets,
            "disks": self._disks,
            "schedules": self._schedules,
            "runs": self._runs,
            "dead letters": self._letters,
            "layouts": self._layouts,
            "callbacks": self._callbacks,
            "logins": self._logins,
        }
        for name, part in parts.items():
            await self._read(name, part, terms, now, fields)
        for name, part in {"figures": self._figures, "quality": self._quality, "outputs": self._outputs}.items():
            if "records" not in fields["stores"]:
                try:
                    await self._read(name, part, terms, now, fields)
                except Transient as error:
                    fields["stores"]["records"] = str(error)
        memory = fields.pop("memory", memory)
        if "samples" in fields:
            newest = fields.get("newest_figure")
            fields["figures_age"] = figures_age(memory.samples, newest, now)
            fields["figures_fresh"] = figures_fresh(memory.samples, newest)
        fields.pop("newest_figure", None)
        return Situation(**fields), memory

    async def _read(self, name: str, part: Part, terms: Terms, now: float, fields: dict[str, Any]) -> None:
        """Read an expensive part, or reuse its last reading."""
        at, found = self._kept.get(name, (-SLOW.total_seconds(), None))
        if found is None or not 0 <= now - at < SLOW.total_seconds():
            found = {}
            await self._try(name, part(terms, now), found)
            self._kept[name] = (now, found)
        unread = found.get("unread", {})
        fields.update({key: value for key, value in found.items() if key != "unread"})
        fields["unread"] = {**fields["unread"], **unread}

    async def _try(self, name: str, reading: Awaitable[dict[str, Any]], fields: dict[str, Any]) -> None:
        """Read a part; a part that cannot be read does not affect the others. Raises Transient."""
        try:
            fields.update(await reading)
        except Transient:
            raise
        except Exception as error:  # any error must be reported
            words = " ".join(f"{type(error).__name__}: {error}".split())
            fields["unread"] = {**fields.get("unread", {}), name: words}

    # -- from the state ----------------------------------------------------------------------------------------

    async def _queue(self, terms: Terms, memory: AlertMemory, now: float) -> dict[str, Any]:
        jobs = (await self._project.state.jobs.running_jobs())[:MOST_JOBS]
        counts = {job.id: await self._project.state.jobs.counts(job.id) for job in jobs}
        memory = remembered(memory, counts, now, window=_window(terms, "backlog") or PAST_EVERY.total_seconds())
        found = []
        for job in jobs:
            idle = now - memory.jobs[job.id].at
            asleep = idle >= ASLEEP.total_seconds() and counts[job.id].queued and not job.paused
            ready = await self._ready(job, now) if asleep else 0
            found.append(JobReading(job=job.id, ready=ready, idle=idle, paused=job.paused))
        return {"jobs": tuple(found), "samples": memory.samples, "memory": memory}

    async def _ready(self, job: Job, now: float) -> int:
        """How many pages may be fetched now: their site does not rest, is not away, and no window is closed."""
        settings = self._project.settings
        if not _is_open(job.windows, now):
            return 0
        return sum(
            load.queued
            for load in await self._project.state.queue.sites(job.id, SITES_ASKED)
            if load.away_since is None
            and not settings.domain(load.site).rest
            and (load.next_at is None or load.next_at <= now)
            and _is_open(settings.domain(load.site).windows, now)
        )

    async def _workers(self, terms: Terms, now: float) -> dict[str, Any]:
        """Which workers are alive, and what they report about their disks and the archive."""
        workers = await list_workers(self._project)
        since = iso_time(now - _window(terms, "workers"))
        archive_full = any(one.state == "archive full" and not one.missing for one in workers)
        return {
            "living": sum(not one.missing for one in workers),
            "missing": tuple(missing_of(workers, since)),
            "machines": tuple(sorted({fault_of(one) for one in workers if not one.missing} - {""})),
            "stores": {"archive": ARCHIVE_FULL} if archive_full else {},
            "spools": await self._spools(workers),
        }

    async def _spools(self, workers: Iterable[WorkerView]) -> tuple[SpoolReading, ...]:
        full = {one.host for one in workers if one.state == "spool full" and not one.missing}
        by_host: dict[str, list[SpoolView]] = defaultdict(list)
        for one in await list_spools(self._project):
            if not one.given_up and one.results:
                by_host[one.host].append(one)
        limit = self._project.settings.store.spool_limit.bytes
        return tuple(
            SpoolReading(
                host=host,
                results=sum(one.results for one in some),
                bytes=sum(one.bytes for one in some),
                limit=limit,
                alive=all(one.alive for one in some),
                full=host in full,
            )
            for host, some in sorted(by_host.items())
        )

    async def _pools(self, terms: Terms, now: float) -> dict[str, Any]:
        return {
            "pools": tuple(
                PoolReading(
                    pool=one.pool,
                    listed=one.listed,
                    resting=sum(proxy.state == "resting" for proxy in one.proxies),
                    failing=sum(proxy.state == "failing" for proxy in one.proxies),
                    working=sum(proxy.state == "ok" for proxy in one.proxies),
                    trouble=one.trouble or "",
                )
                for one in await proxy_pools(self._project)
            )
        }

    async def _disks(self, terms: Terms, now: float) -> dict[str, Any]:
        """One reading for each store on a disk of this machine."""
        found = [one for one in await disks(self._project) if one.free is not None and one.total]
        return {
            "disks": tuple(
                DiskReading(
                    store=one.store,
                    free=(one.free or 0) / (one.total or 1),
                    full_in=seconds_of(one.full_at) - now if one.full_at is not None else None,
                    words=disk_words(one, now),
                )
                for one in found
            )
        }

    async def _budgets(self, terms: Terms, now: float) -> dict[str, Any]:
        if not _has_budgets(self._project.settings):
            return {"budgets": ()}
        report = await route_report(self._project, limit=1)
        running = {f"job {job.id}" for job in await self._project.state.jobs.running_jobs()}
        return {
            "budgets": tuple(
                BudgetReading(budget=one.budget, meaning=one.meaning, left=one.left, limit=one.limit)
                for one in report.budgets
                if one.limit is not None
                and one.left is not None
                and (not one.budget.startswith("job/") or one.meaning in running)
            )
        }

    async def _schedules(self, terms: Terms, now: float) -> dict[str, Any]:
        found = []
        for one in await self._project.state.schedules.schedules():
            if one.withdrawn_at is not None:
                continue
            tick = None if one.paused else _first_missed(one)
            found.append(
                ScheduleReading(
                    schedule=one.schedule.name,
                    # A run that waits for the previous one is not late: its schedule says so.
                    late=max(0.0, now - tick) if tick is not None and one.waiting_due is None else 0.0,
                    trouble=one.trouble,
                )
            )
        return {"schedules": tuple(found)}

    async def _runs(self, terms: Terms, now: float) -> dict[str, Any]:
        found = await last_runs(self._project, now - _window(terms, "jobs"), self._causes)
        named = {one.job for one in found}
        self._causes = {job: cause for job, cause in self._causes.items() if job in named}
        return {"runs": found}

    async def _letters(self, terms: Terms, now: float) -> dict[str, Any]:
        window = _window(terms, "dead-letters")
        return {"dead": await letters_by_site(self._project, now - window, self._fired, window)}

    async def _layouts(self, terms: Terms, now: float) -> dict[str, Any]:
        open_ones = [one for one in (await layout_changes(self._project)).values() if one.is_open]
        return {
            "layouts": tuple(LayoutReading(spider=one.spider, words=one.words, lost=one.letters) for one in open_ones)
        }

    async def _callbacks(self, terms: Terms, now: float) -> dict[str, Any]:
        ended = await self._project.state.callbacks.ended(CALLBACKS_ASKED)
        return {"receivers": receivers(ended, now - _window(terms, "callbacks"))}

    async def _logins(self, terms: Terms, now: float) -> dict[str, Any]:
        failing = await failing_sessions(self._project)
        found = [LoginReading(session=one.name, failures=one.failures, error=one.error) for one in failing]
        return {"logins": tuple(found)}

    # -- from the records --------------------------------------------------------------------------------------

    async def _outputs(self, terms: Terms, now: float) -> dict[str, Any]:
        await self._open_records()
        return {"outputs": await output_readings(self._project, now)}

    async def _figures(self, terms: Terms, now: float) -> dict[str, Any]:
        await self._open_records()
        longest = max(_window(terms, name) for name in ("success", "errors"))
        rows: list[Measured] = []
        async for some in self._chunks(now - longest, now):
            rows += some
        recent = {name: _since(rows, now - _window(terms, name)) for name in ("success", "errors")}
        past = await self._past(now - _window(terms, "errors"), now)
        sites = traffic_of(recent["errors"])
        newest = max((row.start + row.span for row in rows), default=None)
        return {
            "traffic": traffic_of(recent["success"]),
            "errors": {site: (one, past.get(site, Traffic())) for site, one in sites.items() if site != ALL_SITES},
            "newest_figure": newest,
        }

    async def _past(self, until: float, now: float) -> dict[str, Traffic]:
        """Traffic of the previous day, by site."""
        at, known = self._kept.get("past", (now, None))
        if known is None or not 0 <= now - at < PAST_EVERY.total_seconds():
            sums: Counter[tuple[str, bool]] = Counter()
            async for rows in self._chunks(until - PAST.total_seconds(), until):
                for site, one in traffic_of(rows).items():
                    sums[site, True] += one.good
                    sums[site, False] += one.bad
            known = {site: Traffic(sums[site, True], sums[site, False]) for site, _ in sums}
            self._kept["past"] = (now, known)
        return dict(known)

    async def _chunks(self, since: float, until: float) -> Any:
        """Figures from `since` on, one hour at a time."""
        begin = since // 60 * 60
        while begin < until:
            end = min(until, begin + CHUNK.total_seconds())
            yield await self._project.records.figures(begin, end)
            begin = end

    async def _quality(self, terms: Terms, now: float) -> dict[str, Any]:
        today = day_of(now)
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for one in await self._project.records.scores(since=day_of(now - _window(terms, "quality"))):
            if one.field == WHOLE and not one.rule:
                when = "now" if one.day == today else "before"
                sums[one.spider].update({f"{when} items": one.checked, f"{when} faulty": one.faulty})
        return {
            "quality": tuple(
                QualityReading(
                    spider=spider,
                    score=_score(counts, "now"),
                    items=counts["now items"],
                    usual=_score(counts, "before"),
                    usual_items=counts["before items"],
                )
                for spider, counts in sorted(sums.items())
            )
        }

    async def _open_records(self) -> None:
        """Open a record store that was away when the project was opened. Raises Transient."""
        project = self._project
        if not project.absent:
            return
        records = await self._stack.enter_async_context(open_records(project.settings, project.clock))
        self._project = msgspec.structs.replace(project, records=records, absent="")


# -- pure ----------------------------------------------------------------------------------------------------------


def remembered(memory: AlertMemory, counts: dict[str, JobCounts], now: float, *, window: float) -> AlertMemory:
    """The memory after a look at the running jobs. Samples cover the window and a little more."""
    apart = max(SAMPLE_EVERY.total_seconds(), window / SAMPLES)
    jobs: dict[str, Activity] = {}
    done_since = 0
    for job, count in counts.items():
        done = count.settled + count.dropped + count.retries
        known = memory.jobs.get(job)
        jobs[job] = known if known is not None and known.done == done else Activity(done, now)
        done_since += max(0, done - known.done) if known is not None else 0
    last = memory.samples[-1] if memory.samples else Sample(0.0, 0, 0)
    newest = Sample(now, sum(count.open for count in counts.values()), last.settled + done_since)
    older = memory.samples
    if len(older) > 1 and newest.at - older[-2].at < apart:
        older = older[:-1]  # keep the newest, and the others at a distance
    samples = tuple(one for one in (*older, newest) if 0 <= now - one.at <= window + 2 * apart)
    return AlertMemory(samples=samples, jobs=jobs)


def fault_of(worker: WorkerView) -> str:
    """What is wrong with the machine of a worker, in words; "" if nothing is."""
    if worker.state == "set aside":
        return f"{worker.host} {SET_ASIDE}"
    if abs(worker.clock_ahead) <= CLOCK_OFF_SECONDS:
        return ""
    rest = ", so its workers take no work" if worker.state == "clock wrong" else ""
    return f"the clock of {worker.host} is {clock_in_words(worker.clock_ahead)}{rest}"


def missing_of(workers: Iterable[WorkerView], since: str) -> list[str]:
    """Workers that are missing; those that others have replaced are not among them. Workers whose last heartbeat was
    before `since` are gone for good: they are reported only as long as no other worker is alive."""
    workers = list(workers)
    if not all(one.missing for one in workers):
        workers = [one for one in workers if one.seen_at >= since]
    missing = sorted((one for one in workers if one.missing), key=lambda one: one.seen_at)
    return [f"{one.name} ({one.fate})" if one.fate in ("dead", "frozen") else one.name for one in missing]


def traffic_of(rows: Iterable[Measured]) -> dict[str, Traffic]:
    """Successes and failures by site, with the total under ALL_SITES."""
    good: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for row in rows:
        named = {name: one.pages for name, one in row.figures.domains.items() if name != OTHER}
        parts = {ALL_SITES: row.figures.outcomes(), **named}
        for site, outcomes in parts.items():
            good[site] += sum(outcomes.get(name, 0) for name in SUCCESSES)
            bad[site] += sum(outcomes.get(name, 0) for name in FAILURES)
    return {site: Traffic(good[site], bad[site]) for site in good}


def figures_age(samples: tuple[Sample, ...], newest: float | None, now: float) -> float | None:
    """Seconds since the last figure, while the queue shows progress; None if no figure is overdue."""
    since = max(newest or 0.0, samples[0].at) if samples else now
    after = [one for one in samples if one.at >= since + GRACE.total_seconds()]
    if len(after) < 2 or after[-1].settled == after[0].settled:
        return None
    return now - since


def figures_fresh(samples: tuple[Sample, ...], newest: float | None) -> bool:
    """Have figures come since the queue last made progress?"""
    progress = [one.at for before, one in pairwise(samples) if one.settled > before.settled]
    return bool(progress) and newest is not None and newest >= progress[-1] - GRACE.total_seconds()


def _has_budgets(settings: Settings) -> bool:
    router = settings.router
    return any(limit is not None for limit in (router.budget_day, router.budget_job, router.budget_domain)) or any(
        domain.budget is not None for domain in settings.domains.values()
    )


def _first_missed(progress: ScheduleProgress) -> float | None:
    """The first tick without a decision, even if a later one would be fired in its place."""
    decided = progress.created_at if progress.last_due is None else progress.last_due
    begin = decided if progress.since is None else max(decided, progress.since)
    return next_due(trigger_of(progress.schedule), begin, first=progress.created_at)


def _since(rows: list[Measured], since: float) -> list[Measured]:
    return [row for row in rows if row.start + row.span > since]


def _window(terms: Terms, name: str) -> float:
    return terms[name].window.total_seconds() if name in terms else 0.0


def _is_open(windows: str | None, now: float) -> bool:
    return not windows or is_open(parse_windows(windows), now)


def _score(counts: Counter[str], when: str) -> float:
    return 1 - counts[f"{when} faulty"] / counts[f"{when} items"] if counts[f"{when} items"] else 1.0
