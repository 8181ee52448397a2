"""When schedules are due, and the state of each: pure functions of a schedule's progress. Opens nothing."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

import msgspec

from ...model.schedule import Schedule, ScheduleProgress
from ...model.zones import read_zone
from ...schedule.decisions import budget_of, decided
from ...schedule.triggers import Every, Fire, Over, Trigger, Wait, is_past, next_due, parse_trigger
from ...units import seconds_of

UNREAD, MISSED = "unread", "missed"
TICKS_LOOKED_AT = 3_000  # at most, to find the first one that a small budget allows

SKIPPED = {
    "running": "the run before is still going",
    "waiting": "a run waits already for the one before",
    "paused": "the schedule is paused",
    "budget": "it is too early for a single fetch of the budget",
    "missed": "a later one was already due when it could have run",
}


class Tick(msgspec.Struct, frozen=True, order=True):
    """A moment at which a schedule is due. A past tick is made up for as soon as a scheduler leads."""

    at: float
    schedule: str


def trigger_of(schedule: Schedule) -> Trigger:
    return parse_trigger(schedule.trigger, schedule.zone)


def ticks_of(progress: ScheduleProgress, now: float) -> Iterator[Tick]:
    """The coming ticks of a schedule, possibly without end. The first may be past: due, but without a decision."""
    if progress.withdrawn_at is not None:
        return
    trigger, first = trigger_of(progress.schedule), progress.created_at
    at: float | None
    match decided(progress, trigger, now):
        case Fire(due):
            at = due
        case Wait(until, _):
            at = until
        case Over():
            at = None
    while at is not None:
        yield Tick(at, progress.schedule.name)
        at = next_due(trigger, max(at, now), first=first)


def coming(schedules: Iterable[ScheduleProgress], now: float, count: int) -> list[Tick]:
    """The next ticks of all of them, in order."""
    return list(islice(heapq.merge(*(ticks_of(one, now) for one in schedules)), count))


def next_tick(progress: ScheduleProgress, now: float) -> float | None:
    return next((tick.at for tick in ticks_of(progress, now)), None)


def next_run(progress: ScheduleProgress, now: float, last: float | None) -> tuple[float | None, int]:
    """The next tick that the budget allows, and how many before it are skipped as too early for a single fetch.

    `last` is the tick of the last run. None: there is no such tick, or not among the first TICKS_LOOKED_AT.
    """
    budget, trigger = progress.schedule.budget, trigger_of(progress.schedule)
    skipped = 0
    for tick in islice(ticks_of(progress, now), TICKS_LOOKED_AT):
        following = next_due(trigger, tick.at, first=progress.created_at)
        if budget is None or budget_of(budget, due=tick.at, now=max(now, tick.at), since=last, following=following):
            return tick.at, skipped
        skipped += 1
    return None, skipped


def is_missed(progress: ScheduleProgress, now: float) -> bool:
    """Whether its only moment passed without a run, and no scheduler will make up for it. A run by hand counts as a
    run."""
    if progress.runs:
        return False
    trigger = trigger_of(progress.schedule)
    return is_past(trigger, last_due=progress.last_due, now=now) and next_tick(progress, now) is None


def is_counted(progress: ScheduleProgress) -> bool:
    """Whether its ticks depend on when a scheduler reads it, as those of an interval do."""
    return isinstance(trigger_of(progress.schedule), Every)


def state_of(progress: ScheduleProgress, now: float, *, unread: bool = False) -> str:
    """One word: unread (no scheduler has read it from the file), withdrawn (no longer in the file), paused, trouble,
    waiting (a run waits for the previous one), missed (its only moment had passed when it was read), over (never due
    again), new (no tick has been decided yet), active."""
    if unread:
        return UNREAD
    if progress.withdrawn_at is not None:
        return "withdrawn"
    if progress.paused:
        return "paused"
    if progress.trouble:
        return "trouble"
    if progress.waiting_due is not None:
        return "waiting"
    if next_tick(progress, now) is None:
        return MISSED if is_missed(progress, now) else "over"
    return "new" if progress.last_due is None else "active"


def in_zone(at: float | str, zone: str) -> str:
    """Local time in that zone: `2027-01-31 12:00:05 CET`."""
    return datetime.fromtimestamp(seconds_of(at), read_zone(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts names as people do: c2 before c11."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts)]
