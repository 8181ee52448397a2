"""The contracts of schedules and alerts. They are stored beside the queue, because a tick and the job it begins are one
step, and so are a change of an alert and the messages about it.

How it fails: `BackendUnavailable` (nothing happened), `LeaseLost` (another scheduler leads; nothing changed). How it
recovers: the next leader finds every schedule and every alert where the last one left it.
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
        """All readable schedules, by name."""
        ...

    async def everything(self) -> list[ScheduleProgress | UnreadableSchedule]:
        """All schedules, including unreadable ones, which another version of Gossamer wrote or which are damaged."""
        ...

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        """Write a schedule. False if one of that name exists and `replace` is not set: nothing changed.

        A replaced schedule keeps its progress (last tick, runs, whether it is paused), and its failures are cleared.
        Writing what is there already changes nothing. A withdrawn schedule can be overwritten without `replace`; an
        unreadable one is replaced by one that begins anew.
        """
        ...

    async def remove(self, name: str) -> bool:
        """Delete a schedule. Its jobs stay. False if there is none."""
        ...

    async def pause(self, name: str, paused: bool) -> bool:
        """Pause it, or resume it with the next tick. False if there is no readable one of that name."""
        ...

    async def begin(
        self, before: ScheduleProgress, after: ScheduleProgress, opening: tuple[str, JobTerms], *, replaces: str = ""
    ) -> Settled | None:
        """Begin a run outside the ticks. Like `TickBook.settle`, but the caller need not lead."""
        ...

    async def leader(self) -> Term | None:
        """The scheduler that leads, by the backend's clock; None if none does. Changes nothing."""
        ...


class TickBook(Protocol):
    """What the leading scheduler does with schedules."""

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        """Become the leader, or stay it, for `duration` by the backend's clock; None while another one leads.

        A term of another scheduler that would last longer than `duration` was set by a clock that was ahead, and is
        void. A leader that renews keeps its token, also after a gap in which no other scheduler led.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Let the next scheduler lead at once. A term that is over changes nothing."""
        ...

    async def changes(self) -> int:
        """A counter of changes to schedules: it grows with every change by anyone, including those of `settle`."""
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
        """Decide a tick: the progress becomes `after`, and with `opening` (the job's name and terms) a new job is
        begun, all in one step. The job's id is stored as `last_job`. Without `before` the schedule is a new one.

        Nothing happens, and None is returned, if the schedule is no longer as in `before`, by its `version`: the tick
        was decided already, or the schedule was changed, removed or, without `before`, added. The same if an unfinished
        job of that name is running, unless the new job `replaces` it: then that one is ended, as `JobBook.open_job`
        does for a fresh start. Raises LeaseLost if the term is over, even if no other scheduler leads yet.
        """
        ...

    async def forget(self, term: Term, progress: ScheduleProgress) -> bool:
        """Remove a schedule if it is unchanged. False if it is not. Raises LeaseLost as `settle` does."""
        ...


class SchedulerState(Protocol):
    """The parts of the state that a scheduler works with."""

    @property
    def schedules(self) -> ScheduleBook: ...

    @property
    def ticks(self) -> TickBook: ...

    @property
    def jobs(self) -> JobBook: ...
