"""The rules that every record store keeps alike about figures, decided without I/O: which rows there are, which of them
are put together, and what is forgotten.

Writers count into open sheets: one for each minute, and, where many write at once, for each of them. The sheets of
minutes that are over are rolled up: into the row of their minute, and into the total. After a day the minutes become
rows of ten minutes, which are forgotten after 30 days; the total keeps all. `rolled_up` is one step of that: what it
returns is written in one commit, together with the removal of what went into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ..model.figures import MINUTE, NOTHING, Figures, summed, taken_into
from .contract import Measured

TEN_MINUTES = 10 * MINUTE
KEEP_MINUTES = 24 * 3600
KEEP_TEN_MINUTES = 30 * 24 * 3600
STAYS_OPEN = 2 * MINUTE  # how long after its minute a sheet is left to its writer: results come late
DOMAINS = 50  # that have figures of their own in the total, unless the settings say otherwise
ROLLED_AT_ONCE = 500  # sheets, and minutes, in one step

Row = tuple[int, int]  # span and start
TOTAL: Row = (0, 0)

_DECODER = msgspec.json.Decoder(Figures)


def read_figures(text: str | bytes) -> Figures:
    return _DECODER.decode(text)


def figures_text(figures: Figures) -> str:
    return msgspec.json.encode(figures).decode()


def row_of(start: int, now: float) -> Row:
    """The row that holds the figures of the minute `start`."""
    if start > now - KEEP_MINUTES:
        return MINUTE, start
    return TEN_MINUTES, start // TEN_MINUTES * TEN_MINUTES


def rows_for(sheets: Iterable[int], minutes: Iterable[int], now: float) -> set[Row]:
    """The rows that change when the sheets and the old minutes that begin at these times are rolled up."""
    return {TOTAL, *(row_of(start, now) for start in (*sheets, *minutes))}


def rolled_up(
    held: Mapping[Row, Figures],
    sheets: Iterable[tuple[int, Figures]],
    minutes: Iterable[tuple[int, Figures]],
    *,
    now: float,
    most_domains: int,
) -> dict[Row, Figures]:
    """What the rows of `rows_for` become; `held` is what they are. The total has counted the minutes already."""
    total = held.get(TOTAL, NOTHING)
    parts: dict[Row, list[Figures]] = {}
    for start, figures in sheets:
        parts.setdefault(row_of(start, now), []).append(figures)
        total = taken_into(total, figures, most_domains=most_domains)
    for start, figures in minutes:
        parts.setdefault(row_of(start, now), []).append(figures)
    rows = {row: summed([held[row], *some] if row in held else some) for row, some in parts.items()}
    return {**rows, TOTAL: total}


def in_order(rows: Iterable[tuple[int, int, Figures]]) -> list[Measured]:
    """Rows and sheets as they are read (span, start, figures), those of the same time together."""
    parts: dict[tuple[int, int], list[Figures]] = {}
    for span, start, figures in rows:
        parts.setdefault((start, span), []).append(figures)
    return [Measured(start=start, span=span, figures=summed(parts[start, span])) for start, span in sorted(parts)]


def total_of(total: Figures, sheets: Iterable[Figures], *, most_domains: int) -> Figures:
    for figures in sheets:
        total = taken_into(total, figures, most_domains=most_domains)
    return total
