"""Alerts on the shelf: which ones fire, the messages about them, silences, and what the rules remember.

The leading scheduler writes under its term; people read, and silence.
How it fails: `BackendUnavailable` (nothing happened), `LeaseLost`. How it recovers: every verb is atomic, so the caller
repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex

import msgspec

from ..model.alert import CHANGES_KEPT, NOTICES_KEPT, AlertChange, AlertMemory, Notice, Silence, Standing
from ..model.schedule import Term
from ..model.shelf import ABSENT, Change, Drop, Kind, Put, Shelf, Trim

_MEMORY = "rules"  # the key of the only row of its kind


class AlertStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one evaluation of the alerts. `memory` None: unchanged."""

    standings: tuple[Standing, ...] = ()  # new or changed
    forgotten: tuple[tuple[str, str], ...] = ()  # alert and subject of standings that are inactive again
    notices: tuple[Notice, ...] = ()
    changes: tuple[AlertChange, ...] = ()
    memory: AlertMemory | None = None


class AlertBook:
    """Every write of the leading scheduler raises LeaseLost and changes nothing if its term is over, even if no other
    scheduler leads yet."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._standings = Kind(shelf, "alert", Standing)
        self._open = Kind(shelf, "alert-notice", Notice)
        self._ended = Kind(shelf, "alert-notice-ended", Notice)
        self._changes = Kind(shelf, "alert-change", AlertChange)
        self._memory = Kind(shelf, "alert-memory", AlertMemory)
        self._silences = Kind(shelf, "silence", Silence)

    async def standings(self) -> list[Standing]:
        """Every alert that is not inactive, by its name and subject."""
        return sorted(await self._standings.all(), key=lambda one: one.key)

    async def history(self, limit: int, alert: str | None = None) -> list[AlertChange]:
        """Up to `limit` changes, the newest first; of one alert, or of all."""
        return await self._changes.timed(limit=limit, newest=True, prefix="" if alert is None else f"{alert} ")

    async def notices(self, limit: int) -> list[Notice]:
        """Messages: those still to be sent, the earliest first, then finished ones, the newest first."""
        ended = await self._ended.timed(limit=limit, newest=True)
        return [*await self.due(limit), *ended][:limit]

    async def silences(self) -> list[Silence]:
        """Silences that are not over by the backend's clock, by their end."""
        return sorted(await self._silences.all(), key=lambda one: (one.until, one.id))

    async def silence(self, silence: Silence) -> None:
        """Add a silence, or replace the one with the same id."""
        await self._shelf.commit([self._silences.put(silence.id, silence, until=silence.until)])

    async def unsilence(self, id: str) -> bool:
        """End a silence. False if there is none of that id."""
        row = await self._shelf.get(self._silences.name, id)
        return row is not None and await self._shelf.commit([Drop(kind=self._silences.name, key=id, expects=row.stamp)])

    # -- the leader's side -------------------------------------------------------------------------------------

    async def memory(self) -> AlertMemory:
        """What rules remember; empty before the first step was settled."""
        return await self._memory.get(_MEMORY) or AlertMemory()

    async def settle(self, term: Term, step: AlertStep) -> None:
        """Store the whole step at once: the changes, and the messages about them. A message whose id is known is left
        as it is."""
        while True:
            new = [one for one in step.notices if not await self._knows(one.id)]
            changes: list[Change] = [self._standings.put(_name(one.key), one) for one in step.standings]
            changes += [self._standings.drop(_name(key)) for key in step.forgotten]
            for notice in new:
                changes += self._place(notice, expects=ABSENT)
            for change in step.changes:
                changes.append(self._changes.put(f"{change.alert} {token_hex(8)}", change, at=change.at))
            if step.changes:
                changes.append(Trim(kind=self._changes.name, keep=CHANGES_KEPT))
            if step.memory is not None:
                changes.append(self._memory.put(_MEMORY, step.memory))
            if await self._shelf.commit(changes, term):
                return

    async def due(self, limit: int) -> list[Notice]:
        """Messages to be sent, now or later, the oldest first."""
        return await self._open.timed(limit=limit)

    async def note(self, term: Term, notice: Notice) -> None:
        """Replace the message with the same id, after an attempt to send it."""
        trim = Trim(kind=self._ended.name, keep=NOTICES_KEPT)
        await self._shelf.commit([*self._place(notice), trim], term)

    async def _knows(self, id: str) -> bool:
        return await self._open.get(id) is not None or await self._ended.get(id) is not None

    def _place(self, notice: Notice, expects: bytes | None = None) -> Sequence[Put | Drop]:
        is_open = notice.ended_at is None
        here, there = (self._open, self._ended) if is_open else (self._ended, self._open)
        at = notice.made_at if notice.ended_at is None else notice.ended_at
        return [here.put(notice.id, notice, at=at, expects=expects), there.drop(notice.id)]


def _name(key: tuple[str, str]) -> str:
    """The key of an alert and its subject."""
    return "\0".join(key)
