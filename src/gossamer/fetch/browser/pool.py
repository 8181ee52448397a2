"""Browsers and their seats: M browsers with N pages each, started when they are needed.

What it does: gives a page a seat in a browser, replaces browsers that are worn (so many pages, so much memory) when
their last page is done, and browsers that died or hang at once.
How it fails: BrowserFailed when no browser starts, or when no seat becomes free for minutes.
How it recovers: a seat that is asked for after a failure gets a new browser. What killed workers left behind is swept
away at the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from ...errors import BrowserFailed
from ...settings.browser import Browser as BrowserSettings
from . import chromium, remains
from .cell import Cell

_SEAT_PATIENCE = 300.0  # seconds


class BrowserPool:
    """Alive while entered. Bounded: pages that find no seat wait for one."""

    def __init__(self, settings: BrowserSettings, proxy: str, flags: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._proxy = proxy
        self._flags = flags
        self._cells: list[Cell] = []
        self._starting = 0
        self._changed = asyncio.Condition()
        self._closings: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        chromium.check_playwright()
        chromium.find_executable(self._settings.executable)
        await asyncio.to_thread(remains.sweep)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cells, self._cells = self._cells, []
        await asyncio.gather(*(cell.close() for cell in cells), *self._closings, return_exceptions=True)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The browsers there are, those included that only finish their last pages."""
        return tuple(self._cells)

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[Cell]:
        """A place for one page. Raises BrowserFailed, Misconfigured."""
        try:
            async with asyncio.timeout(_SEAT_PATIENCE):
                cell = await self._take()
        except TimeoutError as error:
            raise BrowserFailed(
                f"Every browser was busy for {_SEAT_PATIENCE:g} s. Raise browser.contexts or browser.browsers, "
                "or lower crawl.concurrency."
            ) from error
        try:
            yield cell
        finally:
            cell.give_back_page()
            await self._sweep()

    async def _take(self) -> Cell:
        while True:
            async with self._changed:
                while (cell := self._free()) is None and not self._may_start():
                    await self._changed.wait()
                if cell is not None:
                    cell.take_page()
                    return cell
                self._starting += 1
            started: Cell | None = None
            try:
                started = await Cell.start(self._settings, self._proxy, self._flags)
            finally:
                self._starting -= 1
                if started is not None:
                    self._cells.append(started)
                await self._sweep()

    def _free(self) -> Cell | None:
        """The browser with the fewest pages in hand, if it has a seat."""
        found = [cell for cell in self._cells if cell.usable and cell.in_hand < self._settings.contexts]
        return min(found, key=lambda cell: cell.in_hand, default=None)

    def _may_start(self) -> bool:
        return self._starting + sum(cell.usable for cell in self._cells) < self._settings.browsers

    async def _sweep(self) -> None:
        """Close what is worn and empty or dead, and wake those who wait for a seat."""
        for cell in tuple(self._cells):
            if not cell.usable and (cell.in_hand == 0 or cell.gone.is_set()):
                self._cells.remove(cell)
                closing = asyncio.create_task(cell.close(), name="gossamer-browser-closing")
                self._closings.add(closing)
                closing.add_done_callback(self._closings.discard)
        async with self._changed:
            self._changed.notify_all()
