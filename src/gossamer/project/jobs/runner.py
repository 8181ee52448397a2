"""The one driver of a job in a process: opens its worker, enters its seeds, works until nothing is left, ends the job.

Everything that works on jobs does so by this: `gossamer crawl`, workers, slices of other programs' processes, reparses
and replays. Which jobs a process works on, and when one makes way for another, is decided in worker_pool.py.
How it fails: it raises what the backends or the spider's start raise; the job keeps running. How it recovers: any
process that runs the job again goes on where this one stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Self

from ...backends.worker_names import numbered_name
from ...crawl.context import JobContext
from ...crawl.job_run import run_job
from ...crawl.parse_page import Describe
from ...crawl.seed_context import SOURCE_PAUSES
from ...crawl.seeding import LEASE as SEEDS_LEASE
from ...crawl.worker import LOOK, Worker
from ...errors import Misconfigured, Transient
from ...fetch.open_route import Transports
from ...model.events import EventSink
from ...model.healing import FILE
from ...model.job import RAW_PAGES, Job, JobCounts, JobTerms
from ...parse.spider import Spider
from ...recipe.spider import RecipeSpider
from ...settings import Settings
from ...store.sink import Sink
from ...terms import minimum_quality, scope_of
from ..open import Project, open_beside
from ..reparse.archive_job import entering, terms_of
from ..spiders.rules import in_use, rules_of
from ..transports import Shared, SharedTransports
from ..wiring import (
    beside_context,
    forget_outdated,
    is_over,
    open_context,
    open_worker,
    seed_context,
    worker_of,
)
from ..workers.spools import Storing
from .end import close_drained

if TYPE_CHECKING:
    from ..pages.page_children import PageChildren

RULES_LOOK = timedelta(seconds=10)  # between two looks at the healed rules of a recipe at work
OUTDATED_LOOK = timedelta(hours=1)  # between two times that outdated budgets and sessions are deleted
READERS, READERS_EACH = 2, 1  # child processes that read large pages of keys; of them for one key

MOST_BESIDE = 1000  # jobs that share a context: it remembers a little of each

Opened = Callable[[Worker], None]


class JobRunner:
    """Runs jobs side by side on the connections of one process. Open inside `async with`.

    `serves` are the routes that it serves; None: all. `parsers` is the number of child processes that parse archived
    pages, for each job that does. `look` is the pause between two looks at a job whose window is closed. `replay` are
    transports that answer in the place of the sites; then nothing else is asked for either.
    """

    def __init__(
        self,
        project: Project,
        sink: Sink,
        events: EventSink,
        *,
        serves: frozenset[str] | None = None,
        parsers: int = 1,
        look: timedelta = LOOK,
        source_pauses: tuple[timedelta, ...] = SOURCE_PAUSES,
        replay: Transports | None = None,
    ) -> None:
        self._project = project
        self._sink = sink
        self._events = events
        self._serves = serves
        self._parsers = parsers
        self._look = look
        self._source_pauses = source_pauses
        self._replay = replay
        self._shared = SharedTransports(project.clock)
        self._contexts: Shared[tuple[Project, JobContext]] = Shared(project.clock)
        self._beside = 0  # jobs that have shared a context
        self._waiting: dict[Worker, None] = {}  # their workers, in order
        self._workers = 0  # opened so far
        self._forgot_at = float("-inf")
        self._children: PageChildren | None = None  # read large pages of keys

    async def __aenter__(self) -> Self:
        await self._shared.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._contexts.__aexit__(*exc)
            if self._children is not None:
                await self._children.__aexit__(*exc)
        finally:
            await self._shared.__aexit__(*exc)

    async def work(
        self,
        job: Job,
        spider: Spider,
        settings: Settings,
        *,
        opened: Opened,
        begun: Callable[[], None],
        draining: asyncio.Event,
        yields: bool = False,
    ) -> bool | None:
        """Work on a job until nothing is left: True. False if its worker, which `opened` is given, was drained or stood
        down before that. None if it `yields` and another worker has all of its pages. `begun` is called when it is
        known that it does not yield. Raises GossamerErrors, and whatever the start of the spider raises."""
        now = self._project.clock.monotonic()
        if now - self._forgot_at >= OUTDATED_LOOK.total_seconds():  # not for each of many short jobs
            await forget_outdated(self._project)
            self._forgot_at = now
        jobs, claimed = self._project.state.jobs, False
        counts, sealed = (await jobs.counts_of([job.id])).get(job.id, (JobCounts(), False))
        pages = counts.queued + counts.waiting if sealed else 0
        name = "" if pages and _shares_all(job, spider, settings) else self._new_name()
        if yields and not pages:
            claimed = not sealed and await self._project.state.seeds.claim(job.id, name, SEEDS_LEASE)
            if not claimed:
                return None
        try:
            if not name:
                over = await self._work_beside(job, spider, settings, opened, begun, pages, yields=yields)
                if over is None:
                    return None
            else:
                spider = await in_use(self._project, spider)
                with open_beside(self._project, settings=settings, worker=name) as project:
                    over = await is_over(jobs, job.id)  # true also for a job whose results wait to be stored
                    over = over or await self._work(project, job, spider, opened, begun, claimed=claimed)
        except BaseException:
            if claimed:
                with suppress(Transient):  # then its lease expires
                    await self._project.state.seeds.release(job.id, name)
            raise
        return over or (draining.is_set() and await is_over(jobs, job.id))  # drained after all was done

    def _new_name(self) -> str:
        self._workers += 1
        return numbered_name(self._project.worker, self._workers)

    async def _work_beside(
        self,
        job: Job,
        spider: Spider,
        settings: Settings,
        opened: Opened,
        begun: Callable[[], None],
        pages: int,
        *,
        yields: bool,
    ) -> bool | None:
        """Work on a job of single pages that are in its queue, in the context of others of its kind. None if it
        `yields` and another worker has all of them."""
        jobs, taken = self._project.state.jobs, False

        async def is_taken() -> bool:
            nonlocal taken
            counts = await jobs.counts(job.id)
            taken = not counts.queued + counts.waiting
            return taken

        terms = await jobs.terms(job.id)
        self._beside += 1
        alike = (settings, terms.politeness, self._beside // MOST_BESIDE)
        async with self._contexts.of(alike, partial(self._open_context, job, spider, settings, terms)) as opening:
            project, shared = opening
            sites = set[str]()
            scope = scope_of(settings, job, spider, sites)
            context = beside_context(project, shared, job, scope, terms)
            worker = worker_of(
                project,
                context,
                serves=self._serves,
                look=self._look,
                pages=pages,
                is_taken=is_taken if yields else None,
            )
            opened(worker)  # at once: it may be drained, or have to share, before its first page
            if yields:
                worker.stays = begun
            else:
                begun()
            self._waiting[worker] = None
            worker.on_settling(self._wake_one)
            try:
                seeding = seed_context(project, source_pauses=self._source_pauses, on_the_net=self._replay is None)
                over = await run_job(seeding, context.spider, job, worker, scope, sites, self._events)
            finally:
                del self._waiting[worker]
            return None if taken else over

    def _wake_one(self) -> None:
        """A page is done, and its site may have room for the next one: leased in the commit that settles this one."""
        for worker in self._waiting:
            if worker.idle:
                worker.look_again()
                self._waiting[worker] = self._waiting.pop(worker)  # the next page wakes another one
                return

    @asynccontextmanager
    async def _open_context(
        self, job: Job, spider: Spider, settings: Settings, terms: JobTerms
    ) -> AsyncIterator[tuple[Project, JobContext]]:
        with open_beside(self._project, settings=settings, worker=self._new_name()) as project:
            async with open_context(
                project,
                spider,
                job.id,
                scope_of(settings, job, spider, set()),
                self._sink,
                self._events,
                terms=terms,
                serves=self._serves,
                transports=self._replay,
                shared=self._shared,
            ) as context:
                yield project, context

    async def close(self, job: Job, spider: Spider, settings: Settings) -> Storing | None:
        """End a job with nothing left, unless it has ended elsewhere. Results of it that still have to be stored are
        returned, and then it does not end yet. Raises Transient."""
        project = self._project.of(settings)
        return await close_drained(project, spider, job, self._events)

    async def _work(
        self, project: Project, job: Job, spider: Spider, opened: Opened, begun: Callable[[], None], *, claimed: bool
    ) -> bool:
        """Work on a job until no page is left. False if its worker was drained first."""
        settings, sites = project.settings, set[str]()
        scope = scope_of(settings, job, spider, sites)
        terms, candidates = await project.state.jobs.terms(job.id), None
        if job.parses_again:
            from ..reparse.archive_journey import open_archive_worker  # here: a crawl parses no archived pages

            candidates = partial(entering, project, terms_of(settings, job))
            opening = open_archive_worker(
                project,
                job,
                scope,
                self._sink,
                self._events,
                terms=terms,
                serves=self._serves,
                look=self._look,
                parsers=self._parsers,
            )
        else:
            opening = open_worker(
                project,
                spider,
                job.id,
                scope,
                self._sink,
                self._events,
                terms=terms,
                serves=self._serves,
                look=self._look,
                transports=self._replay,
                shared=self._shared,
                describe=self._describer_of(job, spider, settings),
            )
        async with opening as worker:
            opened(worker)
            begun()
            seeding = seed_context(
                project,
                source_pauses=self._source_pauses,
                on_the_net=self._replay is None,
                candidates=candidates,
                claimed=claimed,
            )
            watching = None
            if isinstance(spider, RecipeSpider):
                watching = asyncio.create_task(_heed_rules(project, spider, worker), name=f"rules of {job.id}")
            try:
                return await run_job(seeding, spider, job, worker, scope, sites, self._events)
            finally:
                if watching is not None:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)

    def _describer_of(self, job: Job, spider: Spider, settings: Settings) -> Describe | None:
        if not job.owner:
            return None
        from ..pages import (
            page_children,  # here: it imports all that reads pages, which a crawl by command does not need
        )

        if self._children is None:  # pages in flight bound its line
            self._children = page_children.PageChildren(READERS, READERS_EACH, refuses=False)
        return page_children.describer_of(self._children, job, spider, settings)


def _shares_all(job: Job, spider: Spider, settings: Settings) -> bool:
    """Whether a job needs little of its own in its process: its pages give no records, no code of the user sees them,
    and it has no windows, no pace and no quality guard."""
    if job.spider_name != RAW_PAGES or job.windows or job.politeness.rate is not None:
        return False
    return not settings.extensions and minimum_quality(settings, spider) is None


async def _heed_rules(project: Project, spider: RecipeSpider, worker: Worker) -> None:
    """Stand down when other healed rules are taken into use: the job goes on with these."""
    while True:
        await project.clock.sleep(RULES_LOOK.total_seconds())
        with suppress(Transient, Misconfigured):  # said when the job goes on
            held = (await rules_of(project, spider.name)).in_use(spider.recipe.text)
            if (held.version if held is not None else FILE) != spider.rules_version:
                worker.stand_down()
                return
