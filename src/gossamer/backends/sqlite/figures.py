"""Figures in the records file: counted in the transaction that stores the attempts, rolled up when a minute begins.

Writers take turns, so all of them share the sheet of a minute. The writer that opens a new sheet rolls up the finished
ones in the same transaction: the tables stay small without a maintenance process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from ...model.figures import MINUTE, Figures, counted, sum_figures
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

_READ_SHEET = "SELECT figures FROM figure_sheets WHERE start = ?"
_WRITE_SHEET = "INSERT OR REPLACE INTO figure_sheets (start, figures) VALUES (?, ?)"
_READ_ROW = "SELECT figures FROM figures WHERE span = ? AND start = ?"
_WRITE_ROW = "INSERT OR REPLACE INTO figures (span, start, figures) VALUES (?, ?, ?)"

_OVER = f"SELECT start, figures FROM figure_sheets WHERE start < ? ORDER BY start LIMIT {ROLLED_AT_ONCE}"  # noqa: S608
_OLD = f"SELECT start, figures FROM figures WHERE span = {MINUTE} AND start <= ? ORDER BY start LIMIT {ROLLED_AT_ONCE}"  # noqa: S608
_FORGET = f"DELETE FROM figures WHERE span = {TEN_MINUTES} AND start < ?"  # noqa: S608 - our own numbers


def count_figures(connection: sqlite3.Connection, new: Sequence[PageResult], now: float, most_domains: int) -> None:
    """Count attempts that are new, inside the caller's transaction."""
    opens = False
    for start, figures in counted(new, now).items():
        held = connection.execute(_READ_SHEET, (start,)).fetchone()
        if held is None:
            opens = True
        else:
            figures = sum_figures([read_figures(held[0]), figures])
        connection.execute(_WRITE_SHEET, (start, figures_text(figures)))
    if opens:
        _roll_up(connection, now, most_domains)


def _roll_up(connection: sqlite3.Connection, now: float, most_domains: int) -> None:
    sheets = _read(connection, _OVER, now - MINUTE - STAYS_OPEN)
    minutes = _read(connection, _OLD, now - KEEP_MINUTES)
    if sheets or minutes:
        held: dict[tuple[int, int], Figures] = {}
        for row in rows_for(sheets, minutes, now):
            found = connection.execute(_READ_ROW, row).fetchone()
            if found is not None:
                held[row] = read_figures(found[0])
        rows = roll_up_figures(held, sheets.items(), minutes.items(), now=now, most_domains=most_domains)
        connection.executemany("DELETE FROM figure_sheets WHERE start = ?", [(start,) for start in sheets])
        connection.executemany("DELETE FROM figures WHERE span = 60 AND start = ?", [(start,) for start in minutes])
        connection.executemany(_WRITE_ROW, [(*row, figures_text(figures)) for row, figures in rows.items()])
    connection.execute(_FORGET, (now - KEEP_TEN_MINUTES,))


def _read(connection: sqlite3.Connection, sql: str, before: float) -> dict[int, Figures]:
    return {start: read_figures(text) for start, text in connection.execute(sql, (before,)).fetchall()}
