"""The only way seeds enter: from a spider's own start, the source of the schedule that began the job, or the archive.

What it does: seeds enter while the worker works, and wait while the queue is full, so memory stays flat however many
there are. One worker at a time reads a source. Pages that need no fetch are dropped on the way, and with a budget only
the chosen ones enter. The sites found are recorded for all workers, because links may lead there.
How it fails: a source that fails is tried a few times. Then the job goes on with the seeds that entered, and records
what went wrong; a job without any seed ends. An unusable seed of the spider itself stops the worker and is raised.
How it recovers: a worker that takes over from a dead one reads from the beginning, and so does a worker whose state has
lost its last writes; seeds that entered before are duplicates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, aclosing
from datetime import timedelta
from functools import partial

import msgspec

from ..errors import FrontierFull, GossamerError, Misconfigured, SourceFailed, Transient
from ..frontier.admission import FORCED_IN_VAIN, Admission, Judged, LinkScope, forced_in_vain
from ..frontier.contract import JobTerms
from ..model.events import EventSink, Trouble
from ..model.job import Job
from ..model.task import DEFAULT_KIND, Candidate, Request
from ..model.url import UrlRules, origin_of, parse_url, site_of
from ..parse.seeds import SeedDigest, names_its_seeds, own_seeds, start_addresses
from ..parse.spider import Spider, parser_version, session_names
from ..schedule.authority import demand_own_job
from ..schedule.sources import FeedSource, Listing, PagesSource, SitemapSource, SiteSource, StartSource, source_of
from ..schedule.sources.reader import entries
from .freshness import freshness_of
from .own_sitemaps import MOST_ORIGINS, listed_pages, reads_sitemaps
from .page_request import archive_long_bodies
from .recrawl_choice import chosen_pages
from .seed_context import SeedContext
from .windows import job_windows
from .worker import Worker

SEEDS_AT_ONCE = 500
SOURCE_FAILED = "source failed"  # the ending of a job that has no seeds; the error follows
LONGEST_ENDING = 500
FULL_PAUSE = timedelta(milliseconds=500)
LEASE = timedelta(seconds=15)  # after this long without a renewal another worker reads the source
RENEW = timedelta(seconds=4)
LOOK = timedelta(seconds=1)  # between two looks at what another worker has read
QUICK = 0.001  # seconds that judging one URL of a source may take in a key's job without a rest
REST = 9  # times as long as judging a URL took is rested after it


async def run_with_seeds(
    context: SeedContext,
    spider: Spider,
    job: Job,
    worker: Worker,
    scope: LinkScope,
    sites: set[str],
    events: EventSink,
) -> bool:
    """Work on a job until nothing that its seeds lead to is left (True), or the worker is drained (False).

    Seeds enter here unless a worker has read them to their end. In that case a spider's own seeds are still read before
    the first link is judged, for the sake of their sites: all workers of a job must have the same scope.
    Raises Misconfigured and Transient.
    """
    sites.update(site_of(url) for url in start_addresses(spider))  # a link may be found before the last seed is read
    jobs = context.state.jobs
    sealed = await jobs.is_sealed(job.id)
    terms = await jobs.terms(job.id)
    demand_own_job(context.settings, job.name, terms)
    entering: asyncio.Task[None] | None = None
    enter: Callable[[], Coroutine[None, None, None]]
    if terms.schedule or terms.source or context.candidates is not None:
        seeder = Seeder(context, spider, job.id, terms, scope, sites, events)
        worker.reads_source, enter = lambda: seeder.reads, _with(worker.requests_of_start, seeder.run)
        seeder.offered = worker.look_again
        await seeder.learn_sites()  # the worker that read before may have died; its seeds are in the queue
        if not sealed and await jobs.is_sealed(job.id):
            await seeder.learn_sites()
        elif not sealed:
            entering = asyncio.create_task(enter(), name="seeds")
    else:
        start = _with(
            worker.requests_of_start, partial(_enter_start, context, spider, job, terms, scope, sites, events)
        )
        enter = partial(start, known=False)
        if not sealed or scope.sites is sites or names_its_seeds(spider):
            entering = asyncio.create_task(start(known=sealed), name="seeds")
    drained = None
    lost = asyncio.create_task(_enter_lost(context, job.id, worker, entering, enter, events), name="lost seeds")
    try:
        if entering is None:
            return await worker.run()
        if sealed and not terms.schedule:
            drained = asyncio.create_task(worker.draining.wait(), name="drained while reading seeds")
            await asyncio.wait({entering, drained}, return_when=asyncio.FIRST_COMPLETED)
        return await _run_beside(worker, entering)
    finally:
        beside = [task for task in (entering, drained, lost) if task is not None]
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def _with(
    allowed: Callable[[], AbstractContextManager[None]], enter: Callable[..., Coroutine[None, None, None]]
) -> Callable[..., Coroutine[None, None, None]]:
    async def entering(**given: bool) -> None:
        with allowed():
            await enter(**given)

    return entering


async def _enter_lost(
    context: SeedContext,
    job: str,
    worker: Worker,
    entering: asyncio.Task[None] | None,
    enter: Callable[[], Coroutine[None, None, None]],
    events: EventSink,
) -> None:
    """Enter the seeds again when a state that was restarted has lost them. All workers remember that they were in, and
    without this none would look again: the job would wait for ever."""
    if entering is not None:
        await asyncio.wait({entering})
    while True:
        await worker.doubted.wait()
        worker.doubted.clear()
        try:
            if not await context.state.jobs.is_sealed(job):
                await enter()
                worker.look_again()
        except Transient:  # it is away once more
            worker.doubted.set()
            await context.clock.sleep(LOOK.total_seconds())
        except GossamerError as error:
            events.emit(Trouble(at=context.clock.now(), job=job, stage="source", message=str(error)))


async def _run_beside(worker: Worker, entering: asyncio.Task[None]) -> bool:
    """Run the worker; an unusable seed stops it and is raised."""
    working = asyncio.create_task(worker.run(), name="worker")
    entering.add_done_callback(lambda _: worker.look_again())
    try:
        await asyncio.wait({working, entering}, return_when=asyncio.FIRST_COMPLETED)
        if entering.done() and not entering.cancelled() and entering.exception() is not None:
            worker.drain()
            await working
            entering.result()
        return await working
    finally:  # when this is cancelled, give back the pages in progress before the stores are closed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _enter_start(
    context: SeedContext,
    spider: Spider,
    job: Job,
    terms: JobTerms,
    scope: LinkScope,
    sites: set[str],
    events: EventSink,
    *,
    known: bool,
) -> None:
    """Offer the spider's own seeds, then those of its sites' sitemaps if it wants them. If all seeds are `known`, they
    only widen the scope, unless a person has changed them since the job began."""
    admission = admission_of(context.rules, spider, scope, named=True)
    max_queued = context.settings.crawl.max_queued
    chunk: list[Request] = []
    count, digest = 0, SeedDigest()
    origins: dict[str, None] = {}  # in the order of the seeds
    async for request in own_seeds(spider, digest, Misconfigured):
        count += 1
        sites.add(site_of(request.url))
        if spider.sitemaps and len(origins) < MOST_ORIGINS:
            origins[origin_of(parse_url(request.url))] = None
        if not known:
            chunk.append(request)
        if len(chunk) >= SEEDS_AT_ONCE:
            await offer(context, job.id, admission.judge(chunk), max_queued, events)
            chunk = []
    if not count:
        raise Misconfigured(f"Spider {spider.name} has nothing to start from. Give it start_urls, or a start() method.")
    if chunk:
        await offer(context, job.id, admission.judge(chunk), max_queued, events)
    if known:
        if job.start and job.start != digest.text and names_its_seeds(spider):
            await _offer_changed(context, spider, job.id, admission, events)
        return
    if reads_sitemaps(context, spider, job.depth):
        unread: list[str] = []

        def tell(words: str) -> None:
            unread.append(words)
            events.emit(Trouble(at=context.clock.now(), job=job.id, stage="sitemap", message=words))

        by_site = admission_of(context.rules, spider, scope, named=False)
        async with aclosing(listed_pages(context, spider, job.id, terms, origins, tell)) as listed:
            async for some in _chunks(listed):
                await offer(context, job.id, by_site.judge(some), max_queued, events)
        if unread:  # pages that only this sitemap lists are left out: no evidence that they are gone
            await context.state.seeds.note(job.id, (), unread[0])
    await context.state.jobs.seal_seeds(job.id, digest.text)


async def _offer_changed(
    context: SeedContext, spider: Spider, job: str, admission: Admission, events: EventSink
) -> None:
    """Offer the seeds of a job that goes on, because its list is not the one it began with: those that it knows are
    duplicates. No page is fetched before this returns, so it cannot wait for room in the queue."""
    try:
        async for some in _chunks(own_seeds(spider, SeedDigest(), Misconfigured)):
            judged = admission.judge(some)
            await context.state.frontier.add(
                job, await archive_long_bodies(judged.candidates, context.archive, context.clock)
            )
    except FrontierFull:
        words = (
            f"{job}: its list was changed after it began, and the queue has no room for all of the new pages. Run the"
            " same command again when others have been fetched, or start over with --fresh."
        )
        events.emit(Trouble(at=context.clock.now(), job=job, stage="source", message=words))


async def _chunks(requests: AsyncIterator[Request]) -> AsyncIterator[list[Request]]:
    chunk: list[Request] = []
    async for request in requests:
        chunk.append(request)
        if len(chunk) >= SEEDS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def admission_of(rules: UrlRules, spider: Spider, scope: LinkScope, *, named: bool) -> Admission:
    """Judges seeds. `named`: a person named them, and not the site itself."""
    return Admission(
        scope,
        rules,
        remember_known=False,
        fetcher=spider.fetcher,
        proxy_pool=spider.proxy_pool,
        sessions=session_names(spider),
        keep_user=True,
        named=named,
    )


async def offer(context: SeedContext, job: str, judged: Judged, max_queued: int | None, events: EventSink) -> None:
    """Add the candidates, waiting while the queue is full. Never offers more at once than the queue can hold."""
    candidates = await archive_long_bodies(judged.candidates, context.archive, context.clock)
    at_once = min(SEEDS_AT_ONCE, max_queued or SEEDS_AT_ONCE)
    for start in range(0, len(candidates), at_once):
        some = candidates[start : start + at_once]
        while True:
            try:
                added = await context.state.frontier.add(job, some)
                if forced_in_vain(some, added):
                    events.emit(Trouble(at=context.clock.now(), job=job, stage="force", message=FORCED_IN_VAIN))
                break
            except FrontierFull:
                await context.clock.sleep(FULL_PAUSE.total_seconds())


class Seeder:
    """Reads the seeds of one job that a schedule began, for one worker. `sites` grows while they are read: it decides
    which links are in scope."""

    def __init__(
        self,
        context: SeedContext,
        spider: Spider,
        job: str,
        terms: JobTerms,
        scope: LinkScope,
        sites: set[str],
        events: EventSink,
    ) -> None:
        self._context = context
        self._spider = spider
        self._job = job
        self._terms = terms
        self._source = source_of(terms.source)
        self._sites = sites
        self._events = events
        self.offered: Callable[[], None] = lambda: None  # called when seeds have entered the queue
        self._noted: set[str] = set()
        self._reads = self._waits = False
        self._fault, self._faults = "", 0  # of this reading of the source: the first fault, and how many
        self._listed_some = False  # the source listed at least one URL
        self._digest = SeedDigest()
        self._parser = parser_version(spider, terms.arguments)
        self._freshness = freshness_of(terms, context.records, context.clock, self._parser)
        sites.update(site_of(url) for url in start_addresses(spider))
        if isinstance(self._source, SitemapSource | SiteSource | FeedSource):
            sites.add(site_of(self._source.url))
        # A list or a feed may name any site. Which sites links may lead to is another matter: see `_widen`.
        if spider.allowed_domains is None:
            own = frozenset(sites) if isinstance(self._source, SitemapSource | SiteSource) else None
            scope = msgspec.structs.replace(scope, sites=own)
        by_site = isinstance(self._source, SitemapSource | SiteSource | FeedSource)
        self._admission = admission_of(context.rules, spider, scope, named=not by_site)

    @property
    def reads(self) -> bool:
        """Is the source being read here at this moment? Another worker would have to begin anew."""
        return self._reads and not self._waits

    async def learn_sites(self) -> None:
        """Add the sites that other workers have found."""
        if self._spider.allowed_domains is None:  # else the spider itself says where links may lead
            self._sites.update((await self._context.state.seeds.findings(self._job)).sites)

    async def run(self) -> None:
        """Return when all seeds are in, whichever worker read them, or when the job has ended because it has none.
        Raises Transient."""
        context, job = self._context, self._job
        claimed = context.claimed
        while not await context.state.jobs.is_sealed(job):
            known = await context.state.jobs.job(job)
            if known is not None and known.paused:
                claimed = False
                await context.clock.sleep(LOOK.total_seconds())
            elif claimed or await context.state.seeds.claim(job, context.worker, LEASE):
                claimed = False
                try:
                    if not await self._read_while_leased():
                        return
                finally:
                    await context.state.seeds.release(job, context.worker)
            else:
                await self.learn_sites()
                await context.clock.sleep(LOOK.total_seconds())
        await self.learn_sites()

    async def _read_while_leased(self) -> bool:
        """Read until all seeds are in or another worker has taken over. False if the job has ended."""
        reading = asyncio.create_task(self._read(), name="read the source")
        self._reads = True
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=RENEW.total_seconds())
                if not reading.done() and not await self._renewed():
                    return True  # the other worker continues
            return reading.result()
        finally:
            self._reads = False
            if not reading.done():
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _renewed(self) -> bool:
        return await self._context.state.seeds.claim(self._job, self._context.worker, LEASE)

    async def _read(self) -> bool:
        """Offer all seeds and seal the job. False if there were none and the job has ended."""
        context = self._context
        for pause in (*context.source_pauses, None):
            self._fault, self._faults, self._listed_some = "", 0, False
            self._digest = SeedDigest()
            try:
                async for judged in self._wanted():
                    await self._wait_for_demand()
                    await self._widen(judged.candidates)
                    fresh = judged if self._freshness is None else await self._freshness.mark(judged)
                    await offer(context, self._job, fresh, self._terms.max_queued, self._events)
                    self.offered()
                if self._faults and not self._listed_some:
                    raise SourceFailed(self._fault)
                break
            except (SourceFailed, Misconfigured) as error:
                if str(error) != self._fault:
                    self._report(str(error))
                if pause is not None and isinstance(error, SourceFailed):
                    await context.clock.sleep(pause.total_seconds())
                    continue
                if not (await context.state.jobs.counts(self._job)).discovered:
                    await self._end(f"{SOURCE_FAILED}: {error}"[:LONGEST_ENDING])
                    return False
                break
        if not self._faults and not self._listed_some and context.candidates is None:
            self._report("Its source listed no URL.")
        if self._faults:
            more = f" And {self._faults - 1:,} more." if self._faults > 1 else ""
            await context.state.seeds.note(self._job, (), self._fault + more)
        own = isinstance(self._source, StartSource)
        await context.state.jobs.seal_seeds(self._job, self._digest.text if own else "")
        return True

    async def _wait_for_demand(self) -> None:
        """Wait until the queue holds no more pages than the limit of the run."""
        limit = self._terms.limit
        while limit is not None:
            counts = await self._context.state.jobs.counts(self._job)
            if counts.queued + counts.waiting <= limit:
                return
            await self._context.clock.sleep(FULL_PAUSE.total_seconds())

    async def _end(self, ending: str) -> None:
        """End the job. Only the worker that still holds the lease may declare that there are no seeds."""
        job = await self._context.state.jobs.job(self._job)
        if job is not None and await self._renewed():
            await self._context.end_job(job, ending, self._events)

    async def _widen(self, candidates: tuple[Candidate, ...]) -> None:
        """Let links lead to the sites of a list that the project's owner wrote. URLs in a sitemap or feed are fetched,
        but the site that publishes it must not widen the scope."""
        if isinstance(self._source, SitemapSource | SiteSource | FeedSource) or self._context.candidates is not None:
            return
        if self._spider.allowed_domains is not None:
            return
        new = {one.site for one in candidates if one.dropped is None} - self._noted
        if new:
            self._sites.update(new)
            self._noted |= new
            await self._context.state.seeds.note(self._job, new)

    def _wanted(self) -> AsyncIterator[Judged]:
        """The candidates of the source; with a budget, those on which it is best spent."""
        if self._context.candidates is not None:
            return self._context.candidates()
        if self._terms.budget is None:
            return self._judged()
        return chosen_pages(self._context, self._job, self._terms, self._judged, self._parser)

    async def _judged(self) -> AsyncGenerator[Judged, None]:
        chunk: list[Request] = []
        at_once = 1 if isinstance(self._source, SiteSource) else SEEDS_AT_ONCE  # its page need not wait for a sitemap
        async with aclosing(self._requests()) as requests:
            async for request in requests:
                self._listed_some = True
                chunk.append(request)
                if len(chunk) >= at_once:
                    yield self._admission.judge(chunk)
                    chunk, at_once = [], SEEDS_AT_ONCE
        if chunk:
            yield self._admission.judge(chunk)

    async def _requests(self) -> AsyncGenerator[Request, None]:
        """Yield the requests, one at a time. Raises Misconfigured, SourceFailed."""
        if isinstance(self._source, PagesSource):
            for page in self._source.pages:
                yield page.request
            return
        if not isinstance(self._source, StartSource):
            async with aclosing(self._listed(self._source)) as listed:
                async for request in listed:
                    yield request
            return
        count = 0
        async for request in own_seeds(self._spider, self._digest, SourceFailed):
            count += 1
            yield request
        if not count:
            raise Misconfigured(
                f"Spider {self._spider.name} has nothing to start from. Give it start_urls, or the schedule a source."
            )

    async def _listed(self, source: Listing) -> AsyncGenerator[Request, None]:
        context, terms = self._context, self._terms
        windows = job_windows(context.settings, terms, context.clock)
        announce = partial(context.take_turn, self._job)  # other workers leave the site alone meanwhile

        def closed_for(site: str) -> timedelta:
            closed = max(windows.job.wait(), windows.wait_for(site))
            self._waits = bool(closed)
            return closed

        async with (
            context.open_files(
                spider=self._spider, politeness=self._terms.politeness, announce=announce, closed_for=closed_for
            ) as files,
            aclosing(entries(source, files.context(report=self._report))) as listed,
        ):
            async for entry in listed:
                began = time.perf_counter()
                request = self._spider.from_source(
                    Request(url=entry.url, kind=terms.kind or DEFAULT_KIND, lastmod=entry.lastmod)
                )
                took = time.perf_counter() - began
                slow = bool(terms.owner) and took > QUICK
                # A million refused URLs, or slow patterns of a key, must not keep the loop from the pages in flight.
                if request is None or slow:
                    await asyncio.sleep(took * REST if slow else 0)
                if request is not None:
                    yield request

    def _report(self, message: str) -> None:
        self._fault = self._fault or message
        self._faults += 1
        self._events.emit(Trouble(at=self._context.clock.now(), job=self._job, stage="source", message=message))
