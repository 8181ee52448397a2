"""Calls that wait for each other: what is given while one call is on its way goes together in the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import Any

MAX_TOGETHER = 64
MAX_WEIGHT = 2_000  # of a group: a longer call would hold up everybody else
LINGER = 0.001  # seconds that the first of a group waits for company


class Gathering:
    """Give an item, get its own answer. `send` gets several items and returns as many answers, in order."""

    def __init__(self, send: Callable[[Sequence[bytes]], Awaitable[list[Any]]]) -> None:  # Any: the caller's answers
        self._send = send
        self._waiting: list[tuple[bytes, int, asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def give(self, item: bytes, weight: int = 0) -> Any:
        """The answer to this item. Raises what `send` raised for the group it went with."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, weight, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._work(), name="settle")
        return await future

    async def _work(self) -> None:
        await asyncio.sleep(LINGER)
        while self._waiting:
            size = self._size_of_next()
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            try:
                answers: list[Any] = list(await self._send([item for item, _, _ in group]))
            except Exception as error:
                answers = [error] * len(group)
            for (_, _, future), answer in zip(group, answers, strict=True):
                if future.done():  # whoever asked was cancelled meanwhile
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _size_of_next(self) -> int:
        """How many of those that wait go together: one at least, however heavy it is."""
        weights = accumulate(weight for _, weight, _ in self._waiting[:MAX_TOGETHER])
        return max(1, sum(total <= MAX_WEIGHT for total in weights))
