"""Opening the state on Redis: everything of the frontier that lives there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import msgspec

from ...errors import BadState, Misconfigured
from ...frontier.contract import FrontierFor
from ...frontier.politeness import TermsFor
from ...store.contract import RecordStore
from ..processes import is_gone as process_is_gone
from .connection import Server, open_server
from .desk import RedisDesk
from .entrance import Entrance
from .exits import RedisExits
from .frontier import RedisFrontier
from .jobs import RedisJobs
from .keys import Keyspace
from .leasing import Rounds
from .robots import RedisRobotsShelf
from .routes import RedisBudgetBook, RedisRouteBook
from .schedules import RedisSchedules
from .sowing import RedisSowings
from .workers import RedisWorkers

VERSION = 4  # 1 knew no lanes, 2 no paused jobs, 3 no order by name; what they wrote is read as it is
SHARDS_ALONE, SHARDS_IN_CLUSTER = 1, 8


class RedisState(msgspec.Struct, frozen=True):
    """The parts of one open project on a server. `warnings` are for the user."""

    server: Server
    frontier: RedisFrontier
    jobs: RedisJobs
    desk: RedisDesk
    robots: RedisRobotsShelf
    workers: RedisWorkers
    routes: RedisRouteBook
    purse: RedisBudgetBook
    exits: RedisExits
    schedules: RedisSchedules
    sowings: RedisSowings
    frontier_for: FrontierFor
    warnings: tuple[str, ...]

    async def time(self) -> float:
        """What the server's clock says."""
        seconds, micros = await self.server.call("TIME")
        return float(int(seconds) + int(micros) / 1_000_000)


@asynccontextmanager
async def open_redis_state(
    address: str,
    *,
    project: str,
    lease_duration: timedelta,
    terms_for: TermsFor,
    shards: int | None = None,
    is_gone: Callable[[str], bool] = process_is_gone,
    records: RecordStore | None = None,
    time: Callable[[], float] | None = None,
) -> AsyncIterator[RedisState]:
    """Open or begin the project's keyspace. Raises Misconfigured, BadState or BackendUnavailable.

    `records` is asked where a Bloom filter calls a URL known and the job wants to be sure.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", project):
        raise Misconfigured(
            "The state is on Redis, which several projects may share. Give this one a name of letters, digits, "
            "dots and dashes: project = 'books' in gossamer.toml."
        )
    async with open_server(address) as (server, warnings):
        keys = Keyspace(project, await _agreed_shards(server, project, shards))
        jobs = RedisJobs(server, keys, time)
        entrance = Entrance(server, keys, jobs, records=records, time=time)

        rounds = Rounds()

        def frontier_at(entrance: Entrance, terms_for: TermsFor) -> RedisFrontier:
            return RedisFrontier(
                server,
                keys,
                jobs,
                entrance,
                lease_duration=lease_duration,
                terms_for=terms_for,
                is_gone=is_gone,
                time=time,
                rounds=rounds,
            )

        @contextmanager
        def frontier_for(terms_for: TermsFor) -> Iterator[RedisFrontier]:
            # With an entrance of its own: what that remembers of jobs goes with it.
            yield frontier_at(Entrance(server, keys, jobs, records=records, time=time), terms_for)

        frontier = frontier_at(entrance, terms_for)
        desk = RedisDesk(server, keys, jobs, entrance, time=time)
        try:
            yield RedisState(
                server,
                frontier,
                jobs,
                desk,
                RedisRobotsShelf(server, keys),
                RedisWorkers(server, keys),
                RedisRouteBook(server, keys),
                RedisBudgetBook(server, keys),
                RedisExits(server, keys, time),
                RedisSchedules(server, keys, jobs, time),
                RedisSowings(server, keys, time),
                frontier_for,
                warnings,
            )
        finally:
            await jobs.close()


async def _agreed_shards(server: Server, project: str, wanted: int | None) -> int:
    """The number of shards is written down when the project begins; a site would not be found under another one."""
    book = Keyspace(project, 1).book("book")
    usual = wanted or (SHARDS_IN_CLUSTER if server.cluster else SHARDS_ALONE)
    await server.call("HSETNX", book, "version", VERSION)
    await server.call("HSETNX", book, "shards", usual)
    version, shards = (int(value) for value in await server.call("HMGET", book, "version", "shards"))
    if version > VERSION:
        raise BadState(
            f"The state of project {project} at {server.where} was written by a newer Gossamer (format {version}, this "
            f"one knows {VERSION}). Upgrade this one, or use another project name."
        )
    if version < VERSION:
        await server.call("HSET", book, "version", VERSION)  # from now on older workers are turned away
    if wanted is not None and wanted != shards:
        raise Misconfigured(
            f"Project {project} at {server.where} is spread over {shards} shards, and fleet.shards says {wanted}. "
            f"Set it to {shards}: it cannot change while a project lives."
        )
    return shards
