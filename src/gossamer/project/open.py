"""The open backends of a project. Whoever only looks at them, or writes to them, loads no transport and no worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import msgspec

from ..backends.opening import (
    ArchiveOnDemand,
    is_local,
    local_path,
    old_copy,
    open_archive,
    open_records,
    open_state,
    record_carrier,
)
from ..backends.processes import worker_name
from ..clock import Clock, ServerClock, SystemClock
from ..crawl.quarantine import Quarantine
from ..errors import Misconfigured
from ..fetch.robots import RobotsShelf
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
from ..model.url import UrlRules
from ..parse.spider import Spider
from ..process.black_box import TIES, BlackBox
from ..routing.contract import BudgetBook, RouteBook
from ..routing.proxies.contract import ExitBook
from ..schedule.contract import ScheduleBook, TickBook
from ..settings import Settings
from ..settings.effective import site_terms, url_rules
from ..store.contract import Archive, Records


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The open backends of a project and what is derived from its settings."""

    settings: Settings
    clock: Clock
    rules: UrlRules
    frontier: Frontier
    frontier_for: FrontierFor
    jobs: JobBook
    desk: FrontierDesk
    robots_shelf: RobotsShelf
    workers: WorkerBook
    routes: RouteBook
    purse: BudgetBook
    exits: ExitBook
    schedules: ScheduleBook
    ticks: TickBook
    sowings: SowBook
    control: JobControl
    history: JobHistory
    records: Records
    archive: Archive
    worker: str
    quarantine: Quarantine  # of the whole process
    box: BlackBox | None = None
    warnings: tuple[str, ...] = ()  # what the user should know about the backends
    old_copies: tuple[str, ...] = ()  # those of them that say that the project was moved away


@asynccontextmanager
async def open_project(
    settings: Settings, *, spider: Spider | None = None, clock: Clock | None = None, to_look: bool = False
) -> AsyncIterator[Project]:
    """Open state, records and archive. Raises Misconfigured, BadState or BackendUnavailable.

    A spider's own wishes (rate, concurrency) hold for the sites it visits. `to_look` opens the archive only when a
    page is asked for.
    """
    shared = ServerClock(clock or SystemClock())
    worker = worker_name()
    async with AsyncExitStack() as stack:
        records = await stack.enter_async_context(open_records(settings, shared))
        state = await stack.enter_async_context(
            open_state(settings, shared, terms_for=site_terms(settings, spider), records=records)
        )
        records_copy = await old_copy(settings, "records", record_carrier(settings, records))
        old_copies = (*state.old_copy, *records_copy)
        writer = worker.replace("/", "-")
        archive: Archive = (
            ArchiveOnDemand(settings, writer, stack)
            if to_look
            else await stack.enter_async_context(open_archive(settings, writer))
        )
        yield Project(
            settings=settings,
            clock=state.clock,
            rules=url_rules(settings),
            frontier=state.frontier,
            frontier_for=state.frontier_for,
            jobs=state.jobs,
            desk=state.desk,
            robots_shelf=state.robots,
            workers=state.workers,
            routes=state.routes,
            purse=state.purse,
            exits=state.exits,
            schedules=state.schedules,
            ticks=state.ticks,
            sowings=state.sowings,
            control=state.control,
            history=state.history,
            records=records,
            archive=archive,
            worker=worker,
            quarantine=Quarantine(),
            box=TIES.box,
            warnings=(*state.warnings, *old_copies),
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
    """A system for one more job of this process, on the same connections.

    The frontier is one of its own, because the spider's own wishes go with it, and so is the name, because each site
    is paced by one worker at a time.
    """
    with project.frontier_for(site_terms(settings, spider)) as frontier:
        yield msgspec.structs.replace(project, settings=settings, frontier=frontier, worker=worker)
