"""When a schedule is due. Pure: every answer is a function of the values handed in, no clock is read.

    next_due(trigger, after)                  the first due moment after another one
    decide(trigger, last_due, now)            fire, wait, or over
    is_past(trigger, last_due, now)           whether its only moment went by without a run
    parse_trigger(text), describe(trigger)    people write and read: `every 15m`, `0 3 * * *`, `at 2027-01-31T12:00`

Moments are seconds since the epoch in whole milliseconds, so that any store keeps them exactly.
Cron is read by cronsim: typed, without dependencies, combines days as Debian's cron does, finds rare dates quickly.

Clock changes: a cron that names hours keeps them. A tick inside a gap runs at the first moment after it, once for all
ticks of the gap; a tick inside a fold runs in its first pass only. A cron that runs in every hour follows real time: it
is not silent for an hour in a fold, and makes nothing up after a gap.

Fails: an invalid trigger, or one that would never be due, raises Misconfigured with what to write instead.
Recovers: missed ticks run once (the latest of them); a clock that was wrong is described at `decide`.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import assert_never

import msgspec
from cronsim import CronSim, CronSimError

from ..errors import Misconfigured
from ..model.zones import first_moment_of, moments_of, offset_at, read_zone, wall_at
from ..units import TooLong, parse_duration

FORGIVEN = 3600.0  # seconds; if a clock is put back by less, no tick is repeated and the difference is waited out
MOST_COUNTED = 1000  # missed ticks
LATE = 86400.0  # seconds; a single moment that was missed by less when its schedule was made still runs
SHORTEST_INTERVAL = timedelta(seconds=1)
LONGEST_INTERVAL = timedelta(days=3660)  # ten years and some
END_OF_TIME = datetime(9000, 1, 1, tzinfo=UTC).timestamp()  # calendars end in 9999; nothing is due near that

_DAY = 86400.0
_ALLOWED = {
    "minute": "minutes are 0 to 59",
    "hour": "hours are 0 to 23",
    "day-of-month": "days are 1 to 31, or L for the last",
    "month": "months are 1 to 12, or JAN to DEC",
    "day-of-week": "days of the week are 0 to 7 (both ends are Sunday), or SUN to SAT",
}
_LONGEST_TEXT = 500
_EXAMPLES = "Write `every 15m`, a cron expression like `0 3 * * *`, or `at 2027-01-31T12:00`."
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# Every possible date occurs within the fifty years that are searched from here.
_LEAP_YEAR = datetime(2000, 1, 1)
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


class Every(msgspec.Struct, frozen=True, tag="every"):
    """Due at `first`, and then every `seconds`, without drift."""

    seconds: float


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """Five fields, for the wall clock of a zone."""

    text: str
    zone: str = "UTC"


class Once(msgspec.Struct, frozen=True, tag="once"):
    """A single moment. The zone is only for display."""

    at: float
    zone: str = "UTC"


Trigger = Every | Cron | Once


class Fire(msgspec.Struct, frozen=True):
    """Start the run of the tick `due`, and remember `due` as the new `last_due`. `missed` ticks before it were missed,
    counted up to MOST_COUNTED."""

    due: float
    missed: int = 0


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before `until`. When `since` is set, remember it: see `decide`."""

    until: float
    since: float | None = None


class Over(msgspec.Struct, frozen=True):
    """This trigger will never be due again."""


Decision = Fire | Wait | Over


def next_due(trigger: Trigger, after: float, *, first: float) -> float | None:
    """The first due moment strictly after `after`, and not before `first`; None if there is none.

    `first` is when the schedule was made. Intervals are counted from it and are due at it. A single moment may be up to
    a day older, because writing it into a file may take longer than expected.
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
    """What to do now, if the last tick that was decided was `last_due` (None: none was).

    With `since`, only ticks after that moment count. It is cleared with the next tick that is decided.

    Ticks that were missed run once: the latest of them fires, the others are skipped. The same after a clock jumps
    forward. After a clock jumps back, ticks up to `last_due` do not fire again. That alone would silence the schedule
    for a year, if the clock was a year ahead when it last fired. Therefore, if this would skip a tick that is more than
    an hour away, the remembered moment is not trusted: the result is to wait for the first tick after now, and to
    remember now as `since`. So a schedule is silent for at most an hour and one tick beyond its usual pause. A `first`
    that is more than an hour ahead is not trusted either.

    The current clock may be the wrong one instead. Therefore `last_due` is kept beside `since`: as soon as it is no
    more than an hour ahead, that tick and all before it count as decided again. If ticks fire while the clock is
    behind, `last_due` goes back with it. Then `newest` is the newest tick ever decided, which counts once the clock has
    reached it.
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
        missed = _count(trigger, earliest, due, first, floor)
    return Fire(due, missed)


def is_past(trigger: Trigger, *, last_due: float | None, now: float) -> bool:
    """Did its only moment pass without being decided?"""
    return isinstance(trigger, Once) and trigger.at <= now and trigger.at != last_due


def _mark(trigger: Trigger, first: float, last_due: float | None, since: float | None, now: float) -> float | None:
    """Ticks up to this moment are decided, or do not count."""
    if isinstance(trigger, Once) and since is not None and since == first:
        since = None  # both were set when the trigger was changed; a single moment may be late for that
        last_due = last_due if last_due == trigger.at else None
    if since is None or last_due is None:
        return last_due if since is None else since
    return max(since, last_due) if last_due <= now + FORGIVEN else since


def _is_ahead(trigger: Trigger, first: float, floor: float, last_due: float | None, now: float) -> bool:
    """Was the remembered moment set by a clock that was ahead, so that it would silence the schedule for long?"""
    if last_due is None:
        return floor != first
    if last_due <= now + FORGIVEN:
        return False  # nearly always; saves a search
    skipped = _next(trigger, now + FORGIVEN, first, floor)
    return skipped is not None and skipped < last_due


def _latest(trigger: Trigger, due: float, now: float, first: float, floor: float) -> float:
    """The last due moment up to `now`; `due` is one of those. Bisects, so a long absence costs little."""
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
    """Ticks from `due`, which is one, to before `end`; at most MOST_COUNTED."""
    count, at = 0, due
    while at < end and count < MOST_COUNTED:
        count += 1
        found = _next(trigger, at, first, floor)
        at = end if found is None else found
    return count


def _next(trigger: Trigger, after: float, first: float, floor: float) -> float | None:
    """Like `next_due`, but intervals are counted from `first` in both directions, and nothing before `floor` is due."""
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
    # Begin where the clock will be after the next fold: what it shows then is shown a second time.
    offset = min(offset_at(after, zone), offset_at(after + _DAY, zone))
    start = datetime.fromtimestamp(math.ceil(after) - 1, UTC).replace(tzinfo=None) + offset
    cron = read_cron(text, start)
    runs_every_hour = len(cron.hours) == 24
    best: float | None = None
    for wall in cron:  # ends if no day fits for fifty years
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
    """The wall times after `start` that match the five fields. Raises Misconfigured with what is allowed."""
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


# -- as people write and read them ------------------------------------------------------------------------------------


def parse_trigger(text: str, zone: str = "UTC") -> Trigger:
    """Read a trigger; times without an offset are those of `zone`. Raises Misconfigured."""
    read_zone(zone)
    if len(text) > _LONGEST_TEXT:
        raise Misconfigured(f"A trigger of {len(text)} characters is too long. {_EXAMPLES}")
    word, _, rest = " ".join(text.split()).partition(" ")
    match word.lower():
        case "every":
            return _parse_interval(rest)
        case "at" | "once":
            return _parse_moment(rest.removeprefix("at "), zone)
        case "cron":
            return _parse_cron(rest, zone)
        case nickname if nickname.startswith("@"):
            return _parse_cron(_fields_of(nickname if not rest else text), zone)
        case first if rest and first[:1] in "0123456789*":
            return _parse_cron(f"{word} {rest}", zone)
    raise Misconfigured(f"{text!r} is not a trigger. {_hint(text)}")


def _hint(text: str) -> str:
    """What was probably meant, if only the word in front is missing."""
    for word, read in (("every", parse_duration), ("at", datetime.fromisoformat)):
        try:
            read(text.strip())
        except ValueError:
            continue
        return f"Write `{word} {text.strip()}`."
    return _EXAMPLES


def _parse_interval(text: str) -> Every:
    try:
        interval = parse_duration(text)
    except TooLong:
        interval = timedelta.max
    except ValueError as error:
        raise Misconfigured(f"`every {text}` is not an interval. Write it like every 30s, 15m, 1h30m or 7d.") from error
    if interval < SHORTEST_INTERVAL:
        raise Misconfigured(f"`every {text}` is too often; the shortest interval is 1s.")
    if interval > LONGEST_INTERVAL:
        raise Misconfigured(f"`every {text}` is too rare; the longest interval is {LONGEST_INTERVAL.days}d.")
    return Every(interval.total_seconds())


def _parse_moment(text: str, zone: str) -> Once:
    try:
        written = datetime.fromisoformat(text)
    except ValueError as error:
        raise Misconfigured(
            f"`at {text}` is not a moment. Write it like at 2027-01-31T12:00 or at 2027-01-31T12:00+01:00."
        ) from error
    if not 1971 <= written.year < 9000:
        raise Misconfigured(f"`at {text}` names the year {written.year}; write one from 1971 to 8999.")
    moment = written.timestamp() if written.tzinfo else first_moment_of(written, read_zone(zone))
    return Once(round(moment, 3), zone)


def _fields_of(nickname: str) -> str:
    if nickname not in _NICKNAMES:
        raise Misconfigured(f"{nickname!r} is not known; there are {', '.join(_NICKNAMES)}.")
    return _NICKNAMES[nickname]


def _parse_cron(text: str, zone: str) -> Cron:
    if next(read_cron(text, _LEAP_YEAR), None) is None:
        raise Misconfigured(f"{text!r} is never due: no day fits all of its fields.")
    return Cron(text, zone)


def describe(trigger: Trigger) -> str:
    """One line for people: `every 15 min`, `at 03:00 every day, Europe/Berlin (cron 0 3 * * *)`."""
    match trigger:
        case Every(seconds):
            return f"every {_spell(seconds)}"
        case Cron(text, zone):
            said = read_cron(text, _LEAP_YEAR).explain()
            said = said.replace(" day of month and on ", " day of month or on ")  # either is enough
            said = re.sub(r"\b(\d*)([123])th\b", _ordinal, f"{said[:1].lower()}{said[1:]}")
            return f"{said}, {zone} (cron {text})"
        case Once(at, zone):
            return f"once, at {wall_at(at, read_zone(zone)).isoformat(' ', 'auto').removesuffix(':00')} {zone}"


def _ordinal(found: re.Match[str]) -> str:
    """`21th` as people write it; `11th` stays."""
    ending = "th" if found[1].endswith("1") else {"1": "st", "2": "nd", "3": "rd"}[found[2]]
    return f"{found[1]}{found[2]}{ending}"


def _spell(seconds: float) -> str:
    parts = []
    whole, fraction = divmod(seconds, 1)
    for unit, size in _UNITS:
        count, whole = divmod(whole, size)
        if unit == "s" and (count or fraction):
            parts.append(f"{count + fraction:g} s")
        elif count:
            parts.append(f"{count:g} {unit}")
    return " ".join(parts)
