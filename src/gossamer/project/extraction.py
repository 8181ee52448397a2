"""Applies a client's extraction rules (`extract`) to pages, in child processes that can be killed.

What it does: a stranger's rule may backtrack or multiply without end, in code that no timer can interrupt and that
blocks all other threads. So the server neither compiles nor applies such rules. A child process does, without the
project, its settings or its secrets, and within LIMIT; a child that stays silent for longer is killed and replaced. A
key may use fewer children at once than there are, and queue no more orders than that: however long its rules take,
other keys wait for one turn, not for all of its orders.
How it fails: BadRules, ParseFailed. How it recovers: rules that took too long are refused for a while without a try, so
that they delay others only briefly.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import struct
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from types import FrameType
from typing import Any, BinaryIO, Self
from weakref import WeakValueDictionary

import msgspec

from ..clock import Clock
from ..errors import GossamerError, ParseFailed
from ..model.page import Headers, Snapshot
from ..parse.page import Page
from ..parse.recipe.extract import BadRules, extract, read_rules
from ..process.signals import send
from ..process.supervisor import PR_SET_PDEATHSIG

CHILDREN = 3
EACH = 2  # children that one key may use, or queue for, at once
LIMIT = 10.0  # seconds for the rules of one page
GRACE = 3.0  # further seconds until a silent child is killed
START = 60.0  # seconds that a child may take to start
REFUSED_FOR = 60.0  # seconds, for rules that took too long
REMEMBERED = 1000  # rules remembered as checked, or as too slow
MEMORY = 2 * 1024**3  # bytes per child
LONGEST_ANSWER = 64 * 1024 * 1024
_HEAD = struct.Struct("<I")
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")  # variables that a child inherits

Rules = dict[str, Any]  # the fields of a recipe, as JSON


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """Rules and the page to apply them to; without a body the rules are only checked."""

    rules: bytes
    seconds: float
    url: str = ""
    requested_url: str = ""
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    fetched_at: float = 0.0


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    values: Any = None  # plain JSON
    fault: str = ""  # of the rules
    failure: str = ""  # of the page


class Extraction:
    """Applies rules. Open inside `async with`; children are started on demand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: asyncio.LifoQueue[_Child] = asyncio.LifoQueue()
        for _ in range(CHILDREN):
            self._free.put_nowait(_Child())
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._slow: OrderedDict[bytes, float] = OrderedDict()  # until when they are refused
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by key

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        while not self._free.empty():
            await self._free.get_nowait().end()

    async def check(self, rules: Rules, key: str) -> None:
        """Check rules for the key with that id. Raises BadRules."""
        text = msgspec.json.encode(rules)
        digest = blake2b(text, digest_size=16).digest()
        if digest in self._good:
            return
        answer = await self._asked(_Order(rules=text, seconds=LIMIT), digest, key)
        if answer.fault or answer.failure:
            raise BadRules(answer.fault or answer.failure)
        self._good[digest] = None
        while len(self._good) > REMEMBERED:
            self._good.popitem(last=False)

    async def extract(self, rules: Rules, page: Snapshot, key: str) -> Any:
        """The values of the fields, by name, as plain JSON, for the key with that id. Raises BadRules, ParseFailed."""
        text = msgspec.json.encode(rules)
        order = _Order(
            rules=text,
            seconds=LIMIT,
            url=page.url,
            requested_url=page.requested_url,
            status=page.status,
            headers=page.headers.pairs,
            body=page.body,
            fetched_at=page.fetched_at,
        )
        answer = await self._asked(order, blake2b(text, digest_size=16).digest(), key)
        if answer.fault:
            raise BadRules(answer.fault)
        if answer.failure:
            raise ParseFailed(answer.failure)
        return answer.values

    async def _asked(self, order: _Order, digest: bytes, key: str) -> _Answer:
        now = self._clock.monotonic()
        if self._slow.get(digest, now) > now:
            return _Answer(failure=f"These rules recently took longer than {LIMIT:g} s on a page. Make them simpler.")
        turns = self._turns.setdefault(key, asyncio.Semaphore(EACH))  # exists while a request uses it
        async with turns, self._child() as child:  # first come, first served
            answer = await child.ask(msgspec.msgpack.encode(order))
        if answer is None:
            self._slow[digest] = self._clock.monotonic() + REFUSED_FOR
            while len(self._slow) > REMEMBERED:
                self._slow.popitem(last=False)
            return _Answer(failure=f"The rules took longer than {LIMIT:g} s, or too much memory. Make them simpler.")
        return msgspec.msgpack.decode(answer, type=_Answer)

    @asynccontextmanager
    async def _child(self) -> AsyncIterator[_Child]:
        child = await self._free.get()
        try:
            yield child
        finally:
            self._free.put_nowait(child)


class _Child:
    """One process at a time: started on demand, killed when it takes too long."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, order: bytes) -> bytes | None:
        """The answer; None if there was none in time. Cancelling a question ends the process, because its next answer
        would belong to that question."""
        whole = False
        try:
            process = self._process
            if process is None:
                process = self._process = await _start()
                async with asyncio.timeout(START):
                    await _read(process)
            assert process.stdin is not None
            async with asyncio.timeout(LIMIT + GRACE):
                process.stdin.write(_HEAD.pack(len(order)) + order)
                await process.stdin.drain()
                answer = await _read(process)
            whole = bool(answer)  # empty: it gave up; continue with a fresh process
            return answer or None
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            return None
        finally:
            if not whole:
                await self.end()

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            send(process, signal.SIGKILL)
            await asyncio.shield(process.wait())


async def _read(process: asyncio.subprocess.Process) -> bytes:
    """Read the next message from a child. Raises OSError, IncompleteReadError."""
    assert process.stdout is not None
    length = _HEAD.unpack(await process.stdout.readexactly(_HEAD.size))[0]
    return await process.stdout.readexactly(length) if length <= LONGEST_ANSWER else b""


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the working folder may hold modules of strangers
        "-m",
        "gossamer.project.extraction",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )


# -- in the child ----------------------------------------------------------------------------------------------------


class _TooLong(BaseException):
    """The time is over."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def _answer(order: _Order) -> _Answer:
    try:
        fields = read_rules(order.rules)
        if order.body is None:
            return _Answer()
        page = Snapshot(
            url=order.url,
            requested_url=order.requested_url,
            status=order.status,
            headers=Headers(order.headers),
            body=order.body,
            fetched_at=order.fetched_at,
        )
        return _Answer(values=msgspec.to_builtins(extract(fields, Page(page)), enc_hook=str))
    except BadRules as error:
        return _Answer(fault=str(error))
    except GossamerError as error:
        return _Answer(failure=str(error))
    except Exception as error:  # a page that breaks a rule fails alone
        return _Answer(failure=f"The rules cannot be followed on this page ({type(error).__name__}).")


def _serve(orders: BinaryIO, answers: BinaryIO) -> None:
    answers.write(_HEAD.pack(0))  # ready
    answers.flush()
    while head := orders.read(_HEAD.size):
        order = msgspec.msgpack.decode(orders.read(_HEAD.unpack(head)[0]), type=_Order)
        try:
            signal.setitimer(signal.ITIMER_REAL, order.seconds)
            content = msgspec.msgpack.encode(_answer(order))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except (_TooLong, MemoryError):
            content = b""
        answers.write(_HEAD.pack(len(content)) + content)
        answers.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    signal.signal(signal.SIGALRM, _ring)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # even if it never reads its input again
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    _serve(orders, answers)


if __name__ == "__main__":
    main()
