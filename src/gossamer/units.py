"""Rates, sizes and durations as people write them: `5/s`, `10MB`, `1h30m`. Reading and spelling, nothing else."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

LONGEST_DURATION = timedelta(days=36_525)  # a hundred years: whoever writes more has made a mistake
LARGEST_SIZE = 1 << 63

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]i?)?B?", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|sec|second|m|min|minute|h|hour|d|day)")


class TooLong(ValueError):
    """A duration beyond LONGEST_DURATION."""


class _Measure:
    """A value with a spelling of its own. Not a struct: msgspec must leave its reading to us."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:  # Any: each measure has its own kind of value
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class Secret(_Measure):
    """A password or key as it stands in the settings. It shows itself to nobody who does not ask for `reveal()`."""

    def reveal(self) -> str:
        return str(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        return "***" if self.value else ""


class Rate(_Measure):
    """Requests per time, written `5/s`, `30/m`, `0.5/s`; `unlimited` is an interval of None."""

    @property
    def interval(self) -> timedelta | None:
        found: timedelta | None = self.value
        return found

    def __str__(self) -> str:
        if self.interval is None:
            return "unlimited"
        per_second = 1 / self.interval.total_seconds()
        if per_second < 1 / 60:
            return f"{per_second * 3600:g}/h"
        return f"{per_second:g}/s" if per_second >= 1 else f"{per_second * 60:g}/m"


class Size(_Measure):
    """A number of bytes, written `10MB`, `512KiB` or `1000`."""

    @property
    def bytes(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if self.bytes >= factor and self.bytes % factor == 0:
                return f"{self.bytes // factor}{unit}"
        return f"{self.bytes}B"


def parse_duration(text: str) -> timedelta:
    """Read `30s`, `500ms`, `1h30m`, `7d`. Raises ValueError; TooLong for what would outlive us all."""
    compact = text.strip()
    parts = _DURATION.findall(compact)
    if not parts or _DURATION.sub("", compact).strip():
        raise ValueError(f"{text!r} is not a duration; write it like 30s, 500ms, 1h30m or 7d")
    seconds = sum(float(n) * _SECONDS[unit] for n, unit in parts)
    if seconds > LONGEST_DURATION.total_seconds():
        raise TooLong(
            f"{shortened(text)} is too long; the longest duration is {LONGEST_DURATION.days}d, a hundred years"
        )
    return timedelta(seconds=seconds)


def parse_rate(text: str) -> Rate:
    """Read `5/s`, `30/m` or `unlimited`. Raises ValueError."""
    compact = text.strip().lower()
    if compact == "unlimited":
        return Rate(None)
    match = _RATE.fullmatch(compact)
    if not match or float(match[1]) <= 0:
        raise ValueError(f"{text!r} is not a rate; write it like 5/s, 30/m, 0.5/s or unlimited")
    seconds = _SECONDS[match[2][0]] / float(match[1])
    if not 0.000_001 <= seconds <= LONGEST_DURATION.total_seconds():
        raise ValueError(f"{shortened(text)} is no rate that can be kept; write one up to 1000000/s, or unlimited")
    return Rate(timedelta(seconds=seconds))


def parse_size(text: str) -> Size:
    """Read `10MB`, `512KiB`, `1000`. K, M and G count in 1024s. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write it like 10MB, 512KiB or 1000")
    power = " kmg".index((match[2] or " ")[0].lower())
    size = float(match[1]) * 1024**power
    if size >= LARGEST_SIZE:
        raise ValueError(f"{shortened(text)} is too large; no machine has so much room")
    return Size(int(size))


def shortened(text: str) -> str:
    """What somebody wrote, in quotes, for a message of one line."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
