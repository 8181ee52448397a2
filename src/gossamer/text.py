"""Text for people: counts, sizes, spans and moments in words, and strangers' texts made safe to print.

Reading such notations (`10MB`, `1h30m`) is the work of units.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

# One day after the calendar of datetime begins, and one day before it ends.
_EARLIEST, _LATEST = -62_135_510_400.0, 253_402_214_400.0

# C0 and C1 controls, line separators, direction marks and halves of characters.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text on one line, with characters that would act on the terminal written as escapes."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def visible_lines(text: str) -> str:
    """As `visible`, but line breaks and tabs stay."""
    return "\n".join(visible(line) for line in text.expandtabs(4).replace("\r\n", "\n").split("\n"))


def within_calendar(seconds: float) -> float:
    """The time itself, or the first or last one that datetime can show in every zone."""
    return min(_LATEST, max(_EARLIEST, seconds))


def moment(at: float | str | None, now: float | None = None) -> str:
    """Local time, `2027-01-31 12:00:05`; with `now`, also how far off it is: `(3 min ago)`. Read from seconds since the
    epoch or from ISO 8601. A time outside of the calendar is shown as its first or last day."""
    if at is None:
        return ""
    at = seconds_of(at)
    shown = datetime.fromtimestamp(within_calendar(at)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return shown if now is None else f"{shown} ({distance(at, now)})"


def seconds_of(at: float | str) -> float:
    """Seconds since the epoch, of such seconds or of ISO 8601."""
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at


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
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    parts = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        whole, seconds = divmod(seconds, length)
        if whole:
            parts.append(f"{whole:g}{unit}")
    if seconds or not parts:
        parts.append(f"{seconds:g}s")
    return "".join(parts)
