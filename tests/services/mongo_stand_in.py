"""A stand-in for a MongoDB server: it speaks as much of the wire protocol (OP_MSG) as an output needs, and keeps
documents in memory. It is no proof that a real server does the same."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import bson

HELLO = {
    "ismaster": True, "isWritablePrimary": True, "helloOk": True, "minWireVersion": 0, "maxWireVersion": 21,
    "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
    "readOnly": False, "ok": 1,
}  # fmt: skip
QUERY, REPLY, MSG = 2004, 1, 2013
DUPLICATE = 11000

Document = dict[str, Any]


class MongoStandIn:
    """`collections` are the documents by the name of the database and the collection, and by `_id`."""

    def __init__(self) -> None:
        self.collections: dict[str, dict[Any, Document]] = {}
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size, id, _, kind = struct.unpack("<4i", await reader.readexactly(16))
                body = await reader.readexactly(size - 16)
                if kind == QUERY:
                    answer = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(HELLO)
                    writer.write(struct.pack("<4i", 16 + len(answer), 0, id, REPLY) + answer)
                else:
                    answer = b"\0\0\0\0\0" + bson.encode(self._answer(_command(body)))
                    writer.write(struct.pack("<4i", 16 + len(answer), 0, id, MSG) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, command: Document) -> Document:
        name = next(iter(command))
        if name.lower() in ("hello", "ismaster"):
            return HELLO
        if name in ("ping", "endSessions"):
            return {"ok": 1}
        there = self.collections.setdefault(f"{command['$db']}.{command[name]}", {})
        if name == "update":
            return self._update(there, command["updates"])
        if name == "delete":
            found = [asked["q"]["_id"] for asked in command["deletes"] if _find(there, asked["q"]) is not None]
            for id in found:
                del there[id]
            return {"ok": 1, "n": len(found)}
        if name == "aggregate":  # as count_documents asks
            counted = [{"_id": 1, "n": len(there)}] if there else []
            return {"ok": 1, "cursor": {"id": 0, "ns": "", "firstBatch": counted}}
        return {"ok": 0, "code": 59, "errmsg": f"no such command: {name}"}

    def _update(self, there: dict[Any, Document], updates: list[Document]) -> Document:
        errors: list[Document] = []
        upserted: list[Document] = []
        for index, asked in enumerate(updates):
            wanted, change = asked["q"], asked["u"]
            own = {key: value for key, value in wanted.items() if not isinstance(value, dict)}
            known = _find(there, wanted)
            if known is None and asked.get("upsert") and own["_id"] in there:
                errors.append({"index": index, "code": DUPLICATE, "errmsg": "E11000 duplicate key error"})
            elif known is not None or asked.get("upsert"):
                new = {**(known or own), **change["$set"]} if "$set" in change else {**change}
                there[new["_id"]] = new
                if known is None:
                    upserted.append({"index": index, "_id": new["_id"]})
        told: Document = {"ok": 1, "n": len(updates) - len(errors), "nModified": 0}
        return {**told, **({"upserted": upserted} if upserted else {}), **({"writeErrors": errors} if errors else {})}


def _command(body: bytes) -> Document:
    place, found = 4, dict[str, Any]()
    while place < len(body):
        kind, place = body[place], place + 1
        (size,) = struct.unpack_from("<i", body, place)
        if kind == 0:
            found = {**bson.decode(body[place : place + size]), **found}
            place += size
            continue
        end, start = place + size, body.index(b"\0", place + 4)
        name, place, documents = body[place + 4 : start].decode(), start + 1, []
        while place < end:
            (one,) = struct.unpack_from("<i", body, place)
            documents.append(bson.decode(body[place : place + one]))
            place += one
        found = {**found, name: documents}
    return found


def _find(there: dict[Any, Document], wanted: Document) -> Document | None:
    """Every query of an output names one document."""
    document = there.get(wanted["_id"])
    return document if document is not None and _fits(document, wanted) else None


def _fits(document: Document, wanted: Document) -> bool:
    for key, value in wanted.items():
        own = document.get(key)
        if isinstance(value, dict):
            if own is None or not own <= value["$lte"]:
                return False
        elif own != value:
            return False
    return True


@asynccontextmanager
async def mongo_stand_in() -> AsyncIterator[MongoStandIn]:
    stand_in = MongoStandIn()
    server = await asyncio.start_server(stand_in.serve, "127.0.0.1", 0)
    stand_in.port = server.sockets[0].getsockname()[1]
    try:
        yield stand_in
    finally:
        server.close()
