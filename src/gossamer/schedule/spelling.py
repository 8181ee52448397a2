"""Triggers as people write and read them: `every 15m`, `0 3 * * *`, `at 2027-01-31T12:00+01:00`.

Fails: text that is no trigger, or one that would never be due, raises Misconfigured with what to write instead.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from ..errors import Misconfigured
from ..units import TooLong, parse_duration
from .triggers import Cron, Every, Once, Trigger, read_cron
from .zones import first_moment_of, read_zone, wall_at

SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=3660)  # ten years and some

_LONGEST_TEXT = 500
_ALLOWED = "Write `every 15m`, a cron expression like `0 3 * * *`, or `at 2027-01-31T12:00`."
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# All that a date can be comes round within the fifty years that are searched from here.
_LEAP_YEAR = datetime(2000, 1, 1)
_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def parse_trigger(text: str, zone: str = "UTC") -> Trigger:
    """Read a trigger; times without an offset are those of `zone`. Raises Misconfigured."""
    read_zone(zone)
    if len(text) > _LONGEST_TEXT:
        raise Misconfigured(f"A trigger of {len(text)} characters is too long. {_ALLOWED}")
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
    """What was probably meant, when the word in front is all that is missing."""
    for word, read in (("every", parse_duration), ("at", datetime.fromisoformat)):
        try:
            read(text.strip())
        except ValueError:
            continue
        return f"Write `{word} {text.strip()}`."
    return _ALLOWED


def _parse_interval(text: str) -> Every:
    try:
        interval = parse_duration(text)
    except TooLong:
        interval = timedelta.max
    except ValueError as error:
        raise Misconfigured(f"`every {text}` is not an interval. Write it like every 30s, 15m, 1h30m or 7d.") from error
    if interval < SHORTEST:
        raise Misconfigured(f"`every {text}` is too often; the shortest interval is 1s.")
    if interval > LONGEST:
        raise Misconfigured(f"`every {text}` is too rare; the longest interval is {LONGEST.days}d.")
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
            said = said.replace(" day of month and on ", " day of month or on ")  # one of the two is enough
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
