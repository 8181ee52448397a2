"""Slots: how many jobs a worker pool serves at once, which job is next, and which makes way. Pure but for `Obstacles`.

A thousand jobs may be due at midnight. Each served job costs memory, queries to the queue and sockets, so there are
only as many slots as pages in flight. Where sites are paced, a job has nothing in flight most of the time: then there
are up to four slots per page, unless the jobs that hold slots are only waiting, as jobs for the same site do. Jobs
without a slot wait; the highest priority is next, and among equals the one that has waited longest.

A job with nothing to do makes way for one that has work, and so does one that had its turn, unless its priority is
higher. One that has waited for ten turns is next all the same, so that none starves. A job that cannot work now,
because it is paused or its window is closed, has a slot only while no other job needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from math import inf

import msgspec

from ...clock import Clock
from ...crawl.seed_context import SOURCE_PAUSES
from ...crawl.windows import OpenTimes
from ...crawl.worker import Worker
from ...errors import Misconfigured
from ...model.job import Job
from ...model.windows import parse_windows

ONE_IN = 10  # of that many pages in flight, at least one is for jobs of lower priority
TURNS_WAITED = 10  # a job that has waited for a slot this many turns is next, whatever its priority
FILES_OF_A_JOB = 8
FILES_OF_A_PROCESS = 128  # not tied to one job


class PoolTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The intervals of a worker pool, and how many jobs it serves at once."""

    look: timedelta = timedelta(seconds=1)  # between two looks for jobs, and at a job whose window is closed
    glance: timedelta = timedelta(milliseconds=100)  # between two cheap checks for a job begun since the last look
    quick_glance: timedelta = timedelta(milliseconds=10)  # while jobs come in: their callers may wait
    lively: timedelta = timedelta(seconds=10)  # how long after a new job others are expected
    turn: timedelta = timedelta(seconds=10)  # how long a job keeps its slot while others wait
    silent: timedelta = timedelta(seconds=1)  # idle time after which a job's share goes to others
    idle: timedelta = timedelta(seconds=2)  # idle time after which a job makes way
    longest_rest: timedelta = timedelta(seconds=5)  # of a job that made way: its next page may be due earlier
    no_page: timedelta = timedelta(seconds=20)  # without a page for the served routes, before a pool leaves the job
    again: timedelta = timedelta(seconds=5)  # before retrying a job whose worker met a failing backend
    unfit_again: timedelta = timedelta(seconds=30)  # before retrying a job that could not be served here
    jobs_for_a_page: int = 4  # at most, per page that may be in flight
    unfit_claim: timedelta = timedelta(minutes=5)  # before another job makes way for one that could not be served
    source_pauses: tuple[timedelta, ...] = SOURCE_PAUSES  # between two tries of a source that fails


USUAL_TERMS = PoolTerms()


class WaitingJob(msgspec.Struct, frozen=True):
    """A job without a slot. Until `since`, it may take a free slot, but no other job makes way for it."""

    job: str
    can_work: bool
    since: float
    priority: float = 0


class SlotHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has a slot, and for how many seconds it has been idle, has worked, and took to start working."""

    job: str
    idle: float
    worked: float
    opening: float
    priority: int = 0

    def has_had_its_turn(self, turn: timedelta) -> bool:
        """A turn lasts at least as long as the start took, so that a job that reads a million seeds first gets to work,
        too."""
        return self.worked >= max(turn.total_seconds(), self.opening)


class JobSlot(msgspec.Struct, kw_only=True):
    """A job that is served, and its worker; None until the worker is open."""

    job: Job
    taken_at: float
    code: tuple[str, str] = ("", "")  # the version of its spider, and its commit
    worker: Worker | None = None
    width: int = 0
    leaves: bool = False
    reported: bool = False  # whether the reason it waits has been reported

    @property
    def in_flight(self) -> int:
        return self.worker.in_flight if self.worker is not None else 0

    @property
    def is_opening(self) -> bool:
        return self.worker is None or self.worker.began_at is None

    def is_steady(self, now: float, silent: timedelta) -> bool:
        """Whether it has been at work for a while and is not just waiting."""
        if self.worker is None or self.worker.began_at is None:
            return False
        return now - self.worker.began_at >= silent.total_seconds() > self.worker.idle.total_seconds()

    def holder(self, now: float) -> SlotHolder:
        """The facts that decide whether it makes way. Only for a job that is at work."""
        worker = self.worker
        assert worker is not None
        assert worker.began_at is not None
        return SlotHolder(
            job=self.job.id,
            idle=worker.idle.total_seconds(),
            worked=now - worker.began_at,
            opening=worker.began_at - self.taken_at,
            priority=self.job.priority,
        )


def has_room(
    waiting: WaitingJob,
    *,
    concurrency: int,
    files: int | None,
    taken: int,
    in_flight: int,
    opening: int,
    steady: int,
    terms: PoolTerms = USUAL_TERMS,
) -> bool:
    """Whether there is a slot for the waiting job. `taken` counts all used slots, `opening` those whose jobs are not at
    work yet, `steady` those whose jobs have been at work for a while and are not just waiting."""
    most = terms.jobs_for_a_page * concurrency
    if files is not None:
        most = min(most, max(1, (files - FILES_OF_A_PROCESS) // FILES_OF_A_JOB))
    if taken < min(concurrency, most):
        return True
    few_pages = in_flight + opening < concurrency
    return waiting.can_work and taken < most and few_pages and 2 * (steady + opening) >= taken


def after_waiting(priority: float, waited: float, terms: PoolTerms = USUAL_TERMS) -> float:
    """The priority of a job that has waited so many seconds for a slot."""
    return inf if waited >= TURNS_WAITED * terms.turn.total_seconds() else priority


def in_order(waiting: Iterable[WaitingJob]) -> list[WaitingJob]:
    """Jobs that can work first; then by priority; among equals the longest waiting first."""
    return sorted(waiting, key=lambda one: (not one.can_work, -one.priority, one.since))


def wanted(waiting: Iterable[WaitingJob], now: float) -> int:
    """How many of the waiting jobs have a claim to another job's slot."""
    return sum(one.can_work and one.since <= now for one in waiting)


def makes_way(
    holders: Sequence[SlotHolder], waiting: Iterable[WaitingJob], terms: PoolTerms = USUAL_TERMS
) -> list[str]:
    """Jobs that may have to give up their slots, in this order: idle jobs, longest idle first; then jobs that had their
    turn, lowest priority first and among these the longest turn first."""
    highest = max((one.priority for one in waiting if one.can_work), default=None)
    idle = [one for one in holders if one.idle >= terms.idle.total_seconds()]
    done = [
        one
        for one in holders
        if one not in idle and one.has_had_its_turn(terms.turn) and highest is not None and one.priority <= highest
    ]
    return [
        *(one.job for one in sorted(idle, key=lambda one: -one.idle)),
        *(one.job for one in sorted(done, key=lambda one: (one.priority, -one.worked))),
    ]


class SlotUse(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is served: is it idle, could it use more pages in flight than it has, and how many has it?"""

    priority: int = 0
    idle: bool = False
    full: bool = True
    in_flight: int = 0


def shares_by_priority(concurrency: int, jobs: Sequence[SlotUse]) -> list[int]:
    """How many pages each job may have in flight. A job of higher priority that could use more gets all but a tenth,
    which is for the others; what it does not use is shared by them equally."""
    busy = [one for one in jobs if not one.idle]
    highest = max((one.priority for one in busy), default=0)
    first = [one for one in busy if one.priority == highest]
    if len(first) == len(busy):
        return shares(concurrency, [one.idle for one in jobs])
    least = max(1, concurrency // ONE_IN)
    used = sum(concurrency if one.full else one.in_flight + 1 for one in first)
    room = max(len(first), min(concurrency - least, used))
    is_first = [one.priority == highest and not one.idle for one in jobs]
    of_first = iter(shares(room, [False] * len(first)))
    rest = [one for one, goes_first in zip(jobs, is_first, strict=True) if not goes_first]
    of_rest = iter(shares_by_priority(max(least, concurrency - room), rest))
    return [next(of_first) if goes_first else next(of_rest) for goes_first in is_first]


def shares(concurrency: int, idle: Sequence[bool]) -> list[int]:
    """Equal shares, at least one. An idle job gets one, enough to notice that it has work again."""
    busy = [not one for one in idle]
    if not any(busy):
        busy = [True for _ in idle]
    share, over = divmod(concurrency, max(1, sum(busy)))
    given: list[int] = []
    for is_busy in busy:
        given.append(max(1, share + (over > 0)) if is_busy else 1)
        over -= is_busy
    return given


class Obstacles:
    """What keeps a running job from being worked on: it is paused, or its window is closed.

    Checked every second for every job, and answered from memory.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[str, OpenTimes] = {}  # by job

    def of(self, job: Job) -> str:
        """The obstacle in words, for people; empty if there is none."""
        if job.paused:
            return f"it is paused. `gossamer job resume {job.id}` lets it go on."
        if not job.windows:
            return ""
        if job.id not in self._windows:
            try:
                self._windows[job.id] = OpenTimes(parse_windows(job.windows), self._clock)
            except Misconfigured:  # reported when the job is opened
                return ""
        wait = self._windows[job.id].wait()
        return f"its window opens at {moment(self._clock.now() + wait.total_seconds())}." if wait else ""

    def forget_all_but(self, running: Collection[str]) -> None:
        for job in [job for job in self._windows if job not in running]:
            del self._windows[job]


def moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
