"""The jobs of a project: where each stands, how fast it is, when it may be done; pause, resume, cancel.

Totals with records and sites are in status.py, the deletion of old jobs is in retention.py.
How it fails: BackendUnavailable; Misconfigured for a job that does not exist or has ended.
"""

from __future__ import annotations

import difflib
import logging
import shlex
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from ...backends.worker_names import is_gone
from ...clock import iso_time
from ...crawl.heartbeat import MISSING_AFTER
from ...errors import Misconfigured, Transient
from ...frontier.contract import DeadFilter, WorkerCard
from ...model.failure_groups import Failures
from ...model.item_account import ItemCounts
from ...model.job import Job, JobCounts, JobState, read_arguments
from ...model.outcome import Outcome, Reason, later_in_words
from ...model.run_records import RunRecords
from ...model.url import site_of
from ...model.windows import is_open, opens_at, parse_windows
from ...schedule.sources import FeedSource, SitemapSource, SiteSource, source_of
from ...settings import Settings
from ...units import many, moment
from ..boards.runs import note_run
from ..open import Project
from ..records.items import items_of
from ..workers.spools import waiting_by_job
from .failures import failures_of
from .forecast import JobForecast, JobWait, forecast_job

log = logging.getLogger(__name__)
RUNNING, READING, WAITING, NO_WORKER, PAUSED = "running", "reading", "waiting", "no worker", "paused"
NOT_RESPONDING = "not responding"  # its workers hold pages and are dead or silent
STORING = "storing"  # its pages are done, but some results still wait in spools
SITES_LOOKED_AT = 1000  # of one job; a job with more sites is never reported as waiting for all of them
COUNTED = (  # counts that a view repeats
    "done", "unchanged", "dropped", "dead", "open", "postponed", "redirected", "retries", "drops", "stats",
)  # fmt: skip
TAKEN_UP_WITHIN = timedelta(seconds=10)  # workers look for jobs every second and report their jobs every five


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands now. Times are ISO 8601 in UTC.

    `total` is the sum of `done`, `unchanged`, `dead`, `dropped` and `open`.
    """

    id: str
    name: str  # of its spider, recipe or schedule, or the URL that was typed
    spider: str  # which spider, recipe or URL it is a run of
    arguments: dict[str, Any]  # of the spider
    schedule: str | None  # that started it
    due: str | None  # the tick it was started for
    state: JobState
    paused: bool
    phase: str  # running, reading, waiting, no worker, storing or paused; otherwise the first word of `ending`
    in_words: str  # `phase` with details for people
    ending: str | None  # done, limit, cancelled, replaced, or "source failed: " and why
    outcome: Outcome | None  # None while it runs, and for jobs from before outcomes existed
    reasons: tuple[Reason, ...]  # why it is not `done`
    trouble: str | None  # with a source that could be read only in part
    started: str
    finished: str | None
    first_ended: str | None  # when it had ended before its dead letters were replayed, resolved or purged
    settled_again: str | None  # when its outcome was settled after that
    first_outcome: Outcome | None  # with which it had ended then
    settled_later: dict[str, int]  # dead letters that were settled after the end, by how: {"fetched by books-10": 1}
    seconds: float  # from start to end, or to now; pauses and closed windows count
    limit: int | None
    depth: int | None
    own_rate: str | None  # at each site; None: that of the settings
    site_concurrency: int | None  # requests of its own at once at each site; None: as in the settings
    priority: int  # among jobs; higher ones go first
    windows: str | None
    opens: str | None  # when the window opens for which it waits
    total: int  # URLs that it knows
    done: int
    unchanged: int
    dropped: int
    dead: int
    open: int
    postponed: int  # of the open ones: links that wait until the queue has room
    redirected: int  # of those that are done: they led elsewhere, and do not count towards the limit
    retries: int
    drops: dict[str, int]  # dropped ones by reason
    stats: dict[str, int]  # the spider's own counters
    storing: int  # results that wait in spools and are not in the record store yet
    pages_per_second: float  # settled pages, on average over `seconds`
    eta_seconds: float | None  # at the rate at which its queue shrinks; None: nothing useful can be said
    found_last_minute: int | None  # pages found, while it still discovers about as many as it settles
    waits_for: str | None  # in words, if none of its pages is in progress or may be handed out
    waits_until: str | None  # when the first of these pages is tried again
    failures: Failures | None = None  # the largest groups of its dead letters; only where one job is shown
    items: ItemCounts | None = None  # what became of those that were yielded; None in lists, or without a record store
    run_records: RunRecords | None = None  # what it did to records; None while it runs, and if it was cancelled

    @property
    def fault(self) -> str:
        """Why it ended early, if more than one word is known: what was wrong with its source."""
        return (self.ending or "").partition(": ")[2]

    @property
    def later_in_words(self) -> str:
        return later_in_words(self.settled_later, self.first_outcome)

    @property
    def remaining(self) -> int:
        """Open pages that the limit still allows it to fetch."""
        settled = self.done + self.unchanged + self.dead - self.redirected
        return self.open if self.limit is None else max(0, min(self.open, self.limit - settled))


class JobPage(msgspec.Struct, frozen=True):
    """The newest jobs, and how many there are in all."""

    jobs: list[JobView]
    total: int


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did to a job. `changed` is False if the job was in that state already. `counts` are those
    afterwards."""

    id: str
    changed: bool
    counts: JobCounts


class ClosedSites(msgspec.Struct, frozen=True, kw_only=True):
    """The windows of all sites that a job could fetch from are closed. The first of them opens at `opens`."""

    sites: tuple[str, ...]
    opens: float | None  # None: never
    source: bool = False  # it waits for the site of its source


# -- looking -------------------------------------------------------------------------------------------------------


async def find_job(project: Project, wanted: str) -> Job:
    """The job with that id, else the newest one with that name. Raises Misconfigured with a suggestion."""
    every = await project.state.jobs.jobs()
    for job in every:
        if job.id == wanted:
            return job
    for job in every:
        if job.name == wanted:
            return job
    near = difflib.get_close_matches(wanted, [name for job in every for name in (job.id, job.name)], n=1)
    hint = f"Did you mean {near[0]}?" if near else "`gossamer status` lists all of them."
    raise Misconfigured(f"There is no job {wanted!r}. {hint}")


async def list_jobs(project: Project, *, schedule: str | None = None, limit: int | None = None) -> JobPage:
    """The jobs of the project, or of one schedule, newest first. `limit` None means all."""
    jobs = [job for job in await project.state.jobs.jobs() if schedule is None or job.schedule == schedule]
    return JobPage(await views_of(project, jobs[:limit]), len(jobs))


async def show_job(project: Project, wanted: str) -> JobView:
    """The job with that id or name, with the fault of its source and the account of its items. Raises Misconfigured."""
    return await job_in_full(project, await find_job(project, wanted))


async def job_in_full(project: Project, job: Job) -> JobView:
    """As `views_of`, with the fault of the job's source, the account of its items and what its failed pages have in
    common."""
    (view,) = await views_of(project, [job])
    trouble = (await project.state.seeds.findings(job.id)).trouble if job.schedule else ""
    failures, items = await failures_of(project, DeadFilter(job=job.id), view.dead), await items_of(project, job.id)
    return msgspec.structs.replace(view, trouble=trouble or None, failures=failures, items=items)


async def views_of(project: Project, jobs: Iterable[Job]) -> list[JobView]:
    """The jobs as they stand now."""
    return [view for view, _ in await counted_views(project, jobs)]


async def counted_views(project: Project, jobs: Iterable[Job]) -> list[tuple[JobView, JobCounts]]:
    """The jobs as they stand now, each with the counts its view was made from."""
    found = list(jobs)
    views: list[tuple[JobView, JobCounts]] = []
    cards = await project.state.workers.workers() if any(job.state is JobState.RUNNING for job in found) else []
    storing = waiting_by_job(await project.state.spools.notes())
    counts_by_job = await project.state.jobs.counts_of([job.id for job in found])
    for job in found:
        is_running = job.state is JobState.RUNNING
        counts, sealed = counts_by_job.get(job.id, (JobCounts(), False))
        sealed = sealed or not is_running
        now = project.clock.now()
        served = is_served(job, cards, now) if is_running else True
        closed = await _closed_sites(project, job, sealed, now) if is_running and not counts.leased else None
        lost = is_running and is_lost(job, cards, now)
        forecast = None
        if is_running and not job.paused and closed is None and _may_fetch(job, now):
            alive = [card for card in cards if _is_alive(card, now)]
            forecast = await forecast_job(project, job, counts, alive, sealed=sealed, now=now)
        view = job_view(
            job,
            counts,
            now,
            sealed=sealed,
            served=served,
            closed=closed,
            storing=storing[job.id],
            lost=lost,
            forecast=forecast,
        )
        views.append((view, counts))
    return views


def job_view(
    job: Job,
    counts: JobCounts,
    now: float,
    *,
    sealed: bool = True,
    served: bool = True,
    closed: ClosedSites | None = None,
    storing: int = 0,
    lost: bool = False,
    forecast: JobForecast | None = None,
) -> JobView:
    """The view of a job with these counts at `now`. `sealed`: all its seeds are in. `served`: a worker reports that it
    works on the job, or may be about to. `storing`: how many results wait in spools. `lost`: its last workers are dead
    or silent. `forecast`: what is known of its end, if it runs."""
    phase = _phase(job, counts, now, sealed, served, closed, lost)
    known = forecast or JobForecast()
    if known.wait is not None and phase == RUNNING:
        phase = WAITING
    if storing and sealed and job.state is JobState.RUNNING and not counts.open:
        phase = STORING
    opens: float | None = None
    if phase == WAITING and known.wait is None:
        its_own = not _may_fetch(job, now)
        opens = opens_at(parse_windows(job.windows), now) if its_own else closed.opens if closed is not None else None
    seconds = max(0.0, (job.finished_at if job.finished_at is not None else now) - job.created_at)
    rate = counts.settled / seconds if seconds > 0 else 0.0
    ended = job.outcome
    settled = ended.settled_at if ended is not None else None
    settled = settled or (job.finished_at if job.first_ended is not None else None)
    first_ended = job.first_ended or (job.finished_at if settled is not None else None)
    return JobView(
        id=job.id,
        name=job.name,
        spider=job.spider_name,
        arguments=read_arguments(job.arguments),
        schedule=job.schedule or None,
        due=_iso(job.due),
        state=job.state,
        paused=job.paused,
        phase=phase,
        in_words=_in_words(phase, job, now, opens, closed, storing, known.wait),
        ending=job.ending or None,
        outcome=ended.outcome if ended is not None else None,
        reasons=ended.reasons if ended is not None else (),
        run_records=ended.records if ended is not None else None,
        trouble=None,
        started=iso_time(job.created_at),
        finished=_iso(job.finished_at),
        first_ended=_iso(first_ended),
        settled_again=_iso(settled),
        first_outcome=ended.first if ended is not None else None,
        settled_later=ended.later if ended is not None else {},
        seconds=round(seconds, 3),
        limit=job.limit,
        depth=job.depth,
        own_rate=job.politeness.rate,
        site_concurrency=job.politeness.concurrency,
        priority=job.priority,
        windows=job.windows or None,
        opens=_iso(opens),
        total=counts.discovered - counts.duplicates,
        **{name: getattr(counts, name) for name in COUNTED},
        storing=storing,
        pages_per_second=round(rate, 4),
        eta_seconds=round(known.seconds, 3) if known.seconds is not None else None,
        found_last_minute=known.found.found if known.found is not None else None,
        waits_for=known.wait.words if known.wait is not None else None,
        waits_until=_iso(known.wait.until) if known.wait is not None else None,
    )


def _phase(
    job: Job, counts: JobCounts, now: float, sealed: bool, served: bool, closed: ClosedSites | None, lost: bool
) -> str:
    if job.state is not JobState.RUNNING:
        return job.ending.partition(":")[0] or job.state.value
    if job.paused:
        return PAUSED
    if counts.leased:
        return NOT_RESPONDING if lost else RUNNING
    if not _may_fetch(job, now) or closed is not None:
        return WAITING  # waiting needs no worker
    if not served:
        return NO_WORKER
    return RUNNING if sealed or counts.discovered else READING


def _may_fetch(job: Job, now: float) -> bool:
    """Whether one of the job's own windows is open, or it has none."""
    return not job.windows or is_open(parse_windows(job.windows), now)


def _in_words(
    phase: str,
    job: Job,
    now: float,
    opens: float | None,
    closed: ClosedSites | None,
    storing: int,
    wait: JobWait | None,
) -> str:
    if phase == READING:
        return "reading its source"
    if phase == STORING:
        return f"storing: its pages are done, and {many(storing, 'result')} wait on disk (gossamer spool)"
    if phase == NOT_RESPONDING:
        return "not responding: its process is dead or silent. The next one retries the pages in progress"
    if phase == NO_WORKER:
        return "no worker: none works on it at the moment; gossamer up, or the same crawl again, continues it"
    if job.outcome is not None:
        return job.outcome.in_words
    if phase != WAITING:
        return phase
    if wait is not None:
        return f"waiting: {wait.in_words(now)}"
    if not _may_fetch(job, now) or closed is None:
        return f"waiting for its window, {opening_at(opens, now)}"
    site, *others = closed.sites
    whose = f"the window of {site}" if not others else f"the windows of {1 + len(others):,} sites"
    when = ("the first " if others else "") + opening_at(opens, now)
    return f"waiting{': its source waits' if closed.source else ''} for {whose}, {when}"


async def _closed_sites(project: Project, job: Job, sealed: bool, now: float) -> ClosedSites | None:
    """None when one of its sites may be visited now, or when no site with open pages is known."""
    settings = project.settings
    if not any(domain.windows for domain in settings.domains.values()):
        return None  # nearly always: saves a query
    sites = [load.site for load in await project.state.queue.sites(job.id, SITES_LOOKED_AT)]
    if len(sites) == SITES_LOOKED_AT:
        return None
    source = None
    if not sealed:
        match source_of((await project.state.jobs.terms(job.id)).source):
            case SitemapSource(url=url) | SiteSource(url=url) | FeedSource(url=url):
                source = site_of(url)
    wanted = dict.fromkeys([*([source] if source is not None else ()), *sites])
    closed = [closed_until(settings, site, now) for site in wanted]
    if not wanted or not all(is_closed for is_closed, _ in closed):
        return None
    openings = [at for _, at in closed if at is not None]
    only_source = source is not None and not sites
    return ClosedSites(sites=tuple(wanted), opens=min(openings, default=None), source=only_source)


def closed_until(settings: Settings, site: str, now: float) -> tuple[bool, float | None]:
    """Whether the site's own window is closed, and when it opens. None: never."""
    text = settings.domain(site).windows
    windows = parse_windows(text) if text else ()
    if not windows or is_open(windows, now):
        return False, None
    return True, opens_at(windows, now)


def is_served(job: Job, cards: Collection[WorkerCard], now: float) -> bool:
    """Whether a worker reports that it works on the job. A new job counts as served for some seconds if a worker is
    alive."""
    if any(is_working_on(card, job, now) for card in cards):
        return True
    return any(_is_alive(card, now) for card in cards) and now - job.created_at < TAKEN_UP_WITHIN.total_seconds()


def is_working_on(card: WorkerCard, job: Job, now: float) -> bool:
    return job.id in card.job.split(", ") and _is_alive(card, now)


def is_lost(job: Job, cards: Collection[WorkerCard], now: float) -> bool:
    """Are all workers that say they work on the job dead or silent? Of a process on this machine that is known at once,
    of others after MISSING_AFTER."""
    its_own = [card for card in cards if job.id in card.job.split(", ")]
    return bool(its_own) and not any(_is_alive(card, now) for card in its_own)


def _is_alive(card: WorkerCard, now: float) -> bool:
    return now - card.seen_at <= MISSING_AFTER.total_seconds() and not is_gone(card.name)


def crawl_command(name: str) -> str:
    """The command that goes on with a job of that name."""
    from ...demo.spider import DemoShop  # written as users write theirs: it imports the whole package

    return "gossamer demo" if name == DemoShop.name else f"gossamer crawl {shlex.quote(name)}"


def opening(windows: str, now: float) -> str:
    """When closed windows open, as words to follow their name and a comma."""
    return opening_at(opens_at(parse_windows(windows), now), now)


def opening_at(at: float | None, now: float) -> str:
    return f"opens at {moment(at, now)}" if at is not None else "which never opens again"


def window_words(windows: str, now: float) -> str:
    """The windows, and whether one of them is open."""
    if not windows:
        return ""
    read = parse_windows(windows)
    if is_open(read, now):
        return f"{windows} (open now)"
    opens = opens_at(read, now)
    return f"{windows} (closed, {f'opens {moment(opens, now)}' if opens is not None else 'never opens again'})"


def _iso(at: float | None) -> str | None:
    return iso_time(at) if at is not None else None


# -- control -------------------------------------------------------------------------------------------------------


async def running_job(project: Project, wanted: str, *, verb: str) -> Job:
    """The running job with that id or name. Raises Misconfigured when there is none, or it has ended."""
    for job in await project.state.jobs.running_jobs():
        if wanted in (job.id, job.name):
            return job
    raise _too_late(await find_job(project, wanted), verb)


async def pause_job(project: Project, wanted: str) -> JobChange:
    """Stop handing out pages of a job, to any worker. Pages in progress are finished. Raises Misconfigured."""
    return await _set_paused(project, wanted, paused=True, verb="pause")


async def resume_job(project: Project, wanted: str) -> JobChange:
    """Let a paused job continue. Raises Misconfigured."""
    return await _set_paused(project, wanted, paused=False, verb="resume")


async def _set_paused(project: Project, wanted: str, *, paused: bool, verb: str) -> JobChange:
    job = await running_job(project, wanted, verb=verb)
    changes = job.paused is not paused
    if changes and not await project.state.control.pause_job(job.id, paused):
        raise _too_late(job, verb)
    return JobChange(id=job.id, changed=changes, counts=await project.state.jobs.counts(job.id))


async def cancel_job(project: Project, wanted: str) -> JobChange:
    """End a job for good: open pages are dropped, stored results stay. Raises Misconfigured."""
    job = await running_job(project, wanted, verb="cancel")
    if not await project.state.control.cancel_job(job.id):
        raise _too_late(job, "cancel")
    try:
        await note_run(project, job.id)
    except Transient as error:  # the next run does it
        log.warning("%s is not on the boards yet: %s", job.id, error)
    return JobChange(id=job.id, changed=True, counts=await project.state.jobs.counts(job.id))


def _too_late(job: Job, verb: str) -> Misconfigured:
    ending = f" ({job.ending})" if job.ending else ""
    return Misconfigured(
        f"Job {job.id} has ended{ending}: there is nothing to {verb}. `gossamer job list` shows the running jobs."
    )
