"""What people type, read: addresses and moments. A misspelling gets one line with the likely remedy."""

from __future__ import annotations

from datetime import datetime

from ..errors import InvalidUrl, Misconfigured
from ..model.url import parse_url
from ..text import visible
from ..units import parse_duration

# Schemes that are meant as such; before any other colon stands a host name: shop.example:8080
_SCHEMES = frozenset({"about", "blob", "data", "file", "ftp", "javascript", "mailto", "tel", "ws", "wss"})


def typed_url(text: str) -> str:
    """The absolute address that the user means. Raises InvalidUrl."""
    scheme, colon, _ = text.strip().partition(":")
    if "://" not in text and (not colon or scheme.lower() not in _SCHEMES):
        blank = len(text.split()) != 1  # then it is no address that lacks its beginning
        hint = "" if blank else f" Did you mean https://{visible(text[:200]).strip('/ ')} ?"
        raise InvalidUrl(f"{visible(text[:200])!r} is not a URL.{hint}")
    return parse_url(text.strip())


def typed_moment(option: str, text: str | None, now: float) -> float | None:
    """Seconds since the epoch of `7d` (that long ago) or an ISO time (local where it names no zone)."""
    if text is None:
        return None
    try:
        return now - parse_duration(text).total_seconds()
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise Misconfigured(
            f"{option} {visible(text)!r} is no time. Write how long ago (7d, 12h, 90m) or a date: 2027-01-31, "
            f"2027-01-31T12:00, 2027-01-31T12:00Z."
        ) from None
