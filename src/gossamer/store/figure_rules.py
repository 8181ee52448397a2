"""The rules for figures that all record stores share, decided without I/O: which rows exist, which are merged, and what
is deleted.

Writers count into open sheets: one per minute, and per writer if there are many. The sheets of past minutes are rolled
up: into the row of their minute, and into the total. After a day the minutes become rows of ten minutes, which are
deleted after 30 days; the total keeps everything. `roll_up_figures` is one step of that: its result is written in one
commit, together with the removal of what went into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..model.figures import MINUTE, NOTHING, DomainFigures, Figures, Latency, sum_figures, taken_into
from .contract import FigurePart, Measured

TEN_MINUTES = 10 * MINUTE
KEEP_MINUTES = 24 * 3600
KEEP_TEN_MINUTES = 30 * 24 * 3600
STAYS_OPEN = 2 * MINUTE  # how long after its minute a sheet is left to its writer: results may be late
DOMAINS = 50  # with their own figures in the total, unless the settings say otherwise
ROLLED_AT_ONCE = 500  # sheets, and minutes, in one step

Row = tuple[int, int]  # span and start
TOTAL: Row = (0, 0)


class _Undivided(msgspec.Struct, frozen=True, kw_only=True):
    """Figures without domains and jobs, which are most of a row: fields not listed here are skipped."""

    pages: dict[str, dict[str, int]] = {}
    latency: dict[str, Latency] = {}
    errors: dict[str, int] = {}
    credits: dict[str, float] = {}
    bytes: dict[str, int] = {}
    items: int = 0


class _Divided(msgspec.Struct, frozen=True, kw_only=True):
    domains: dict[str, msgspec.Raw] = {}
    jobs: dict[str, msgspec.Raw] = {}


_DECODER = msgspec.json.Decoder(Figures)
_UNDIVIDED = msgspec.json.Decoder(_Undivided)
_DIVIDED = msgspec.json.Decoder(_Divided)
_ONE = msgspec.json.Decoder(DomainFigures)


def read_figures(text: str | bytes) -> Figures:
    return _DECODER.decode(text)


def reader_of(part: FigurePart | None) -> Callable[[str], Figures]:
    """How to decode a row if only that part is needed."""
    if part is None:
        return read_figures
    if part.domain is not None:
        return lambda text: Figures(domains=_one_of(text, "domains", str(part.domain)))
    if part.job is not None:
        return lambda text: Figures(jobs=_one_of(text, "jobs", str(part.job)))
    return read_figures if part.domains else _undivided


def _undivided(text: str) -> Figures:
    found = _UNDIVIDED.decode(text)
    return Figures(
        pages=found.pages,
        latency=found.latency,
        errors=found.errors,
        credits=found.credits,
        bytes=found.bytes,
        items=found.items,
    )


def _one_of(text: str, table: str, name: str) -> dict[str, DomainFigures]:
    if msgspec.json.encode(name).decode() not in text:  # most rows: a search costs a hundredth of decoding
        return {}
    found: dict[str, msgspec.Raw] = getattr(_DIVIDED.decode(text), table)
    return {name: _ONE.decode(found[name])} if name in found else {}


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


def roll_up_figures(
    held: Mapping[Row, Figures],
    sheets: Iterable[tuple[int, Figures]],
    minutes: Iterable[tuple[int, Figures]],
    *,
    now: float,
    most_domains: int,
) -> dict[Row, Figures]:
    """The new content of the rows of `rows_for`; `held` is the current one. The total has counted the minutes
    already."""
    total = held.get(TOTAL, NOTHING)
    parts: dict[Row, list[Figures]] = {}
    for start, figures in sheets:
        parts.setdefault(row_of(start, now), []).append(figures)
        total = taken_into(total, figures, most_domains=most_domains)
    for start, figures in minutes:
        parts.setdefault(row_of(start, now), []).append(figures)
    rows = {row: sum_figures([held[row], *some] if row in held else some) for row, some in parts.items()}
    return {**rows, TOTAL: total}


def sort_measured(rows: Iterable[tuple[int, int, Figures]]) -> list[Measured]:
    """Rows and sheets as read (span, start, figures), merged by time."""
    parts: dict[tuple[int, int], list[Figures]] = {}
    for span, start, figures in rows:
        parts.setdefault((start, span), []).append(figures)
    return [Measured(start=start, span=span, figures=sum_figures(parts[start, span])) for start, span in sorted(parts)]


def total_of(total: Figures, sheets: Iterable[Figures], *, most_domains: int) -> Figures:
    for figures in sheets:
        total = taken_into(total, figures, most_domains=most_domains)
    return total
