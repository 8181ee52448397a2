"""What the rules of alerts judge: the situation of a project at one moment. project/alerts/readings.py reads it.

A part of the situation that is None is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .alert import Sample

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


class PoolReading(msgspec.Struct, frozen=True, kw_only=True):
    pool: str
    listed: int
    resting: int
    failing: int
    trouble: str = ""  # why its exits cannot be read


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
    last_job: str = ""
    outcome: str = ""  # of its last run, in words, if that yielded nothing


class LoginReading(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    failures: int
    error: str


class SpoolReading(msgspec.Struct, frozen=True, kw_only=True):
    """Results that wait on the disks of one machine. `in_hand`: a living process will store them."""

    host: str
    results: int
    bytes: int
    limit: int
    in_hand: bool
    full: bool = False


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
    dead: int | None = None  # pages given up in the window of `dead-letters`
    failing: str = ""  # what most of them say
    figures_age: float | None = None  # seconds since the last figure, while pages are in flight
    pools: tuple[PoolReading, ...] | None = None
    quality: tuple[QualityReading, ...] | None = None
    budgets: tuple[BudgetReading, ...] | None = None
    schedules: tuple[ScheduleReading, ...] | None = None
    callbacks: int | None = None  # given up in the window of `callbacks`
    logins: tuple[LoginReading, ...] | None = None
    spools: tuple[SpoolReading, ...] | None = None
    unread: Mapping[str, str] = {}  # parts that could not be read though their store answers, and why
