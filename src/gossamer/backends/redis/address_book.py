"""The pace per address, for addresses that many sites share, on Redis: one for the whole fleet. Time is the server's
clock."""

from __future__ import annotations

from datetime import timedelta

from .connection import Server
from .keys import Keyspace


class RedisAddressBook:
    """Fulfils `AddressBook`; see lua/address_turn.lua."""

    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys

    async def take_turn(self, address: str, interval: timedelta, longest: timedelta) -> timedelta:
        key = self._keys.in_shard(self._keys.shard_of(address), f"address:{address}")
        wait = await self._server.run(
            "address_turn", (key,), self._server.now(), interval.total_seconds(), longest.total_seconds()
        )
        return timedelta(microseconds=int(wait))
