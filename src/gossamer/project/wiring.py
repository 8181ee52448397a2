"""An open system in, a running worker out. Only here and in system.py are things wired; everybody else is handed
what they need."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

from ..clock import Clock, SystemClock
from ..crawl.context import JobContext
from ..crawl.freshness import Freshness
from ..crawl.neighbours import Neighbours
from ..crawl.pacer import Pacer
from ..crawl.source_files import Announce, ClosedFor, SourceFiles
from ..crawl.steady_frontier import SteadyFrontier
from ..crawl.windows import Gates
from ..crawl.worker import Worker
from ..fetch.contract import Transport
from ..fetch.fetcher import Fetcher
from ..fetch.http import AiohttpTransport
from ..fetch.robots import MemoryShelf, Robots, RobotsShelf
from ..frontier.admission import Admission, Scope
from ..frontier.contract import (
    JobBook,
    JobTerms,
)
from ..model.events import EventSink, Silence
from ..model.job import JobState
from ..parse.spider import Spider, spider_version
from ..parse.timelimit import TimeLimit
from ..pipeline.guard import Guard
from ..pipeline.inspection import day_of
from ..routing.budget import BudgetKeeper, yesterday
from ..routing.ladder import first_rung
from ..routing.proxies.contract import ExitBook
from ..routing.proxies.pools import Pools
from ..routing.router import Router, lanes_of
from ..schedule.sources import only_changed, source_of
from ..schedule.windows import Window, parse_windows
from ..settings import Settings
from ..settings.effective import limits_of, retry_terms, robots_rule
from ..store.sink import Sink
from ..store.spool import Spool
from .open import Project
from .pipelines import latest_of, minimum_of, pipeline_of
from .transports import check_installed, guard_of, routing_of, transports_of

HABITS_OF = timedelta(days=30)  # what was usual for so long is expected


@asynccontextmanager
async def open_transport(settings: Settings) -> AsyncIterator[Transport]:
    """The default way to the net, guarded."""
    async with AiohttpTransport(guard_of(settings)) as transport:
        yield transport


def robots_of(settings: Settings, shelf: RobotsShelf, clock: Clock) -> Robots:
    return Robots(
        shelf,
        clock,
        user_agent=settings.fetch.user_agent,
        limits=limits_of(settings),
        max_crawl_delay=settings.politeness.max_crawl_delay,
    )


@asynccontextmanager
async def open_worker(
    project: Project,
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
    settings, clock = project.settings, project.clock
    listener = events or Silence()
    routing = routing_of(settings)
    check_installed(settings, routing, serves)
    async with (
        transports_of(settings, clock) as transports,
        Pools(
            settings.proxies,
            project.state.exits,
            clock,
            root=settings.root,
            project=settings.project,
            troubles=listener,
        ) as pools,
        Sink(
            project.records,
            project.archive if settings.store.keep_pages else None,
            spool=Spool(settings.root / settings.store.spool, max_bytes=settings.store.spool_limit.bytes),
            events=events,
            clock=clock,
        ) as sink,
    ):
        named = {route.pool for route in routing.routes.values() if route.pool is not None}
        await pools.prepare(named | ({spider.proxy_pool} if spider.proxy_pool is not None else set()))
        await project.state.purse.forget_budgets(yesterday(clock))
        robots = robots_of(settings, project.state.robots, clock)
        obeys = robots_rule(settings, spider)
        budget = BudgetKeeper(
            project.state.purse, job, routing.budgets_for, clock, max_body=settings.fetch.max_body.bytes
        )
        router = Router(
            terms_for=routing.terms_for,
            routes=routing.routes,
            transports=transports,
            exits=pools,
            book=project.state.routes,
            budget=budget,
            clock=clock,
            serves=serves,
        )
        fetcher = Fetcher(
            lambda site: robots if obeys(site) else None,
            user_agent=settings.fetch.user_agent,
            limits=limits_of(settings),
            max_redirects=settings.fetch.max_redirects,
            clock=clock,
        )
        since = day_of(clock.now() - HABITS_OF.total_seconds())
        counted = await project.records.scores(spider=spider.name, since=since)
        watched = terms is not None and bool(terms.schedule)
        grows = scope.sites if watched and isinstance(scope.sites, set) and spider.allowed_domains is None else None
        context = JobContext(
            job=job,
            worker=project.worker,
            spider=spider,
            parser_version=spider_version(type(spider)),
            fetcher=fetcher,
            router=router,
            pacer=Pacer(clock),
            pipeline=pipeline_of(settings, spider, counted=counted, latest=latest_of(project.records, sink)),
            guard=Guard(
                spider.name,
                minimum_of(settings, spider),
                settings.quality.window,
                keeps_pages=settings.store.keep_pages,
            ),
            admission=Admission(
                scope,
                project.rules,
                remember_known=settings.crawl.dedup_window is None,
                fetcher=spider.fetcher,
                proxy_pool=spider.proxy_pool,
            ),
            sink=sink,
            frontier=SteadyFrontier(project.state.frontier, clock, lease_duration=settings.lease.duration),
            retry_terms_for=retry_terms(settings),
            clock=clock,
            events=listener,
            time_limit=TimeLimit(settings.crawl.parse_timeout, project.box),
            buries_unpaid=settings.router.when_spent == "bury",
            detects_blocks=routing.detects_blocks,
            freshness=freshness_of(project, terms),
            gates=gates_of(settings, terms, clock),
            watched=watched,
            conditional=settings.fetch.conditional,
            neighbours=None if grows is None else Neighbours(project.state.jobs, project.state.seeds, job, grows),
        )
        yield Worker(
            context,
            project.state.frontier,
            project.records,
            concurrency=settings.crawl.concurrency,
            lease_duration=settings.lease.duration,
            drain_within=settings.crawl.drain,
            lanes=lanes_of(serves, routing.routes, routing.ladder),
            quarantine=project.quarantine,
            max_deliveries=settings.lease.max_deliveries,
            is_over=partial(is_over, project.state.jobs, job),
        )


@asynccontextmanager
async def open_source_files(
    settings: Settings,
    *,
    clock: Clock | None = None,
    shelf: RobotsShelf | None = None,
    exits: ExitBook | None = None,
    announce: Announce | None = None,
    closed_for: ClosedFor | None = None,
    spider: Spider | None = None,
) -> AsyncIterator[SourceFiles]:
    """What fetches sitemaps and feeds. Raises Misconfigured.

    `shelf` keeps answers of robots.txt, `exits` is needed where the settings send a site through a proxy pool; for the
    rest see `SourceFiles`.
    """
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        pools = None
        if exits is not None:
            pools = await stack.enter_async_context(
                Pools(settings.proxies, exits, clock, project=settings.project, root=settings.root)
            )
        routing = routing_of(settings)
        router = Router(
            terms_for=lambda site: first_rung(routing.terms_for(site)),
            routes=routing.routes,
            transports=await stack.enter_async_context(transports_of(settings, clock)),
            exits=pools,
            clock=clock,
            for_files=True,
        )
        robots = robots_of(settings, shelf or MemoryShelf(), clock)
        yield SourceFiles(settings, router, robots, clock, announce=announce, closed_for=closed_for, spider=spider)


async def is_over(jobs: JobBook, job: str) -> bool:
    """Was the job ended, or is nothing left of it? Raises BackendUnavailable."""
    found = await jobs.job(job)
    if found is None or found.state is not JobState.RUNNING:
        return True
    return await jobs.is_sealed(job) and not (await jobs.counts(job)).open


def freshness_of(project: Project, terms: JobTerms | None) -> Freshness | None:
    """What leaves out pages that need no fetch, where the job's schedule wants that."""
    if terms is None:
        return None
    # With a budget the choice of pages has seen to it already (rationing.py).
    dates = terms.budget is None and only_changed(source_of(terms.source))
    if terms.min_age is None and not dates:
        return None
    return Freshness(project.records, project.clock, terms.min_age, only_changed=dates)


def gates_of(settings: Settings, terms: JobTerms | None, clock: Clock) -> Gates:
    """The windows of the job and of its sites."""

    def windows_of(site: str) -> tuple[Window, ...]:
        text = settings.domain(site).windows
        return parse_windows(text) if text else ()

    own = terms.windows if terms is not None else ""
    return Gates(parse_windows(own) if own else (), windows_of, clock)
