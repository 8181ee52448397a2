"""The outside of sources: sitemaps and feeds are fetched and read here, for `schedule.sources.entries`.

    async with open_sourcing(settings, clock=clock) as sourcing:
        async for entry in entries(source, sourcing.context(report=print)):
            ...

`Sourcing` lives as long as the scheduler (fetching.py); a `SourceContext` as long as one reading of one source. What
the files say is in reading.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ...clock import Clock, SystemClock
from ...fetch.robots import MemoryShelf, RobotsShelf
from ...model.route import DIRECT
from ...parse.spider import Spider
from ...routing.proxies.contract import ExitBook
from ...routing.proxies.pools import Pools
from ...settings import Settings
from ..transports import transports_of
from .fetching import Announce, ClosedFor, SourceContext, Sourcing

__all__ = ["Announce", "ClosedFor", "SourceContext", "Sourcing", "open_sourcing"]


@asynccontextmanager
async def open_sourcing(
    settings: Settings,
    *,
    clock: Clock | None = None,
    shelf: RobotsShelf | None = None,
    exits: ExitBook | None = None,
    announce: Announce | None = None,
    closed_for: ClosedFor | None = None,
    spider: Spider | None = None,
) -> AsyncIterator[Sourcing]:
    """A way to sitemaps and feeds. Raises Misconfigured.

    `shelf` keeps answers of robots.txt, `exits` is needed where the settings send a site through a proxy pool.
    `announce` is awaited before each request, with the site and the time that it should be left alone from then on:
    the frontier does not count these requests, and its workers may be on the same site. `closed_for` says how long
    the site's window is closed yet. The wishes of a `spider` (rate, robots) hold for its source as for its pages.
    """
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        transports = await stack.enter_async_context(transports_of(settings, clock))
        pools = None
        if exits is not None:
            pools = await stack.enter_async_context(
                Pools(settings.proxies, exits, clock, project=settings.project, root=settings.root)
            )
        direct = await transports.for_robots(DIRECT)
        yield Sourcing(settings, transports, direct, pools, shelf or MemoryShelf(), clock, announce, closed_for, spider)
