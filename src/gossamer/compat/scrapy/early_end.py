"""When a spider ends its job before the queue is empty: CloseSpider, `crawler.engine.close_spider`, CLOSESPIDER_*.

What it does: notes the first reason, and asks the job to end: all workers finish the pages in progress and begin no
others. Items, pages and errors are those of the job: what this process has counted, or what the settled pages of all
workers add up to, whichever is more. The job itself counts pages (`crawl.limit`).
How it fails: if the state does not answer, that is logged, and it is asked again with the next page.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

import msgspec
from scrapy.settings import Settings

from ...errors import Transient

log = logging.getLogger("gossamer.scrapy")
USUAL = "cancelled"  # the reason if none is given, as in Scrapy
AGAIN = 5.0  # seconds, after a state that did not answer
LOOK = 0.5  # seconds between two looks at what other workers have counted
ITEMS, PAGES, ERRORS = "item_scraped_count", "response_received_count", "spider_exceptions/count"


class JobTally(msgspec.Struct, frozen=True):
    """How long a job has been running, and what the spider's code has counted on its settled pages."""

    age: float = 0.0  # seconds
    stats: Mapping[str, int] = {}


End = Callable[[str], Awaitable[object]]
Look = Callable[[], Awaitable[JobTally | None]]


class EarlyEnd:
    """For one job in one process. `end` ends the job, `look` says what all workers have counted; None if there is no
    job: in `gossamer check`, in a replay."""

    def __init__(self, settings: Settings, end: End | None, look: Look | None = None) -> None:
        self._end = end
        self._look = look
        self._most = {
            ITEMS: (settings.getint("CLOSESPIDER_ITEMCOUNT"), "closespider_itemcount"),
            ERRORS: (settings.getint("CLOSESPIDER_ERRORCOUNT"), "closespider_errorcount"),
        }
        self._most_without = settings.getint("CLOSESPIDER_PAGECOUNT_NO_ITEM")
        self._seconds = settings.getfloat("CLOSESPIDER_TIMEOUT")
        self._seconds_without = settings.getfloat("CLOSESPIDER_TIMEOUT_NO_ITEM")
        self._counts = self._most_without > 0 or any(most for most, _ in self._most.values())
        self._own: Counter[str] = Counter()
        self._of_job: Mapping[str, int] = {}  # at the last look
        self._looked = float("-inf")
        self._items_before, self._pages_before = 0, 0  # when the number of items grew
        self._told = False
        self._watches: list[asyncio.Task[None]] = []
        self.reason = ""  # "": not requested

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason or USUAL

    def count(self, name: str) -> None:
        """Count an item, a page or an error of this process."""
        self._own[name] += 1
        self._judge()

    async def settle(self) -> bool:
        """End the job, if that was requested. False if the state does not answer: the next page asks again."""
        if self._counts and not self.reason:
            await self._look_around()
        if not self.reason or self._told or self._end is None:
            return True
        try:
            await self._end(self.reason)
        except Transient as error:
            log.warning("The job is not ended yet (%s): %s", self.reason, error)
            return False
        self._told = True
        return True

    async def open(self) -> None:
        """Begin to watch the clock, if the settings name a time."""
        if self._seconds > 0:
            seconds = self._seconds - await self._look_around(now=True)
            # A job that goes on after its time, because it was stopped, gets it anew.
            seconds = seconds if seconds > 0 else self._seconds
            self._watches.append(asyncio.create_task(self._watch_time(seconds), name="CLOSESPIDER_TIMEOUT"))
        if self._seconds_without > 0:
            self._watches.append(asyncio.create_task(self._watch_items(), name="CLOSESPIDER_TIMEOUT_NO_ITEM"))

    async def close(self) -> None:
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        self._watches = []

    def _number(self, name: str) -> int:
        return max(self._own[name], self._of_job.get(name, 0))

    def _judge(self) -> None:
        for name, (most, reason) in self._most.items():
            if most and self._number(name) >= most:
                self.ask(reason)
        items, pages = self._number(ITEMS), self._number(PAGES)
        if items > self._items_before:
            self._items_before, self._pages_before = items, pages
        if self._most_without and pages - self._pages_before > self._most_without:
            self.ask("closespider_pagecount_no_item")

    async def _look_around(self, *, now: bool = False) -> float:
        """Look at what all workers have counted, if the last look is not too recent; return the age of the job."""
        if self._look is None or (not now and monotonic() - self._looked < LOOK):
            return 0.0
        self._looked = monotonic()
        try:
            tally = await self._look()
        except Transient:  # the next page looks again
            return 0.0
        if tally is None:
            return 0.0
        self._of_job = tally.stats
        self._judge()
        return tally.age

    async def _watch_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._ask_until_told("closespider_timeout")

    async def _watch_items(self) -> None:
        before = -1
        while self._number(ITEMS) > before:
            before = self._number(ITEMS)
            await asyncio.sleep(self._seconds_without)
            await self._look_around(now=True)
        await self._ask_until_told("closespider_timeout_no_item")

    async def _ask_until_told(self, reason: str) -> None:
        self.ask(reason)
        while True:
            if await self.settle():
                return
            await asyncio.sleep(AGAIN)
