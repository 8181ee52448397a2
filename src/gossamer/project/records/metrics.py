"""Figures of a project in the Prometheus text format: counters, and the current values of the shared state.

What it does: counters come from the record store, where every attempt is counted in the commit that stores it; gauges
are read on request. So they are correct whichever process has died. Jobs that have ended are not read. How it fails: if
a store does not answer, its figures are missing and `gossamer_store_up` is 0. MissingExtra without prometheus-client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress

from ... import __version__
from ...errors import BackendUnavailable, MissingExtra, Transient
from ...frontier.contract import DeadFilter
from ...model.alert_table import ALERTS
from ...model.figures import BOUNDS, Latency
from ...model.job import JobCounts
from ...model.record import day_of
from ...model.route import DIRECT
from ...pipeline.inspection import WHOLE
from ...store.outputs.book import OutputBook
from ..alerts.alerts import firing_alerts
from ..open import Project
from ..outputs.run import lag_of
from ..schedules.timetable import next_tick
from ..sites.routes import route_report
from ..workers.scaling import scaling
from ..workers.workers import MISSING_SECONDS
from .figures import totals
from .records import scores_of

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
except ImportError as error:
    raise MissingExtra("Metrics need a package: pip install 'gossamer[server]'") from error

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_BUDGETS = 100
STATES = ("queued", "waiting", "leased")
ANY_LANE = "any"  # pages that every worker may fetch

Values = dict[tuple[str, ...], float]


class _Read:
    """Figures that have been read, as the client library collects them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def exposition(project: Project) -> bytes:
    """All available figures, in the text format."""
    families: list[Metric] = [
        _gauge("gossamer_build_info", "The version of Gossamer.", ("version",), {(__version__,): 1})
    ]
    answers: Values = {}
    for store, readers in _READERS.items():
        answers[store,] = 1
        for read in readers:
            try:
                families += await read(project)
            except Transient:  # the gauge below reports it; the store's other figures are skipped
                answers[store,] = 0
                break
    words = "Whether a store of the project answered: 1 or 0. Its figures are left out when it did not."
    families.append(_gauge("gossamer_store_up", words, ("store",), answers))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Read(families))
    return bytes(generate_latest(registry))


def _gauge(name: str, words: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = GaugeMetricFamily(name, words, labels=labels)
    for held, value in sorted(values.items()):
        family.add_metric(held, value)
    return family


def _counter(name: str, words: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = CounterMetricFamily(name, words, labels=labels)
    for held, value in sorted(values.items()):
        family.add_metric(held, value)
    return family


# -- counters: the record store ------------------------------------------------------------------------------------


async def _counted(project: Project) -> list[Metric]:
    figures = await totals(project)
    pages: Values = {(outcome, route): n for outcome, by in figures.pages.items() for route, n in by.items()}
    domains: Values = {(name, out): n for name, one in figures.domains.items() for out, n in one.pages.items()}
    errors: Values = {(reason,): count for reason, count in figures.errors.items()}
    domain_errors: Values = {(name,): one.errors for name, one in figures.domains.items()}
    credits: Values = {(route,): spent for route, spent in figures.credits.items()}
    received: Counter[tuple[str, ...]] = Counter()
    for route, count in figures.bytes.items():
        table = project.settings.routes.get(route)
        received[(table.pool if table is not None else "") or DIRECT.name,] += count
    outcome = ("outcome",)
    return [
        _counter("gossamer_pages", "Attempts, by outcome of the page.", (*outcome, "route"), pages),
        _counter("gossamer_domain_pages", "The same by site.", ("domain", *outcome), domains),
        _seconds(figures.latency),
        _counter("gossamer_errors", "Attempts that failed, by reason.", ("reason",), errors),
        _counter("gossamer_domain_errors", "The same by site.", ("domain",), domain_errors),
        _counter("gossamer_items", "Items that pages gave.", (), {(): figures.items}),
        _counter("gossamer_credits", "What requests cost.", ("route",), credits),
        _counter("gossamer_received_bytes", "Bytes received, by proxy pool.", ("pool",), dict(received)),
    ]


def _seconds(latency: dict[str, Latency]) -> Metric:
    family = HistogramMetricFamily("gossamer_fetch_seconds", "Seconds until the answer.", labels=("route",))
    for route, one in sorted(latency.items()):
        below, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), one.counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric((route,), buckets, one.seconds)
    return family


# -- gauges: what the stores say now -------------------------------------------------------------------------------


async def _queue(project: Project) -> list[Metric]:
    """Of the running jobs."""
    tasks: Counter[tuple[str, ...]] = Counter({(state, ANY_LANE): 0 for state in STATES})
    pages: Counter[tuple[str, ...]] = Counter()
    oldest, now = 0.0, project.clock.now()
    jobs = await project.state.jobs.running_jobs()
    found_counts = await project.state.jobs.counts_of([job.id for job in jobs])
    for job in jobs:
        counts, _ = found_counts.get(job.id, (JobCounts(), False))
        for outcome in ("done", "unchanged", "dropped", "dead"):
            pages[outcome,] += getattr(counts, outcome)
        for lane in await project.state.queue.lanes(job.id) if counts.open else ():
            for state in STATES:
                tasks[state, lane.lane or ANY_LANE] += getattr(lane, state)
            if lane.ready_since is not None and not job.paused:
                oldest = max(oldest, now - lane.ready_since)
    words = "Pages of the running jobs, by outcome."
    waits = "How long a page has waited for a worker that its site would let be fetched. 0: none waits."
    queue = "Tasks of the jobs that run now, by state and lane."
    return [
        _gauge("gossamer_queue_tasks", queue, ("state", "lane"), dict(tasks)),
        _gauge("gossamer_queue_oldest_ready_seconds", waits, (), {(): oldest}),
        _gauge("gossamer_running_jobs_pages", words, ("outcome",), dict(pages)),
        _gauge("gossamer_running_jobs", "Jobs that run now.", (), {(): len(jobs)}),
    ]


async def _workers(project: Project) -> list[Metric]:
    now = project.clock.now()
    states: Counter[tuple[str, ...]] = Counter({(state,): 0 for state in ("working", "idle", "draining", "missing")})
    for card in await project.state.workers.workers():
        states["missing" if now - card.seen_at > MISSING_SECONDS else card.state,] += 1
    return [_gauge("gossamer_workers", "Worker processes, by state.", ("state",), dict(states))]


async def _scaling(project: Project) -> list[Metric]:
    lanes = (await scaling(project)).lanes
    words = {
        "gossamer_ready_tasks": ("ready", "Tasks that no time keeps waiting, by lane; 200 of each site at most."),
        "gossamer_runnable_pages_per_second": ("runnable_per_second", "Pages that all sites allow now, by lane."),
        "gossamer_workers_wanted": ("workers_wanted", "Workers that this takes, by lane."),
    }
    return [
        _gauge(name, text, ("lane",), {(lane,): getattr(found, field) for lane, found in lanes.items()})
        for name, (field, text) in words.items()
    ]


async def _waiting_results(project: Project) -> list[Metric]:
    """Results that were given up do not count."""
    hosts: Counter[tuple[str, ...]] = Counter()
    for note in await project.state.spools.notes():
        if not note.given_up:
            hosts[note.host,] += sum(note.results.values())
    words = "Results on the disks of workers that are not stored yet, by host."
    return [_gauge("gossamer_results_waiting", words, ("host",), dict(hosts))]


async def _dead_letters(project: Project) -> list[Metric]:
    reasons = await project.state.queue.dead_reasons(DeadFilter())
    values: Values = {(reason,): count for reason, count in reasons.items()}
    return [_gauge("gossamer_dead_letters", "Pages that were given up, by reason.", ("reason",), values)]


async def _quality(project: Project) -> list[Metric]:
    today = day_of(project.clock.now())
    scores = scores_of(await project.records.scores(since=today))
    values: Values = {(one.spider, one.type): one.score for one in scores if one.field == WHOLE and one.day == today}
    words = "Share of faultless items today, by spider and type."
    return [_gauge("gossamer_quality_score", words, ("spider", "type"), values)]


async def _budgets(project: Project) -> list[Metric]:
    report = await route_report(project, limit=1)
    values: Values = {
        (one.budget,): max(0.0, one.left or 0.0) / one.limit for one in report.budgets[:MOST_BUDGETS] if one.limit
    }
    return [_gauge("gossamer_budget_remaining_ratio", "What is left of each budget.", ("scope",), values)]


async def _schedule_lag(project: Project) -> list[Metric]:
    """The age of the oldest tick that has passed without a scheduler's decision."""
    now = project.clock.now()
    going = [one for one in await project.state.schedules.schedules() if not one.paused]
    ticks = [at for at in (next_tick(one, now) for one in going) if at is not None]
    late = max((now - at for at in ticks), default=0.0)
    return [_gauge("gossamer_schedule_lag_seconds", "How late the most overdue run is.", (), {(): max(0.0, late)})]


async def _callbacks(project: Project) -> list[Metric]:
    pending = await project.state.callbacks.pending()
    return [_gauge("gossamer_callbacks_pending", "Callbacks that are not delivered yet.", (), {(): pending})]


async def _outputs(project: Project) -> list[Metric]:
    """How far each output is behind. Without the record store, which has a gauge of its own, nobody can tell."""
    book, tables = OutputBook(project.state.shelf), project.settings.outputs
    kept = {one.name: one for one in await book.progress.all()}
    names = sorted({*tables, *kept})
    dead: Values = {(name,): len(await book.dead_rows(name)) for name in names}
    lags: Values = {}
    with suppress(BackendUnavailable):
        lags = {(name,): await lag_of(project, tables.get(name), kept.get(name)) for name in names}
    return [
        _gauge("gossamer_output_lag_changes", "Changes that an output has not written yet.", ("output",), lags),
        _gauge("gossamer_output_dead_rows", "Rows that the target of an output refused.", ("output",), dead),
    ]


async def _alerts(project: Project) -> list[Metric]:
    """Every alert, including those that do not fire: a query needs something to compare with."""
    firing: Counter[tuple[str, ...]] = Counter({(alert,): 0 for alert in ALERTS})
    for one in await firing_alerts(project):
        firing[one.alert,] += 1
    return [_gauge("gossamer_alert_firing", "Subjects that an alert fires for.", ("alert",), dict(firing))]


# The figures of each store; the first ones are read first.
_READERS: dict[str, tuple[Callable[[Project], Awaitable[list[Metric]]], ...]] = {
    "records": (_counted, _quality),
    "state": (
        _queue, _workers, _scaling, _waiting_results, _dead_letters, _budgets, _schedule_lag, _callbacks, _outputs,
        _alerts,
    ),
}  # fmt: skip
