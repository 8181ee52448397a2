"""The frontier's contract, split by caller: `Frontier` for workers and producers, `QueueView` for people.

How it fails: `BackendUnavailable` (nothing happened), `FrontierFull` (nothing was added), `LeaseLost` (nothing
changed). How it recovers: a lease that is not renewed expires on the backend's clock, and its task comes back.
Every verb is atomic; backends may group several calls into one commit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol

import msgspec

from ..model.job import Job, JobCounts
from ..model.job import JobTerms as JobTerms  # a part of this contract
from ..model.task import Candidate, Lease, UrlState
from .politeness import TermsFor

_REDIRECTED = "redirected to "  # stored in the reason of a task: older states have it too


def redirect_reason(target: str) -> str:
    """The stored reason of a task that was answered with a redirect."""
    return f"{_REDIRECTED}{target}"


def is_redirect(reason: str) -> bool:
    """Was the task with this reason answered with a redirect?"""
    return reason.startswith(_REDIRECTED)


class LeaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """`leases` may be empty: then nothing can be had before `wait` has passed (None: until someone settles or adds).

    `drained` is True when the job has nothing open any more, in nobody's hands.
    """

    leases: tuple[Lease, ...] = ()
    wait: timedelta | None = None
    drained: bool = False


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the offered candidates entered the queue, were known already, were dropped with a reason."""

    queued: int = 0
    duplicates: int = 0
    dropped: int = 0


class Frontier(Protocol):
    """The worker's side. A `worker` is a name unique per process: `host/pid/start`."""

    async def add(self, job: str, candidates: Sequence[Candidate]) -> Added:
        """Offer seeds. All or nothing. Raises FrontierFull when the queue has reached its bound.

        What is offered to a job that was replaced or cancelled is dropped, with that reason.
        """
        ...

    async def lease(self, job: str, worker: str, n: int, lanes: frozenset[str] | None = None) -> LeaseBatch:
        """Hand out up to `n` tasks, best priority first, sites of equal priority in turn.

        A task's lane is its `fetcher`, "" without one. Only tasks of the given lanes are handed out (None: of every
        lane); those of other lanes are not in their way, and cost the site neither token nor slot. All lanes of a
        site share its politeness. Where that lets only some workers in, lanes that were refused take turns (see
        politeness.TURN), and so do jobs (turns.py). What a worker cannot have for its lanes is open work all the same:
        the job is drained only when there is none in any lane.
        The site's rate token and concurrency slot are taken in the same step. A site with a rate limit is
        handed to one worker at a time: its requests are spaced by that worker's pacer, exactly. It may get a task
        HEAD_START before its turn; `Lease.pace` says how long the request must wait.
        The delivery count grows here, so that a page that kills its worker ends with the dead.
        Of a paused job nothing is handed out, and `wait` says when to ask again. It is drained as any other, when it
        has nothing open.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Prolong leases from now; return those that are lost. Also proves that the worker lives."""
        ...

    async def complete(
        self,
        lease: Lease,
        state: UrlState,
        reason: str = "",
        discovered: Sequence[Candidate] = (),
        *,
        redirect: str | None = None,
        duplicates: int = 0,
        paced_ahead: timedelta = timedelta(0),
    ) -> Added:
        """Settle as DONE, UNCHANGED or DROPPED and add the discovered links, in one step. Raises LeaseLost.

        `redirect` is where the answer pointed instead of giving a page: the task is DONE with that as its reason, and
        does not count towards the page limit of the job. `duplicates` counts further links that are already known.
        `paced_ahead` is how far the worker's pacer is ahead of now for this site; the next grant respects it.
        """
        ...

    async def retry(
        self, lease: Lease, delay: timedelta, reason: str, *, paced_ahead: timedelta = timedelta(0)
    ) -> None:
        """The try failed and is used up; the task waits for `delay`. Raises LeaseLost."""
        ...

    async def bury(self, lease: Lease, reason: str, message: str, *, paced_ahead: timedelta = timedelta(0)) -> None:
        """Give up: the task goes to the dead letters. Raises LeaseLost."""
        ...

    async def release(
        self,
        lease: Lease,
        delay: timedelta,
        reason: str,
        *,
        paced_ahead: timedelta = timedelta(0),
        lane: str | None = None,
    ) -> None:
        """Give the task back without using up a try or a delivery. Raises LeaseLost.

        With a `lane` it moves there: its `fetcher` becomes that, and None for the lane "".
        """
        ...

    async def slow_down(self, site: str, *, interval: timedelta | None, rest: timedelta) -> None:
        """The site asked for space: no request for `rest`, and at least `interval` (a crawl-delay) between two.

        `interval` None keeps what is known. Holds for all workers; a later call may raise the interval or
        lower it to what the settings say, never below.
        """
        ...


FrontierFor = Callable[[TermsFor], AbstractContextManager[Frontier]]
"""One more frontier on a state that is open, under other terms for sites. It uses the connection of the first."""


class JobBook(Protocol):
    """Jobs: opened once, found again after a crash, closed once."""

    async def open_job(self, name: str, terms: JobTerms, *, fresh: bool) -> tuple[Job, bool]:
        """Return the unfinished job of that name and True, or a new one and False.

        One that is found goes on under `terms.resumed`. `fresh` closes an unfinished one first (ending "replaced"; its
        open URLs are dropped, and that is waited for).
        """
        ...

    async def seal_seeds(self, job: str) -> None:
        """All seeds are in: from now on an empty queue means that the job is over."""
        ...

    async def is_sealed(self, job: str) -> bool: ...

    async def close_job(self, job: str, ending: str) -> bool:
        """End the job if it is still running and nothing of it is open; True for exactly one caller.

        With the ending "limit" tasks are left in the queue.
        """
        ...

    async def job(self, job: str) -> Job | None: ...

    async def jobs(self) -> list[Job]: ...

    async def running_jobs(self) -> list[Job]:
        """Every unfinished job, oldest first. Asked every second: the cost does not grow with those that ended."""
        ...

    async def counts(self, job: str) -> JobCounts: ...

    async def terms(self, job: str) -> JobTerms:
        """What was agreed on when it was opened. Raises Permanent for an unknown job."""
        ...


class SeedFindings(msgspec.Struct, frozen=True):
    """What workers have read in the source of a job: the sites that its links may lead to, and the first trouble."""

    sites: frozenset[str] = frozenset()
    trouble: str = ""


class SeedBook(Protocol):
    """The lease to read the source of a job that a schedule began. One worker holds it at a time; when that one dies,
    the next begins to read from the start. If two of them read at once, work is done twice and nothing is lost.

    A lease is known by its name alone: "@" and a site, in place of a job, is the lease to read a source at that site.
    """

    async def claim(self, job: str, worker: str, duration: timedelta) -> bool:
        """Take or prolong the lease, by the backend's clock. False while another worker holds it."""
        ...

    async def release(self, job: str, worker: str) -> None:
        """Give the lease back. Changes nothing when another worker holds it."""
        ...

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        """Add these sites to the findings. The first trouble is kept."""
        ...

    async def findings(self, job: str) -> SeedFindings:
        """Everything noted so far; empty for an unknown job."""
        ...


class JobHistory(Protocol):
    """Jobs of a name, and which of them are remembered."""

    async def newest_jobs(self, name: str, limit: int, *, skip: int = 0) -> list[Job]:
        """Jobs of that name, newest first, whatever their state, without the newest `skip`. The cost does not grow with
        jobs of other names."""
        ...

    async def forget_jobs(self, jobs: Sequence[str]) -> int:
        """Forget jobs that have ended, with all their pages and dead letters; return how many were.

        They are unknown at once; their pages go in portions, while others work. A job stays that runs, that was given
        up and is not cleared yet, or that is the newest of its name; an unknown one is no error.
        """
        ...

    async def clear_all(self) -> None:
        """Return when nothing is left of jobs that were forgotten, nor open of those that were given up."""
        ...


class JobControl(Protocol):
    """What people do with a job. Holds for all workers at once."""

    async def pause_job(self, job: str, paused: bool) -> bool:
        """Hand out nothing more of it, or go on. What is in hand is finished, and links and seeds enter as before.

        False when it is not running, or there is none of that id. A job that ends is not paused any more.
        """
        ...

    async def cancel_job(self, job: str) -> bool:
        """End it: state CANCELLED, ending "cancelled"; its open URLs are dropped, and what workers have in hand of it
        settles nothing any more. True for exactly one caller; False when it is not running, or there is none."""
        ...


class WorkerCard(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's sign of life. `cpu` is the share of one core since the last one; `memory` is in bytes."""

    name: str
    host: str
    pid: int
    version: str
    started_at: float
    seen_at: float
    job: str = ""
    state: str = "working"  # or idle, draining
    in_flight: int = 0
    done: int = 0
    cpu: float = 0.0
    memory: int = 0


class WorkerBook(Protocol):
    """Who works on the project, wherever. A worker that does not sign off fades: it is listed until `forget`."""

    async def beat(self, card: WorkerCard) -> None:
        """Enter or renew a worker's card."""
        ...

    async def sign_off(self, name: str) -> None: ...

    async def workers(self) -> list[WorkerCard]:
        """Every card, by name."""
        ...

    async def forget(self, before: float) -> int:
        """Remove cards whose last sign of life is older than that; return how many."""
        ...


class UrlStory(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL stands in one job, and how it came there."""

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
    site_taken_by: str | None = None  # the job because of which it was refused the site when it was asked for last
    lane: str = ""  # which workers may have it: those that serve this lane
    ahead_of_it: int | None = None  # queued tasks of the same site and lane that go first
    incidents: tuple[tuple[float, str], ...] = ()  # lapsed leases, letters that were replayed or resolved


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was given up, as it was when somebody looked. `id` is unique in its job, not among all jobs."""

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
    """Which dead letters are meant. Empty fields do not restrict; job, site and fingerprint need no search."""

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


class DeadLetters(Protocol):
    """Pages that were given up: which they are, and what becomes of them."""

    async def dead(self, which: DeadFilter, limit: int = 100) -> list[DeadLetter]:
        """The latest of them, the latest first."""
        ...

    def letters(self, which: DeadFilter) -> AsyncIterator[DeadLetter]:
        """All of them, streamed in flat memory, job by job. One that stays as it is comes exactly once.

        They may be resolved, replayed or purged meanwhile. Those that die meanwhile may be left out.
        """
        ...

    async def dead_reasons(self, which: DeadFilter) -> dict[str, int]:
        """How many dead letters there are for each reason, the most frequent first."""
        ...

    async def replay(self, which: DeadFilter) -> int:
        """Put dead tasks back into their queues with fresh attempts; their jobs run again. Returns how many."""
        ...

    async def resolve(
        self, letter: DeadLetter, discovered: Sequence[Candidate] = (), *, duplicates: int = 0, reason: str = ""
    ) -> Added | None:
        """Settle a dead letter whose page was understood after all, without a request: it is DONE with `reason`.

        What was found on the page enters the queue in the same step, under the rules of `Frontier.complete`: what
        finds no room is dropped. A link from the page to itself is a duplicate. No attempt is counted.
        A job that had ended runs again when it has got work by this, and its limit leaves room for it.
        None when the letter is not as it was: resolved, replayed or purged, or it died again. Then none is settled.
        Raises Permanent for an unknown job.
        """
        ...

    async def purge(self, which: DeadFilter) -> int:
        """Forget dead tasks for good (they become dropped). Returns how many."""
        ...


class QueueView(DeadLetters, Protocol):
    """What people ask of the queue."""

    async def story(self, site: str, fingerprint: bytes) -> list[UrlStory]:
        """The URL's standing in every job that knows it, newest job first."""
        ...

    async def sites(self, job: str, limit: int = 20) -> list[SiteLoad]:
        """Sites with open work, the most loaded first."""
        ...

    def urls(self, job: str, state: UrlState | None = None) -> AsyncIterator[tuple[str, UrlState, str]]:
        """Every URL of a job with state and reason, streamed."""
        ...
