"""How a job ends: marks missing records as gone, decides the outcome, reports the end once.

What it does: every worker that finds no open page of a job calls `close_drained`; exactly one of them ends the job. As
long as results of the job wait in a spool on any machine, none does: the job is `storing`.
How it fails: Transient, and the job keeps running. How it recovers: the next worker that finds no open page tries
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ...errors import ParseFailed, Transient
from ...frontier.contract import DeadFilter
from ...model.events import EventSink, Gone, JobEnded, Trouble
from ...model.job import UNFINISHED, Job, JobCounts, JobState
from ...model.left_out import proves_gone
from ...model.outcome import NOT_FOUND, JobOutcome, implied
from ...model.run_records import RunRecords
from ...model.task import UrlState
from ...parse.callbacks import run_hook
from ...parse.spider import Spider
from ...parse.timelimit import TimeLimit
from ...schedule.sources import FeedSource, PagesSource, SiteSource, source_of
from ...store.contract import RecordQuery, Retirement
from ...units import many
from ..boards.runs import note_run
from ..open import Project
from ..reparse.archive_job import retire_unseen
from ..upkeep.retention import forget_old_runs
from ..workers.spools import Storing, forget_lost, storing_of
from .jobs import show_job
from .outcome import earlier_runs, job_outcome, last_good, settle_again

LOOK = timedelta(seconds=1)  # how often to check whether the results that a job waits for are stored
MANY_RECORDS = 20
EARLIER_LETTERS = 20  # how many earlier jobs of the same name may have dead letters closed ...
MOST_LETTERS = 2_000  # ... and how many of their letters are looked at
BELIEVED = 0.5  # a crawl that sees less than this share of the previous crawl's records is not believed


async def close_drained(project: Project, spider: Spider, job: Job, events: EventSink) -> Storing | None:
    """End a job that has no open page; only the worker that ended it reports it. If results still wait, return them and
    do nothing. A cancelled or replaced job has no open page either, but is evidence about no page."""
    counts = await project.state.jobs.counts(job.id)
    # After the counts: a waiting result is noted before its task is settled.
    notes = await project.state.spools.notes()
    lost = sum(note.results.get(job.id, 0) for note in notes if note.given_up)
    known = await project.state.jobs.job(job.id)  # its limit may have changed
    if known is not None and known.state is JobState.RUNNING:
        if (storing := await storing_of(project, notes, job.id)) is not None:
            return storing
        await _close(project, spider, known, counts, lost, events)
    if lost:
        await forget_lost(project)
    return None


async def _close(project: Project, spider: Spider, job: Job, counts: JobCounts, lost: int, events: EventSink) -> None:
    full = job.limit is not None and counts.towards_limit >= job.limit
    # A job that its spider ended may have further seeds that were never queued.
    ending = "limit" if job.stopped or (full and (counts.queued or counts.waiting)) else "done"
    earlier = await earlier_runs(project, job) if spider._gives_records else []
    doubt = kept = ""
    counted, marked = spider._gives_records or job.parses_again, RecordQuery(gone_by=job.id)
    # A job whose dead letters were replayed ends again.
    told = await project.records.count(marked) if counted and job.first_ended is not None else 0
    if lost:
        doubt = f"{many(lost, 'result')} of {job.id} were given up (`gossamer spool forget`). No record is marked gone."
    elif not project.settings.store.mark_gone and not job.parses_again:
        kept = "store.mark_gone is off"
    elif ending == "done":
        # Before the job is closed: a crash in between repeats this step.
        try:
            doubt, kept = await mark_gone(project, spider, job, counts, earlier)
        except Transient as error:  # the next crawl does it
            kept = "the record store did not answer"
            events.emit(Trouble(at=project.clock.now(), job=job.id, stage="gone", message=str(error)))
    if doubt:
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="gone", message=doubt))
    outcome = await job_outcome(
        project, spider, job, counts, ending, earlier=earlier, lost=lost, doubt="" if lost else doubt
    )
    outcome = msgspec.structs.replace(outcome, dead=counts.dead)
    gone = None
    if counted:
        try:
            records = await _account_of(project, spider, job, earlier if ending == "done" else [], doubt or kept)
            newly = await project.records.count(marked) - told
        except Transient as error:  # no reason to keep the job from ending
            words = f"What {job.id} did to the records was not counted: {error}"
            events.emit(Trouble(at=project.clock.now(), job=job.id, stage="records", message=words))
        else:
            outcome = msgspec.structs.replace(outcome, records=records)
            gone = _what_is_gone(project, job, newly, records.why_kept)
    ended = await end_job(project, job, ending, events, outcome, gone)
    try:
        await close_letters(project, job)
    except Transient as error:  # the next run does it
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="dead letters", message=str(error)))
    if ended:
        await _tell_spider(project, spider, job, events)


async def _account_of(project: Project, spider: Spider, job: Job, earlier: Sequence[Job], kept: str) -> RunRecords:
    """What the run did to the records. `kept` says why it did not mark all that it did not see as gone."""
    found = await project.records.run_records(job.id)
    if not earlier:
        return found
    wanted = Retirement(job=job.id, spider=spider.name, at=project.clock.now(), of=[one.id for one in earlier])
    unseen = await project.records.unseen(wanted)
    why = kept.rstrip(".") or "the run learned nothing about where it was found"
    return msgspec.structs.replace(found, unseen=unseen, kept=why if unseen else "")


def _what_is_gone(project: Project, job: Job, newly: int, why_kept: str) -> Gone | None:
    """How many records are gone since the job ended the last time, and why others that it did not see are not. Without
    their keys: what is erased on request cannot be found in the words of a log."""
    words = [f"{many(newly, 'record')} marked as gone: see `gossamer diff {job.id}`."] if newly > 0 else []
    message = " ".join([*words, *filter(None, [why_kept])])
    return Gone(at=project.clock.now(), job=job.id, records=max(0, newly), message=message) if message else None


async def _tell_spider(project: Project, spider: Spider, job: Job, events: EventSink) -> None:
    """Call the spider's `closed` hook, if it has one. An exception in it is reported and changes nothing."""
    if type(spider).closed is Spider.closed:
        return
    limit = TimeLimit(project.settings.crawl.parse_timeout, project.box)
    try:
        view = await show_job(project, job.id)
        await limit.run(run_hook(spider, "closed", job.id, view), spider.name)
    except (ParseFailed, Transient) as error:
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="closed", message=str(error)))


async def close_letters(project: Project, job: Job) -> int:
    """Close dead letters of earlier jobs of the same name whose pages this job has fetched; return how many."""
    queue, closed, looked = project.state.queue, 0, 0
    changed: list[str] = []
    newest = await project.state.history.newest_jobs(job.name, EARLIER_LETTERS)
    earlier = [one for one in newest if one.created_at < job.created_at]
    counts = await project.state.jobs.counts_of([one.id for one in earlier]) if earlier else {}
    for before in earlier:
        if before.id not in counts or not counts[before.id][0].dead:
            continue
        async for letter in queue.letters(DeadFilter(job=before.id)):
            stories = await queue.story(letter.site, letter.fingerprint)
            came = [one for one in stories if one.job == job.id and one.state in (UrlState.DONE, UrlState.UNCHANGED)]
            if came and await queue.resolve(letter, reason=f"{job.id} had it") is not None:
                closed += 1
                changed.append(before.id)
            looked += 1
            if looked == MOST_LETTERS:
                break
        if looked == MOST_LETTERS:
            break
    for one in dict.fromkeys(changed):
        await settle_again(project, one, f"fetched by {job.id}")
    return closed


async def end_job(
    project: Project,
    job: Job,
    ending: str,
    events: EventSink,
    outcome: JobOutcome | None = None,
    gone: Gone | None = None,
) -> bool:
    """Close a job. The one worker that really closed it reports the end and what is `gone`, deletes runs of its
    schedule that are too old, and gets True. Without `outcome`, the ending implies one."""
    if not await project.state.jobs.close_job(job.id, ending, outcome):
        return False
    known = outcome or implied(ending)
    words = known.in_words if known is not None else ""
    did = known.records.changes if known is not None and known.records is not None else ""
    if gone is not None:
        events.emit(gone)
    events.emit(JobEnded(at=project.clock.now(), job=job.id, ending=ending, outcome=words, records=did))
    if job.takes_single_pages:
        return True
    try:
        await note_run(project, job.id)
    except Transient as error:  # the next run does it
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="boards", message=str(error)))
    if not job.schedule:
        return True
    try:
        await forget_old_runs(project.state.history, project.state.jobs, job.name, project.settings.store.keep_runs)
    except Transient as error:  # the next run does it
        events.emit(Trouble(at=project.clock.now(), job=job.id, stage="old runs", message=str(error)))
    return True


async def mark_gone(
    project: Project, spider: Spider, job: Job, counts: JobCounts, earlier: Sequence[Job]
) -> tuple[str, str]:
    """Mark the records that this crawl should have seen and did not. Return why none were marked, if in doubt, and why
    only those of pages that it visited.

    The crawl covers the records that it and `earlier` runs have seen: runs of the same spider, arguments and start. A
    crawl that reached every page is evidence about all of them; one that left pages out only about the pages it
    visited. A crawl that found less than half of what the run before saw marks nothing: more likely it is at fault than
    half of the site. Nor does one that read rendered pages before they had finished, if it found fewer records than the
    last run without such pages (or, without such a run, than the run before). All its results must be stored.
    """
    if job.parses_again:
        await retire_unseen(project, job)
        return "", ""
    if not earlier:
        return "", ""
    if not counts.done + counts.unchanged:
        return "", "no page came"
    tried_all = await _tried_all(project, job, counts, earlier)
    reasons = await project.state.queue.dead_reasons(DeadFilter(job=job.id)) if counts.dead else {}
    everywhere = tried_all and set(reasons) <= NOT_FOUND
    last = last_good(earlier) or earlier[0]
    unfinished, now, before = counts.stats.get(UNFINISHED, 0), 0, 0
    if tried_all:  # even if pages failed: too many of those that arrived may have been misread
        before = await project.records.count(RecordQuery(job=last.id))
        now = await project.records.count(RecordQuery(job=job.id))
        if before >= MANY_RECORDS and now < before * BELIEVED:
            doubt = (
                f"{job.id} saw {now:,} records where {last.id} saw {before:,}. No record is marked as gone: see"
                f" whether the site or the spider has changed."
            )
            return doubt, ""
    if unfinished and tried_all and (whole := await _last_whole(project, earlier)) is not None:
        before = await project.records.count(RecordQuery(job=whole.id))
    if unfinished and (now < before or not tried_all):
        doubt = (
            f"{job.id} read {many(unfinished, 'page')} before they had finished loading and may have missed records. No"
            " record is marked as gone: let Render wait for what such a page shows last."
        )
        return doubt, ""
    same = [one.id for one in earlier]
    retirement = Retirement(
        job=job.id,
        spider=spider.name,
        at=project.clock.now(),
        of=same,
        earlier=same if everywhere else (),
        began=job.created_at,
    )
    await project.records.retire(retirement)
    return "", "" if everywhere else _why_not_everywhere(reasons)


def _why_not_everywhere(reasons: Mapping[str, int]) -> str:
    """Why a run is no evidence about pages that it did not visit."""
    if failed := {reason: count for reason, count in reasons.items() if reason not in NOT_FOUND}:
        named = ", ".join(f"{count:,} {reason}" for reason, count in failed.items())
        return f"{many(sum(failed.values()), 'page')} of the run ended as dead letters ({named})"
    return "the run left pages out, or began with other terms than the one before"


async def _last_whole(project: Project, earlier: Sequence[Job]) -> Job | None:
    """The newest of these runs that finished and read no page before it had finished loading."""
    for one in earlier:
        if last_good([one]) and not (await project.state.jobs.counts(one.id)).stats.get(UNFINISHED):
            return one
    return None


async def _tried_all(project: Project, job: Job, counts: JobCounts, earlier: Sequence[Job]) -> bool:
    """Whether the run left out nothing that the run before may have visited, by the counts from which its outcome is
    decided, too. Pages that failed count as tried.

    A list, a file or a sitemap covers what it lists: a URL that drops out of it is gone in the runs of its schedule. A
    feed lists only what is new, a budget selects, and pages requested by name cover only themselves.
    """
    terms = await project.state.jobs.terms(job.id)
    if terms.budget is not None or isinstance(source_of(terms.source), FeedSource | PagesSource | SiteSource):
        return False
    if (await project.state.seeds.findings(job.id)).trouble or earlier[0].depth != job.depth:
        return False
    return proves_gone(counts.drops)


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of these finishes; cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for task in tasks:
            task.cancel()
