"""When a schedule is due. Pure: every answer is a function of the values handed in, no clock is read.

    next_due(trigger, after)             the first due moment after another one
    decide(trigger, last_due, now)       fire, wait, or over
    is_past(trigger, last_due, now)      whether its only moment went by without a run
    on_overlap(policy, running)          what to do when the run before is still going

Moments are seconds since the epoch, whole milliseconds, so that a store which keeps those keeps them exactly.
Cron is read by cronsim: typed, without dependencies, days combined as Debian's cron does, rare dates found quickly.

Clocks that change: a cron that names hours keeps them. A tick inside a gap runs at the first moment after it, once for
all ticks of the gap; a tick inside a fold runs in its first pass only. A cron that runs in every hour goes by real
time: it is not silent for an hour in a fold, and makes nothing up after a gap.

Fails: a cron or a zone that cannot be read raises Misconfigured. Recovers: missed ticks run once (the latest of them);
a clock that was wrong is described at `decide`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import assert_never

import msgspec
from cronsim import CronSim, CronSimError

from ..errors import Misconfigured
from ..model.schedule import Overlap
from .zones import first_moment_of, moments_of, offset_at, read_zone

FORGIVEN = 3600.0  # seconds; a clock put back by less repeats no tick and is simply waited out
MOST_COUNTED = 1000  # ticks that were missed
LATE = 86400.0  # seconds; a single moment that was missed by less when its schedule was made, is made up for
END_OF_TIME = datetime(9000, 1, 1, tzinfo=UTC).timestamp()  # calendars end in 9999; nothing is due near that

_DAY = 86400.0
_ALLOWED = {
    "minute": "minutes are 0 to 59",
    "hour": "hours are 0 to 23",
    "day-of-month": "days are 1 to 31, or L for the last",
    "month": "months are 1 to 12, or JAN to DEC",
    "day-of-week": "days of the week are 0 to 7 (both ends are Sunday), or SUN to SAT",
}


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Due at `first`, and then each time that so many seconds have passed. It does not drift."""

    seconds: float


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """Five fields, read on the wall clock of a zone."""

    text: str
    zone: str = "UTC"


class Once(msgspec.Struct, frozen=True, tag="once"):
    """A single moment. The zone is only for showing it."""

    at: float
    zone: str = "UTC"


Trigger = Every | Cron | Once


class Fire(msgspec.Struct, frozen=True):
    """Start the run of the tick `due`, and remember `due` as the new `last_due`. So many ticks before it were missed;
    more than MOST_COUNTED are not told apart."""

    due: float
    next_due: float | None
    missed: int = 0


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before `until`. When `since` is set, remember it: see `decide`."""

    until: float
    since: float | None = None


class Over(msgspec.Struct, frozen=True):
    """This trigger will never be due again."""


Decision = Fire | Wait | Over


def next_due(trigger: Trigger, after: float, *, first: float) -> float | None:
    """The first due moment strictly after `after`, and not before `first`; None when there is none any more.

    `first` is when the schedule was made. Intervals are counted from it and are due at it. A single moment may be up to
    a day older: who writes it into a file may be slower than it.
    """
    return _next(trigger, after, first, floor=first)


def decide(
    trigger: Trigger,
    *,
    first: float,
    last_due: float | None,
    now: float,
    since: float | None = None,
    newest: float | None = None,
) -> Decision:
    """What to do now, when the last tick that was decided about was `last_due` (None: none was).

    With `since`, only ticks after that moment count. It is forgotten with the next tick that is decided about.

    Ticks that were missed run once: the latest of them fires, the others are skipped. So does a clock that jumps
    forward. After a clock that jumps back, ticks up to `last_due` do not fire again. That alone would silence the
    schedule for a year, if the clock was a year ahead when it last fired. Therefore, when this would skip a tick that
    is more than an hour away, the remembered moment is not believed: the answer is to wait for the first tick after
    now, and to remember now as `since`. So a schedule is silent for at most an hour and one tick beyond its usual
    pause. A `first` that is more than an hour ahead is not believed either.

    It may as well be the clock of now that is wrong. Therefore `last_due` is kept beside `since`: as soon as it is not
    more than an hour ahead any more, that tick and all before it count as decided again. When ticks fire while the
    clock is behind, `last_due` goes back with it. Then `newest` is the newest tick that ever was decided about, which
    holds once the clock has come to it.
    """
    floor = first if first <= now + FORGIVEN else 0.0
    mark = _mark(trigger, first, last_due, since, now)
    if newest is not None and mark is not None and newest <= now:
        mark = max(mark, newest)
    if _is_ahead(trigger, first, floor, mark, now):
        anew = _next(trigger, now, first, floor)
        return Over() if anew is None else Wait(anew, since=math.floor(now * 1000) / 1000)
    due = _next(trigger, -math.inf if mark is None else mark, first, floor)
    if due is None:
        return Over()
    if due > now:
        return Wait(due)
    following = _next(trigger, due, first, floor)
    missed = 0
    if following is not None and following <= now:
        earliest, due = due, _latest(trigger, following, now, first, floor)
        following = _next(trigger, due, first, floor)
        missed = _count(trigger, earliest, due, first, floor)
    return Fire(due, following, missed)


def is_past(trigger: Trigger, *, last_due: float | None, now: float) -> bool:
    """Whether its only moment went by without a decision about it."""
    return isinstance(trigger, Once) and trigger.at <= now and trigger.at != last_due


def _mark(trigger: Trigger, first: float, last_due: float | None, since: float | None, now: float) -> float | None:
    """Ticks up to this moment are decided about, or do not count."""
    if isinstance(trigger, Once) and since is not None and since == first:
        since = None  # both were set when the trigger was changed; a single moment may be late for that
        last_due = last_due if last_due == trigger.at else None
    if since is None or last_due is None:
        return last_due if since is None else since
    return max(since, last_due) if last_due <= now + FORGIVEN else since


def _is_ahead(trigger: Trigger, first: float, floor: float, last_due: float | None, now: float) -> bool:
    """Whether what is remembered comes from a clock that was ahead, and would silence the schedule for long."""
    if last_due is None:
        return floor != first
    if last_due <= now + FORGIVEN:
        return False  # nearly always; spares a search
    skipped = _next(trigger, now + FORGIVEN, first, floor)
    return skipped is not None and skipped < last_due


def _latest(trigger: Trigger, due: float, now: float, first: float, floor: float) -> float:
    """The last due moment up to `now`; `due` is one of those. Halves the span, so a long absence costs little."""
    end = now  # nothing is due after `end` and up to `now`
    while end - due > 0.5:  # ticks are a second apart, or more
        middle = (due + end) / 2
        found = _next(trigger, middle, first, floor)
        if found is not None and found <= now:
            due = found
        else:
            end = middle
    return due


def _count(trigger: Trigger, due: float, end: float, first: float, floor: float) -> int:
    """Ticks from `due`, which is one, to before `end`; MOST_COUNTED at most."""
    count, at = 0, due
    while at < end and count < MOST_COUNTED:
        count += 1
        found = _next(trigger, at, first, floor)
        at = end if found is None else found
    return count


def _next(trigger: Trigger, after: float, first: float, floor: float) -> float | None:
    """As `next_due`, but intervals are counted from `first` to both sides, and nothing before `floor` is due."""
    if isinstance(trigger, Once):
        floor -= LATE
    after = max(after, math.nextafter(_whole_ms(floor), -math.inf))
    if after >= END_OF_TIME:
        return None
    match trigger:
        case Every(seconds):
            return _next_interval(seconds, after, first)
        case Cron(text, zone):
            return _next_cron(text, read_zone(zone), after)
        case Once(at):
            return at if at > after else None
        case _:
            assert_never(trigger)


def _next_interval(seconds: float, after: float, first: float) -> float:
    count = math.floor((after - first) / seconds)  # may be one too low, by rounding
    while (due := _whole_ms(first + count * seconds)) <= after:
        count += 1
    return due


def _next_cron(text: str, zone: tzinfo, after: float) -> float | None:
    # Begin where the clock will stand after the next fold: what it shows then is shown a second time.
    offset = min(offset_at(after, zone), offset_at(after + _DAY, zone))
    start = datetime.fromtimestamp(math.ceil(after) - 1, UTC).replace(tzinfo=None) + offset
    cron = read_cron(text, start)
    runs_every_hour = len(cron.hours) == 24
    best: float | None = None
    for wall in cron:  # ends when no day fits for fifty years
        moments = moments_of(wall, zone) if runs_every_hour else (first_moment_of(wall, zone),)
        if best is not None and first_moment_of(wall, zone) >= best:
            return best  # from here on, every tick is later
        coming = [moment for moment in moments if moment > after]
        if coming:
            best = coming[0] if best is None else min(best, coming[0])
            if len(moments) == 1:
                return best
    return best


def read_cron(text: str, start: datetime) -> CronSim:
    """The wall times after `start` that five fields name. Raises Misconfigured with what is allowed."""
    fields = text.split()
    if len(fields) != len(_ALLOWED):
        raise Misconfigured(
            f"{text!r} has {len(fields)} fields; cron needs five: minute, hour, day of month, month, day of week."
        )
    try:
        return CronSim(text, start)
    except CronSimError as error:
        raise Misconfigured(_fault(fields, str(error))) from error


def _fault(fields: list[str], complaint: str) -> str:
    text = " ".join(fields)
    name = complaint.removeprefix("Bad ")
    if name not in _ALLOWED:
        return f"{text!r} is not a cron expression: {complaint}."
    if name == "day-of-month" and _is_day(fields[2]):
        return f"{text!r} is never due: no month that it names has such a day."
    wrong = fields[list(_ALLOWED).index(name)]
    return f"{text!r} is not a cron expression: {wrong!r} is not allowed; {_ALLOWED[name]}. Ranges go upwards."


def _is_day(field: str) -> bool:
    try:
        CronSim(f"0 0 {field} * *", datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True


def _whole_ms(moment: float) -> float:
    return round(moment, 3)


class Start(msgspec.Struct, frozen=True):
    """Nothing is in the way."""


class Skip(msgspec.Struct, frozen=True):
    """This tick does not run."""


class Queue(msgspec.Struct, frozen=True):
    """Run it when the one before has ended."""


class Replace(msgspec.Struct, frozen=True):
    """Cancel the run that is going, then start this one."""


def on_overlap(policy: Overlap, running: bool, *, waiting: bool = False) -> Start | Skip | Queue | Replace:
    """What a tick does when a run before it is still going, or waiting. At most one waits: a further one is skipped."""
    if not running and not waiting:
        return Start()
    match policy:
        case Overlap.SKIP:
            return Skip()
        case Overlap.QUEUE:
            return Skip() if waiting else Queue()
        case Overlap.REPLACE:
            return Replace()
        case _:
            assert_never(policy)
