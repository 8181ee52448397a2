"""Dates of feeds and sitemaps: RFC 822 with all its misspellings, and ISO 8601. Pure; nonsense is None.

A date without a zone is taken as UTC: nothing better is known, and a day more or less is better than no date.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_LONGEST = 100  # characters; no date is longer
_COMMON_LENGTHS = (10, 20, 25)  # 2024-05-06, with T07:08:09Z, with T07:08:09+00:00
_ISO = re.compile(
    r"([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2}))?)?"
    r"(?:[Tt ]\s{0,3}([0-9]{1,2}):?([0-9]{2})(?::?([0-9]{2})(?:[.,]([0-9]{0,9}))?)?)?"
    r"\s{0,3}([A-Za-z]{1,5}|(?:GMT|UTC)?\s?[+-][0-9]{1,2}:?[0-9]{0,2})?"
)
_RFC = re.compile(
    r"(?:[^\W\d]{2,12}\.?,?\s{1,3})?([0-9]{1,2})(?:st|nd|rd|th)?[\s.,-]{1,3}([^\W\d]{3,12})\.?,?[\s.-]{1,3}([0-9]{2,4}),?"
    r"(?:\s{1,3}([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.[0-9]{0,9})?)?\s?([AaPp][Mm])?)?"
    r"\s{0,3}([A-Za-z]{1,5}|(?:GMT|UTC|UT)?\s?[+-][0-9]{1,2}:?[0-9]{0,2})?(?:\s{0,3}\([^()]{0,20}\))?"
)
_AMERICAN = re.compile(
    r"(?:[^\W\d]{2,12}\.?,?\s{1,3})?([^\W\d]{3,12})\.?\s{1,3}([0-9]{1,2})(?:st|nd|rd|th)?,?\s{1,3}(.{0,60}?)([0-9]{4})(.{0,40})",
    re.DOTALL,
)
_OFFSET = re.compile(r"([+-])([0-9]{1,2}):?([0-9]{2})?")
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan",
            "feb",
            "mar mär",
            "apr avr",
            "may mai",
            "jun",
            "jul",
            "aug aou",
            "sep",
            "oct okt",
            "nov",
            "dec dez déc",
        ),
        1,
    )
    for name in names.split()
}
# Names of zones that feeds use, in minutes east of Greenwich. Several mean different places; these are the common ones.
_ZONES = {
    **dict.fromkeys(("", "z", "ut", "utc", "gmt", "wet"), 0),
    **{"est": -300, "edt": -240, "cst": -360, "cdt": -300, "mst": -420, "mdt": -360, "pst": -480, "pdt": -420},
    **{"bst": 60, "west": 60, "cet": 60, "met": 60, "mez": 60, "cest": 120, "mesz": 120, "eet": 120, "eest": 180},
    **{"msk": 180, "ist": 330, "hkt": 480, "sgt": 480, "jst": 540, "kst": 540, "aest": 600, "aedt": 660, "nzst": 720},
}


def parse_date(text: str) -> datetime | None:
    """The moment that a date of a feed or sitemap names, with its zone; None when it names none."""
    text = text.strip()
    if not text or len(text) > _LONGEST:
        return None
    if text[4:5] == "-" and len(text) in _COMMON_LENGTHS:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass  # not the common form; perhaps one of the others
        else:
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if match := _ISO.fullmatch(text):
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        return _moment(year, month or 1, day or 1, hour, minute, second, zone, fraction or "")
    if american := _AMERICAN.fullmatch(text):
        name, day, between, year, after = american.groups()
        text = f"{day} {name} {year} {(between + after).strip(', ')}".strip()
    match = _RFC.fullmatch(text)
    if match is None:
        return None
    day, name, year, hour, minute, second, half, zone = match.groups()
    month = _MONTHS.get(name[:3].lower())
    if month is None:
        return None
    if half and hour:
        hour = str(int(hour) % 12 + (12 if half.lower() == "pm" else 0))
    return _moment(_full_year(year), month, day, hour, minute, second, zone)


def _full_year(year: str) -> int:
    number = int(year)
    if len(year) == 4:
        return number
    return number + (1900 if len(year) == 3 or number >= 70 else 2000)


def _moment(
    year: str | int,
    month: str | int,
    day: str | int,
    hour: str | None,
    minute: str | None,
    second: str | None,
    zone: str | None,
    fraction: str = "",
) -> datetime | None:
    offset = _offset(zone or "")
    if offset is None:
        return None
    try:
        # 24:00 is the next day's midnight, and a leap second is the next second.
        start = datetime(int(year), int(month), int(day), tzinfo=offset)
        clock = timedelta(hours=int(hour or 0), minutes=int(minute or 0), seconds=int(second or 0))
        if clock > timedelta(days=1) or int(minute or 0) > 59 or int(second or 0) > 60:
            return None
        return start + clock + timedelta(microseconds=int(fraction[:6].ljust(6, "0")) if fraction else 0)
    except (ValueError, OverflowError):
        return None


def _offset(zone: str) -> timezone | None:
    match = _OFFSET.search(zone)
    if match is None:
        minutes = _ZONES.get(zone.strip().lower())
    else:
        hours, rest = int(match[2]), int(match[3] or 0)
        minutes = (hours * 60 + rest) * (-1 if match[1] == "-" else 1) if hours < 24 and rest < 60 else None
    if minutes is None:
        return None
    return timezone(timedelta(minutes=minutes)) if minutes else UTC
