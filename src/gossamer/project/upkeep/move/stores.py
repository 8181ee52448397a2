"""The three stores of a project, opened for a move, a backup or a restore: what they hold, and whether they may be
used."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ....backends.addresses import is_local, local_path, place_of, scheme_of
from ....backends.open import open_archive, open_records, open_state
from ....backends.state import State
from ....backends.worker_names import is_gone, worker_name
from ....clock import Clock, ServerClock
from ....errors import BadState, Misconfigured
from ....model.stream import MoveMark, MoveStatus, RowStream
from ....settings import Settings
from ....store.contract import Records, Segment, WholeArchive
from ....terms import site_terms
from ....units import many

ROLES = ("state", "records", "archive")
SIGN_OF_LIFE = 30.0  # seconds; a worker with a newer heartbeat is at work

Counts = dict[str, int]


class MovePart(msgspec.Struct, frozen=True, kw_only=True):
    """One role of a move: source, target, and the counts of both sides."""

    role: str
    source: str
    target: str
    here: Counts
    there: Counts


class Stores:
    """The open stores at one set of addresses. A store that is not needed, or does not exist yet, is None."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state: State | None = None
        self.records: Records | None = None
        self.archive: WholeArchive | None = None

    def stream(self, role: str) -> RowStream[Any] | None:  # Any: rows of a state or of a record store
        store = self.state if role == "state" else self.records
        return store.stream if store is not None else None

    def place(self, role: str) -> str:
        return place(self.settings, role)

    async def segments(self) -> list[Segment]:
        return [] if self.archive is None else [one async for one in self.archive.segments()]

    async def archive_names(self) -> set[str]:
        """The names of all files in the archive: of those with raw pages, and of those that spiders asked for."""
        files = {one.name async for one in self.archive.files()} if self.archive is not None else set()
        return files | {one.name for one in await self.segments()}

    async def archive_counts(self, names: Collection[str]) -> Counts:
        """Those files of the archive that have one of these names."""
        pages = [one for one in await self.segments() if one.name in names]
        files = [one.name async for one in self.archive.files() if one.name in names] if self.archive else []
        counts = {"files": len(pages), "bytes": sum(one.size for one in pages), "downloads": len(files)}
        return {name: count for name, count in counts.items() if count}

    async def counts(self, role: str) -> Counts:
        """The contents of the store of a role, counted by kind."""
        if role == "archive":
            return await self.archive_counts(await self.archive_names())
        stream = self.stream(role)
        return await stream.counts() if stream is not None else {}

    async def set_mark(self, role: str, mark: MoveMark | None) -> None:
        stream = self.stream(role)
        if stream is not None:
            await stream.set_mark(mark)


def place(settings: Settings, role: str) -> str:
    """Where a role of the project is stored, without secrets: the same text means the same place."""
    scheme, address = scheme_of(settings, role), str(getattr(settings, role))
    if scheme in ("sqlite", "folder"):
        return place_of(settings, role)
    if scheme == "s3":
        return address  # it never contains keys, and the endpoint belongs to the place
    schema = "".join(value for name, value in parse_qsl(address.partition("?")[2]) if name == "schema")
    return f"{place_of(settings, role)}, {f'schema {schema}' if schema else f'project {settings.project}'}"


def exists(settings: Settings, role: str) -> bool:
    return not is_local(settings, role) or local_path(settings, role).exists()


async def open_stores(stack: AsyncExitStack, settings: Settings, clock: Clock, roles: Collection[str]) -> Stores:
    """Open the stores of these roles, creating them if necessary."""
    stores = Stores(settings)
    own = ServerClock(clock)  # the stores of the two sides may follow different clocks
    if "records" in roles:
        stores.records = await stack.enter_async_context(open_records(settings, own, to_move=True))
    if "state" in roles:
        stores.state = await stack.enter_async_context(
            open_state(settings, own, terms_for=site_terms(settings), to_move=True)
        )
    if "archive" in roles:
        stores.archive = await stack.enter_async_context(open_archive(settings, worker_name().replace("/", "-")))
    return stores


async def require_rest(source: Stores) -> None:
    """Refuse to move while workers are at work, and to copy an incomplete store. Raises Misconfigured, BadState."""
    await require_complete(source)
    if busy := await at_work(source):
        names = ", ".join(sorted(busy)[:3]) + (", ..." if len(busy) > 3 else "")
        raise Misconfigured(
            f"{len(busy)} of the project's workers are at work ({names}). Stop them and move again; those that were "
            f"killed on another machine are forgotten when their leases end."
        )


async def require_complete(source: Stores) -> None:
    """Raises BadState for stores that an unfinished move or restore has filled only in part."""
    for role in ("state", "records"):
        stream = source.stream(role)
        mark = await stream.mark() if stream is not None else None
        if mark is not None and mark.status is not MoveStatus.MOVED:
            how = "a move" if mark.status is MoveStatus.ARRIVING else "a restore"
            raise BadState(
                f"What is at {source.place(role)} ({role}) is not complete itself: {how} from {mark.place} has not "
                f"come to its end. Run that one again first."
            )


async def at_work(source: Stores) -> set[str]:
    """The names of the workers that are, or may be, alive and work on the project."""
    if source.state is None:
        return set()
    now = await source.state.stream.time()
    cards = [card.name for card in await source.state.workers.workers() if now - card.seen_at < SIGN_OF_LIFE]
    return {name for name in (*await source.state.stream.holders(), *cards) if not is_gone(name)}


async def require_stored(source: Stores) -> None:
    """Refuse to move while results wait on the disks of workers: their notes would stay behind, and a job could end
    before they are stored. Raises Misconfigured."""
    notes = [note for note in await source.state.spools.notes() if not note.given_up] if source.state else []
    if notes:
        raise Misconfigured(
            f"{many(sum(sum(note.results.values()) for note in notes), 'result')} wait on the disks of workers "
            f"({', '.join(sorted({note.host for note in notes}))}). Store them first: `gossamer spool drain` there, or "
            f"give them up: `gossamer spool forget HOST`."
        )


async def require_room(
    target: Stores, role: str, status: MoveStatus, source: str, loaded: Counts | None = None
) -> None:
    """Refuse a target that is not empty, unless a move or a restore (`status`) from `source` may replace its contents:
    what an earlier try has left, or what was moved away. `loaded` is what the earlier try left when it was interrupted
    between two stores. Raises Misconfigured, BadState."""
    stream = target.stream(role)
    if stream is None:
        return
    mark, there = await stream.mark(), target.place(role)
    if mark is not None and mark.status is not MoveStatus.MOVED:
        if mark.status is status and (mark.place == source or status is MoveStatus.RESTORING):
            return
        how = "a move" if mark.status is MoveStatus.ARRIVING else "a restore"
        raise BadState(
            f"What is at {there} ({role}) is {how} that is unfinished, from {mark.place}. Run that one again, or name "
            f"another address or project."
        )
    held = await stream.counts()
    if not held or held == loaded:
        return
    if mark is None or mark.place != source:
        raise occupied(target, role, held)
    if mark.counts != held:
        raise Misconfigured(
            f"What is at {there} ({role}) was moved to {source} once, and has been worked on since: moving back would "
            f"lose that. Move it away by hand, or name another address."
        )


def occupied(target: Stores, role: str, held: Counts) -> Misconfigured:
    name, count = next(iter(held.items()))
    return Misconfigured(
        f"There is a project at {target.place(role)} ({role}) already ({name}: {count:,}). Nothing was changed. Name "
        f"another address, or another project (`gossamer move --project NAME`, or project in gossamer.toml), or delete "
        f"that one (docs/fleet.md: Deleting a project)."
    )


async def require_room_for_segments(segments: Iterable[Segment], target: Stores) -> None:
    """Files with other names do no harm: pages are only found by reference. Raises Misconfigured."""
    known = {one.name: one.size for one in await target.segments()}
    for segment in segments:
        if known.get(segment.name, segment.size) != segment.size:
            raise another_file(target, segment.name)


def another_file(target: Stores, name: str) -> Misconfigured:
    return Misconfigured(
        f"The archive at {target.place('archive')} has another file {name} than this one. It was not changed. Name "
        f"another address."
    )
