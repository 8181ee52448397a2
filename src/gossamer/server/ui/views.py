"""Every view, action and file of the dashboard, in the order of the menu."""

from __future__ import annotations

from . import access, alerts, dead_letters, jobs, overview, queue, schedules, why, workers
from .view import Action, Download, View

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *jobs.VIEWS,
    *queue.VIEWS,
    *dead_letters.VIEWS,
    *schedules.VIEWS,
    *why.VIEWS,
    *alerts.VIEWS,
    *workers.VIEWS,
    *access.VIEWS,
)
ACTIONS: tuple[Action, ...] = (
    *jobs.ACTIONS,
    *queue.ACTIONS,
    *dead_letters.ACTIONS,
    *schedules.ACTIONS,
    *alerts.ACTIONS,
    *workers.ACTIONS,
    *access.ACTIONS,
)
DOWNLOADS: tuple[Download, ...] = (*dead_letters.DOWNLOADS,)
