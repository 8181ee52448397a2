"""From three addresses to open backends: the only place that knows which scheme belongs to which backend.

    state    sqlite:///path         redis://host:6379/0   rediss://   valkey://   valkeys://   redis+unix:///socket
    records  sqlite:///path         postgresql://user@host/database   mongodb://user@host/database   mongodb+srv://
    archive  folder:///path         s3://bucket/prefix?endpoint=...

Three slashes and a path are meant from the project's folder, four are absolute. The fleet's backends are imported
when an address asks for them: their clients are an extra.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec

from ..clock import Clock, ServerClock
from ..errors import BadState, Misconfigured, Permanent
from ..fetch.robots import RobotsShelf
from ..frontier.carrying import StateCarrier
from ..frontier.contract import (
    Frontier,
    FrontierDesk,
    FrontierFor,
    JobBook,
    JobControl,
    JobHistory,
    SowBook,
    WorkerBook,
)
from ..frontier.politeness import TermsFor
from ..model.carrying import Carrier, Standing
from ..model.page import Snapshot
from ..routing.contract import BudgetBook, RouteBook
from ..routing.proxies.contract import ExitBook
from ..schedule.contract import ScheduleBook, TickBook
from ..settings import Settings
from ..store.carrying import ArchiveCarrier, RecordCarrier
from ..store.contract import Archive, Records, RecordStore

REDIS = ("redis", "rediss", "valkey", "valkeys", "redis+unix")
POSTGRES = ("postgresql", "postgres")
MONGO = ("mongodb", "mongodb+srv")
KNOWN = {
    "state": ("sqlite", *REDIS),
    "records": ("sqlite", *POSTGRES, *MONGO),
    "archive": ("folder", "s3"),
}
EXAMPLES = {
    "state": "'sqlite:///gossamer-data/state.db' or 'redis://localhost:6379/0'",
    "records": "'sqlite:///gossamer-data/records.db' or 'postgresql://localhost/gossamer' or 'mongodb://localhost/crawls'",
    "archive": "'folder:///gossamer-data/archive' or 's3://bucket/prefix'",
}


class OpenState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a project, open. `clock` is the time that all its workers share; `warnings` are for the user."""

    frontier: Frontier
    frontier_for: FrontierFor
    jobs: JobBook
    control: JobControl
    history: JobHistory
    schedules: ScheduleBook
    ticks: TickBook
    sowings: SowBook
    desk: FrontierDesk
    robots: RobotsShelf
    workers: WorkerBook
    routes: RouteBook
    purse: BudgetBook
    exits: ExitBook
    carrier: StateCarrier
    clock: Clock
    warnings: tuple[str, ...] = ()
    old_copy: tuple[str, ...] = ()  # a warning when it was moved away


@asynccontextmanager
async def open_state(
    settings: Settings,
    clock: ServerClock,
    *,
    terms_for: TermsFor,
    records: RecordStore | None = None,
    to_move: bool = False,
) -> AsyncIterator[OpenState]:
    """Raises Misconfigured, BadState or BackendUnavailable. `records` can tell whether a URL was really seen.

    `clock` agrees with the server's from now on, where there is one.

    What a move has not completed is opened for a move only.
    """
    duration = settings.lease.duration
    if scheme_of(settings, "state") == "sqlite":
        from .sqlite.carrying import SqliteStateCarrier
        from .sqlite.state import open_sqlite_state

        if settings.crawl.dedup != "exact":
            raise Misconfigured(
                "crawl.dedup = 'bloom' is for a state on Redis. SQLite keeps every URL on disk: set it to 'exact'."
            )
        path = local_path(settings, "state")
        async with open_sqlite_state(path, clock, lease_duration=duration, terms_for=terms_for) as state:
            embedded = SqliteStateCarrier(state.database, clock)
            yield OpenState(
                frontier=state.frontier,
                frontier_for=state.frontier_for,
                jobs=state.jobs,
                control=state.jobs,
                history=state.jobs,
                schedules=state.schedules,
                ticks=state.schedules,
                sowings=state.sowings,
                desk=state.desk,
                robots=state.robots,
                workers=state.workers,
                routes=state.routes,
                purse=state.purse,
                exits=state.exits,
                carrier=embedded,
                clock=clock,
                old_copy=() if to_move else await old_copy(settings, "state", embedded),
            )
        return
    from .redis.carrying import RedisStateCarrier
    from .redis.state import open_redis_state

    async with open_redis_state(
        settings.state,
        project=settings.project,
        shards=settings.fleet.shards,
        lease_duration=duration,
        terms_for=terms_for,
        records=records,
    ) as shared:
        clock.agree(await shared.time())
        carrier = RedisStateCarrier(shared)
        yield OpenState(
            frontier=shared.frontier,
            frontier_for=shared.frontier_for,
            jobs=shared.jobs,
            control=shared.jobs,
            history=shared.jobs,
            schedules=shared.schedules,
            ticks=shared.schedules,
            sowings=shared.sowings,
            desk=shared.desk,
            robots=shared.robots,
            workers=shared.workers,
            routes=shared.routes,
            purse=shared.purse,
            exits=shared.exits,
            carrier=carrier,
            clock=clock,
            warnings=shared.warnings,
            old_copy=() if to_move else await old_copy(settings, "state", carrier),
        )


@asynccontextmanager
async def open_records(settings: Settings, clock: Clock, *, to_move: bool = False) -> AsyncIterator[Records]:
    """Raises as `open_state`."""
    async with _open_records(settings, clock) as store:
        if not to_move:
            await old_copy(settings, "records", record_carrier(settings, store))
        yield store


@asynccontextmanager
async def _open_records(settings: Settings, clock: Clock) -> AsyncIterator[Records]:
    age: timedelta | None = settings.store.min_rewrite_age
    if scheme_of(settings, "records") == "sqlite":
        from .sqlite.records import open_sqlite_records

        async with open_sqlite_records(local_path(settings, "records"), clock, min_rewrite_age=age) as embedded:
            yield embedded
        return
    if scheme_of(settings, "records") in MONGO:
        from .mongo.records import open_mongo_records

        async with open_mongo_records(
            settings.records, clock, min_rewrite_age=age, prefix=postgres_schema(settings)
        ) as documents:
            yield documents
        return
    from .postgres.records import open_postgres_records

    async with open_postgres_records(
        settings.records, clock, min_rewrite_age=age, schema=postgres_schema(settings)
    ) as shared:
        yield shared


@asynccontextmanager
async def open_archive(settings: Settings, writer: str) -> AsyncIterator[Archive]:
    level = settings.store.compression
    if scheme_of(settings, "archive") == "folder":
        from .folder.archive import FolderArchive

        async with FolderArchive(local_path(settings, "archive"), level=level, writer=writer) as folder:
            yield folder
        return
    from .object.archive import open_object_archive

    async with open_object_archive(settings.archive, level=level, writer=writer) as shared:
        yield shared


class ArchiveOnDemand:
    """Fulfils `Archive`; opened by the first call. For commands that only look, and mostly not at raw pages."""

    def __init__(self, settings: Settings, writer: str, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._writer = writer
        self._stack = stack
        self._archive: Archive | None = None

    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        return await (await self._opened()).put(snapshots)

    async def get(self, ref: str) -> Snapshot:
        return await (await self._opened()).get(ref)

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        return await (await self._opened()).get_many(refs)

    async def prune(self, older_than: timedelta) -> int:
        return await (await self._opened()).prune(older_than)

    async def _opened(self) -> Archive:
        if self._archive is None:
            self._archive = await self._stack.enter_async_context(open_archive(self._settings, self._writer))
        return self._archive


def record_carrier(settings: Settings, store: Records) -> RecordCarrier:
    """The open record store as one side of a move."""
    if scheme_of(settings, "records") == "sqlite":
        from .sqlite.record_carrying import SqliteRecordCarrier
        from .sqlite.records import SqliteRecords

        assert isinstance(store, SqliteRecords)
        return SqliteRecordCarrier(store)
    if scheme_of(settings, "records") in MONGO:
        from .mongo.carrying import MongoRecordCarrier
        from .mongo.records import MongoRecords

        assert isinstance(store, MongoRecords)
        return MongoRecordCarrier(store)
    from .postgres.carrying import PostgresRecordCarrier
    from .postgres.records import PostgresRecords

    assert isinstance(store, PostgresRecords)
    return PostgresRecordCarrier(store)


@asynccontextmanager
async def open_segments(settings: Settings, writer: str) -> AsyncIterator[ArchiveCarrier]:
    """The archive as one side of a move."""
    if scheme_of(settings, "archive") == "folder":
        from .folder.carrying import FolderSegments

        yield FolderSegments(local_path(settings, "archive"))
        return
    from .object.archive import open_object_archive
    from .object.carrying import ObjectSegments

    async with open_object_archive(settings.archive, level=settings.store.compression, writer=writer) as shared:
        yield ObjectSegments(shared)


async def old_copy(settings: Settings, role: str, carrier: Carrier[Any]) -> tuple[str, ...]:
    """A warning when what is there was moved away. Raises BadState when it has not arrived completely."""
    mark = await carrier.mark()
    if mark is None:
        return ()
    here = place_of(settings, role)
    if mark.standing is Standing.ARRIVING:
        raise BadState(
            f"What is at {here} ({role}) is not complete: a move from {mark.place} into it has not come to its end. "
            f"Run `gossamer move` again from there, or go on with {role} as it was."
        )
    return (
        f"What is at {here} ({role}) is an old copy: it was moved to {mark.place}. What is done here is not seen "
        f"there. Set {role} in gossamer.toml to the new address.",
    )


def scheme_of(settings: Settings, role: str) -> str:
    """The scheme of `state`, `records` or `archive`. Raises Misconfigured for one that no backend knows."""
    scheme = str(getattr(settings, role)).partition("://")[0]
    if scheme not in KNOWN[role]:
        _refuse(settings, role)
    return scheme


def is_local(settings: Settings, role: str) -> bool:
    """Is it a file or folder of this machine?"""
    return scheme_of(settings, role) in ("sqlite", "folder")


def local_path(settings: Settings, role: str) -> Path:
    """The file or folder behind a local address. Raises Misconfigured."""
    rest = str(getattr(settings, role)).partition("://")[2]
    if not rest.startswith("/") or not rest.strip("/"):
        raise Misconfigured(f"{role}: write three slashes and a path, as in {EXAMPLES[role].partition(' or ')[0]}")
    return settings.root / unquote(rest[1:])


def place_of(settings: Settings, role: str) -> str:
    """Where it is, for people: a path, or the address without its secrets."""
    return str(local_path(settings, role)) if is_local(settings, role) else redacted(str(getattr(settings, role)))


def postgres_schema(settings: Settings) -> str:
    """Projects that share a database have a schema each; in MongoDB, collections whose names begin so."""
    return re.sub(r"[^a-z0-9]+", "_", f"gossamer_{settings.project}".lower()).strip("_")


def redacted(address: str) -> str:
    """An address without its user name, password and query, for messages."""
    scheme, _, rest = address.partition("://")
    rest = rest.partition("?")[0]
    _, at, tail = rest.rpartition("@")
    return f"{scheme}://***@{tail}" if at else f"{scheme}://{rest}"


def _refuse(settings: Settings, role: str) -> NoReturn:
    address = redacted(str(getattr(settings, role)))
    raise Misconfigured(f"{role} = {address!r} is an address that no backend knows. Write {EXAMPLES[role]}.")
