"""Queries in SQL on what is stored, for the person at the machine of the project (never over the API: a query may read
every table that the project's own user may).

How it fails: Misconfigured for a query that the database does not take, with the name that may have been meant.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

from ...errors import Misconfigured
from ...store.export.text_formats import cell_of, json_of
from ...store.item_views import CHANGES, HISTORY, Selected
from ..open import Project

LIMIT = 1000  # rows, unless the user says otherwise
MOST_ROWS = 1_000_000
SECONDS = 60.0

_UNKNOWN = re.compile(r'(?:no such (?:column|table): |column |relation )"?([^\s":]+)"?')


class ViewColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a view; `holds` is the kind of its values."""

    name: str
    holds: str


class TypedView(msgspec.Struct, frozen=True, kw_only=True):
    """The view of a type of items. What else is there of it: `history`, `changes`."""

    view: str
    type: str
    history: str
    changes: str
    columns: list[ViewColumn]


class TypedViews(msgspec.Struct, frozen=True, kw_only=True):
    """`problem` says why a view is not up to date; "" if all are."""

    views: list[TypedView]
    problem: str


class QueryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool  # there are rows beyond the limit
    problem: str = ""  # why a view is not up to date


async def typed_views(project: Project) -> TypedViews:
    """Every typed view, by name, made anew where it was missing."""
    views, problem = await project.records.views.refresh()
    return TypedViews(
        views=[
            TypedView(
                view=one.name,
                type=one.type,
                history=one.name + HISTORY,
                changes=one.name + CHANGES,
                columns=[ViewColumn(name=column.name, holds=_held(column.kind)) for column in one.columns],
            )
            for one in views
        ],
        problem=problem,
    )


def _held(kind: str) -> str:
    if kind in ("_first_seen", "_last_changed", "_last_checked", "_gone_since"):
        return "datetime"
    return {"_version": "int", "_data": "json"}.get(kind, "text" if kind.startswith("_") else kind)


async def select(project: Project, sql: str, *, limit: int = LIMIT, seconds: float = SECONDS) -> QueryAnswer:
    """Answer a query. Raises Misconfigured."""
    sql = sql.strip().rstrip(";").strip()
    if not sql:
        raise Misconfigured('The query is empty. Write one: gossamer sql "SELECT * FROM record_list"')
    try:
        found = await project.records.views.select(sql, limit=limit, seconds=seconds)
    except Misconfigured as error:
        return await _again(project, sql, limit, seconds, error)
    return _answer(found)


async def _again(project: Project, sql: str, limit: int, seconds: float, error: Misconfigured) -> QueryAnswer:
    """The view may be missing, where the records were just copied here. Otherwise say which name may be meant."""
    unknown = _UNKNOWN.search(str(error))
    if unknown is None:
        raise error
    made = await typed_views(project)
    names = {column.name for view in made.views for column in view.columns}
    names |= {name for view in made.views for name in (view.view, view.history, view.changes)}
    wanted = unknown[1].rstrip(".").rpartition(".")[2]
    if wanted in names:
        return msgspec.structs.replace(
            _answer(await project.records.views.select(sql, limit=limit, seconds=seconds)), problem=made.problem
        )
    near = difflib.get_close_matches(wanted.lower(), sorted(names), n=1)
    hint = f"Did you mean {near[0]}?" if near else "`gossamer sql` lists the tables and their columns."
    raise Misconfigured(f"{error} {hint}") from error


def _answer(found: Selected) -> QueryAnswer:
    return QueryAnswer(columns=list(found.columns), rows=found.rows, more=found.more)


def objects(answer: QueryAnswer) -> list[dict[str, Any]]:
    """Each row as an object, of values that JSON has. Of two columns with one name, the last one counts."""
    return [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]


def cells(answer: QueryAnswer, *, safe: bool = True) -> list[list[str]]:
    """Each row as texts; `safe` ones are harmless in a spreadsheet."""
    spelled = cell_of if safe else _text
    return [[spelled(_plain(value)) for value in row] for row in answer.rows]


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json_of(value).decode()


def _plain(value: Any) -> Any:
    """A value of a database as JSON has it: times as ISO 8601 in UTC, decimals as texts, bytes in hexadecimal."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool | list | dict):
        return value
    return format(value, "f") if isinstance(value, Decimal) else str(value)
