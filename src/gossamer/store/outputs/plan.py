"""Which record becomes which row of an output: types, condition, columns, and what becomes of records that are gone.
Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from ...model.output import ErasedRecord
from ...model.record import StoredRecord
from ...model.row_filter import Test, row_filter, value_at
from ...settings.output_tables import DELETE, FLAG, OutputTable
from ...units import discreet, within_calendar
from ..contract import Version
from .contract import Change, Past

OWN = ("type", "site", "key", "url", "spider", "first_seen", "last_changed", "version", "gone_since")
META = {f"_{name}": name for name in OWN}  # how fields of the store are named in `columns`, `where` and targets
IDENTITY = ("_type", "_site", "_key")
MOMENTS = ("first_seen", "last_changed", "gone_since")
DEEPEST = 3  # objects in objects that become columns
MOST_COLUMNS = 500  # of a row; items whose field names come from a page could each add one
LONGEST_NAME = 63  # bytes: more would be cut off by PostgreSQL
_SYSTEM = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))  # PostgreSQL has these in every table


class Plan:
    """The rows of one output, as its table in gossamer.toml says."""

    def __init__(self, table: OutputTable) -> None:
        self.table = table
        self.types = frozenset(table.types)
        self._spiders = frozenset(table.spiders)
        self._matches: Test | None = row_filter(table.where) if table.where else None
        self._paths = {column: source.split(".") for column, source in table.columns.items()}

    @property
    def terms(self) -> str:
        """A hash of what decides about rows: when it changes, a person may want to rewind."""
        table = self.table
        what = (
            discreet(table.url.reveal()) or (table.use, table.options),
            table.types,
            table.spiders,
            table.columns,
            table.key,
            table.where,
            table.only,
            table.gone,
            table.history,
        )
        return blake2b(msgspec.json.encode(what), digest_size=8).hexdigest()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, as far as the settings tell; a target may know better."""
        if self.table.key:
            return self.table.key
        named = tuple(column for column, source in self.table.columns.items() if source in IDENTITY)
        return named if self.table.columns else IDENTITY

    def source(self, column: str) -> str:
        """The field that fills a column."""
        return self.table.columns.get(column, column)

    def column(self, source: str) -> str | None:
        """The column that a field of the store fills, if there is one."""
        if not self.table.columns:
            return source
        return next((column for column, one in self.table.columns.items() if one == source), None)

    def change(self, record: StoredRecord, *, deletes: bool, versions: Sequence[Version] = ()) -> Change | None:
        """What becomes of a record's row; None if the output does not want it. With `deletes`, a record that no longer
        matches is deleted."""
        if not self.wants(record.type) or (self._spiders and record.spider not in self._spiders):
            return None
        fields = fields_of(record)
        goes = record.gone_since is not None and self.table.gone == DELETE
        if self._matches is not None and not self._matches(fields):
            if not deletes:
                return None
            goes = True
        elif (self.table.only == "changed" and record.version == 1) or (
            self.table.only == "new" and record.version > 1
        ):
            return None
        if self.table.gone not in (FLAG, DELETE):
            fields["_gone_since"] = None
        return Change(
            kind="delete" if goes else "put",
            identity=(record.type, record.site, record.key),
            version=record.version,
            at=record.last_changed,
            row=self._row(fields),
            past=tuple(self._past(record, versions)),
        )

    def erase(self, record: ErasedRecord) -> Change:
        own = {"_type": record.type, "_site": record.site, "_key": record.key, "_url": record.url}
        identity = (record.type, record.site, record.key)
        return Change(kind="erase", identity=identity, version=0, at=0.0, row=self._row({**record.data, **own}))

    def wants(self, type: str) -> bool:
        return not self.types or type in self.types

    def _row(self, fields: dict[str, Any]) -> dict[str, Any]:
        if self._paths:
            return {column: value_at(fields, path) for column, path in self._paths.items()}
        row: dict[str, Any] = {}
        for name, value in _flat(fields):
            if len(row) < MOST_COLUMNS or name in META:
                row.setdefault(column_name(name), value)
        return row

    def _past(self, record: StoredRecord, versions: Sequence[Version]) -> Iterator[Past]:
        if not self.table.history:
            return
        told = versions or [
            Version(
                at=record.last_changed,
                job=record.job,
                version=record.version,
                data=msgspec.json.encode(record.data).decode(),
                gone=record.gone_since is not None,
            )
        ]
        for one in told:
            then = msgspec.structs.replace(
                record,
                data=msgspec.json.decode(one.data),
                version=one.version,
                last_changed=one.at,
                gone_since=one.at if one.gone else None,
            )
            fields = fields_of(then)
            if self._matches is None or self._matches(fields):
                yield Past(version=one.version, at=one.at, row=self._row(fields))


@lru_cache(maxsize=10_000)
def column_name(field: str) -> str:
    """The column of a field, under a name that every target takes."""
    name = field.replace("\0", "") or "_"
    if name.lower() in _SYSTEM:
        name += "_"
    if len(name.encode()) > LONGEST_NAME:
        start = name.encode()[: LONGEST_NAME - 9].decode("utf-8", "ignore")
        name = f"{start}_{blake2b(field.encode(), digest_size=4).hexdigest()}"
    return name


def moment(seconds: float) -> str:
    """ISO 8601 in UTC with microseconds, as targets read it."""
    return datetime.fromtimestamp(within_calendar(seconds), UTC).isoformat(timespec="microseconds")


def fields_of(record: StoredRecord) -> dict[str, Any]:
    """The fields of the item, and behind them those of the store. An item's own field of such a name does not count:
    keys are made of these."""
    own: dict[str, Any] = {}
    for shown, name in META.items():
        value = getattr(record, name)
        own[shown] = moment(value) if name in MOMENTS and value is not None else value
    return {**{name: value for name, value in record.data.items() if name not in own}, **own}


def _flat(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """An object in a field becomes several columns: price_amount, price_currency."""
    for name, value in fields.items():
        parts = dict(_parts(name, value, 1)) if isinstance(value, dict) and value else {}
        if parts and not parts.keys() & fields.keys():
            yield from parts.items()
        else:
            yield name, value


def _parts(name: str, value: dict[str, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, dict) and part and depth < DEEPEST:
            yield from _parts(f"{name}_{key}", part, depth + 1)
        else:
            yield f"{name}_{key}", part
