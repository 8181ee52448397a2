"""What to do about a schedule now. Pure: its progress, the time and whether a run is going come in; a step comes out.
Which moments are due is decided in schedule/triggers.py.

    look(progress, trigger, now)               rest, take a step, or a tick is due
    judge(progress, due, now, running=...)     what to do about the tick that is due
    on_overlap(policy, running)                what a tick does while the previous run is going
    run_now(progress)                          a run outside the ticks
    failed(progress, now, why)                 a run could not begin; it is retried, with growing pauses
    budget_of(per_day, ...)                    the fetches that one run may spend

A tick is decided once: `last_due` moves on in the same step that begins its run, lets it wait or skips it. A tick whose
run could not begin is not decided: it is retried, and by then a later one may have taken its place.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import assert_never

import msgspec

from ..clock import Backoff
from ..model.schedule import Overlap, ScheduleProgress
from .triggers import Decision, Fire, Over, Trigger, Wait, decide

BACKOFF = Backoff(first=timedelta(seconds=5), longest=timedelta(minutes=5))  # for a run that could not begin
JOB_LOOK = timedelta(seconds=1)  # how often a waiting run checks whether the previous one has ended
LONGEST_TROUBLE = 500  # characters

MISSED = "missed"  # the reason of a skipped tick: a later one was already due when it could have run

_DAY_MS = 86_400_000


class TickOutcome(StrEnum):
    """What a step without a job means for its tick."""

    SKIPPED = "skipped"
    QUEUED = "queued"
    FAILED = "failed"
    NOTED = "noted"  # no tick: a clock was wrong, and the stored progress is corrected


class Rest(msgspec.Struct, frozen=True):
    """Nothing to do before `until`; None: never, unless the schedule changes."""

    until: float | None


class Due(msgspec.Struct, frozen=True):
    """A tick is due, or (None) one waits for the run before it. `missed` ticks before it were missed."""

    tick: float | None
    missed: int = 0


class Step(msgspec.Struct, frozen=True):
    """The schedule's progress becomes `after`, and no run begins. `why` is a word or a sentence."""

    after: ScheduleProgress
    outcome: TickOutcome
    due: float | None = None
    why: str = ""


class Begin(msgspec.Struct, frozen=True):
    """The run of the tick `due` is to begin; then the schedule's progress is `after`. It ends the job `replaces`.
    `missed` ticks before it were missed."""

    after: ScheduleProgress
    due: float
    replaces: str = ""
    missed: int = 0


def look(progress: ScheduleProgress, trigger: Trigger, now: float) -> Rest | Step | Due:
    """What to do about a schedule. Whether one of its runs is going matters only if something is due."""
    if progress.withdrawn_at is not None:
        return Rest(None)
    if not progress.paused and _pauses(progress, now):
        return Rest(progress.retry_at)
    match decided(progress, trigger, now):
        case Fire(due, missed):
            return skipped(progress, progress.waiting_due or due, "paused") if progress.paused else Due(due, missed)
        case Wait(_, since) if since is not None:
            return Step(msgspec.structs.replace(progress, since=since), TickOutcome.NOTED)
        case Wait() | Over() if progress.waiting_due is not None:
            return skipped(progress, progress.waiting_due, "paused") if progress.paused else Due(None)
        case Wait(until):
            return Rest(until)
        case Over():
            return Rest(None)
        case _ as never:
            assert_never(never)


def decided(progress: ScheduleProgress, trigger: Trigger, now: float) -> Decision:
    """What the trigger says, given the progress."""
    return decide(
        trigger,
        first=progress.created_at,
        last_due=progress.last_due,
        since=progress.since,
        newest=progress.newest_due,
        now=now,
    )


def _pauses(progress: ScheduleProgress, now: float) -> bool:
    """Is it too early to retry? A time beyond the longest pause was set by a wrong clock."""
    return progress.retry_at is not None and now < progress.retry_at <= now + BACKOFF.longest.total_seconds()


def judge(progress: ScheduleProgress, due: Due, now: float, *, running: str) -> Rest | Step | Begin:
    """What to do about a due tick, while the job `running` of this schedule is going; "": none is."""
    waiting = progress.waiting_due
    if waiting is not None and not running:
        return Begin(_begun(progress), waiting)  # a newer tick is handled after it
    if due.tick is None:
        return Rest(now + JOB_LOOK.total_seconds())
    if due.missed:
        progress = msgspec.structs.replace(progress, skipped=progress.skipped + due.missed, skip_reason=MISSED)
    match on_overlap(progress.schedule.overlap, bool(running), waiting=waiting is not None):
        case None | Overlap.REPLACE:
            passed_over = 0 if waiting is None else 1  # `overlap` was changed while a tick waited
            after = _begun(progress, last_due=due.tick, skipped=progress.skipped + passed_over)
            return Begin(after, due.tick, replaces=running, missed=due.missed)
        case Overlap.QUEUE:
            after = _decided(progress, last_due=due.tick, waiting_due=due.tick)
            return Step(after, TickOutcome.QUEUED, due.tick, "running")
        case Overlap.SKIP:
            why = "running" if waiting is None else "waiting"
            after = _decided(progress, last_due=due.tick, skipped=progress.skipped + 1, skip_reason=why)
            return Step(after, TickOutcome.SKIPPED, due.tick, why)


def on_overlap(policy: Overlap, running: bool, *, waiting: bool = False) -> Overlap | None:
    """What a tick does if the previous run is still going, or waits; None if it may run.

    At most one run waits: a further one is skipped.
    """
    if not running and not waiting:
        return None
    return Overlap.SKIP if policy is Overlap.QUEUE and waiting else policy


def run_now(progress: ScheduleProgress) -> ScheduleProgress:
    """The progress after a run outside the ticks has begun. Due ticks stay due."""
    return msgspec.structs.replace(progress, runs=progress.runs + 1)


def skipped(progress: ScheduleProgress, due: float, why: str) -> Step:
    """Skip the tick `due`; none waits any more."""
    last_due = progress.last_due if due == progress.waiting_due else due
    after = _decided(progress, last_due=last_due, skipped=progress.skipped + 1, skip_reason=why, waiting_due=None)
    return Step(after, TickOutcome.SKIPPED, due, why)


def failed(progress: ScheduleProgress, due: float, now: float, why: str) -> Step:
    """The run of the tick `due` could not begin: set when to retry."""
    failures = progress.failures + 1
    words = why if len(why) <= LONGEST_TROUBLE else f"{why[: LONGEST_TROUBLE - 3]}..."
    retry_at = round(now + BACKOFF.pause(failures).total_seconds(), 3)
    after = msgspec.structs.replace(progress, failures=failures, retry_at=retry_at, trouble=words)
    return Step(after, TickOutcome.FAILED, due, words)


def _begun(progress: ScheduleProgress, **changes: float) -> ScheduleProgress:
    return _decided(progress, runs=progress.runs + 1, waiting_due=None, **changes)


def _decided(progress: ScheduleProgress, **changes: float | str | None) -> ScheduleProgress:
    due = changes.get("last_due", progress.last_due)
    if isinstance(due, float | int) and due != progress.last_due:
        changes["since"] = None  # ticks count from the one just decided
        newest = max(progress.newest_due or 0.0, progress.last_due or 0.0)
        changes["newest_due"] = newest if newest > due else None
    return msgspec.structs.replace(progress, **{"failures": 0, "retry_at": None, "trouble": "", **changes})


def budget_of(per_day: int, *, due: float, now: float, since: float | None, following: float | None) -> int:
    """How many fetches the run of the tick `due` may spend, out of `per_day`; 0 if it is too early for one.

    Its share is that of the time since the previous run, which was for the moment `since`. If that is later than `due`
    (a run was started by hand), nothing is left. For a first run, or if `since` was set by a clock that was ahead, it
    is the time to the following tick, or a day if there is none. The time counts as a day at most: unspent fetches are
    not saved up. The shares of all runs of a day add up to the day's budget, however many there are.
    """
    end = round(due * 1000)
    if since is not None and due <= since <= now:
        return 0
    if since is None or since > now:
        begin = end - _DAY_MS if following is None else end - round((following - due) * 1000)
    else:
        begin = round(since * 1000)
    begin = max(begin, end - _DAY_MS)
    return per_day * end // _DAY_MS - per_day * begin // _DAY_MS
