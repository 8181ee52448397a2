"""The state of a project, open: one handle per contract, whichever backend keeps it."""

from __future__ import annotations

import msgspec

from ..clock import Clock
from ..fetch.robots import RobotsShelf
from ..frontier.contract import (
    Frontier,
    FrontierFor,
    JobBook,
    JobControl,
    JobHistory,
    QueueView,
    SeedBook,
    WorkerBook,
)
from ..frontier.state_rows import StateStream
from ..routing.contract import BudgetBook, RouteBook
from ..routing.proxies.contract import ExitBook
from ..schedule.contract import ScheduleBook, TickBook


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend's opener yields. `clock` is the time that all workers share; `warnings` are for the user."""

    frontier: Frontier
    frontier_for: FrontierFor
    queue: QueueView
    jobs: JobBook
    control: JobControl
    history: JobHistory
    seeds: SeedBook
    schedules: ScheduleBook
    ticks: TickBook
    robots: RobotsShelf
    workers: WorkerBook
    routes: RouteBook
    purse: BudgetBook
    exits: ExitBook
    stream: StateStream
    clock: Clock
    warnings: tuple[str, ...] = ()
