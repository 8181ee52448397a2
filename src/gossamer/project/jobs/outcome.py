"""Gathers the facts from which model/outcome.py judges a job when it ends.

How it fails: Transient, and the job keeps running until the next worker that finds no open page.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ...frontier.contract import DeadFilter, is_redirect
from ...model.job import RAW_PAGES, Job, JobCounts, JobState
from ...model.left_out import PURGED, reasons_of
from ...model.outcome import JobFacts, JobOutcome, LastRun, Outcome, outcome_of, settled_again
from ...model.run_records import RunRecords
from ...model.task import DropReason, UrlState
from ...parse.spider import Spider, declares_items
from ...store.contract import RecordQuery
from ..boards.runs import note_run, recount_lines
from ..open import Project
from ..records.items import conflicts_of, found_items
from ..reparse.archive_job import outcome_of_reparse
from .failures import failures_of

EARLIER_JOBS = 100  # at most: the newest that covered the same records
LOOKED_AT = 500  # jobs of the same name that are searched for them
FEW = 50  # pages; beyond this not all are redirects, and listing the pages of a big job takes long
NOTHING_DUE = {DropReason.FRESH, DropReason.UNMODIFIED}


async def earlier_runs(project: Project, job: Job) -> list[Job]:
    """Earlier jobs that covered the same records (same spider, arguments and start), newest first."""
    newest = await project.state.history.newest_jobs(job.name, LOOKED_AT)
    same = [one for one in newest if one.created_at < job.created_at and one.stands_for_same(job)]
    return same[:EARLIER_JOBS]


def last_good(earlier: Sequence[Job]) -> Job | None:
    """The newest of these runs that reached its end with records. One that stopped at a limit did not."""
    through = (Outcome.DONE, Outcome.WARNINGS)
    return next(
        (one for one in earlier if one.ending == "done" and one.outcome and one.outcome.outcome in through), None
    )


async def job_outcome(
    project: Project,
    spider: Spider,
    job: Job,
    counts: JobCounts,
    ending: str,
    *,
    earlier: Sequence[Job] = (),
    lost: int = 0,
    doubt: str = "",
) -> JobOutcome:
    """The outcome of a job that ends now. `doubt` says why no record was marked as gone. Raises Transient."""
    if job.parses_again:
        return outcome_of_reparse(counts, lost, await conflicts_of(project, job.id))
    return outcome_of(await _facts(project, spider, job, counts, ending, earlier=earlier, lost=lost, doubt=doubt))


async def settle_again(project: Project, job: str, how: str) -> JobOutcome | None:
    """Settle the outcome of an ended job again, because dead letters of it were resolved or purged: `how`. None if
    it runs, was cancelled or replaced, or has no outcome. Raises Transient."""
    known = await project.state.jobs.job(job)
    if known is None or known.state is not JobState.FINISHED or known.outcome is None or known.parses_again:
        return None
    if known.ending not in ("done", "limit"):
        return None
    counts = await project.state.jobs.counts(job)
    facts = await _facts(project, None, known, counts, known.ending, earlier=await earlier_runs(project, known))
    records = await _counted_again(project, job, known.outcome.records)
    outcome = settled_again(known.outcome, facts, records, project.clock.now(), how)
    if not await project.state.jobs.settle_again(job, outcome):
        return None
    await note_run(project, job)
    return outcome


async def _counted_again(project: Project, job: str, before: RunRecords | None) -> RunRecords | None:
    if before is None:
        return None
    # What a later run saw is no work of this one: of what it had not seen there may only be less.
    found = await project.records.run_records(job)
    unseen = before.unseen and max(0, before.unseen - max(0, found.known - before.known))
    return msgspec.structs.replace(found, unseen=unseen, kept=before.kept)


async def recount_records(project: Project, jobs: Collection[str]) -> None:
    """Correct how many records these jobs and their lines on the boards have, some of which were erased. Raises
    Transient."""
    changes: dict[str, str] = {}
    for id in sorted(jobs):
        job = await project.state.jobs.job(id)
        if job is None or job.outcome is None or job.outcome.records is None:
            continue
        records = await _counted_again(project, id, job.outcome.records)
        outcome = msgspec.structs.replace(job.outcome, records=records)
        if records is not None and await project.state.jobs.settle_again(id, outcome):
            changes[id] = records.changes
    await recount_lines(project, jobs, changes)


async def _facts(
    project: Project,
    spider: Spider | None,
    job: Job,
    counts: JobCounts,
    ending: str,
    *,
    earlier: Sequence[Job] = (),
    lost: int = 0,
    doubt: str = "",
) -> JobFacts:
    recorded = job.spider != RAW_PAGES
    records = await project.records.count(RecordQuery(job=job.id)) if recorded else 0
    terms = await project.state.jobs.terms(job.id)
    trouble = (await project.state.seeds.findings(job.id)).trouble
    last = None
    if terms.expected.max_change is not None and (good := last_good(earlier)) is not None:
        last = LastRun(good.id, await project.records.count(RecordQuery(job=good.id)))
    failures = await failures_of(project, DeadFilter(job=job.id), counts.dead)
    return JobFacts(
        ending=ending,
        pages=counts.pages,
        records=records,
        dead=await project.state.queue.dead_reasons(DeadFilter(job=job.id)) if counts.dead else {},
        failing=failures.largest_in_words if failures is not None else "",
        limit=job.limit if terms.budget is None else None,
        cut=tuple(reasons_of(counts.drops, Outcome.INCOMPLETE)),
        guessed=tuple(reasons_of(counts.drops, Outcome.WARNINGS)),
        stopped=job.stopped,
        failure=await why_nothing_came(project, job.id, counts) if ending == "done" else "",
        gives_records=not records and await _gives_records(project, job, spider),
        expected=terms.expected,
        last=last,
        lost=lost,
        trouble=trouble,
        doubt=doubt,
        conflicts=await conflicts_of(project, job.id) if recorded else "",
        items=await found_items(project, job.id) if recorded and not records else "",
    )


async def _gives_records(project: Project, job: Job, spider: Spider | None) -> bool:
    """Whether the spider declares items or has yielded some before; without the spider, whether the job was called
    empty, or the spider of that name has yielded some. Never for pages requested one by one: most of them are not
    recorded, and their job is no worse for it."""
    if job.takes_single_pages:
        return False
    was_empty = job.outcome is not None and job.outcome.outcome is Outcome.EMPTY
    if declares_items(spider) if spider is not None else was_empty:
        return True
    async for _ in project.records.records(RecordQuery(spider=spider.name if spider is not None else job.spider_name)):
        return True
    return False


async def leaves_outputs_alone(project: Project, job: str) -> bool:
    """Whether no page of the job could be used, so that the outputs of the last one stay as they are. What errbacks
    gave, and callbacks before they failed, are records of pages that could not."""
    if await project.records.count(RecordQuery(job=job)):
        return False
    return bool(await why_nothing_came(project, job, await project.state.jobs.counts(job)))


async def why_nothing_came(project: Project, job: str, counts: JobCounts) -> str:
    """One line on why no page of the job could be fetched; empty if one could (redirects do not count), or if none was
    due."""
    if counts.pages or counts.done + counts.unchanged > FEW:
        return ""
    elsewhere = refused = purged = ""
    listed = 0  # done pages that have a row; with a filter for deduplication, rows are deleted as the work proceeds
    undue = False
    async for url, state, reason in project.state.queue.urls(job):
        listed += state in (UrlState.DONE, UrlState.UNCHANGED)
        if state in (UrlState.DONE, UrlState.UNCHANGED) and not is_redirect(reason):
            return ""
        if state is UrlState.DONE:
            elsewhere = elsewhere or f"{url} {reason}, which is another site. Crawl that one instead."
        elif state is UrlState.DROPPED and reason == DropReason.ROBOTS:
            refused = refused or f"The robots.txt of the site forbids {url} to crawlers."
        elif state is UrlState.DROPPED:
            undue = undue or reason in NOTHING_DUE
            if reason.startswith(PURGED):
                purged = purged or f"{url} could not be used, and its dead letter was purged."
    if listed < counts.done + counts.unchanged:
        return ""
    for letter in await project.state.queue.dead(DeadFilter(job=job), limit=1):
        return letter.message.partition("\n")[0] or f"{letter.url}: {letter.reason}"
    if undue:  # a page that redirects may lead to one that is fresh
        return ""
    if refused or elsewhere or purged:
        return refused or elsewhere or purged
    if not counts.discovered:
        return "Its source gave not one address."
    return "Every address was left out by the rules of the crawl."
