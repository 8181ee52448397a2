"""The station itself: it finds jobs, opens a worker for each, and lets them take turns.

What it does: looks every second which jobs run, and opens a worker for each one whose spider is found here; a job that
is named by a URL is crawled as a site. The workers run side by side, share the process's connections, and share its
concurrency evenly. When there are more jobs than places, they take turns (places.py).
How it fails: a job that it cannot serve is left to others and told once. A state that does not answer is waited for.
How it recovers: what it could not serve it tries again later; a job whose worker failed is begun again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import msgspec

from ...backends.processes import hand_name
from ...crawl.heartbeat import Heartbeat, Vitals
from ...crawl.worker import Worker
from ...errors import BackendUnavailable, GossamerError, Misconfigured, Transient
from ...model.events import EventHub, EventSink
from ...model.job import Job
from ...parse.discovery import load_spider
from ...parse.site import SiteSpider
from ...parse.spider import Spider
from ...process import limits as openfiles
from ...settings import Settings
from ...settings.effective import local_hosts, scope_of
from ..crawl import work_off
from ..job_end import close_drained
from ..open import Project, open_beside
from ..wiring import is_over, open_worker
from . import places
from .bulletin import Bulletin
from .obstacles import Obstacles, moment
from .place import Place
from .places import Applicant

LOOK = timedelta(seconds=1)  # between two looks for jobs
AGAIN = timedelta(seconds=5)  # before a job is tried again whose worker met a backend in trouble
IDLE = timedelta(seconds=20)  # without a page in hand, before a specialised worker leaves a job to others
UNFIT_AGAIN = timedelta(seconds=30)  # before a job is tried again that could not be served here
UNFIT_CLAIM = timedelta(minutes=5)  # before anybody makes way for it
LONGEST_REST = timedelta(seconds=5)  # of a job that made way: what it waits for may come earlier than it seemed


class Respite(msgspec.Struct, frozen=True):
    """A job that is left alone for now. `hopeful`: the fault is not with the job, so it counts as one of ours."""

    until: float
    hopeful: bool


class WorkerPool:
    """Serves jobs until it is drained; with `until_idle`, until no running job is left that it can serve now.

    `serves` are the routes that it works on, by name or kind; None means all. `takes` says which jobs are its own.
    """

    def __init__(
        self,
        project: Project,
        events: EventSink,
        *,
        until_idle: bool = False,
        serves: frozenset[str] | None = None,
        takes: Callable[[Job], bool] = lambda job: True,
    ) -> None:
        self._project = project
        self._takes = takes
        self._serves = serves
        self._until_idle = until_idle
        self._heart = Heartbeat(
            project.state.workers, project.clock, name=project.worker, vitals=self._vitals, troubles=events
        )
        self._events = EventHub(self._heart, events)
        self._bulletin = Bulletin(self._events, project.clock)
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by job
        self._places: dict[str, Place] = {}  # of the same jobs
        self._running: dict[str, Job] = {}  # when it was asked last
        self._asked_at = float("-inf")
        self._line: list[Applicant] = []  # the next one last
        self._since: dict[str, float] = {}  # when a job came into the line
        self._obstacles = Obstacles(project.clock)
        self._respites: dict[str, Respite] = {}
        self._hands = 0  # workers opened so far
        self._draining = False
        self._changed = asyncio.Event()

    def drain(self) -> None:
        """Begin nothing more; `run` returns when every worker has drained."""
        self._draining = True
        for place in self._places.values():
            if place.worker is not None:
                place.worker.drain()
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
        if self._line and self._project.clock.monotonic() - self._asked_at < LOOK.total_seconds():
            self._fill()  # a place is free: who comes next is known
            return False
        try:
            running = [job for job in await self._project.state.jobs.running_jobs() if self._takes(job)]
        except Transient as error:
            self._bulletin.trouble("", "jobs", str(error))
            return False
        if self._draining:
            return True
        self._asked_at = self._project.clock.monotonic()
        self._bulletin.pauses(self._running, running, self._tasks)
        self._running = {job.id: job for job in running}
        self._forget_all_but_running()
        self._line_up()
        self._fill()
        await self._make_way()
        self._share_out()
        now = self._project.clock.monotonic()
        hopeful = any(respite.hopeful and now < respite.until for respite in self._respites.values())
        return self._until_idle and not self._tasks and not self._line and not hopeful

    def _line_up(self) -> None:
        """Everybody who is not served and not left alone. Who cannot work now is not waited for, with `until_idle`."""
        now = self._project.clock.monotonic()
        applicants = []
        for job in self._running.values():
            if job.id in self._tasks or not self._is_due(job):
                continue
            obstacle = self._obstacles.of(job)
            if obstacle and self._until_idle:
                self._bulletin.trouble(job.id, "job", f"Job {job.id} is left for later: {obstacle}")
                continue
            applicants.append(Applicant(job.id, not obstacle, self._since.setdefault(job.id, now), job.priority))
        self._line = places.in_order(applicants)[::-1]

    def _fill(self) -> None:
        """Give places to those who are next, as long as there are any."""
        concurrency, files = self._project.settings.crawl.concurrency, openfiles.allowed()
        now = self._project.clock.monotonic()
        while self._line:
            served = self._places.values()
            if not places.has_room(
                self._line[-1],
                concurrency=concurrency,
                files=files,
                taken=len(served),
                in_flight=sum(place.in_flight for place in served),
                opening=sum(place.is_opening for place in served),
                steady=sum(place.is_steady(now) for place in served),
            ):
                return
            self._begin(self._running[self._line.pop().job])

    async def _make_way(self) -> None:
        """Ask those to stand down whose places others need, and with `until_idle` those that cannot work now."""
        now = self._project.clock.monotonic()
        staying = {job: place for job, place in self._places.items() if not place.leaves and not place.is_opening}
        for job, place in staying.items() if self._until_idle else ():
            if self._obstacles.of(self._running.get(job, place.job)):
                self._stand_down(place)
            else:
                await self._tell_wait(place)
        needed = places.wanted(self._line, now) - sum(place.leaves for place in self._places.values())
        occupants = [place.occupant(now) for place in staying.values() if not place.leaves]
        for job in places.makes_way(occupants, self._line):
            if needed <= 0:
                return
            if await self._may_leave(self._places[job]) and job in self._places:
                self._stand_down(self._places[job])
                needed -= 1

    def _stand_down(self, place: Place) -> None:
        worker = place.worker
        if worker is None:
            return
        place.leaves = True
        if worker.idle >= places.IDLE and not self._until_idle:
            rest = min(worker.due_in, LONGEST_REST)
            until = self._project.clock.monotonic() + rest.total_seconds()
            self._respites[place.job.id] = Respite(until, hopeful=True)
        worker.stand_down()

    async def _tell_wait(self, place: Place) -> None:
        """For what a process waits that is to end when it is idle."""
        worker, job = place.worker, place.job.id
        if worker is None or place.waits or worker.idle < IDLE:
            return
        if not await self._is_sealed(job):
            place.waits = True
            words = f"Job {job} waits for its source: to be read, to be tried again, or for its site's window."
            self._bulletin.trouble(job, "job", words)
            return
        if worker.due_in < IDLE:
            return
        place.waits = True
        due = moment(self._project.clock.now() + worker.due_in.total_seconds())
        words = f"Job {job} waits: its next page is due at {due}, after a retry or when its site's window opens."
        self._bulletin.trouble(job, "job", words)

    async def _may_leave(self, place: Place) -> bool:
        """Whoever reads the seeds of a job would have to begin anew."""
        sows = place.worker.sows if place.worker is not None else None
        return await self._is_sealed(place.job.id) if sows is None else not sows()

    async def _is_sealed(self, job: str) -> bool:
        try:
            return await self._project.state.jobs.is_sealed(job)
        except Transient:
            return False

    def _is_due(self, job: Job) -> bool:
        respite = self._respites.get(job.id)
        return respite is None or self._project.clock.monotonic() >= respite.until

    def _begin(self, job: Job) -> None:
        self._respites.pop(job.id, None)
        self._since.pop(job.id, None)
        try:
            spider, settings = self._prepare(job)
        except Exception as error:  # a spider's constructor may raise anything
            self._leave_alone(job, error)
            return
        place = Place(job=job, taken_at=self._project.clock.monotonic())
        task = asyncio.create_task(self._serve(place, spider, settings), name=f"serve {job.id}")
        self._tasks[job.id], self._places[job.id] = task, place
        task.add_done_callback(lambda _: self._ended(job))

    def _ended(self, job: Job) -> None:
        del self._tasks[job.id], self._places[job.id]
        self._share_out()
        self._changed.set()

    def _prepare(self, job: Job) -> tuple[Spider, Settings]:
        """The job's spider, and settings under which its hosts may be visited. Raises Misconfigured."""
        settings = self._project.settings
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

    async def _serve(self, place: Place, spider: Spider, settings: Settings) -> None:
        job = place.job
        self._hands += 1
        name = hand_name(self._project.worker, self._hands)
        sites: set[str] = set()
        scope = scope_of(settings, job, spider, sites)
        try:
            with open_beside(self._project, spider, settings=settings, worker=name) as project:
                terms = await project.state.jobs.terms(job.id)
                async with open_worker(
                    project, spider, job.id, scope, self._events, terms=terms, serves=self._serves
                ) as worker:
                    self._enlist(place, worker)
                    idling = asyncio.create_task(self._leave_when_idle(job, worker), name=f"idle {job.id}")
                    try:
                        over = await work_off(project, spider, job, worker, scope, sites, self._events)
                    finally:
                        idling.cancel()
                if over or (self._draining and await is_over(project.state.jobs, job.id)):  # all done, and told to go
                    await close_drained(project, spider, job, self._events)
                    self._bulletin.ended(await project.state.jobs.job(job.id))
        except Exception as error:  # of the backends, of the spider's start, of ours: other jobs go on
            self._leave_alone(job, error)

    async def _leave_when_idle(self, job: Job, worker: Worker) -> None:
        """A worker that serves some routes only, and is to end when it is idle, does not wait for the other routes."""
        if not self._until_idle or self._serves is None:
            return
        clock = self._project.clock
        idle_since = clock.monotonic()
        while clock.monotonic() - idle_since < IDLE.total_seconds():
            await clock.sleep(LOOK.total_seconds())
            if worker.in_flight or (worker.sows is not None and worker.sows()):
                idle_since = clock.monotonic()
        self._respites[job.id] = Respite(clock.monotonic() + UNFIT_AGAIN.total_seconds(), hopeful=False)
        self._bulletin.trouble(job.id, "job", f"Job {job.id} has no page left for the routes that are served here.")
        worker.drain()

    def _enlist(self, place: Place, worker: Worker) -> None:
        job = place.job
        place.worker = worker
        self._share_out()
        if self._draining:
            worker.drain()
            return
        self._bulletin.begun(job)

    def _share_out(self) -> None:
        """The process's concurrency, among the jobs that have something to do."""
        served = [(place, place.worker) for place in self._places.values() if place.worker is not None]
        idle = [place.leaves or worker.idle >= places.SILENT for place, worker in served]
        widths = places.shares(self._project.settings.crawl.concurrency, idle)
        for (place, worker), width in zip(served, widths, strict=True):
            if place.width != width:
                place.width = width
                worker.resize(width)

    def _leave_alone(self, job: Job, error: Exception) -> None:
        """Not now. The same words about the same job are said once."""
        if openfiles.were_used_up(error):
            error = BackendUnavailable(openfiles.remedy())
        hopeful, now = isinstance(error, Transient), self._project.clock.monotonic()
        pause = AGAIN if hopeful else UNFIT_AGAIN
        self._respites[job.id] = Respite(now + pause.total_seconds(), hopeful)
        if not hopeful:  # others do not make way for it each time
            self._since[job.id] = now + UNFIT_CLAIM.total_seconds()
        words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
        self._bulletin.trouble(
            job.id, "job", words if hopeful else f"Job {job.id} is left to others: {words}", passes=hopeful
        )

    # -- small things ------------------------------------------------------------------------------------------

    def _forget_all_but_running(self) -> None:
        """Memory goes with the jobs that run, not with those that ever ran."""
        for memory in (self._respites, self._since):
            for job in [job for job in memory if job not in self._running]:
                del memory[job]
        self._bulletin.forget_all_but(self._running.keys())
        self._obstacles.forget_all_but(self._running.keys())

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
        in_flight = sum(place.in_flight for place in self._places.values())
        return Vitals(job=", ".join(self._tasks), state=state, in_flight=in_flight)


def _new_hosts(settings: Settings, urls: list[str]) -> list[str]:
    return [host for host in local_hosts(urls) if host not in settings.fetch.allow_hosts]
