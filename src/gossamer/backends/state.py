"""The state of a project, open: one handle per contract, whichever backend keeps it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ..access.contract import AnswerBook, AuditLog, CallbackBook, KeyBook
from ..clock import Clock
from ..errors import BadState
from ..fetch.robots_shelf import RobotsShelf
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
    UrlErasure,
    Waking,
    WorkerBook,
)
from ..frontier.state_rows import StateStream
from ..model.shelf import Shelf
from ..model.url import FINGERPRINT_VERSION
from ..routing.contract import BudgetBook, RouteBook
from ..routing.proxies.contract import ProxyBook
from ..schedule.alert_book import AlertBook
from ..schedule.contract import ScheduleBook, TickBook
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
    robots: RobotsShelf
    addresses: AddressBook
    waiting: Waking
    workers: WorkerBook
    routes: RouteBook
    budgets: BudgetBook
    proxies: ProxyBook
    shelf: Shelf
    erasure: UrlErasure
    stream: StateStream
    clock: Clock
    durable: Callable[[], Awaitable[None]]
    may_lose: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def alerts(self) -> AlertBook:
        return AlertBook(self.shelf)

    @property
    def spools(self) -> SpoolBook:
        return SpoolBook(self.shelf)

    @property
    def sessions(self) -> SessionBook:
        return SessionBook(self.shelf)

    @property
    def keys(self) -> KeyBook:
        return KeyBook(self.shelf)

    @property
    def answers(self) -> AnswerBook:
        return AnswerBook(self.shelf)

    @property
    def audit(self) -> AuditLog:
        return AuditLog(self.shelf)

    @property
    def callbacks(self) -> CallbackBook:
        return CallbackBook(self.shelf)


def check_fingerprints(found: int, where: str, elsewhere: str) -> None:
    """Raises BadState for a state whose URL fingerprints have a different version from those of this Gossamer."""
    if found != FINGERPRINT_VERSION:
        raise BadState(
            f"The URLs in the state at {where} have fingerprints of version {found}, and this Gossamer makes version "
            f"{FINGERPRINT_VERSION}: it would not recognise the pages that were seen. Go on with the Gossamer that "
            f"wrote it, or begin anew: {elsewhere}"
        )
