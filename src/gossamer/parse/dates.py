"""Dates as pages write them: machine forms first (ISO 8601, RFC 2822, seconds), then words in some languages.

A moment always has a zone: the one that is written, else the one that the recipe names, else UTC. Day, month and year
must be written, or follow from words that count from today ("yesterday"); nothing is filled in from today's date.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from ..errors import MissingExtra

_RFC_2822 = re.compile(r"(?:[A-Za-z]{3,9},?\s+)?\d{1,2}[ -][A-Za-z]{3}[ -]\d{2,4}\s+\d{1,2}:\d{2}")
_COUNT = re.compile(r"\d{9,13}(?:\.\d+)?")
# Tried in this order where a recipe names none. All that the library knows would take seconds to load.
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "sv", "da", "nb", "fi", "cs", "ru", "uk", "tr", "ja", "zh")
_LONGEST = 120  # characters; a date is not longer
_DIRECTIVE = re.compile(r"%[EO]?(.)", re.DOTALL)
_WITH_YEAR = frozenset("YyGcx")  # directives that read a year
_ANOTHER_DAY = 400 * 86_400.0  # seconds since 1970: not the day, month or year of 0
_SECONDS = range(10**8, 10**10)  # 1973 to 2286
_MILLISECONDS = range(10**11, 10**13)


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """The zone of that name. Raises ValueError."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # KeyError: not found; the others: no name of a zone at all
        raise ValueError(f"{name!r} is no time zone; write it like Europe/Berlin or UTC") from error


def moment_of(
    text: str, *, zone: str | None, formats: tuple[str, ...], languages: tuple[str, ...], now: float | None
) -> datetime:
    """The moment that the text names. `now` is what "yesterday" counts from; None refuses such words. Raises
    ValueError, MissingExtra."""
    text = " ".join(text.split())[:_LONGEST]
    if not text:
        raise ValueError("it is empty")
    local = zone_of(zone or "UTC")
    if formats:
        return _zoned(_by_format(text, formats), local)
    if _COUNT.fullmatch(text):
        return _by_seconds(text)
    try:
        return _zoned(datetime.fromisoformat(text), local)
    except ValueError:
        pass
    if _RFC_2822.match(text):
        try:
            return _zoned(parsedate_to_datetime(text), local)
        except (ValueError, TypeError, IndexError, OverflowError):
            pass
    found = _by_words(text, local, zone or "UTC", languages, now or 0.0)
    if now is None and found != _by_words(text, local, zone or "UTC", languages, _ANOTHER_DAY):
        raise ValueError("it counts from today; write day, month and year")
    return _zoned(found, local)


def check_spelling(formats: tuple[str, ...], languages: tuple[str, ...]) -> None:
    """Can these be used at all? Raises ValueError, MissingExtra."""
    for form in formats:
        try:
            datetime.strptime("", form)
        except ValueError as error:
            if "directive" in str(error) or "stray" in str(error):
                raise ValueError(f"{form!r} is no format of a date ({error}); write it like %d.%m.%Y") from None
        except re.error as error:
            raise ValueError(f"{form!r} is no format of a date ({error}); write it like %d.%m.%Y") from None
        if not _WITH_YEAR & set(_DIRECTIVE.findall(form)):
            raise ValueError(f'"{form[:60]}" names no year; write it like %d.%m.%Y')
    if languages:
        _parser().parse("1", languages=list(languages))


def _zoned(moment: datetime, local: tzinfo) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=local)


def _by_format(text: str, formats: tuple[str, ...]) -> datetime:
    for form in formats:
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise ValueError(f"it is not written like {' or '.join(formats)}")


def _by_seconds(text: str) -> datetime:
    count = float(text)
    if int(count) in _MILLISECONDS:
        count /= 1000
    if int(count) not in _SECONDS:
        raise ValueError("as seconds since 1970 it is no plausible moment")
    return datetime.fromtimestamp(count, UTC)


def _by_words(text: str, local: tzinfo, zone: str, languages: tuple[str, ...], now: float) -> datetime:
    if not any(char.isalnum() for char in text):
        raise ValueError("it has neither digits nor words")
    found = _parser().parse(
        text,
        languages=list(languages or LANGUAGES),
        settings={
            "TIMEZONE": zone,
            "RETURN_AS_TIMEZONE_AWARE": True,
            "RELATIVE_BASE": datetime.fromtimestamp(now, local).replace(tzinfo=None),
            "REQUIRE_PARTS": ["day", "month", "year"],
        },
    )
    if not isinstance(found, datetime):
        raise ValueError(
            "no day, month and year can be read in it; write how it is written in `format`, and name the `languages`"
        )
    # The library's zones are its own; the same moment in one of Python's is what is stored.
    offset = found.utcoffset()
    return found.replace(tzinfo=local) if offset is None else found.astimezone(local)


def _parser() -> Any:  # Any: it has no types
    try:
        return import_module("dateparser")  # where it is needed only
    except ImportError as error:
        raise MissingExtra("Dates in words need the package dateparser: pip install dateparser.") from error
