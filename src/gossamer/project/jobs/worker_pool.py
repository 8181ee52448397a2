"""A worker pool: which jobs one process works on, and when. `gossamer worker` works on every running job of the
project, `gossamer crawl` on one.

What it does: looks every second for running jobs, and runs each one whose spider is found here (runner.py); a job named
by a URL is crawled as a site. The jobs run side by side and share the process's connections and, evenly, its
concurrency. If there are more jobs than slots, they take turns (job_slots.py). With or without jobs, the pool stores
the results in this machine's spool. A job whose results wait, here or elsewhere, ends when they are stored.
How it fails: a job that it cannot serve is left to other pools, and reported once; a pool that works on its jobs to
their end raises the error. If the state does not answer, the pool waits. How it recovers: it retries later what it
could not serve, and restarts a job whose worker failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import msgspec

from ...backends.worker_names import fate_of
from ...crawl.heartbeat import Heartbeat, Vitals
from ...crawl.worker import Worker
from ...errors import BackendUnavailable, GossamerError, Transient
from ...fetch.open_route import Transports
from ...frontier.contract import DRAIN, RESTART
from ...model.events import EventHub, EventSink
from ...model.job import Job
from ...parse.spider import Spider
from ...process import limits as openfiles
from ...settings import Settings
from ..live_settings import wake_if_budgets_changed
from ..open import Project
from ..records.export import write_feeds
from ..spiders.spiders import spider_of_job
from ..start_check import check_start
from ..wiring import sink_of
from ..workers.health import Health
from ..workers.spools import Storing
from ..workers.workers import ONE_PACE
from . import slots as job_slots
from .reports import WorkerReports
from .run_log import RunLog, code_of
from .runner import JobRunner
from .slots import USUAL_TERMS, JobSlot, Obstacles, PoolTerms, WaitingJob, moment

SpiderOf = Callable[[Job], tuple[Spider, Settings]]
YIELD = timedelta(milliseconds=250)  # before another look at single pages that another worker has
AT_REST = 10  # times as long as a check for new jobs took is the pause after it, at least


class Respite(msgspec.Struct, frozen=True):
    """A job that is left alone for now. `hopeful`: the obstacle may pass, so a pool with `until_idle` waits for it."""

    until: float
    hopeful: bool


class WorkerPool:
    """Serves jobs until it is drained; with `until_idle`, until it can serve no running job now and its spool is empty.

    `serves` are the routes that it serves, by name or kind, `only` the ids of jobs; None means all. With `to_the_end`
    it stays with these jobs until they are over, whatever they wait for (a pause, a window), and raises what one fails
    with. `spider_of` gives the spider of a job, and the settings with that spider's own; None: it is looked for by its
    name. `parsers` and `replay` are those of JobRunner.
    """

    def __init__(
        self,
        project: Project,
        events: EventSink,
        *,
        until_idle: bool = False,
        serves: frozenset[str] | None = None,
        only: frozenset[str] | None = None,
        to_the_end: bool = False,
        spider_of: SpiderOf | None = None,
        terms: PoolTerms = USUAL_TERMS,
        parsers: int = 1,
        replay: Transports | None = None,
    ) -> None:
        self._project = project
        self._terms = terms
        self._serves = serves
        self._only = only
        self._until_idle = until_idle
        self._to_the_end = to_the_end
        self._spider_of = spider_of or self._find_spider
        self._failure: Exception | None = None
        self._heartbeat = Heartbeat(
            project.state.workers,
            project.clock,
            name=project.worker,
            vitals=self._vitals,
            troubles=events,
            drain=self.drain,
            fate_of=fate_of,
        )
        self._log = RunLog(project.state.shelf, project.clock, project.worker, lambda: project.log_level)
        self._events = EventHub(self._heartbeat, self._log, events)
        self._reports = WorkerReports(self._events, project.clock)
        self._sink = sink_of(project, self._events)
        self._runner = JobRunner(
            project,
            self._sink,
            self._events,
            serves=serves,
            parsers=parsers,
            look=terms.look,
            source_pauses=terms.source_pauses,
            replay=replay,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by job
        self._slots: dict[str, JobSlot] = {}  # of the same jobs
        self._running: dict[str, Job] = {}  # at the last look
        self._asked_at = float("-inf")
        self._newest = 0  # number of the newest job at that time
        self._lively_until = float("-inf")  # until then, further jobs are expected
        self._waiting: list[WaitingJob] = []  # the next one is last
        self._since: dict[str, float] = {}  # when a job began to wait
        self._obstacles = Obstacles(project.clock)
        self._respites: dict[str, Respite] = {}
        self._draining = asyncio.Event()
        self._changed = asyncio.Event()
        self._must_look = False  # else what has changed matters only if another job was begun meanwhile

    def drain(self) -> None:
        """Start nothing more; `run` returns when every worker has drained."""
        self._draining.set()
        self._must_look = True
        for slot in self._slots.values():
            if slot.worker is not None:
                slot.worker.drain()
        self._changed.set()

    def is_draining(self) -> bool:
        return self._draining.is_set()

    @property
    def was_asked_to_drain(self) -> bool:
        """Whether an operator asked this worker to drain through the state, not by a signal."""
        return self._heartbeat.asked == DRAIN

    @property
    def was_asked_to_restart(self) -> bool:
        return self._heartbeat.asked == RESTART

    def health(self) -> Health:
        in_flight = sum(slot.in_flight for slot in self._slots.values())
        return Health(
            in_flight=in_flight,
            jobs=len(self._tasks),
            spool_bytes=self._sink.spooled_bytes,
            draining=self.is_draining(),
        )

    async def run(self) -> None:
        """Serve. If the state does not answer, wait for it. Faults of a job are reported, not raised, except those of a
        job that it works on to the end."""
        async with self._heartbeat, self._log, self._sink, self._runner:
            with suppress(Transient):  # the pages wait a little longer
                await wake_if_budgets_changed(self._project.state, self._project.settings)
            try:
                while not self.is_draining() and not await self._look():
                    await self._rest()
                await asyncio.gather(*self._tasks.values())
            finally:
                await self._stop()
        if self._failure is not None:
            raise self._failure

    # -- which jobs --------------------------------------------------------------------------------------------

    async def _look(self) -> bool:
        """Start the jobs that can be started. True if there is no reason to stay."""
        self._changed.clear()
        self._must_look = False
        if self._waiting and self._project.clock.monotonic() - self._asked_at < self._terms.look.total_seconds():
            self._fill()  # a slot is free, and the next job is known
            return False
        jobs = self._project.state.jobs
        try:
            newest, running = await jobs.newest_number(), await jobs.running_jobs()
        except Transient as error:
            self._reports.trouble("", "jobs", str(error))
            return False
        if self.is_draining():
            return True
        running = [job for job in running if self._only is None or job.id in self._only]
        self._asked_at, self._newest = self._project.clock.monotonic(), newest
        self._reports.pauses(self._running, running, self._tasks)
        self._running = {job.id: job for job in running}
        self._forget_all_but_running()
        self._queue_up()
        self._fill()
        await self._make_way()
        self._share_out()
        now = self._project.clock.monotonic()
        hopeful = any(respite.hopeful and now < respite.until for respite in self._respites.values())
        # The results of a job that has ended elsewhere are stored by whoever comes next.
        storing = self._sink.away and not (self._to_the_end and not self._running)
        stays = self._tasks or self._waiting or hopeful or storing
        return (self._until_idle or self._to_the_end) and not stays

    def _queue_up(self) -> None:
        """Queue the jobs that are neither served nor left alone. With `until_idle`, leave out those that cannot work
        now."""
        now = self._project.clock.monotonic()
        waiting = []
        for job in self._running.values():
            if job.id in self._tasks or not self._is_due(job):
                continue
            obstacle = self._obstacles.of(job)
            if obstacle and self._until_idle:
                self._reports.trouble(job.id, "job", f"Job {job.id} is left for later: {obstacle}")
                continue
            since = self._since.setdefault(job.id, now)
            priority = job_slots.after_waiting(job.priority, now - since, self._terms)
            waiting.append(WaitingJob(job.id, not obstacle, since, priority))
        self._waiting = job_slots.in_order(waiting)[::-1]

    def _fill(self) -> None:
        """Give free slots to the jobs that are next."""
        concurrency, files = self._project.settings.crawl.concurrency, openfiles.allowed()
        now = self._project.clock.monotonic()
        while self._waiting:
            served = self._slots.values()
            if not job_slots.has_room(
                self._waiting[-1],
                concurrency=concurrency,
                files=files,
                taken=len(served),
                in_flight=sum(slot.in_flight for slot in served),
                opening=sum(slot.is_opening for slot in served),
                steady=sum(slot.is_steady(now, self._terms.silent) for slot in served),
                terms=self._terms,
            ):
                return
            self._begin(self._running[self._waiting.pop().job])

    async def _make_way(self) -> None:
        """Take slots from jobs that make way for others, and with `until_idle` from those that cannot work now."""
        now = self._project.clock.monotonic()
        staying = {job: slot for job, slot in self._slots.items() if not slot.leaves and not slot.is_opening}
        for job, slot in staying.items() if self._until_idle else ():
            if self._obstacles.of(self._running.get(job, slot.job)):
                self._stand_down(slot)
            else:
                await self._tell_wait(slot)
        needed = job_slots.wanted(self._waiting, now) - sum(slot.leaves for slot in self._slots.values())
        holders = [slot.holder(now) for slot in staying.values() if not slot.leaves]
        for job in job_slots.makes_way(holders, self._waiting, self._terms):
            if needed <= 0:
                return
            slot = staying[job]
            if await self._may_leave(slot) and self._slots.get(job) is slot:  # jobs end while others are checked
                self._stand_down(slot)
                needed -= 1

    def _stand_down(self, slot: JobSlot) -> None:
        if (worker := slot.worker) is None:
            return
        slot.leaves = True
        if worker.idle >= self._terms.idle and not self._until_idle:
            rest = min(worker.due_in, self._terms.longest_rest)
            until = self._project.clock.monotonic() + rest.total_seconds()
            self._respites[slot.job.id] = Respite(until, hopeful=True)
        worker.stand_down()

    async def _tell_wait(self, slot: JobSlot) -> None:
        """Report why a pool with `until_idle` does not end yet."""
        worker, job = slot.worker, slot.job.id
        if worker is None or slot.reported or worker.idle < self._terms.no_page:
            return
        if not await self._is_sealed(job):
            words = f"Job {job} waits for its source: to be read, to be tried again, or for its site's window."
        elif worker.due_in < self._terms.no_page:
            return
        else:
            try:
                elsewhere = (await self._project.state.jobs.counts(job)).leased > 0  # not here: this worker is idle
            except Transient:
                return
            due = moment(self._project.clock.now() + worker.due_in.total_seconds())
            words = f"Job {job} waits: its next page is due at {due}, after a retry or when its site's window opens."
            if elsewhere:
                words = (
                    f"Other workers have the pages of {job}. {ONE_PACE} This one helps if there is more to do, and"
                    " ends with the job."
                )
        slot.reported = True
        self._reports.waits(job, words)

    async def _may_leave(self, slot: JobSlot) -> bool:
        """False while its worker reads the seeds: another worker would have to start over."""
        reads = slot.worker.reads_source if slot.worker is not None else None
        return await self._is_sealed(slot.job.id) if reads is None else not reads()

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
            spider, settings = self._spider_of(job)
        except Exception as error:  # a spider's constructor may raise anything
            self._leave_alone(job, error)
            return
        slot = JobSlot(job=job, taken_at=self._project.clock.monotonic(), code=code_of(spider))
        task = asyncio.create_task(self._serve(slot, spider, settings), name=f"serve {job.id}")
        self._tasks[job.id], self._slots[job.id] = task, slot
        task.add_done_callback(lambda _: self._ended(job))

    def _find_spider(self, job: Job) -> tuple[Spider, Settings]:
        spider, settings = spider_of_job(self._project.live.own, job)
        check_start(settings, spider)
        for remark in spider._remarks():
            self._reports.trouble(job.id, "spider", remark)
        return spider, settings

    def _ended(self, job: Job) -> None:
        del self._tasks[job.id], self._slots[job.id]
        self._share_out()
        if self._waiting or job.id in self._respites or self._until_idle or self._to_the_end:
            self._must_look = True
        self._changed.set()

    # -- one job -----------------------------------------------------------------------------------------------

    async def _serve(self, slot: JobSlot, spider: Spider, settings: Settings) -> None:
        job = slot.job
        idling: list[asyncio.Task[None]] = []

        def opened(worker: Worker) -> None:
            self._enlist(slot, worker)
            if self._until_idle and self._serves is not None:
                idling.append(asyncio.create_task(self._leave_when_idle(job, worker), name=f"idle {job.id}"))

        def begun() -> None:
            if not self.is_draining():
                self._reports.begun(job, slot.code)

        over: bool | None = False
        try:
            over = await self._runner.work(
                job,
                spider,
                settings,
                opened=opened,
                begun=begun,
                draining=self._draining,
                yields=self._yields(job),
            )
            if over is None:
                until = self._project.clock.monotonic() + YIELD.total_seconds()
                self._respites[job.id] = Respite(until, hopeful=True)
            elif over:
                storing = await self._runner.close(job, spider, settings)
                if storing is not None and not storing.alive:
                    await self._sink.search_disk()
                    storing = await self._runner.close(job, spider, settings)
                if storing is not None:
                    self._wait_for_results(job, storing)
                self._reports.ended(await self._project.state.jobs.job(job.id))
                if job.schedule or job.owner:  # of others, the `crawl` that began them writes what it was asked for
                    await write_feeds(self._project, job, spider)
        except Exception as error:  # from a backend, the spider's start, or a defect in Gossamer: other jobs go on
            self._leave_alone(job, error, is_over=bool(over))
        finally:
            for task in idling:
                task.cancel()

    def _yields(self, job: Job) -> bool:
        """A single page that was just asked for is seen by all workers at once, and one of them is enough. The others
        open the job after all when it is not so new any more: that worker may have died, or lack the route."""
        age = self._project.clock.now() - job.created_at
        return job.takes_single_pages and 0 <= age < self._terms.idle.total_seconds()

    def _wait_for_results(self, job: Job, storing: Storing) -> None:
        """Look at the job again soon. If no live worker stores its results, it does not keep this pool from ending."""
        until = self._project.clock.monotonic() + self._terms.idle.total_seconds()
        self._respites[job.id] = Respite(until, hopeful=storing.alive)
        self._reports.trouble(job.id, "storing", storing.in_words(job.id))

    async def _leave_when_idle(self, job: Job, worker: Worker) -> None:
        """A worker with `until_idle` that serves only some routes does not wait for pages of other routes."""
        clock = self._project.clock
        idle_since = clock.monotonic()
        while clock.monotonic() - idle_since < self._terms.no_page.total_seconds():
            await clock.sleep(self._terms.look.total_seconds())
            if worker.in_flight or (worker.reads_source is not None and worker.reads_source()):
                idle_since = clock.monotonic()
        self._respites[job.id] = Respite(clock.monotonic() + self._terms.unfit_again.total_seconds(), hopeful=False)
        self._reports.trouble(job.id, "job", f"Job {job.id} has no page left for the routes that are served here.")
        worker.drain()

    def _enlist(self, slot: JobSlot, worker: Worker) -> None:
        slot.worker = worker
        self._share_out()
        if self.is_draining():
            worker.drain()

    def _share_out(self) -> None:
        """Share the process's concurrency among the jobs that have something to do."""
        served = [(slot, slot.worker) for slot in self._slots.values() if slot.worker is not None]
        uses = [
            job_slots.SlotUse(
                priority=slot.job.priority,
                idle=slot.leaves or worker.idle >= self._terms.silent,
                full=worker.in_flight >= slot.width,
                in_flight=worker.in_flight,
            )
            for slot, worker in served
        ]
        widths = job_slots.shares_by_priority(self._project.settings.crawl.concurrency, uses)
        for (slot, worker), width in zip(served, widths, strict=True):
            if slot.width != width:
                slot.width = width
                worker.resize(width)

    def _leave_alone(self, job: Job, error: Exception, *, is_over: bool = False) -> None:
        """Try the job again later; a pool that works to the end fails instead, unless the pages are all done and only
        the stores are away. The same message about a job is reported once."""
        if openfiles.were_used_up(error):
            error = BackendUnavailable(openfiles.remedy())
        if self._to_the_end and not (is_over and isinstance(error, Transient)):
            self._failure = error
            self.drain()
            return
        hopeful, now = isinstance(error, Transient), self._project.clock.monotonic()
        pause = self._terms.again if hopeful else self._terms.unfit_again
        self._respites[job.id] = Respite(now + pause.total_seconds(), hopeful)
        if not hopeful:  # so that no other job makes way for it each time
            self._since[job.id] = now + self._terms.unfit_claim.total_seconds()
        words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
        self._reports.trouble(
            job.id, "job", words if hopeful else f"Job {job.id} is left to others: {words}", passes=hopeful
        )

    # -- small things ------------------------------------------------------------------------------------------

    def _forget_all_but_running(self) -> None:
        """Keep memory proportional to the jobs that run, not to all that ever ran."""
        for memory in (self._respites, self._since):
            for job in [job for job in memory if job not in self._running]:
                del memory[job]
        self._reports.forget_all_but(self._running.keys())
        self._obstacles.forget_all_but(self._running.keys())

    async def _rest(self) -> None:
        """Sleep until the next look; shorter if something changed here, or a job was started whose caller may be
        waiting."""
        clock, terms = self._project.clock, self._terms
        began, took = clock.monotonic(), 0.0
        due = (one.until for one in self._respites.values() if one.until > began)
        ends = min((began + terms.look.total_seconds(), *due))
        while (left := ends - (now := clock.monotonic())) > 0:
            glance = terms.quick_glance if now < self._lively_until else terms.glance
            if self._to_the_end:
                glance = terms.look  # it knows its jobs
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(glance.total_seconds(), took * AT_REST), left)):
                    await self._changed.wait()
                    if self._must_look:
                        return
                    self._changed.clear()
            began = clock.monotonic()
            with suppress(Transient):  # the next look decides
                if await self._project.state.jobs.newest_number() != self._newest:
                    self._lively_until = clock.monotonic() + terms.lively.total_seconds()
                    return
            took = clock.monotonic() - began

    async def _stop(self) -> None:
        """End everything that still runs, when `run` itself was cancelled."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _vitals(self) -> Vitals:
        state = "draining" if self.is_draining() else "working" if self._tasks or self._to_the_end else "idle"
        if self._sink.archive_full and state == "working":
            state = "archive full"
        elif self._sink.away and state != "draining":
            state = "spool full" if self._sink.full else "storing" if state == "idle" else state
        if state == "working" and any(slot.worker and slot.worker.is_set_aside for slot in self._slots.values()):
            state = "set aside"
        in_flight = sum(slot.in_flight for slot in self._slots.values())
        return Vitals(
            job=", ".join((self._only or ()) if self._to_the_end else self._tasks),
            state=state,
            in_flight=in_flight,
            slots=self._project.settings.crawl.concurrency,
            serves=",".join(sorted(self._serves or ())),
        )
