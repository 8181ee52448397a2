"""Schedules for people to read: where each stands, when it is due. Values in, words out.

The verbs are in schedule.py; the jobs that they begin are shown by jobs.py. Nothing is opened or written here.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from ..clock import iso_time
from ..model.schedule import Schedule, ScheduleProgress
from ..schedule.decisions import budget_of, decided
from ..schedule.sources import StartSource, discreet, source_of, without_secrets
from ..schedule.sources import describe as describe_source
from ..schedule.sources.kinds import MOST_URLS
from ..schedule.triggers import Every, Fire, Over, Trigger, Wait, is_past, next_due, parse_trigger
from ..schedule.zones import read_zone
from ..text import distance, many, setting_text
from .layout import jsonable

NEW = "new"  # nothing was decided about it yet
UNREAD = "unread"  # in gossamer.toml, and no scheduler has started since
MISSED = "missed"  # its only moment was past when a scheduler read it
TICKS_LOOKED_AT = 3_000  # for one that a small budget lets run

SKIPPED = {
    "running": "the run before is still going",
    "waiting": "a run waits already for the one before",
    "paused": "the schedule is paused",
    "budget": "it is too early for a single fetch of the budget",
    "missed": "a later one was due already when it could have run",
}


class Tick(msgspec.Struct, frozen=True, order=True):
    """A moment at which a schedule is due. One that is past is made up for as soon as a scheduler leads."""

    at: float
    schedule: str


# -- when --------------------------------------------------------------------------------------------------------


def trigger_of(schedule: Schedule) -> Trigger:
    return parse_trigger(schedule.trigger, schedule.zone)


def ticks_of(standing: ScheduleProgress, now: float) -> Iterator[Tick]:
    """Its coming ticks, without end where it has none. The first may be past: it is due and was not decided about."""
    if standing.withdrawn_at is not None:
        return
    trigger, first = trigger_of(standing.schedule), standing.created_at
    at: float | None
    match decided(standing, trigger, now):
        case Fire(due, _):
            at = due
        case Wait(until, _):
            at = until
        case Over():
            at = None
    while at is not None:
        yield Tick(at, standing.schedule.name)
        at = next_due(trigger, max(at, now), first=first)


def coming(standings: Iterable[ScheduleProgress], now: float, count: int) -> list[Tick]:
    """The next ticks of all of them, in order."""
    return list(islice(heapq.merge(*(ticks_of(one, now) for one in standings)), count))


def next_tick(standing: ScheduleProgress, now: float) -> float | None:
    return next((tick.at for tick in ticks_of(standing, now)), None)


def next_run(standing: ScheduleProgress, now: float, last: float | None) -> tuple[float | None, int]:
    """The next tick that its budget lets run, and how many before it are skipped as too early for a single fetch.

    `last` is the moment that its last run was for. None: never, or not among so many ticks as are looked at.
    """
    budget, trigger = standing.schedule.budget, trigger_of(standing.schedule)
    skipped = 0
    for tick in islice(ticks_of(standing, now), TICKS_LOOKED_AT):
        following = next_due(trigger, tick.at, first=standing.created_at)
        if budget is None or budget_of(budget, due=tick.at, now=max(now, tick.at), since=last, following=following):
            return tick.at, skipped
        skipped += 1
    return None, skipped


def is_missed(standing: ScheduleProgress, now: float) -> bool:
    """Whether its only moment went by without a run, and nobody will make up for it. A run by hand is one."""
    if standing.runs:
        return False
    trigger = trigger_of(standing.schedule)
    return is_past(trigger, last_due=standing.last_due, now=now) and next_tick(standing, now) is None


def is_counted(standing: ScheduleProgress) -> bool:
    """Do its ticks depend on when a scheduler reads it? Those of an interval do."""
    return isinstance(trigger_of(standing.schedule), Every)


def until(at: float, now: float) -> str:
    """How far off a tick is; one that is past runs as soon as a scheduler leads."""
    return "due" if at <= now else distance(at, now)


def in_zone(at: float, zone: str) -> str:
    """What the clock on the wall shows there: `2027-01-31 12:00:05 CET`."""
    return datetime.fromtimestamp(at, read_zone(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


def at_its_place(standing: ScheduleProgress, at: float, now: float) -> str:
    """On the clock of its zone, and how far off: `2027-01-31 12:00:05 CET (in 2 h)`."""
    return f"{in_zone(at, standing.schedule.zone)} ({distance(at, now)})"


# -- where it stands ---------------------------------------------------------------------------------------------


def source_words(schedule: Schedule) -> str:
    return describe_source(source_of(schedule.source))


def natural(name: str) -> list[tuple[int, str]]:
    """A key for sorting names as people do: c2 before c11."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), part) if at % 2 else (-1, part) for at, part in enumerate(parts)]


def state_of(standing: ScheduleProgress, now: float, *, unread: bool = False) -> str:
    """One word: unread (no scheduler has read it from the file), paused, trouble, waiting (a run waits for the one
    before), missed (its only moment was past when it was read), over (never due again), new, active, withdrawn (not in
    the file any more)."""
    if unread:
        return UNREAD
    if standing.withdrawn_at is not None:
        return "withdrawn"
    if standing.paused:
        return "paused"
    if standing.trouble:
        return "trouble"
    if standing.waiting_due is not None:
        return "waiting"
    if next_tick(standing, now) is None:
        return MISSED if is_missed(standing, now) else "over"
    return NEW if standing.last_due is None else "active"


def skipped_words(standing: ScheduleProgress) -> str:
    """How many ticks of it did not run, and why the last did not."""
    if not standing.skipped:
        return ""
    why = SKIPPED.get(standing.skip_reason, standing.skip_reason)
    return many(standing.skipped, "tick") + (f", the last because {why}" if why else "")


def missed_words(standing: ScheduleProgress, now: float) -> str:
    """That it will never run, and what to do about it; "" where that is not so."""
    if not is_missed(standing, now):
        return ""
    return f"its moment is past, and it did not run. To begin a run now: gossamer schedule run {standing.schedule.name}"


def definition(schedule: Schedule) -> list[tuple[str, object]]:
    """What the user wrote, beyond spider, trigger, source and windows."""
    source = source_of(schedule.source)
    named = (
        (
            "most URLs",
            None if isinstance(source, StartSource) or source.max_urls == MOST_URLS else f"{source.max_urls:,}",
        ),
        ("kind of page", schedule.kind),
        ("priority", schedule.priority or ""),
        ("minimum age", schedule.min_age),
        ("overlap", schedule.overlap.value),
        ("limit", schedule.limit),
        ("budget", f"{schedule.budget:,} fetches a day" if schedule.budget is not None else None),
        ("min interval", schedule.min_interval),
        ("max interval", schedule.max_interval),
    )
    return [(name, "" if value is None else setting_text(value)) for name, value in named]


def standing_json(standing: ScheduleProgress, now: float, *, unread: bool = False) -> dict[str, Any]:
    schedule = standing.schedule
    due = None if unread and is_counted(standing) else next_tick(standing, now)
    fields = jsonable(standing, times=("created_at", "last_due", "waiting_due", "retry_at"))
    del fields["schedule"], fields["version"]
    written: dict[str, Any] = msgspec.structs.asdict(schedule)
    written |= {
        name: setting_text(value) if (value := getattr(schedule, name)) is not None else None
        for name in ("min_age", "min_interval", "max_interval")
    }
    return {
        **written,
        "spider": discreet(schedule.spider),
        "source": msgspec.to_builtins(without_secrets(source_of(schedule.source))) if schedule.source else None,
        "overlap": schedule.overlap.value,
        **fields,
        "state": state_of(standing, now, unread=unread),
        "next": None if standing.paused or due is None else iso_time(due),
    }
