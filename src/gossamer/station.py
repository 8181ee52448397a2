"""A station: one process that works on every running job of the project. What `gossamer worker` runs.

What it does: looks every second which jobs run, and opens a worker for each one whose spider is found here; a job that
is named by a URL is crawled as a site. The workers run side by side and share the process's concurrency evenly.
How it fails: a job that it cannot serve is left to others and told once. A state that does not answer is waited for.
How it recovers: what it could not serve it tries again later; a job whose worker failed is begun again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import msgspec

from .assembly import System, open_beside, open_worker
from .backends.processes import hand_name
from .crawl.heart import Heart, Vitals
from .crawl.worker import Worker
from .errors import GossamerError, Misconfigured, Transient
from .launch import close_drained, work_off
from .model.events import EventSink, JobBegun, Trouble
from .model.job import Job
from .monitor.hub import EventHub
from .parse.discovery import load_spider
from .parse.site import SiteSpider
from .parse.spider import Spider
from .settings import Settings
from .terms import local_hosts, scope_of

LOOK = timedelta(seconds=1)  # between two looks for jobs
AGAIN = timedelta(seconds=5)  # before a job is tried again whose worker met a backend in trouble
IDLE = timedelta(seconds=20)  # without a page in hand, before a specialised worker leaves a job to others
UNFIT_AGAIN = timedelta(seconds=30)  # before a job is tried again that could not be served here


class Respite(msgspec.Struct, frozen=True):
    """A job that is left alone for now. `hopeful`: the fault is not with the job, so it counts as one of ours."""

    until: float
    hopeful: bool


class Station:
    """Serves jobs until it is drained; with `until_idle`, until no running job is left that it can serve.

    `serves` are the routes that it works on, by name or kind; None means all.
    """

    def __init__(
        self,
        system: System,
        events: EventSink,
        *,
        until_idle: bool = False,
        serves: frozenset[str] | None = None,
    ) -> None:
        self._system = system
        self._serves = serves
        self._until_idle = until_idle
        self._heart = Heart(system.workers, system.clock, name=system.worker, vitals=self._vitals, troubles=events)
        self._events = EventHub(self._heart, events)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by job
        self._workers: dict[str, Worker] = {}  # those of the jobs that are open by now
        self._respites: dict[str, Respite] = {}
        self._told: dict[str, str] = {}  # what was said last about a job
        self._hands = 0  # workers opened so far
        self._draining = False
        self._changed = asyncio.Event()

    def drain(self) -> None:
        """Begin nothing more; `run` returns when every worker has drained."""
        self._draining = True
        for worker in self._workers.values():
            worker.drain()
        self._changed.set()

    async def run(self) -> None:
        """Serve. A state that is away is waited for; nothing of a job is raised."""
        async with self._heart:
            try:
                while not self._draining and not await self._look():
                    await self._rest()
                await asyncio.gather(*self._tasks.values())
            finally:
                await self._stop()

    # -- which jobs --------------------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Begin what can be begun. True when there is nothing to stay for."""
        self._changed.clear()
        try:
            running = await self._system.jobs.running_jobs()
        except Transient as error:
            self._tell("", "jobs", str(error))
            return False
        if self._draining:
            return True
        self._forget_all_but({job.id for job in running})
        for job in running:
            if job.id not in self._tasks and self._is_due(job):
                self._begin(job)
        hopeful = any(respite.hopeful for respite in self._respites.values())
        return self._until_idle and not self._tasks and not hopeful

    def _is_due(self, job: Job) -> bool:
        respite = self._respites.get(job.id)
        return respite is None or self._system.clock.monotonic() >= respite.until

    def _begin(self, job: Job) -> None:
        self._respites.pop(job.id, None)
        try:
            spider, settings = self._prepare(job)
        except Exception as error:  # a spider's constructor may raise anything
            self._leave_alone(job, error)
            return
        task = asyncio.create_task(self._serve(job, spider, settings), name=f"serve {job.id}")
        self._tasks[job.id] = task
        task.add_done_callback(lambda _: self._ended(job))

    def _ended(self, job: Job) -> None:
        del self._tasks[job.id]
        self._changed.set()

    def _prepare(self, job: Job) -> tuple[Spider, Settings]:
        """The job's spider, and settings under which its hosts may be visited. Raises Misconfigured."""
        settings = self._system.settings
        if "://" in job.spider_name:
            foreign = [] if settings.fetch.allow_private else _new_hosts(settings, [job.spider_name])
            if foreign:
                # Whoever crawls it may visit a private address because he typed it; nobody typed it here.
                raise Misconfigured(
                    f"{foreign[0]} is a private address. If workers may visit it, add it to fetch.allow_hosts."
                )
            return SiteSpider([job.spider_name]), settings
        spider = load_spider(job.spider_name, settings.root, settings.spiders)()
        hosts = _new_hosts(settings, list(spider.start_urls))
        fetch = msgspec.structs.replace(settings.fetch, allow_hosts=(*settings.fetch.allow_hosts, *hosts))
        return spider, msgspec.structs.replace(settings, fetch=fetch)

    # -- one job -----------------------------------------------------------------------------------------------

    async def _serve(self, job: Job, spider: Spider, settings: Settings) -> None:
        self._hands += 1
        name = hand_name(self._system.worker, self._hands)
        sites: set[str] = set()
        scope = scope_of(settings, job, spider, sites)
        try:
            async with open_beside(self._system, spider, settings=settings, worker=name) as system:
                terms = await system.jobs.terms(job.id)
                async with open_worker(
                    system, spider, job.id, scope, self._events, terms=terms, serves=self._serves
                ) as worker:
                    self._enlist(job, worker)
                    idling = asyncio.create_task(self._leave_when_idle(job, worker), name=f"idle {job.id}")
                    try:
                        over = await work_off(system, spider, job, worker, scope, sites, self._events)
                    finally:
                        idling.cancel()
                        self._dismiss(job)
                if over:
                    await close_drained(system, spider, job, self._events)
        except Exception as error:  # of the backends, of the spider's start, of ours: other jobs go on
            self._leave_alone(job, error)

    async def _leave_when_idle(self, job: Job, worker: Worker) -> None:
        """A worker that serves some routes only, and is to end when it is idle, does not wait for the other routes."""
        if not self._until_idle or self._serves is None:
            return
        clock = self._system.clock
        idle_since = clock.monotonic()
        while clock.monotonic() - idle_since < IDLE.total_seconds():
            await clock.sleep(LOOK.total_seconds())
            if worker.in_flight:
                idle_since = clock.monotonic()
        self._respites[job.id] = Respite(clock.monotonic() + UNFIT_AGAIN.total_seconds(), hopeful=False)
        self._tell(job.id, "job", f"Job {job.id} has no page left for the routes that are served here.")
        worker.drain()

    def _enlist(self, job: Job, worker: Worker) -> None:
        self._workers[job.id] = worker
        self._share_out()
        if self._draining:
            worker.drain()
            return
        self._told.pop(job.id, None)
        self._events.emit(JobBegun(at=self._system.clock.now(), job=job.id, name=job.name))

    def _dismiss(self, job: Job) -> None:
        del self._workers[job.id]
        self._share_out()

    def _share_out(self) -> None:
        """Equal shares of the process's concurrency, at least one page each."""
        if self._workers:
            share, over = divmod(self._system.settings.crawl.concurrency, len(self._workers))
            for place, worker in enumerate(self._workers.values()):
                worker.resize(max(1, share + (place < over)))

    def _leave_alone(self, job: Job, error: Exception) -> None:
        """Not now. The same words about the same job are said once."""
        hopeful = isinstance(error, Transient)
        pause = AGAIN if hopeful else UNFIT_AGAIN
        self._respites[job.id] = Respite(self._system.clock.monotonic() + pause.total_seconds(), hopeful)
        words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
        self._tell(job.id, "job", words if hopeful else f"Job {job.id} is left to others: {words}")

    # -- small things ------------------------------------------------------------------------------------------

    def _tell(self, matter: str, stage: str, words: str) -> None:
        if self._told.get(matter) != words:
            self._told[matter] = words
            self._events.emit(Trouble(at=self._system.clock.now(), job=matter, stage=stage, message=words))

    def _forget_all_but(self, running: set[str]) -> None:
        """Memory goes with the jobs that run, not with those that ever ran."""
        for memory in (self._respites, self._told):
            for job in [job for job in memory if job not in running]:
                del memory[job]

    async def _rest(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK.total_seconds()):
                await self._changed.wait()

    async def _stop(self) -> None:
        """When `run` itself was cancelled: nothing goes on behind its back."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _vitals(self) -> Vitals:
        state = "draining" if self._draining else "working" if self._tasks else "idle"
        in_flight = sum(worker.in_flight for worker in self._workers.values())
        return Vitals(job=", ".join(self._tasks), state=state, in_flight=in_flight)


def _new_hosts(settings: Settings, urls: list[str]) -> list[str]:
    return [host for host in local_hosts(urls) if host not in settings.fetch.allow_hosts]
