"""Turns an open project into a running worker. Only project/ constructs objects; every other package receives what it
needs as arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial

import msgspec

from ..backends.worker_names import is_gone
from ..clock import Clock, SystemClock
from ..crawl.context import JobContext, SourceSites
from ..crawl.extension import Extensions, listening
from ..crawl.fetch_page import fetcher_of
from ..crawl.file_journey import FileTerms
from ..crawl.freshness import freshness_of
from ..crawl.pacer import AddressPace, Pacer
from ..crawl.page_request import PageRequests
from ..crawl.parse_page import Describe
from ..crawl.second_opinion import SecondOpinion
from ..crawl.seed_context import SOURCE_PAUSES, Candidates, SeedContext
from ..crawl.sessions import Sessions, SessionTerms
from ..crawl.source_files import ClosedFor, SourceFiles
from ..crawl.unleased_turn import Announce, UnleasedTurns
from ..crawl.windows import job_windows
from ..crawl.worker import LOOK, MakeJourney, Worker
from ..errors import Misconfigured, ParseFailed
from ..fetch.open_route import Transports
from ..fetch.robots import Robots
from ..fetch.robots_shelf import MemoryShelf, OriginTurns, RobotsShelf
from ..frontier.admission import Admission, LinkScope
from ..frontier.contract import AddressBook, JobBook, JobTerms
from ..model.events import EventSink, LoggedIn, LoginFailed, NullSink, Trouble
from ..model.job import Job, JobPoliteness, JobState
from ..model.record import day_of
from ..model.session import KeptSession
from ..parse.callbacks import has_hook, run_hook
from ..parse.spider import Spider, parser_version, session_names
from ..parse.timelimit import TimeLimit
from ..routing.budget import BudgetKeeper, yesterday
from ..routing.ladder import first_rung
from ..routing.proxies.contract import ProxyBook
from ..routing.proxies.pools import Pools
from ..routing.router import Router, lanes_of
from ..settings import Settings
from ..store.part_files import PartFolder
from ..store.sink import ArchiveQuota, Sink
from ..store.spool import Spool
from ..store.spool_notes import SpoolNotes
from ..terms import (
    header_defaults,
    limits_of,
    politeness_of,
    retry_terms,
    robots_rule,
    routing_of,
    secrets_of,
    site_terms,
)
from .dead_letters.sent_requests import close_letter
from .extensions import extensions_of
from .jobs.end import end_job
from .open import Project
from .pipelines import HABITS_OF, latest_of, pipeline_of, quality_guard_of
from .transports import SharedTransports, check_installed, transports_of


def robots_of(settings: Settings, shelf: RobotsShelf, clock: Clock, turns: OriginTurns | None = None) -> Robots:
    """The robots.txt rules of all sites. Pass the `turns` of the process if several callers share the shelf."""
    return Robots(
        shelf,
        clock,
        user_agent=settings.fetch.user_agent,
        limits=limits_of(settings),
        max_crawl_delay=settings.politeness.max_crawl_delay,
        turns=turns,
    )


def address_pace(settings: Settings, book: AddressBook, clock: Clock) -> AddressPace | None:
    """The pace per address; None if the settings set none."""
    interval = settings.politeness.per_address.interval
    return AddressPace(book, clock, interval) if interval is not None else None


def sink_of(project: Project, events: EventSink | None = None) -> Sink:
    """The one sink of this process, shared by all of its jobs. Entering it drains this machine's spool."""
    settings, clock = project.settings, project.clock
    spool = Spool(settings.root / settings.store.spool, max_bytes=settings.store.spool_limit.bytes, noted=True)
    limit = settings.store.archive_limit
    quota = None
    if limit is not None and settings.store.keep_pages:
        quota = ArchiveQuota(project.archive, limit.bytes, clock, events or NullSink())
    return Sink(
        project.records,
        project.archive if settings.store.keep_pages else None,
        spool=spool,
        notes=SpoolNotes(project.state.spools, spool, clock, worker=project.worker),
        events=events,
        clock=clock,
        quota=quota,
    )


def page_requests(project: Project, spider: Spider | None) -> PageRequests:
    """Raises Misconfigured."""
    settings = project.settings
    reveal = secrets_of(settings)
    if spider is not None:
        spider.use_secrets(reveal)
    return PageRequests(
        header_defaults(settings, spider), reveal, project.archive if settings.store.keep_pages else None
    )


def sessions_of(project: Project, spider: Spider, job: str, events: EventSink, *, may_log_in: bool = True) -> Sessions:
    """The sessions of a spider. The outcome of each login is emitted as an event."""
    settings, clock = project.settings, project.clock

    def told(session: str, kept: KeptSession, error: str) -> None:
        now = clock.now()
        if error:
            pause = max(0.0, kept.retry_at - now)
            words = f"Session {session} of {spider.name} cannot log in: {error}"
            events.emit(
                LoginFailed(at=now, job=job, session=session, failures=kept.failures, delay=pause, message=words)
            )
        else:
            events.emit(LoggedIn(at=now, job=job, session=session, logins=kept.logins))

    return Sessions(
        project.state.sessions,
        clock,
        spider=spider.name,
        worker=project.worker,
        terms=SessionTerms(
            tries=settings.sessions.login_tries,
            pause=settings.sessions.login_pause,
            timeout=settings.sessions.login_timeout,
            lock=settings.lease.duration,
        ),
        is_gone=is_gone,
        told=told,
        may_log_in=may_log_in,
    )


@asynccontextmanager
async def open_worker(
    project: Project,
    spider: Spider,
    job: str,
    scope: LinkScope,
    sink: Sink,
    events: EventSink | None = None,
    *,
    terms: JobTerms | None = None,
    serves: frozenset[str] | None = None,
    look: timedelta = LOOK,
    transports: Transports | None = None,
    journey: MakeJourney | None = None,
    shared: SharedTransports | None = None,
    describe: Describe | None = None,
) -> AsyncIterator[Worker]:
    """Open a worker of this process for one job, ready to run.

    `sink` is shared by the process, `terms` belong to the job. `serves` are the routes that the worker serves (None:
    all). `look` is the pause between two looks at a job whose window is closed. `transports` replace those of the
    settings, for a replay; `journey` replaces the fetching of pages; `shared` are the transports that the jobs of this
    process share; `describe` reads pages in another process.
    """
    async with open_context(
        project,
        spider,
        job,
        scope,
        sink,
        events,
        terms=terms,
        serves=serves,
        transports=transports,
        shared=shared,
        describe=describe,
    ) as context:
        try:
            if transports is None:  # not in a replay, which stores nothing
                spider._end_job = partial(project.state.control.end_soon, job)
                spider._job_tally = partial(_tally, project, job)
                await _call(context, spider, "_entered", job)
            await _call(context, spider, "opened", job)
        except ParseFailed as error:
            raise Misconfigured(f"{error} No page of {job} is fetched here.") from error
        try:
            yield worker_of(project, context, serves=serves, look=look, journey=journey)
        finally:
            await _leave(context, spider, job)


def worker_of(
    project: Project,
    context: JobContext,
    *,
    serves: frozenset[str] | None,
    look: timedelta,
    journey: MakeJourney | None = None,
    pages: int | None = None,
    is_taken: Callable[[], Awaitable[bool]] | None = None,
) -> Worker:
    """The worker of the job of that context; see `open_worker`, and `Worker` for `pages` and `is_taken`."""
    settings, routing = project.settings, routing_of(project.settings)
    return Worker(
        context,
        project.state.frontier,
        project.records,
        concurrency=settings.crawl.concurrency,
        lease_duration=settings.lease.duration,
        drain_within=settings.crawl.drain,
        lanes=lanes_of(serves, routing.routes, routing.ladder),
        quarantine=project.quarantine,
        max_deliveries=context.max_deliveries,
        is_over=partial(is_over, project.state.jobs, context.job),
        look=look,
        journey=journey,
        pages=pages,
        is_taken=is_taken,
    )


def beside_context(project: Project, context: JobContext, job: Job, scope: LinkScope, terms: JobTerms) -> JobContext:
    """The context of one more job of the same spider under the same terms for sites, whose pages give no records. It
    has its own links, budget, cookies and failures that may be this machine's, and shares all else."""
    return msgspec.structs.replace(
        context,
        job=job.id,
        begun_at=job.created_at,
        max_deliveries=terms.max_deliveries,
        admission=link_admission(project, context.spider, scope),
        router=context.router.beside(budget_of(project, job.id)),
        second_opinion=SecondOpinion(project.state.workers, project.clock),
    )


def budget_of(project: Project, job: str) -> BudgetKeeper:
    budgets_for = project.live.follow(lambda now: routing_of(now).budgets_for)
    max_body = project.settings.fetch.max_body.bytes
    return BudgetKeeper(project.state.budgets, job, budgets_for, project.clock, max_body=max_body)


def link_admission(project: Project, spider: Spider, scope: LinkScope) -> Admission:
    """Judges the links that the pages of one job give."""
    return Admission(
        scope,
        project.rules,
        remember_known=project.settings.crawl.dedup_window is None,
        fetcher=spider.fetcher,
        proxy_pool=spider.proxy_pool,
        sessions=session_names(spider),
    )


async def _tally(project: Project, job: str) -> tuple[float, Mapping[str, int]]:
    """The age of a job in seconds, and what its spider has counted on the pages that are settled."""
    known = await project.state.jobs.job(job)
    counts = await project.state.jobs.counts(job)
    return (project.clock.now() - known.created_at if known is not None else 0.0), counts.stats


async def _call(context: JobContext, spider: Spider, hook: str, job: str) -> None:
    """Raises ParseFailed."""
    if has_hook(spider, hook):
        await context.time_limit.run(run_hook(spider, hook, job), spider.name)


async def _leave(context: JobContext, spider: Spider, job: str) -> None:
    """Tell the spider that it has had its last page in this process."""
    try:
        await _call(context, spider, "_left", job)
    except ParseFailed as error:
        context.events.emit(Trouble(at=context.clock.now(), job=job, stage="spider", message=str(error)))


@asynccontextmanager
async def open_context(
    project: Project,
    spider: Spider,
    job: str,
    scope: LinkScope,
    sink: Sink,
    events: EventSink | None = None,
    *,
    terms: JobTerms | None = None,
    serves: frozenset[str] | None = None,
    transports: Transports | None = None,
    shared: SharedTransports | None = None,
    describe: Describe | None = None,
) -> AsyncIterator[JobContext]:
    """What the journeys of a job share, with its transports open. The parameters are those of `open_worker`."""
    settings, clock, live = project.settings, project.clock, project.live
    ones = extensions_of(settings, spider)
    limit = TimeLimit(settings.crawl.parse_timeout, project.box)
    extensions = Extensions(ones, limit)
    routing = routing_of(settings)
    replays = transports is not None
    if not replays:
        check_installed(settings, routing, serves)
    opening = transports or (shared.for_settings(settings) if shared is not None else transports_of(settings, clock))
    async with (
        listening(ones, events or NullSink(), clock) as listener,
        opening as opened,
        Pools(
            settings.proxies,
            project.state.proxies,
            clock,
            root=settings.root,
            project=settings.project,
            troubles=listener,
            skips=live.follow(lambda now: lambda pool: now.proxies[pool].skip),
        ) as pools,
    ):
        named = {route.pool for route in routing.routes.values() if route.pool is not None}
        await pools.prepare(named | ({spider.proxy_pool} if spider.proxy_pool is not None else set()))
        robots = robots_of(settings, project.state.robots, clock, project.robots_turns)
        own_pace = terms.politeness if terms is not None else politeness_of(settings, spider)
        sessions = sessions_of(project, spider, job, listener, may_log_in=not replays)
        router = Router(
            terms_for=live.follow(lambda now: routing_of(now).terms_for),
            routes=routing.routes,
            transports=opened,
            proxies=pools,
            book=project.state.routes,
            budget=budget_of(project, job),
            clock=clock,
            serves=serves,
            sessions=sessions,
        )
        asked = None if replays else robots
        fetcher = fetcher_of(settings, asked, robots_rule(settings, spider), clock, around=extensions.around_fetch)
        since = day_of(clock.now() - HABITS_OF.total_seconds())
        counted = await project.records.scores(spider=spider.name, since=since) if spider._gives_records else ()
        watched = terms is not None and bool(terms.schedule)
        parser = parser_version(spider, terms.arguments if terms is not None else "")
        grows = scope.sites if watched and isinstance(scope.sites, set) and spider.allowed_domains is None else None
        windows = job_windows(settings, terms, clock)
        pacer = Pacer(clock, addresses=address_pace(settings, project.state.addresses, clock))
        unleased_turns = UnleasedTurns(
            pacer,
            project.state.seeds,
            project.state.frontier,
            clock,
            worker=project.worker,
            terms_for=live.follow(lambda now: site_terms(now, own_pace)),
            closed_for=windows.wait_for,
        )
        begun = await project.state.jobs.job(job)
        context = JobContext(
            job=job,
            max_deliveries=(terms.max_deliveries if terms is not None else settings.lease.max_deliveries),
            worker=project.worker,
            spider=spider,
            parser_version=parser,
            fetcher=fetcher,
            router=router,
            sessions=sessions,
            pacer=pacer,
            unleased_turns=unleased_turns,
            pipeline=pipeline_of(settings, spider, counted=counted, latest=latest_of(project.records, sink)),
            guard=await quality_guard_of(settings, spider, job, project.records),
            admission=link_admission(project, spider, scope),
            sink=sink,
            records=project.records,
            durable=project.state.durable,
            begun_at=begun.created_at if begun is not None else 0.0,
            readmits=settings.crawl.dedup_window is not None,
            frontier=project.state.frontier,
            retry_terms_for=live.follow(retry_terms),
            requests=page_requests(project, spider),
            clock=clock,
            events=listener,
            time_limit=limit,
            around_parse=extensions.around_parse,
            describe=describe,
            tracer=project.tracer,
            buries_unpaid=settings.router.when_spent == "bury",
            detects_blocks=routing.detects_blocks,
            close_letter=partial(close_letter, project),
            second_opinion=SecondOpinion(project.state.workers, clock),
            freshness=freshness_of(terms, project.records, clock, parser),
            windows=windows,
            watched=watched,
            conditional=settings.fetch.conditional,
            files=FileTerms(
                archive=project.archive,
                parts=PartFolder(settings.root / settings.files.parts),
                limits=msgspec.structs.replace(limits_of(settings), total=settings.files.timeout),
                max_size=settings.files.max_size.bytes,
                rules=project.rules,
            ),
            source_sites=None if grows is None else SourceSites(project.state.jobs, project.state.seeds, job, grows),
        )
        yield context


async def forget_outdated(project: Project) -> None:
    """Delete the budgets of days that are over, and sessions that nobody has used for long. Raises
    BackendUnavailable."""
    keep = project.settings.sessions.keep.total_seconds()
    await project.state.budgets.forget_budgets(yesterday(project.clock))
    await project.state.sessions.forget_unused(project.clock.now() - keep)


@asynccontextmanager
async def open_source_files(
    settings: Settings,
    *,
    clock: Clock | None = None,
    shelf: RobotsShelf | None = None,
    turns: OriginTurns | None = None,
    proxies: ProxyBook | None = None,
    announce: Announce | None = None,
    closed_for: ClosedFor | None = None,
    spider: Spider | None = None,
    politeness: JobPoliteness | None = None,
    addresses: AddressBook | None = None,
) -> AsyncIterator[SourceFiles]:
    """Open what fetches sitemaps and feeds. Raises Misconfigured.

    `shelf` caches robots.txt answers, and `turns` keeps the process from asking for the same one twice at once.
    `proxies` is needed if the settings send a site through a proxy pool, `addresses` if they set a pace per address.
    For the other parameters see `SourceFiles`.
    """
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        pools = None
        if proxies is not None:
            pools = await stack.enter_async_context(
                Pools(settings.proxies, proxies, clock, project=settings.project, root=settings.root)
            )
        routing = routing_of(settings)
        router = Router(
            terms_for=lambda site: first_rung(routing.terms_for(site)),
            routes=routing.routes,
            transports=await stack.enter_async_context(transports_of(settings, clock)),
            proxies=pools,
            clock=clock,
            for_files=True,
        )
        robots = robots_of(settings, shelf or MemoryShelf(), clock, turns)
        yield SourceFiles(
            settings,
            router,
            robots,
            clock,
            announce=announce,
            closed_for=closed_for,
            spider=spider,
            politeness=politeness,
            addresses=address_pace(settings, addresses, clock) if addresses is not None else None,
        )


async def is_over(jobs: JobBook, job: str) -> bool:
    """Whether the job has ended or has no open page left. Raises BackendUnavailable."""
    known = (await jobs.counts_of([job])).get(job)
    if known is None or (known[1] and not known[0].open):
        return True
    found = await jobs.job(job)
    return found is None or found.state is not JobState.RUNNING


def seed_context(
    project: Project,
    *,
    source_pauses: tuple[timedelta, ...] = SOURCE_PAUSES,
    on_the_net: bool = True,
    candidates: Candidates | None = None,
    claimed: bool = False,
) -> SeedContext:
    """What seeding needs from the project. `source_pauses` are the waits between two tries of a failing source. A job
    that is not `on_the_net` has no sitemaps. `candidates` replace the source. `claimed`: this worker has its lease."""
    return SeedContext(
        settings=project.settings,
        clock=project.clock,
        rules=project.rules,
        state=project.state,
        records=project.records,
        worker=project.worker,
        open_files=partial(
            open_source_files,
            project.settings,
            clock=project.clock,
            shelf=project.state.robots,
            turns=project.robots_turns,
            proxies=project.state.proxies,
            addresses=project.state.addresses,
        ),
        end_job=partial(end_job, project),
        source_pauses=source_pauses,
        on_the_net=on_the_net,
        candidates=candidates,
        claimed=claimed,
        archive=project.archive if project.settings.store.keep_pages else None,
    )
