"""Alerts and incidents on the shelf: which ones fire, the messages about them, silences, and what the rules remember.

The leading scheduler writes under its term; people read, and silence.
How it fails: `BackendUnavailable` (nothing happened), `LeaseLost`. How it recovers: every verb is atomic, so the caller
repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_hex

import msgspec

from ..model.alert import CHANGES_KEPT, NOTICES_KEPT, AlertChange, AlertMemory, Notice, Silence, Standing
from ..model.incident import CLOSING, ENDED_INCIDENT, ENDED_KEPT, INCIDENT, REOPENS_WITHIN, Closing, Incident
from ..model.schedule import Term
from ..model.shelf import ABSENT, Change, DropRow, Put, Shelf, ShelfKind, Trim

_MEMORY = "rules"  # the key of the only row of its kind


class AlertStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one evaluation of the alerts. `memory` None: unchanged."""

    standings: tuple[Standing, ...] = ()  # new or changed
    forgotten: tuple[tuple[str, str], ...] = ()  # alert and subject of standings that are inactive again
    notices: tuple[Notice, ...] = ()
    changes: tuple[AlertChange, ...] = ()
    incidents: tuple[Incident, ...] = ()  # new or changed
    closings: tuple[str, ...] = ()  # ids of incidents whose closing is carried out
    memory: AlertMemory | None = None


class AlertBook:
    """Every write of the leading scheduler raises LeaseLost and changes nothing if its term is over, even if no other
    scheduler leads yet."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._standings = ShelfKind(shelf, "alert", Standing)
        self._open = ShelfKind(shelf, "alert-notice", Notice)
        self._ended = ShelfKind(shelf, "alert-notice-ended", Notice)
        self._changes = ShelfKind(shelf, "alert-change", AlertChange)
        self._memory = ShelfKind(shelf, "alert-memory", AlertMemory)
        self._silences = ShelfKind(shelf, "silence", Silence)
        self._incidents = ShelfKind(shelf, INCIDENT, Incident)
        self._ended_incidents = ShelfKind(shelf, ENDED_INCIDENT, Incident)
        self._closings = ShelfKind(shelf, CLOSING, Closing)

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
        return row is not None and await self._shelf.commit(
            [DropRow(kind=self._silences.name, key=id, expects=row.stamp)]
        )

    # -- incidents ---------------------------------------------------------------------------------------------

    async def open_incidents(self) -> list[Incident]:
        """Open incidents, the latest first."""
        return sorted(await self._incidents.all(), key=lambda one: -one.opened_at)

    async def ended_incidents(self, limit: int, *, after: float | None = None) -> list[Incident]:
        """Up to `limit` incidents that have ended, the latest first; with `after`, those that ended later than that."""
        return await self._ended_incidents.timed(limit=limit, after=after, newest=True)

    async def incident(self, id: str) -> Incident | None:
        return await self._incidents.get(id) or await self._ended_incidents.get(id)

    async def close_incident(self, closing: Closing) -> None:
        """Ask the leading scheduler to close it."""
        await self._shelf.commit([self._closings.put(closing.incident, closing)])

    async def recent_incidents(self, now: float) -> list[Incident]:
        """Open incidents, and those that may open again."""
        return [*await self._incidents.all(), *await self.ended_incidents(ENDED_KEPT, after=now - REOPENS_WITHIN)]

    async def closings(self) -> list[Closing]:
        """Those that are not carried out yet."""
        return await self._closings.all()

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
            for incident in step.incidents:
                changes += self._place_incident(incident)
            changes += [self._closings.drop(id) for id in step.closings]
            if any(one.ended_at is not None for one in step.incidents):
                changes.append(Trim(kind=self._ended_incidents.name, keep=ENDED_KEPT))
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

    def _place(self, notice: Notice, expects: bytes | None = None) -> Sequence[Put | DropRow]:
        is_open = notice.ended_at is None
        here, there = (self._open, self._ended) if is_open else (self._ended, self._open)
        at = notice.made_at if notice.ended_at is None else notice.ended_at
        return [here.put(notice.id, notice, at=at, expects=expects), there.drop(notice.id)]

    def _place_incident(self, one: Incident) -> Sequence[Put | DropRow]:
        is_open = one.ended_at is None
        here, there = (self._incidents, self._ended_incidents) if is_open else (self._ended_incidents, self._incidents)
        return [here.put(one.id, one, at=one.opened_at if is_open else one.ended_at), there.drop(one.id)]


def _name(key: tuple[str, str]) -> str:
    """The key of an alert and its subject."""
    return "\0".join(key)
