"""Statements that write many rows at once, in the words of PostgreSQL: `unnest` makes rows of columns of values. SQLite
runs them once for each row (`each_row`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ...model.item_account import COUNT_FIELDS

_TYPES = {
    **dict.fromkeys(COUNT_FIELDS, "int"),
    **dict.fromkeys(("number", "record", "page", "bytes", "checked", "filled", "faulty"), "bigint"),
    **dict.fromkeys(("at", "fetched_at", "first_seen", "last_changed", "last_checked", "gone_since", "first_stored",
                     "latency", "cost", "until"), "float8"),
    **dict.fromkeys(("identity", "fingerprint", "content_hash", "body_hash", "links", "content", "mark"), "bytea"),
    **dict.fromkeys(("version", "status", "attempt", "state"), "int"),
    "gone": "boolean", "data": "jsonb",
}  # fmt: skip

_NEW = re.compile(r"unnest\([^()]*\) AS (\w+) \(([\w, ]+)\)")


def new_rows(columns: Sequence[str]) -> str:
    """Rows of these columns, one for each row of values that the statement is run for.

    >>> new_rows(["page", "at"])
    'unnest($1::bigint[], $2::float8[]) AS new (page, at)'
    """
    values = ", ".join(f"${place}::{_type_of(name)}[]" for place, name in enumerate(columns, 1))
    return f"unnest({values}) AS new ({', '.join(columns)})"


def _type_of(column: str) -> str:
    return _TYPES.get(column, "text")


def add(table: str, columns: Sequence[str], on_conflict: str = "DO NOTHING") -> str:
    """A statement that adds rows.

    >>> add("seen_by", ["spider", "record"]).splitlines()[0]
    'INSERT INTO @seen_by AS kept (spider, record)'
    """
    return f"""INSERT INTO @{table} AS kept ({", ".join(columns)})
SELECT * FROM {new_rows(columns)} ON CONFLICT {on_conflict}"""  # noqa: S608 - our own names


def change(table: str, keys: Sequence[str], columns: Sequence[str], also: str = "") -> str:
    """A statement that changes the rows with these keys; the values of the keys come first."""
    values = ", ".join(f"{name} = new.{name}" for name in columns)
    found = " AND ".join(f"kept.{name} = new.{name}" for name in keys)
    return f"UPDATE @{table} AS kept SET {values}{also} FROM {new_rows([*keys, *columns])} WHERE {found}"  # noqa: S608


@lru_cache(maxsize=256)
def each_row(sql: str) -> str:
    """The statement for one row of values.

    >>> each_row(change("pages", ["number"], ["url", "at"]))
    'UPDATE @pages AS kept SET url = $2, at = $3 WHERE kept.number = $1'
    >>> each_row(add("seen_by", ["spider", "record"])).splitlines()[1]
    'VALUES ($1, $2) ON CONFLICT DO NOTHING'
    """
    found = _NEW.search(sql)
    assert found is not None, sql
    row, names = found[1], found[2].split(", ")
    values = [f"${place}" for place in range(1, len(names) + 1)]
    if (whole := f"SELECT * FROM {found[0]}") in sql:  # noqa: S608 - our own words
        return sql.replace(whole, f"VALUES ({', '.join(values)})")
    if sql.lstrip().startswith("UPDATE"):
        sql = re.sub(rf"\s+FROM {re.escape(found[0])}", "", sql)
        return re.sub(rf"\b{row}\.(\w+)", lambda name: values[names.index(name[1])], sql)
    columns = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
    return sql.replace(found[0], f"(SELECT {columns}) AS {row}")
