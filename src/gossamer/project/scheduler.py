"""The scheduler of an open project."""

from __future__ import annotations

from ..model.events import EventSink
from ..schedule.leader import Scheduler
from ..schedule.spider_loader import SpiderLoader
from .open import Project
from .retention import forget_old_runs


def scheduler_of(
    project: Project, events: EventSink, *, name: str = "", loader: SpiderLoader | None = None
) -> Scheduler:
    """A scheduler by this name; the process's own by default. Raises Misconfigured as `Scheduler` does."""
    state, keep = project.state, project.settings.store.keep_runs
    return Scheduler(
        state,
        project.settings,
        project.clock,
        events,
        name=name or project.worker,
        forget_old_runs=lambda schedule: forget_old_runs(state.history, state.jobs, schedule, keep),
        loader=loader,
    )
