"""Which jobs are forgotten. Records, their history, raw pages and the log of attempts stay.

What it does: `forget_old_runs` keeps the runs of a schedule from piling up, `forget_ended` does what `gossamer prune`
was told. A job with dead letters is kept longer: somebody may want to replay them. One that runs, the newest of a name
and the last run of a schedule are kept in any case.
How it fails: BackendUnavailable. How it recovers: call again. What was forgotten by then stays so.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..frontier.contract import JobBook, JobHistory
from ..model.job import Job, JobState

LETTERS_KEPT = 10  # times as many runs as others are kept that have dead letters
AT_ONCE = 20  # runs that are looked at after the end of another; each passes there as often
FORGOTTEN_AT_ONCE = 100


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs were forgotten, and how many stay only because of their dead letters."""

    jobs: int = 0
    with_letters: int = 0


async def forget_old_runs(history: JobHistory, book: JobBook, name: str, keep: int | None) -> int:
    """Forget runs of a schedule that are not among its newest `keep` any more (None: keep all); return how many.

    Those with dead letters stay until they are not among LETTERS_KEPT times as many. Cheap: it reads a few rows. The
    pages of what is forgotten are deleted later, in the background.
    """
    if keep is None:
        return 0
    old = await history.newest_jobs(name, AT_ONCE, skip=keep)
    if not old:
        return 0
    last_run = await _last_run(history, name)
    very_old = await history.newest_jobs(name, AT_ONCE, skip=keep * LETTERS_KEPT)
    quiet = [job for job in old if _may_go(job) and not (await book.counts(job.id)).dead]
    going = dict.fromkeys(job.id for job in (*quiet, *very_old) if _may_go(job) and job.id != last_run)
    return await history.forget_jobs(list(going)) if going else 0


async def forget_ended(
    history: JobHistory, book: JobBook, *, before: float | None, dead_before: float | None, keep: Collection[str]
) -> Forgotten:
    """Forget the jobs of `ended_jobs`. Returns when all their pages are deleted."""
    going, with_letters = await ended_jobs(book, before=before, dead_before=dead_before, keep=keep)
    forgotten = 0
    for start in range(0, len(going), FORGOTTEN_AT_ONCE):
        forgotten += await history.forget_jobs(going[start : start + FORGOTTEN_AT_ONCE])
    await history.clear_all()
    return Forgotten(jobs=forgotten, with_letters=with_letters)


async def ended_jobs(
    book: JobBook, *, before: float | None, dead_before: float | None, keep: Collection[str]
) -> tuple[list[str], int]:
    """Jobs without dead letters that ended before `before`, and those with some that ended before `dead_before` (None:
    none of them), but for those to `keep`; and how many stay only because of their dead letters."""
    newest: set[str] = set()
    going: list[str] = []
    with_letters = 0
    for job in await book.jobs():
        is_newest = job.name not in newest
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


async def _last_run(history: JobHistory, name: str) -> str:
    """The run that its schedule knows as the last one, also when many jobs were begun by hand since; "" for none."""
    passed = 0
    while jobs := await history.newest_jobs(name, AT_ONCE if passed else 1, skip=passed):
        for job in jobs:
            if job.schedule:
                return job.id
        passed += len(jobs)
    return ""


def _may_go(job: Job) -> bool:
    """A job that somebody began by hand under the name of a schedule is not one of its runs."""
    return bool(job.schedule) and job.state is not JobState.RUNNING


def _ended_before(job: Job, moment: float | None) -> bool:
    return moment is not None and job.finished_at is not None and job.finished_at < moment
