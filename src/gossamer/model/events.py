"""What the stages say while they work. Stages emit; monitor listens; no stage waits for a listener."""

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
    """A response arrived. `seconds` is from dialling to the last byte."""

    status: int
    bytes: int
    seconds: float
    route: str = "direct"
    cost: float = 0.0  # tokens


class Blocked(Event, frozen=True, kw_only=True, gc=False):
    """What came is no page: a challenge, a wall, an empty shell. `kind` as in routing/blocks.py."""

    kind: str
    route: str
    message: str = ""


class LoggedIn(Event, frozen=True, kw_only=True, gc=False):
    """This worker has logged a session in; `logins` counts those of the session."""

    session: str
    logins: int


class LoginFailed(Event, frozen=True, kw_only=True, gc=False):
    """A login failed, or let no page in; the next one is made after `delay` seconds. `failures` counts those in a
    row."""

    session: str
    failures: int
    delay: float
    message: str


class BudgetReached(Event, frozen=True, kw_only=True, gc=False):
    """A bound on tokens does not let this page leave. Told once for each purse."""

    purse: str
    message: str = ""


class Parsed(Event, frozen=True, kw_only=True, gc=False):
    items: int
    links: int
    seconds: float


class Stored(Event, frozen=True, kw_only=True, gc=False):
    """Records of one page are safe. `changed` counts those that were new or different."""

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


class ItemDropped(Event, frozen=True, kw_only=True, gc=False):
    """A pipeline step refused an item."""

    step: str
    reason: str


class Flawed(Event, frozen=True, kw_only=True, gc=False):
    """Quality rules found faults in items of this page. `message` tells the first of them."""

    faults: int
    message: str


class QualityChanged(Event, frozen=True, kw_only=True, gc=False):
    """The share of faultless items fell below the minimum that the spider demands, and nothing is stored any more; or
    it is back (`closed` is False)."""

    spider: str
    score: float
    minimum: float
    closed: bool
    message: str


class Gone(Event, frozen=True, kw_only=True, gc=False):
    """A crawl has ended without finding `records` records that earlier crawls had found."""

    records: int


class Released(Event, frozen=True, kw_only=True, gc=False):
    """A task was given back without using up a try."""

    reason: str


class LeaseLapsed(Event, frozen=True, kw_only=True, gc=False):
    """Somebody else owns the task by now; what this worker did for it does not count."""

    message: str = ""


class SiteAway(Event, frozen=True, kw_only=True, gc=False):
    """The site still cannot be reached; all its pages wait for `delay` seconds."""

    delay: float
    message: str


class Trouble(Event, frozen=True, kw_only=True, gc=False):
    """Something of our own went wrong (a backend that does not answer, say); work waits and goes on."""

    stage: str
    message: str


class Spooled(Event, frozen=True, kw_only=True, gc=False):
    """Results wait on this machine's disk because the store is away; told when that begins, and when it ends.

    `bytes` is how much waits; 0 means that all of it has been stored. `left`: the process ends and leaves them there.
    """

    bytes: int
    message: str
    left: bool = False


class JobBegun(Event, frozen=True, kw_only=True, gc=False):
    """This process works on the job from now on."""

    name: str


class JobEnded(Event, frozen=True, kw_only=True, gc=False):
    """The job is over; told by the one process that ended it."""

    ending: str
    outcome: str = ""  # in words: `empty: no record came of 12 pages`


class JobPaused(Event, frozen=True, kw_only=True, gc=False):
    """Somebody has paused the job, or (`paused` is False) lets it go on; told by every process that works on it."""

    paused: bool


class JobLeft(Event, frozen=True, kw_only=True, gc=False):
    """Somebody has ended the job on which this process worked: `ending` is cancelled or replaced."""

    ending: str


class ScheduleFired(Event, frozen=True, kw_only=True, gc=False):
    """A run of a schedule has begun: `job`. It is for the tick `due`; `missed` ticks before that were missed."""

    schedule: str
    due: float
    missed: int = 0


class ScheduleQueued(Event, frozen=True, kw_only=True, gc=False):
    """A tick is due, and its run waits for the one before to end."""

    schedule: str
    due: float


class ScheduleSkipped(Event, frozen=True, kw_only=True, gc=False):
    """A tick does not run. `reason` is running (the run before is still going), waiting (one waits already for that),
    paused, or budget (it is too early for a single fetch)."""

    schedule: str
    due: float
    reason: str


class ScheduleFailed(Event, frozen=True, kw_only=True, gc=False):
    """A run could not be begun. It is tried again after `delay` seconds; `attempt` counts the tries in a row."""

    schedule: str
    due: float
    attempt: int
    delay: float
    message: str


class Leading(Event, frozen=True, kw_only=True, gc=False):
    """This scheduler leads from now on, or (`leads` is False) does not lead any more. `term` grows with every change of
    leader."""

    leader: str
    leads: bool
    term: int


class AlertChanged(Event, frozen=True, kw_only=True, gc=False):
    """An alert fires, or was resolved (`state`), about a subject such as a site; "" is the project as a whole."""

    alert: str
    subject: str
    state: str
    severity: str
    message: str


class EventSink(Protocol):
    """Receives events. Must not block and must not raise. One that has a tuple `hears` is told of these kinds only."""

    def emit(self, event: Event) -> None: ...


class Silence:
    """A sink that drops every event."""

    def emit(self, event: Event) -> None:
        return None


class EventHub:
    """An EventSink that passes every event on to its listeners, in order. Listeners are cheap and do not raise."""

    def __init__(self, *listeners: EventSink) -> None:
        # A hub among the listeners passes on to its own: nobody need call it for that.
        self._listeners: tuple[EventSink, ...] = tuple(
            own for one in listeners for own in (one._listeners if type(one) is EventHub else (one,))
        )
        self._told: dict[type[Event], tuple[Callable[[Event], None], ...]] = {}  # by kind of event: who hears of it

    def emit(self, event: Event) -> None:
        kind = type(event)
        told = self._told.get(kind)
        if told is None:
            ears = ((one.emit, getattr(one, "hears", (Event,))) for one in self._listeners)
            told = self._told[kind] = tuple(tell for tell, hears in ears if issubclass(kind, hears))
        for tell in told:
            tell(event)
