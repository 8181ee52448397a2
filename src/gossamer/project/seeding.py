"""The first requests of a job that a schedule began: from its source, or from the spider's own start.

What it does: one worker at a time reads the source, bit by bit: however long it is, memory stays flat, and reading
waits while the queue is full. Pages that need no fetch are dropped on the way, and with a budget only the chosen ones
enter. The sites that were found are noted for all workers, because links may lead there.
How it fails: a source that fails is tried a few times. Then the job goes on with what is in, and what was wrong is
noted with it; a job that has nothing ends.
How it recovers: who takes over from a worker that died reads from the beginning; what is in already is a duplicate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta

import msgspec

from ..errors import FrontierFull, Misconfigured, SourceFailed
from ..frontier.admission import Admission, Judged, Scope
from ..frontier.contract import JobTerms
from ..model.events import EventSink, Trouble
from ..model.task import DEFAULT_KIND, Candidate, Request
from ..model.url import site_of
from ..parse.spider import Spider, listed_seeds, seeds
from ..schedule.sources import FeedSource, Listing, SitemapSource, StartSource, entries, source_of
from .job_end import end
from .open import Project
from .seed_choice import chosen
from .wiring import freshness_of, gates_of, open_source_files

SEEDS_AT_ONCE = 500
SOURCE_PAUSES = (timedelta(seconds=5), timedelta(seconds=30))  # between tries of a source that fails
SOURCE_FAILED = "source failed"  # the ending of a job that had nothing to begin with; the error follows
LONGEST_ENDING = 500
FULL_PAUSE = timedelta(milliseconds=500)
LEASE = timedelta(seconds=15)  # after so long without a sign another worker reads the source
RENEW = timedelta(seconds=4)
SITE = "@"  # before its name, where it stands in place of a job (SeedBook): one source at a time is read there
TURN_LOOK = timedelta(milliseconds=100)
LOOK = timedelta(seconds=1)  # between two looks at what another worker has read


class Sower:
    """The seeds of one job, for one worker. `sites` grows while they are read: the scope of links goes by it."""

    def __init__(
        self,
        project: Project,
        spider: Spider,
        job: str,
        terms: JobTerms,
        scope: Scope,
        sites: set[str],
        events: EventSink,
    ) -> None:
        self._project = project
        self._spider = spider
        self._job = job
        self._terms = terms
        self._source = source_of(terms.source)
        self._sites = sites
        self._events = events
        self._noted: set[str] = set()
        self._reads = self._waits = False
        self._asked = 0  # requests for files of the source so far
        self._fault, self._faults = "", 0  # of this reading of the source: the first one, and how many
        self._listed_some = False  # it gave an address
        # A list may name any site. Where links may lead is another matter: see `_widen`.
        seeds_scope = scope if spider.allowed_domains is not None else msgspec.structs.replace(scope, sites=None)
        self._admission = Admission(
            seeds_scope, project.rules, remember_known=False, fetcher=spider.fetcher, proxy_pool=spider.proxy_pool
        )
        self._freshness = freshness_of(project, terms)
        sites.update(site_of(url) for url in listed_seeds(spider))
        if isinstance(self._source, SitemapSource | FeedSource):
            sites.add(site_of(self._source.url))

    @property
    def reads(self) -> bool:
        """The source is being read here, just now: whoever goes on with it would have to begin anew."""
        return self._reads and not self._waits

    async def learn_sites(self) -> None:
        """Take over what other workers have found."""
        self._sites.update((await self._project.state.seeds.findings(self._job)).sites)

    async def run(self) -> None:
        """Until all seeds are in, by whomever, or the job has ended for want of any. Raises Transient."""
        project, job = self._project, self._job
        while not await project.state.jobs.is_sealed(job):
            known = await project.state.jobs.job(job)
            if known is not None and known.paused:
                await project.clock.sleep(LOOK.total_seconds())
            elif await project.state.seeds.claim(job, project.worker, LEASE):
                try:
                    if not await self._sow_while_leased():
                        return
                finally:
                    await project.state.seeds.release(job, project.worker)
            else:
                await self.learn_sites()
                await project.clock.sleep(LOOK.total_seconds())
        await self.learn_sites()

    async def _sow_while_leased(self) -> bool:
        """Sow, until all is in or another worker has taken over. False when the job has ended."""
        sowing = asyncio.create_task(self._sow(), name="read the source")
        self._reads = True
        try:
            while not sowing.done():
                await asyncio.wait({sowing}, timeout=RENEW.total_seconds())
                if not sowing.done() and not await self._renewed():
                    return True  # the other one reads on
            return sowing.result()
        finally:
            self._reads = False
            if not sowing.done():
                sowing.cancel()
                await asyncio.gather(sowing, return_exceptions=True)

    async def _renewed(self) -> bool:
        return await self._project.state.seeds.claim(self._job, self._project.worker, LEASE)

    async def _sow(self) -> bool:
        """Offer all seeds and seal the job. False when there were none and the job has ended."""
        project = self._project
        for pause in (*SOURCE_PAUSES, None):
            self._fault, self._faults, self._listed_some = "", 0, False
            try:
                async for judged in self._wanted():
                    await self._wait_for_demand()
                    await self._widen(judged.candidates)
                    fresh = judged if self._freshness is None else await self._freshness.mark(judged)
                    await offer(project, self._job, fresh, self._terms.max_queued)
                if self._faults and not self._listed_some:
                    raise SourceFailed(self._fault)
                break
            except (SourceFailed, Misconfigured) as error:
                if str(error) != self._fault:
                    self._report(str(error))
                if pause is not None and isinstance(error, SourceFailed):
                    await project.clock.sleep(pause.total_seconds())
                    continue
                if not (await project.state.jobs.counts(self._job)).discovered:
                    await self._end(f"{SOURCE_FAILED}: {error}"[:LONGEST_ENDING])
                    return False
                break
        if not self._faults and not self._listed_some:
            self._report("Its source gave not one address.")
        if self._faults:
            more = f" And {self._faults - 1:,} more." if self._faults > 1 else ""
            await project.state.seeds.note(self._job, (), self._fault + more)
        await project.state.jobs.seal_seeds(self._job)
        return True

    async def _wait_for_demand(self) -> None:
        """A run with a limit needs no more pages in its queue than that."""
        limit = self._terms.limit
        while limit is not None:
            counts = await self._project.state.jobs.counts(self._job)
            if counts.queued + counts.waiting <= limit:
                return
            await self._project.clock.sleep(FULL_PAUSE.total_seconds())

    async def _end(self, ending: str) -> None:
        """Only who still reads may say that there is nothing."""
        job = await self._project.state.jobs.job(self._job)
        if job is not None and await self._renewed():
            await end(self._project, job, ending, self._events)

    async def _widen(self, candidates: tuple[Candidate, ...]) -> None:
        """Links may lead to the sites of a list that its owner wrote. What a site writes into its sitemap or its feed
        is fetched, but it does not say where else we go."""
        if isinstance(self._source, SitemapSource | FeedSource):
            return
        new = {one.site for one in candidates if one.dropped is None} - self._noted
        if new:
            self._sites.update(new)
            self._noted |= new
            await self._project.state.seeds.note(self._job, new)

    def _wanted(self) -> AsyncIterator[Judged]:
        """What the source lists; with a budget, that part of it on which the budget is best spent."""
        if self._terms.budget is None:
            return self._judged()
        return chosen(self._project, self._job, self._terms, self._judged)

    async def _judged(self) -> AsyncGenerator[Judged, None]:
        chunk: list[Request] = []
        async with aclosing(self._requests()) as requests:
            async for request in requests:
                self._listed_some = True
                chunk.append(request)
                if len(chunk) >= SEEDS_AT_ONCE:
                    yield self._admission.judge(chunk, priority=self._terms.priority)
                    chunk = []
        if chunk:
            yield self._admission.judge(chunk, priority=self._terms.priority)

    async def _requests(self) -> AsyncGenerator[Request, None]:
        """One at a time. Raises Misconfigured, SourceFailed."""
        if not isinstance(self._source, StartSource):
            async with aclosing(self._listed(self._source)) as listed:
                async for request in listed:
                    yield request
            return
        count = 0
        try:
            async for request in seeds(self._spider):
                count += 1
                yield request
        except (SourceFailed, Misconfigured):
            raise
        except Exception as error:  # a spider's own code may raise anything
            raise SourceFailed(f"start() of {self._spider.name} failed: {type(error).__name__}: {error}") from error
        if not count:
            raise Misconfigured(
                f"Spider {self._spider.name} has nothing to start from. Give it start_urls, or the schedule a source."
            )

    async def _listed(self, source: Listing) -> AsyncGenerator[Request, None]:
        project, terms = self._project, self._terms
        gates = gates_of(project.settings, terms, project.clock)

        def closed_for(site: str) -> timedelta:
            closed = max(gates.job.wait(), gates.wait_for(site))
            self._waits = bool(closed)
            return closed

        async with (
            open_source_files(
                project.settings,
                spider=self._spider,
                clock=project.clock,
                shelf=project.state.robots,
                exits=project.state.exits,
                announce=self._take_turn,
                closed_for=closed_for,
            ) as files,
            aclosing(entries(source, files.context(report=self._report))) as listed,
        ):
            async for entry in listed:
                yield Request(
                    url=entry.url, kind=terms.kind or DEFAULT_KIND, priority=terms.priority, lastmod=entry.lastmod
                )

    async def _take_turn(self, site: str, rest: timedelta) -> None:
        """Have the site to ourselves for so long: sources that others read there come later, and so do pages."""
        if not rest:
            return
        project = self._project
        self._asked += 1
        name = f"{project.worker}.{self._job}.{self._asked}"
        while not await project.state.seeds.claim(f"{SITE}{site}", name, rest):
            await project.clock.sleep(min(TURN_LOOK, rest).total_seconds())
        await project.state.frontier.slow_down(site, interval=None, rest=rest)

    def _report(self, message: str) -> None:
        self._fault = self._fault or message
        self._faults += 1
        self._events.emit(Trouble(at=self._project.clock.now(), job=self._job, stage="source", message=message))


async def offer(project: Project, job: str, judged: Judged, max_queued: int | None) -> None:
    """Enter the candidates, waiting while the queue is full. Never more at once than it could ever hold."""
    candidates = judged.candidates
    at_once = min(SEEDS_AT_ONCE, max_queued or SEEDS_AT_ONCE)
    for start in range(0, len(candidates), at_once):
        while True:
            try:
                await project.state.frontier.add(job, candidates[start : start + at_once])
                break
            except FrontierFull:
                await project.clock.sleep(FULL_PAUSE.total_seconds())
