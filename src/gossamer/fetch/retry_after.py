"""Reads `Retry-After` as a duration. Pure: the retry decision says how far to obey it."""

from __future__ import annotations

import re
from datetime import timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(days=365)

_NUMBER = re.compile(r"[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE]\+?[0-9]{1,3})?")


def parse_retry_after(value: str, now: float) -> timedelta | None:
    """Read seconds or an HTTP date; `now` is wall time. A date in the past means no wait.

    None if the value asks for nothing: empty, negative, NaN, garbage. Never more than `LONGEST`.
    """
    text = value.strip()
    if not text:
        return None  # most responses
    if _NUMBER.fullmatch(text):
        return _clamped(float(text))
    if len(text) > 64:
        return None
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return _clamped(max(0.0, at - now))


def _clamped(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, LONGEST.total_seconds()))
