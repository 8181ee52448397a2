"""Alerts: what is wrong in a project, since when, and who is notified. Values without I/O; monitor/alerts.py
decides."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

MOST_SUBJECTS = 200  # per alert, that have a standing; further ones wait for their turn
MOST_NAMED = 20  # subjects in one message; the others are counted
CHANGES_KEPT = 10_000  # lines of the history; older ones are deleted when one is added
NOTICES_KEPT = 2_000  # finished messages; older ones are deleted when another one is finished
MOST_OPEN = 500  # messages waiting for one channel; beyond that the oldest are given up
LONGEST_WORDS = 500  # characters about one subject
TEST = "test"  # in place of an alert: a test message that an operator asked for


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    def reaches(self, least: Severity) -> bool:
        """Is it at least as severe as `least`?"""
        order = list(Severity)
        return order.index(self) >= order.index(least)


class AlertTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one alert. Each rule says what `threshold`, `window` and `minimum` mean."""

    severity: Severity = Severity.WARNING
    wait: timedelta = timedelta(minutes=5)  # how long it is pending before it fires; in the settings: `for`
    keep_for: timedelta = timedelta(minutes=5)  # how long it goes on firing after its cause is gone
    repeat: timedelta | None = timedelta(hours=12)  # how often the message is repeated while it fires; None: never
    threshold: float = 0.0
    window: timedelta = timedelta(minutes=15)
    minimum: int = 0


class AlertState(StrEnum):
    INACTIVE = "inactive"  # nothing is wrong; there is no standing
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Finding(msgspec.Struct, frozen=True):
    """What a rule found about one subject: the number it checks, and a sentence."""

    value: float
    words: str


Findings = Mapping[str, Finding]  # by subject


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of an alert for one subject: a site, a job, a pool; "" for the project as a whole.

    `untold`: no message has reported this state yet. `told_at` is when a message last reported that it fires.
    """

    alert: str
    subject: str
    state: AlertState
    since: float  # of this state
    began_at: float  # when its cause was first seen
    words: str = ""
    value: float = 0.0
    severity: Severity = Severity.WARNING
    clear_since: float | None = None  # it fires, but its cause has been gone since then
    told_at: float | None = None
    untold: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.alert, self.subject


class AlertChange(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the history: an alert has fired, or was resolved."""

    at: float
    alert: str
    subject: str
    state: AlertState
    words: str
    severity: Severity
    silenced: bool = False


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """No messages about these alerts are sent until then. `alert` and `subject` may be patterns: `*`, `*.example`."""

    id: str
    alert: str
    subject: str
    until: float
    reason: str
    made_at: float
    made_by: str = ""

    def covers(self, alert: str, subject: str, now: float) -> bool:
        return now < self.until and fnmatchcase(alert, self.alert) and fnmatchcase(subject, self.subject)


class NoticeState(StrEnum):
    DUE = "due"  # is sent as soon as `next_at` has come
    DELIVERED = "delivered"
    FAILED = "failed"  # given up


class NoticeSubject(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    words: str
    value: float
    since: float


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A message about one alert to one channel, and its delivery. Every attempt sends the same `id`."""

    id: str
    channel: str
    alert: str
    state_told: AlertState
    severity: Severity
    subjects: tuple[NoticeSubject, ...]  # the first MOST_NAMED
    count: int  # of all subjects
    made_at: float
    again: bool = False  # a repeated message: the alert still fires
    state: NoticeState = NoticeState.DUE
    next_at: float = 0.0
    tries: int = 0
    ended_at: float | None = None
    error: str = ""  # why the last attempt failed


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Pages of the running jobs at one moment: those that are open, and those settled since the first sample."""

    at: float
    open: int
    settled: int


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """How much a job has done so far, and when that last grew."""

    done: int
    at: float


class AlertMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What rules must remember of the past and is stored nowhere else. The next leader continues with it."""

    samples: tuple[Sample, ...] = ()
    jobs: dict[str, Activity] = {}
