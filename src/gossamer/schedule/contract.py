"""The contracts of schedules and alerts: kept beside the queue, because a tick and the job it begins are one step, and
because a change of an alert and the messages about it are one step of the scheduler that leads.

How it fails: `BackendUnavailable` (nothing happened), `LeaseLost` (somebody else leads; nothing changed). How it
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


class AlertBook(Protocol):
    """What people see of alerts, and their silences."""

    async def standings(self) -> list[Standing]:
        """Every alert that is not inactive, by its name and subject."""
        ...

    async def history(self, limit: int, alert: str | None = None) -> list[AlertChange]:
        """Up to `limit` changes, the newest first; of one alert, or of all."""
        ...

    async def notices(self, limit: int) -> list[Notice]:
        """Messages: those that are to be sent, the earliest first, then those that are over, the newest first."""
        ...

    async def silences(self) -> list[Silence]:
        """Those that are not over by the backend's clock, by their end."""
        ...

    async def silence(self, silence: Silence) -> None:
        """Enter a silence, or put it in the place of the one with the same id. Those that are over are deleted."""
        ...

    async def unsilence(self, id: str) -> bool:
        """End a silence. False when there is none of that id."""
        ...


class AlertStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at alerts has come to. `memory` None: it stays as it was."""

    standings: tuple[Standing, ...] = ()  # new ones, and those that have changed
    forgotten: tuple[tuple[str, str], ...] = ()  # alert and subject of those that are inactive again
    notices: tuple[Notice, ...] = ()
    changes: tuple[AlertChange, ...] = ()
    memory: AlertMemory | None = None


class AlertDesk(Protocol):
    """What the leading scheduler does with alerts. Every write raises LeaseLost when the term is over, even if nobody
    else leads yet: then nothing is changed."""

    async def memory(self) -> AlertMemory:
        """What rules remember; empty before the first was settled."""
        ...

    async def settle(self, term: Term, step: AlertStep) -> None:
        """Enter all of the step at once: what has changed, and the messages about it. A message whose id is known is
        left as it is."""
        ...

    async def due(self, limit: int) -> list[Notice]:
        """Messages that are to be sent, now or later, the one that was made first before the others."""
        ...

    async def note(self, term: Term, notice: Notice) -> None:
        """Put the message in the place of the one with the same id: this came of sending it."""
        ...


class SchedulerState(Protocol):
    """The books that a scheduler works with; the state of a project has them."""

    @property
    def schedules(self) -> ScheduleBook: ...

    @property
    def ticks(self) -> TickBook: ...

    @property
    def jobs(self) -> JobBook: ...
