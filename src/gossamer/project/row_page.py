"""A list that fits in memory: searched, sorted by a column, in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")
AT_ONCE = 50
Text = Annotated[str, Meta(max_length=500)]
Skipped = Annotated[int, Meta(ge=0, le=1_000_000)]  # rows to skip


class RowFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of such a list. `sort` is a column; a leading minus sorts in descending order."""

    q: Text = ""
    sort: Text = ""
    after: Skipped = 0


class RowPage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list. `total` counts all matching rows; `next` is the `after` of the next page."""

    rows: list[T]
    total: int
    next: int | None


def row_page(
    rows: Iterable[T],
    wanted: RowFilters,
    *,
    text: Callable[[T], str],
    columns: Mapping[str, Callable[[T], Any]],  # Any: whatever the values of a column are, they can be compared
    limit: int = AT_ONCE,
) -> RowPage[T]:
    """The rows whose `text` contains every word of the search, sorted by the wanted column. Rows without a value come
    last, in either direction; an unknown column leaves the order unchanged."""
    words = wanted.q.casefold().split()
    found = [row for row in rows if not words or all(word in text(row).casefold() for word in words)]
    column = columns.get(wanted.sort.removeprefix("-"))
    if column is not None:
        known = sorted((row for row in found if column(row) is not None), key=column)
        if wanted.sort.startswith("-"):
            known.reverse()
        found = [*known, *(row for row in found if column(row) is None)]
    end = wanted.after + limit
    return RowPage(rows=found[wanted.after : end], total=len(found), next=end if end < len(found) else None)
