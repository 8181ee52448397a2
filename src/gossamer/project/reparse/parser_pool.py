"""Child processes that parse archived pages, each with a portion of pages in progress. `ParserPool` takes a stream of
pages and gives a stream of outcomes; `ParserDesk` takes single pages from callers who each wait for their own.

A portion is bounded by pages and by the bytes of their raw copies, and results are passed on before they grow too big:
these bound memory, not the size of the archive.
How it fails: a child that dies, or is silent for too long, is replaced. It answers page by page, so the page in
progress is known. That page alone goes to a new child; if it kills that one as well, it fails. The pages after it
continue.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Self

from ...errors import BackendUnavailable, GossamerError, Misconfigured
from ...process.signals import send
from .messages import HEAD, Learned, Order, ParseOrder, ReparsedPage, frame, read_answer

PORTION = 50  # pages for a child at a time, at most
PORTION_BYTES = 8 * 1024 * 1024  # of their raw copies, compressed; one page may be more
ANSWER_BYTES = 16 * 1024 * 1024  # of outcomes that wait for the rest of their portion
AHEAD = 2  # portions queued for each child
LONGEST_ANSWER = 1024 * 1024 * 1024
NOTHING = Learned()


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def size_of(ref: str) -> int:
    """The size of a raw copy in bytes, from its reference (`...#offset+length`); 0 if it does not say."""
    length = ref.rpartition("+")[2]
    return int(length) if length.isascii() and length.isdigit() else 0


class Died(Exception):
    """A child process has died. `how` says in what way."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class ParserPool:
    """`size` child processes. A child that is silent about one page for longer than `patience` counts as hanging.
    Results are stored, unless `stores` is False."""

    def __init__(
        self,
        reparsed_at: float,
        *,
        size: int,
        patience: timedelta,
        learned: Learned = NOTHING,
        stores: bool = True,
    ) -> None:
        self._reparsed_at = reparsed_at
        self._stores = stores
        self._learned = learned
        self._size = max(1, size)
        self._patience = patience

    async def parse(self, pages: AsyncIterator[ParseOrder]) -> AsyncIterator[Sequence[ReparsedPage]]:
        """Outcomes in batches, in the order in which the children finish. Raises Misconfigured and
        BackendUnavailable."""
        portions: asyncio.Queue[tuple[ParseOrder, ...]] = asyncio.Queue(self._size * AHEAD)
        answers: asyncio.Queue[Sequence[ReparsedPage] | None] = asyncio.Queue(self._size * AHEAD)

        async def feed() -> None:
            async for portion in _portions(pages):
                await portions.put(portion)
            for _ in range(self._size):
                await portions.put(())

        async def serve() -> None:
            parser = _Parser(self._reparsed_at, self._patience, self._learned, self._stores)
            try:
                while portion := await portions.get():
                    outcomes, size = list[ReparsedPage](), 0
                    async for outcome, length in parser.parse(portion):
                        outcomes.append(outcome)
                        size += length
                        if size > ANSWER_BYTES or len(outcomes) == len(portion):
                            await answers.put(outcomes)
                            outcomes, size = [], 0
                    if outcomes:
                        await answers.put(outcomes)
            finally:
                await parser.end()

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


class ParserDesk:
    """`size` child processes for callers who bring one page each. Alive while entered."""

    def __init__(self, reparsed_at: float, *, size: int, patience: timedelta, learned: Learned = NOTHING) -> None:
        self._parsers = [_Parser(reparsed_at, patience, learned, stores=True) for _ in range(max(1, size))]
        self._waiting: deque[tuple[ParseOrder, asyncio.Future[ReparsedPage]]] = deque()
        self._arrived = asyncio.Event()
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._serving = [
            asyncio.create_task(self._serve(parser), name=f"parser {number}")
            for number, parser in enumerate(self._parsers, 1)
        ]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.gather(*(parser.end() for parser in self._parsers))

    async def parse(self, page: ParseOrder) -> ReparsedPage:
        """The result of the page. Raises Misconfigured if it cannot be parsed here, BackendUnavailable if its copy
        cannot be read now."""
        answer: asyncio.Future[ReparsedPage] = asyncio.get_running_loop().create_future()
        self._waiting.append((page, answer))
        self._arrived.set()
        return await answer

    async def _serve(self, parser: _Parser) -> None:
        while True:
            portion = await self._portion()
            answers = iter(portion)
            try:
                async for outcome, _ in parser.parse([page for page, _ in portion]):
                    _, answer = next(answers)
                    if not answer.done():  # otherwise the caller no longer waits for it
                        answer.set_result(outcome)
            except GossamerError as error:
                for _, answer in answers:
                    if not answer.done():
                        answer.set_exception(error)

    async def _portion(self) -> list[tuple[ParseOrder, asyncio.Future[ReparsedPage]]]:
        """The waiting pages, as soon as there is one: a fair share if there are several children, within the bounds."""
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        fair = min(PORTION, -(-len(self._waiting) // len(self._parsers)))
        portion = [self._waiting.popleft()]
        size = size_of(portion[0][0].ref)
        while len(portion) < fair and size + size_of(self._waiting[0][0].ref) <= PORTION_BYTES:
            portion.append(self._waiting.popleft())
            size += size_of(portion[-1][0].ref)
        return portion


async def _portions(pages: AsyncIterator[ParseOrder]) -> AsyncIterator[tuple[ParseOrder, ...]]:
    portion: list[ParseOrder] = []
    size = 0
    async for page in pages:
        if portion and (len(portion) >= PORTION or size + size_of(page.ref) > PORTION_BYTES):
            yield tuple(portion)
            portion, size = [], 0
        portion.append(page)
        size += size_of(page.ref)
    if portion:
        yield tuple(portion)


async def _raise_first(working: asyncio.Task[None]) -> None:
    try:
        await working
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


class _Parser:
    """One child at a time: started on demand, replaced when it dies."""

    def __init__(self, reparsed_at: float, patience: timedelta, learned: Learned, stores: bool) -> None:
        self._reparsed_at = reparsed_at
        self._stores = stores
        self._learned = learned
        self._patience = patience
        self._child: _Process | None = None

    async def parse(self, pages: Sequence[ParseOrder]) -> AsyncIterator[tuple[ReparsedPage, int]]:
        """The result of each page, in order, and its length in bytes. Raises Misconfigured, BackendUnavailable."""
        done = 0
        suspect = -1  # index of a page over which a child died
        while done < len(pages):
            ahead = pages[done : done + 1] if suspect == done else pages[done:]
            try:
                async for outcome, length in self._ask(tuple(ahead)):
                    done += 1
                    yield outcome, length
            except Died as died:
                await self.end()
                if suspect == done:
                    message = f"{pages[done].url}: the process that parsed it {died.how}."
                    done += 1
                    yield ReparsedPage(wanted=pages[done - 1], failure="parse", message=message), 0
                else:
                    suspect = done

    async def _ask(self, pages: tuple[ParseOrder, ...]) -> AsyncIterator[tuple[ReparsedPage, int]]:
        """The outcome of each page and its length in bytes. Raises Misconfigured, BackendUnavailable, Died."""
        self._child = self._child or await _Process.start()
        order = frame(Order(reparsed_at=self._reparsed_at, stores=self._stores, pages=pages, learned=self._learned))
        for _ in pages:
            content = await self._child.ask(order, self._patience)
            order = b""
            answer = read_answer(content)
            if answer.outcome is None:
                raise (BackendUnavailable if answer.passes else Misconfigured)(answer.refusal)
            yield answer.outcome, len(content)

    async def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()


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
                "gossamer.project.reparse.parser_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def ask(self, order: bytes, patience: timedelta) -> bytes:
        """The next answer, after an order if there is one. Raises Died."""
        try:
            async with asyncio.timeout(patience.total_seconds()):
                if order:
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
        """Close its input; kill it if it does not exit."""
        self._orders.close()
        try:
            async with asyncio.timeout(2):
                await self._process.wait()
        except TimeoutError:
            send(self._process, signal.SIGKILL)
            await self._process.wait()
