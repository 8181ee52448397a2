"""`Known`: the book of schedules as its leader knows it. It is read when somebody else has changed it, and kept up with
what the leader writes itself. So a look at a thousand schedules of which none is due costs one small question."""

from __future__ import annotations

from ..model.schedule import Standing, Unreadable
from .contract import ScheduleBook, TickBook


class Known:
    def __init__(self, book: ScheduleBook, ticks: TickBook) -> None:
        self._book = book
        self._ticks = ticks
        self._changes = -1  # the changes that are known here; each is one of somebody
        self.standings: dict[str, Standing] = {}
        self.unreadable: list[Unreadable] = []

    async def refresh(self) -> None:
        """Know it as it is now. Raises Transient."""
        changes = await self._ticks.changes()
        if changes == self._changes:
            return
        found = await self._book.everything()  # after the count: what is changed in between is seen the next time
        self.standings = {one.schedule.name: one for one in found if isinstance(one, Standing)}
        self.unreadable = [one for one in found if isinstance(one, Unreadable)]
        self._changes = changes

    def enter(self, standing: Standing) -> None:
        """The leader has written this."""
        self.standings[standing.schedule.name] = standing
        self._changes += 1

    def forget(self, name: str) -> None:
        """The leader has removed this."""
        self.standings.pop(name, None)
        self._changes += 1

    def doubt(self) -> None:
        """Something was not as it is known here: read it all the next time."""
        self._changes = -1
