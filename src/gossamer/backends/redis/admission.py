"""How candidates enter the shards, for every method that adds some. lua/admission.lua decides about each of them.

How it fails: FrontierFull if the caller wants to be refused; otherwise candidates beyond the bound wait for room. A
server that is out of memory takes none (OutOfMemory, or FrontierFull). How it recovers: offering again is harmless,
because known URLs are duplicates.
"""

from __future__ import annotations

import asyncio
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

ADD_AT_ONCE = 500  # candidates per script: a longer script would block other workers
DEPTH_TRUSTED = 1.0  # seconds that the depth of other shards is used without reading it again
JOB_TRUSTED = 5.0
STARVED_PAUSE = 0.5  # seconds between two attempts to add links to a server that is out of memory


class ShardAdmission:
    """`records` confirm a URL that the Bloom filter calls known, if the job's terms ask for that."""

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
        """The job's number and terms, read again every few seconds. Raises Permanent for an unknown job."""
        at, known = self._known.get(job, (float("-inf"), None))
        if known is None or monotonic() - at > JOB_TRUSTED:
            row = await self._jobs.row(job)
            terms = msgspec.structs.replace(row.admission(), source="")  # all pages of a batch, and not needed here
            known = KnownJob(id=job, number=row.number, terms=terms)
            self._known[job] = (monotonic(), known)
        return known

    def packed(self, known: KnownJob, candidates: Sequence[Candidate], parent: rows.Parent | None) -> bytes:
        attempts = known.terms.max_attempts
        return b"".join(rows.pack_candidate(one, max_attempts=attempts, parent=parent) for one in candidates)

    async def bound(self, known: KnownJob, shard: int, *, fresh: bool = False) -> tuple[int, int]:
        """How many URLs may wait in the job (-1: unlimited), and how many wait in the other shards."""
        bound = known.terms.max_queued
        return (-1, 0) if bound is None else (bound, await self._depth_elsewhere(known, shard, fresh=fresh))

    def note_depth(self, known: KnownJob, shard: int, queued: int) -> None:
        """Count our own additions at once, before the depths are read again."""
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
    ) -> Added:
        """Add candidates. With `refuse_when_full`, raises FrontierFull; otherwise candidates beyond the bound wait for
        room. Candidates of a replaced or cancelled job are dropped, unless they revive it (`revives`).
        Raises OutOfMemory.
        """
        groups: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            groups.setdefault(self._keys.shard_of(candidate.site), []).append(candidate)
        added = Added()
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
                    raise
                left -= len(chunk)
        return added

    async def look_twice(
        self, known: KnownJob, offered: Sequence[Candidate], answer: Sequence[Any], parent: rows.Parent | None
    ) -> Added:
        """The result of a script. Candidates that only the Bloom filter calls known are looked up in the record store,
        if the job's terms ask for that; those that the store does not know enter after all."""
        queued, duplicates, dropped, doubtful, _ = answer
        added = Added(queued=queued, duplicates=duplicates, dropped=dropped)
        if not doubtful or self._records is None or not known.terms.dedup_check:
            return added
        suspects = [offered[place - 1] for place in doubtful]
        really = await self._records.facts([one.fingerprint for one in suspects])
        wronged = [msgspec.structs.replace(one, force=True) for one in suspects if one.fingerprint not in really]
        if not wronged:
            return added
        while True:  # the page itself is settled: nobody would offer these links again
            try:
                return total(added, await self.offer(known, wronged, parent=parent, refuse_when_full=False))
            except OutOfMemory:
                await asyncio.sleep(STARVED_PAUSE)

    async def _add(
        self,
        known: KnownJob,
        shard: int,
        chunk: list[Candidate],
        whole: int | None,
        parent: rows.Parent | None,
        revives: bool,
    ) -> Added:
        """`whole` is how many candidates must fit for this chunk to enter; None: as many enter as there is room for."""
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
        self.note_depth(known, shard, answer[4])
        return await self.look_twice(known, chunk, answer, parent)

    async def _depth_elsewhere(self, known: KnownJob, shard: int, *, fresh: bool) -> int:
        """How many URLs wait in the other shards; at most a second old."""
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


MAX_FILTER_BITS = 2**32  # the longest string on the server


class KnownJob(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    number: int
    terms: JobTerms


def admission_terms(terms: JobTerms, shards: int) -> tuple[int | float, ...]:
    """Budgets (-1: none), dedup window in seconds (-1: forever), bits and hashes of the filter (0: exact)."""
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
