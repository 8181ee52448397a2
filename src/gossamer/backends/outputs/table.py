"""Records in a table of an SQL database, kept equal to them: an upsert by key, deletions, and a table of history.

What it does: creates the table with columns of the declared types, or writes the columns of a table that the user has.
An older version of a record never replaces a newer one, where the table has a column for its time. A small table beside
it, `gossamer_outputs`, holds the fence of each output, and is written in every transaction: a process that was replaced
changes nothing more.
A column of a table of ours becomes a text, or a decimal number, when a value does not fit; one of the key does not.
How it fails: Misconfigured (no such column, no unique key), LeaseLost, BatchRefused if the database refuses a row. How
it recovers: a batch is a transaction that may be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import BatchRefused, LeaseLost, Misconfigured
from ...store.outputs.contract import BYTES_AT_ONCE, DELETE, ERASE, PUT, Batch, Change, ColumnsWidened, Past, Refused
from ...store.outputs.plan import LONGEST_NAME, MOST_COLUMNS, Plan, moment
from .kinds import OWN_KINDS, Cell, Kind, cell, declared_kinds, fits, kind_of_type, kind_of_value
from .sql import Engine, Layout, Misfit, Session, are_as, column, layout_sql, quoted

FENCES = "gossamer_outputs"
ROWS_AT_ONCE = 500
MOST_SHOWN = 20  # names in a message
ALTER = "Alter the column, and rewind the output."
KEY = "It identifies a row, and keeps its type."
HISTORY = {"valid_from": "_last_changed", "version": "_version"}  # columns of a history besides the mapped ones

_NAME = re.compile(r"[^\W\d]\w{0,62}(?:\.[^\W\d]\w{0,62})?")


def table_name(text: str, *, of: str) -> str:
    """A name that may stand in SQL: `products` or `shop.products`. Raises Misconfigured."""
    if not _NAME.fullmatch(text):
        raise Misconfigured(
            f"{text[:80]!r} cannot be the name of a table for {of}. Use letters, digits and underscores."
        )
    return text


class TableOutput:
    """One table, and perhaps its history; fulfils `Output`. `id` tells outputs apart in `gossamer_outputs`."""

    rows_at_once = ROWS_AT_ONCE
    bytes_at_once = BYTES_AT_ONCE
    mirrors = True
    numbered = False

    def __init__(self, engine: Engine, plan: Plan, table: str, history: str, id: str) -> None:
        self._engine = engine
        self._plan = plan
        self._table = table
        self._history = history
        self._id = id
        schema, dot, _ = table.rpartition(".")
        self._fences = f"{schema}{dot}{FENCES}"
        self._layout: Layout | None = None
        self._past: Layout | None = None
        self._fixed: dict[tuple[str, str], str] = {}  # tables and columns that cannot be altered, and why

    async def close(self) -> None:
        await self._engine.close()

    async def count(self) -> int | None:
        async def work(session: Session) -> int:
            if not await self._engine.columns(session, self._table):
                return 0
            return int((await session.rows(f"SELECT count(*) FROM {quoted(self._table)}"))[0][0])  # noqa: S608 - quoted

        return await self._engine.transact(work)

    async def check(self) -> str:
        async def work(session: Session) -> str:
            there = await self._engine.columns(session, self._table)
            if not there:
                return (
                    f"{self._table} in {self._engine.place} does not exist yet; it is created with the first records."
                )
            layout = await self._known(session, self._table, there)
            return (
                f"{self._table} in {self._engine.place} has {len(there)} columns;"
                f" a row is identified by {', '.join(layout.key)}."
            )

        return await self._engine.transact(work)

    async def write(self, batch: Batch) -> list[Refused]:
        try:
            refused = await self._engine.transact(lambda session: self._in_one(session, batch))
        except Misfit as found:
            self._layout = self._past = None
            await self._widen(batch.fence, found)
            return await self.write(batch)
        except BaseException:
            self._layout = self._past = None  # what was created in this transaction is gone
            raise
        if any(change.kind == ERASE for change in batch.changes):
            await self._engine.purge([table for table in (self._table, self._history) if table])
        return refused

    async def _widen(self, fence: int, found: Misfit) -> None:
        """Raises ColumnsWidened, unless the columns are new, or other ones by now, or cannot be altered."""
        table = found.layout.name

        async def work(session: Session) -> bool:
            await self._demand_fence(session, fence)
            there = await self._engine.columns(session, table)
            if not there:  # the transaction that found it created the table
                key = (*found.layout.key, "version") if table == self._history else found.layout.key
                await self._create(session, table, {**found.layout.types, **found.types}, key)
                return False
            if new := {name: type for name, type in found.types.items() if name not in there}:
                await self._add(session, found.layout, new)
                return False
            known = {name: type for name, type in found.layout.types.items() if name in there}
            return await self._engine.alter(session, table, found.types, known)

        try:
            if not await self._engine.transact(work):
                return
        except (BatchRefused, Misconfigured) as error:
            self._fixed |= {(table, name): str(error) for name in found.types}
            return
        told = ", ".join(f"{name} is {type} ({found.layout.types[name]} before)" for name, type in found.types.items())
        raise ColumnsWidened(f"{table} has other types: {told}.")

    async def _in_one(self, session: Session, batch: Batch) -> list[Refused]:
        changes = batch.changes
        await self._demand_fence(session, batch.fence)
        for known in (self._layout, self._past):
            if known is not None and not are_as(await self._engine.columns(session, known.name), known.types):
                self._layout = self._past = None  # another output or a person has altered the table
        kinds = declared_kinds(batch.schemas, self._plan.table.columns)
        if self._layout is None or self._layout.made:
            self._layout = await self._ready(session, self._table, kinds, changes, self._layout)
        layout = self._layout
        refused: list[Refused] = []
        puts = self._cells(layout, [one for one in changes if one.kind == PUT], refused)
        self._demand_room(layout, [one.change.row for one in refused])
        goes = self._cells(layout, [one for one in changes if one.kind in (DELETE, ERASE)], refused, only=layout.key)
        await self._upsert(session, layout, puts)
        kept = {tuple(row[list(layout.types).index(name)] for name in layout.key) for row in puts}
        await self._delete(session, layout, layout.key, [row for row in goes if tuple(row) not in kept])
        if self._history:
            bad = {id(one.change) for one in refused}
            await self._tell_history(session, kinds, [one for one in changes if id(one) not in bad], layout)
        return refused

    # -- the fence -------------------------------------------------------------------------------------------------

    async def _demand_fence(self, session: Session, fence: int) -> None:
        fences, engine = quoted(self._fences), self._engine
        if not await engine.columns(session, self._fences):
            if lock := engine.lock(self._fences):
                await session.rows(lock)
            await session.rows(
                f"CREATE TABLE IF NOT EXISTS {fences} (id {engine.types['text']} PRIMARY KEY,"
                f" fence {engine.types['int']} NOT NULL, tables {engine.types['text']} NOT NULL)"
            )
        pick = f"SELECT {engine.pick(0, engine.types['text'])}, {engine.pick(1, engine.types['int'])}, '' FROM"
        await session.take(
            f"INSERT INTO {fences} AS t (id, fence, tables) {pick} {engine.elements} WHERE true "
            f"ON CONFLICT (id) DO UPDATE SET fence = excluded.fence WHERE t.fence <= excluded.fence",
            [[self._id, fence]],
        )
        found = await session.rows(f"SELECT fence FROM {fences} WHERE id = {engine.parameter}", self._id)  # noqa: S608
        if not found or int(found[0][0]) != fence:
            raise LeaseLost(f"Another process writes to {self._table} in {engine.place} now.")

    async def _is_made(self, session: Session, table: str) -> bool:
        """Did an output create that table?"""
        if not await self._engine.columns(session, self._fences):
            return False
        found = await session.rows(f"SELECT tables FROM {quoted(self._fences)}")  # noqa: S608 - quoted
        return any(table in str(row[0]).split(",") for row in found)

    async def _note_made(self, session: Session, table: str) -> None:
        told = f"tables || {self._engine.parameter}"
        sql = f"UPDATE {quoted(self._fences)} SET tables = {told} WHERE id = '{self._id}'"  # noqa: S608 - our own id
        await session.rows(sql, f",{table}")

    # -- the table -------------------------------------------------------------------------------------------------

    async def _ready(
        self, session: Session, table: str, kinds: Mapping[str, Kind], changes: Iterable[Change], known: Layout | None
    ) -> Layout:
        """The table, created or with new columns if it is ours."""
        new = self._new_columns(known, kinds, [one.row for one in changes if one.kind == PUT])
        if known is not None:
            return await self._add(session, known, new)
        there = await self._engine.columns(session, table)
        if there:
            layout = await self._known(session, table, there)
            new = {name: type for name, type in new.items() if name not in layout.types} if layout.made else {}
            return await self._add(session, layout, new)
        key = self._plan.key
        if not key:
            raise Misconfigured(
                f"Which columns of {table} identify a row? Set key = [...] of the output, or map a column to _key."
            )
        new = {**dict.fromkeys(key, self._engine.types["text"]), **new}
        await self._create(session, table, new, key)
        return Layout(name=table, types=new, key=key, made=True, guard=self._plan.column("_last_changed"))

    def _new_columns(
        self, known: Layout | None, kinds: Mapping[str, Kind], rows: Iterable[Mapping[str, Any]]
    ) -> dict[str, str]:
        """The columns that the table still needs, with their types."""
        types, there = self._engine.types, known.types if known is not None else {}
        folded = {name.lower() for name in there}
        found = {name: kind for name, kind in kinds.items() if name not in there}
        for row in rows:
            for name, value in row.items():
                if name in there or (value is None and name not in self._plan.table.columns):
                    continue
                if name not in found or (found[name] == "number" and kind_of_value(value) == "numeric"):
                    found[name] = kind_of_value(value)
        kept: dict[str, str] = {}
        for name, kind in found.items():  # SQLite and DuckDB take `Price` and `price` for the same
            if name.lower() not in folded and len(name.encode()) <= LONGEST_NAME and len(folded) < MOST_COLUMNS:
                folded.add(name.lower())
                kept[name] = types[kind]
        return kept

    async def _known(self, session: Session, table: str, there: dict[str, str]) -> Layout:
        """A table that exists: which of its columns are written, and its key. Raises Misconfigured."""
        made = await self._is_made(session, table)
        mapped = self._plan.table.columns
        types = {name: type for name, type in there.items() if not mapped or name in mapped}
        if mapped and not made:  # a table of ours gets the column with the next rows
            past = await self._engine.columns(session, self._history) if self._history else {}
            for name in mapped:
                if name not in there and name not in past:
                    raise Misconfigured(
                        f"{table} has no column {name!r}. It has {_names(there)}. Add that column to the table, or name"
                        f" another in `columns`."
                    )
        unique = await self._engine.unique_keys(session, table)
        key = self._plan.key or next((tuple(sorted(one)) for one in unique if one <= types.keys()), ())
        for name in key:
            if name not in types:
                raise Misconfigured(
                    f"{table} has no column {name!r}, which identifies a row. It has {_names(there)}: map columns ="
                    f' {{ COLUMN = "_key", ... }}, and set key = ["COLUMN"].'
                )
        if not key or frozenset(key) not in unique:
            raise Misconfigured(
                f"{table} may hold two rows with the same {' and '.join(key) or 'key'}. Make it unique: CREATE"
                f" UNIQUE INDEX ON {table} ({', '.join(key) or '...'}), or set key = [...] to columns that are."
            )
        return Layout(name=table, types=types, key=key, made=made, guard=self._guard(types))

    def _guard(self, types: Mapping[str, str]) -> str | None:
        guard = self._plan.column("_last_changed")
        return guard if guard in types else None

    async def _create(self, session: Session, table: str, types: Mapping[str, str], key: Sequence[str]) -> None:
        if lock := self._engine.lock(table):
            await session.rows(lock)
        await session.rows(f"CREATE TABLE IF NOT EXISTS {layout_sql(table, types, key)}")
        await self._note_made(session, table)

    async def _add(self, session: Session, layout: Layout, new: Mapping[str, str]) -> Layout:
        """The table with these columns as well."""
        for name, type in new.items():
            await session.rows(f"ALTER TABLE {quoted(layout.name)} ADD COLUMN {column(name)} {type}")
        types = {**layout.types, **new}
        return msgspec.structs.replace(layout, types=types, guard=self._guard(types))

    def _demand_room(self, layout: Layout, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises Misfit for rows that do not fit their columns, if the table is ours."""
        found: dict[str, Kind] = {}
        for row in rows if layout.made else ():
            for name, type in layout.types.items():
                value, kind = row.get(name), kind_of_type(type)
                if name not in layout.key and not fits(value, kind) and (layout.name, name) not in self._fixed:
                    is_number = kind == "int" and fits(value, "numeric") and found.get(name) != "text"
                    found[name] = "numeric" if is_number else "text"
        if found:
            raise Misfit(layout, {name: self._engine.types[kind] for name, kind in found.items()})

    # -- rows ------------------------------------------------------------------------------------------------------

    def _cells(
        self, layout: Layout, changes: Sequence[Change], refused: list[Refused], only: Sequence[str] = ()
    ) -> list[list[Cell]]:
        """The rows of changes, of each key the latest; those with a value that does not fit are refused."""
        names = list(only) or list(layout.types)
        kinds = [kind_of_type(layout.types[name]) for name in names]
        latest: dict[tuple[Cell, ...], tuple[float, list[Cell]]] = {}
        for one in changes:
            row: list[Cell] = []
            try:
                for name, kind in zip(names, kinds, strict=True):
                    try:
                        row.append(cell(one.row.get(name), kind))
                    except ValueError as error:
                        advice = ALTER if not layout.made else KEY if name in layout.key else ""
                        advice = self._fixed.get((layout.name, name), advice)
                        raise ValueError(f"{name} is {layout.types[name]}: {error}. {advice}".strip()) from None
                where = tuple(row[names.index(name)] for name in layout.key)
                if None in where:
                    raise ValueError(f"{layout.key[where.index(None)]} is empty, and identifies the row")
            except ValueError as error:
                refused.append(Refused(one, str(error)))
                continue
            if where not in latest or latest[where][0] <= one.at:
                latest[where] = (one.at, row)
        return [row for _, row in latest.values()]

    async def _upsert(self, session: Session, layout: Layout, rows: Sequence[Sequence[Cell]]) -> None:
        if not rows:
            return
        names = list(layout.types)
        others = [name for name in names if name not in layout.key]
        sets = ", ".join(f"{column(name)} = excluded.{column(name)}" for name in others)
        guard = ""
        if layout.guard is not None:
            own = column(layout.guard)
            guard = f" WHERE t.{own} IS NULL OR t.{own} <= excluded.{own}"
        then = f"DO UPDATE SET {sets}{guard}" if sets else "DO NOTHING"
        key = ", ".join(map(column, layout.key))
        await session.take(
            f"INSERT INTO {quoted(layout.name)} AS t ({', '.join(map(column, names))}) "  # noqa: S608 - quoted names
            f"SELECT {self._picks(layout, names)} FROM {self._engine.elements} WHERE true ON CONFLICT ({key}) {then}",
            rows,
        )

    async def _delete(
        self, session: Session, layout: Layout, key: Sequence[str], rows: Sequence[Sequence[Cell]]
    ) -> None:
        if rows:
            told = ", ".join(map(column, key))
            await session.take(
                f"DELETE FROM {quoted(layout.name)} WHERE ({told}) IN "  # noqa: S608 - quoted names
                f"(SELECT {self._picks(layout, key)} FROM {self._engine.elements})",
                rows,
            )

    def _picks(self, layout: Layout, names: Sequence[str]) -> str:
        return ", ".join(self._engine.pick(place, layout.types[name]) for place, name in enumerate(names))

    # -- history ---------------------------------------------------------------------------------------------------

    async def _tell_history(
        self, session: Session, kinds: Mapping[str, Kind], changes: Sequence[Change], table: Layout
    ) -> None:
        """Add the versions that the history lacks, and delete those of erased records."""
        layout = self._past = await self._history_layout(session, kinds, changes, table)
        erased = self._cells(layout, [one for one in changes if one.kind == ERASE], [], only=table.key)
        await self._delete(session, layout, table.key, erased)
        moment = self._moment(layout)
        sources = {**HISTORY, **self._plan.table.columns}
        names, rows = list(layout.types), dict[tuple[Cell, ...], list[Cell]]()
        misfits: list[dict[str, Any]] = []
        for change in changes:
            before: list[Any] | None = None
            for past in change.past if change.kind != ERASE else ():
                told = [_past_value(past, name, sources) for name in names]
                shown = [
                    value
                    for name, value in zip(names, told, strict=True)
                    if sources.get(name, name) not in ("_version", "_last_changed")
                ]
                if shown != before:
                    try:
                        row = [
                            cell(value, kind_of_type(layout.types[name]))
                            for name, value in zip(names, told, strict=True)
                        ]
                    except ValueError:  # a version of earlier code that does not fit; the present one does
                        misfits.append(dict(zip(names, told, strict=True)))
                        continue
                    rows[tuple(row[names.index(name)] for name in (*table.key, moment))] = row
                before = shown
        self._demand_room(layout, misfits)
        if not rows:
            return
        picked = ", ".join(
            f"{self._engine.pick(place, layout.types[name])} AS {column(name)}" for place, name in enumerate(names)
        )
        same = " AND ".join(f"h.{column(name)} = x.{column(name)}" for name in (*table.key, moment))
        listed = ", ".join(map(column, names))
        await session.take(
            f"INSERT INTO {quoted(layout.name)} ({listed}) SELECT {listed} FROM "  # noqa: S608 - quoted names
            f"(SELECT {picked} FROM {self._engine.elements}) AS x "
            f"WHERE NOT EXISTS (SELECT 1 FROM {quoted(layout.name)} AS h WHERE {same})",
            list(rows.values()),
        )

    async def _history_layout(
        self, session: Session, kinds: Mapping[str, Kind], changes: Sequence[Change], table: Layout
    ) -> Layout:
        past = self._past
        if past is not None and not past.made:
            return past
        if past is None:
            there = await self._engine.columns(session, self._history)
            if not there:
                engine, own = self._engine, {name: OWN_KINDS[source] for name, source in HISTORY.items()}
                types = {**table.types, **{name: engine.types[kind] for name, kind in own.items()}}
                await self._create(session, self._history, types, (*table.key, "version"))
                return Layout(name=self._history, types=types, key=table.key, made=True)
            made = await self._is_made(session, self._history)
            wanted = {*table.types, *self._plan.table.columns, *HISTORY}
            types = {name: type for name, type in there.items() if name in wanted}
            past = Layout(name=self._history, types=types, key=table.key, made=made)
            for name in table.key:
                if name not in there:
                    raise Misconfigured(
                        f"{self._history} has no column {name!r}, which identifies a row of {table.name}."
                    )
            self._moment(past)
        new = self._new_columns(past, kinds, [one.row for one in changes]) if past.made else {}
        return await self._add(session, past, new)

    def _moment(self, layout: Layout) -> str:
        """The column of a history that tells versions of a row apart. Raises Misconfigured."""
        sources = {**HISTORY, **self._plan.table.columns}
        for source in ("_version", "_last_changed"):
            for name in layout.types:
                if sources.get(name, name) == source:
                    return name
        raise Misconfigured(
            f"{layout.name} has no column for the time of a version. Add one called valid_from, or map a column to"
            f" _last_changed."
        )


def _past_value(past: Past, name: str, sources: Mapping[str, str]) -> Any:
    if name in past.row:
        return past.row[name]
    if name in HISTORY:
        return past.version if HISTORY[name] == "_version" else moment(past.at)
    return None


def _names(there: Iterable[str]) -> str:
    names = list(there)
    return ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
