"""From a spider to a finished job: open, seed, work, close. `gossamer crawl` and `gossamer.run` share this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, nullcontext
from datetime import timedelta
from typing import Any

import msgspec

from ...backends.open import were_opened
from ...clock import SystemClock
from ...crawl.outages import BACKOFF, LONGEST_OUTAGE
from ...errors import BackendUnavailable, Misconfigured, Transient
from ...fetch.open_route import Transports
from ...frontier.contract import DeadFilter, JobTerms
from ...model.events import EventSink, NullSink, Trouble
from ...model.failure_groups import Failures
from ...model.item_account import ItemCounts
from ...model.job import Job, JobCounts, JobState
from ...model.outcome import Outcome
from ...parse.arguments import checked_arguments, job_name, stored_arguments, with_arguments
from ...parse.spider import Spider
from ...process.black_box import PARENT, Crew
from ...process.signals import stopping
from ...schedule.authority import sealed_terms
from ...settings import Settings
from ...settings.output_tables import OutputTable
from ...store.contract import RecordQuery
from ...terms import job_terms
from ...units import many
from ..open import Project, open_patiently
from ..outputs.run import OutputReport, changes_written, running_outputs
from ..records.export import table_command
from ..start_check import check_start, disguise_warnings
from ..wiring import is_over
from ..workers.spools import Storing, storing_of
from .failures import failures_of
from .jobs import is_working_on
from .worker_pool import WorkerPool

LOOK = timedelta(milliseconds=20)  # how often the first process checks whether the helpers of a crawl have left


class CrawlReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a crawl. `ended` is False when it was stopped early and can be continued.

    `failure` says why the outcome is `failed`, and is empty otherwise. `storing` names the results that still have to
    be stored when all pages are done and the job cannot end yet. `records` is None when the job has not ended and the
    record store does not answer.
    """

    job: Job
    resumed: bool
    ended: bool
    counts: JobCounts
    records: int | None
    seconds: float
    failure: str = ""
    storing: Storing | None = None
    cost: float | None = None  # credits, of all attempts by all workers; None without priced routes, or if not known
    dead_reasons: dict[str, int] = {}  # of its dead letters
    failures: Failures | None = None  # the largest groups of them
    account: ItemCounts | None = None  # what became of the items that were yielded; None like `records`
    is_served: bool = False  # another worker goes on with the job
    outputs: tuple[OutputReport, ...] = ()  # those that follow the records
    settings: Settings | None = None  # of the project, to read the items
    feeds: tuple[str, ...] = ()  # outputs of the spider's own kind that were written
    table_command: str = ""  # writes its records as a table; "" if it has none

    def items(self) -> Iterator[dict[str, Any]]:
        """Every item that the job saw, as a dict of its fields: `pandas.DataFrame(report.items())`. In flat memory,
        read from the store each time."""
        from .item_stream import items_of_job  # only programs need it

        if self.settings is None:
            return iter(())
        return items_of_job(self.settings, self.job.id)

    def __repr__(self) -> str:
        """One line, for notebooks."""
        outcome = self.job.outcome.outcome.value if self.ended and self.job.outcome is not None else "not over"
        found = "records unknown" if self.records is None else many(self.records, "record")
        return (
            f"<{self.job.id}: {outcome}, {many(self.counts.done + self.counts.unchanged, 'page')}, {found},"
            f" {many(self.counts.dead, 'dead letter')}, {self.seconds:.1f} s>"
        )


Attend = Callable[["RunningCrawl"], Coroutine[Any, Any, None]]


class RunningCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl in progress, as `attend` sees it."""

    project: Project
    job: Job
    resumed: bool
    pool: WorkerPool


async def crawl(
    spider: Spider,
    settings: Settings,
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    fresh: bool = False,
    events: EventSink | None = None,
    attend: Attend | None = None,
    after: Callable[[Project, Job], Awaitable[None]] | None = None,
    heeds_signals: bool = True,
    transports: Transports | None = None,
    crew: Crew | None = None,
    outputs: Mapping[str, OutputTable] | None = None,
) -> CrawlReport:
    """Crawl until the job is over, or until SIGINT or SIGTERM; without `heeds_signals` the caller handles these. Raises
    Misconfigured and Transient.

    An unfinished job of that name with the same spider arguments is continued, unless `fresh`. `attend` runs beside the
    crawl and is cancelled when the crawl ends; `after` runs when the work is over and the stores are still open.
    `transports` replace those of the settings, and then no robots.txt is requested. The processes of a `crew` crawl
    together: the first one opens the job, leaves last, and is the only one to heed `fresh`. `outputs` follow the
    records meanwhile; at the end they have some seconds to catch up.
    """
    checked = checked_arguments(type(spider), arguments or {})
    settings = with_arguments(spider, checked)._adjusted(settings)
    events = events or NullSink()

    def tell(words: str) -> None:
        events.emit(Trouble(at=SystemClock().now(), stage="start", message=words))

    async with AsyncExitStack() as stack:
        # An address that never worked may be a typing error: then nobody wants to wait.
        patience = LONGEST_OUTAGE if were_opened(settings) else timedelta(0)
        project = await open_patiently(stack, settings, tell, spider=spider, patience=patience)
        clock = project.clock
        began = clock.monotonic()
        base = name or spider.name
        title = job_name(base, checked)
        begun = await _begun(project, title)
        check_start(settings, spider)
        warnings = (*project.warnings, *disguise_warnings(settings, spider))
        project = msgspec.structs.replace(project, warnings=warnings)
        terms = job_terms(settings, spider)
        if checked:
            terms = msgspec.structs.replace(terms, spider=base, arguments=stored_arguments(checked))
        elif spider._stored_as is not None:
            stored_as, made_with = spider._stored_as
            terms = msgspec.structs.replace(terms, spider=stored_as, arguments=stored_arguments(made_with))
        if begun is not None and not fresh:
            terms = terms.as_begun(begun)
        terms = sealed_terms(settings, title, terms)
        job, resumed = await _opened(project, title, terms, fresh=fresh, crew=crew)
        pool = WorkerPool(
            project,
            events,
            only=frozenset((job.id,)),
            to_the_end=True,
            spider_of=lambda _: (spider, settings),
            replay=transports,
        )
        with (
            stopping(pool.drain) if heeds_signals else nullcontext(),
            PARENT.at_work(settings.crawl.parse_timeout),
        ):
            running = RunningCrawl(project=project, job=job, resumed=resumed, pool=pool)
            watching = asyncio.create_task(attend(running), name="attend") if attend else None
            told: list[OutputReport] = []
            try:
                before = await changes_written(project, outputs or {})
                async with running_outputs(project, outputs or {}) as following:
                    await pool.run()
                    while crew is not None and not crew.helps and crew.has_helpers():
                        await clock.sleep(LOOK.total_seconds())
                    told = await following.finish(before=before)
            finally:
                if watching is not None:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        seconds, pauses = clock.monotonic() - began, BACKOFF.pauses()
        while True:
            try:
                report = await _report(project, job, resumed, seconds, after, events)
                return msgspec.structs.replace(report, outputs=tuple(told))
            except BackendUnavailable:
                # The work is done, and an outage may be short. Who stopped the crawl does not want to wait.
                late = clock.monotonic() - began - seconds > LONGEST_OUTAGE.total_seconds()
                if late or pool.is_draining():
                    raise
            await clock.sleep(next(pauses).total_seconds())


async def _report(
    project: Project,
    job: Job,
    resumed: bool,
    seconds: float,
    after: Callable[[Project, Job], Awaitable[None]] | None,
    events: EventSink,
) -> CrawlReport:
    jobs, now = project.state.jobs, project.clock.now()
    known = await jobs.job(job.id)
    ended = known is None or known.state is not JobState.RUNNING
    storing: Storing | None = None
    if not ended and await is_over(jobs, job.id):
        storing = await storing_of(project, await project.state.spools.notes(), job.id)
    records: int | None = None
    cost: float | None = None
    items: ItemCounts | None = None
    command = ""
    try:
        if after is not None:
            await after(project, job)
        records = await project.records.count(RecordQuery(job=job.id))
        if project.settings.routes:
            from ..dead_letters.attempts import job_cost  # imports what shows sites and stories

            cost = await job_cost(project, job)
        items = await project.records.items(job.id)
        command = await table_command(project, job.id) if records else ""
    except Transient as error:
        if ended:
            raise
        # Stopped early: finished work is safe, only the record store does not answer at the moment.
        events.emit(Trouble(at=now, job=job.id, stage="records", message=str(error)))
    outcome = known.outcome if known is not None else None
    counts = await jobs.counts(job.id)
    others = [card for card in await project.state.workers.workers() if card.name != project.worker]
    return CrawlReport(
        job=known or job,
        resumed=resumed,
        ended=ended,
        counts=counts,
        records=records,
        seconds=seconds,
        failure=outcome.reasons[0].message if outcome is not None and outcome.outcome is Outcome.FAILED else "",
        storing=storing,
        cost=cost,
        dead_reasons=await project.state.queue.dead_reasons(DeadFilter(job=job.id)) if counts.dead else {},
        failures=await failures_of(project, DeadFilter(job=job.id), counts.dead),
        account=items,
        settings=project.settings,
        table_command=command,
        is_served=any(is_working_on(card, job, now) for card in others if card.state != "draining"),
    )


async def _opened(project: Project, title: str, terms: JobTerms, *, fresh: bool, crew: Crew | None) -> tuple[Job, bool]:
    """The job, and whether it existed before. All processes of a crew get the same job, even if it has ended
    meanwhile."""
    jobs = project.state.jobs
    if crew is not None and crew.job:
        if (job := await jobs.job(crew.job)) is None:
            raise Misconfigured(f"{crew.job} was forgotten while it was crawled.")
        return job, True
    job, resumed = await jobs.open_job(title, terms, fresh=fresh)
    if crew is not None:
        crew.begin(job.id)
    return job, resumed


async def _begun(project: Project, name: str) -> Job | None:
    """The unfinished job of that name. A run of a schedule has its own terms: a crawl of the same name does not take it
    over. Raises Misconfigured."""
    begun = [job for job in await project.state.jobs.running_jobs() if job.name == name]
    for job in begun:
        if job.schedule:
            raise Misconfigured(
                f"{job.id} is a run of the schedule {job.schedule!r}, and still going. `gossamer worker` works on it;"
                f" `gossamer job cancel {job.id}` ends it."
            )
    return begun[-1] if begun else None
