"""What a database offers to the shared record store, and how the two dialects of SQL differ."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ...model.record import PageFacts, PageResult
from ...store.contract import RecordQuery
from .changes import Identity

T = TypeVar("T")
Row = tuple[Any, ...]  # Any: the types of a row are those of the schema


class SqlSession(Protocol):
    """A transaction. Texts are given and returned as they are; a list is one value, for `= ANY ($1::text[])`."""

    async def rows(self, sql: str, *values: Any) -> list[Row]: ...

    async def run(self, sql: str, *values: Any) -> int:
        """Return how many rows were changed."""

    async def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run it once for each row of values."""

    async def define(self, sql: str) -> None:
        """Run a statement as it is, without values: it makes or removes a view."""

    async def lock_records(self, numbers: Sequence[int]) -> list[int]:
        """Keep others from changing these records until the transaction ends; return those that still exist."""


class BatchWriter(Protocol):
    """The transaction that writes a batch of results, or loads rows. Its texts are written as they are given."""

    words: Dialect

    async def rows(self, sql: str, *values: Any) -> list[Row]: ...

    async def run(self, sql: str, *values: Any) -> int: ...

    async def find(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """What a statement of statements.py finds for these rows of values."""

    async def write(self, sql: str, rows: Sequence[Row]) -> None:
        """Run a statement of statements.py for these rows of values."""

    def hashed(self, *texts: str) -> tuple[bytes, ...]:
        """The values of `Dialect.hashes` for a row with these texts."""

    def identity(self, type: str, site: str, key: str) -> Identity: ...

    def content(self, data: str) -> tuple[str | None, ...]:
        """The values of `Dialect.contents` for a record with this text."""

    async def lock_pages(self, fingerprints: Sequence[bytes]) -> list[Row]:
        """Of the known ones of these pages: fingerprint, number, fetched_at and body_hash."""

    async def add_pages(self, rows: Sequence[Row]) -> dict[bytes, int]:
        """Add pages, of which PAGE_FIELDS are given; return their numbers."""

    async def set_apart(self, facts: Sequence[tuple[int, PageFacts]]) -> None:
        """Called before pages get new facts: rows that do not repeat what their page says get values of their own."""

    async def lock_records(self, identities: Collection[Identity], pages: Sequence[int]) -> list[Row]:
        """Of the known ones of these records: the identity and the fields of `Held`. Those that these pages gave last
        are locked as well, and may be returned."""

    async def add_records(self, records: Sequence[tuple[Identity, Row]]) -> dict[Identity, int]:
        """Add records, of which the columns of `Dialect.added` are given; return their numbers."""

    async def add_attempts(self, rows: Sequence[Row]) -> None:
        """Add attempts that are not known yet: the number of the page, then ATTEMPT_FIELDS."""

    async def count_attempts(self, results: Sequence[PageResult], rows: Sequence[Row]) -> Sequence[PageResult]:
        """Add the attempts of these results, and count the new ones in the figures; return the results with these."""

    async def add_visits(self, rows: Sequence[Row]) -> None:
        """Add visits that are not known yet: the number of the page, then VISIT_FIELDS."""


class SqlDatabase(Protocol):
    """A database with our tables. Its methods raise BackendUnavailable and other translated errors."""

    dialect: Dialect

    async def rows(self, sql: str, *values: Any, quick: bool = False) -> list[Row]:
        """Read in one statement; a `quick` one finds a few rows by their identity."""

    async def look_up(self, sql: str, *values: Any) -> list[Row]:
        """As `rows`, for few rows of tables that may be huge: indexes are used, whatever the statistics say."""

    async def transact(self, work: Callable[[SqlSession], Awaitable[T]]) -> T:
        """Run `work` in one transaction; return its result once that is on disk. `work` may run several times."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The words in which two databases differ, where they run the same statement."""

    kind: str  # of cursors
    newest: str  # a statement: the store's id, and the place of its next change
    text: str  # the column with the JSON text of a record
    contents: str  # all columns that hold what a record says
    hashes: tuple[str, ...]  # the column by which rows with long keys are found; none: by the keys themselves
    visits: str  # the table of visits, to be written
    revision: str  # the place of the changes of a batch
    scanned: str  # the records, to be read in the order of their numbers
    place: str  # of a change, as the table holds it; {} is its number
    next_place: str  # of the changes of this transaction
    identity: Callable[[str, str, str], tuple[Any, ...]]  # of type, site and key: the values of ...
    identified: Callable[[int], str]  # ... the condition that finds that record, numbered from there
    with_key: Callable[[RecordQuery], tuple[str, tuple[Any, ...]]]  # numbers of the records with the key of a query
    attempts: str  # the table of attempts, to be written
    marking: str  # before records are marked as erased: it waits for batches in progress; "" where writers take turns
    erasing: str  # before records are erased; "": nothing is needed
    prunes: tuple[str, ...]  # delete attempts and replaced visits of pages from $1 to $2 that are older than $3

    @property
    def added(self) -> tuple[str, ...]:
        """The columns of a new record that are the same in every dialect."""
        return ("type", "site", "key", "url", "job", "spider", *self.contents.split(", "), "content_hash", "first_seen",
                "last_changed", "last_checked", "version", "page", "schema", "gone_since")  # fmt: skip


async def names_of(database: SqlDatabase, table: str, column: str) -> list[str]:
    """Every job or spider in a table whose key starts with it: one index step for each, instead of a scan."""
    found: list[str] = []
    first = f"SELECT min({column}) FROM @{table}"  # noqa: S608 - our own names
    rows = await database.look_up(first)
    while (name := rows[0][0]) is not None:
        found.append(name)
        rows = await database.look_up(f"{first} WHERE {column} > $1", name)
    return found
