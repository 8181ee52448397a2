"""Deletes old jobs, attempts and raw pages of a project. Records and their history are never deleted.

What it does: `forget_old_runs` keeps the runs of a schedule from piling up, `prune` deletes by age, and raw copies of a
page by their number, too. Jobs with dead letters are kept longer, because they may be replayed. A running job, the
newest job of each name and the last run of each schedule are always kept.
How it fails: BackendUnavailable. How it recovers: call again; what was deleted by then stays deleted.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Collection
from datetime import timedelta
from hashlib import blake2b

import msgspec

from ...errors import GossamerError
from ...frontier.contract import JobBook, JobHistory
from ...frontier.queue_values import DeadFilter
from ...model.disk import UPKEEP, Upkeep
from ...model.job import Job, JobState
from ...model.shelf import ShelfKind
from ...schedule.leadership import Lead
from ...settings import Settings
from ...store.contract import SpareCopy
from ...units import many, size
from ..open import Project
from ..records.erasure import change_archive
from .disk import measure

log = logging.getLogger("gossamer.upkeep")
LOOK = 60.0  # seconds between two looks of the leading scheduler
LETTERS_KEPT = 10  # runs with dead letters are kept this many times as long, counted in runs
RUNS_LOOKED_AT = 20  # old runs examined when a run ends; each run is examined that many times
FORGOTTEN_AT_ONCE = 100
COPIES_AT_ONCE = 50_000  # are overwritten together: an object of a bucket is rewritten once for all of them
COPIES_STAY = timedelta(hours=1)  # what was fetched since may not be settled yet


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs were deleted, and how many stay only because of their dead letters."""

    jobs: int = 0
    with_letters: int = 0


class PruneAges(msgspec.Struct, frozen=True, kw_only=True):
    """The age at which each kind is deleted. None: it is kept forever."""

    attempts: timedelta | None = None  # attempts, and visits replaced by a later one
    pages: timedelta | None = None  # raw pages in the archive
    copies: int | None = None  # how many raw copies of each page are kept, the newest
    jobs: timedelta | None = None  # ended jobs without dead letters
    dead: timedelta | None = None  # ended jobs with dead letters
    audit: timedelta | None = None  # lines of the audit log


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted. None: not requested."""

    attempts: int | None = None
    page_bytes: int | None = None
    copies: int | None = None
    copy_bytes: int | None = None
    jobs: Forgotten | None = None
    audit: int | None = None


# -- by age --------------------------------------------------------------------------------------------------------


async def count_prunable_jobs(project: Project, ages: PruneAges) -> int:
    """How many jobs `prune` would delete."""
    before, dead_before, keep = await _bounds(project, ages)
    return len((await ended_jobs(project.state.jobs, before=before, dead_before=dead_before, keep=keep))[0])


async def prune(project: Project, ages: PruneAges) -> Pruned:
    """Delete everything older than these ages. Returns when it is done."""
    pruned = Pruned()
    if ages.attempts is not None:
        pruned = msgspec.structs.replace(pruned, attempts=await project.records.prune(ages.attempts))
    if ages.pages is not None:
        pruned = msgspec.structs.replace(pruned, page_bytes=await project.archive.prune(ages.pages))
    if ages.copies is not None:
        copies, freed = await drop_copies(project, ages.copies)
        pruned = msgspec.structs.replace(pruned, copies=copies, copy_bytes=freed)
    if ages.jobs is not None or ages.dead is not None:
        before, dead_before, keep = await _bounds(project, ages)
        state = project.state
        forgotten = await forget_ended(state.history, state.jobs, before=before, dead_before=dead_before, keep=keep)
        pruned = msgspec.structs.replace(pruned, jobs=forgotten)
    if ages.audit is not None:
        before = project.clock.now() - ages.audit.total_seconds()
        pruned = msgspec.structs.replace(pruned, audit=await project.state.audit.forget(before))
    return pruned


async def _bounds(project: Project, ages: PruneAges) -> tuple[float | None, float | None, set[str]]:
    """The times before which jobs without and with dead letters must have ended, and the jobs that stay in any case."""
    now = project.clock.now()
    return (
        None if ages.jobs is None else now - ages.jobs.total_seconds(),
        None if ages.dead is None else now - ages.dead.total_seconds(),
        {schedule.last_job for schedule in await project.state.schedules.schedules()},
    )


async def forget_ended(
    history: JobHistory, book: JobBook, *, before: float | None, dead_before: float | None, keep: Collection[str]
) -> Forgotten:
    """Delete the jobs of `ended_jobs`. Returns when all their pages are deleted."""
    going, with_letters = await ended_jobs(book, before=before, dead_before=dead_before, keep=keep)
    forgotten = 0
    for start in range(0, len(going), FORGOTTEN_AT_ONCE):
        forgotten += await history.forget_jobs(going[start : start + FORGOTTEN_AT_ONCE])
    await history.clear_all()
    return Forgotten(jobs=forgotten, with_letters=with_letters)


async def ended_jobs(
    book: JobBook, *, before: float | None, dead_before: float | None, keep: Collection[str]
) -> tuple[list[str], int]:
    """Jobs without dead letters that ended before `before`, and jobs with dead letters that ended before `dead_before`
    (None: none of that kind), except those to `keep`; and how many stay only because of their dead letters."""
    newest: set[str] = set()
    going: list[str] = []
    with_letters = 0
    for job in await book.jobs():
        is_newest = job.name not in newest and not job.owner  # a job of a key is never continued by its name
        newest.add(job.name)
        if is_newest or job.id in keep or job.state is JobState.RUNNING or job.finished_at is None:
            continue
        if (await book.counts(job.id)).dead:
            if _ended_before(job, dead_before):
                going.append(job.id)
            else:
                with_letters += _ended_before(job, before)
        elif _ended_before(job, before):
            going.append(job.id)
    return going, with_letters


def _ended_before(job: Job, at: float | None) -> bool:
    return at is not None and job.finished_at is not None and job.finished_at < at


async def forget_owned_jobs(project: Project) -> int:
    """Delete jobs of keys that ended longer ago than server.keep_jobs, with their dead letters; return how many. Their
    stored results stay."""
    before = project.clock.now() - project.settings.server.keep_jobs.total_seconds()
    old = [job.id for job in await project.state.jobs.jobs() if job.owner and _ended_before(job, before)]
    forgotten = 0
    for start in range(0, len(old), FORGOTTEN_AT_ONCE):
        forgotten += await project.state.history.forget_jobs(old[start : start + FORGOTTEN_AT_ONCE])
    return forgotten


# -- by number -----------------------------------------------------------------------------------------------------


async def drop_copies(project: Project, keep: int) -> tuple[int, int]:
    """Delete raw copies beyond the newest `keep` of their page that nobody needs; return how many, and the bytes freed.
    Nothing is deleted while archived pages are parsed again or erased.

    Needed are the copy of a page's newest facts, what a reparse would read, what a dead letter was parsed from, and
    what a running job or a job of a key has fetched.
    """
    jobs = await project.state.jobs.jobs()
    if any(job.parses_again and job.state is JobState.RUNNING for job in jobs):
        return 0, 0
    serving = {job.id for job in jobs if job.owner or job.state is JobState.RUNNING}
    letters = array("Q")  # eight bytes each: there may be millions
    async for letter in project.state.queue.letters(DeadFilter()):
        letters.append(_mark(letter.fingerprint, letter.job))
    letters = array("Q", sorted(letters))

    def is_needed(one: SpareCopy) -> bool:
        if not one.is_last_of_job:
            return False
        mark = _mark(one.fingerprint, one.job)
        place = bisect_left(letters, mark)
        return one.job in serving or (place < len(letters) and letters[place] == mark)

    copies = freed = 0

    async def drop(going: list[SpareCopy]) -> None:
        nonlocal copies, freed
        # The copies first: after a crash the visits still say which were meant.
        freed += await project.archive.drop([one.ref for one in going])
        await project.records.forget_copies(going)
        copies += len(going)

    async def work() -> None:
        going: list[SpareCopy] = []
        async for found in project.records.spare_copies(keep, project.clock.now() - COPIES_STAY.total_seconds()):
            going += [one for one in found if not is_needed(one)]
            if len(going) >= COPIES_AT_ONCE:
                await drop(going)
                going = []
        if going:
            await drop(going)

    await change_archive(project, work)
    return copies, freed


def _mark(fingerprint: bytes, job: str) -> int:
    return int.from_bytes(blake2b(fingerprint + job.encode(), digest_size=8).digest(), "big")


async def forget_old_runs(history: JobHistory, book: JobBook, name: str, keep: int | None) -> int:
    """Delete the runs of a schedule beyond its newest `keep` (None: keep all); return how many.

    Runs with dead letters stay until they are beyond LETTERS_KEPT times as many. Cheap: it reads a few rows, and the
    pages of deleted runs are removed later, in the background.
    """
    if keep is None:
        return 0
    old = await history.newest_jobs(name, RUNS_LOOKED_AT, skip=keep)
    if not old:
        return 0
    last_run = await _last_run(history, name)
    very_old = await history.newest_jobs(name, RUNS_LOOKED_AT, skip=keep * LETTERS_KEPT)
    without_letters = [job for job in old if _is_ended_run(job) and not (await book.counts(job.id)).dead]
    going = dict.fromkeys(job.id for job in (*without_letters, *very_old) if _is_ended_run(job) and job.id != last_run)
    return await history.forget_jobs(list(going)) if going else 0


async def _last_run(history: JobHistory, name: str) -> str:
    """The last run according to the schedule, however many jobs were started by hand since; "": it has none."""
    passed = 0
    while jobs := await history.newest_jobs(name, RUNS_LOOKED_AT if passed else 1, skip=passed):
        for job in jobs:
            if job.schedule:
                return job.id
        passed += len(jobs)
    return ""


def _is_ended_run(job: Job) -> bool:
    """A job started by hand under the name of a schedule is not one of its runs."""
    return bool(job.schedule) and job.state is not JobState.RUNNING


# -- by the leading scheduler ------------------------------------------------------------------------------------------


class RetentionWatch:
    """Carries out the retention of the settings while `run` runs and its scheduler leads: every `retention.every` it
    deletes what is older than they allow, as `gossamer prune` does; then it writes SQLite files anew, at most every
    `retention.shrink` and only if something was deleted. A store that is away is tried again a minute later."""

    def __init__(self, project: Project, lead: Lead) -> None:
        self._project = project
        self._lead = lead

    async def run(self) -> None:
        while True:
            await self._project.clock.sleep(LOOK)
            if self._lead.held:
                try:
                    await keep_retention(self._project)
                except (GossamerError, OSError) as error:
                    log.warning("The retention of the settings waits: %s", error)


def ages_of(settings: Settings) -> PruneAges:
    names = PruneAges.__struct_fields__
    return PruneAges(**{name: getattr(settings.retention, name) for name in names})


async def keep_retention(project: Project) -> Pruned | None:
    """Carry it out if it is time. None if it is not. Raises BackendUnavailable."""
    terms, now = project.settings.retention, project.clock.now()
    kind = ShelfKind(project.state.shelf, UPKEEP, Upkeep)
    known = await kind.get("last") or Upkeep()
    if 0 <= now - known.kept_at < terms.every.total_seconds():
        return None
    pruned = await prune(project, ages_of(project.settings))
    words, shrunk_at = in_words(pruned), known.shrunk_at
    if terms.shrink is not None and words and not 0 <= now - shrunk_at < terms.shrink.total_seconds():
        left = [await project.records.compact(rewrite=False), await project.state.erasure.compact()]
        shrunk_at = now
        for trouble in filter(None, left):
            log.warning("%s", trouble)
    await measure(project)
    new = msgspec.structs.replace(known, kept_at=now, shrunk_at=shrunk_at, words=words)
    await project.state.shelf.commit([kind.put("last", new, at=now)])
    if words:
        log.info("Deleted by the retention of the settings: %s.", words)
    return pruned


def in_words(pruned: Pruned) -> str:
    """What was deleted; "" if nothing was."""
    found = [
        many(pruned.attempts, "attempt or visit", "attempts and visits") if pruned.attempts else "",
        f"{size(pruned.page_bytes)} of raw pages" if pruned.page_bytes else "",
        f"{many(pruned.copies, 'raw copy', 'raw copies')} ({size(pruned.copy_bytes or 0)})" if pruned.copies else "",
        many(pruned.jobs.jobs, "job") if pruned.jobs is not None and pruned.jobs.jobs else "",
        many(pruned.audit, "line of the audit log", "lines of the audit log") if pruned.audit else "",
    ]
    return ", ".join(filter(None, found))
