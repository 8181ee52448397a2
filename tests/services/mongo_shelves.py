"""What the stand-in for MongoDB holds, and the commands that read and change it. Its semantics are mongomock's.

Done here by hand, because mongomock has it not, or reads every document for it:

- names (`_id`) that a filter asks for, alone, in a list or between two bounds, are found without reading all documents;
- the choice of fields of `find`;
- documents that MongoDB 4.4 would refuse: too large, nested too deeply, names with a dot or a leading dollar sign.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

import bson
import mongomock
from mongomock.aggregate import process_pipeline
from mongomock.filtering import filter_applies
from pymongo.errors import DuplicateKeyError

MOST = 16 * 1024 * 1024  # bytes of a document
DEEPEST = 100

Document = dict[str, Any]


class Refused(Exception):
    """An error that a command is answered with."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Shelf(mongomock.Collection):  # type: ignore[misc]  # mongomock's types are of pymongo's, without its own insides
    """A collection whose names are kept in order. All names of one have the same type and length."""

    def __init__(self, database: Any, name: str) -> None:
        super().__init__(database, name, database._store)
        self._names: list[Any] = []

    def _insert(self, data: Any, session: Any = None, ordered: bool = True) -> Any:
        demand_storable(data)
        name = super()._insert(data, session, ordered)
        insort(self._names, name)
        return name

    def drop_names(self, wanted: Document) -> int:
        names = [document["_id"] for document in self._iter_documents(wanted)]
        for name in names:
            del self._store[name]
            del self._names[bisect_left(self._names, name)]
        return len(names)

    def _iter_documents(self, filter: Document) -> Iterator[Document]:
        names, rest = self._named(filter)
        documents = (self._store[name] for name in names if name in self._store)
        return (one for one in list(documents) if not rest or filter_applies(rest, one))

    def _named(self, wanted: Document) -> tuple[Iterable[Any], Document]:
        """The names that a filter can mean, and what else it demands."""
        if "_id" not in wanted:
            return self._names, wanted
        asked, rest = wanted["_id"], {key: value for key, value in wanted.items() if key != "_id"}
        if not isinstance(asked, dict):
            return [asked], rest
        if set(asked) == {"$in"}:
            return sorted(set(asked["$in"])), rest
        bounds = {"$gte": (0, b""), "$gt": (0, b"\0"), "$lt": (1, b""), "$lte": (1, b"\0")}
        ends = [0, len(self._names)]
        for operator, value in asked.items():
            side, addition = bounds[operator]
            ends[side] = bisect_left(self._names, value + addition)
        return self._names[ends[0] : ends[1]], rest


def demand_storable(document: Any, level: int = 1) -> None:
    """Raises Refused for what MongoDB 4.4 would not store."""
    if level == 1 and len(bson.encode(document)) > MOST:
        raise Refused(10334, "object to insert too large")
    if level > DEEPEST:
        raise Refused(15, "exceeded depth limit")
    if isinstance(document, dict):
        for name in document:
            if name.startswith("$") or "." in name:
                raise Refused(52 if name.startswith("$") else 57, f"the field {name!r} is not valid for storage")
    for value in document.values() if isinstance(document, dict) else document:
        if isinstance(value, (dict, list)):
            demand_storable(value, level + 1)


def choose(document: Document, fields: Document | None) -> Document:
    """The fields that are asked for; `_id` is always among them."""
    if not fields:
        return document
    return {"_id": document["_id"], **{name: document[name] for name in fields if name in document}}


def insert(shelf: Shelf, command: Document) -> Document:
    errors = []
    for place, document in enumerate(command["documents"]):
        try:
            shelf._insert(document)
        except (DuplicateKeyError, Refused) as error:
            errors.append(write_error(place, error))
            if command.get("ordered", True):
                break
    return {"n": len(command["documents"]) - len(errors), **({"writeErrors": errors} if errors else {})}


def update(shelf: Shelf, command: Document) -> Document:
    matched, modified, upserted, errors = 0, 0, [], []
    for place, one in enumerate(command["updates"]):
        if not next(iter(one["u"]), "").startswith("$"):
            demand_storable(one["u"])
        try:
            done = shelf._update(one["q"], one["u"], upsert=one.get("upsert", False), multi=one.get("multi", False))
        except (DuplicateKeyError, Refused) as error:
            errors.append(write_error(place, error))
            if command.get("ordered", True):
                break
            continue
        matched += done["n"]
        modified += done["nModified"]
        if done["upserted"] is not None:
            upserted.append({"index": place, "_id": done["upserted"]})
    answer: Document = {"n": matched, "nModified": modified}
    return {**answer, **({"upserted": upserted} if upserted else {}), **({"writeErrors": errors} if errors else {})}


def delete(shelf: Shelf, command: Document) -> Document:
    if any(one["limit"] for one in command["deletes"]):
        raise Refused(115, "this stand-in deletes all that are meant, or nothing")
    return {"n": sum(shelf.drop_names(one["q"]) for one in command["deletes"])}


def find_and_modify(shelf: Shelf, command: Document) -> Document:
    found = shelf._find_and_modify(
        command["query"], update=command["update"], upsert=command.get("upsert", False), new=command.get("new", False)
    )
    return {"value": found, "lastErrorObject": {"n": int(found is not None), "updatedExisting": found is not None}}


def aggregate(shelf: Shelf, command: Document) -> Document:
    match, *rest = command["pipeline"]
    found = list(process_pipeline(list(shelf._iter_documents(match["$match"])), shelf.database, rest, None))
    name = f"{command['$db']}.{command['aggregate']}"
    return {"cursor": {"id": bson.Int64(0), "ns": name, "firstBatch": found}}


def create_indexes(shelf: Shelf, command: Document) -> Document:
    for index in command["indexes"]:
        known = shelf._store.indexes.get(index["name"])
        if known is not None and known != index["key"]:
            raise Refused(86, f"an index of the name {index['name']} has another key")
        shelf._store.create_index(index["name"], index["key"])
    return {}


def write_error(place: int, error: DuplicateKeyError | Refused) -> Document:
    return {"index": place, "code": error.code, "errmsg": str(error)}
