"""Hours in which a site may be crawled, on the clock of a zone. Pure: no clock is read.

    22:00-06:00 Europe/Berlin                 every night
    Mon-Fri 20:00-06:00 America/New_York      a window over midnight belongs to the day on which it begins
    Sat,Sun                                   whole days
    Mon-Fri 20:00-06:00; Sat,Sun              several; overlapping ones are merged

The opening time is included, the closing time is not. No windows means: always open. When clocks change, a window
may be an hour longer or shorter. One that lies entirely inside a gap does not open on that day; one inside a fold
opens in the first pass. An open window always closes, and a closed one opens, whatever the clocks do.

Fails: an invalid window raises Misconfigured with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec

from ..errors import Misconfigured
from .zones import first_moment_of, read_zone, wall_at

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MOST_WINDOWS = 50

_LONG_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_MINUTES = 24 * 60
_LONGEST_TEXT = 2000
_TIMES = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAY_LIST = re.compile(r"[a-z]{3,9}(?:[-,][a-z]{3,9}){0,13}", re.IGNORECASE)
_ALLOWED = "Write it like 22:00-06:00 Europe/Berlin, Mon-Fri 20:00-06:00 or Sat,Sun; separate several by a semicolon."
_FURTHEST = 35  # days to look ahead; windows repeat weekly, and a clock change can remove one of them


class Window(msgspec.Struct, frozen=True):
    """On these days (0 is Monday), from one minute of the day to another; an end before the start is on the next
    day."""

    days: tuple[int, ...]
    start: int
    end: int
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{_spell_days(self.days)}{_clock(self.start)}-{_clock(self.end)} {self.zone}"


def parse_windows(text: str, zone: str = "UTC") -> tuple[Window, ...]:
    """Read windows. One zone in the text applies to all of them, `zone` if there is none. Raises Misconfigured."""
    read_zone(zone)
    parts = [part for part in text[: _LONGEST_TEXT + 1].split(";") if part.strip()]
    if not parts:
        raise Misconfigured(f"{text!r} names no window. {_ALLOWED}")
    if len(text) > _LONGEST_TEXT or len(parts) > MOST_WINDOWS:
        raise Misconfigured(f"These are too many windows; write {MOST_WINDOWS} at most.")
    read = [_parse_window(part) for part in parts]
    named = {window.zone for window in read if window.zone}
    if len(named) > 1 and not all(window.zone for window in read):
        raise Misconfigured(f"{text!r} names several zones; then each window needs its own.")
    common = named.pop() if len(named) == 1 else zone
    return tuple(window if window.zone else msgspec.structs.replace(window, zone=common) for window in read)


def _parse_window(text: str) -> Window:
    """One window; its zone is empty if it names none."""
    words = re.sub(r"\s*([-,])\s*", r"\1", text.strip()).split()
    days: tuple[int, ...] | None = None
    if _DAY_LIST.fullmatch(words[0]) and _day(words[0][:3]) is not None:
        days = _parse_days(words.pop(0))
    times: tuple[int, int] | None = None
    if words and words[0][0].isdigit():
        times = _parse_times(words.pop(0))
    zone = words.pop(0) if words else ""
    if days is not None and zone and _DAY_LIST.fullmatch(zone) and _day(zone[:3]) is not None:
        raise Misconfigured(f"{text.strip()!r}: separate days by a comma without a blank, like Sat,Sun.")
    if words or (days is None and times is None):
        raise Misconfigured(f"{text.strip()!r} is not a window. {_ALLOWED}")
    if zone:
        read_zone(zone)
    start, end = times or (0, _DAY_MINUTES)
    return Window(tuple(range(len(DAYS))) if days is None else days, start, end, zone)


def _parse_days(text: str) -> tuple[int, ...]:
    """`Sat,Sun`, `Mon-Fri`, `Fri-Mon`, in any mixture."""
    found: set[int] = set()
    for part in text.split(","):
        ends = [_day(name) for name in part.split("-")]
        if None in ends or len(ends) > 2:
            raise Misconfigured(f"{part!r} is not a day. Write {', '.join(DAYS)}, or a range like Mon-Fri.")
        begin, last = (day for day in (ends[0], ends[-1]) if day is not None)
        found.update((begin + step) % 7 for step in range((last - begin) % 7 + 1))
    return tuple(sorted(found))


def _day(name: str) -> int | None:
    lower = name.lower()
    for number, long in enumerate(_LONG_DAYS):
        if lower in (long, long[:3]):
            return number
    return None


def _parse_times(text: str) -> tuple[int, int]:
    match = _TIMES.fullmatch(text)
    if not match:
        raise Misconfigured(f"{text!r} is not a span of hours. Write it like 22:00-06:00.")
    start, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if int(match[2]) > 59 or int(match[4]) > 59 or start >= _DAY_MINUTES or end > _DAY_MINUTES:
        raise Misconfigured(f"{text!r} is not a span of hours: a day goes from 00:00 to 24:00.")
    if start == end:
        raise Misconfigured(f"{text!r} has no length. Write 00:00-24:00 for a whole day.")
    return start, end


def _spell_days(days: tuple[int, ...]) -> str:
    if len(days) == len(DAYS):
        return ""
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        return f"{DAYS[days[0]]}-{DAYS[days[-1]]} "
    return ",".join(DAYS[day] for day in days) + " "


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def is_open(windows: Sequence[Window], now: float) -> bool:
    """Is any of the windows open? True without windows."""
    return not windows or _last_closing(windows, now) is not None


def opens_at(windows: Sequence[Window], now: float) -> float | None:
    """The next moment at which one is open: now if one is. None if none opens within five weeks."""
    if is_open(windows, now):
        return now
    coming = (
        next((start for start, _ in _openings(window, now, _FURTHEST) if start > now), None) for window in windows
    )
    return min((start for start in coming if start is not None), default=None)


def closes_at(windows: Sequence[Window], now: float) -> float | None:
    """The moment at which all are closed: now if they are. None if that is not within five weeks."""
    closing = now
    while windows and closing - now < _FURTHEST * 86400.0:
        later = _last_closing(windows, closing)
        if later is None:
            return closing
        closing = later
    return None


def _last_closing(windows: Sequence[Window], now: float) -> float | None:
    """When the last of the currently open windows closes; None if none is open."""
    ends = (end for window in windows for start, end in _openings(window, now, 1) if start <= now < end)
    return max(ends, default=None)


def _openings(window: Window, now: float, days: int) -> Iterator[tuple[float, float]]:
    """Openings and closings in order: those that begin from two days before `now` to `days` after it."""
    zone = read_zone(window.zone)
    today = wall_at(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    # Counted on the wall clock, so that it closes when the clock shows the written time.
    length = timedelta(minutes=(window.end - window.start) % _DAY_MINUTES or _DAY_MINUTES)
    for step in range(-2, days + 1):
        day = today + timedelta(days=step)
        if day.weekday() in window.days:
            begin = day + timedelta(minutes=window.start)
            start, end = first_moment_of(begin, zone), first_moment_of(begin + length, zone)
            if start < end:  # else it lies in a gap
                yield start, end
