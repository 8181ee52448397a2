"""The transports of one worker, each opened when the first page asks for it and closed with the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Self

from ..fetch.contract import Transport
from ..model.route import HTTP, MANAGED, Route

Opening = Callable[[], AbstractAsyncContextManager[Transport]]


class Transports:
    """`openings` are by kind of transport, and `managed/NAME` for each vendor. Alive while entered.

    Opening one that is not installed raises MissingExtra, whenever it is asked for.
    """

    def __init__(self, openings: Mapping[str, Opening]) -> None:
        self._openings = openings
        self._open: dict[str, Transport] = {}
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def for_pages(self, route: Route) -> Transport:
        """What fetches pages on that route. Raises MissingExtra, Misconfigured."""
        return await self._get(_key(route))

    async def for_robots(self, route: Route) -> Transport:
        """What fetches robots.txt there: a browser is not needed for it."""
        return await self._get(_key(route) if route.transport == MANAGED else HTTP)

    async def _get(self, key: str) -> Transport:
        found = self._open.get(key)
        if found is not None:
            return found
        async with self._turn:
            found = self._open.get(key)
            if found is None:
                found = self._open[key] = await self._stack.enter_async_context(self._openings[key]())
        return found


def _key(route: Route) -> str:
    return f"{MANAGED}/{route.vendor}" if route.transport == MANAGED else route.transport
