"""What the clocks on walls show, minute by minute: the slow truth that triggers and windows are compared with."""

from __future__ import annotations

from bisect import bisect_left
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import strategies as st

MINUTE = 60
DAY = 86400
ODD_ZONES = (
    "Africa/Casablanca",  # the clock changes with the moon
    "America/Havana",  # midnight is shown twice
    "America/Santiago",
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",  # midnight is left out; going back changes the date
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Europe/Dublin",  # summer is the rule, winter the exception
)


class WallClock:
    """The minutes from `begin` to `end`, and what the clock of a zone shows at each of them."""

    def __init__(self, zone: str, begin: int, end: int) -> None:
        self.minutes = range(begin, end, MINUTE)
        self.shown = [datetime.fromtimestamp(minute, ZoneInfo(zone)) for minute in self.minutes]
        self._latest: list[datetime] = []
        for shown in self.shown:
            wall = shown.replace(tzinfo=None, fold=0)
            self._latest.append(max(wall, self._latest[-1]) if self._latest else wall)

    def first_at_or_past(self, wall: datetime) -> int:
        """The first minute at which the clock has come to show `wall` or more."""
        return self.minutes[0] + MINUTE * bisect_left(self._latest, wall)

    def left_out_before(self, index: int) -> list[datetime]:
        """The times that the clock jumped over when it came to the minute at `index`."""
        if index == 0:
            return []
        before, now = (self.shown[i].replace(tzinfo=None) for i in (index - 1, index))
        return [before + timedelta(minutes=n) for n in range(1, int((now - before).total_seconds()) // MINUTE)]


@lru_cache(maxsize=1)
def zones_that_change() -> list[str]:
    halves = (datetime(2026, 1, 15), datetime(2026, 7, 15))
    return [
        name
        for name in sorted(available_timezones() - {"localtime"})
        if len({half.replace(tzinfo=ZoneInfo(name)).utcoffset() for half in halves}) > 1
    ]


@lru_cache(maxsize=1000)
def changes_of(zone: str, year: int) -> list[int]:
    """The minutes of a year at which the clock jumps."""

    def offset(moment: int) -> timedelta | None:
        return datetime.fromtimestamp(moment, ZoneInfo(zone)).utcoffset()

    found = []
    start = int(datetime(year, 1, 1, tzinfo=ZoneInfo("UTC")).timestamp())
    for day in range(start, start + 365 * DAY, DAY):
        if offset(day) != offset(day + DAY):
            found.append(next(m for m in range(day, day + DAY + 1, MINUTE) if offset(m) != offset(day)))
    return found


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, int]:
    """A zone, and a moment at which its clock jumps."""
    zone = draw(st.sampled_from(ODD_ZONES) | st.deferred(lambda: st.sampled_from(zones_that_change())))
    return zone, draw(st.sampled_from(changes_of(zone, draw(st.integers(2024, 2030))) or [1_774_746_000]))
