"""Settings in, a running system out. The only place that wires; everybody else is handed what they need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial

import msgspec

from .backends.opening import ArchiveOnDemand, old_copy, open_archive, open_records, open_state, record_carrier
from .backends.processes import worker_name
from .clock import Clock, ServerClock, SystemClock
from .crawl.crew import Crew
from .crawl.freshness import Freshness
from .crawl.gates import Gates
from .crawl.neighbours import Neighbours
from .crawl.pacer import Pacer
from .crawl.quarantine import Quarantine
from .crawl.steady import SteadyFrontier
from .crawl.worker import Worker
from .fetch.book import Purse, RouteBook
from .fetch.contract import Transport
from .fetch.cookies import CookieJar
from .fetch.fetcher import Fetcher
from .fetch.http import AiohttpTransport
from .fetch.robots import Robots, RobotsShelf
from .fetch.router import Router, lanes_of
from .fetch.tolls import Tolls, yesterday
from .frontier.admission import Admission, Scope
from .frontier.contract import (
    Frontier,
    FrontierDesk,
    FrontierFor,
    JobBook,
    JobControl,
    JobHistory,
    JobTerms,
    SowBook,
    WorkerBook,
)
from .lifeline import TIES, BlackBox
from .model.events import EventSink, Silence
from .model.job import JobState
from .model.route import DIRECT
from .model.url import UrlRules
from .parse.spider import Spider, spider_version
from .parse.timelimit import TimeLimit
from .pipeline.guard import Guard
from .pipeline.inspection import day_of
from .proxy.contract import ExitBook
from .proxy.pools import Pools
from .refining import latest_of, minimum_of, pipeline_of
from .schedule.contract import ScheduleBook, TickBook
from .schedule.sources import only_changed, source_of
from .schedule.windows import Window, parse_windows
from .settings import Settings
from .store.batching import Sink
from .store.contract import Archive, Records
from .store.spool import Spool
from .terms import limits_of, retry_terms, robots_rule, site_terms, url_rules
from .ways import check_installed, guard_of, routing_of, transports_of

HABITS_OF = timedelta(days=30)  # what was usual for so long is expected


class System(msgspec.Struct, frozen=True, kw_only=True):
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
    purse: Purse
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
async def open_system(
    settings: Settings, *, spider: Spider | None = None, clock: Clock | None = None, to_look: bool = False
) -> AsyncIterator[System]:
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
        yield System(
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


@contextmanager
def open_beside(system: System, spider: Spider, *, settings: Settings, worker: str) -> Iterator[System]:
    """A system for one more job of this process, on the same connections.

    The frontier is one of its own, because the spider's own wishes go with it, and so is the name, because each site
    is paced by one worker at a time.
    """
    with system.frontier_for(site_terms(settings, spider)) as frontier:
        yield msgspec.structs.replace(system, settings=settings, frontier=frontier, worker=worker)


@asynccontextmanager
async def open_transport(settings: Settings) -> AsyncIterator[Transport]:
    """The default way to the net, guarded."""
    async with AiohttpTransport(guard_of(settings)) as transport:
        yield transport


def open_robots(settings: Settings, transport: Transport, shelf: RobotsShelf, clock: Clock) -> Robots:
    return Robots(
        transport,
        shelf,
        clock,
        user_agent=settings.fetch.user_agent,
        limits=limits_of(settings),
        max_crawl_delay=settings.politeness.max_crawl_delay,
    )


@asynccontextmanager
async def open_worker(
    system: System,
    spider: Spider,
    job: str,
    scope: Scope,
    events: EventSink | None = None,
    *,
    terms: JobTerms | None = None,
    serves: frozenset[str] | None = None,
) -> AsyncIterator[Worker]:
    """A worker of this process for one job, ready to run. `terms` are the job's; `serves` are the routes it works on;
    None: all."""
    settings, clock = system.settings, system.clock
    listener = events or Silence()
    routing = routing_of(settings)
    check_installed(settings, routing, serves)
    async with (
        transports_of(settings, clock) as transports,
        Pools(
            settings.proxies,
            system.exits,
            clock,
            root=settings.root,
            project=settings.project,
            troubles=listener,
        ) as pools,
        Sink(
            system.records,
            system.archive if settings.store.keep_pages else None,
            spool=Spool(settings.root / settings.store.spool, max_bytes=settings.store.spool_limit.bytes),
            events=events,
            clock=clock,
        ) as sink,
    ):
        named = {route.pool for route in routing.routes.values() if route.pool is not None}
        await pools.prepare(named | ({spider.proxy_pool} if spider.proxy_pool is not None else set()))
        await system.purse.forget_purses(yesterday(clock))
        transport = await transports.for_pages(DIRECT)
        robots = open_robots(settings, transport, system.robots_shelf, clock)
        obeys = robots_rule(settings, spider)
        tolls = Tolls(system.purse, job, routing.budgets_for, clock, max_body=settings.fetch.max_body.bytes)
        router = Router(
            terms_for=routing.terms_for,
            routes=routing.routes,
            transports=transports,
            exits=pools,
            book=system.routes,
            tolls=tolls,
            clock=clock,
            serves=serves,
        )
        fetcher = Fetcher(
            transport,
            lambda site: robots if obeys(site) else None,
            CookieJar(clock=clock),
            user_agent=settings.fetch.user_agent,
            limits=limits_of(settings),
            max_redirects=settings.fetch.max_redirects,
            clock=clock,
        )
        since = day_of(clock.now() - HABITS_OF.total_seconds())
        counted = await system.records.scores(spider=spider.name, since=since)
        watched = terms is not None and bool(terms.schedule)
        grows = scope.sites if watched and isinstance(scope.sites, set) and spider.allowed_domains is None else None
        crew = Crew(
            job=job,
            worker=system.worker,
            spider=spider,
            parser_version=spider_version(type(spider)),
            fetcher=fetcher,
            router=router,
            pacer=Pacer(clock),
            pipeline=pipeline_of(settings, spider, counted=counted, latest=latest_of(system.records, sink)),
            guard=Guard(
                spider.name,
                minimum_of(settings, spider),
                settings.quality.window,
                keeps_pages=settings.store.keep_pages,
            ),
            admission=Admission(
                scope,
                system.rules,
                remember_known=settings.crawl.dedup_window is None,
                fetcher=spider.fetcher,
                proxy_pool=spider.proxy_pool,
            ),
            sink=sink,
            frontier=SteadyFrontier(system.frontier, clock, lease_duration=settings.lease.duration),
            retry_terms_for=retry_terms(settings),
            clock=clock,
            events=listener,
            time_limit=TimeLimit(settings.crawl.parse_timeout, system.box),
            buries_unpaid=settings.router.when_spent == "bury",
            detects_blocks=routing.detects_blocks,
            freshness=freshness_of(system, terms),
            gates=gates_of(settings, terms, clock),
            watched=watched,
            conditional=settings.fetch.conditional,
            neighbours=None if grows is None else Neighbours(system.jobs, system.sowings, job, grows),
        )
        yield Worker(
            crew,
            system.frontier,
            system.records,
            concurrency=settings.crawl.concurrency,
            lease_duration=settings.lease.duration,
            drain_within=settings.crawl.drain,
            lanes=lanes_of(serves, routing.routes, routing.ladder),
            quarantine=system.quarantine,
            max_deliveries=settings.lease.max_deliveries,
            is_over=partial(is_over, system.jobs, job),
        )


async def is_over(jobs: JobBook, job: str) -> bool:
    """Was the job ended, or is nothing left of it? Raises BackendUnavailable."""
    found = await jobs.job(job)
    if found is None or found.state is not JobState.RUNNING:
        return True
    return await jobs.is_sealed(job) and not (await jobs.counts(job)).open


def freshness_of(system: System, terms: JobTerms | None) -> Freshness | None:
    """What leaves out pages that need no fetch, where the job's schedule wants that."""
    if terms is None:
        return None
    # With a budget the choice of pages has seen to it already (rationing.py).
    dates = terms.budget is None and only_changed(source_of(terms.source))
    if terms.min_age is None and not dates:
        return None
    return Freshness(system.records, system.clock, terms.min_age, only_changed=dates)


def gates_of(settings: Settings, terms: JobTerms | None, clock: Clock) -> Gates:
    """The windows of the job and of its sites."""

    def windows_of(site: str) -> tuple[Window, ...]:
        text = settings.domain(site).windows
        return parse_windows(text) if text else ()

    own = terms.windows if terms is not None else ""
    return Gates(parse_windows(own) if own else (), windows_of, clock)
