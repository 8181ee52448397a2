"""Opens the state, the records and the archive of a project. The only place that chooses a backend by its scheme.

The backends of a fleet are imported on demand, because their clients are an optional extra.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from ..clock import Clock, ServerClock
from ..errors import BackendUnavailable, BadState, Misconfigured, Permanent, StoreRefused
from ..frontier.politeness import TermsFor
from ..model.page import Snapshot
from ..model.stream import MoveStatus, RowStream
from ..settings import Settings
from ..settings.trust import demand_trust
from ..store.contract import Records, RecordStore, Segment, WholeArchive
from .addresses import is_local, local_path, place_of, postgres_schema, scheme_of
from .state import State


@asynccontextmanager
async def open_state(
    settings: Settings,
    clock: ServerClock,
    *,
    terms_for: TermsFor,
    records: RecordStore | None = None,
    to_move: bool = False,
) -> AsyncIterator[State]:
    """Open the state. Raises Misconfigured, BadState or BackendUnavailable.

    If a server holds the state, `clock` follows the server's clock from now on. `records` confirm that a URL was really
    seen when a Bloom filter says so. `to_move` also opens a state with an unfinished move into it.
    """
    async with opened_before(settings, "state", _state_backend(settings, clock, terms_for, records)) as state:
        if not to_move:
            await old_copy(settings, "state", state.stream)
        yield state


def _state_backend(
    settings: Settings, clock: ServerClock, terms_for: TermsFor, records: RecordStore | None
) -> AbstractAsyncContextManager[State]:
    if scheme_of(settings, "state") == "sqlite":
        from .sqlite.state import open_sqlite_state

        if settings.crawl.dedup != "exact":
            raise Misconfigured(
                "crawl.dedup = 'bloom' is for a state on Redis. SQLite keeps every URL on disk: set it to 'exact'."
            )
        path = _own_file(settings, "state")
        return open_sqlite_state(path, clock, lease_duration=settings.lease.duration, terms_for=terms_for)
    from .redis.state import open_redis_state

    return open_redis_state(
        settings.state,
        clock,
        project=settings.project,
        shards=settings.fleet.shards,
        lease_duration=settings.lease.duration,
        terms_for=terms_for,
        records=records,
    )


def _own_file(settings: Settings, role: str) -> Path:
    """The path of the database. Raises Misconfigured if another user could have put it there: jobs and schedules name
    programs."""
    path = local_path(settings, role)
    demand_trust(path, path.parent)
    return path


@asynccontextmanager
async def open_records(settings: Settings, clock: Clock, *, to_move: bool = False) -> AsyncIterator[Records]:
    """Open the record store. Raises as `open_state`."""
    async with opened_before(settings, "records", _records_backend(settings, clock)) as store:
        if not to_move:
            await old_copy(settings, "records", store.stream)
        yield store


def _records_backend(settings: Settings, clock: Clock) -> AbstractAsyncContextManager[Records]:
    age: timedelta | None = settings.store.min_rewrite_age
    domains = settings.monitor.domains
    if scheme_of(settings, "records") == "sqlite":
        from .sqlite.records import open_sqlite_records

        return open_sqlite_records(_own_file(settings, "records"), clock, min_rewrite_age=age, domains=domains)
    from .postgres.records import open_postgres_records

    return open_postgres_records(
        settings.records, clock, min_rewrite_age=age, domains=domains, schema=postgres_schema(settings)
    )


def open_archive(settings: Settings, writer: str) -> AbstractAsyncContextManager[WholeArchive]:
    """Open the archive; `writer` identifies this process in its file names. Raises as `open_state`."""
    level = settings.store.compression
    if scheme_of(settings, "archive") == "folder":
        from .folder.archive import FolderArchive

        demand_trust(local_path(settings, "archive"))
        return FolderArchive(local_path(settings, "archive"), level=level, writer=writer)
    from .object.archive import open_object_archive

    return opened_before(settings, "archive", open_object_archive(settings.archive, level=level, writer=writer))


class ArchiveOnDemand:
    """Fulfils `PageArchive`; opens it on the first call. For commands that rarely need raw pages."""

    def __init__(self, settings: Settings, writer: str, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._writer = writer
        self._stack = stack
        self._archive: WholeArchive | None = None

    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        return await (await self._opened()).put(snapshots)

    async def get(self, ref: str) -> Snapshot:
        return await (await self._opened()).get(ref)

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        return await (await self._opened()).get_many(refs)

    async def erase(self, refs: Sequence[str]) -> int:
        return await (await self._opened()).erase(refs)

    async def drop(self, refs: Sequence[str]) -> int:
        return await (await self._opened()).drop(refs)

    async def erase_file(self, sha256: str) -> bool:
        return await (await self._opened()).erase_file(sha256)

    async def segments(self) -> AsyncIterator[Segment]:
        async for segment in (await self._opened()).segments():
            yield segment

    async def read_segment(self, name: str) -> bytes:
        return await (await self._opened()).read_segment(name)

    async def prune(self, older_than: timedelta) -> int:
        return await (await self._opened()).prune(older_than)

    async def size(self) -> int:
        return await (await self._opened()).size()

    async def put_file(self, path: Path, sha256: str) -> bool:
        return await (await self._opened()).put_file(path, sha256)

    async def has_file(self, sha256: str) -> bool:
        return await (await self._opened()).has_file(sha256)

    async def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        async for piece in (await self._opened()).read_file(sha256):
            yield piece

    async def _opened(self) -> WholeArchive:
        if self._archive is None:
            self._archive = await self._stack.enter_async_context(open_archive(self._settings, self._writer))
        return self._archive


async def old_copy(settings: Settings, role: str, stream: RowStream[Any]) -> tuple[str, ...]:
    """A warning if this store was moved to another address. Raises BadState if a move into it is unfinished."""
    mark = await stream.mark()
    if mark is None:
        return ()
    here = place_of(settings, role)
    if mark.status is MoveStatus.RESTORING:
        raise BadState(
            f"What is at {here} ({role}) is not complete: restoring {mark.place} into it was not finished. Run "
            f"`gossamer restore` again."
        )
    if mark.status is MoveStatus.ARRIVING:
        raise BadState(
            f"What is at {here} ({role}) is not complete: a move from {mark.place} into it was not finished. "
            f"Run `gossamer move` again from there, or go on with {role} as it was."
        )
    return (
        f"What is at {here} ({role}) is an old copy: it was moved to {mark.place}. What is done here is not seen "
        f"there. Set {role} in gossamer.toml to the new address.",
    )


T = TypeVar("T")


@asynccontextmanager
async def opened_before(settings: Settings, role: str, opening: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Open the store of that role, and remember that it was opened. Raises what `opening` raises, but
    BackendUnavailable instead of StoreRefused if the same store was opened before."""
    mark = None if is_local(settings, role) else _mark(settings, role)
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(opening)
        except StoreRefused as error:
            if mark is None or not mark.exists():
                raise
            raise BackendUnavailable(f"{error} This project has used it before, so it counts as away.") from error
        if mark is not None and not mark.exists():
            with suppress(OSError):
                mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                mark.touch(mode=0o600)
        yield store


def were_opened(settings: Settings) -> bool:
    """Whether this machine has opened all stores of the project that are servers, so that one which does not answer is
    away. False without such stores."""
    roles = [role for role in ("state", "records", "archive") if not is_local(settings, role)]
    return bool(roles) and all(_mark(settings, role).exists() for role in roles)


def _mark(settings: Settings, role: str) -> Path:
    scheme, _, rest = str(getattr(settings, role)).partition("?")[0].partition("://")
    login, _, place = rest.rpartition("@")
    user = login.partition(":")[0]
    digest = blake2b("\0".join((settings.project, scheme, user, place)).encode(), digest_size=16).hexdigest()
    return settings.root / settings.store.spool / "stores" / f"{role}-{digest}"
