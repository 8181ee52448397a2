"""Rates, sizes, durations, counts and moments as people write and read them: `5/s`, `10MB`, `1h30m`, `3 min ago`.

Also here: making untrusted text safe to print (`visible`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

LONGEST_DURATION = timedelta(days=36_525)  # a hundred years: more is a mistake
LARGEST_SIZE = 1 << 63

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]i?)?B?", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(s|sec|second|m|min|minute|h|hour|d|day)")


class TooLong(ValueError):
    """A duration beyond LONGEST_DURATION."""


class _Measure:
    """A value with its own notation. Not a struct: msgspec must leave its parsing to us."""

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
    """A password or key in the settings. It never prints; call `reveal()` for its text."""

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
        if per_second < 1:
            return f"{per_second * 60:g}/m"
        # An interval is in whole microseconds: 60/s came back as 59.9988/s, 150/s as 149.993/s.
        tidy = (round(per_second, digits) for digits in (0, 1, 2))
        return f"{next((one for one in tidy if timedelta(seconds=1 / one) == self.interval), per_second):.7g}/s"


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
    """Read `30s`, `500ms`, `1h30m`, `7d`. Raises ValueError; TooLong beyond LONGEST_DURATION."""
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
        raise ValueError(f"{shortened(text)} is not a usable rate; write one up to 1000000/s, or unlimited")
    return Rate(timedelta(seconds=seconds))


def parse_size(text: str) -> Size:
    """Read `10MB`, `512KiB`, `1000`. K, M and G count in 1024s. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write it like 10MB, 512KiB or 1000")
    power = " kmg".index((match[2] or " ")[0].lower())
    size = float(match[1]) * 1024**power
    if size >= LARGEST_SIZE:
        raise ValueError(f"{shortened(text)} is too large for any machine")
    return Size(int(size))


def shortened(text: str) -> str:
    """A user's text in quotes, shortened for a message of one line."""
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


# One day after the first, and one day before the last, that datetime can represent.
_EARLIEST, _LATEST = -62_135_510_400.0, 253_402_214_400.0

# C0 and C1 controls, line separators, direction marks, lone surrogates, and signs that hide text: interlinear notes and
# the tags of Unicode, a second ASCII that no font shows.
_UNSEEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)


HIDDEN = "***"
# The start of a URL, and all up to its path. Nothing is read twice: sites write into the texts of errors.
_AUTHORITY = re.compile(r"((?<!/)/{2,}+|\bhttps?:[/\\]*+)([^/?#\s]++)", re.IGNORECASE)


def discreet(text: str) -> str:
    """The text with `user:***@` for the credentials of every URL in it. A name alone is hidden too: it may be a key."""
    return _AUTHORITY.sub(_hidden, text) if "@" in text else text


def _hidden(found: re.Match[str]) -> str:
    login, at, host = found[2].rpartition("@")
    if not at:
        return found[0]
    name, _, password = login.partition(":")
    shown = f"{name}:" if password and "@" not in name else ""
    return f"{found[1]}{shown}{HIDDEN}@{host}"


def visible(text: str) -> str:
    """The text on one line, with control characters written as escapes."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def visible_lines(text: str) -> str:
    """Like `visible`, but line breaks and tabs stay."""
    return "\n".join(visible(line) for line in text.expandtabs(4).replace("\r\n", "\n").split("\n"))


def visible_json(text: str) -> str:
    """JSON on one line with the same characters as JSON escapes: the same value, safe to print."""
    return _UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f", text)


def within_calendar(seconds: float) -> float:
    """The time itself, or the first or last one that datetime can show in every zone."""
    return min(_LATEST, max(_EARLIEST, seconds))


def moment(at: float | str | None, now: float | None = None) -> str:
    """Local time, `2027-01-31 12:00:05`; with `now`, also the distance: `(3 min ago)`. `at` is in seconds since the
    epoch or ISO 8601. A time outside the calendar is shown as its first or last day."""
    if at is None:
        return ""
    at = seconds_of(at)
    shown = datetime.fromtimestamp(within_calendar(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return shown if now is None else f"{shown} ({distance(at, now)})"


def seconds_of(at: float | str) -> float:
    """Seconds since the epoch, from such seconds or from ISO 8601."""
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at


def past_moment(text: str, now: float) -> float:
    """Seconds since the epoch: from `7d`, which is that long ago, or from ISO 8601 (local if it names no zone). Raises
    ValueError."""
    with suppress(ValueError):
        return now - parse_duration(text).total_seconds()
    try:
        return seconds_of(text.strip())
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from error


def distance(at: float | str, now: float) -> str:
    """`in 14 s`, `3 min ago`, `now`. `at` is in seconds since the epoch, or ISO 8601."""
    seconds = seconds_of(at) - now
    if abs(seconds) < 0.05:
        return "now"
    return f"in {span(seconds)}" if seconds > 0 else f"{span(-seconds)} ago"


def span(seconds: float) -> str:
    """A duration for people: `0.4 s`, `14 s`, `3 min`, `2 h 5 min`, `3 days`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{seconds / 86_400:.0f} days"


def size(count: int) -> str:
    """`512 B`, `45.1 KB`, `3.0 MB`."""
    amount = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def many(count: int, noun: str, plural: str = "") -> str:
    """`1 record`, `1,234 records`, `2 tries`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def setting_text(value: object) -> str:
    """A setting's value in the notation that gossamer.toml takes."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return _duration(value)
    if isinstance(value, tuple | list):
        return ", ".join(setting_text(entry) for entry in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {setting_text(entry)}" for name, entry in value.items())
    return str(value)


def _duration(value: timedelta) -> str:
    seconds = value.total_seconds()
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    parts = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        whole, seconds = divmod(seconds, length)
        if whole:
            parts.append(f"{whole:g}{unit}")
    if seconds or not parts:
        parts.append(f"{seconds:g}s")
    return "".join(parts)
