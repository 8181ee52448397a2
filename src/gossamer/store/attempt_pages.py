"""The log of attempts, page by page, the newest first: cursors that every record store reads and writes alike. Pure.

A cursor is the time of the last attempt that was shown, and how many of that very time were: attempts that are logged
meanwhile are newer, and move none of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ..errors import Misconfigured
from ..model.record import Attempt

LOOKED_AT = 1_000_000  # attempts for one page, where a filter fits few of them; the next page goes on from there
_BETWEEN = "~"


class AttemptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts are meant. None does not restrict."""

    job: str | None = None
    site: str | None = None
    route: str | None = None
    outcome: str | None = None
    reason: str | None = None
    since: float | None = None
    until: float | None = None


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts, the newest first. With `next` there may be more, also where this page is short."""

    attempts: tuple[Attempt, ...]
    next: str | None


class AttemptMark(msgspec.Struct, frozen=True):
    """Where a page begins: at this time, without the first `skip` of that very time."""

    at: float
    skip: int


def read_mark(cursor: str | None, query: AttemptQuery) -> AttemptMark:
    """Raises Misconfigured for what is no cursor."""
    if cursor is None:
        return AttemptMark(query.until if query.until is not None else 1e18, 0)
    at, _, skip = cursor.partition(_BETWEEN)
    try:
        mark = AttemptMark(float(at), int(skip))
    except ValueError:
        mark = AttemptMark(math.nan, 0)
    if not math.isfinite(mark.at) or not 0 <= mark.skip <= LOOKED_AT:
        raise Misconfigured(f"{cursor[:80]!r} is no cursor of the log of attempts. Begin at its first page.")
    return mark


def page_of(found: Sequence[Attempt], limit: int, mark: AttemptMark, floor: float | None) -> AttemptPage:
    """A page from up to `limit + mark.skip + 1` attempts that fit. `floor` is the time of the last one that was looked
    at, where there are more behind it."""
    end = mark.skip + limit
    shown = found[mark.skip : end]
    if len(found) > end:
        last = shown[-1].at
        return AttemptPage(
            attempts=tuple(shown), next=f"{last!r}{_BETWEEN}{sum(one.at == last for one in found[:end])}"
        )
    return AttemptPage(attempts=tuple(shown), next=f"{floor!r}{_BETWEEN}0" if floor is not None else None)
