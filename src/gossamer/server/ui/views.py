"""Every view, action and file of the dashboard, in the order of the menu."""

from __future__ import annotations

from . import jobs, overview
from .view import Action, Download, View

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *jobs.VIEWS,
)
ACTIONS: tuple[Action, ...] = (*jobs.ACTIONS,)
DOWNLOADS: tuple[Download, ...] = ()
