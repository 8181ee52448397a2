"""The contract of schedules: kept beside the queue, because a tick and the job it begins are one step.

How it fails: `BackendUnavailable` (nothing happened), `LeaseLost` (somebody else leads; nothing changed). How it
recovers: the next leader finds every schedule where the last one left it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from ..model.job import JobTerms
from ..model.schedule import Schedule, Settled, Standing, Term


class ScheduleBook(Protocol):
    """What people do with schedules."""

    async def schedules(self) -> list[Standing]:
        """All of them, by name."""
        ...

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        """Write a schedule. False when one of that name is there and `replace` is not set: nothing changed.

        One that is replaced keeps what it has come to (last tick, runs, whether it is paused), and its troubles are
        forgotten. To write again what is there already changes nothing.
        """
        ...

    async def remove(self, name: str) -> bool:
        """Forget a schedule. Its jobs stay. False when there is none."""
        ...

    async def pause(self, name: str, paused: bool) -> bool:
        """Let it rest, or go on. False when there is none of that name."""
        ...


class TickBook(Protocol):
    """What the leading scheduler does with them."""

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        """Become the leader, or go on being it, for so long by the backend's clock; None while another one is.

        Whoever goes on keeps its token, also after a pause in which nobody else led.
        """
        ...

    async def resign(self, term: Term) -> None:
        """Let the next one lead at once. A term that is over changes nothing."""
        ...

    async def settle(
        self, term: Term, before: Standing, after: Standing, opening: tuple[str, JobTerms] | None = None
    ) -> Settled | None:
        """Decide about a tick: the standing becomes `after`, and with `opening` (the job's name and terms) a new job is
        begun, all in one step. The job's id is entered as `last_job`. An unfinished job of that name is replaced, as
        `JobBook.open_job` does it for a fresh start.

        Nothing happens, and None is returned, when the schedule is not as it was in `before` (the tick was decided
        already, or the schedule was changed or removed): `Standing.version` tells.
        Raises LeaseLost when the term is over, even if nobody else leads yet.
        """
        ...
