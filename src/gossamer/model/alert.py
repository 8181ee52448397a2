"""Alerts: what is wrong in a project, since when, and who is notified. Values without I/O; monitor/alerts.py
decides."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

import msgspec

from .incident import Subject

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
    NO_DATA = "no data"  # it has fired, and since then there is nothing to measure: it holds
    RESOLVED = "resolved"  # by evidence
    CLOSED = "closed"  # by a person

    @property
    def holds(self) -> bool:
        """It has fired and is not over."""
        return self in (AlertState.FIRING, AlertState.NO_DATA)

    @property
    def over(self) -> bool:
        return self in (AlertState.RESOLVED, AlertState.CLOSED)


class Finding(msgspec.Struct, frozen=True):
    """What a rule found wrong about one subject: the number it checks, and a sentence.

    `limit`: the number must come back to the other side of it before the alert can be over, whatever the rule compares
    it with by then. `mark` names the one event that it is about, such as a job: an alert that a person closed does not
    fire for the same event again. `cause`: what it is really about, if that is not its subject.
    """

    value: float
    words: str
    limit: float | None = None
    mark: str = ""
    cause: Subject | None = None


class Good(msgspec.Struct, frozen=True):
    """It was measured, and nothing is wrong. `value`: the number that was checked, where a `limit` may need it."""

    value: float | None = None


class NoData(msgspec.Struct, frozen=True):
    """Nothing could be measured: there was nothing. `unknown`: what there is could not be read."""

    unknown: bool = False


GOOD, NO_DATA = Good(), NoData()
Reading = Finding | Good | NoData
Findings = Mapping[str, Reading]  # by subject; alert_table.py says what it means if a subject is not in it


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of an alert for one subject: a site, a job, a pool; "" for the project as a whole.

    `untold`: no message has reported this state yet. `told_at` is when a message last reported that it fires.
    `incident` is the one that it belongs to since it fired; `limit` and `mark` are those of the finding.
    """

    alert: str
    subject: str
    state: AlertState
    since: float  # of this state
    began_at: float  # when its cause was first seen
    words: str = ""
    value: float = 0.0
    severity: Severity = Severity.WARNING
    clear_since: float | None = None  # it fires, but its cause has been gone since then; closed: its cause went away
    no_data_since: float | None = None
    told_at: float | None = None
    untold: bool = False
    limit: float | None = None
    mark: str = ""
    closed_by: str = ""  # who closed it
    incident: str = ""

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
    incident: str = ""  # its id


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
