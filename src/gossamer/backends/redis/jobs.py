"""Jobs on Redis: opened once, looked up, paused, cancelled, closed once, deleted. Fulfils `JobBook`, `JobControl` and
`JobHistory`; also `SeedBook`, the lease to read the source of a job.

The book (keys of the project itself) is in one slot, URLs are in shards. One script decides about a job in the book,
then the shards are told. URLs of jobs that were given up or deleted are cleared in portions (cleanup.py).
How it recovers: if a process dies before all shards are told or cleared, other workers see it in the book and continue.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ...errors import Permanent
from ...frontier.contract import SeedFindings
from ...model.job import (
    COUNTERS,
    Job,
    JobCounts,
    JobState,
    JobTerms,
    number_of,
    outcome_text,
    slug,
    stopped_terms,
    summed_stats,
)
from ...model.outcome import JobOutcome
from ...model.task import Candidate
from ..cleanup import BackgroundCleanup
from .cleanup import JobCleanup
from .connection import Server
from .keys import DROPS, SEED_KEYS, STATS, Keyspace

LIMIT = "limit"  # the ending that leaves tasks in the queue
CANCELLED = "cancelled"
GIVEN_UP = ("replaced", CANCELLED)  # endings that drop open URLs
ALL = "*"  # the owner of every job, in the key `listed`
PLACED_AT_ONCE = 500
JOBS_AT_ONCE = 100
NUMBER_DIGITS = 12  # of a job's number in the keys `named` and `listed`, as lua/jobs.lua writes it


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as stored in the book. Numbers that JSON in Lua would round are texts."""

    number: int
    id: str
    name: str
    state: str
    ending: str
    sealed: bool
    created_at: str
    finished_at: str
    terms: str
    paused: bool = False
    outcome: str = ""
    start: str = ""

    @property
    def given_up(self) -> bool:
        return self.ending in GIVEN_UP

    @property
    def word(self) -> str:
        """The state as shards store it; for a job that was given up its ending, because no URL may enter any more."""
        return self.ending if self.given_up else self.state

    def admission(self) -> JobTerms:
        return msgspec.json.decode(self.terms, type=JobTerms)

    def job(self) -> Job:
        return Job.under(
            self.admission(),
            id=self.id,
            name=self.name,
            state=JobState(self.state),
            created_at=float(self.created_at),
            finished_at=float(self.finished_at) if self.finished_at else None,
            ending=self.ending,
            outcome=self.outcome,
            paused=self.paused,
            start=self.start,
        )


def read_stats(counts: dict[bytes, bytes]) -> dict[str, int]:
    """The spider's own counters, among the counts of a shard."""
    return {name[1:].decode(): int(count) for name, count in counts.items() if name.startswith(STATS)}


def read_drops(*shards: dict[bytes, bytes]) -> dict[str, int]:
    """The dropped URLs by reason, among the counts of these shards."""
    sums: Counter[str] = Counter()
    for counts in shards:
        sums.update({name[1:].decode(): int(count) for name, count in counts.items() if name.startswith(DROPS)})
    return {reason: count for reason, count in sorted(sums.items()) if count}


read_job = msgspec.json.Decoder(StoredJob).decode


class RedisJobs:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self.server = server
        self.keys = keys
        self.named = keys.book("named")
        self.listed = keys.book("listed")
        self._placing = asyncio.Lock()
        self._job_cleanup = JobCleanup(server, keys, self)
        self.cleanup = BackgroundCleanup(self._job_cleanup.clear_some, self._job_cleanup.look, server.ticks)
        self.book = tuple(
            keys.book(name) for name in ("book", "jobs", "running", "dropping", "named", "forgetting", "listed")
        )  # for lua/jobs.lua

    async def open_job(
        self, name: str, terms: JobTerms, *, fresh: bool, seeds: Sequence[Candidate] = ()
    ) -> tuple[Job, bool]:
        answer: list[Any] = []
        while not answer:
            known = await self._running(name)
            answer = await self.server.run(
                "open_job",
                self.book,
                self.server.now(),
                name,
                slug(name),
                msgspec.json.encode(terms),
                "fresh" if fresh else "",
                "" if known is None else known.id,
                b"" if known is None else msgspec.json.encode(terms.resumed(known.admission())),
            )
        text, found, replaced = answer
        row = read_job(text)
        # Also for a job that was found: the process that opened it may have died before all shards knew.
        await self.remind_shards(row.id)
        if seeds and not found:
            await self._enter(row, seeds)
        if replaced:
            await self.cleanup.finish()
        return row.job(), bool(found)

    async def _enter(self, row: StoredJob, seeds: Sequence[Candidate]) -> None:
        """Enter all seeds of a new job, and seal it."""
        from .admission import KnownJob, ShardAdmission  # here: it asks for the jobs of this file

        known = KnownJob(id=row.id, number=row.number, terms=row.admission())
        await ShardAdmission(self.server, self.keys, self).offer(known, seeds, parent=None, refuse_when_full=True)
        await self.seal_seeds(row.id)

    async def seal_seeds(self, job: str, start: str = "") -> None:
        row = await self.row(job)
        # The shards first: a job that is sealed in the book is not sealed again.
        await self._tell_shards(row.number, "sealed", "1")
        await self.change(job, "seal", start)

    async def is_sealed(self, job: str) -> bool:
        found = await self.find_row(job)
        return found is not None and found.sealed

    async def close_job(self, job: str, ending: str, outcome: JobOutcome | None = None) -> bool:
        row = await self.row(job)
        if ending != LIMIT and await self._open(row.number):
            return False
        closed = await self.change(job, "close", ending, outcome_text(outcome))
        await self.remind_shards(job)
        if closed and ending != LIMIT and await self._open(row.number):
            # A dead letter was replayed in between: the job is not over.
            await self.reopen(job)
            return False
        return closed

    async def settle_again(self, job: str, outcome: JobOutcome) -> bool:
        return await self.change(job, "settle", outcome_text(outcome))

    async def pause_job(self, job: str, paused: bool) -> bool:
        if not await self.change(job, "pause" if paused else "resume"):
            return False
        await self.remind_shards(job)
        return True

    async def cancel_job(self, job: str) -> bool:
        cancelled = await self.change(job, "cancel", CANCELLED)
        if cancelled:
            await self._job_cleanup.drop(job)  # at once: no shard hands out any more of it
        await self.cleanup.finish_soon()
        return cancelled

    async def end_soon(self, job: str, reason: str) -> bool:
        while (row := await self.find_row(job)) is not None and row.state == JobState.RUNNING:
            terms = stopped_terms(row.admission(), await self._used(row.number), reason)
            if await self.change(job, "terms", row.terms, msgspec.json.encode(terms).decode()):
                return True
        return False

    async def reopen(self, job: str) -> None:
        """Let an ended job run again."""
        await self.change(job, "reopen")
        await self.remind_shards(job)

    async def revive(self, job: str) -> None:
        """Reopen an ended job, if it has open URLs and its limit leaves room for them."""
        row = await self.row(job)
        if row.state == JobState.RUNNING or row.ending == LIMIT or not await self._open(row.number):
            return
        limit = row.admission().limit
        if limit is None or await self._used(row.number) < limit:
            await self.reopen(job)

    async def job(self, job: str) -> Job | None:
        found = await self.find_row(job)
        return found.job() if found else None

    async def jobs(self) -> list[Job]:
        return [row.job() for row in await self.rows()]

    async def page(self, limit: int, *, owners: Collection[str] | None = None, after: str | None = None) -> list[Job]:
        below = number_of(after) if after is not None else None
        await self._see_that_all_have_places()
        whom, found = (ALL,) if owners is None else tuple(owners), list[Job]()
        while len(found) < limit:
            behind = (self._ids_behind(self.listed, whose, limit, below=below) for whose in whom)
            ids = sorted({id for some in await asyncio.gather(*behind) for id in some}, key=_number, reverse=True)
            if not ids:
                break
            found += await self._jobs_of(ids[:limit])
            below = _number(ids[:limit][-1])
        return found[:limit]

    async def owners(self, jobs: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = await self._jobs_of([job.encode() for job in jobs[start : start + JOBS_AT_ONCE]])
            found |= {job.id: job.owner for job in some}
        return found

    async def newest_jobs(self, name: str, limit: int, *, skip: int = 0) -> list[Job]:
        await self._see_that_all_have_places()
        return await self._jobs_of(await self._ids_behind(self.named, name, limit, skip=skip))

    async def forget_jobs(self, jobs: Sequence[str]) -> int:
        await self._see_that_all_have_places()
        forgotten = 0
        for job in jobs:
            row = await self.find_row(job)
            if row is None or await self._in_progress(row.number):
                continue
            if not await self.change(job, "forget", "owned" if row.admission().owner else ""):
                continue
            forgotten += 1
            for name in SEED_KEYS:
                await self.server.call("HDEL", self.keys.book(name), job)
            await self.server.call("UNLINK", self.keys.book(f"seed_sites:{job}"))
        if forgotten:
            self.cleanup.begin()
        return forgotten

    async def running_jobs(self) -> list[Job]:
        return [row.job() for row in await self.running_rows()]

    async def newest_number(self) -> int:
        return int(await self.server.call("HGET", self.keys.book("book"), "jobs") or 0)

    async def terms(self, job: str) -> JobTerms:
        return (await self.row(job)).admission()

    async def counts(self, job: str) -> JobCounts:
        found = await self.counts_of([job])
        return found[job][0] if found else JobCounts()

    async def counts_of(self, jobs: Sequence[str]) -> dict[str, tuple[JobCounts, bool]]:
        found: dict[str, tuple[JobCounts, bool]] = {}
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = jobs[start : start + JOBS_AT_ONCE]
            texts = await self.server.call("HMGET", self.keys.book("jobs"), *some)
            rows = [read_job(text) for text in texts if text]
            counts = await self._all_counts([row.number for row in rows])
            found |= {row.id: (_summed(shards), row.sealed) for row, shards in zip(rows, counts, strict=True)}
        return found

    # -- for the other parts of this backend -----------------------------------------------------------------

    async def stats(self, number: int) -> dict[str, int]:
        """The own counters of a job's spider, summed over all shards."""
        (shards,) = await self._all_counts([number])
        return summed_stats(*map(read_stats, shards))

    async def drops(self, number: int) -> dict[str, int]:
        """The dropped URLs of a job by reason, summed over all shards."""
        (shards,) = await self._all_counts([number])
        return read_drops(*shards)

    async def _all_counts(self, numbers: Sequence[int]) -> list[list[dict[bytes, bytes]]]:
        """For each of these jobs, the counts of each shard."""
        keys = self.keys
        counts = await self.server.hashes(
            [keys.in_shard(shard, f"{number}:counts") for number in numbers for shard in range(keys.shards)]
        )
        return [counts[start : start + keys.shards] for start in range(0, len(counts), keys.shards)]

    async def row(self, job: str) -> StoredJob:
        """Raises Permanent for an unknown job."""
        found = await self.find_row(job)
        if found is None:
            raise Permanent(f"There is no job {job!r}. `gossamer status` lists the jobs.")
        return found

    async def rows(self) -> list[StoredJob]:
        """Every job, newest first."""
        answer = await self.server.call("HVALS", self.keys.book("jobs"))
        return sorted((read_job(text) for text in answer), key=lambda row: -row.number)

    async def running_rows(self) -> list[StoredJob]:
        """Every unfinished job, oldest first."""
        ids = await self.server.call("HVALS", self.keys.book("running"))
        texts = await self.server.call("HMGET", self.keys.book("jobs"), *ids) if ids else []
        rows = sorted((read_job(text) for text in texts if text), key=lambda row: row.number)
        return [row for row in rows if row.state == JobState.RUNNING]

    async def remind_shards(self, job: str) -> bool:
        """Tell the shards the state of a job from the book, which decides if they differ. True while it runs."""
        return (await self.tell_of(job)).state == JobState.RUNNING

    async def tell_of(self, job: str) -> StoredJob:
        """As `remind_shards`; returns the row that they were told."""
        row = await self.row(job)
        while True:
            sealed = ("sealed", "1") if row.sealed else ()
            await self._tell_shards(row.number, "state", row.word, "paused", "1" if row.paused else "", *sealed)
            now = await self.row(job)
            if (now.word, now.paused) == (row.word, row.paused):
                return now
            row = now  # the job changed meanwhile, and the older state may have been written last

    async def is_known_to_shards(self, row: StoredJob) -> bool:
        """Whether all shards know the state of a job that the book has."""
        told = await self._of_all_shards(row.number, "meta", ("state", "paused"))
        return all((state, paused == b"1") == (row.word.encode(), row.paused) for state, paused in told)

    async def drop_soon(self, job: str) -> None:
        """Stop handing out URLs of a job that was given up; drop its open URLs in the background."""
        if not await self._job_cleanup.drop(job):
            self.cleanup.begin()

    async def clear_all(self) -> None:
        """Delete what deleted jobs left, and drop the open URLs of jobs that were given up; return when it is done."""
        await self.cleanup.finish()

    async def note_cleared(self, job: str, finished_at: str) -> None:
        """Note that a job that was given up at that time has no open URLs left. Changes nothing if it has run since."""
        await self.change(job, "cleared", finished_at)

    async def close(self) -> None:
        await self.cleanup.close()

    async def find_row(self, job: str) -> StoredJob | None:
        text = await self.server.call("HGET", self.keys.book("jobs"), job)
        return read_job(text) if text else None

    async def depths(self, number: int) -> list[int]:
        """How many URLs are queued or waiting, without links that wait for room, by shard."""
        return [
            int(queued or 0) + int(waiting or 0) - int(postponed or 0)
            for queued, waiting, postponed in await self._of_all_shards(
                number, "counts", ("queued", "waiting", "postponed")
            )
        ]

    async def _open(self, number: int) -> int:
        """How many URLs are queued, waiting or leased."""
        shards = await self._of_all_shards(number, "counts", ("queued", "waiting", "leased"))
        return sum(int(count or 0) for counts in shards for count in counts)

    async def _in_progress(self, number: int) -> bool:
        """Whether URLs of the job are leased, so that it holds slots of sites."""
        return any(int(leased or 0) for (leased,) in await self._of_all_shards(number, "counts", ("leased",)))

    async def _used(self, number: int) -> int:
        """How many pages count towards the job's limit."""
        shards = await self._of_all_shards(number, "counts", ("redirected", "done", "unchanged", "dead", "leased"))
        return sum(sum(int(count or 0) for count in pages) - int(redirected or 0) for redirected, *pages in shards)

    async def _running(self, name: str) -> StoredJob | None:
        job = await self.server.call("HGET", self.keys.book("running"), name)
        return await self.find_row(job.decode()) if job else None

    async def _of_all_shards(self, number: int, key: str, names: Sequence[str]) -> list[Any]:
        keys = self.keys
        return await asyncio.gather(
            *(
                self.server.call("HMGET", keys.in_shard(shard, f"{number}:{key}"), *names)
                for shard in range(keys.shards)
            )
        )

    async def change(self, job: str, verb: str, what: str = "", outcome: str = "") -> bool:
        """Run lua/change_job.lua."""
        return bool(await self.server.run("change_job", self.book, self.server.now(), job, verb, what, outcome))

    async def _tell_shards(self, number: int, *fields: str) -> None:
        """Write fields, given as names and values, in every shard."""
        keys = self.keys
        await asyncio.gather(
            *(self.server.call("HSET", keys.in_shard(shard, f"{number}:meta"), *fields) for shard in range(keys.shards))
        )

    async def _see_that_all_have_places(self) -> None:
        """Enter jobs in `named` and `listed` that were opened before these keys existed, by processes of a version
        without them, or were moved here."""
        if await self._have_all_places():
            return
        async with self._placing:  # once, however many callers ask at the same time
            if await self._have_all_places():
                return
            rows = await self.rows()
            for start in range(0, len(rows), PLACED_AT_ONCE):
                some = rows[start : start + PLACED_AT_ONCE]
                named = [_place(row.name, row.number, row.id) for row in some]
                listed = [_place(whose, row.number, row.id) for row in some for whose in (ALL, row.admission().owner)]
                for key, places in ((self.named, named), (self.listed, listed)):
                    await self.server.call("ZADD", key, *(word for place in places for word in (0, place)))
            await self.server.call("HSET", self.keys.book("book"), "named", 1, "listed", 1)

    async def _have_all_places(self) -> bool:
        known, jobs, listed = await self.server.together(
            [
                ("HMGET", self.keys.book("book"), "named", "listed"),
                ("HLEN", self.keys.book("jobs")),
                ("ZLEXCOUNT", self.listed, f"[{ALL}\0", f"({ALL}\1"),
            ]
        )
        return None not in known and jobs <= listed

    async def _ids_behind(
        self, key: str, whose: str, limit: int, *, skip: int = 0, below: int | None = None
    ) -> list[bytes]:
        """Ids of jobs with a name in `named` or an owner in `listed`, newest first; only those `below` a number."""
        first = whose.encode() + b"\0"
        beyond = whose.encode() + b"\1" if below is None else _place(whose, below)
        places = await self.server.call("ZREVRANGEBYLEX", key, b"(" + beyond, b"[" + first, "LIMIT", skip, limit)
        return [place[len(first) + NUMBER_DIGITS :] for place in places]

    async def _jobs_of(self, ids: Sequence[bytes]) -> list[Job]:
        """Those that have not been deleted meanwhile."""
        texts = await self.server.call("HMGET", self.keys.book("jobs"), *ids) if ids else []
        return [read_job(text).job() for text in texts if text]


def _summed(shards: Sequence[dict[bytes, bytes]]) -> JobCounts:
    totals = {name: sum(int(counts.get(name.encode(), 0)) for counts in shards) for name in COUNTERS}
    return JobCounts(**totals, stats=summed_stats(*map(read_stats, shards)), drops=read_drops(*shards))


def _number(id: bytes) -> int:
    return number_of(id.decode())


def _place(whose: str, number: int, id: str = "") -> bytes:
    """As `place_among` in lua/jobs.lua."""
    return b"%b\0%0*d%b" % (whose.encode(), NUMBER_DIGITS, number, id.encode())


SITES_AT_ONCE = 1_000


class RedisSeedBook:
    """Which worker reads the source of a job. Fulfils `SeedBook`; see lua/seed_lease.lua. Time is the server's
    clock."""

    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._book = keys.book

    async def claim(self, job: str, worker: str, duration: timedelta) -> bool:
        return bool(
            await self._server.run(
                "seed_lease", self._keys(job), self._server.now(), "claim", job, worker, duration.total_seconds()
            )
        )

    async def holder(self, job: str) -> str | None:
        found: bytes = await self._server.run("seed_lease", self._keys(job), self._server.now(), "holder", job)
        return found.decode() or None

    async def release(self, job: str, worker: str) -> None:
        await self._server.run("seed_lease", self._keys(job), self._server.now(), "release", job, worker)

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        named = list(sites)
        for start in range(0, max(len(named), 1), SITES_AT_ONCE):
            part = named[start : start + SITES_AT_ONCE]
            await self._server.run("seed_lease", self._keys(job), self._server.now(), "note", job, trouble, *part)

    async def findings(self, job: str) -> SeedFindings:
        _, sites, troubles = self._keys(job)
        found, trouble = await self._server.call("SMEMBERS", sites), await self._server.call("HGET", troubles, job)
        return SeedFindings(frozenset(site.decode() for site in found), (trouble or b"").decode())

    def _keys(self, job: str) -> tuple[str, str, str]:
        return self._book("seed_leases"), self._book(f"seed_sites:{job}"), self._book("troubles")
