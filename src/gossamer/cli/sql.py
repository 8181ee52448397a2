"""`gossamer sql`: queries on what is stored, and the typed views that there are."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any

import typer

from ..project.records.sql import (
    LIMIT,
    MOST_ROWS,
    SECONDS,
    QueryAnswer,
    TypedViews,
    cells,
    objects,
    select,
    typed_views,
)
from .app import app, ask, err, out
from .layout import Column, heading, print_json, print_table, write_bytes
from .options import JsonOption


@app.command("sql")
def sql_verb(
    query: Annotated[str | None, typer.Argument(help="A SELECT; without one, list the tables and columns.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, safe to open in a spreadsheet.")] = False,
    as_json: JsonOption = False,
    limit: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="Rows at most.")] = LIMIT,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, help="How long the query may take.")] = SECONDS,
) -> None:
    """Query the records: every type of items is a table with real columns."""
    if query is None:
        _show_views(ask(typed_views, empty=lambda _: TypedViews(views=[], problem="")), as_json=as_json)
        return
    answer = ask(lambda project: select(project, query, limit=limit, seconds=seconds))
    if as_json:
        print_json(objects(answer))
    elif as_csv:
        file = io.StringIO()
        csv.writer(file).writerows([answer.columns, *cells(answer)])
        write_bytes(file.getvalue().encode())
    else:
        _show_rows(answer)
    if answer.more:
        err.print(f"The first {limit:,} rows; there are more. Raise --limit, or narrow the query.")
    _say(answer.problem)


def _show_rows(answer: QueryAnswer) -> None:
    if not answer.rows:
        out.print("No rows.")
        return
    numbers = [all(isinstance(row[place], int | float) for row in answer.rows) for place in range(len(answer.columns))]
    columns = [Column(name, right=right, fold=True) for name, right in zip(answer.columns, numbers, strict=True)]
    print_table(columns, cells(answer, safe=False))


def _show_views(found: TypedViews, *, as_json: bool) -> None:
    if as_json:
        print_json(found.views)
    else:
        for view in found.views:
            heading(view.view, f"items of the type {view.type}; also {view.history} and {view.changes}")
            rows: list[tuple[Any, ...]] = [(column.name, column.holds) for column in view.columns]
            print_table((Column("COLUMN"), Column("HOLDS")), rows, indent=2)
            out.print()
        if not found.views:
            out.print("There are no records yet, so there is nothing to query. Start with: gossamer crawl URL")
    _say(found.problem)


def _say(problem: str) -> None:
    if problem:
        err.print(problem)
