"""What a journey tells all workers about its site: a crawl-delay, a wish for rest.

A crawl-delay is told before the first page is asked for: when this process dies right after, the next one keeps it.
How it fails: TooEarly when another worker holds the site; BackendUnavailable when the state stays away for as long as
the lease lasts. How it recovers: what was not told is told by the next journey that finds it out.
"""

from __future__ import annotations

from datetime import timedelta

from .context import JobContext
from .held_lease import HeldLease
from .pacer import TooEarly


class SiteNotes:
    """Of the site of one lease."""

    def __init__(self, context: JobContext, held: HeldLease) -> None:
        self._context = context
        self._held = held
        self._site = held.lease.task.site

    async def keep_crawl_delay(self, asked: timedelta | None) -> None:
        """Before a request leaves for a site with this crawl-delay. Raises TooEarly when another worker holds the site:
        workers that have leases from before the delay was known take turns."""
        if not self._is_new(asked):
            return
        assert asked is not None
        if not await self._tell(asked, timedelta(0)):
            raise TooEarly(asked)
        if self._held.lease.pace is None:
            self._context.pacer.rest(self._site, asked)  # other workers may have asked for robots.txt just now

    async def note_crawl_delay(self, asked: timedelta | None) -> None:
        """No request leaves, but the next one of any worker keeps to it."""
        if self._is_new(asked):
            await self._tell(asked, timedelta(0))

    async def let_rest(self, rest: timedelta) -> None:
        """The site asked to be left alone for that time."""
        self._context.pacer.rest(self._site, rest)
        await self._tell(None, rest)

    def _is_new(self, asked: timedelta | None) -> bool:
        """Was the lease granted under a shorter interval?"""
        pace = self._held.lease.pace
        return asked is not None and asked.total_seconds() > (pace.interval if pace is not None else 0.0)

    async def _tell(self, interval: timedelta | None, rest: timedelta) -> bool:
        frontier, worker = self._context.frontier, self._context.worker
        return await self._held.settle(
            lambda: frontier.slow_down(self._site, interval=interval, rest=rest, worker=worker)
        )
