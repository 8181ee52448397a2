"""The frontier's contract, split by caller: `Frontier` for workers and producers, `QueueView` for people.

How it fails: `BackendUnavailable` (nothing happened), `FrontierFull` (nothing was added), `LeaseLost` (nothing
changed). How it recovers: a lease that is not renewed expires on the backend's clock, and its task comes back.
Every verb is atomic; backends may group several calls into one commit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import MappingProxyType
from typing import Protocol

import msgspec

from ..model.job import Job, JobCounts
from ..model.job import JobTerms as JobTerms  # part of this contract
from ..model.outcome import JobOutcome
from ..model.task import Candidate, Lease, UrlState
from .away import AwayTerms, AwayVerdict, SiteFailure
from .politeness import TermsFor
from .queue_values import DeadFilter as DeadFilter  # these are part of this contract
from .queue_values import DeadLetter as DeadLetter
from .queue_values import Fate as Fate
from .queue_values import LaneLoad as LaneLoad
from .queue_values import LeftTurn as LeftTurn
from .queue_values import LetterPlace as LetterPlace
from .queue_values import NextTurn as NextTurn
from .queue_values import QueueLoad as QueueLoad
from .queue_values import SiteFacts as SiteFacts
from .queue_values import SiteLoad as SiteLoad
from .queue_values import UrlFate as UrlFate
from .queue_values import UrlStory as UrlStory
from .queue_values import WorkerCard as WorkerCard

RENEWAL = timedelta(seconds=4)  # workers renew at least this often, and so learn which leases are lost
SENT = "sent, its answer unknown"  # the stored reason of such a task while it is open
NO_STATS: Mapping[str, int] = MappingProxyType({})
_REDIRECTED = "redirected to "  # prefix of a task's reason; states of older versions have it too


def redirect_reason(target: str) -> str:
    """The stored reason of a task that was answered with a redirect."""
    return f"{_REDIRECTED}{target}"


def is_redirect(reason: str) -> bool:
    """Was the task with this reason answered with a redirect?"""
    return reason.startswith(_REDIRECTED)


class LeaseBatch(msgspec.Struct, frozen=True, kw_only=True):
    """`leases` may be empty: then no task is available before `wait` has passed (None: until one is settled or added).

    `drained` is True when the job has no open task any more, neither queued nor leased. When `epoch` differs from that
    of the batch before, the state may have lost its last writes, and caches of its content are not reliable.
    """

    leases: tuple[Lease, ...] = ()
    wait: timedelta | None = None
    drained: bool = False
    epoch: str = ""


class Added(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many of the offered candidates entered the queue, were known already, or were dropped with a reason."""

    queued: int = 0
    duplicates: int = 0
    dropped: int = 0


class SiteBook(Protocol):
    """What workers report about a site to each other."""

    async def slow_down(self, site: str, *, interval: timedelta | None, rest: timedelta, worker: str = "") -> bool:
        """The site asked for fewer requests: none for `rest`, then at least `interval` (a crawl-delay) between two.

        None keeps the known interval. This holds for all workers. A later call may raise the interval, or lower it down
        to the one in the settings. With an interval turns are owed to one worker at a time from now on. Several
        workers may hold leases from before: the first `worker` with a lease that calls this with its name holds the
        site. The others get False, and give their leases back without a request.
        """
        ...

    async def clear(self, site: str, rest: timedelta) -> int:
        """Hand out no page of the site for `rest`, for the sake of a request that no lease covers, and return how many
        turns of it are still owed: those requests may be about to leave. With none, only this request can."""
        ...

    async def too_often(self, site: str, *, rest: timedelta, worker: str = "") -> timedelta | None:
        """The site answered that requests come too often: none for `rest`. When it says so repeatedly, its pace is
        lowered for all workers and jobs, and rises again with time (learned_pace.py). Returns the learned interval,
        None if there is none. With one, turns are owed to one worker at a time, as in `slow_down`.
        """
        ...

    async def site_away(self, site: str, failure: SiteFailure, terms: AwayTerms) -> AwayVerdict:
        """The site could not be reached: it rests. Returns what to do with the page that failed (away.py).

        Until a task of the site is done, or `site_back` is called, one task at a time is leased, with `Lease.away`.
        Tasks of a site that is given up are leased without regard to its pace, so that they can be buried.
        """
        ...

    async def site_back(self, site: str) -> None:
        """The site answered, whatever it said."""
        ...


class Waking(Protocol):
    """Wakes what waits in running jobs, when the reason for which it waits may be gone."""

    async def wake_site(self, site: str, interval: timedelta | None) -> None:
        """The settings of the site have changed, to this `interval` between two requests: look again at the queues that
        sleep because of its pace. Its next request leaves that long after now at the latest, or as long as the site
        itself and its learned pace require."""
        ...

    async def forget_pace(self, site: str) -> bool:
        """Forget the pace that the site's refusals have taught, and wake the site. False if none was learned."""
        ...

    async def wake(self, reasons: Collection[str]) -> int:
        """Make the pages due that wait for one of these reasons. Returns how many there were."""
        ...


class AddressBook(Protocol):
    """The pace of network addresses, each of which may serve many sites."""

    async def take_turn(self, address: str, interval: timedelta, longest: timedelta) -> timedelta:
        """Reserve the next request to the address, `interval` after the previous one, and return how long it must wait.
        Reserves nothing if that is longer than `longest`."""
        ...


class Frontier(SiteBook, Protocol):
    """The worker's side. A `worker` is a name unique per process: `host/pid/start`."""

    async def add(self, job: str, candidates: Sequence[Candidate]) -> Added:
        """Offer seeds. All or nothing. Raises FrontierFull when the queue has reached its bound.

        Candidates for a job that was replaced or cancelled are dropped, with that reason.
        """
        ...

    async def lease(self, job: str, worker: str, n: int, lanes: frozenset[str] | None = None) -> LeaseBatch:
        """Hand out up to `n` tasks, best priority first, sites of equal priority in turn.

        A task's lane is its `fetcher`, or "" without one. Only tasks of the given lanes are handed out (None: of every
        lane); tasks of other lanes do not delay them, and take neither token nor slot of the site. All lanes of a site
        share its politeness. Where the site admits only some workers, lanes that were refused take turns (see
        politeness.TURN), and so do jobs (turns.py). Tasks in other lanes are still open work: the job is drained only
        when no lane has any. The site's rate token and concurrency slot are taken in the same step. With it the lease
        owes a turn of the site, until `left` or its end. While turns of a site with a rate are owed to one worker, no
        other worker is granted one: that worker's pacer spaces its requests exactly. The worker may get a task
        HEAD_START before its turn; `Lease.pace` says how long the request must wait. The delivery count grows here, so
        that a page that kills its worker becomes a dead letter. Tasks of a paused job are not handed out, and `wait`
        says when to ask again. A paused job is drained, like any other, when it has no open task.
        """
        ...

    async def left(self, turns: Sequence[LeftTurn]) -> None:
        """End these turns: other workers may get the site, while its pages go on. The next grant respects how far the
        worker is ahead. A turn that is not owed any more, and one of a lost lease, changes nothing."""
        ...

    async def next_turn(self, lease: Lease, number: int) -> NextTurn:
        """Take turn `number` of a lease whose earlier turn has ended, for one more request of the same page, under the
        conditions of a grant. A page that must wait goes before pages that are not handed out yet, if it asks again
        in time. Raises LeaseLost."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        """Extend leases from now and return those that are lost. Also proves that the worker is alive."""
        ...

    async def note_sent(self, lease: Lease, *, sent: bool = True) -> None:
        """Note durably that the request of this lease, which must not be repeated blindly, is about to be written, or
        was not written after all. `Lease.sent` passes the note on when this lease is lost or released; `retry` and
        `bury` clear it. Raises LeaseLost."""
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
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        """Settle as DONE, UNCHANGED or DROPPED and add the discovered links, in one step. Raises LeaseLost.

        `redirect` is the target of a redirect: the task is DONE with that as its reason, and does not count towards the
        page limit of the job. `duplicates` counts further links that are already known. `paced_ahead` is how far the
        worker's pacer is ahead of now for this site; the next grant respects it. `stats` are the spider's own counts on
        the page, which are added to the job's in the same step.
        """
        ...

    async def retry(
        self, lease: Lease, delay: timedelta, reason: str, *, paced_ahead: timedelta = timedelta(0)
    ) -> None:
        """The attempt failed and counts; the task waits for `delay`. Raises LeaseLost."""
        ...

    async def bury(
        self,
        lease: Lease,
        reason: str,
        message: str,
        discovered: Sequence[Candidate] = (),
        *,
        duplicates: int = 0,
        paced_ahead: timedelta = timedelta(0),
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        """Make the task a dead letter, and add the requests of the spider's errback in the same step.

        Raises LeaseLost.
        """
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
        """Give the task back without counting an attempt or a delivery. Raises LeaseLost.

        With a `lane` it moves there: its `fetcher` becomes that lane, or None for the lane "".
        """
        ...


FrontierFor = Callable[[TermsFor], AbstractContextManager[Frontier]]
"""Opens another frontier on an open state, with other terms for sites. It shares the connection of the first."""


class JobBook(Protocol):
    """Jobs: opened once, found again after a crash, closed once."""

    async def open_job(
        self, name: str, terms: JobTerms, *, fresh: bool, seeds: Sequence[Candidate] = ()
    ) -> tuple[Job, bool]:
        """Return the unfinished job of that name and True, or a new one and False.

        An unfinished job goes on under `terms.resumed`. `fresh` closes it first, with the ending "replaced", and
        returns when its open URLs are dropped. `seeds` are all that a new job will have: they are in its queue, and it
        is sealed, when this returns. If this fails, the job may be there without its seal.
        """
        ...

    async def seal_seeds(self, job: str, start: str = "") -> None:
        """All seeds were added: from now on the job is over when its queue is empty. `start` is a digest of the
        spider's own seeds; the first one is kept."""
        ...

    async def is_sealed(self, job: str) -> bool: ...

    async def close_job(self, job: str, ending: str, outcome: JobOutcome | None = None) -> bool:
        """End the job if it is still running and has no open task; True for exactly one caller.

        With the ending "limit", open tasks stay in the queue. The outcome is kept until the job runs again; without
        one, and for a job that is cancelled or replaced, the ending implies it.
        """
        ...

    async def settle_again(self, job: str, outcome: JobOutcome) -> bool:
        """Replace the outcome of a job that has ended; its ending and the time of its end stay. False if it runs, is
        unknown, or was cancelled."""
        ...

    async def job(self, job: str) -> Job | None: ...

    async def jobs(self) -> list[Job]: ...

    async def running_jobs(self) -> list[Job]:
        """Every unfinished job, oldest first. Called every second: the cost does not grow with ended jobs."""
        ...

    async def newest_number(self) -> int:
        """The number of the newest job, 0 if there is none; it grows with every new job. Called ten times a second."""
        ...

    async def counts(self, job: str) -> JobCounts: ...

    async def counts_of(self, jobs: Sequence[str]) -> dict[str, tuple[JobCounts, bool]]:
        """The counts of those of these jobs that are known, and whether each is sealed: in one step, however many."""
        ...

    async def terms(self, job: str) -> JobTerms:
        """The terms that the job was opened under. Raises Permanent for an unknown job."""
        ...


class SeedFindings(msgspec.Struct, frozen=True):
    """What workers have found in the source of a job: the sites that links may lead to, and the first problem."""

    sites: frozenset[str] = frozenset()
    trouble: str = ""


class SeedBook(Protocol):
    """The lease to read the source of a job that a schedule began. One worker holds it at a time; if it dies, the next
    one reads from the start. If two read at once, work is done twice and nothing is lost.

    A lease is identified by its name alone: "@" and a site, in place of a job, is the lease to make a request to that
    site without a leased task.
    """

    async def claim(self, job: str, worker: str, duration: timedelta) -> bool:
        """Take or extend the lease, by the backend's clock. False while another worker holds it."""
        ...

    async def holder(self, job: str) -> str | None:
        """The worker that has the lease now, by the backend's clock."""
        ...

    async def release(self, job: str, worker: str) -> None:
        """Give the lease back. Changes nothing if another worker holds it."""
        ...

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        """Add these sites to the findings. Only the first trouble is kept."""
        ...

    async def findings(self, job: str) -> SeedFindings:
        """Everything noted so far; empty for an unknown job."""
        ...


class JobHistory(Protocol):
    """Earlier jobs: listing them, by name, and forgetting them."""

    async def page(self, limit: int, *, owners: Collection[str] | None = None, after: str | None = None) -> list[Job]:
        """Up to `limit` jobs in any state, newest first; with `owners`, those that these keys began ("" stands for no
        key). `after` is the id of the last job on the previous page, which may have been forgotten since. The cost does
        not grow with the other jobs. Raises Permanent if `after` is not a job id."""
        ...

    async def owners(self, jobs: Sequence[str]) -> dict[str, str]:
        """The keys that began those of these jobs that are known, "" for no key: in one step, however many."""
        ...

    async def newest_jobs(self, name: str, limit: int, *, skip: int = 0) -> list[Job]:
        """Jobs of that name in any state, newest first, without the newest `skip`. The cost does not grow with jobs of
        other names."""
        ...

    async def forget_jobs(self, jobs: Sequence[str]) -> int:
        """Forget jobs that have ended, with all their pages and dead letters; return how many were forgotten.

        They are unknown at once; their pages are deleted in portions, in the background. A job is kept if it is
        running, if it was cancelled or replaced and is not cleared yet, or if it is the newest of its name and no key
        began it. The newest job of all may be kept too. Unknown ids are ignored.
        """
        ...

    async def clear_all(self) -> None:
        """Return when the pages of forgotten jobs are deleted, and the open URLs of cancelled or replaced jobs are
        dropped."""
        ...


class JobControl(Protocol):
    """What people do with a job. Takes effect for all workers at once."""

    async def pause_job(self, job: str, paused: bool) -> bool:
        """Stop or resume handing out its tasks. Leased tasks are finished, and links and seeds enter as before.

        False if the job is not running, or unknown. Ending a job ends its pause.
        """
        ...

    async def cancel_job(self, job: str) -> bool:
        """End the job: state CANCELLED, ending "cancelled". None of its URLs is handed out any more, and workers lose
        their leases on it. Its open URLs are dropped, in the background if there are many (`JobHistory.clear_all` waits
        for it). True for exactly one caller; False if the job is not running, or unknown."""
        ...

    async def end_soon(self, job: str, reason: str) -> bool:
        """Hand out no more pages: when those handed out are settled, the job ends as at a limit. Other processes learn
        of it within seconds. The first reason is kept (`Job.stopped`). False if the job is not running, or unknown."""
        ...


DRAIN, RESTART = "drain", "restart"  # what a worker may be asked to do


class WorkerBook(Protocol):
    """The workers of the project, on all machines. A worker that does not sign off is listed until `forget`."""

    async def beat(self, card: WorkerCard) -> str:
        """Add or renew a worker's card, and correct the project's clock by the state's. Returns what an operator asked
        this worker to do: DRAIN, RESTART, or "". Raises BadState as `check_format` does."""
        ...

    async def check_format(self) -> None:
        """Raise BadState if a newer version has opened the state, with a format that this one does not know."""
        ...

    async def ask_to_drain(self, name: str, *, restart: bool = False) -> bool:
        """The worker's next heartbeat learns of it; with `restart` another one is to take its place. False if there is
        no such worker."""
        ...

    async def sign_off(self, name: str) -> None: ...

    async def workers(self) -> list[WorkerCard]:
        """Every card, by name."""
        ...

    async def forget(self, before: float) -> int:
        """Remove cards whose last heartbeat is older than `before`; return how many."""
        ...


class DeadLetters(Protocol):
    """Pages that were given up: listed, replayed, resolved or purged."""

    async def dead(self, which: DeadFilter, limit: int = 100, *, before: LetterPlace | None = None) -> list[DeadLetter]:
        """Up to `limit` dead letters, the latest first; with `before`, those that follow the letter at that place."""
        ...

    def letters(self, which: DeadFilter) -> AsyncIterator[DeadLetter]:
        """All of them, streamed in flat memory, job by job. A letter that does not change comes exactly once.

        Letters may be resolved, replayed or purged meanwhile. Pages that are buried meanwhile may be left out.
        """
        ...

    async def dead_reasons(self, which: DeadFilter) -> dict[str, int]:
        """How many dead letters there are for each reason, the most frequent first."""
        ...

    async def dead_sites(self, which: DeadFilter, limit: int) -> dict[str, int]:
        """How many dead letters each site has: the `limit` sites with the most, in that order."""
        ...

    async def replay(self, which: DeadFilter) -> int:
        """Put dead tasks back into their queues with their attempts reset; their jobs run again. Returns how many."""
        ...

    async def resolve(
        self, letter: DeadLetter, discovered: Sequence[Candidate] = (), *, duplicates: int = 0, reason: str = ""
    ) -> Added | None:
        """Settle a dead letter whose page was parsed after all, without a request: it is DONE with `reason`.

        The links of the page enter the queue in the same step, under the rules of `Frontier.complete`: links beyond the
        bound are dropped. A link from the page to itself is a duplicate. No attempt is counted.
        A job that had ended runs again if links were queued and its limit leaves room for them.
        None if the letter has changed: it was resolved, replayed or purged, or the page died again. Then nothing is
        settled.
        Raises Permanent for an unknown job.
        """
        ...

    async def purge(self, which: DeadFilter) -> int:
        """Forget dead tasks for good (they become dropped). Returns how many."""
        ...


class UrlErasure(Protocol):
    """Takes addresses out of the queue, on request of a person."""

    async def erase_urls(self, pages: Sequence[tuple[str, bytes]]) -> int:
        """Remove the address of these pages (site, fingerprint), and what was noted about them, from every job; return
        how many rows there were. Open pages and dead letters are dropped; a worker that has one loses its lease. The
        rows stay, with the fingerprint alone, so that counts add up and the page is not queued again."""
        ...

    async def compact(self) -> str:
        """Remove what is left of deleted rows from the files of the state; return what could not be removed."""
        ...


class QueueView(DeadLetters, Protocol):
    """The queue as people see it: the stories of URLs, the loads of sites, dead letters."""

    async def story(self, site: str, fingerprint: bytes) -> list[UrlStory]:
        """The state of the URL in every job that knows it, newest job first."""
        ...

    async def fate(self, job: str, site: str, fingerprint: bytes) -> UrlFate | None:
        """What happened to one URL of a job; None if the job does not know it. Looked up by key."""
        ...

    async def sites(self, job: str, limit: int | None = 20, *, site: str | None = None) -> list[SiteLoad]:
        """Sites with open work of a job, the most loaded first; all of them with a limit of None. With `site`, only
        that one."""
        ...

    async def lanes(self, job: str) -> list[LaneLoad]:
        """The open work of a job by lane, "" first. `ready_since` is found by a sample of the sites that could be
        visited now."""
        ...

    async def site(self, name: str) -> SiteFacts | None:
        """What the state knows of a site; None if no job has had a page of it."""
        ...

    async def loads(self, job: str, now: float) -> list[QueueLoad]:
        """Every site and lane with tasks that are ready or leased, unordered. The cost grows with the sites, not with
        the tasks; of waiting tasks that are due, only some thousand are examined."""
        ...

    def urls(self, job: str, state: UrlState | None = None) -> AsyncIterator[tuple[str, UrlState, str]]:
        """Every URL of a job with state and reason, streamed."""
        ...
