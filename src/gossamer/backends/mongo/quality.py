"""The counts of the quality checks: every attempt counts once, whatever is interrupted.

An attempt's document holds its counts (`quality`, filed under a `sheet`: one per day and spider). It is written once,
so it counts once. Now and then a writer folds some attempts into the sheet's document, which holds the sums. A sheet
names the attempts that were folded in last, and is replaced as a whole, unless another writer was faster:

    {"_id": ..., "fold": 3, "last": [names of attempts], "rows": [{"day": ..., "checked": 12, ...}]}

1. The counts that the sheet folded in last are removed from those attempts. The sheet has them, so nothing is lost. 2.
Some uncounted attempts are read, added to the rows, and named in `last`: in one write.

A crash between the two leaves attempts that are counted twice, and named in `last`: readers leave these out. A reader
reads the sheets before and after the attempts: if a sheet was folded more than once meanwhile, it starts over;
otherwise it leaves out the attempts that either reading names, and the sums are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from pymongo import ReplaceOne

from ...errors import BackendUnavailable
from ...model.record import Tally
from ...store.record_rules import added_up
from .connection import Document, MongoDatabase
from .layout import digest

FOLD_EVERY = 256  # attempts with counts, by one writer
FOLDED = 512
MOST_ROWS = 20_000  # of a sheet; beyond this, counts stay with their attempts
MAX_TRIES = 20

_COUNTS = ("checked", "filled", "faulty")


def uncounted(quality: Sequence[Tally]) -> Document:
    """The fields of an attempt's document with its counts; empty if there are none."""
    if not quality:
        return {}
    first = quality[0]
    rows = [msgspec.structs.asdict(one) for one in _summed(quality)]
    return {"sheet": digest(first.day, first.spider), "quality": rows}


class QualityLedger:
    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._since_fold = 0

    async def note(self, count: int) -> None:
        """Note how many attempts with counts were written; fold when it is time."""
        self._since_fold += count
        if self._since_fold >= FOLD_EVERY:
            self._since_fold = 0
            await self.fold()

    async def fold_all(self) -> None:
        """Fold until nothing is left. If sheets are full, the rest stays with its attempts."""
        while await self.fold():
            pass

    async def fold(self) -> bool:
        """Fold some attempts into their sheet. False if there was nothing to fold, or another writer was faster."""
        first = await self._database.find(
            "attempts", {"sheet": {"$exists": True}}, ["sheet"], order=[("sheet", 1)], limit=1, hint="uncounted"
        )
        if not first:
            return False
        name = first[0]["sheet"]
        sheet = await self._database.one("quality", {"_id": name})
        if sheet is not None:
            await self._strike_out(sheet["last"])
        found = await self._database.find("attempts", {"sheet": name}, ["quality"], limit=FOLDED)
        if not found:
            return sheet is not None
        rows = _summed(
            [Tally(**row) for row in ([] if sheet is None else sheet["rows"])]
            + [Tally(**row) for one in found for row in one["quality"]]
        )
        if len(rows) > MOST_ROWS:
            return False
        folded = {
            "_id": name,
            "fold": 1 if sheet is None else sheet["fold"] + 1,
            "last": [one["_id"] for one in found],
            "newest": max(row.day for row in rows),
            "rows": [msgspec.structs.asdict(row) for row in rows],
        }
        # If another writer has folded since, this becomes an insertion, which fails on the taken id.
        wanted = {"_id": name, "fold": 0 if sheet is None else sheet["fold"]}
        written = await self._database.write("quality", [ReplaceOne(wanted, folded, upsert=True)])
        if written.refused:
            return False
        await self._strike_out(folded["last"])
        return True

    async def _strike_out(self, attempts: list[bytes]) -> None:
        """Mark these attempts as counted: they are in the sums of a sheet."""
        await self._database.change_all(
            "attempts", {"_id": {"$in": attempts}}, {"$unset": {"sheet": "", "quality": ""}}
        )

    async def scores(self, spider: str | None, since: str) -> list[Tally]:
        for _ in range(MAX_TRIES):
            found = await self._read(since)
            if found is not None:
                tallies = (one for one in _summed(found) if one.day >= since and spider in (None, one.spider))
                return sorted(tallies, key=lambda one: (one.day, one.spider, one.type, one.field, one.rule))
        raise BackendUnavailable(
            f"{self._database.address.place}: what is counted changed {MAX_TRIES} times while it was read. Try again."
        )

    async def _read(self, since: str) -> list[Tally] | None:
        """All counts from that day on (and some before); None if they changed too much while they were read."""
        before = {one["_id"]: one for one in await self._database.find("quality", {}, ["fold", "last"])}
        pending: dict[bytes, list[Any]] = {}
        async for one in self._database.stream("attempts", {"sheet": {"$exists": True}}, ["quality"], "uncounted"):
            pending[one["_id"]] = one["quality"]
        after = {one["_id"]: one for one in await self._database.find("quality", {}, ["fold", "last"])}
        sheets = await self._database.find("quality", {"newest": {"$gte": since}})
        for name, sheet in after.items():
            known = before.get(name, {"fold": 0, "last": []})
            if sheet["fold"] - known["fold"] > 1:
                return None
            for attempt in [*known["last"], *sheet["last"]]:
                pending.pop(attempt, None)
        if any(sheet["fold"] != after.get(sheet["_id"], {"fold": 0})["fold"] for sheet in sheets):
            return None
        return [Tally(**row) for rows in [*(sheet["rows"] for sheet in sheets), *pending.values()] for row in rows]


def _summed(tallies: Sequence[Tally]) -> list[Tally]:
    return [
        Tally(day=day, spider=spider, type=type, field=field, rule=rule, **dict(zip(_COUNTS, counts, strict=True)))
        for (day, spider, type, field, rule), counts in added_up(tallies)
    ]
