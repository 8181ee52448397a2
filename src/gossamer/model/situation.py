"""What the rules of alerts judge: the situation of a project at one moment. project/alerts/readings.py reads it.

A part of the situation that is None is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .alert import Sample
from .incident import Subject

ALL_SITES = ""  # the subject of an alert about the project as a whole


class Traffic(msgspec.Struct, frozen=True):
    """Requests that succeeded, and requests that failed."""

    good: int = 0
    bad: int = 0

    @property
    def total(self) -> int:
        return self.good + self.bad

    @property
    def failed(self) -> float:
        """The share that failed."""
        return self.bad / self.total if self.total else 0.0


class JobReading(msgspec.Struct, frozen=True, kw_only=True):
    """A running job. `ready` pages may be fetched now; the job has made no progress for `idle` seconds."""

    job: str
    ready: int
    idle: float
    paused: bool = False


class RunReading(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a name that has ended, and was neither cancelled nor replaced. `failed`: it came to nothing."""

    name: str
    job: str
    ended_at: float
    failed: bool
    words: str  # its outcome
    cause: Subject
    again: bool = False  # a newer run is under way


class LettersReading(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one site, without pages that do not exist. `recent` died in the window of the alert; `unmended`
    since the window before it fired, and are still there: the same number if it does not fire."""

    site: str
    recent: int
    unmended: int
    words: str  # what most of them say
    cause: Subject | None = None


class LayoutReading(msgspec.Struct, frozen=True, kw_only=True):
    """A new layout that a recipe met, and what was done about it."""

    spider: str
    words: str
    lost: int  # dead letters


class ReceiverReading(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks to one host: how many were given up in the window, and whether a later one was delivered."""

    host: str
    failed: int
    delivered: bool


class PoolReading(msgspec.Struct, frozen=True, kw_only=True):
    pool: str
    listed: int
    resting: int
    failing: int
    working: int = 0  # whose requests succeed
    trouble: str = ""  # why its proxies cannot be read


class QualityReading(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of faultless items of a spider: today, and on the days before."""

    spider: str
    score: float
    items: int
    usual: float
    usual_items: int


class BudgetReading(msgspec.Struct, frozen=True, kw_only=True):
    budget: str
    meaning: str
    left: float
    limit: float


class ScheduleReading(msgspec.Struct, frozen=True, kw_only=True):
    """`late` seconds have passed since an undecided tick."""

    schedule: str
    late: float = 0.0
    trouble: str = ""  # why its last run could not begin


class LoginReading(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    failures: int
    error: str


class OutputReading(msgspec.Struct, frozen=True, kw_only=True):
    """An output: `lag` records are not written, and none was for `idle` seconds; `dead` rows were refused."""

    output: str
    lag: int
    idle: float
    dead: int
    stopped: bool = False
    paused: bool = False
    why: str = ""


class SpoolReading(msgspec.Struct, frozen=True, kw_only=True):
    """Results that wait on the disks of one machine. `alive`: a living process will store them."""

    host: str
    results: int
    bytes: int
    limit: int
    alive: bool
    full: bool = False


class DiskReading(msgspec.Struct, frozen=True, kw_only=True):
    """A disk of the leading scheduler's machine: the share that is free, and the seconds until it is full."""

    store: str
    free: float
    full_in: float | None
    words: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that rules check; None if unknown."""

    stores: Mapping[str, str] = {}  # the failing ones among state, records and archive, with the error
    samples: tuple[Sample, ...] | None = None  # of the queue, the newest last
    jobs: tuple[JobReading, ...] | None = None
    living: int | None = None  # workers
    missing: tuple[str, ...] = ()  # workers
    machines: tuple[str, ...] = ()  # at fault, each with what is wrong: its clock, or it reaches no site
    traffic: Mapping[str, Traffic] | None = None  # by site in the window of `success`; "" is all of them
    errors: Mapping[str, tuple[Traffic, Traffic]] | None = None  # by site: in the window of `errors`, and before it
    runs: tuple[RunReading, ...] | None = None
    dead: tuple[LettersReading, ...] | None = None
    figures_age: float | None = None  # seconds since the last figure, while pages are in flight
    figures_fresh: bool = False  # figures have come since the queue last made progress
    pools: tuple[PoolReading, ...] | None = None
    quality: tuple[QualityReading, ...] | None = None
    budgets: tuple[BudgetReading, ...] | None = None
    disks: tuple[DiskReading, ...] | None = None
    schedules: tuple[ScheduleReading, ...] | None = None
    layouts: tuple[LayoutReading, ...] | None = None
    receivers: tuple[ReceiverReading, ...] | None = None  # of callbacks
    logins: tuple[LoginReading, ...] | None = None
    outputs: tuple[OutputReading, ...] | None = None
    spools: tuple[SpoolReading, ...] | None = None
    unread: Mapping[str, str] = {}  # parts that could not be read though their store answers, and why
