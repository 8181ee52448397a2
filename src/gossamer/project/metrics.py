"""Figures of a project in the text format of Prometheus: what the shared state and the records can tell now.

What it does: each figure is read when it is asked for, so it is right whatever process has died. Running jobs are few;
jobs that have ended are not read. How it fails: BackendUnavailable; MissingExtra without prometheus-client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from .. import __version__
from ..errors import MissingExtra
from ..frontier.contract import DeadFilter
from ..model.alert import USUAL
from ..model.record import day_of
from ..pipeline.inspection import WHOLE
from .alerts import firing_alerts
from .open import Project
from .records import scores_of
from .routes import route_report
from .scaling import scaling
from .timetable import next_tick
from .workers import MISSING_SECONDS

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily, Metric
except ImportError as error:
    raise MissingExtra("Metrics need a package: pip install 'gossamer[server]'") from error

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_BUDGETS = 100
STATES = ("queued", "waiting", "leased")


class _Read:
    """Figures that were read already, as the client library collects them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def exposition(project: Project) -> bytes:
    """All figures, in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(
        _Read(
            [
                _family("gossamer_build_info", "The version of Gossamer.", ("version",), {(__version__,): 1}),
                *await _queue(project),
                await _workers(project),
                *await _scaling(project),
                await _waiting_results(project),
                await _dead_letters(project),
                await _quality(project),
                await _budgets(project),
                await _schedule_lag(project),
                await _callbacks(project),
                await _alerts(project),
            ]
        )
    )
    return bytes(generate_latest(registry))


def _family(name: str, words: str, labels: tuple[str, ...], values: dict[tuple[str, ...], float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, words, labels=labels)
    for held, value in sorted(values.items()):
        family.add_metric(held, value)
    return family


async def _queue(project: Project) -> list[Metric]:
    """Of the jobs that run."""
    tasks: Counter[tuple[str, ...]] = Counter({(state,): 0 for state in STATES})
    pages: Counter[tuple[str, ...]] = Counter()
    jobs = await project.state.jobs.running_jobs()
    for job in jobs:
        counts = await project.state.jobs.counts(job.id)
        for state in STATES:
            tasks[state,] += getattr(counts, state)
        for outcome in ("done", "unchanged", "dropped", "dead"):
            pages[outcome,] += getattr(counts, outcome)
    words = "Pages of the jobs that run now, by what became of them."
    return [
        _family("gossamer_queue_tasks", "Tasks of the jobs that run now, by state.", ("state",), dict(tasks)),
        _family("gossamer_running_jobs_pages", words, ("outcome",), dict(pages)),
        _family("gossamer_running_jobs", "Jobs that run now.", (), {(): len(jobs)}),
    ]


async def _workers(project: Project) -> Metric:
    now = project.clock.now()
    states: Counter[tuple[str, ...]] = Counter({(state,): 0 for state in ("working", "idle", "draining", "missing")})
    for card in await project.state.workers.workers():
        states["missing" if now - card.seen_at > MISSING_SECONDS else card.state,] += 1
    return _family("gossamer_workers", "Worker processes, by state.", ("state",), dict(states))


async def _scaling(project: Project) -> list[Metric]:
    lanes = (await scaling(project)).lanes
    words = {
        "gossamer_ready_tasks": ("ready", "Tasks that no time keeps waiting, by lane; 200 of each site at most."),
        "gossamer_runnable_pages_per_second": ("runnable_per_second", "Pages that all sites allow now, by lane."),
        "gossamer_workers_wanted": ("workers_wanted", "Workers that this takes, by lane."),
    }
    return [
        _family(name, text, ("lane",), {(lane,): getattr(found, field) for lane, found in lanes.items()})
        for name, (field, text) in words.items()
    ]


async def _waiting_results(project: Project) -> Metric:
    """Those that were given up do not count."""
    hosts: Counter[tuple[str, ...]] = Counter()
    for note in await project.state.spools.notes():
        if not note.given_up:
            hosts[note.host,] += sum(note.results.values())
    words = "Results on the disks of workers that are not stored yet, by host."
    return _family("gossamer_results_waiting", words, ("host",), dict(hosts))


async def _dead_letters(project: Project) -> Metric:
    reasons = await project.state.queue.dead_reasons(DeadFilter())
    values: dict[tuple[str, ...], float] = {(reason,): count for reason, count in reasons.items()}
    return _family("gossamer_dead_letters", "Pages that were given up, by reason.", ("reason",), values)


async def _quality(project: Project) -> Metric:
    today = day_of(project.clock.now())
    scores = scores_of(await project.records.scores(since=today))
    values: dict[tuple[str, ...], float] = {
        (one.spider, one.type): one.score for one in scores if one.field == WHOLE and one.day == today
    }
    words = "Share of faultless items today, by spider and type."
    return _family("gossamer_quality_score", words, ("spider", "type"), values)


async def _budgets(project: Project) -> Metric:
    report = await route_report(project, limit=1)
    values: dict[tuple[str, ...], float] = {
        (one.budget,): max(0.0, one.left or 0.0) / one.limit for one in report.budgets[:MOST_BUDGETS] if one.limit
    }
    return _family("gossamer_budget_remaining_ratio", "What is left of each budget.", ("scope",), values)


async def _schedule_lag(project: Project) -> Metric:
    """A tick that has passed and that no scheduler has decided about."""
    now = project.clock.now()
    going = [one for one in await project.state.schedules.schedules() if not one.paused]
    ticks = [at for at in (next_tick(one, now) for one in going) if at is not None]
    late = max((now - at for at in ticks), default=0.0)
    return _family("gossamer_schedule_lag_seconds", "How late the most overdue run is.", (), {(): max(0.0, late)})


async def _callbacks(project: Project) -> Metric:
    pending = await project.state.callbacks.pending()
    return _family("gossamer_callbacks_pending", "Callbacks that are not delivered yet.", (), {(): pending})


async def _alerts(project: Project) -> Metric:
    """Every alert, also those that do not fire: a query needs something to compare with."""
    firing: Counter[tuple[str, ...]] = Counter({(alert,): 0 for alert in USUAL})
    for one in await firing_alerts(project):
        firing[one.alert,] += 1
    return _family("gossamer_alert_firing", "Subjects that an alert fires for.", ("alert",), dict(firing))
