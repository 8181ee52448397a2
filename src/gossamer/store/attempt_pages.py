"""The log of attempts, page by page, newest first: cursors that all record stores read and write alike. Pure.

A cursor is the time of the last attempt shown, and how many of that same time were shown: attempts logged meanwhile are
newer and shift none of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..errors import Misconfigured
from ..model.record import Attempt

LOOKED_AT = 1_000_000  # attempts scanned for one page, if a filter matches few; the next page continues from there
_BETWEEN = "~"


class AttemptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects attempts. None does not restrict."""

    job: str | None = None
    site: str | None = None
    route: str | None = None
    outcome: str | None = None
    reason: str | None = None
    since: float | None = None
    until: float | None = None


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts, newest first. With `next` there may be more, even if this page is short."""

    attempts: tuple[Attempt, ...]
    next: str | None


class AttemptMark(msgspec.Struct, frozen=True):
    """Where a page begins: at this time, after skipping the first `skip` of that same time."""

    at: float
    skip: int


def read_mark(cursor: str | None, query: AttemptQuery) -> AttemptMark:
    """Raises Misconfigured for an invalid cursor."""
    if cursor is None:
        return AttemptMark(query.until if query.until is not None else 1e18, 0)
    at, _, skip = cursor.partition(_BETWEEN)
    try:
        mark = AttemptMark(float(at), int(skip))
    except ValueError:
        mark = AttemptMark(math.nan, 0)
    if not math.isfinite(mark.at) or not 0 <= mark.skip <= LOOKED_AT:
        raise Misconfigured(f"{cursor[:80]!r} is not a cursor of the log of attempts. Start at its first page.")
    return mark


def page_of(found: Sequence[Attempt], limit: int, mark: AttemptMark, floor: float | None) -> AttemptPage:
    """Build a page from up to `limit + mark.skip + 1` matching attempts. `floor` is the time of the last attempt
    scanned, if there are more behind it."""
    end = mark.skip + limit
    shown = found[mark.skip : end]
    if len(found) > end:
        last = shown[-1].at
        return AttemptPage(
            attempts=tuple(shown), next=f"{last!r}{_BETWEEN}{sum(one.at == last for one in found[:end])}"
        )
    return AttemptPage(attempts=tuple(shown), next=f"{floor!r}{_BETWEEN}0" if floor is not None else None)
