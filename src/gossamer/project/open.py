"""Opens the backends of a project, without loading any transport or worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from .. import __version__
from ..backends.addresses import POSTGRES, is_local, local_path, postgres_schema, scheme_of
from ..backends.open import ArchiveOnDemand, old_copy, open_archive, open_records, open_state
from ..backends.state import State
from ..backends.worker_names import worker_name
from ..clock import Backoff, Clock, ServerClock, SystemClock
from ..crawl.quarantine import Quarantine
from ..errors import BackendUnavailable, Misconfigured
from ..fetch.robots_shelf import OriginTurns
from ..model.url import UrlRules
from ..monitor.otel import open_tracer
from ..process.black_box import PARENT, BlackBox
from ..settings import Settings
from ..settings.trust import demand_trust
from ..store.contract import PageArchive, Records
from ..terms import site_terms, url_rules
from ..trace import Tracer
from ..units import span
from .live_settings import LiveSettings, Overrides, read_overrides, watch_overrides

if TYPE_CHECKING:
    from ..parse.spider import Spider

AWAY = Backoff(first=timedelta(milliseconds=500), longest=timedelta(seconds=15))  # while a backend does not answer
SAID_AGAIN = timedelta(minutes=5)  # how long a backend is away before this is said again, and then each time as long


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The open backends of a project and the values derived from its settings.

    `settings` are those in force at the moment. What stays longer than that follows `live`.
    """

    live: LiveSettings
    clock: Clock
    rules: UrlRules
    state: State
    records: Records
    archive: PageArchive
    worker: str
    quarantine: Quarantine  # shared by the whole process
    robots_turns: OriginTurns  # shared by the whole process
    box: BlackBox | None = None
    absent: str = ""  # why the record store is unavailable, in a project that was opened with `to_look`
    warnings: tuple[str, ...] = ()  # what the user should know about the backends and the spider
    tracer: Tracer | None = None  # of attempts; None: they are not traced
    old_copies: tuple[str, ...] = ()  # the warnings which say that the project was moved elsewhere

    @property
    def settings(self) -> Settings:
        return self.live.now

    @property
    def log_level(self) -> str:
        """From which level on this process logs at the moment."""
        return self.settings.log.level_of(self.worker)

    def of(self, settings: Settings, **changes: Any) -> Project:  # Any: the types of the fields
        """The project for a job with settings of its own."""
        live = LiveSettings(settings, self.live.overrides)
        return msgspec.structs.replace(self, live=live, **changes)


class UnavailableRecords:
    """Stands in for a record store that does not answer: every call raises the original error."""

    def __init__(self, error: BackendUnavailable) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error


@asynccontextmanager
async def open_project(
    settings: Settings, *, spider: Spider | None = None, clock: Clock | None = None, to_look: bool = False
) -> AsyncIterator[Project]:
    """Open state, records and archive. Raises Misconfigured, BadState or BackendUnavailable.

    The `spider` is the one that this process crawls with. With `to_look`, the archive is opened on
    first use, and a record store that does not answer is tolerated: `absent` says why, and every call to it raises that
    error. Most read-only commands need only the state.
    """
    shared = ServerClock(clock or SystemClock())
    worker = worker_name()
    demand_trust(settings.root / settings.store.spool)
    live = LiveSettings(settings, Overrides())
    remarks: Sequence[str] = ()
    if spider is not None:
        from ..parse.arguments import unread_attributes  # here: it imports all that reads pages

        remarks = unread_attributes(spider)
    async with AsyncExitStack() as stack:
        absent = ""
        try:
            records = await stack.enter_async_context(open_records(settings, shared))
        except BackendUnavailable as error:
            if not to_look:
                raise
            absent, records = str(error), cast("Records", UnavailableRecords(error))
        state = await stack.enter_async_context(
            open_state(settings, shared, terms_for=live.follow(site_terms), records=records)
        )
        await read_overrides(state, live.overrides)
        watching = asyncio.create_task(watch_overrides(state, live), name="overrides")
        stack.push_async_callback(_end, watching)
        old_copies = (
            *await old_copy(settings, "state", state.stream),
            *(() if absent else await old_copy(settings, "records", records.stream)),
        )
        writer = worker.replace("/", "-")
        archive: PageArchive = (
            ArchiveOnDemand(settings, writer, stack)
            if to_look
            else await stack.enter_async_context(open_archive(settings, writer))
        )
        yield Project(
            tracer=None if to_look else await stack.enter_async_context(open_tracer(settings, worker, __version__)),
            live=live,
            clock=state.clock,
            rules=url_rules(settings),
            state=state,
            records=records,
            archive=archive,
            worker=worker,
            quarantine=Quarantine(),
            robots_turns=OriginTurns(),
            box=PARENT.box,
            absent=absent,
            warnings=(*state.warnings, *old_copies, *remarks),
            old_copies=old_copies,
        )
        await state.durable()  # before a command tells a person what it has done


async def open_patiently(
    stack: AsyncExitStack,
    settings: Settings,
    tell: Callable[[str], None],
    *,
    spider: Spider | None = None,
    to_look: bool = False,
    patience: timedelta | None = None,
    check: Callable[[Settings], Awaitable[None]] | None = None,
) -> Project:
    """Open the backends; wait for one that is away, since commands are often started before their servers. `patience`
    is how long (None: without end), then BackendUnavailable is raised. `check` is called meanwhile, and may raise.

    An outage that lasts is said again and again: it may be a wrong setting after all. It is tried all the same.
    """
    clock, pauses, told = SystemClock(), AWAY.pauses(), ""
    began = told_at = clock.monotonic()
    while True:
        try:
            return await stack.enter_async_context(open_project(settings, spider=spider, to_look=to_look))
        except BackendUnavailable as error:
            now = clock.monotonic()
            if patience is not None and now - began >= patience.total_seconds():
                raise
            if str(error) != told:
                told, told_at = str(error), now
                tell(f"{told} Waiting for it.")
            elif now - told_at >= SAID_AGAIN.total_seconds():
                told_at = now
                tell(f"{told} Nothing could be done for {span(now - began)}. Waiting for it.")
            if check is not None:
                await check(settings)
        await clock.sleep(next(pauses).total_seconds())


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def is_crawled(settings: Settings) -> bool:
    """Whether the project already has state or records. Read-only commands ask this first, so that they create no
    files."""
    return any(not is_local(settings, role) or local_path(settings, role).exists() for role in ("state", "records"))


@asynccontextmanager
async def open_crawled(settings: Settings) -> AsyncIterator[Project]:
    """Open a project for reading. Raises Misconfigured if nothing has been crawled yet, and whatever `open_project`
    raises."""
    if not is_crawled(settings):
        raise Misconfigured(nothing_crawled(settings))
    async with open_project(settings, to_look=True) as project:
        yield project


def nothing_crawled(settings: Settings) -> str:
    return (
        f"Nothing has been crawled in {settings.root} yet. Start with `gossamer crawl URL` or `gossamer demo`, "
        f"or go to the folder of your project."
    )


@contextmanager
def open_beside(project: Project, *, settings: Settings, worker: str) -> Iterator[Project]:
    """The project for one more job of this process, on the same connections.

    The job gets its own frontier, because its spider may adjust the settings, and its own worker name, because one
    worker at a time paces a site.
    """
    beside = project.of(settings, worker=worker)
    with project.state.frontier_for(beside.live.follow(site_terms)) as frontier:
        yield msgspec.structs.replace(beside, state=msgspec.structs.replace(project.state, frontier=frontier))


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The migrations that were applied, in order, and the result in words."""

    applied: list[str]
    in_words: str


async def migrate_records(settings: Settings) -> Migrated:
    """Apply the missing migrations. SQLite needs none: opening the store migrates it. Raises
    BackendUnavailable, and Misconfigured while workers are at work: their statements are for the old tables."""
    scheme = scheme_of(settings, "records")
    if scheme not in POSTGRES:
        return Migrated(applied=[], in_words="nothing to do: a SQLite file is brought up to date whenever it is opened")
    from ..backends.postgres.connection import migrate_database  # imported late: the driver is an optional extra

    applied, address = await migrate_database(
        settings.records, schema=postgres_schema(settings), before=lambda: _require_no_workers(settings)
    )
    where = f"{address.place}, schema {address.schema}"
    return Migrated(applied=list(applied), in_words=f"{'up to date' if applied else 'was up to date already'}: {where}")


async def _require_no_workers(settings: Settings) -> None:
    """Raises Misconfigured while workers are at work, BackendUnavailable if the state cannot be asked."""
    from .upkeep.move.stores import at_work, exists, open_stores  # imported late: only a migration needs it

    async with AsyncExitStack() as stack:
        state = await open_stores(stack, settings, SystemClock(), ["state"] if exists(settings, "state") else [])
        busy = sorted(await at_work(state))
    if busy:
        names = ", ".join(busy[:3]) + (", ..." if len(busy) > 3 else "")
        raise Misconfigured(
            f"Workers are at work ({names}), and the tables were not changed: they would no longer fit them. In this "
            f"order: stop all workers, schedulers and servers of the older version (SIGTERM), run `gossamer migrate`, "
            f"start the new version. Those that were killed on another machine are forgotten when their leases end."
        )
