"""A collection of MongoDB as the target of an output: a document per record, its `_id` the type, site and key.

An older version never replaces a newer one. How it fails: Misconfigured, BackendUnavailable; BatchRefused for a
document that cannot be encoded; one that is too large, or that the server refuses, is returned. How it recovers: a
batch may be repeated.
"""

from __future__ import annotations

from typing import Any

from ...errors import BackendUnavailable, BatchRefused, GossamerError, LeaseLost, Misconfigured, MissingExtra
from ...store.outputs.contract import BYTES_AT_ONCE, DELETE, PUT, Batch, Change, Refused
from ...store.outputs.plan import Plan, moment

ROWS_AT_ONCE = 500
FENCES = "gossamer_outputs"
AT = "_last_changed"
SELECT_WITHIN = 10_000  # milliseconds
DUPLICATE = 11000
MOST_BYTES = 16 * 1024 * 1024  # of a document
REFUSALS = (2, 15, 52, 56, 121, 10334, 17280)  # a value, a name or a size that the server does not take


class MongoOutput:
    """Fulfils `Output`. `url` is an address of the driver, without the collection."""

    rows_at_once = ROWS_AT_ONCE
    bytes_at_once = BYTES_AT_ONCE
    mirrors = True
    numbered = False

    def __init__(self, url: str, database: str, collection: str, place: str, plan: Plan, id: str) -> None:
        try:
            import pymongo
            from pymongo import errors
        except ImportError as error:
            raise MissingExtra("Outputs to MongoDB need one more package: pip install 'gossamer[mongodb]'.") from error
        self._driver: Any = pymongo
        self._errors: Any = errors
        self._plan = plan
        self._id = id
        self._place = place
        try:
            self._client: Any = pymongo.AsyncMongoClient(
                url, serverSelectionTimeoutMS=SELECT_WITHIN, tz_aware=True, appname="gossamer", retryWrites=False
            )
        except (errors.PyMongoError, ValueError):
            raise Misconfigured(
                f"{place}: the address cannot be read. Write mongodb://host/database/collection."
            ) from None
        self._database = self._client[database]
        self._rows = self._database[collection]

    async def close(self) -> None:
        await self._client.close()

    async def count(self) -> int | None:
        try:
            return int(await self._rows.count_documents({}))
        except self._errors.PyMongoError as error:
            raise self._translated(error) from error

    async def check(self) -> str:
        try:
            await self._client.admin.command("ping")
        except self._errors.PyMongoError as error:
            raise self._translated(error) from error
        return f"{self._place} answers."

    async def write(self, batch: Batch) -> list[Refused]:
        try:
            await self._demand_fence(batch.fence)
            return await self._write(batch)
        except self._errors.PyMongoError as error:
            raise self._translated(error) from error

    async def _demand_fence(self, fence: int) -> None:
        fences = self._database[FENCES]
        try:
            await fences.update_one(
                {"_id": self._id, "fence": {"$lte": fence}}, {"$set": {"fence": fence}}, upsert=True
            )
        except self._errors.DuplicateKeyError:
            raise LeaseLost(f"Another process writes to {self._place} now.") from None

    async def _write(self, batch: Batch) -> list[Refused]:
        driver = self._driver
        writes: list[Any] = []
        refused: list[Refused] = []
        written: list[Change] = []
        for one in batch.changes:
            id = "/".join(one.identity)
            if one.kind != PUT:
                guard = {AT: {"$lte": moment(one.at)}} if one.kind == DELETE else {}
                writes.append(driver.DeleteOne({"_id": id, **guard}))
                written.append(one)
                continue
            document = {**_document(one), "_id": id, AT: moment(one.at)}
            if one.size > MOST_BYTES // 4 and (size := self._encoded_size(document)) > MOST_BYTES:
                refused.append(Refused(one, f"The document has {size:,} bytes; MongoDB takes {MOST_BYTES:,}."))
                continue
            writes.append(driver.ReplaceOne({"_id": id, AT: {"$lte": document[AT]}}, document, upsert=True))
            written.append(one)
        if not writes:
            return refused
        try:
            await self._rows.bulk_write(writes, ordered=False)
        except self._errors.BulkWriteError as error:
            details = error.details or {}
            if details.get("writeConcernErrors"):
                raise BackendUnavailable(f"{self._place} did not confirm a write.") from error
            # A duplicate `_id` means that a newer version is there: nothing to do.
            return refused + [
                Refused(written[one["index"]], str(one.get("errmsg", "refused")))
                for one in details.get("writeErrors", [])
                if one.get("code") != DUPLICATE
            ]
        except (self._errors.InvalidDocument, OverflowError, ValueError) as error:  # it does not say which one it is
            raise BatchRefused(str(error)) from error
        return refused

    def _encoded_size(self, document: dict[str, Any]) -> int:
        import bson  # comes with the driver

        try:
            return len(bson.encode(document))
        except (self._errors.InvalidDocument, OverflowError, ValueError) as error:
            raise BatchRefused(str(error)) from error

    def _translated(self, error: Exception) -> GossamerError:
        errors = self._errors
        if isinstance(error, errors.OperationFailure) and error.code in (13, 18, 8000):  # not allowed, wrong login
            return Misconfigured(f"{self._place} refuses the login or the rights of its user.")
        if isinstance(error, errors.ConfigurationError | errors.InvalidURI | errors.InvalidName):
            return Misconfigured(f"{self._place}: the address cannot be used.")
        if isinstance(error, errors.OperationFailure) and error.code in REFUSALS:
            return BatchRefused(str(error))
        return BackendUnavailable(f"{self._place} does not answer ({type(error).__name__}).")


def _document(change: Change) -> dict[str, Any]:
    return {name: _fit(value) for name, value in change.row.items()}


def _fit(value: Any) -> Any:
    """BSON has no integers beyond 64 bits."""
    if isinstance(value, dict):
        return {str(name): _fit(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_fit(inner) for inner in value]
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
