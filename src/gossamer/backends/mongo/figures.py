"""Figures in MongoDB: every attempt counts once, whatever is interrupted, without an extra write.

An attempt's document says in which `minute` to count it, and how many `items` it gave. It is written once, so it counts
once. Now and then a writer folds some attempts into the sums, as quality.py does with the counts of the checks:

    {"_id": "now", "fold": 3, "last": [names of attempts], "total": ...,
        "minutes": [{"start", "id", "figures", "closed"}]}
    {"_id": "60/1800000000", "span": 60, "start": ..., "id": ..., "writes": 2, "merged": [ids], "figures": ...}

1. The attempts that `now` folded in last are marked as counted. They are in the sums, so nothing is lost.
2. Some uncounted attempts are added to the total and to their minutes, and named in `last`: in one write, unless
   another writer was faster.
3. Minutes that are over are closed: late attempts of a closed minute open another entry for the same time. Closed ones
   go into separate rows, and after a day into rows of ten minutes. A row names what was merged into it; only then the
   source is removed. A reader that finds both leaves out what is named.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from pymongo import ReplaceOne

from ...errors import BackendUnavailable
from ...model.figures import MINUTE, Figures, figures_of, minute_of, summed, taken_into
from ...model.record import Attempt, PageResult
from ...store.contract import FigurePart, Measured
from ...store.figure_rules import (
    KEEP_MINUTES,
    KEEP_TEN_MINUTES,
    ROLLED_AT_ONCE,
    STAYS_OPEN,
    TEN_MINUTES,
    figures_text,
    in_order,
    part_of,
    read_figures,
    reader_of,
    row_of,
    total_of,
)
from ...store.record_rows import ATTEMPT_FIELDS
from .connection import Document, MongoDatabase

FOLD_EVERY = 256  # attempts, by one writer
FOLDED = 512
MAX_TRIES = 20
MOST_OPEN = 30  # minutes in the document of the sums, whose size is limited; beyond this, finished ones leave it
MOST_MERGED = 50  # ids that a row remembers, until what they name is removed
AT_THE_EDGE = 10 * MINUTE  # a minute that is nearly a day old is no longer changed: it goes into ten minutes next

NOW: Document = {"_id": "now", "fold": 0, "last": [], "total": "{}", "minutes": []}


def uncounted(result: PageResult, now: float) -> Document:
    """The fields of an attempt's document which say that it is not counted yet."""
    return {"minute": minute_of(result.attempt, now), "items": len(result.records)}


class FigureLedger:
    def __init__(self, database: MongoDatabase, most_domains: int) -> None:
        self._database = database
        self._most_domains = most_domains
        self._since_fold = 0
        self._newest = 0  # the newest minute that this writer has counted in
        self._open = 0  # minutes in the document of the sums, when this writer last wrote it

    async def note(self, count: int, now: float) -> None:
        """Note how many attempts were written; fold and roll up when it is time."""
        self._since_fold += count
        begins = now // MINUTE > self._newest
        if self._since_fold >= FOLD_EVERY or begins:
            self._since_fold, self._newest = 0, int(now // MINUTE)
            await self.fold()
        if begins or self._open > MOST_OPEN:
            await self._roll_up(now)

    async def fold_all(self) -> None:
        while await self.fold():
            pass

    async def fold(self) -> bool:
        """Fold some attempts into the sums. False if there was nothing to fold, or another writer was faster."""
        sums = await self._now()
        await self._strike_out(sums["last"])
        found = await self._database.find(
            "attempts",
            {"minute": {"$exists": True}},
            [*ATTEMPT_FIELDS, "minute", "items"],
            order=[("minute", 1)],
            limit=FOLDED,
            hint="unfolded",
        )
        if not found:
            return False
        total = read_figures(sums["total"])
        closed = [one for one in sums["minutes"] if one.get("closed")]
        minutes = {one["start"]: one for one in sums["minutes"] if not one.get("closed")}
        for start, figures in _by_minute(found).items():
            total = taken_into(total, figures, most_domains=self._most_domains)
            if start in minutes:
                figures = summed([read_figures(minutes[start]["figures"]), figures])
            name = minutes[start]["id"] if start in minutes else uuid4().hex
            minutes[start] = {"start": start, "id": name, "figures": figures_text(figures)}
        names, all_minutes = [one["_id"] for one in found], [*closed, *minutes.values()]
        if not await self._replace(sums, last=names, total=figures_text(total), minutes=all_minutes):
            return False
        self._open = len(all_minutes)
        await self._strike_out(names)
        return True

    async def _now(self) -> Document:
        return await self._database.one("figures", {"_id": NOW["_id"]}) or NOW

    async def _replace(self, sums: Document, **changes: object) -> bool:
        """Replace the sums, unless another writer was faster: then this becomes an insertion, which fails on the taken
        id."""
        changed = {**sums, **changes, "fold": sums["fold"] + 1}
        wanted = {"_id": NOW["_id"], "fold": sums["fold"]}
        return not (await self._database.write("figures", [ReplaceOne(wanted, changed, upsert=True)])).refused

    async def _strike_out(self, attempts: list[bytes]) -> None:
        """Mark these attempts as counted: they are in the sums."""
        if attempts:
            await self._database.change_all(
                "attempts", {"_id": {"$in": attempts}}, {"$unset": {"minute": "", "items": ""}}
            )

    # -- rolling up ------------------------------------------------------------------------------------------------

    async def _roll_up(self, now: float) -> None:
        """Finished minutes into rows, old rows into longer ones, delete the oldest. Stops if another writer is faster:
        it does the same."""
        sums = await self._now()
        over = [one for one in sums["minutes"] if one["start"] < now - MINUTE - STAYS_OPEN]
        # Closed before they go into rows: whatever is interrupted in between, a row has everything under the id it
        # knows.
        if not all(one.get("closed") for one in over):
            ended = {one["id"] for one in over}
            minutes = [{**one, "closed": True} if one["id"] in ended else one for one in sums["minutes"]]
            if not await self._replace(sums, minutes=minutes):
                return
            sums = {**sums, "minutes": minutes, "fold": sums["fold"] + 1}
        for one in over:
            if not await self._merge(row_of(one["start"], now - AT_THE_EDGE), one["id"], one["figures"]):
                return
        if over:
            gone = {one["id"] for one in over}
            if not await self._replace(sums, minutes=[one for one in sums["minutes"] if one["id"] not in gone]):
                return
        self._open = len(sums["minutes"]) - len(over)
        old = await self._database.find(
            "figures",
            {"span": MINUTE, "start": {"$lte": now - KEEP_MINUTES}},
            order=[("start", 1)],
            limit=ROLLED_AT_ONCE,
            hint="figure_start",
        )
        for one in old:
            if not await self._merge(row_of(one["start"], now), one["id"], one["figures"]):
                return
            await self._database.delete("figures", {"_id": one["_id"], "id": one["id"]})
        await self._database.delete("figures", {"span": TEN_MINUTES, "start": {"$lt": now - KEEP_TEN_MINUTES}})

    async def _merge(self, row: tuple[int, int], name: str, figures: str) -> bool:
        """Merge figures with an id into a row, once. False if another writer changed the row first."""
        span, start = row
        place = f"{span}/{start}"
        held = await self._database.one("figures", {"_id": place})
        if held is None:
            held = {"_id": place, "span": span, "start": start, "id": uuid4().hex, "writes": 0, "merged": [],
                    "figures": "{}"}  # fmt: skip
        if name in held["merged"]:
            return True
        changed = {
            **held,
            "writes": held["writes"] + 1,
            "merged": [*held["merged"], name][-MOST_MERGED:],
            "figures": figures_text(summed([read_figures(held["figures"]), read_figures(figures)])),
        }
        wanted = {"_id": place, "writes": held["writes"]}
        return not (await self._database.write("figures", [ReplaceOne(wanted, changed, upsert=True)])).refused

    # -- reading ---------------------------------------------------------------------------------------------------

    async def total(self) -> Figures:
        sums, waiting = await self._read()
        more = list(_by_minute(waiting).values())
        return total_of(read_figures(sums["total"]), more, most_domains=self._most_domains)

    async def between(self, since: float, until: float, part: FigurePart | None) -> list[Measured]:
        sums, waiting = await self._read()
        bounds = {"$gte": since // TEN_MINUTES * TEN_MINUTES, "$lt": until}
        rows = await self._database.find("figures", {"start": bounds}, hint="figure_start")
        merged = {name for row in rows for name in row["merged"]}
        parts = [(row["span"], row["start"], row["figures"]) for row in rows if row["id"] not in merged]
        parts += [(MINUTE, one["start"], one["figures"]) for one in sums["minutes"] if one["id"] not in merged]
        read = reader_of(part)
        found = [(span, start, read(text)) for span, start, text in parts]
        found += [(MINUTE, start, part_of(figures, part)) for start, figures in _by_minute(waiting).items()]
        return in_order(one for one in found if since <= one[1] < until)

    async def _read(self) -> tuple[Document, list[Document]]:
        """The sums, and the attempts that are not in them."""
        for _ in range(MAX_TRIES):
            before = await self._now()
            waiting: dict[bytes, Document] = {}
            fields = [*ATTEMPT_FIELDS, "minute", "items"]
            async for one in self._database.stream("attempts", {"minute": {"$exists": True}}, fields, "unfolded"):
                waiting[one["_id"]] = one
            after = await self._now()
            if after["fold"] - before["fold"] <= 1:
                for name in (*before["last"], *after["last"]):
                    waiting.pop(name, None)
                return after, list(waiting.values())
        raise BackendUnavailable(
            f"{self._database.address.place}: figures changed {MAX_TRIES} times while they were read. Try again."
        )


def _by_minute(attempts: Iterable[Document]) -> dict[int, Figures]:
    minutes: dict[int, list[tuple[Attempt, int]]] = {}
    for one in attempts:
        attempt = Attempt(fingerprint=b"", **{name: one[name] for name in ATTEMPT_FIELDS})
        minutes.setdefault(one["minute"], []).append((attempt, one["items"]))
    return {start: figures_of(minutes[start]) for start in sorted(minutes)}
