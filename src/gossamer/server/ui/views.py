"""Every view, action and file of the dashboard, in the order of the menu."""

from __future__ import annotations

from . import access, alerts, dead_letters, jobs, notes, overview, queue, records, schedules, spiders, why, workers
from .view import Action, Download, View

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *jobs.VIEWS,
    *spiders.VIEWS,
    *queue.VIEWS,
    *dead_letters.VIEWS,
    *schedules.VIEWS,
    *records.VIEWS,
    *why.VIEWS,
    *notes.VIEWS,
    *alerts.VIEWS,
    *workers.VIEWS,
    *access.VIEWS,
)
ACTIONS: tuple[Action, ...] = (
    *jobs.ACTIONS,
    *spiders.ACTIONS,
    *queue.ACTIONS,
    *dead_letters.ACTIONS,
    *schedules.ACTIONS,
    *notes.ACTIONS,
    *alerts.ACTIONS,
    *workers.ACTIONS,
    *access.ACTIONS,
)
DOWNLOADS: tuple[Download, ...] = (*records.DOWNLOADS, *dead_letters.DOWNLOADS)
