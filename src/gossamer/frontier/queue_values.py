"""What people see of the queue: stories of URLs, dead letters, loads of sites, workers; and what workers and the queue
say about turns. Values without I/O."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

import msgspec

from ..model.job import JobPace
from ..model.task import Lease, Pace, UrlState
from .learned_pace import LearnedPace


class UrlStory(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a URL in one job, and how it got there."""

    job: str
    url: str
    state: UrlState
    reason: str
    message: str
    site: str
    kind: str
    depth: int
    priority: int
    attempts: int
    max_attempts: int
    deliveries: int
    created_at: float
    changed_at: float
    found_on: str | None
    ready_at: float | None = None  # when a waiting task is due
    worker: str | None = None
    lease_until: float | None = None
    site_next_at: float | None = None  # when the site's rate allows the next request
    site_away_since: float | None = None  # since when the site has been unreachable
    site_taken_by: str | None = None  # the job that had the site when a worker was last refused this queue
    lane: str = ""  # only workers that serve this lane may lease it
    ahead_of_it: int | None = None  # queued tasks of the same site and lane that are handed out first
    session: str | None = None  # the visitor as which it is fetched
    incidents: tuple[tuple[float, str], ...] = ()  # expired leases; replayed or resolved dead letters


class UrlFate(msgspec.Struct, frozen=True, kw_only=True):
    """What has happened to a URL in one job so far. `message` is that of its dead letter."""

    url: str
    state: UrlState
    reason: str
    message: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was given up, at the time of the query. `id` is unique within its job only."""

    id: int
    job: str
    url: str
    site: str
    kind: str
    reason: str
    message: str
    attempts: int
    deliveries: int
    died_at: float
    found_on: str | None
    fingerprint: bytes
    depth: int
    priority: int


class LetterPlace(msgspec.Struct, frozen=True, order=True):
    """The place of a dead letter in the list of all; the latest is the greatest."""

    died_at: float
    id: int
    job: str


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects dead letters. None does not restrict; job, site and fingerprint are looked up by key."""

    id: int | None = None
    job: str | None = None
    url: str | None = None
    reason: str | None = None
    site: str | None = None
    fingerprint: bytes | None = None
    message: str | None = None  # a text in their messages
    among: frozenset[int] | None = None  # ids of the job


MOST_COUNTED = 200  # ready tasks of one site and lane; counting stops there


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one job for one site in one lane that can be worked on, and what holds their site back."""

    site: str
    lane: str
    ready: int  # queued, or waiting and due; at most MOST_COUNTED
    leased: int
    rest_until: float = 0.0
    asked: float | None = None  # seconds between two requests, by its crawl-delay
    learned: float | None = None  # and as learned from its refusals
    away: bool = False


class SiteLoad(msgspec.Struct, frozen=True, kw_only=True):
    site: str
    queued: int
    waiting: int
    leased: int
    next_at: float | None
    away_since: float | None = None  # since when the site has been unreachable
    rest_until: float = 0.0  # the part of `next_at` that the site itself asked for
    reason: str = ""  # why tasks of this job that are not due yet wait: the most frequent reason in a sample
    due_at: float | None = None  # when the first of these tasks is due
    taken_by: str | None = None  # another job that has the site, while this one was refused
    asked: float | None = None  # seconds between two requests, by its crawl-delay
    learned: LearnedPace = LearnedPace()


class LaneLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The open tasks of a job in one lane. `ready_since` is since when the longest-waiting task that is next in line at
    its site could have been handed out; None if there is none."""

    lane: str
    queued: int = 0
    waiting: int = 0
    leased: int = 0
    ready_since: float | None = None


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What all workers know of a site. `asked_interval` is its own crawl-delay, in seconds."""

    site: str
    next_at: float
    rest_until: float
    asked_interval: float | None
    in_flight: int
    holder: str = ""  # the worker that turns are owed to, if the site has a rate
    answered_at: float = 0.0  # when a page was settled last; 0: never
    away_since: float | None = None
    away_reason: str = ""
    learned: LearnedPace = LearnedPace()


class LeftTurn(msgspec.Struct, frozen=True):
    """A worker's report: the request of turn `number` of this lease was written, and no other of the lease is about to
    be. `paced_ahead` is how far the worker's pacer is ahead of now."""

    lease: Lease
    number: int
    paced_ahead: timedelta = timedelta(0)


class NextTurn(msgspec.Struct, frozen=True):
    """The answer to a lease that asks for another turn. With a `wait` there is none yet: ask again after it. Without,
    the turn is taken; `pace` is as in a lease."""

    wait: timedelta | None = None
    pace: Pace | None = None


class Fate(Enum):
    """What one machine knows of a worker's process."""

    GONE = "gone"
    ALIVE = "alive"
    UNKNOWN = "unknown"  # it is, or was, on another machine


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """A heartbeat of a worker. `cpu` is the share of one core since the heartbeat before; `memory` is in bytes.

    `pace` and `busy` cover the last minute: pages per second, and the share of its capacity that they took, in cores or
    pages in flight, whichever is more.
    """

    name: str
    host: str
    pid: int
    version: str
    started_at: float
    seen_at: float
    job: str = ""
    state: str = "working"  # or idle, draining, storing, spool full, archive full, clock wrong, set aside
    in_flight: int = 0
    done: int = 0
    cpu: float = 0.0
    memory: int = 0
    pace: float = 0.0
    busy: float = 0.0
    serves: str = ""  # the routes or kinds that it works on, separated by commas; "": all
    frozen: str = ""  # workers of its machine that live and send no heartbeat: their names, separated by commas
    instead_of: str = ""  # the worker whose place it took
    clock_ahead: float = 0.0  # seconds by which its machine's clock is ahead of the state's
    paces: dict[str, JobPace] = {}  # what it did for each of its jobs in the last minute
