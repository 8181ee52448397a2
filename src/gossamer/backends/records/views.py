"""Typed views: made and kept by whoever stores the first record of a type, or one of a new shape. What a view should
have: store/item_views.py. How a value is written: item_views.py of each dialect.

How it fails: records are stored all the same, and `problem` says why a view is not up to date. How it recovers: it is
tried again with the next records that need it, and by `refresh`. Any number of processes may make the same view.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial

import msgspec

from ...errors import GossamerError
from ...model.record import PageResult
from ...store.item_views import (
    CHANGES,
    HISTORY,
    MOST_COLUMNS,
    VERSION_COLUMNS,
    Fields,
    ItemView,
    Path,
    Selected,
    Shape,
    TypedColumn,
    declared_fields,
    merge_fields,
    plan_view,
    seen_fields,
    shape_of,
)
from ...store.record_rules import mend
from .dialect import SqlDatabase, SqlSession

log = logging.getLogger("gossamer.records")

PAUSE = timedelta(minutes=1)  # after a view could not be made
MOST_SHAPES = 1000  # of a type that are remembered
LOOKED_AT = 500  # records without a schema, the newest of each type, that `refresh` reads after a load

_KNOWN = "SELECT type, view FROM @item_views"
_KEEP = "INSERT INTO @item_views (type, view) VALUES ($1, $2) ON CONFLICT (type) DO UPDATE SET view = excluded.view"
_SCHEMAS = "SELECT type, definition FROM @schemas ORDER BY first_stored, id"
_KNOWN_TYPES = "SELECT type FROM @item_views UNION SELECT type FROM @schemas"
_TYPES = "SELECT DISTINCT type FROM @records"
_NEWEST = "SELECT {text} FROM @records WHERE type = $1 AND schema = '' ORDER BY number DESC LIMIT $2"

_ENDINGS = (CHANGES, HISTORY, "")
_PLAIN = ("_site", "_key", "_url", "_job", "_spider", "_version", "_data")
_TIMES = ("_first_seen", "_last_changed", "_last_checked", "_gone_since")


class SqlItemViews(ABC):
    """Fulfils `ItemViews`."""

    names: str  # a statement: every name in the database that a view could have
    time: str  # a column of seconds since the epoch, as views show it
    replaces = False  # CREATE OR REPLACE VIEW can add columns at the end; views of others stay

    def __init__(self, sql: SqlDatabase) -> None:
        self._sql = sql
        self._seen: dict[str, Fields] = {}  # of records without a schema, by type
        self._shapes: dict[str, set[Shape]] = {}  # of these records
        self._missing: dict[str, Fields] = {}  # types whose view may be missing or behind
        self._rests_until = 0.0
        self.problem = ""

    async def keep(self, results: Sequence[PageResult], declared: Iterable[str]) -> None:
        """Keep the views of what was just stored up to date. `declared` are types with a schema that may be new."""
        for type in declared:
            self._missing.setdefault(mend(type), {})
        for result in results:
            for record in result.records:
                if not record.schema and (news := self._news(record.type, record.data)):
                    type = mend(record.type)
                    self._missing[type] = merge_fields(self._missing.get(type, {}), news)
        if self._missing and time.monotonic() >= self._rests_until:
            await self._make_missing()

    def _news(self, type: str, data: str) -> Fields:
        """The fields of a record that were not seen before in this process, or with values of another kind."""
        shape = shape_of(data)
        shapes = self._shapes.setdefault(type, set())
        if shape in shapes:  # nearly always
            return {}
        if len(shapes) < MOST_SHAPES:
            shapes.add(shape)
        known = self._seen.get(type, {}) | self._missing.get(type, {})
        if len(known) >= MOST_COLUMNS:
            return {}
        seen = {(mend(path[0]),): kind for path, kind in seen_fields(shape).items()}
        return {path: kind for path, kind in seen.items() if known.get(path) not in (kind, "json")}

    async def refresh(self, *, whole: bool = False) -> tuple[list[ItemView], str]:
        """As the contract has it; `whole`: for records that were loaded, and never passed `keep`."""
        for sql in (_KNOWN_TYPES, _TYPES) if whole else (_KNOWN_TYPES,):
            for (type,) in await self._sql.rows(sql):
                self._missing.setdefault(type, {})
        if whole:
            newest = _NEWEST.format(text=self._sql.dialect.text)
            for type in self._missing:
                for (data,) in await self._sql.rows(newest, type, LOOKED_AT):
                    self._missing[type] = merge_fields(self._missing[type], seen_fields(shape_of(data)))
        await self._make_missing()
        known = [msgspec.json.decode(text, type=ItemView) for _, text in await self._sql.rows(_KNOWN)]
        return sorted(known, key=lambda view: view.name), self.problem

    async def _make_missing(self) -> None:
        """Make the views that are missing or behind. One that cannot be made now is tried again after a while."""
        problem, missing = "", self._missing
        self._missing = {}
        for type, seen in missing.items():  # one transaction each: no view is in the way of another
            try:
                await self._sql.transact(partial(self._make, type, seen))
            except GossamerError as error:
                problem = f"The view of {type} is not up to date: {error}"
                self._missing[type] = merge_fields(self._missing.get(type, {}), seen)
            else:
                self._seen[type] = merge_fields(self._seen.get(type, {}), seen)
        if problem:
            self._rests_until = time.monotonic() + PAUSE.total_seconds()
        if problem and problem != self.problem:
            log.warning(problem)
        self.problem = problem

    async def _make(self, type: str, seen: Fields, session: SqlSession) -> None:
        """Bring the view of a type up to date, if it is not."""
        await self.take_turn(session)
        views = {type: msgspec.json.decode(text, type=ItemView) for type, text in await session.rows(_KNOWN)}
        known = views.get(type)
        declared = [declared_fields(text) for name, text in await session.rows(_SCHEMAS) if name == type]
        own = {known.name + ending for ending in ("", HISTORY, CHANGES)} if known is not None else set()
        names = {name for (name,) in await session.rows(self.names)}
        view = plan_view(type, known, declared, seen, names - own)
        if view == known and own <= names:
            return
        for statement in self._statements(known if own <= names else None, view):
            await session.define(statement)
        await session.run(_KEEP, type, msgspec.json.encode(view).decode())

    def _statements(self, known: ItemView | None, view: ItemView) -> list[str]:
        """How `known` becomes `view`, with its companions."""
        make, remove = "CREATE VIEW", [f"DROP VIEW IF EXISTS {self.place(view.name + end)}" for end in _ENDINGS]
        if self.replaces and known is not None and view.columns[: len(known.columns)] == known.columns:
            make, remove = "CREATE OR REPLACE VIEW", []
        meta = {name: name[1:] for name in _PLAIN} | {name: self.time.format(name[1:]) for name in _TIMES}
        of_version = meta | {"_valid_from": "at", "_valid_to": "until", "_gone": "gone"}
        versions = [*(TypedColumn(name, (), name) for name in VERSION_COLUMNS), *(c for c in view.columns if c.path)]
        selections = (
            ("", self._columns(view.columns, meta), "records"),
            (HISTORY, self._columns(versions, of_version), "record_history"),
            (CHANGES, "field, old, new, at, site, key, url, job, version", "record_changes"),
        )
        of_type = f"WHERE type = {literal(self.stored(view.type))}"
        return remove + [
            f"{make} {self.place(view.name + end)} AS SELECT {columns} FROM {self.place(table)} {of_type}"  # noqa: S608 - names without quotes
            for end, columns, table in selections
        ]

    def _columns(self, columns: Sequence[TypedColumn], meta: Mapping[str, str]) -> str:
        shown = [self.value(one.path, one.kind) if one.path else meta[one.kind] for one in columns]
        return ", ".join(f"{sql} AS {quoted(one.name)}" for sql, one in zip(shown, columns, strict=True))

    def place(self, name: str) -> str:
        """A view or a table in SQL."""
        return quoted(name)

    @abstractmethod
    def stored(self, text: str) -> str:
        """A text as the tables hold it."""

    @abstractmethod
    def value(self, path: Path, kind: str) -> str:
        """The value at a path of the data, converted to a kind of column."""

    @abstractmethod
    async def take_turn(self, session: SqlSession) -> None:
        """Wait until no other process makes views, but not for long."""

    @abstractmethod
    async def select(self, sql: str, *, limit: int, seconds: float) -> Selected: ...


def quoted(name: str) -> str:
    """A name in SQL. Names of views and columns hold no quotes."""
    return f'"{name}"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
