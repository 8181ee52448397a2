"""What people see of the queue: the story of a URL, dead letters, the load of sites. Values without I/O."""

from __future__ import annotations

import msgspec

from ..model.task import UrlState


class UrlStory(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a URL in one job, and how it came to it."""

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
    site_away_since: float | None = None  # when it could not be reached, and was not since
    site_taken_by: str | None = None  # the job that had the site when a worker last asked for this queue in vain
    lane: str = ""  # workers that serve this lane may lease it
    ahead_of_it: int | None = None  # queued tasks of the same site and lane that are handed out first
    session: str | None = None  # as which visitor it is fetched
    incidents: tuple[tuple[float, str], ...] = ()  # expired leases; replayed or resolved dead letters


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was given up, as it was at the moment of the query. `id` is unique in its job, not among all jobs."""

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


class DeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant. None does not restrict; job, site and fingerprint are looked up by key."""

    id: int | None = None
    job: str | None = None
    url: str | None = None
    reason: str | None = None
    site: str | None = None
    fingerprint: bytes | None = None


class SiteLoad(msgspec.Struct, frozen=True, kw_only=True):
    site: str
    queued: int
    waiting: int
    leased: int
    next_at: float | None
    away_since: float | None = None  # when the site could not be reached, and was not since
