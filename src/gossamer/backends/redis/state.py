"""The state of a project on Redis or Valkey, and its small books: heartbeats of workers, the pace of
addresses, waking what waits, erasing URLs. Shared by all processes, kept across restarts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta

import msgspec

from ...clock import ServerClock
from ...errors import BadState, GossamerError, Misconfigured
from ...frontier.contract import DRAIN, RESTART, WorkerCard
from ...frontier.politeness import TermsFor
from ...model.url import FINGERPRINT_VERSION
from ...store.contract import RecordStore
from ...store.erasure import REASON
from ..state import State, check_fingerprints
from ..worker_names import is_gone as process_is_gone
from . import rows
from .admission import ShardAdmission
from .connection import Server, may_lose, open_server
from .frontier import RedisFrontier
from .jobs import RedisJobs, RedisSeedBook
from .keys import Keyspace
from .leasing import OrphanRounds
from .proxies import RedisProxyBook
from .queue_view import RedisQueueView
from .routes import RedisBudgetBook, RedisRobotsShelf, RedisRouteBook
from .rows import pack_reason
from .schedules import RedisSchedules
from .shelf import RedisShelf
from .state_stream import RedisStateStream

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
            "dots and dashes: project = 'books' in gossamer.toml, or --project books of `gossamer move`."
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
                waiting=RedisWaking(server, keys, jobs),
                workers=RedisWorkers(server, keys, clock),
                routes=routes,
                budgets=budgets,
                proxies=RedisProxyBook(server, keys),
                shelf=RedisShelf(server, keys),
                erasure=RedisUrlErasure(server, keys, jobs),
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


class RedisAddressBook:
    """The pace per address, one for the whole fleet. Fulfils `AddressBook`; see lua/address_turn.lua."""

    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys

    async def take_turn(self, address: str, interval: timedelta, longest: timedelta) -> timedelta:
        key = self._keys.in_shard(self._keys.shard_of(address), f"address:{address}")
        wait = await self._server.run(
            "address_turn", (key,), self._server.now(), interval.total_seconds(), longest.total_seconds()
        )
        return timedelta(microseconds=int(wait))


FORMAT = 1  # of a state on Redis


def check_format(format: int, where: str) -> None:
    """Raises BadState for a format newer than this version."""
    if format > FORMAT:
        raise BadState(
            f"The state of {where} was written by a newer Gossamer (format {format}, this one knows {FORMAT}). "
            "Upgrade this one, or use another project name."
        )


class RedisWorkers:
    """Heartbeats of workers. Fulfils `WorkerBook`."""

    def __init__(self, server: Server, keys: Keyspace, clock: ServerClock | None = None) -> None:
        self._clock = clock
        self._server = server
        self._key = keys.book("workers")
        self._drains = keys.book("drains")
        self._book = keys.book("book")

    async def beat(self, card: WorkerCard) -> str:
        await self.check_format()
        if self._clock is not None:  # the server's clock may have been set, and this machine may have slept
            asked_at = self._clock.monotonic()
            self._clock.correct(await self._server.time(), asked_at)
        await self._server.call("HSET", self._key, card.name, msgspec.json.encode(card))
        asked = await self._server.call("HGET", self._drains, card.name)
        return asked.decode() if asked else ""

    async def check_format(self) -> None:
        format = await self._server.call("HGET", self._book, "format")
        if format is not None:
            check_format(int(format), f"this project at {self._server.where}")

    async def ask_to_drain(self, name: str, *, restart: bool = False) -> bool:
        if not await self._server.call("HEXISTS", self._key, name):
            return False
        await self._server.call("HSET", self._drains, name, RESTART if restart else DRAIN)
        return True

    async def sign_off(self, name: str) -> None:
        await self._server.call("HDEL", self._key, name)
        await self._server.call("HDEL", self._drains, name)

    async def workers(self) -> list[WorkerCard]:
        cards = [msgspec.json.decode(text, type=WorkerCard) for text in await self._server.call("HVALS", self._key)]
        return sorted(cards, key=lambda card: card.name)

    async def forget(self, before: float) -> int:
        faded = [card.name for card in await self.workers() if card.seen_at < before]
        if not faded:
            return 0
        await self._server.call("HDEL", self._drains, *faded)
        return int(await self._server.call("HDEL", self._key, *faded))


WOKEN_AT_ONCE = 1000  # pages in one script: workers wait for it


class RedisWaking:
    """Wakes what waits. Fulfils `Waking`."""

    def __init__(self, server: Server, keys: Keyspace, jobs: RedisJobs) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs

    async def wake_site(self, site: str, interval: timedelta | None) -> None:
        await self._wake_site(site, -1.0 if interval is None else interval.total_seconds())

    async def forget_pace(self, site: str) -> bool:
        return await self._wake_site(site, "")

    async def wake(self, reasons: Collection[str]) -> int:
        packed, woken = [pack_reason(reason) for reason in sorted(reasons)], 0
        for row in await self._jobs.running_rows():
            for shard in range(self._keys.shards):
                passed, more = 0, True
                while more:
                    keys = self._keys.of_job(shard, row.number)
                    due, others = await self._server.run(
                        "wake", keys, self._server.now(), passed, WOKEN_AT_ONCE, *packed
                    )
                    woken, passed, more = woken + due, passed + others, due + others == WOKEN_AT_ONCE
        return woken

    async def _wake_site(self, site: str, interval: float | str) -> bool:
        """Each running job has its own queues that may sleep. True if a learned pace was deleted."""
        shard, forgot = self._keys.shard_of(site), False
        for job in [0, *(row.number for row in await self._jobs.running_rows())]:
            keys = self._keys.of_job(shard, job)
            forgot |= bool(await self._server.run("wake_site", keys, self._server.now(), site, interval))
        return forgot


URLS_AT_ONCE = 200  # pages in one script


class RedisUrlErasure:
    """Takes the URLs of pages out of all jobs; the rows stay, so that counts add up. Fulfils `UrlErasure`."""

    def __init__(self, server: Server, keys: Keyspace, jobs: RedisJobs) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs

    async def erase_urls(self, pages: Sequence[tuple[str, bytes]]) -> int:
        by_shard: dict[int, list[bytes]] = {}
        for site, fingerprint in pages:
            by_shard.setdefault(self._keys.shard_of(site), []).append(fingerprint)
        nothing = rows.pack_tail(None, rows.Tail("", ""))
        erased = 0
        for job in await self._jobs.rows():
            for shard, fingerprints in by_shard.items():
                for start in range(0, len(fingerprints), URLS_AT_ONCE):
                    some = fingerprints[start : start + URLS_AT_ONCE]
                    keys = self._keys.of_job(shard, job.number)
                    erased += await self._server.run("erase", keys, self._server.now(), REASON, nothing, *some)
        return erased

    async def compact(self) -> str:
        with suppress(GossamerError):  # a service may not allow it
            await self._server.call("BGREWRITEAOF")
        return (
            f"The files of {self._server.where} hold it until they are written anew (BGREWRITEAOF and BGSAVE), and so "
            f"do those of its replicas."
        )
