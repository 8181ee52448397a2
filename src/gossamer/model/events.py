"""What stages report while they work. Stages emit; monitor listens; no stage waits for a listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """Base of all events. `at` is wall time."""

    at: float
    job: str = ""
    url: str = ""
    site: str = ""


class Fetched(Event, frozen=True, kw_only=True, gc=False):
    """A response arrived. `seconds` is the time from connecting to the last byte."""

    status: int
    bytes: int
    seconds: float
    route: str = "direct"
    cost: float = 0.0  # credits


class Blocked(Event, frozen=True, kw_only=True, gc=False):
    """The response is not the page: a challenge, a wall, an empty shell. `kind` as in routing/blocks.py."""

    kind: str
    route: str
    message: str = ""


class LoggedIn(Event, frozen=True, kw_only=True, gc=False):
    """This worker logged a session in; `logins` counts the logins of the session."""

    session: str
    logins: int


class LoginFailed(Event, frozen=True, kw_only=True, gc=False):
    """A login failed, or its page was still logged out; the next one follows after `delay` seconds. `failures` counts
    them in a row."""

    session: str
    failures: int
    delay: float
    message: str


class BudgetReached(Event, frozen=True, kw_only=True, gc=False):
    """A budget does not let this page leave. Emitted once for each budget."""

    budget: str
    message: str = ""


class Parsed(Event, frozen=True, kw_only=True, gc=False):
    items: int
    links: int
    seconds: float


class Stored(Event, frozen=True, kw_only=True, gc=False):
    """The records of one page are stored. `changed` counts those that are new or different."""

    items: int
    changed: int
    seconds: float


class Completed(Event, frozen=True, kw_only=True, gc=False):
    """The page's journey ended well. `outcome` is done, unchanged, redirected or dropped."""

    outcome: str
    added: int = 0
    seconds: float = 0.0


class Retried(Event, frozen=True, kw_only=True, gc=False):
    reason: str
    attempt: int
    delay: float
    message: str = ""


class Buried(Event, frozen=True, kw_only=True, gc=False):
    reason: str
    attempt: int
    message: str = ""
    detail: str = ""  # the traceback, if code of the user failed


class ItemDropped(Event, frozen=True, kw_only=True, gc=False):
    """A pipeline step refused an item."""

    step: str
    reason: str


class Flawed(Event, frozen=True, kw_only=True, gc=False):
    """Quality rules found faults in items of this page. `message` describes the first."""

    faults: int
    message: str


class QualityChanged(Event, frozen=True, kw_only=True, gc=False):
    """The share of faultless items fell below the spider's minimum, and nothing is stored any more; or it recovered
    (`closed` is False)."""

    spider: str
    score: float
    minimum: float
    closed: bool
    message: str


class Gone(Event, frozen=True, kw_only=True, gc=False):
    """A crawl has ended and has marked `records` records as gone; `message` says so, and why others that it did not see
    are not gone. Only the worker that ended it reports this; of a crawl that ends again, only what is gone since."""

    records: int
    message: str = ""


class Released(Event, frozen=True, kw_only=True, gc=False):
    """A task was given back without using up an attempt."""

    reason: str


class LeaseLapsed(Event, frozen=True, kw_only=True, gc=False):
    """Another worker has the task by now; this worker's work on it does not count."""

    message: str = ""


class SiteAway(Event, frozen=True, kw_only=True, gc=False):
    """The site still cannot be reached; all its pages wait for `delay` seconds."""

    delay: float
    message: str


class Trouble(Event, frozen=True, kw_only=True, gc=False):
    """One of our own parts failed (a backend does not answer, say); work waits and goes on."""

    stage: str
    message: str


class Spooled(Event, frozen=True, kw_only=True, gc=False):
    """Results are spooled on this machine's disk because the store is unavailable; emitted when that begins and ends.

    `bytes` is how much waits; 0 means that all of it has been stored. `left`: the process ends and leaves it there.
    """

    bytes: int
    message: str
    left: bool = False


class JobBegun(Event, frozen=True, kw_only=True, gc=False):
    """This process works on the job from now on. `since` is when the job was begun; `code` is the version of its
    spider, and `commit` the one that is checked out where that lies."""

    name: str
    since: float = 0.0
    code: str = ""
    commit: str = ""


class JobEnded(Event, frozen=True, kw_only=True, gc=False):
    """The job is over; emitted by the one process that ended it."""

    ending: str
    outcome: str = ""  # in words: `empty: no record came from 12 pages`
    records: str = ""  # what it did to them, in words: `2 new, 1 gone`


class JobPaused(Event, frozen=True, kw_only=True, gc=False):
    """The job was paused, or (`paused` is False) resumed; emitted by every process that works on it."""

    paused: bool


class JobWaits(Event, frozen=True, kw_only=True, gc=False):
    """This process works on the job, and has had no page of it for a while. Not a fault: `message` says why."""

    message: str


class JobLeft(Event, frozen=True, kw_only=True, gc=False):
    """The job on which this process worked was ended by a person: `ending` is cancelled or replaced."""

    ending: str


class ScheduleFired(Event, frozen=True, kw_only=True, gc=False):
    """A run of a schedule has begun: `job`. It is for the tick `due`; `missed` ticks before it were missed."""

    schedule: str
    due: float
    missed: int = 0


class ScheduleQueued(Event, frozen=True, kw_only=True, gc=False):
    """A tick is due, and its run waits for the one before to end."""

    schedule: str
    due: float


class ScheduleSkipped(Event, frozen=True, kw_only=True, gc=False):
    """A tick does not run. `reason` is running (the previous run is still going), waiting (one waits for that already),
    paused, or budget (it allows no fetch yet)."""

    schedule: str
    due: float
    reason: str


class ScheduleFailed(Event, frozen=True, kw_only=True, gc=False):
    """A run could not be started. It is retried after `delay` seconds; `attempt` counts the failures in a row."""

    schedule: str
    due: float
    attempt: int
    delay: float
    message: str


class Leading(Event, frozen=True, kw_only=True, gc=False):
    """This scheduler leads from now on, or (`leads` is False) no longer leads. `term` grows with every change of
    leader."""

    leader: str
    leads: bool
    term: int


class AlertChanged(Event, frozen=True, kw_only=True, gc=False):
    """An alert fires, was resolved or was closed (`state`), for a subject such as a site; "" is the project."""

    alert: str
    subject: str
    state: str
    severity: str
    message: str


class EventSink(Protocol):
    """Receives events. Must not block or raise. A sink with a tuple `hears` receives only these kinds."""

    def emit(self, event: Event) -> None: ...


class NullSink:
    """A sink that drops every event."""

    def emit(self, event: Event) -> None:
        return None


class EventHub:
    """Passes every event on to its listeners, in order. Listeners must be cheap and must not raise."""

    def __init__(self, *listeners: EventSink) -> None:
        # Listeners of a nested hub are called directly.
        self._listeners: tuple[EventSink, ...] = tuple(
            own for one in listeners for own in (one._listeners if type(one) is EventHub else (one,))
        )
        self._told: dict[type[Event], tuple[Callable[[Event], None], ...]] = {}  # by kind of event: its listeners

    def emit(self, event: Event) -> None:
        kind = type(event)
        told = self._told.get(kind)
        if told is None:
            ears = ((one.emit, getattr(one, "hears", (Event,))) for one in self._listeners)
            told = self._told[kind] = tuple(tell for tell, hears in ears if issubclass(kind, hears))
        for tell in told:
            tell(event)
