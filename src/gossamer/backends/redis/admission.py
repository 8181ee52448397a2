"""Where candidates enter the shards, from whichever verb they come. lua/admission.lua decides about each of them.

How it fails: FrontierFull where producers are to be refused; else what finds no room is dropped, and so is what a
server out of memory cannot keep. How it recovers: offering again is harmless, because what is known is a duplicate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import monotonic
from typing import Any

import msgspec

from ...errors import FrontierFull
from ...frontier.contract import Added, JobTerms
from ...model.task import Candidate
from ...store.contract import RecordStore
from . import rows
from .connection import OutOfMemory, Server
from .jobs import RedisJobs
from .keys import Keyspace

ADD_AT_ONCE = 500  # candidates per script: a longer one would hold up everybody else
DEPTH_TRUSTED = 1.0  # seconds that the depth of other shards is used without asking again
JOB_TRUSTED = 5.0


class ShardAdmission:
    """`records` is asked where a Bloom filter calls a URL known and the job wants to be sure."""

    def __init__(
        self,
        server: Server,
        keys: Keyspace,
        jobs: RedisJobs,
        *,
        records: RecordStore | None = None,
    ) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._records = records
        self._known: dict[str, tuple[float, KnownJob]] = {}
        self._depths: dict[str, tuple[float, list[int]]] = {}

    async def job(self, job: str) -> KnownJob:
        """What must be known of a job, asked for again every few seconds. Raises Permanent for an unknown one."""
        at, known = self._known.get(job, (float("-inf"), None))
        if known is None or monotonic() - at > JOB_TRUSTED:
            row = await self._jobs.row(job)
            known = KnownJob(id=job, number=row.number, terms=row.admission())
            self._known[job] = (monotonic(), known)
        return known

    def packed(self, known: KnownJob, candidates: Sequence[Candidate], parent: rows.Parent | None) -> bytes:
        attempts = known.terms.max_attempts
        return b"".join(rows.pack_candidate(one, max_attempts=attempts, parent=parent) for one in candidates)

    async def bound(self, known: KnownJob, shard: int, *, fresh: bool = False) -> tuple[int, int]:
        """How many URLs may wait in the job (-1: any number), and how many do in the other shards."""
        bound = known.terms.max_queued
        return (-1, 0) if bound is None else (bound, await self._depth_elsewhere(known, shard, fresh=fresh))

    def note_depth(self, known: KnownJob, shard: int, queued: int) -> None:
        """What we added ourselves counts at once, not only when the depths are asked for again."""
        if known.id in self._depths:
            self._depths[known.id][1][shard] += queued

    async def offer(
        self,
        known: KnownJob,
        candidates: Sequence[Candidate],
        *,
        parent: rows.Parent | None,
        refuse_when_full: bool,
        revives: bool = False,
    ) -> tuple[Added, int]:
        """What became of them, and how many of the dropped are in no counter, because the memory was full.

        Raises FrontierFull when it is to refuse; else what finds no room is dropped. So is what is offered to a job
        that was replaced or cancelled, unless it `revives` that job.
        """
        groups: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            groups.setdefault(self._keys.shard_of(candidate.site), []).append(candidate)
        added, lost = Added(), 0
        left = len(candidates)
        for shard, group in groups.items():
            for start in range(0, len(group), ADD_AT_ONCE):
                chunk = group[start : start + ADD_AT_ONCE]
                try:
                    added = total(
                        added, await self._add(known, shard, chunk, left if refuse_when_full else None, parent, revives)
                    )
                except OutOfMemory as error:
                    if refuse_when_full:
                        raise FrontierFull(f"{error} Nothing was added.") from error
                    # What is in hand may end; its links are not remembered, and may enter when they are seen again.
                    added, lost = total(added, Added(dropped=len(chunk))), lost + len(chunk)
                left -= len(chunk)
        return added, lost

    async def look_twice(
        self, known: KnownJob, offered: Sequence[Candidate], answer: Sequence[Any], parent: rows.Parent | None
    ) -> Added:
        """What a script says of what was offered. Some may be known to the filter only: where an exact check exists,
        those that are not known there enter after all."""
        queued, duplicates, dropped, doubtful = answer
        added = Added(queued=queued, duplicates=duplicates, dropped=dropped)
        if not doubtful or self._records is None or not known.terms.dedup_check:
            return added
        suspects = [offered[place - 1] for place in doubtful]
        really = await self._records.facts([one.fingerprint for one in suspects])
        wronged = [msgspec.structs.replace(one, force=True) for one in suspects if one.fingerprint not in really]
        if not wronged:
            return added
        again, _ = await self.offer(known, wronged, parent=parent, refuse_when_full=False)
        return total(added, again)

    async def _add(
        self,
        known: KnownJob,
        shard: int,
        chunk: list[Candidate],
        whole: int | None,
        parent: rows.Parent | None,
        revives: bool,
    ) -> Added:
        """`whole` is how many must find room for this chunk to enter; with None it enters as far as there is room."""
        bound, elsewhere = await self.bound(known, shard, fresh=whole is not None)
        answer = await self._server.run(
            "add",
            self._keys.of_job(shard, known.number),
            self._server.now(),
            bound,
            elsewhere,
            -1 if whole is None else whole,
            *admission_terms(known.terms, self._keys.shards),
            self.packed(known, chunk, parent),
            "revives" if revives else "",
        )
        if answer[0] == -1:
            raise FrontierFull(
                f"The queue of {known.id} holds {answer[1]} URLs; {whole} more would pass its bound of {bound} "
                "(crawl.max_queued). Add fewer at once, or wait until some are done."
            )
        self.note_depth(known, shard, answer[0])
        return await self.look_twice(known, chunk, answer, parent)

    async def _depth_elsewhere(self, known: KnownJob, shard: int, *, fresh: bool) -> int:
        """How many URLs wait in the other shards; a second old at most."""
        if self._keys.shards == 1:
            return 0
        at, depths = self._depths.get(known.id, (float("-inf"), []))
        if fresh or monotonic() - at > DEPTH_TRUSTED:
            depths = await self._jobs.depths(known.number)
            self._depths[known.id] = (monotonic(), depths)
        return sum(depth for other, depth in enumerate(depths) if other != shard)


def total(one: Added, other: Added) -> Added:
    return Added(
        queued=one.queued + other.queued,
        duplicates=one.duplicates + other.duplicates,
        dropped=one.dropped + other.dropped,
    )


MAX_FILTER_BITS = 2**32  # what one string of the server can hold


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    number: int
    terms: JobTerms


def admission_terms(terms: JobTerms, shards: int) -> tuple[int | float, ...]:
    """Budgets (-1: none), dedup window in seconds (-1: for ever), bits and hashes of the filter (0: exact)."""
    window = terms.dedup_window
    bits, hashes = (0, 0) if terms.dedup == "exact" else filter_size(terms.dedup_expected // shards, terms.dedup_error)
    return (
        -1 if terms.max_urls_per_site is None else terms.max_urls_per_site,
        -1 if terms.max_urls_per_pattern is None else terms.max_urls_per_pattern,
        -1 if window is None else window.total_seconds(),
        bits,
        hashes,
    )


def filter_size(expected: int, error: float) -> tuple[int, int]:
    """Bits and hashes of a Bloom filter that errs in at most `error` of the cases when `expected` URLs are in it."""
    bits = math.ceil(-max(expected, 1000) * math.log(error) / math.log(2) ** 2)
    return min(bits, MAX_FILTER_BITS), max(1, round(-math.log2(error)))
