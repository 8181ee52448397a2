"""Figures in PostgreSQL: counted in the transaction that stores the attempts, without an extra statement.

A `Sheet` is what one writer has counted in its open minutes. The writer knows the content of its rows, so it need not
read them: the statement that adds the attempts also writes the new sum, provided that all attempts were new and the row
still exists. Otherwise the rest is written separately; a row that was rolled up meanwhile starts anew. A writer that
does not know whether its commit succeeded abandons the sheet and starts another: nothing is lost or counted twice.

Rolling up: by any writer, once a minute, one at a time, in a separate transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from ...model.figures import MINUTE, NOTHING, Figures, counted, sum_figures
from ...model.record import PageResult
from ...store.figure_rules import (
    KEEP_MINUTES,
    KEEP_TEN_MINUTES,
    ROLLED_AT_ONCE,
    STAYS_OPEN,
    TEN_MINUTES,
    figures_text,
    read_figures,
    roll_up_figures,
    rows_for,
)
from .connection import PostgresDatabase, PostgresTransaction

MOST_OPEN = 8  # minutes that a writer remembers, the most recently used

_REWRITE = "UPDATE @figure_sheets SET figures = $3 WHERE start = $1 AND writer = $2 RETURNING 1"
_BEGIN = "INSERT INTO @figure_sheets (start, writer, figures) VALUES ($1, $2, $3)"

_MAKE_TOTAL = "INSERT INTO @figures (span, start, figures) VALUES (0, 0, '{}') ON CONFLICT DO NOTHING"
_LOCK_TOTAL = "SELECT figures FROM @figures WHERE span = 0 FOR UPDATE SKIP LOCKED"
# A writer may have locked the row: then the roll-up waits for it, and includes what it has written.
_TAKE_SHEETS = f"""
DELETE FROM @figure_sheets AS sheets USING (
    SELECT start, writer FROM @figure_sheets WHERE start < $1 ORDER BY start, writer LIMIT {ROLLED_AT_ONCE} FOR UPDATE
) AS over WHERE sheets.start = over.start AND sheets.writer = over.writer
RETURNING sheets.start, sheets.writer, sheets.figures"""  # noqa: S608 - our own numbers
_TAKE_MINUTES = f"""
DELETE FROM @figures AS rows USING (
    SELECT span, start FROM @figures WHERE span = {MINUTE} AND start <= $1 ORDER BY start LIMIT {ROLLED_AT_ONCE}
) AS old WHERE rows.span = old.span AND rows.start = old.start RETURNING rows.start, rows.figures"""  # noqa: S608
_READ_ROWS = """
SELECT rows.span, rows.start, rows.figures FROM unnest($1::int[], $2::bigint[]) AS wanted (span, start)
JOIN @figures AS rows ON rows.span = wanted.span AND rows.start = wanted.start"""
_WRITE_ROWS = """
INSERT INTO @figures (span, start, figures) SELECT * FROM unnest($1::int[], $2::bigint[], $3::text[])
ON CONFLICT (span, start) DO UPDATE SET figures = excluded.figures"""
_FORGET = f"DELETE FROM @figures WHERE span = {TEN_MINUTES} AND start < $1"  # noqa: S608 - our own numbers


class Sheet:
    """What one writer has counted in its open minutes, as stored: by minute the name of the row, and its figures. Used
    by one save at a time."""

    def __init__(self) -> None:
        self.minutes: dict[int, tuple[str, Figures]] = {}


class Count:
    """What a batch adds to a sheet. Created anew for each try of a transaction; `settle` is called for the committed
    one."""

    def __init__(self, sheet: Sheet, results: Sequence[PageResult], now: float) -> None:
        self._sheet = sheet
        self._results = results
        self._now = now
        self._added = counted(results, now)
        self._minutes = dict(sheet.minutes)
        # What the statement that adds the attempts also writes if all are new: for one minute that is open.
        self.start, self.writer, self.text = 0, "", ""
        if len(self._added) == 1 and (start := next(iter(self._added))) in sheet.minutes:
            writer, figures = sheet.minutes[start]
            whole = sum_figures([figures, self._added[start]])
            self._minutes[start] = (writer, whole)
            self.start, self.writer, self.text = start, writer, figures_text(whole)

    async def finish(self, session: PostgresTransaction, new: Sequence[PageResult], *, written: bool) -> None:
        """Write the rest; `written` is the text that is already stored. `new` are the results whose attempts were not
        known."""
        if written:
            return
        self._minutes = dict(self._sheet.minutes)
        added = self._added if len(new) == len(self._results) else counted(new, self._now)
        for start, figures in added.items():
            writer, held = self._minutes.get(start, ("", NOTHING))
            whole = sum_figures([held, figures])
            if writer and await session.rows(_REWRITE, start, writer, figures_text(whole)):
                self._minutes[start] = (writer, whole)
                continue
            self._minutes[start] = (uuid4().hex, figures)
            await session.run(_BEGIN, start, self._minutes[start][0], figures_text(figures))

    def settle(self) -> None:
        """The transaction is committed."""
        used = {start: self._minutes[start] for start in self._added if start in self._minutes}
        kept = {start: one for start, one in self._minutes.items() if start not in used} | used
        self._sheet.minutes = dict(list(kept.items())[-MOST_OPEN:])


class FigureSheets:
    """The sheets of one process, and their roll-up."""

    def __init__(self, database: PostgresDatabase, most_domains: int) -> None:
        self._database = database
        self._most_domains = most_domains
        self._idle: list[Sheet] = []
        self._rolled_in = 0  # the last minute in which this process rolled up

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[Sheet]:
        """A sheet for exclusive use. After an error it is abandoned as it is in the store."""
        sheet = self._idle.pop() if self._idle else Sheet()
        yield sheet
        self._idle.append(sheet)

    async def roll_up_when_due(self, now: float) -> None:
        """Roll up once a minute."""
        if now // MINUTE > self._rolled_in:
            self._rolled_in = int(now // MINUTE)
            await self._database.transact(lambda session: self._roll_up(session, now))

    async def _roll_up(self, session: PostgresTransaction, now: float) -> None:
        await session.run(_MAKE_TOTAL)
        total = await session.rows(_LOCK_TOTAL)
        if not total:  # another process is doing it
            return
        sheets = _in_order(await session.rows(_TAKE_SHEETS, int(now - MINUTE - STAYS_OPEN)))
        minutes = _in_order(await session.rows(_TAKE_MINUTES, int(now - KEEP_MINUTES)))
        if sheets or minutes:
            wanted = sorted(rows_for((start for start, _ in sheets), (start for start, _ in minutes), now))
            found = await session.rows(_READ_ROWS, [span for span, _ in wanted], [start for _, start in wanted])
            held = {(row["span"], row["start"]): read_figures(row["figures"]) for row in found}
            rows = roll_up_figures(held, sheets, minutes, now=now, most_domains=self._most_domains)
            spans, starts = [span for span, _ in rows], [start for _, start in rows]
            await session.run(_WRITE_ROWS, spans, starts, [figures_text(figures) for figures in rows.values()])
        await session.run(_FORGET, int(now - KEEP_TEN_MINUTES))


def _in_order(rows: Sequence[Any]) -> list[tuple[int, Figures]]:
    rows = sorted(rows, key=lambda row: (row["start"], row["writer"] if "writer" in row.keys() else ""))  # noqa: SIM118
    return [(row["start"], read_figures(row["figures"])) for row in rows]
