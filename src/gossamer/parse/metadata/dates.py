"""Dates as machines write them: ISO 8601 in its many spellings, RFC 2822, seconds since the epoch.

How it fails: what is no date, or lies outside the years 1900 to 2100, is None. Dates in prose are not guessed at.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST = 64
_ISO = re.compile(
    r"(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})"
    r"(?:[T\s,]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|UTC|GMT|[+-]\d{2}:?(?:\d{2})?)?)?$",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\d{10}(?:\d{3})?$")


def read_date(text: object) -> datetime | None:
    """The time that the text means. It has a zone where the text has one, and is midnight where it has no time."""
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or len(text) > 10 * _LONGEST:
        return None
    text = " ".join(text.split())
    if not 8 <= len(text) <= _LONGEST:
        return None
    found = _from_epoch(text) or _from_iso(text) or _from_mail(text)
    return found if found is not None and 1900 <= found.year <= 2100 else None


def _from_epoch(text: str) -> datetime | None:
    if not _EPOCH.match(text):
        return None
    return datetime.fromtimestamp(int(text[:10]), UTC)


def _from_iso(text: str) -> datetime | None:
    match = _ISO.match(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    clock = f"{int(hour or 0):02}:{minute or '00'}:{second or '00'}.{(fraction or '0')[:6].ljust(6, '0')}"
    zone = (zone or "").upper()
    offset = "+00:00" if zone in ("Z", "UTC", "GMT") else zone
    try:
        return datetime.fromisoformat(f"{year}-{month}-{day}T{clock}{offset}")
    except ValueError:
        return None


def _from_mail(text: str) -> datetime | None:
    """RFC 2822. A zone of -0000 means that none is known."""
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
