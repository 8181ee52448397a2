"""The open backends of a project. Opening them loads no transport and no worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import NoReturn, cast

import msgspec

from .. import __version__
from ..backends.addresses import MONGO, POSTGRES, is_local, local_path, postgres_schema, scheme_of
from ..backends.open import ArchiveOnDemand, old_copy, open_archive, open_records, open_state
from ..backends.state import State
from ..backends.worker_names import worker_name
from ..clock import Clock, ServerClock, SystemClock
from ..crawl.quarantine import Quarantine
from ..errors import BackendUnavailable, Misconfigured
from ..fetch.robots import OriginTurns
from ..model.url import UrlRules
from ..monitor.otel import open_tracer
from ..parse.attributes import unread_attributes
from ..parse.spider import Spider
from ..process.black_box import PARENT, BlackBox
from ..settings import Settings
from ..settings.effective import site_terms, url_rules
from ..settings.trust import demand_trust
from ..store.contract import Archive, Records
from ..trace import Tracer


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The open backends of a project and what is derived from its settings."""

    settings: Settings
    clock: Clock
    rules: UrlRules
    state: State
    records: Records
    archive: Archive
    worker: str
    quarantine: Quarantine  # of the whole process
    robots_turns: OriginTurns  # of the whole process
    box: BlackBox | None = None
    absent: str = ""  # why the record store cannot be asked, in a project that was opened to look at it
    warnings: tuple[str, ...] = ()  # what the user should know about the backends and the spider
    tracer: Tracer | None = None  # of attempts, where they are traced
    old_copies: tuple[str, ...] = ()  # those of them that say that the project was moved away


class AbsentRecords:
    """Stands in for a record store that does not answer: whatever is asked of it raises why."""

    def __init__(self, error: BackendUnavailable) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error


@asynccontextmanager
async def open_project(
    settings: Settings, *, spider: Spider | None = None, clock: Clock | None = None, to_look: bool = False
) -> AsyncIterator[Project]:
    """Open state, records and archive. Raises Misconfigured, BadState or BackendUnavailable.

    A spider's own wishes (rate, concurrency) hold for the sites it visits. `to_look` opens the archive only when a
    page is asked for, and goes without a record store that does not answer: `absent` says why, and whatever is asked of
    it raises that. Most of what people look at needs the state alone.
    """
    shared = ServerClock(clock or SystemClock())
    worker = worker_name()
    demand_trust(settings.root / settings.store.spool)
    async with AsyncExitStack() as stack:
        absent = ""
        try:
            records = await stack.enter_async_context(open_records(settings, shared))
        except BackendUnavailable as error:
            if not to_look:
                raise
            absent, records = str(error), cast("Records", AbsentRecords(error))
        state = await stack.enter_async_context(
            open_state(settings, shared, terms_for=site_terms(settings, spider), records=records)
        )
        old_copies = (
            *await old_copy(settings, "state", state.stream),
            *(() if absent else await old_copy(settings, "records", records.stream)),
        )
        writer = worker.replace("/", "-")
        archive: Archive = (
            ArchiveOnDemand(settings, writer, stack)
            if to_look
            else await stack.enter_async_context(open_archive(settings, writer))
        )
        yield Project(
            tracer=None if to_look else await stack.enter_async_context(open_tracer(settings, worker, __version__)),
            settings=settings,
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
            warnings=(*state.warnings, *old_copies, *(unread_attributes(spider) if spider is not None else ())),
            old_copies=old_copies,
        )


def is_crawled(settings: Settings) -> bool:
    """Does the project have state or records already? Asked before a look, which must not create files."""
    return any(not is_local(settings, role) or local_path(settings, role).exists() for role in ("state", "records"))


@asynccontextmanager
async def open_crawled(settings: Settings) -> AsyncIterator[Project]:
    """Open a project to look at it. Raises Misconfigured where nothing has been crawled yet, and as `open_project`."""
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
def open_beside(project: Project, spider: Spider, *, settings: Settings, worker: str) -> Iterator[Project]:
    """The project for one more job of this process, on the same connections.

    The frontier is one of its own, because the spider's own wishes go with it, and so is the name, because each site
    is paced by one worker at a time.
    """
    with project.state.frontier_for(site_terms(settings, spider)) as frontier:
        state = msgspec.structs.replace(project.state, frontier=frontier)
        yield msgspec.structs.replace(project, settings=settings, state=state, worker=worker)


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The migrations that were applied, in order, and what there is to say of it."""

    applied: list[str]
    in_words: str


async def migrate_records(settings: Settings) -> Migrated:
    """Apply what is missing; nothing where the store does so whenever it is opened. Raises BackendUnavailable."""
    scheme = scheme_of(settings, "records")
    if scheme in MONGO:
        return Migrated(
            applied=[], in_words="nothing to do: collections in MongoDB are made whenever the store is opened"
        )
    if scheme not in POSTGRES:
        return Migrated(applied=[], in_words="nothing to do: a SQLite file is brought up to date whenever it is opened")
    from ..backends.postgres.connection import migrate_database  # its driver is an extra

    applied, address = await migrate_database(settings.records, schema=postgres_schema(settings))
    where = f"{address.place}, schema {address.schema}"
    return Migrated(applied=list(applied), in_words=f"{'up to date' if applied else 'was up to date already'}: {where}")
