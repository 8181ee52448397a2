"""The contract of schedules: kept beside the queue, because a tick and the job it begins are one step.

How it fails: `BackendUnavailable` (nothing happened), `LeaseLost` (somebody else leads; nothing changed). How it
recovers: the next leader finds every schedule where the last one left it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from ..frontier.contract import JobBook
from ..model.job import JobTerms
from ..model.schedule import Schedule, ScheduleProgress, Settled, Term, UnreadableSchedule


class ScheduleBook(Protocol):
    """What people do with schedules."""

    async def schedules(self) -> list[ScheduleProgress]:
        """All that can be read, by name."""
        ...

    async def everything(self) -> list[ScheduleProgress | UnreadableSchedule]:
        """Also those that cannot: another version of Gossamer wrote them, or they are damaged."""
        ...

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        """Write a schedule. False when one of that name is there and `replace` is not set: nothing changed.

        One that is replaced keeps what it has come to (last tick, runs, whether it is paused), and its troubles are
        forgotten. To write again what is there already changes nothing. The place of one that was withdrawn is free,
        also without `replace`; one that cannot be read is replaced by one that begins anew.
        """
        ...

    async def remove(self, name: str) -> bool:
        """Forget a schedule. Its jobs stay. False when there is none."""
        ...

    async def pause(self, name: str, paused: bool) -> bool:
        """Let it rest, or go on with the next tick. False when there is none of that name that can be read."""
        ...

    async def begin(
        self, before: ScheduleProgress, after: ScheduleProgress, opening: tuple[str, JobTerms], *, replaces: str = ""
    ) -> Settled | None:
        """Begin a run besides the ticks. As `TickBook.settle`, but nobody needs to lead."""
        ...

    async def leader(self) -> Term | None:
        """The scheduler that leads, by the backend's clock; None when none does. Nothing is changed by asking."""
        ...


class TickBook(Protocol):
    """What the leading scheduler does with them."""

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        """Become the leader, or go on being it, for so long by the backend's clock; None while another one is.

        A term of another one that would last longer than `duration` comes from a clock that was ahead: it is over.
        Whoever goes on keeps its token, also after a pause in which nobody else led.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Let the next one lead at once. A term that is over changes nothing."""
        ...

    async def changes(self) -> int:
        """How often schedules were changed, by whomever: one more for every change, also for those of `settle`."""
        ...

    async def settle(
        self,
        term: Term,
        before: ScheduleProgress | None,
        after: ScheduleProgress,
        opening: tuple[str, JobTerms] | None = None,
        *,
        replaces: str = "",
    ) -> Settled | None:
        """Decide about a tick: the progress becomes `after`, and with `opening` (the job's name and terms) a new job is
        begun, all in one step. The job's id is entered as `last_job`. Without `before` the schedule is a new one.

        Nothing happens, and None is returned, when the schedule is not as it was in `before` (the tick was decided
        already, or the schedule was changed, removed or, without `before`, added): `version` tells. So it is when
        an unfinished job of that name goes on, unless it is the one that the new job `replaces`: that is ended, as
        `JobBook.open_job` does it for a fresh start.
        Raises LeaseLost when the term is over, even if nobody else leads yet.
        """
        ...

    async def forget(self, term: Term, progress: ScheduleProgress) -> bool:
        """Remove a schedule that is still as it was. False when it is not. Raises LeaseLost as `settle` does."""
        ...


class SchedulerState(Protocol):
    """The books that a scheduler works with; the state of a project has them."""

    @property
    def schedules(self) -> ScheduleBook: ...

    @property
    def ticks(self) -> TickBook: ...

    @property
    def jobs(self) -> JobBook: ...
