"""Schedules for people to read: where each stands, when it is due, how long its jobs take. Values in, words out.

The verbs are in schedule.py and job.py. Nothing is opened or written here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from ..model.job import Job, JobCounts
from ..model.schedule import Schedule, Standing
from ..schedule.sources import describe as describe_source
from ..schedule.sources import source_of
from ..schedule.spelling import parse_trigger
from ..schedule.triggers import Fire, Over, Trigger, Wait, decide, next_due
from ..schedule.windows import is_open, opens_at, parse_windows
from ..schedule.zones import read_zone
from ..store.export import iso_time
from .layout import distance, jsonable, moment, setting_text, span

NEW = "new"  # the origin's word for one that no scheduler has met yet


class Tick(msgspec.Struct, frozen=True, order=True):
    """A moment at which a schedule is due. One that is past is made up for as soon as a scheduler leads."""

    at: float
    schedule: str


# -- when --------------------------------------------------------------------------------------------------------


def trigger_of(schedule: Schedule) -> Trigger:
    return parse_trigger(schedule.trigger, schedule.zone)


def ticks_of(standing: Standing, now: float) -> Iterator[Tick]:
    """Its coming ticks, without end where it has none. The first may be past: it is due and was not decided about."""
    trigger, first = trigger_of(standing.schedule), standing.created_at
    at: float | None
    match decide(trigger, first=first, last_due=standing.last_due, now=now):
        case Fire(due, _):
            at = due
        case Wait(until, _):
            at = until
        case Over():
            at = None
    while at is not None:
        yield Tick(at, standing.schedule.name)
        at = next_due(trigger, max(at, now), first=first)


def coming(standings: Iterable[Standing], now: float, count: int) -> list[Tick]:
    """The next ticks of all of them, in order."""
    return list(islice(heapq.merge(*(ticks_of(one, now) for one in standings)), count))


def next_tick(standing: Standing, now: float) -> float | None:
    return next((tick.at for tick in ticks_of(standing, now)), None)


def until(at: float, now: float) -> str:
    """How far off a tick is; one that is past runs as soon as a scheduler leads."""
    return "due" if at <= now else distance(at, now)


def in_zone(at: float, zone: str) -> str:
    """What the clock on the wall shows there: `2027-01-31 12:00:05 CET`."""
    return datetime.fromtimestamp(at, read_zone(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")


# -- where it stands ---------------------------------------------------------------------------------------------


def source_words(schedule: Schedule) -> str:
    return describe_source(source_of(schedule.source))


def state_of(standing: Standing, now: float) -> str:
    """One word: paused, trouble, waiting (a run waits for the one before), over (never due again), new, active."""
    if standing.paused:
        return "paused"
    if standing.trouble:
        return "trouble"
    if standing.waiting_due is not None:
        return "waiting"
    if next_tick(standing, now) is None:
        return "over"
    return NEW if standing.last_due is None else "active"


def window_words(windows: str, now: float) -> str:
    """The windows, and whether one is open."""
    if not windows:
        return ""
    read = parse_windows(windows)
    if is_open(read, now):
        return f"{windows} (open now)"
    opening = opens_at(read, now)
    return f"{windows} (closed, {f'opens {moment(opening, now)}' if opening is not None else 'opens no more'})"


def definition(schedule: Schedule) -> list[tuple[str, object]]:
    """What the user wrote, beyond spider, trigger, source and windows."""
    named = (
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


def standing_json(standing: Standing, now: float) -> dict[str, Any]:
    schedule = standing.schedule
    due = next_tick(standing, now)
    fields = jsonable(standing, times=("created_at", "last_due", "waiting_due", "retry_at"))
    del fields["schedule"], fields["version"]
    written: dict[str, Any] = msgspec.structs.asdict(schedule)
    written |= {
        name: setting_text(value) if (value := getattr(schedule, name)) is not None else None
        for name in ("min_age", "min_interval", "max_interval")
    }
    return {
        **written,
        "source": msgspec.json.decode(schedule.source) if schedule.source else None,
        "overlap": schedule.overlap.value,
        **fields,
        "state": state_of(standing, now),
        "next": None if standing.paused or due is None else iso_time(due),
    }


# -- jobs --------------------------------------------------------------------------------------------------------


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its counts, as it was at `now`."""

    job: Job
    counts: JobCounts
    now: float

    @property
    def state(self) -> str:
        return self.job.word

    @property
    def total(self) -> int:
        """Every address that it knows, each once."""
        return self.counts.discovered - self.counts.duplicates

    @property
    def seconds(self) -> float:
        """From its beginning to its end, or to now; pauses and closed windows count."""
        end = self.job.finished_at if self.job.finished_at is not None else self.now
        return max(0.0, end - self.job.created_at)

    @property
    def rate(self) -> float:
        """Pages settled per second, on average over all of its time."""
        return self.counts.settled / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining(self) -> int:
        """Pages that are open and that its limit still lets it fetch."""
        limit = self.job.limit
        return self.counts.open if limit is None else max(0, min(self.counts.open, limit - self.counts.settled))

    @property
    def eta(self) -> float | None:
        """Seconds to its end, if the rest goes as fast as all did so far. None when that says nothing."""
        if self.state != "unfinished" or not self.rate:
            return None
        return self.remaining / self.rate

    @property
    def rate_words(self) -> str:
        return f"{self.rate:.1f}/s" if self.rate >= 1 or not self.rate else f"{self.rate * 60:.1f}/m"

    @property
    def took(self) -> str:
        return span(self.seconds)

    def as_json(self) -> dict[str, Any]:
        job, counts = self.job, self.counts
        return {
            "id": job.id,
            "name": job.name,
            "spider": job.spider_name,
            "schedule": job.schedule or None,
            "due": iso_time(job.due) if job.due is not None else None,
            "state": job.state.value,
            "paused": job.paused,
            "ending": job.ending or None,
            "started": iso_time(job.created_at),
            "finished": iso_time(job.finished_at) if job.finished_at is not None else None,
            "seconds": round(self.seconds, 3),
            "limit": job.limit,
            "total": self.total,
            "done": counts.done,
            "unchanged": counts.unchanged,
            "dropped": counts.dropped,
            "dead": counts.dead,
            "failed": counts.retries,
            "open": counts.open,
            "pages_per_second": round(self.rate, 4),
            "eta_seconds": round(self.eta, 3) if self.eta is not None else None,
        }
