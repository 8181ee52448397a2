"""The contracts of schedules and alerts. They are stored beside the queue, because a tick and the job it begins are one
step, and so are a change of an alert and the messages about it.

How it fails: `BackendUnavailable` (nothing happened), `LeaseLost` (another scheduler leads; nothing changed). How it
recovers: the next leader finds every schedule and every alert where the last one left it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import msgspec

from ..frontier.contract import JobBook
from ..model.alert import AlertChange, AlertMemory, Notice, Silence, Standing
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


class AlertBook(Protocol):
    """What people see of alerts, and their silences."""

    async def standings(self) -> list[Standing]:
        """Every alert that is not inactive, by its name and subject."""
        ...

    async def history(self, limit: int, alert: str | None = None) -> list[AlertChange]:
        """Up to `limit` changes, the newest first; of one alert, or of all."""
        ...

    async def notices(self, limit: int) -> list[Notice]:
        """Messages: those still to be sent, the earliest first, then finished ones, the newest first."""
        ...

    async def silences(self) -> list[Silence]:
        """Silences that are not over by the backend's clock, by their end."""
        ...

    async def silence(self, silence: Silence) -> None:
        """Add a silence, or replace the one with the same id. Expired ones are deleted."""
        ...

    async def unsilence(self, id: str) -> bool:
        """End a silence. False if there is none of that id."""
        ...


class AlertStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one evaluation of the alerts. `memory` None: unchanged."""

    standings: tuple[Standing, ...] = ()  # new or changed
    forgotten: tuple[tuple[str, str], ...] = ()  # alert and subject of standings that are inactive again
    notices: tuple[Notice, ...] = ()
    changes: tuple[AlertChange, ...] = ()
    memory: AlertMemory | None = None


class AlertDesk(Protocol):
    """What the leading scheduler does with alerts. Every write raises LeaseLost and changes nothing if the term is
    over, even if no other scheduler leads yet."""

    async def memory(self) -> AlertMemory:
        """What rules remember; empty before the first step was settled."""
        ...

    async def settle(self, term: Term, step: AlertStep) -> None:
        """Store the whole step at once: the changes, and the messages about them. A message whose id is known is left
        as it is."""
        ...

    async def due(self, limit: int) -> list[Notice]:
        """Messages to be sent, now or later, the oldest first."""
        ...

    async def note(self, term: Term, notice: Notice) -> None:
        """Replace the message with the same id, after an attempt to send it."""
        ...


class SchedulerState(Protocol):
    """The parts of the state that a scheduler works with."""

    @property
    def schedules(self) -> ScheduleBook: ...

    @property
    def ticks(self) -> TickBook: ...

    @property
    def jobs(self) -> JobBook: ...
