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
from typing import Any, TypeVar

import msgspec

from ...access.contract import CallbackState
from ...backends.open import open_records
from ...clock import iso_time
from ...errors import Transient
from ...frontier.contract import DeadFilter
from ...model.alert import Activity, AlertMemory, AlertTerms, Sample
from ...model.failure_groups import group_failures
from ...model.figures import FAILURES, OTHER, SUCCESSES
from ...model.job import Job, JobCounts
from ...model.outcome import Outcome
from ...model.record import day_of
from ...model.schedule import ScheduleProgress
from ...model.situation import (
    ALL_SITES,
    BudgetReading,
    JobReading,
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
from ..jobs.failures import LOOKED_AT
from ..open import Project
from ..schedules.timetable import trigger_of
from ..sites.proxies import proxy_pools
from ..sites.routes import route_report
from ..sites.sessions import failing_sessions
from ..workers.spools import list_spools
from ..workers.workers import ARCHIVE_FULL, CLOCK_OFF_SECONDS, SET_ASIDE, WorkerView, clock_in_words, list_workers

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
CALLBACKS_ASKED = 1000

T = TypeVar("T")
Terms = dict[str, AlertTerms]
Part = Callable[[Terms, float], Awaitable[dict[str, Any]]]  # Any: fields of a Situation


class Readings:
    """Reads the situation repeatedly and caches the expensive parts. Alive while entered."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._stack = AsyncExitStack()
        self._kept: dict[str, tuple[float, Any]] = {}  # part -> when it was read, and its value

    async def __aenter__(self) -> Readings:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def situation(self, terms: Terms, memory: AlertMemory) -> tuple[Situation, AlertMemory]:
        """The current situation, and what the rules must remember of it. Raises Transient, from the state alone."""
        now = self._project.clock.now()
        fields: dict[str, Any] = {"unread": {}, "stores": {}}
        await self._try("queue", self._queue(terms, memory, now), fields)
        await self._try("workers", self._workers(terms, now), fields)
        parts: dict[str, Part] = {
            "pools": self._pools,
            "budgets": self._budgets,
            "schedules": self._schedules,
            "callbacks": self._callbacks,
            "logins": self._logins,
        }
        for name, part in parts.items():
            await self._read(name, part, terms, now, fields)
        for name, part in {"figures": self._figures, "quality": self._quality}.items():
            if "records" not in fields["stores"]:
                try:
                    await self._read(name, part, terms, now, fields)
                except Transient as error:
                    fields["stores"]["records"] = str(error)
        memory = fields.pop("memory", memory)
        if "samples" in fields:
            fields["figures_age"] = figures_age(memory.samples, fields.get("newest_figure"), now)
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
            found.append(JobReading(job=job.id, ready=ready, idle=idle))
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
        by_host: dict[str, list[Any]] = defaultdict(list)
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
                in_hand=all(one.in_hand for one in some),
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
                    resting=sum(exit.state == "resting" for exit in one.exits),
                    failing=sum(exit.state == "failing" for exit in one.exits),
                    trouble=one.trouble or "",
                )
                for one in await proxy_pools(self._project)
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
            if one.paused or one.withdrawn_at is not None:
                continue
            tick = _first_missed(one)
            job = await self._project.state.jobs.job(one.last_job) if one.last_job else None
            outcome = job.outcome if job is not None and job.finished_at is not None else None
            nothing = outcome is not None and outcome.outcome in (Outcome.EMPTY, Outcome.FAILED)
            found.append(
                ScheduleReading(
                    schedule=one.schedule.name,
                    # A run that waits for the previous one is not late: its schedule says so.
                    late=max(0.0, now - tick) if tick is not None and one.waiting_due is None else 0.0,
                    trouble=one.trouble,
                    last_job=one.last_job,
                    outcome=outcome.in_words if outcome is not None and nothing else "",
                )
            )
        return {"schedules": tuple(found)}

    async def _callbacks(self, terms: Terms, now: float) -> dict[str, Any]:
        since = now - _window(terms, "callbacks")
        ended = await self._project.state.callbacks.ended(CALLBACKS_ASKED)
        failed = [one for one in ended if one.state is CallbackState.FAILED and (one.ended_at or 0.0) >= since]
        return {"callbacks": len(failed)}

    async def _logins(self, terms: Terms, now: float) -> dict[str, Any]:
        failing = await failing_sessions(self._project)
        return {
            "logins": tuple(LoginReading(session=one.name, failures=one.failures, error=one.error) for one in failing)
        }

    # -- from the records --------------------------------------------------------------------------------------

    async def _figures(self, terms: Terms, now: float) -> dict[str, Any]:
        await self._open_records()
        longest = max(_window(terms, name) for name in ("success", "errors", "dead-letters"))
        rows: list[Measured] = []
        async for some in self._chunks(now - longest, now):
            rows += some
        recent = {name: _since(rows, now - _window(terms, name)) for name in ("success", "errors", "dead-letters")}
        past = await self._past(now - _window(terms, "errors"), now)
        sites = traffic_of(recent["errors"])
        newest = max((row.start + row.span for row in rows), default=None)
        dead = sum(row.figures.outcomes().get("dead", 0) for row in recent["dead-letters"])
        return {
            "traffic": traffic_of(recent["success"]),
            "errors": {site: (one, past.get(site, Traffic())) for site, one in sites.items() if site != ALL_SITES},
            "dead": dead,
            "failing": await self._failing(now - _window(terms, "dead-letters")) if dead else "",
            "newest_figure": newest,
        }

    async def _failing(self, since: float) -> str:
        """What most of the pages say that were given up since then; "" if the state does not answer."""
        try:
            letters = await self._project.state.queue.dead(DeadFilter(), LOOKED_AT)
        except Transient:
            return ""
        return group_failures(one for one in letters if one.died_at >= since).largest_in_words

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
    """Workers that are missing and were not replaced: no worker has started on their machine since. A replacement that
    is missing too is reported in place of the worker it replaced. Workers whose last heartbeat was before `since` are
    gone for good: they are reported only as long as no other worker is alive."""
    found, workers = [], list(workers)
    later = sorted((one.host, one.started_at) for one in workers)
    if not all(one.missing for one in workers):
        workers = [one for one in workers if one.seen_at >= since]
    for one in sorted((one for one in workers if one.missing), key=lambda one: one.seen_at):
        replacement = next((new for new in later if new[0] == one.host and new[1] > one.seen_at), None)
        if replacement is None:
            found.append(one.name)
        else:
            later.remove(replacement)
    return found


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
