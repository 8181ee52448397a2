"""Counters that all writers share, and cursors into the stream of changes that are correct while others write.

Every change of a record carries the revision that was current when its writer took a ticket. Asking for a cursor starts
a new revision; the cursor is the oldest revision with an open ticket, or the new one if all are closed. So no later
change is before a cursor: new tickets belong to later revisions.

    {"_id": "marks", "revision": 7, "records": 5200, "pages": 910,
     "open": {"5f3c0a9be2115f3c": {"revision": 6, "at": <the server's time>}}}

How it fails: a writer that dies leaves its ticket open, and cursors stand still until the ticket expires by the
server's clock. How it recovers: every request for a cursor, and every opening of the store, removes expired tickets. A
writer that was only slow finds its ticket gone at the end, and gives its changes a new revision: a follower sees them
twice rather than never. The remaining gap: a writer that sleeps longer than a ticket lasts in the middle of a batch,
wakes up, writes, and dies before it has checked its ticket. Followers see what it wrote then only with the record's
next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from secrets import token_hex

import msgspec

from ...errors import BackendUnavailable
from .connection import Document, MongoDatabase

TICKET_LASTS = timedelta(minutes=15)  # it is held during four calls; each ends within three minutes
MANY_OPEN = 64  # tickets; beyond this, writers remove expired ones, too
MAX_TRIES = 50

_MARKS = {"_id": "marks"}


class Ticket(msgspec.Struct, frozen=True):
    """The right to change records under a revision. `first` is the first of the numbers that came with it."""

    token: str
    revision: int
    first: int


class Revisions:
    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._revision = 1  # as far as this process knows

    async def open(self, records: int) -> Ticket:
        """A ticket, and that many numbers for new records."""
        token = token_hex(8)
        for _ in range(MAX_TRIES):
            revision = self._revision
            marks = await self._database.change(
                "store",
                {**_MARKS, "revision": revision},
                {
                    "$set": {f"open.{token}.revision": revision},
                    "$currentDate": {f"open.{token}.at": True},
                    "$inc": {"records": records},
                },
            )
            if marks is not None:
                if len(marks["open"]) > MANY_OPEN:
                    await self._sweep(marks, marks["open"][token]["at"])
                return Ticket(token, revision, marks["records"] - records + 1)
            self._revision = await self.newest()
        raise BackendUnavailable(
            f"{self._database.address.place}: {MAX_TRIES} tries to begin a batch collided with other writers."
        )

    async def close(self, ticket: Ticket, changed: Sequence[bytes]) -> None:
        """Everything is written: return the ticket. `changed` are the ids of the records that carry its revision."""
        for _ in range(MAX_TRIES):
            given_back = await self._database.change(
                "store", {**_MARKS, f"open.{ticket.token}": {"$exists": True}}, {"$unset": {f"open.{ticket.token}": ""}}
            )
            if given_back is not None:
                return
            late, ticket = ticket, await self.open(0)
            await self._database.change_all(
                "records",
                {"_id": {"$in": list(changed)}, "revision": late.revision},
                {"$set": {"revision": ticket.revision}},
            )
        raise BackendUnavailable(
            f"{self._database.address.place}: {MAX_TRIES} tickets expired while records were written."
        )

    async def cursor(self) -> int:
        """A cursor: everything that changes from now on is after it."""
        marks = await self._database.change(
            "store", _MARKS, {"$inc": {"revision": 1}, "$currentDate": {"asked_at": True}}
        )
        assert marks is not None  # created at opening, never deleted
        self._revision = marks["revision"]
        lasting = await self._sweep(marks, marks["asked_at"])
        return min([self._revision, *lasting])

    async def refresh(self) -> None:
        """Remove expired tickets, and read the current revision. Done at opening."""
        marks = await self._database.change("store", _MARKS, {"$currentDate": {"asked_at": True}})
        assert marks is not None  # as above
        self._revision = marks["revision"]
        await self._sweep(marks, marks["asked_at"])

    async def newest(self) -> int:
        """The current revision; no cursor of this store is above it."""
        marks = await self._database.one("store", _MARKS, ["revision"])
        assert marks is not None  # as above
        revision: int = marks["revision"]
        return revision

    async def number_pages(self, count: int) -> int:
        """The first of `count` new numbers for pages."""
        marks = await self._database.change("store", _MARKS, {"$inc": {"pages": count}})
        assert marks is not None  # as above
        first: int = marks["pages"] - count + 1
        return first

    async def _sweep(self, marks: Document, now: datetime) -> list[int]:
        """Remove expired tickets; return the revisions of the others."""
        expired = [token for token, one in marks["open"].items() if now - one["at"] > TICKET_LASTS]
        if expired:
            await self._database.change("store", _MARKS, {"$unset": {f"open.{token}": "" for token in expired}})
        return [one["revision"] for token, one in marks["open"].items() if token not in set(expired)]
