"""The state of a project, open: one handle per contract, whichever backend keeps it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ..access.contract import AnswerBook, AuditLog, CallbackBook, KeyBook
from ..clock import Clock
from ..errors import BadState
from ..fetch.robots import RobotsShelf
from ..fetch.sessions import SessionBook
from ..frontier.contract import (
    AddressBook,
    Frontier,
    FrontierFor,
    JobBook,
    JobControl,
    JobHistory,
    QueueView,
    SeedBook,
    SiteOrders,
    WorkerBook,
)
from ..frontier.state_rows import StateStream
from ..model.url import FINGERPRINT_VERSION
from ..routing.contract import BudgetBook, RouteBook
from ..routing.proxies.contract import ExitBook
from ..schedule.contract import AlertBook, AlertDesk, ScheduleBook, TickBook
from ..store.contract import SpoolBook


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend's opener yields. `clock` is the time shared by all workers; `warnings` are for the user.

    `durable` returns when everything that this process has written is on the disk, as far as the backend can promise
    it: called before a person or a program is told. `may_lose` says what it cannot promise; "" if nothing. Raises
    BackendUnavailable.
    """

    frontier: Frontier
    frontier_for: FrontierFor
    queue: QueueView
    jobs: JobBook
    control: JobControl
    history: JobHistory
    seeds: SeedBook
    schedules: ScheduleBook
    ticks: TickBook
    alerts: AlertBook
    alert_desk: AlertDesk
    robots: RobotsShelf
    addresses: AddressBook
    orders: SiteOrders
    workers: WorkerBook
    spools: SpoolBook
    routes: RouteBook
    budgets: BudgetBook
    exits: ExitBook
    sessions: SessionBook
    keys: KeyBook
    answers: AnswerBook
    audit: AuditLog
    callbacks: CallbackBook
    stream: StateStream
    clock: Clock
    durable: Callable[[], Awaitable[None]]
    may_lose: str = ""
    warnings: tuple[str, ...] = ()


def check_fingerprints(found: int, where: str, elsewhere: str) -> None:
    """Raises BadState for a state whose URL fingerprints have a different version from those of this Gossamer."""
    if found != FINGERPRINT_VERSION:
        raise BadState(
            f"The URLs in the state at {where} have fingerprints of version {found}, and this Gossamer makes version "
            f"{FINGERPRINT_VERSION}: it would not recognise the pages that were seen. Go on with the Gossamer that "
            f"wrote it, or begin anew: {elsewhere}"
        )
