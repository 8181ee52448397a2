"""One MongoDB database: the driver's pool, checks when it is opened, and the translation of all errors.

How it fails: every driver error is translated (errors.py). If the connection is lost during a write, it is unknown
whether it succeeded: every write must be safe to repeat. How it recovers: the driver reconnects on the next call.
Writes count when the majority of the members have them on disk; reads go to the primary. This overrides the address.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
from pymongo import AsyncMongoClient, IndexModel, InsertOne, ReadPreference, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, ConfigurationError, DuplicateKeyError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from ...errors import BackendUnavailable, BadState, Misconfigured, StoreRefused
from .address import Address, read_address
from .errors import DRIVER_ERRORS, DUPLICATE, EXAMPLE, translate, translate_at_work
from .layout import COLLECTIONS, INDEXES, LAYOUT

Document: TypeAlias = dict[str, Any]  # any fields
Write: TypeAlias = InsertOne[Document] | ReplaceOne[Document] | UpdateOne

OLDEST = "4.4"
OLDEST_WIRE = 9  # the wire version of 4.4
MAX_CONNECTIONS = 8  # per process: the sink's, and a few for reading
CONNECT_WITHIN = timedelta(seconds=10)
ANSWER_WITHIN = timedelta(seconds=60)  # for any single command; the driver repeats it once
CLOSE_WITHIN = timedelta(seconds=5)


class Written(msgspec.Struct, frozen=True):
    """The result of a batch of writes. `refused` are the indexes of those whose document's id was taken."""

    matched: int
    refused: frozenset[int] = frozenset()


class MongoDatabase:
    """A database with our collections. `open_database` creates and closes it.

    All its methods raise BackendUnavailable and other translated errors.
    """

    def __init__(self, database: AsyncDatabase[Document], address: Address, store: str) -> None:
        self._database = database
        self.address = address
        self.store = store  # the id of this store

    async def find(
        self,
        name: str,
        wanted: Mapping[str, Any],
        fields: Sequence[str] | None = None,
        *,
        order: Sequence[tuple[str, int]] = (),
        limit: int = 0,
        hint: str | None = None,
    ) -> list[Document]:
        """The matching documents, all in memory: callers ask for few."""
        with self._translated():
            found = self._collection(name).find(
                wanted, list(fields) if fields is not None else None, limit=limit, batch_size=limit
            )
            if order:
                found = found.sort(list(order))
            if hint is not None:
                found = found.hint(hint)
            return await found.to_list()

    async def stream(
        self, name: str, wanted: Mapping[str, Any], fields: Sequence[str], hint: str
    ) -> AsyncIterator[Document]:
        """As `find`, for readers that do not pause: the server drops idle cursors after ten minutes."""
        with self._translated():
            async with self._collection(name).find(wanted, list(fields)).hint(hint) as found:
                async for document in found:
                    yield document

    async def one(self, name: str, wanted: Mapping[str, Any], fields: Sequence[str] | None = None) -> Document | None:
        found = await self.find(name, wanted, fields, limit=1)
        return found[0] if found else None

    async def count(self, name: str, wanted: Mapping[str, Any]) -> int:
        with self._translated():
            return await self._collection(name).count_documents(wanted)

    async def change(self, name: str, wanted: Mapping[str, Any], update: Mapping[str, Any]) -> Document | None:
        """Change one document; return its new content, or None if no document matches."""
        with self._translated():
            return await self._collection(name).find_one_and_update(
                wanted, update, return_document=ReturnDocument.AFTER
            )

    async def change_all(self, name: str, wanted: Mapping[str, Any], update: Mapping[str, Any]) -> int:
        """Change all matching documents; return how many there were."""
        with self._translated():
            return (await self._collection(name).update_many(wanted, update)).matched_count

    async def put(self, name: str, document: Document) -> None:
        """Write one document, replacing any with the same id."""
        with self._translated():
            await self._collection(name).replace_one({"_id": document["_id"]}, document, upsert=True)

    async def delete(self, name: str, wanted: Mapping[str, Any]) -> int:
        with self._translated():
            return (await self._collection(name).delete_many(wanted)).deleted_count

    async def write(self, name: str, writes: Sequence[Write]) -> Written:
        """Do all of them, in any order. Insertions whose id is taken are refused, the others are done."""
        if not writes:
            return Written(0)
        with self._translated():
            try:
                done = await self._collection(name).bulk_write(writes, ordered=False)
            except BulkWriteError as error:
                details: Document = dict(error.details or {})
                errors = details.get("writeErrors", [])
                if details.get("writeConcernErrors") or any(one["code"] != DUPLICATE for one in errors):
                    raise
                return Written(details.get("nMatched", 0), frozenset(one["index"] for one in errors))
            return Written(done.matched_count)

    def _collection(self, name: str) -> AsyncCollection[Document]:
        return self._database[f"{self.address.prefix}.{name}"]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DRIVER_ERRORS as error:
            raise translate_at_work(error, self.address.place) from error


@asynccontextmanager
async def open_database(
    address: str, *, prefix: str, connect_within: timedelta = CONNECT_WITHIN
) -> AsyncIterator[MongoDatabase]:
    """Connect, check, create missing indexes. Raises Misconfigured, BadState, BackendUnavailable."""
    place = read_address(address, prefix)
    client = _client(place, connect_within)
    try:
        try:
            await _check_server(client, place)
            database = client.get_database(
                place.database,
                write_concern=WriteConcern(w="majority", j=True),
                read_concern=ReadConcern("local"),
                read_preference=ReadPreference.PRIMARY,
            )
            store = await _require_layout(database, place)
        except DRIVER_ERRORS as error:
            raise translate(error, place.place) from error
        yield MongoDatabase(database, place, store)
    finally:
        with suppress(*DRIVER_ERRORS):  # a server that is gone has already closed everything
            async with asyncio.timeout(CLOSE_WITHIN.total_seconds()):
                await client.close()


def _client(address: Address, connect_within: timedelta) -> AsyncMongoClient[Document]:
    patience = int(connect_within.total_seconds() * 1000)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # otherwise the driver would ignore unknown options
            return AsyncMongoClient(
                address.uri,
                appname="gossamer",
                maxPoolSize=MAX_CONNECTIONS,
                serverSelectionTimeoutMS=patience,
                connectTimeoutMS=patience,
                socketTimeoutMS=int(ANSWER_WITHIN.total_seconds() * 1000),
                waitQueueTimeoutMS=patience,
                retryWrites=True,
                retryReads=True,
            )
    except (ConfigurationError, UserWarning, ValueError, TypeError, OSError):  # their texts may quote the address
        raise Misconfigured(
            f"{address.place}: the address in `records` or an option in it cannot be read. Write it like {EXAMPLE}, "
            f"and see whether files that it names are there."
        ) from None


async def _check_server(client: AsyncMongoClient[Document], address: Address) -> None:
    hello = await client.admin.command("hello")
    if hello.get("maxWireVersion", 0) < OLDEST_WIRE:
        raise StoreRefused(f"{address.place} is too old; Gossamer needs MongoDB {OLDEST} or newer. Upgrade it.")
    if not hello.get("isWritablePrimary", False) or hello.get("readOnly", False):
        # Never a wrong setting: it may have been the primary a moment ago, and may be it again.
        raise BackendUnavailable(f"{address.place} is a read-only member. Set `records` to the address of the primary.")


async def _require_layout(database: AsyncDatabase[Document], address: Address) -> str:
    """Create the store if it does not exist; return its id. Raises BadState for one that a newer version made."""
    collection = database[f"{address.prefix}.store"]
    for first in (
        {"_id": "store", "id": uuid4().hex[:12], "layout": LAYOUT},
        {"_id": "marks", "revision": 1, "records": 0, "pages": 0, "open": {}},
    ):
        if await collection.find_one({"_id": first["_id"]}, ["_id"]) is None:
            with suppress(DuplicateKeyError):  # another process has just created it
                await collection.insert_one(first)
    store = await collection.find_one({"_id": "store"})
    if store is None or not isinstance(store.get("layout"), int) or not isinstance(store.get("id"), str):
        raise BadState(f"{address.place} has a collection {address.prefix}.store that does not belong to Gossamer.")
    if store["layout"] > LAYOUT:
        raise BadState(
            f"{address.place} was made by a newer Gossamer (layout {store['layout']}; this one knows {LAYOUT}). "
            f"Upgrade Gossamer here."
        )
    for name in COLLECTIONS:
        models = [
            IndexModel([(field, 1) for field in fields], name=index, **({"sparse": True} if sparse else {}))
            for index, (collection_name, fields, sparse) in INDEXES.items()
            if collection_name == name
        ]
        if models:
            await database[f"{address.prefix}.{name}"].create_indexes(models)
    found: str = store["id"]
    return found
