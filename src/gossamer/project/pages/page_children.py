"""Reads pages for clients in child processes that can be killed, in turns per key.

What it does: everything that computes an answer from a page (formats, rules of `extract`, links of a map, records of
pages that keys requested) is done by a few children (page_child.py), never by the event loop or a thread beside it. A
key uses fewer children at once than there are: however heavy its pages are, another key waits for one turn, not for
all of them (key_turns.py).
How it fails: KeyBusy, ServerBusy, and None for an order without an answer in time. How it recovers: a child that stays
silent, or that gave up, is replaced by a fresh one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from ...crawl.parse_page import Describe
from ...errors import ParseFailed
from ...model.job import Job
from ...model.page import Snapshot
from ...parse.site import HAND_ON, Description, RawPageSpider, SitePartSpider, SiteSpider
from ...parse.spider import Spider
from ...process.signals import send
from ...settings import Settings
from ..access.key_turns import KeyTurns
from .page_child import HEAD, DescribePage, PageAnswer, Work, order_of

CHILDREN = 3
EACH = 2  # children that one key may use at once
WAITING_EACH = 250  # pages of one key in line
WAITING = 1000  # pages of all keys in line
GRACE = 3.0  # seconds beyond those of the order until a silent child is killed
START = 60.0  # seconds that a child may take to start
READ_HERE = 64 * 1024  # bytes; a worker reads smaller pages itself, in some 25 ms
LONGEST_ANSWER = 128 * 1024 * 1024  # bytes
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")  # variables that a child inherits


class PageChildren:
    """Open inside `async with`; children are started on demand. With `refuses` False the line has no end: for callers
    that bound the pages in progress themselves."""

    def __init__(self, children: int = CHILDREN, each: int = EACH, *, refuses: bool = True) -> None:
        bounds = {"waiting_each": WAITING_EACH, "waiting": WAITING} if refuses else {}
        self._turns = KeyTurns(children, each, **bounds)
        self._free = [PageChild() for _ in range(children)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        while self._free:
            await self._free.pop().end()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[PageChild]:
        """A child for the key with that id. Read the page from the archive inside: pages in line take no memory then.
        Raises KeyBusy, ServerBusy."""
        async with self._turns.turn(key):
            child = self._free.pop()  # the one used last, which is warm
            try:
                yield child
            finally:
                self._free.append(child)


class PageChild:
    """One process at a time: started on demand, killed when it takes too long."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, work: Work, page: Snapshot | None, seconds: float) -> PageAnswer | None:
        """The answer; None if there was none in time, or within its memory."""
        found = await self.send(msgspec.msgpack.encode(order_of(work, page, seconds)), seconds)
        return msgspec.msgpack.decode(found, type=PageAnswer) if found is not None else None

    async def send(self, order: bytes, seconds: float) -> bytes | None:
        """Cancelling a question ends the process, because its next answer would belong to that question."""
        whole = False
        try:
            process = self._process
            if process is None:
                process = self._process = await _start()
                async with asyncio.timeout(START):
                    await _read(process)
            assert process.stdin is not None
            async with asyncio.timeout(seconds + GRACE):
                process.stdin.write(HEAD.pack(len(order)))
                process.stdin.write(order)
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
    length = HEAD.unpack(await process.stdout.readexactly(HEAD.size))[0]
    return await process.stdout.readexactly(length) if length <= LONGEST_ANSWER else b""


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the working folder may hold modules of strangers
        "-m",
        "gossamer.project.pages.page_child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1024 * 1024,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    )


def describer_of(children: PageChildren, job: Job, spider: Spider, settings: Settings) -> Describe | None:
    """Reads pages of a key's job for the worker, if they are large or their links are matched with the key's patterns:
    on its event loop, each would stop the pages of all other jobs. None for jobs of the project itself, and for spiders
    whose own code reads the page."""
    if not job.owner or not isinstance(spider, SiteSpider | SitePartSpider) or isinstance(spider, RawPageSpider):
        return None
    seconds = settings.crawl.parse_timeout.total_seconds()
    terms = spider.terms if isinstance(spider, SitePartSpider) else None
    read_here = READ_HERE if terms is None or not terms.part.has_patterns else -1

    async def describe(snapshot: Snapshot) -> Description | None:
        if len(snapshot.body) <= read_here or snapshot.kind == HAND_ON:
            return None
        async with children.turn(job.owner) as child:
            answer = await child.ask(DescribePage(terms), snapshot, seconds)
        if answer is None or answer.failure:
            late = f"{snapshot.url} takes longer to read than {seconds:g} s (crawl.parse_timeout), or too much memory."
            raise ParseFailed(answer.failure if answer is not None else late)
        return msgspec.convert(answer.content, Description)

    return describe
