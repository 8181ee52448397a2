"""Children at work on archived pages: as many as there are cores, each with a portion of pages in hand.

How it fails: a child that dies, or is silent for too long, is replaced. The pages it had in hand are given out again
one by one, so that the page that killed it is found out; that one fails, and the others do not suffer for it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta

from ..errors import Misconfigured
from .orders import HEAD, Order, Outcome, Wanted, frame, read_answer

PORTION = 50  # pages for a child at a time
AHEAD = 2  # portions that wait for each child: memory is bounded by these
LONGEST_ANSWER = 1024 * 1024 * 1024


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Died(Exception):
    """A child is gone. `how` says in what way."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class Crew:
    """`size` children. `patience` is how long one page may take before its child counts as hanging."""

    def __init__(self, run: str, reparsed_at: float, *, size: int, patience: timedelta) -> None:
        self._run = run
        self._reparsed_at = reparsed_at
        self._size = max(1, size)
        self._patience = patience

    async def parse(self, pages: AsyncIterator[Wanted]) -> AsyncIterator[Sequence[Outcome]]:
        """Outcomes, a portion at a time, in the order in which children finish. Raises Misconfigured."""
        portions: asyncio.Queue[tuple[Wanted, ...]] = asyncio.Queue(self._size * AHEAD)
        answers: asyncio.Queue[Sequence[Outcome] | None] = asyncio.Queue(self._size * AHEAD)

        async def feed() -> None:
            portion: list[Wanted] = []
            async for page in pages:
                portion.append(page)
                if len(portion) >= PORTION:
                    await portions.put(tuple(portion))
                    portion = []
            if portion:
                await portions.put(tuple(portion))
            for _ in range(self._size):
                await portions.put(())

        async def serve() -> None:
            child: _Process | None = None
            try:
                while portion := await portions.get():
                    child = child or await _Process.start()
                    try:
                        await answers.put(await self._ask(child, portion))
                    except Died:
                        await child.end()
                        child = None
                        for page in portion:
                            await answers.put([await self._alone(page)])
            finally:
                if child is not None:
                    await child.end()

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(feed(), name="pages to parse")
                for number in range(self._size):
                    group.create_task(serve(), name=f"parser {number + 1}")
            await answers.put(None)

        working = asyncio.create_task(work(), name="parsers")
        try:
            while True:
                waiting = asyncio.create_task(answers.get())
                await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    waiting.cancel()
                    break
                outcomes = waiting.result()
                if outcomes is None:
                    break
                yield outcomes
            await _raise_first(working)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    async def _ask(self, child: _Process, pages: tuple[Wanted, ...]) -> Sequence[Outcome]:
        order = Order(run=self._run, reparsed_at=self._reparsed_at, pages=pages)
        answer = read_answer(await child.ask(frame(order), self._patience * (len(pages) + 1)))
        if answer.refusal:
            raise Misconfigured(answer.refusal)
        return answer.outcomes

    async def _alone(self, page: Wanted) -> Outcome:
        """A page that may have killed a child, in the hands of one that has nothing else to lose."""
        child = await _Process.start()
        try:
            return (await self._ask(child, (page,)))[0]
        except Died as died:
            return Outcome(wanted=page, failure="parse", message=f"{page.url}: the process that parsed it {died.how}.")
        finally:
            await child.end()


async def _raise_first(working: asyncio.Task[None]) -> None:
    try:
        await working
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


class _Process:
    """One child and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._orders = process.stdin
        self._answers = process.stdout

    @classmethod
    async def start(cls) -> _Process:
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gossamer.reparsing.child",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def ask(self, order: bytes, patience: timedelta) -> bytes:
        """Its answer to an order. Raises Died."""
        try:
            async with asyncio.timeout(patience.total_seconds()):
                self._orders.write(order)
                await self._orders.drain()
                length = HEAD.unpack(await self._answers.readexactly(HEAD.size))[0]
                if length > LONGEST_ANSWER:
                    raise Died(f"gave an answer of {length:,} bytes")
                return await self._answers.readexactly(length)
        except TimeoutError:
            raise Died("did not come to an end in time") from None
        except (OSError, asyncio.IncompleteReadError):
            code = await self._process.wait()
            raise Died(f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}") from None

    async def end(self) -> None:
        """Close its input; kill it if that does not end it."""
        self._orders.close()
        try:
            async with asyncio.timeout(2):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
