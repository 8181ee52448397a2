"""Every view, action and file of the dashboard, in the order of the menu."""

from __future__ import annotations

from . import (
    access,
    alerts,
    boards,
    copies,
    dead_letters,
    disk,
    healing,
    incidents,
    jobs,
    notes,
    outline,
    outputs,
    overrides,
    overview,
    queue,
    records,
    schedules,
    search,
    spiders,
    why,
    workers,
)
from .view import FileAnswer, FormAction, View

MODULES = (
    overview, incidents, boards, jobs, spiders, healing, queue, dead_letters, schedules, records, outputs, why, copies,
    outline, notes, alerts, workers, overrides, disk, access, search,
)  # fmt: skip
VIEWS: tuple[View, ...] = tuple(view for module in MODULES for view in module.VIEWS)
ACTIONS: tuple[FormAction, ...] = tuple(action for module in MODULES for action in getattr(module, "ACTIONS", ()))
DOWNLOADS: tuple[FileAnswer, ...] = tuple(file for module in MODULES for file in getattr(module, "DOWNLOADS", ()))
