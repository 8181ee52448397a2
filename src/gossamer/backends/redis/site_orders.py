"""Operators' orders for sites, on Redis. Fulfils `SiteOrders`.

The book lists them; lua/serve.lua obeys what lua/site_order.lua writes into the row of the site. The book is written
first: an order that failed in between is listed, and giving or withdrawing it again completes it.
"""

from __future__ import annotations

import msgspec

from ...frontier.contract import SiteOrder
from .connection import Server
from .jobs import RedisJobs
from .keys import Keyspace

_decode = msgspec.json.Decoder(SiteOrder).decode


class RedisSiteOrders:
    def __init__(self, server: Server, keys: Keyspace, jobs: RedisJobs) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._key = keys.book("orders")

    async def give(self, order: SiteOrder) -> None:
        now = await self._server.time()
        over = [one.site for one in await self.orders() if not one.holds(now)]
        if over:
            await self._server.call("HDEL", self._key, *over)
        await self._server.call("HSET", self._key, order.site, msgspec.json.encode(order))
        await self._tell_shard(order.site, order.interval, order.rest_until)

    async def withdraw(self, site: str) -> bool:
        learned = await self._tell_shard(site, None, None, forgets=True)
        return bool(await self._server.call("HDEL", self._key, site)) or learned

    async def orders(self) -> list[SiteOrder]:
        found = [_decode(text) for text in await self._server.call("HVALS", self._key)]
        return sorted(found, key=lambda order: order.site)

    async def _tell_shard(
        self, site: str, interval: float | None, rest_until: float | None, *, forgets: bool = False
    ) -> bool:
        """Each running job has its own queues that may sleep because of the previous order. True if a learned pace of
        the site was deleted, which `forgets` asks for."""
        shard, forgot = self._keys.shard_of(site), False
        for job in [0, *(row.number for row in await self._jobs.running_rows())]:
            forgot |= bool(
                await self._server.run(
                    "site_order",
                    self._keys.of_job(shard, job),
                    self._server.now(),
                    site,
                    -1.0 if interval is None else interval,
                    rest_until or 0.0,
                    int(forgets),
                )
            )
        return forgot
