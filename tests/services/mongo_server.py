"""A stand-in for MongoDB: a server on a loopback socket that speaks its wire protocol, and answers from mongomock.

So the real driver runs over a real socket, with its pools, batches and errors. This is not MongoDB. It is a single
member without sessions, replication, query planner, users and time limits; it keeps nothing on disk. It knows the
commands that the record store uses, and refuses all others. What they do is in mongo_shelves.py.

Tests can make it fail: `fail` answers a command with an error, `stop` and `hang_up` cut connections.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import bson
import mongomock

from tests.patience import PATIENCE

from . import mongo_shelves
from .mongo_shelves import MOST, Document, Refused, Shelf

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013
FIRST_BATCH = 101  # documents in the first answer of a `find` that names no number
WRITES = ("insert", "update", "delete", "findAndModify")


class Fault(NamedTuple):
    """What happens to a command, before or after it was done: an error is the answer, or (no code) there is none."""

    code: int | None
    done: bool


class Gate:
    """Where a command waits until a test lets it go on. Others pass meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open = asyncio.Event()
        self._reached = threading.Event()

    async def reached(self) -> None:
        """Return when the command has come."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE)

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    async def wait(self) -> None:
        self._reached.set()
        await self._open.wait()


class MongoServer:
    """One stand-in. `start` and `stop` as often as a test likes; what it holds stays until `close`."""

    def __init__(self) -> None:
        self._client: Any = mongomock.MongoClient()
        self._shelves: dict[tuple[str, str], Shelf] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mongo stand-in", daemon=True)
        self._thread.start()
        self._listener: asyncio.Server | None = None
        self._lines: set[asyncio.StreamWriter] = set()
        self._cursors: dict[int, deque[Document]] = {}
        self._next_cursor = 1
        self._faults: list[tuple[Callable[[str, str], bool], Fault]] = []
        self._gates: list[tuple[str, str, Gate]] = []
        self.hello: Document = {}  # what `hello` says beside or instead of the usual
        self.asked: list[tuple[str, str]] = []  # every command and its collection, since a test cleared it
        self.port = 0

    def address(self, database: str = "crawls", *, user: str = "") -> str:
        return f"mongodb://{user and user + '@'}127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        async def listen() -> None:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._listener.sockets[0].getsockname()[1]

        self._run(listen())

    def stop(self) -> None:
        """As a crash would: nobody can connect any more, and everybody is cut off."""

        async def close() -> None:
            if self._listener is not None:
                self._listener.close()
                self._listener = None
            self._cut()

        self._run(close())

    def hang_up(self) -> None:
        """Cut every connection, and take new ones."""

        async def cut() -> None:
            self._cut()

        self._run(cut())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    def fail(
        self, command: str, collection: str = "", *, code: int | None = 50, done: bool = False, skip: int = 0
    ) -> None:
        """The next command of that name on a collection whose name ends so fails once, after `skip` that do not.

        Without a code, its connection is cut.
        """
        left = skip

        def applies(name: str, where: str) -> bool:
            nonlocal left
            if name != command or not where.endswith(collection):
                return False
            left -= 1
            return left < 0

        self._faults.append((applies, Fault(code, done)))

    def fail_write(self, number: int, *, done: bool) -> None:
        """The write of that number from now on (counted from 0) fails once."""
        left = number

        def applies(name: str, where: str) -> bool:
            nonlocal left
            if name not in WRITES:
                return False
            left -= 1
            return left < 0

        self._faults.append((applies, Fault(50, done)))

    def gate(self, command: str, collection: str) -> Gate:
        """The next command of that name on a collection whose name ends so waits there."""
        gate = Gate(self._loop)
        self._gates.append((command, collection, gate))
        return gate

    @property
    def faults_left(self) -> int:
        return len(self._faults)

    def documents(self, collection: str, database: str = "crawls") -> list[Document]:
        """Every document of a collection, to look at or to spoil."""
        return [*self._shelf(database, collection)._store.documents]

    # -- the wire --------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines.add(writer)
        try:
            while True:
                size, number, _, code = struct.unpack("<iiii", await reader.readexactly(16))
                body = await reader.readexactly(size - 16)
                command = read_query(body) if code == OP_QUERY else read_message(body)
                await self._pass_gates(command)
                answer = self._answer(command)
                if answer is None:
                    return
                writer.write(packed(answer, number, legacy=code == OP_QUERY))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._lines.discard(writer)
            writer.transport.abort()

    def _answer(self, command: Document) -> Document | None:
        """None: hang up."""
        name = next(iter(command))
        where = str(command.get("collection" if name == "getMore" else name))
        self.asked.append((name, where))
        fault = self._fault(name, where)
        if fault is not None and not fault.done:
            return failure(Refused(fault.code, "made to fail")) if fault.code is not None else None
        try:
            answer = self._do(name, command)
        except Refused as refused:
            return failure(refused)
        except NotImplementedError as error:
            return failure(Refused(115, str(error)))
        if fault is not None:
            return failure(Refused(fault.code, "made to fail")) if fault.code is not None else None
        return {**answer, "ok": 1.0}

    async def _pass_gates(self, command: Document) -> None:
        name = next(iter(command))
        for one in self._gates:
            if one[0] == name and str(command[name]).endswith(one[1]):
                self._gates.remove(one)
                await one[2].wait()
                return

    def _fault(self, name: str, where: str) -> Fault | None:
        for place, (applies, fault) in enumerate(self._faults):
            if applies(name, where):
                del self._faults[place]
                return fault
        return None

    def _cut(self) -> None:
        for writer in self._lines:
            writer.transport.abort()
        self._lines.clear()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    # -- commands --------------------------------------------------------------------------------------------------

    def _do(self, name: str, command: Document) -> Document:
        if name in ("hello", "ismaster", "isMaster"):
            return {
                "ismaster": True, "isWritablePrimary": True, "helloOk": True, "readOnly": False, "minWireVersion": 0,
                "maxWireVersion": 9, "maxBsonObjectSize": MOST, "maxMessageSizeBytes": 48_000_000,
                "maxWriteBatchSize": 100_000, "localTime": datetime.now(UTC), **self.hello,
            }  # fmt: skip
        if name in ("ping", "endSessions", "killCursors"):
            return {}
        if name == "saslStart":
            raise Refused(18, "Authentication failed.")
        if name == "getMore":
            return self._batch(command["getMore"], command["$db"], command["collection"], command.get("batchSize", 0))
        work = {
            "find": self._find,
            "insert": mongo_shelves.insert,
            "update": mongo_shelves.update,
            "delete": mongo_shelves.delete,
            "findAndModify": mongo_shelves.find_and_modify,
            "aggregate": mongo_shelves.aggregate,
            "createIndexes": mongo_shelves.create_indexes,
        }.get(name)
        if work is None:
            raise Refused(59, f"no such command: '{name}'")
        shelf = self._shelf(command["$db"], command[name])
        return work(shelf, command)

    def _shelf(self, database: str, name: str) -> Shelf:
        key = (database, name)
        if key not in self._shelves:
            self._shelves[key] = Shelf(self._client[database], name)
        return self._shelves[key]

    def _find(self, shelf: Shelf, command: Document) -> Document:
        found = list(shelf._iter_documents(command.get("filter", {})))
        for field, direction in reversed(list(command.get("sort", {}).items())):
            found.sort(key=lambda one: one[field], reverse=direction < 0)
        limit = command.get("limit", 0)
        fields = command.get("projection")
        chosen = deque(mongo_shelves.choose(one, fields) for one in (found[:limit] if limit else found))
        cursor = self._next_cursor
        self._next_cursor += 1
        self._cursors[cursor] = chosen
        answer = self._batch(cursor, command["$db"], command["find"], command.get("batchSize", FIRST_BATCH))
        answer["cursor"]["firstBatch"] = answer["cursor"].pop("nextBatch")
        return answer

    def _batch(self, cursor: int, database: str, name: str, size: int) -> Document:
        """The next documents of a cursor: so many, and not more than fit into an answer."""
        if cursor not in self._cursors:
            raise Refused(43, f"cursor id {cursor} not found")
        rest, batch, room = self._cursors[cursor], [], MOST
        while rest and (not size or len(batch) < size):
            room -= len(bson.encode(rest[0]))
            if batch and room < 0:
                break
            batch.append(rest.popleft())
        if not rest:
            del self._cursors[cursor]
        return {"cursor": {"id": bson.Int64(cursor if rest else 0), "ns": f"{database}.{name}", "nextBatch": batch}}


def failure(refused: Refused) -> Document:
    return {"ok": 0.0, "errmsg": str(refused), "code": refused.code, "codeName": f"Code{refused.code}"}


def read_query(body: bytes) -> Document:
    """The command of an OP_QUERY, in which a driver says hello for the first time."""
    start = body.index(b"\0", 4) + 1 + 8
    return bson.decode(body[start : start + int.from_bytes(body[start : start + 4], "little")])


def read_message(body: bytes) -> Document:
    """The command of an OP_MSG: one document, and lists of documents that belong to it."""
    command: Document = {}
    lists: Document = {}
    place = 4
    while place < len(body):
        kind, place = body[place], place + 1
        end = place + int.from_bytes(body[place : place + 4], "little")
        if kind == 0:
            command = bson.decode(body[place:end])
        else:
            stop = body.index(b"\0", place + 4)
            lists[body[place + 4 : stop].decode()] = bson.decode_all(body[stop + 1 : end])
        place = end
    return {**command, **lists}


def packed(answer: Document, to: int, *, legacy: bool) -> bytes:
    document = bson.encode(answer)
    body = struct.pack("<iqii", 8, 0, 0, 1) + document if legacy else struct.pack("<iB", 0, 0) + document
    return struct.pack("<iiii", 16 + len(body), 0, to, OP_REPLY if legacy else OP_MSG) + body
