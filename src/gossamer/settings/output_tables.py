"""[outputs.NAME]: where records are written as they change; and checks of these tables. docs/outputs.md says what each
does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta

import msgspec

from ..errors import Misconfigured
from ..model.row_filter import row_filter
from ..units import Secret

SQL = ("postgresql", "postgres", "sqlite", "duckdb")
SCHEMES = (*SQL, "mongodb", "mongodb+srv", "s3", "folder", "https", "http")
GONE = DELETE, FLAG, KEEP = ("delete", "flag", "keep")
ONLY = ("", "new", "changed")
MOST = 50  # outputs of a project
LONGEST_PAUSE = timedelta(days=1)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


class OutputTable(msgspec.Struct, frozen=True, kw_only=True):
    """One output: an address, or a class of the project in `use`. ${NAME} in `url` and `options` is a secret."""

    url: Secret = Secret("")
    use: str = ""  # module:Class
    options: tuple[str, ...] = ()  # name=value, passed to the class
    types: tuple[str, ...] = ()  # of items; empty: all
    spiders: tuple[str, ...] = ()  # whose records; empty: all
    columns: dict[str, str] = {}  # of the target, each with the field of the item that fills it; empty: all
    key: tuple[str, ...] = ()  # the columns that identify a row
    where: str = ""  # which records: price.amount < 10
    only: str = ""  # new: seen for the first time; changed: seen before; empty: both
    gone: str = FLAG  # what becomes of the row of a record that is gone
    history: str = ""  # a table with a row for each version
    every: timedelta = timedelta(minutes=5)  # files: at the latest after this time a new one is written
    allow_private: bool = False  # https: may the receiver be in a private network?


def output_faults(outputs: Mapping[str, OutputTable]) -> Iterator[tuple[str, str]]:
    """What is wrong with them: the dotted key, and a sentence."""
    if len(outputs) > MOST:
        yield "outputs", f"there may be {MOST}."
    for name, table in outputs.items():
        key = f"outputs.{name}"
        if not _NAME.fullmatch(name):
            yield key, "its name must be at most 40 letters, digits, dashes and underscores."
        for field, fault in table_faults(table):
            yield f"{key}.{field}", fault


def table_faults(table: OutputTable) -> Iterator[tuple[str, str]]:
    """What is wrong with one of them: the field, and a sentence."""
    url = table.url.reveal()
    scheme = url.partition("://")[0].lower()
    if table.use and url:
        yield "use", "names a class of your own, and `url` another target. Leave one of them out."
        return
    if not url and not table.use:
        yield (
            "url",
            "is needed: where the records go, such as postgresql://user@host/database/products. A class of your own is "
            'named by use = "module:Class".',
        )
        return
    if table.options and not table.use:
        yield "options", "are for a class of your own, named by `use`."
    for option in table.options:
        if "=" not in option:
            yield "options", "must each be written as name=value."
    if url and ("://" not in url or scheme not in SCHEMES):  # the message must not repeat it: it may hold a password
        yield (
            "url",
            f"is not an address of an output. It begins with one of {', '.join(f'{one}://' for one in SCHEMES)}.",
        )
        return
    if table.gone not in GONE:
        yield "gone", f"must be one of {', '.join(GONE)}."
    if table.only not in ONLY:
        yield "only", "must be new or changed, or be left out."
    if not timedelta(seconds=1) <= table.every <= LONGEST_PAUSE:
        yield "every", "must be between 1s and 1d."
    if table.history and scheme not in SQL:
        yield "history", "is for tables of PostgreSQL, SQLite and DuckDB; the other outputs tell every change anyway."
    for column in table.key:
        if table.columns and column not in table.columns:
            yield "key", f"{column!r} is not one of the columns."
    try:
        if table.where:
            row_filter(table.where)
    except Misconfigured as error:
        yield "where", str(error)
