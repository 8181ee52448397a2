"""Typed views of records, decided without I/O: which view a type of items has, and with which columns.

A view keeps its name and its columns keep theirs for ever: a field that is removed keeps its column, a new one is added
at the end. So queries that were written once stay valid. What a column holds is its kind; a value that does not fit it
is NULL there, and stands in `_data`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

MOST_COLUMNS = 1000  # for the fields of one type; all are in `_data`
LONGEST_NAME = 48  # bytes: PostgreSQL takes 63, and a view has companions with longer names
HISTORY, CHANGES = "_history", "_changes"  # the companions of a view

# What the store says of every record, in the words of exports.
STORED_COLUMNS = ("_site", "_key", "_url", "_job", "_spider", "_version", "_first_seen", "_last_changed",
                  "_last_checked", "_gone_since", "_data")  # fmt: skip
# What it says of every version: `_valid_from` is when it was first scraped, `_valid_to` when the next one was.
VERSION_COLUMNS = ("_site", "_key", "_url", "_job", "_spider", "_version", "_valid_from", "_valid_to", "_gone", "_data")

# Names that would have to be quoted in a query, in one of the databases: they get an underscore.
RESERVED = frozenset(
    """
    add all alter analyse analyze and any array as asc asymmetric authorization autoincrement between binary both
    case cast check collate collation column commit concurrently constraint create cross current_catalog
    current_date current_role current_schema current_time current_timestamp current_user default deferrable delete
    desc distinct do drop else end escape except exists false fetch for foreign freeze from full grant group having
    ilike in index initially inner insert intersect into is isnull join lateral leading left like limit localtime
    localtimestamp natural not nothing notnull null offset on only or order outer overlaps placing primary raise
    references returning right select session_user set similar some symmetric system_user table tablesample then to
    trailing transaction true union unique update user using values variadic verbose when where window with
    """.split()  # noqa: SIM905 - a list of that length would have one word per line
)

_WORDS = re.compile(r"\W")
_UPPER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}  # what databases fold by themselves

# The kind of a column by the type in a schema (model/item.py); others are "json".
_KINDS = {
    "text": "text", "bool": "bool", "int": "int", "float": "float", "decimal": "decimal", "datetime": "datetime",
    "date": "date", "time": "text", "duration": "text", "bytes": "text",
}  # fmt: skip

Path = tuple[str, ...]  # of a value in the data of a record
Fields = dict[Path, str]  # and its kind


class TypedColumn(msgspec.Struct, frozen=True):
    """A column. The path is empty for what the store says, which has the name as its kind."""

    name: str
    path: Path
    kind: str


class ItemView(msgspec.Struct, frozen=True):
    """The view of a type, with its companions `NAME_history` and `NAME_changes`."""

    type: str
    name: str
    columns: tuple[TypedColumn, ...]


class Selected(msgspec.Struct, frozen=True):
    """The answer to a query. `more`: there are rows beyond the limit."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]  # Any: what the database holds
    more: bool


class ItemViews(Protocol):
    """The views of a record store, and queries on everything it holds."""

    async def refresh(self) -> tuple[list[ItemView], str]:
        """Make every view as it should be; return all, by name, and why some are not up to date, or ""."""

    async def select(self, sql: str, *, limit: int, seconds: float) -> Selected:
        """Answer one query, which cannot write. Raises Misconfigured if the database does not take it, or if it takes
        longer than that."""


def declared_fields(definition: str) -> Fields:
    """The columns for a schema: one for each field, two for money; none for one that cannot be read."""
    try:
        fields: Mapping[str, Mapping[str, Any]] = msgspec.json.decode(definition)["fields"]
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError):  # of another version, or damaged
        return {}
    found: Fields = {}
    for name, schema in fields.items():
        if schema["type"] == "money":
            found |= {(name, "amount"): "decimal", (name, "currency"): "text"}
        else:
            found[(name,)] = _KINDS.get(schema["type"], "json")
    return found


_DECODER = msgspec.json.Decoder()
_SEEN_KINDS = {str: "text", bool: "bool", dict: "json", list: "json", int: "number", float: "number"}

Shape = tuple[tuple[str, ...], tuple[type, ...]]  # the names of fields, and the types of their values


def shape_of(data: str) -> Shape:
    """The shape of a record that declares nothing."""
    try:
        fields = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return (), ()
    return (tuple(fields), tuple(map(type, fields.values()))) if type(fields) is dict else ((), ())


def seen_fields(shape: Shape) -> Fields:
    """The columns for such a record. Fields without a value have none yet."""
    return {(name,): _SEEN_KINDS[kind] for name, kind in zip(*shape, strict=True) if kind in _SEEN_KINDS}


def merge_fields(seen: Fields, more: Fields) -> Fields:
    """The columns for both: a field with values of two kinds may hold anything."""
    return seen | {path: kind if seen.get(path, kind) == kind else "json" for path, kind in more.items()}


def plan_view(
    type: str, known: ItemView | None, declared: Sequence[Fields], seen: Fields, taken: Collection[str]
) -> ItemView:
    """The view that a type should have. `declared` are its schemas, oldest first; `seen` is what records without a
    schema hold. `taken` are the names of everything else in the database."""
    wanted: Fields = {}
    for fields in declared:  # the newest says how a field is shown
        wanted |= fields
    columns = list(known.columns) if known is not None else []
    old = {column.path: column.kind for column in columns if column.path}
    wanted |= {path: kind for path, kind in merge_fields(old, seen).items() if path not in wanted}
    columns = [msgspec.structs.replace(one, kind=wanted.get(one.path, one.kind)) for one in columns]
    names = {column.name for column in columns} | {*STORED_COLUMNS, *VERSION_COLUMNS}
    room = MOST_COLUMNS - len(old)
    for path in [path for path in wanted if path not in old][: max(0, room)]:
        name = _free_name("_".join(path), names)
        names.add(name)
        columns.append(TypedColumn(name, path, wanted[path]))
    if known is None:
        columns += [TypedColumn(name, (), name) for name in STORED_COLUMNS]
    name = known.name if known is not None else _free_name(type, taken, ("", HISTORY, CHANGES))
    return ItemView(type, name, tuple(columns))


def _free_name(text: str, taken: Collection[str], endings: Iterable[str] = ("",)) -> str:
    """A name that needs no quotes in a query, and that neither of the databases confuses with one that is taken."""
    base = _WORDS.sub("_", text.translate(_UPPER))
    if not base or base[0].isdigit() or base.startswith("sqlite_"):
        base = f"_{base}"
    base = base.encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore")
    if base in RESERVED:
        base += "_"
    known, name, number = {one.lower() for one in taken}, base, 1
    while any((name + ending).lower() in known for ending in endings):
        number += 1
        name = f"{base}_{number}"
    return name
