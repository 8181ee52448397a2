"""Places: how many jobs one process works on at once, who comes next, and who makes way. Pure: no clock is read.

A thousand jobs may be due at midnight. Each that is worked on costs memory, questions to the queue and sockets, so that
there are only as many places as pages in flight. Where sites are paced, a job has nothing in flight most of the time:
then more jobs have a place, up to four for each page, unless those that have one only wait, as jobs do that are after
the same site. Jobs without a place stand in line: the one with the highest priority is next, of equal ones the longest
waiting.

A job that has nothing to do makes way for one that has, and so does one that had its turn, unless its priority is
higher. A job that cannot work now, because it is paused or its window is closed, has a place only while nobody else
needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

TURN = timedelta(seconds=10)  # of a job, while others stand in line
SILENT = timedelta(seconds=1)  # without anything to do, before a job's share goes to others
IDLE = timedelta(seconds=2)  # without anything to do, before a job makes way
JOBS_FOR_A_PAGE = 4  # at most, of those that may be in flight
FILES_OF_A_JOB = 8
FILES_OF_A_PROCESS = 128  # for all that is not of one job


class Applicant(msgspec.Struct, frozen=True):
    """A job that stands in line. `since` may be later than now: it may have a place, and nobody makes way for it."""

    job: str
    can_work: bool
    since: float
    priority: int = 0


class Occupant(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has a place: how many seconds it was idle until now, was at work, and took to get there."""

    job: str
    idle: float
    worked: float
    opening: float
    priority: int = 0

    @property
    def has_had_its_turn(self) -> bool:
        """As long as it took to begin, too: what reads a million seeds first gets to work at all."""
        return self.worked >= max(TURN.total_seconds(), self.opening)


def has_room(
    applicant: Applicant, *, concurrency: int, files: int | None, taken: int, in_flight: int, opening: int, steady: int
) -> bool:
    """Is there a place for it? `taken` are all places, `opening` those whose jobs are not at work yet, `steady` those
    whose jobs have been at work for a while and do not just wait."""
    most = JOBS_FOR_A_PAGE * concurrency
    if files is not None:
        most = min(most, max(1, (files - FILES_OF_A_PROCESS) // FILES_OF_A_JOB))
    if taken < min(concurrency, most):
        return True
    few_pages = in_flight + opening < concurrency
    return applicant.can_work and taken < most and few_pages and 2 * (steady + opening) >= taken


def in_order(applicants: Iterable[Applicant]) -> list[Applicant]:
    """Those that can work first, by priority, of equal ones the longest waiting before the others."""
    return sorted(applicants, key=lambda one: (not one.can_work, -one.priority, one.since))


def wanted(line: Iterable[Applicant], now: float) -> int:
    """How many in the line have a claim to somebody's place."""
    return sum(one.can_work and one.since <= now for one in line)


def makes_way(occupants: Sequence[Occupant], line: Iterable[Applicant]) -> list[str]:
    """Who may have to go for those in the line, in this order: those with nothing to do, the longest idle first, then
    those that had their turn, the least important and of these the longest first."""
    highest = max((one.priority for one in line if one.can_work), default=None)
    idle = [one for one in occupants if one.idle >= IDLE.total_seconds()]
    done = [
        one
        for one in occupants
        if one not in idle and one.has_had_its_turn and highest is not None and one.priority <= highest
    ]
    return [
        *(one.job for one in sorted(idle, key=lambda one: -one.idle)),
        *(one.job for one in sorted(done, key=lambda one: (one.priority, -one.worked))),
    ]


def shares(concurrency: int, idle: Sequence[bool]) -> list[int]:
    """How many pages each of the jobs may have in flight: equal shares, at least one. An idle one needs no more than
    that to notice that it has work again."""
    busy = [not one for one in idle]
    if not any(busy):
        busy = [True for _ in idle]
    share, over = divmod(concurrency, max(1, sum(busy)))
    given: list[int] = []
    for is_busy in busy:
        given.append(max(1, share + (over > 0)) if is_busy else 1)
        over -= is_busy
    return given
