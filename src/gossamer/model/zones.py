"""Clocks on walls: time zones by name, and the moments at which a local clock shows a time.

Moments are seconds since the epoch. A wall time is a datetime without a zone. Twice a year the two part: in a gap
(clocks go forward) a wall time is never shown, in a fold (clocks go back) it is shown twice. Nothing here reads the
present time. The only thing read is the table of zones, each zone once.

Fails: an unknown zone raises Misconfigured with the name that was probably meant.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from ..errors import Misconfigured

_LONGEST_NAME = 64  # the longest real one has 32 letters
_SECOND = timedelta(seconds=1)


@lru_cache(maxsize=1024)  # there are about 600
def read_zone(name: str) -> tzinfo:
    """The zone of an IANA name: `Europe/Berlin`, `UTC`. Raises Misconfigured with a near match."""
    if name == "UTC":
        return UTC
    if name in _zone_names():
        return ZoneInfo(name)
    if not _zone_names():
        raise Misconfigured("This machine has no table of time zones. Run `pip install tzdata`.")
    near = _near_zone(name)
    hint = f"Did you mean {near}?" if near else "Write it like Europe/Berlin, America/New_York or UTC."
    raise Misconfigured(f"{name[:_LONGEST_NAME]!r} is not a time zone. {hint}")


@lru_cache(maxsize=1)
def _zone_names() -> frozenset[str]:
    # Two of them are no places: their meaning differs between machines.
    return frozenset(available_timezones() - {"localtime", "Factory"})


def _near_zone(name: str) -> str | None:
    wanted = "_".join(name[:_LONGEST_NAME].casefold().split())
    whole = {known.casefold(): known for known in sorted(_zone_names())}
    cities = {key.rpartition("/")[2]: known for key, known in whole.items() if "/" in key}
    for names in (whole, cities):
        if wanted in names:
            return names[wanted]
    for names in (whole, cities):
        close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.75)
        if close:
            return names[close[0]]
    return None


def wall_at(moment: float, zone: tzinfo) -> datetime:
    """The local time at a moment."""
    return datetime.fromtimestamp(moment, zone).replace(tzinfo=None, fold=0)


def offset_at(moment: float, zone: tzinfo) -> timedelta:
    """How far local time is ahead of UTC at a moment."""
    return _offset(datetime.fromtimestamp(moment, zone))


def moments_of(wall: datetime, zone: tzinfo) -> tuple[float, ...]:
    """Every moment at which the clock shows `wall`: one; none in a gap; two in a fold, the earlier first."""
    before, after = _readings(wall, zone)
    if before == after:
        return (_moment(wall, before),)
    return (_moment(wall, before), _moment(wall, after)) if before > after else ()


def first_moment_of(wall: datetime, zone: tzinfo) -> float:
    """The first moment at which the clock shows `wall` or, in a gap, the moment at which the gap ends.

    A later wall time never gives an earlier moment.
    """
    before, after = _readings(wall, zone)
    if before >= after:
        return _moment(wall, before)
    # The clock jumps somewhere between these two. Halve the span until the second is found.
    early, late = wall - after, wall - before
    while late - early > _SECOND:
        middle = (early + (late - early) / 2).replace(microsecond=0)
        if _offset(middle.replace(tzinfo=UTC).astimezone(zone)) == before:
            early = middle
        else:
            late = middle
    return late.replace(tzinfo=UTC).timestamp()


def _readings(wall: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """The offsets before and after the clock change at `wall`; equal if there is none."""
    local = wall.replace(tzinfo=zone, fold=0)
    return _offset(local), _offset(local.replace(fold=1))


def _offset(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None  # it has a zone
    return offset


def _moment(wall: datetime, offset: timedelta) -> float:
    return (wall - offset).replace(tzinfo=UTC).timestamp()
