"""When a spider ends its job before the queue is empty: CloseSpider, `crawler.engine.close_spider`, CLOSESPIDER_*.

What it does: notes the first reason, and asks the job to end: all workers finish the pages in hand and begin no others.
Each process counts its own items, errors and time; the job counts pages (`crawl.limit`).
How it fails: if the state does not answer, that is logged, and it is asked again with the next page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from scrapy.settings import Settings

from ..errors import Transient

log = logging.getLogger("gossamer.scrapy")
End = Callable[[str], Awaitable[object]]
USUAL = "cancelled"  # the reason if none is given, as in Scrapy
AGAIN = 5.0  # seconds, after a state that did not answer


class Closing:
    """For one job in one process. `end` ends the job; None if there is none: in `gossamer check`, in a replay."""

    def __init__(self, settings: Settings, end: End | None) -> None:
        self._end = end
        self._most_items = settings.getint("CLOSESPIDER_ITEMCOUNT")
        self._most_errors = settings.getint("CLOSESPIDER_ERRORCOUNT")
        self._most_without = settings.getint("CLOSESPIDER_PAGECOUNT_NO_ITEM")
        self._seconds = settings.getfloat("CLOSESPIDER_TIMEOUT")
        self._seconds_without = settings.getfloat("CLOSESPIDER_TIMEOUT_NO_ITEM")
        self._items = self._errors = self._without = 0
        self._told = False
        self._watches: list[asyncio.Task[None]] = []
        self.reason = ""  # "": not requested

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason or USUAL

    def count_item(self) -> None:
        self._items += 1
        self._without = 0
        if self._most_items and self._items >= self._most_items:
            self.ask("closespider_itemcount")

    def count_page(self) -> None:
        self._without += 1
        if self._most_without and self._without > self._most_without:
            self.ask("closespider_pagecount_no_item")

    def count_error(self) -> None:
        self._errors += 1
        if self._most_errors and self._errors >= self._most_errors:
            self.ask("closespider_errorcount")

    async def settle(self) -> bool:
        """End the job, if that was requested. False if the state does not answer: the next page asks again."""
        if not self.reason or self._told or self._end is None:
            return True
        try:
            await self._end(self.reason)
        except Transient as error:
            log.warning("The job is not ended yet (%s): %s", self.reason, error)
            return False
        self._told = True
        return True

    def open(self) -> None:
        """Begin to watch the clock, if the settings name a time."""
        if self._seconds > 0:
            self._watches.append(asyncio.create_task(self._watch_time(), name="CLOSESPIDER_TIMEOUT"))
        if self._seconds_without > 0:
            self._watches.append(asyncio.create_task(self._watch_items(), name="CLOSESPIDER_TIMEOUT_NO_ITEM"))

    async def close(self) -> None:
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches = []

    async def _watch_time(self) -> None:
        await asyncio.sleep(self._seconds)
        await self._ask_until_told("closespider_timeout")

    async def _watch_items(self) -> None:
        before = -1
        while self._items > before:
            before = self._items
            await asyncio.sleep(self._seconds_without)
        await self._ask_until_told("closespider_timeout_no_item")

    async def _ask_until_told(self, reason: str) -> None:
        self.ask(reason)
        while True:
            if await self.settle():
                return
            await asyncio.sleep(AGAIN)
