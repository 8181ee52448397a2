"""The moment of a job that a copy shows, while workers go on. Nothing is stopped and nothing is locked.

Each shard of a job is asked twice, and it is asked for the second time when all have answered once:

    first     its time: a page that was settled until then is settled in the copy. One that was settled later is queued
              there, and is fetched again, as after a crash before its settlement
    second    the last sequence number: a URL that has a later one is left out

No URL is lost by that. Links enter before their page is settled, or with it. So the links of a page that is settled in
the copy had entered before any shard was asked for the second time; and a URL that is left out was found on a page that
is not settled in the copy, and is found there again. Each shard has given its number of URLs too: a copy with another
number of them is refused.
"""

from __future__ import annotations

import asyncio

import msgspec

from ...errors import BackendUnavailable
from ...frontier.state_rows import COUNTERS
from ...model.job import summed_stats
from ...model.task import UrlState
from .connection import Server
from .jobs import StoredJob, read_drops, read_stats
from .keys import Keyspace
from .rows import Row

TICK = 0.001  # seconds between two looks at a clock that has not moved
TICKS = 100
CLOCK_ERROR = 0.5  # seconds, and a thousandth of the time that has passed: more is a clock that was set back
CHUNK = 1 << 16

Counts = dict[bytes, bytes]


class ShardCut(msgspec.Struct, frozen=True):
    """The cut through one shard of a job."""

    settled_until: float  # by the shard's clock
    dropped_until: float
    newest: int  # the last sequence that belongs to the copy
    urls: int
    ticks: float  # of our own clock, when the shard was first asked

    def holds(self, row: Row) -> bool:
        return row.id <= self.newest

    def as_of(self, row: Row) -> Row:
        """The row as of the cut. That a page was retried or handed out later does no harm, and stays."""
        if row.state.open or row.changed <= self._until(row.state):
            return row
        return msgspec.structs.replace(row, state=UrlState.QUEUED, reason="", message="")

    def _until(self, state: UrlState) -> float:
        # A dropped page has no links, so it may be as late as the counts of dropped pages.
        return self.dropped_until if state is UrlState.DROPPED else self.settled_until


class JobCut(msgspec.Struct, frozen=True, kw_only=True):
    """The cut through a job, and its counters as of the cut."""

    shards: tuple[ShardCut, ...]
    counters: dict[str, int]
    stats: dict[str, int]
    drops: dict[str, int]
    by_state: dict[str, int]


async def cut_job(server: Server, keys: Keyspace, job: StoredJob) -> JobCut:
    """Raises BackendUnavailable."""
    ticks = server.ticks()
    first = [await _ask(server, keys, job, shard) for shard in range(keys.shards)]
    second = [await _ask(server, keys, job, shard, after=time) for shard, (time, _, _, _) in enumerate(first)]
    early, late = [counts for *_, counts in first], [counts for *_, counts in second]
    # Each counter as of the moment until which the rows hold what it counts.
    of_links = {name: _sum(late, name) for name in ("discovered", "duplicates")}
    return JobCut(
        shards=tuple(
            ShardCut(before, after, newest, urls, ticks)
            for (before, *_), (after, newest, urls, _) in zip(first, second, strict=True)
        ),
        counters={name: _sum(early, name) for name in COUNTERS} | of_links,
        stats=summed_stats(*map(read_stats, early)),
        drops=read_drops(*late),
        by_state={state.value: _sum(early, state.value) for state in UrlState},
    )


async def require_clock(server: Server, keys: Keyspace, job: StoredJob, shard: int, cut: ShardCut) -> None:
    """Refuse a copy during which the clock of the shard was set back: the times of its rows prove nothing then. Raises
    BackendUnavailable."""
    ticks = server.ticks() - cut.ticks
    time, *_ = await _ask(server, keys, job, shard)
    if time - cut.settled_until < ticks - CLOCK_ERROR - ticks / 1000:
        raise BackendUnavailable(
            f"The clock of {server.where} was set back meanwhile: what it had settled cannot be told from what came "
            f"later. Run this again."
        )


async def _ask(
    server: Server, keys: Keyspace, job: StoredJob, shard: int, *, after: float | None = None
) -> tuple[float, int, int, Counts]:
    """The answer of a shard, given when its clock is past `after`: then no page is settled at that time any more."""
    for _ in range(TICKS):
        now = server.now()
        time, newest, urls, counts = await server.run("cut", keys.of_job(shard, job.number), now)
        if after is None or float(time) > after or now:  # tests set the clock, and move it between two steps
            pairs = counts.items() if isinstance(counts, dict) else zip(counts[::2], counts[1::2], strict=True)
            return float(time), int(float(newest)), urls, dict(pairs)
        await asyncio.sleep(TICK)
    raise BackendUnavailable(f"The clock of {server.where} stands still.")


def _sum(shards: list[Counts], name: str) -> int:
    return sum(int(counts.get(name.encode(), 0)) for counts in shards)


class CutSeen:
    """A set of sequence numbers, a bit for each."""

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> bool:
        """True if it is new."""
        chunk = self._chunks.setdefault(number // CHUNK, bytearray(CHUNK // 8))
        place, bit = number % CHUNK // 8, 1 << (number % 8)
        if chunk[place] & bit:
            return False
        chunk[place] |= bit
        self._count += 1
        return True
