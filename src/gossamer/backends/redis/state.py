"""The state of a project on Redis or Valkey."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from ...clock import ServerClock
from ...errors import BadState, Misconfigured
from ...frontier.politeness import TermsFor
from ...model.url import FINGERPRINT_VERSION
from ...store.contract import RecordStore
from ..state import State, check_fingerprints
from ..worker_names import is_gone as process_is_gone
from .address_book import RedisAddressBook
from .admission import ShardAdmission
from .connection import Server, may_lose, open_server
from .exits import RedisExitBook
from .frontier import RedisFrontier
from .jobs import RedisJobs, RedisSeedBook
from .keys import Keyspace
from .leasing import OrphanRounds
from .queue_view import RedisQueueView
from .robots import RedisRobotsShelf
from .routes import RedisBudgetBook, RedisRouteBook
from .schedules import RedisSchedules
from .shelf import RedisShelf
from .site_orders import RedisSiteOrders
from .state_stream import RedisStateStream
from .workers import FORMAT, RedisWorkers, check_format

SHARDS_ALONE, SHARDS_IN_CLUSTER = 1, 8


@asynccontextmanager
async def open_redis_state(
    address: str,
    clock: ServerClock,
    *,
    project: str,
    lease_duration: timedelta,
    terms_for: TermsFor,
    shards: int | None = None,
    is_gone: Callable[[str], bool] = process_is_gone,
    records: RecordStore | None = None,
    time: Callable[[], float] | None = None,
) -> AsyncIterator[State]:
    """Open or create the project's keyspace. Raises Misconfigured, BadState or BackendUnavailable.

    `clock` follows the server's clock from now on. `records` confirm a URL that a Bloom filter calls known, if the job
    wants to be sure. Tests replace the server's clock by `time`.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", project):
        raise Misconfigured(
            "The state is on Redis, which several projects may share. Give this one a name of letters, digits, "
            "dots and dashes: project = 'books' in gossamer.toml."
        )
    async with open_server(address, time) as (server, warnings):
        keys = Keyspace(project, await _agreed_shards(server, project, shards))
        jobs = RedisJobs(server, keys)
        admission = ShardAdmission(server, keys, jobs, records=records)

        rounds = OrphanRounds()

        def frontier_at(admission: ShardAdmission, terms_for: TermsFor) -> RedisFrontier:
            return RedisFrontier(
                server,
                keys,
                jobs,
                admission,
                lease_duration=lease_duration,
                terms_for=terms_for,
                is_gone=is_gone,
                rounds=rounds,
            )

        @contextmanager
        def frontier_for(terms_for: TermsFor) -> Iterator[RedisFrontier]:
            # With its own admission, so that the admission's cache of jobs is released with it.
            yield frontier_at(ShardAdmission(server, keys, jobs, records=records), terms_for)

        schedules = RedisSchedules(server, keys, jobs)
        seeds = RedisSeedBook(server, keys)
        robots = RedisRobotsShelf(server, keys)
        routes, budgets = RedisRouteBook(server, keys), RedisBudgetBook(server, keys)
        stream = RedisStateStream(server, keys, jobs=jobs, seeds=seeds, robots=robots, routes=routes, budgets=budgets)
        clock.agree(await server.time())
        server.is_in_use = True
        try:
            yield State(
                frontier=frontier_at(admission, terms_for),
                frontier_for=frontier_for,
                queue=RedisQueueView(server, keys, jobs, admission),
                jobs=jobs,
                control=jobs,
                history=jobs,
                seeds=seeds,
                schedules=schedules,
                ticks=schedules,
                robots=robots,
                addresses=RedisAddressBook(server, keys),
                orders=RedisSiteOrders(server, keys, jobs),
                workers=RedisWorkers(server, keys, clock),
                routes=routes,
                budgets=budgets,
                exits=RedisExitBook(server, keys),
                shelf=RedisShelf(server, keys),
                stream=stream,
                clock=clock,
                durable=_as_configured,
                may_lose=await may_lose(server),
                warnings=warnings,
            )
        finally:
            await jobs.close()


async def _as_configured() -> None:
    """The server answers a write when it is as durable as its settings make it: nothing can be waited for. `WAITAOF`
    calls writes synced that are not, on some servers (docs/adr/0085)."""


async def _agreed_shards(server: Server, project: str, wanted: int | None) -> int:
    """The number of shards, which is stored when the project is created: with another number, sites would not be
    found."""
    book = Keyspace(project, 1).book("book")
    usual = wanted or (SHARDS_IN_CLUSTER if server.cluster else SHARDS_ALONE)
    fields = ("format", "shards", "fingerprints")
    found = await server.call("HMGET", book, *fields)
    if None in found:  # otherwise nothing is written: a server out of memory can still open an existing project
        if await server.call("HEXISTS", book, "version"):  # which the format was called then
            raise BadState(
                f"Project {project} at {server.where} was made by a Gossamer from before 0.1.0, whose state is not "
                f"read. Finish its jobs with that version, then give the project another name."
            )
        await server.call("HSETNX", book, "fingerprints", FINGERPRINT_VERSION)
        await server.call("HSETNX", book, "format", FORMAT)
        await server.call("HSETNX", book, "shards", usual)
        found = await server.call("HMGET", book, *fields)
    format, shards, fingerprints = (int(value) for value in found)
    check_format(format, f"project {project} at {server.where}")
    check_fingerprints(fingerprints, f"{server.where}, project {project}", "give the project another name.")
    if format < FORMAT:
        await server.call("HSET", book, "format", FORMAT)  # from now on older workers are refused
    if wanted is not None and wanted != shards:
        raise Misconfigured(
            f"Project {project} at {server.where} is spread over {shards} shards, and fleet.shards says {wanted}. "
            f"Set it to {shards}: it cannot change while a project lives."
        )
    return shards
