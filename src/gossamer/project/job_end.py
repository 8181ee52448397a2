"""How a job ends: which of its records are gone, that its end is reported once, and why one found nothing.

What it does: every worker that finds nothing left of a job calls `close_drained`; however many do, one ends it. While
results of it wait on any machine's disk, nobody does: the job is `storing`.
How it fails: Transient, and the job runs on. How it recovers: the next worker that finds nothing left does it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from ..errors import Transient
from ..frontier.contract import DeadFilter, is_redirect
from ..model.events import EventSink, Gone, JobEnded, Trouble
from ..model.job import Job, JobCounts, JobState
from ..model.task import DropReason, UrlState
from ..parse.spider import Spider
from ..store.contract import RecordQuery
from ..store.sink import Sink
from ..units import many
from .job_reports import GIVEN_UP
from .open import Project
from .retention import forget_old_runs
from .spools import Storing, forget_lost, storing_of

NOT_FOUND = {"http-404", "http-410"}
LEFT_OUT = {  # pages that another crawl may have visited
    DropReason.TRAP, DropReason.FULL, DropReason.FRESH, DropReason.UNMODIFIED, *GIVEN_UP,
}  # fmt: skip
LOOK = timedelta(seconds=1)  # between two looks whether the results that a job waits for are stored
MANY_RECORDS = 20
BELIEVED = 0.5  # a crawl that sees less than this part of what the one before saw is not believed
EARLIER_JOBS = 100  # of the same name, the newest first, whose records a crawl speaks for
FEW = 50  # pages; more than these are not all redirects, and the list of a big job is long


async def close_when_stored(
    project: Project, spider: Spider, job: Job, events: EventSink, sink: Sink, stopped: asyncio.Event
) -> Storing | None:
    """End a job of which nothing is left as soon as its results are stored: here, and by others that are at work.

    Returns what is not stored yet, when `stopped` is set before or nobody is at work on it.
    """
    await first_of(sink.emptied(), stopped.wait(), _no_longer_runs(project, job))
    told = ""
    while True:
        try:
            storing = await close_drained(project, spider, job, events)
        except Transient as error:  # the next look may find the state back
            if stopped.is_set():
                raise
            words = str(error)
        else:
            if storing is None or stopped.is_set() or not storing.in_hand:
                return storing
            words = storing.in_words(job.id)
        if words != told:
            told = words
            events.emit(Trouble(at=project.clock.now(), job=job.id, stage="storing", message=words))
        await first_of(project.clock.sleep(LOOK.total_seconds()), stopped.wait())


async def _no_longer_runs(project: Project, job: Job) -> None:
    """Return when somebody else has ended the job: its results are stored in their own time."""
    while True:
        with suppress(Transient):  # the next look tells
            known = await project.state.jobs.job(job.id)
            if known is None or known.state is not JobState.RUNNING:
                return
        await project.clock.sleep(LOOK.total_seconds())


async def close_drained(project: Project, spider: Spider, job: Job, events: EventSink) -> Storing | None:
    """End a job of which nothing is left; the one worker that ended it reports it. While results of it wait, return
    which, and do nothing. Nothing is left of a job that was cancelled or replaced either: it speaks for no page."""
    counts = await project.state.jobs.counts(job.id)
    # After the counts: a result that waits is noted before its task is settled.
    notes = await project.state.spools.notes()
    lost = sum(note.results.get(job.id, 0) for note in notes if note.given_up)
    known = await project.state.jobs.job(job.id)  # its limit may be another one by now
    if known is not None and known.state is JobState.RUNNING:
        if (storing := await storing_of(project, notes, job.id)) is not None:
            return storing
        await _close(project, spider, known, counts, lost, events)
    if lost:
        await forget_lost(project)
    return None


async def _close(project: Project, spider: Spider, job: Job, counts: JobCounts, lost: int, events: EventSink) -> None:
    full = job.limit is not None and counts.settled >= job.limit
    ending = "limit" if full and (counts.queued or counts.waiting) else "done"
    if lost:
        words = f"{many(lost, 'result')} of {job.id} were given up (`gossamer spool forget`). None is marked as gone."
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="gone", message=words))
    elif ending == "done" and project.settings.store.mark_gone:
        # Before the job is closed: a crash in between repeats it.
        try:
            gone = await mark_gone(project, spider, job, counts, events)
        except Transient as error:  # the next crawl will see to it
            events.emit(Trouble(at=project.clock.now(), job=job.id, stage="gone", message=str(error)))
        else:
            if gone:
                events.emit(Gone(at=project.clock.now(), job=job.id, records=gone))
    await end_job(project, job, ending, events)


async def end_job(project: Project, job: Job, ending: str, events: EventSink) -> None:
    """Close a job. The one worker that really did so tells it, and forgets runs of its schedule that are too old."""
    if not await project.state.jobs.close_job(job.id, ending):
        return
    events.emit(JobEnded(at=project.clock.now(), job=job.id, ending=ending))
    if not job.schedule:
        return
    try:
        await forget_old_runs(project.state.history, project.state.jobs, job.name, project.settings.store.keep_runs)
    except Transient as error:  # the next run will see to it
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="old runs", message=str(error)))


async def mark_gone(project: Project, spider: Spider, job: Job, counts: JobCounts, events: EventSink) -> int:
    """Mark records that the crawl should have seen and did not; return how many.

    A crawl that got everywhere speaks for all that earlier crawls of its name had seen. One that left pages out speaks
    only for the pages that it visited itself. One that found less than half of what the crawl before had seen says
    nothing: more likely something is wrong with it than with half of the site. All its results must be stored.
    """
    if not counts.done + counts.unchanged:
        return 0
    newest = await project.state.history.newest_jobs(job.name, EARLIER_JOBS + 1)
    earlier = [one for one in newest if one.created_at < job.created_at]
    everywhere = await _got_everywhere(project, job, earlier)
    if earlier and everywhere:
        before = await project.records.count(RecordQuery(job=earlier[0].id, spider=spider.name))
        now = await project.records.count(RecordQuery(job=job.id, spider=spider.name))
        if before >= MANY_RECORDS and now < before * BELIEVED:
            message = (
                f"{job.id} saw {now:,} records where {earlier[0].id} saw {before:,}. None is marked as gone: see"
                f" whether the site or the spider has changed."
            )
            events.emit(Trouble(at=project.clock.now(), job=job.id, stage="gone", message=message))
            return 0
    return await project.records.retire(
        job.id,
        spider=spider.name,
        at=project.clock.now(),
        earlier=[one.id for one in earlier[:EARLIER_JOBS]] if everywhere else (),
        began=job.created_at,
    )


async def _got_everywhere(project: Project, job: Job, earlier: Sequence[Job]) -> bool:
    """Was nothing left out that the crawl before may have visited?

    A list of addresses speaks for itself alone: what has dropped out of a feed, or out of the choice of a budget, is
    not gone from its site.
    """
    if (await project.state.jobs.terms(job.id)).source:
        return False
    if earlier and earlier[0].depth != job.depth:
        return False
    if not set(await project.state.queue.dead_reasons(DeadFilter(job=job.id))) <= NOT_FOUND:
        return False
    async for _, _, reason in project.state.queue.urls(job.id, UrlState.DROPPED):
        if reason in LEFT_OUT:
            return False
    return True


async def why_nothing_came(project: Project, job: str) -> str:
    """One line on why not one page of the job could be had; empty when one could, a redirect not counted."""
    counts = await project.state.jobs.counts(job)
    if counts.done + counts.unchanged > FEW:
        return ""
    elsewhere = refused = ""
    listed = 0  # pages that are done and have a row; where a filter deduplicates, rows go with the work
    async for url, state, reason in project.state.queue.urls(job):
        listed += state in (UrlState.DONE, UrlState.UNCHANGED)
        if state in (UrlState.DONE, UrlState.UNCHANGED) and not is_redirect(reason):
            return ""
        if state is UrlState.DONE:
            elsewhere = elsewhere or f"{url} {reason}, which is another site. Crawl that one instead."
        elif state is UrlState.DROPPED and reason == DropReason.ROBOTS:
            refused = refused or f"The robots.txt of the site forbids {url} to crawlers."
    if listed < counts.done + counts.unchanged:
        return ""
    for letter in await project.state.queue.dead(DeadFilter(job=job), limit=1):
        return letter.message.partition("\n")[0] or f"{letter.url}: {letter.reason}"
    return refused or elsewhere or "Every address was left out by the rules of the crawl."


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of these is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for task in tasks:
            task.cancel()
