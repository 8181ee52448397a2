"""The lease: look at all shards, choose the best queues, take tasks from them. lua/serve.lua decides.

A lease takes two calls: `prepare` brings a shard up to date and names its best ready sites; then `serve` takes tasks of
them under the terms of this worker's settings for those sites. Whatever changed in between, `serve` checks slot and
rate itself, in one atomic step.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic

import msgspec

from ...errors import BackendUnavailable
from ...frontier.contract import RENEWAL, LeaseBatch
from ...frontier.politeness import SiteTerms, TermsFor
from ...model.job import JobState, JobTerms
from ...model.task import Lease
from . import rows
from .admission import KnownJob
from .connection import ANSWER_SECONDS, Server
from .jobs import RedisJobs, StoredJob
from .keys import Keyspace

ORPHAN_CHECK = 2.0  # seconds between two checks for dead workers of this machine and abandoned jobs
OTHERS_AT_ONCE = 50  # other jobs that are checked then; if there are more, they take turns
NOT_READY = timedelta(milliseconds=50)  # to wait until all shards know a job that is being opened or closed
PAUSED = timedelta(seconds=1)  # how often a worker checks whether a paused job was resumed
LOCK_SECONDS = 5
SITES_AT_ONCE = 100
NAMES_CACHED = 50_000  # of sites, per shard
_READY = struct.Struct(">IIi")  # a queue as lua/prepare.lua names it: lane, site, priority
# After a restart of the server nothing is handed out for this many seconds, or for the length of a lease: by then every
# worker has renewed its leases, even if its last call to the dead server had to time out first.
AFTER_RESTART = ANSWER_SECONDS + RENEWAL.total_seconds() + 1
TOO_FAR = 3600.0  # seconds; times further ahead than this were written while the clock was ahead


class ShardReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a shard, as lua/prepare.lua reports it."""

    shard: int
    state: str
    sealed: bool
    paused: bool
    queued: int
    waiting: int
    leased: int
    used: int
    discovered: int
    wait: float | None
    beyond: int | None
    ready: tuple[tuple[int, str, int], ...]  # number, site and priority of queues, best first
    turn: int  # when the best one was last served

    @property
    def open(self) -> int:
        return self.queued + self.waiting + self.leased


class LeaseRequest(msgspec.Struct, frozen=True):
    """A worker that wants tasks, and its lanes (see rows.pack_lanes)."""

    worker: str
    lanes: bytes


class OrphanRounds:
    """When to check other jobs for dead workers: once per process, however many jobs it works on."""

    def __init__(self) -> None:
        self._next_at = -math.inf
        self._looked_at = 0  # number of the last job

    def begin(self, now: float) -> bool:
        """True if it is time for a check, which the caller then does."""
        if now < self._next_at:
            return False
        self._next_at = now + ORPHAN_CHECK
        return True

    def next_in_turn(self, jobs: list[StoredJob]) -> list[StoredJob]:
        """The jobs to check now: those after the last checked ones, then from the beginning."""
        jobs.sort(key=lambda row: (row.number <= self._looked_at, row.number))
        self._looked_at = jobs[:OTHERS_AT_ONCE][-1].number if jobs else 0
        return jobs[:OTHERS_AT_ONCE]


class RedisTaskDispatcher:
    """Hands out tasks. `is_gone(worker)` is True if the worker's process certainly no longer exists."""

    def __init__(
        self,
        server: Server,
        keys: Keyspace,
        jobs: RedisJobs,
        *,
        lease_seconds: float,
        terms_for: TermsFor,
        is_gone: Callable[[str], bool],
        rounds: OrphanRounds,
    ) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._lease_seconds = lease_seconds
        self._longest = max(2 * lease_seconds, TOO_FAR)  # other workers may have longer leases in their settings
        self._calm = min(lease_seconds, AFTER_RESTART)
        self._terms_for = terms_for
        self._is_gone = is_gone
        self._orphans_checked = -math.inf
        self._rounds = rounds
        self.sites_at_once = SITES_AT_ONCE
        self._restarts = [b""] * keys.shards  # the last one that each shard reported
        self._names: list[dict[int, str]] = [{} for _ in range(keys.shards)]

    @property
    def epoch(self) -> str:
        """Changes with every restart of a server."""
        return b" ".join(self._restarts).decode()

    async def lease(self, job: KnownJob, request: LeaseRequest, n: int) -> tuple[LeaseBatch, list[Lease]]:
        """The batch, and leases on rows that turned out not to be Gossamer's tasks."""
        gone = await self._look_after_orphans(job, request.worker)
        if job.terms.limit is None or self._keys.shards == 1:
            return await self._lease(job, request, n, gone)
        async with self.alone(job):
            return await self._lease(job, request, n, gone)

    async def _lease(
        self, job: KnownJob, request: LeaseRequest, n: int, gone: list[str]
    ) -> tuple[LeaseBatch, list[Lease]]:
        granted: list[Lease] = []
        foreign: list[Lease] = []
        reminded = False
        while True:
            try:
                reports = await self.look(job, request, n - len(granted), gone)
            except BackendUnavailable:
                if granted:  # otherwise these tasks would be lost until their leases end
                    break
                raise
            gone = []
            if granted and not any(look.ready for look in reports):
                break
            if not granted and any(look.state != "running" for look in reports):
                # The job has just started, or has ended: the book knows.
                if not await self._jobs.remind_shards(job.id):
                    return LeaseBatch(drained=True), foreign
                if reminded:
                    return LeaseBatch(wait=NOT_READY), foreign
                reminded = True
                continue
            if not granted:
                over = await self._over(job, request, reports)
                if over is not None:
                    return over, foreign
            try:
                served = await self.serve_best(job, request, n - len(granted), reports)
            except BackendUnavailable:
                if granted:
                    break
                raise
            before = len(granted)
            more = len(served) < sum(bool(look.ready) for look in reports)
            for shard, answer in served:
                more = more or bool(answer[0])
                for packed in answer[1:]:
                    lease, ours = rows.read_lease(packed, job.id, lambda number, at=shard: self._task_id(number, at))
                    (granted if ours else foreign).append(lease)
            if len(granted) >= n or (granted and (not more or len(granted) == before)):
                break
        return LeaseBatch(leases=tuple(granted)), foreign

    async def _over(self, job: KnownJob, request: LeaseRequest, reports: list[ShardReport]) -> LeaseBatch | None:
        """The empty batch if no task is available now; None if one may be."""
        limit = job.terms.limit
        if limit is not None and sum(look.used for look in reports) >= limit:
            return LeaseBatch(drained=all(look.leased == 0 for look in reports))
        paused = any(look.paused for look in reports)
        if any(look.ready for look in reports) and not paused:
            return None
        if all(look.sealed and not look.open for look in reports) and await self._still_empty(job, request, reports):
            return LeaseBatch(drained=True)
        if paused:
            return LeaseBatch(wait=PAUSED)
        waits = [look.wait for look in reports if look.wait is not None]
        return LeaseBatch(wait=timedelta(seconds=min(waits)) if waits else None)

    async def _still_empty(self, job: KnownJob, request: LeaseRequest, reports: list[ShardReport]) -> bool:
        """That each shard was empty when it was read proves nothing: a link may have entered a shard that was read
        before.

        If no shard discovered anything between two reports, all of them were empty at the same time.
        """
        if len(reports) == 1:
            return True
        again = await self.look(job, request, 1, [])
        return all(
            late.sealed and not late.open and late.discovered == early.discovered
            for early, late in zip(reports, again, strict=True)
        )

    async def look(self, job: KnownJob, request: LeaseRequest, n: int, gone: list[str]) -> list[ShardReport]:
        shards = range(self._keys.shards)
        if len(shards) == 1:
            return [await self._look_at(job, request, n, gone, 0)]
        return list(await asyncio.gather(*(self._look_at(job, request, n, gone, shard) for shard in shards)))

    async def _look_at(self, job: KnownJob, request: LeaseRequest, n: int, gone: list[str], shard: int) -> ShardReport:
        state, sealed, paused, counters, wait, beyond, calm, turn, queues = await self._server.run(
            "prepare",
            self._keys.of_job(shard, job.number),
            self._server.now(),
            request.worker,
            min(n, self.sites_at_once),
            job.terms.max_deliveries,
            request.lanes,
            self._longest,
            self._calm,
            _share(job.terms, self._keys.shards),
            *gone,
        )
        queued, waiting, leased, done, unchanged, dead, redirected, discovered = counters
        if self._restarts[shard] != calm:
            self._names[shard].clear()  # numbers that new sites got just before the restart may be given again
            self._restarts[shard] = calm
        ready = list(_READY.iter_unpack(queues))
        names = await self._names_of(shard, [site for _, site, _ in ready])
        return ShardReport(
            shard=shard,
            state=state.decode(),
            sealed=sealed == b"1",
            paused=paused == b"1",
            queued=queued,
            waiting=waiting,
            leased=leased,
            used=done + unchanged + dead + leased - redirected,
            discovered=discovered,
            wait=float(wait) if wait else None,
            beyond=int(beyond) if beyond else None,
            ready=tuple((rows.queue_number(lane, site), names[site], priority) for lane, site, priority in ready),
            turn=int(turn),
        )

    async def _names_of(self, shard: int, sites: list[int]) -> dict[int, str]:
        """The names of these sites, by number. A site's number never changes, so each is read once."""
        known = self._names[shard]  # of all jobs: any of them may clear it while we wait for the server
        names = {site: known[site] for site in sites if site in known}
        unknown = [site for site in dict.fromkeys(sites) if site not in names]
        if unknown:
            if len(known) + len(unknown) > NAMES_CACHED:
                known.clear()
            packed = await self._server.call("HMGET", self._keys.in_shard(shard, "sites"), *unknown)
            asked = {site: rows.site_name(row) for site, row in zip(unknown, packed, strict=True)}
            known.update(asked)
            names.update(asked)
        return names

    async def serve_best(
        self, job: KnownJob, request: LeaseRequest, n: int, reports: list[ShardReport]
    ) -> list[tuple[int, list[bytes]]]:
        """Take tasks from the shards with the best priority, in equal shares if there are several."""
        able = [look for look in reports if look.ready]
        best = max(look.ready[0][2] for look in able)
        tied = sorted((look for look in able if look.ready[0][2] == best), key=lambda look: look.turn)[:n]
        share = -(-n // len(tied))
        used = sum(look.used for look in reports)
        answers: list[tuple[int, list[bytes]]] = []
        left = n
        for look in tied:
            others = [other.ready[0][2] for other in able if other is not look]
            bounds = [bound for bound in (look.beyond, *others) if bound is not None]
            try:
                answer = await self._serve(
                    job, request, min(share, left), look, max(bounds) if bounds else None, used - look.used
                )
            except BackendUnavailable:
                if any(len(answer) > 1 for _, answer in answers):
                    break
                raise
            left -= len(answer) - 1
            used += len(answer) - 1
            answers.append((look.shard, answer))
            if left <= 0:
                break
        return answers

    async def _serve(
        self, job: KnownJob, request: LeaseRequest, n: int, look: ShardReport, beyond: int | None, used_elsewhere: int
    ) -> list[bytes]:
        answer: list[bytes] = await self._server.run(
            "serve",
            self._keys.of_job(look.shard, job.number),
            self._server.now(),
            request.worker,
            n,
            self._lease_seconds,
            -1 if job.terms.limit is None else job.terms.limit,
            used_elsewhere,
            "" if beyond is None else beyond,
            request.lanes,
            b"".join(
                _pack_terms(number, self._terms_for(name).under(job.terms.politeness)) for number, name, _ in look.ready
            ),
            job.terms.priority,
        )
        return answer

    def _task_id(self, number: int, shard: int) -> int:
        """Unique in the job, although each shard counts for itself."""
        return number * self._keys.shards + shard

    async def _look_after_orphans(self, job: KnownJob, worker: str) -> list[str]:
        """Return the workers of this machine that died with leases of this job; recover leases of other jobs.

        The process that paused or resumed this job may have died before all shards knew: they are told here.
        """
        if self._server.ticks() - self._orphans_checked < ORPHAN_CHECK:
            return []
        self._orphans_checked = self._server.ticks()
        ours = await self._jobs.row(job.id)
        looked_after = [ours] if ours.state == JobState.RUNNING else []
        if self._rounds.begin(self._server.ticks()):
            await self._jobs.cleanup.resume()
            others = [row for row in await self._jobs.running_rows() if row.number != job.number]
            looked_after += self._rounds.next_in_turn(others)
        gone: list[str] = []
        for row in looked_after:
            if row.number == job.number and not await self._jobs.is_known_to_shards(row):
                await self._jobs.remind_shards(row.id)
            for shard in range(self._keys.shards):
                holders = await self._server.call("HKEYS", self._keys.in_shard(shard, f"{row.number}:holders"))
                names = [name.decode("utf-8", "surrogatepass") for name in holders]
                dead = [name for name in names if name != worker and self._is_gone(name)]
                if row.number == job.number:
                    gone += dead
                elif names:
                    # That job may have no worker left, but all jobs share the slots that it holds.
                    keys, terms = self._keys.of_job(shard, row.number), row.admission()
                    await self._server.run(
                        "prepare", keys, self._server.now(), "", 0, terms.max_deliveries, b"", self._longest,
                        self._calm, _share(terms, self._keys.shards), *dead,
                    )  # fmt: skip
        return gone

    @asynccontextmanager
    async def alone(self, job: KnownJob) -> AsyncIterator[None]:
        """A lock for a page limit across shards: one worker at a time counts and leases. Raises BackendUnavailable."""
        key, token = self._keys.book(f"lock:{job.number}"), secrets.token_hex(8)
        deadline = monotonic() + 2 * LOCK_SECONDS
        while not await self._server.call("SET", key, token, "NX", "EX", LOCK_SECONDS):
            if monotonic() > deadline:
                raise BackendUnavailable("Another worker has held the lock on this job's page count for too long.")
            await asyncio.sleep(0.005)
        try:
            yield
        finally:
            with suppress(BackendUnavailable):  # the lock expires by itself, and granted leases must not be lost
                await self._server.run("unlock", (key,), token)


def _pack_terms(number: int, terms: SiteTerms) -> bytes:
    interval = -1.0 if terms.interval is None else terms.interval.total_seconds()
    own = -1.0 if terms.own_interval is None else terms.own_interval.total_seconds()
    return struct.pack(
        ">QdIIdIB", number, interval, terms.burst, terms.concurrency or 0, own, terms.own_concurrency or 0, terms.rests
    )


def _share(terms: JobTerms, shards: int) -> int:
    """How many URLs the queue of one shard may hold when links that wait for room enter it; -1: unlimited."""
    return -1 if terms.max_queued is None else terms.max_queued // shards
