"""An incident: what people work on. Everything that is wrong with one subject at one time, whichever alerts noticed it.
Values without I/O; monitor/incidents.py decides."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

from .job import slug

INCIDENT, ENDED_INCIDENT, CLOSING = "incident", "incident-ended", "incident-closing"  # kinds on the shelf
ENDED_KEPT = 2_000  # ended incidents; older ones are deleted when another one ends
MOST_ALERTS = 50  # in one incident; further ones are not listed in it
REOPENS_WITHIN = 24 * 3600.0  # seconds after its end: what comes back later is another incident


class SubjectKind(StrEnum):
    SITE = "site"
    SPIDER = "spider"
    JOB = "job"
    SCHEDULE = "schedule"
    POOL = "pool"
    BUDGET = "budget"
    WORKERS = "workers"
    STORE = "store"
    SESSION = "session"
    MACHINE = "machine"
    RECEIVER = "receiver"
    OUTPUT = "output"
    PROJECT = "project"


class Subject(msgspec.Struct, frozen=True, order=True):
    """What an incident is about; `name` "" is all of that kind."""

    kind: SubjectKind
    name: str = ""

    @property
    def in_words(self) -> str:
        """`site shop.example`; of what there is one, the kind says it all."""
        return f"{self.kind.value} {self.name}" if self.name else f"the {self.kind.value}"


class IncidentState(StrEnum):
    OPEN = "open"
    ENDED = "ended"


class IncidentAlert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An alert of an incident: since when it fires, and how it ended."""

    alert: str
    subject: str
    words: str
    severity: str
    since: float
    mark: str = ""  # the event that it is about, such as a job
    no_data_since: float | None = None
    ended_at: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.alert, self.subject


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`since` is when the first cause was seen, `opened_at` when the first alert fired. It ends when none of its alerts
    holds: then `ended_by` is the person who closed it, or "" if it is good again."""

    id: str
    about: Subject
    since: float
    opened_at: float
    alerts: tuple[IncidentAlert, ...]
    ended_at: float | None = None
    ended_by: str = ""
    reason: str = ""  # that the person gave
    reopened: tuple[float, ...] = ()  # when it came back

    @property
    def state(self) -> IncidentState:
        return IncidentState.OPEN if self.ended_at is None else IncidentState.ENDED


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """A person closes an incident. The leading scheduler carries it out, and writes what follows."""

    incident: str
    by: str
    at: float
    reason: str = ""


def incident_id(about: Subject, opened_at: float) -> str:
    """`shop-example-3f9a1c`: readable in a message, and the same whichever process computes it."""
    digest = blake2b(f"{about.kind}\0{about.name}\0{opened_at!r}".encode(), digest_size=3).hexdigest()
    return f"{slug(about.name or about.kind.value)[:30].strip('-')}-{digest}"
