"""The state on Redis as a stream of rows. Fulfils `StateStream`. lua/load_urls.lua and lua/load_sites.lua write."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec

from ...errors import BackendUnavailable, Misconfigured
from ...fetch.robots_shelf import RobotsEntry
from ...frontier.contract import SeedFindings
from ...frontier.state_rows import (
    CALLBACK_KINDS,
    COUNTERS,
    SHELF,
    SHELF_LEFT,
    STATES,
    DumpedBudget,
    DumpedJob,
    DumpedRobots,
    DumpedRoute,
    DumpedRow,
    DumpedSchedule,
    DumpedSeeds,
    DumpedShape,
    DumpedSite,
    DumpedSpending,
    DumpedUrl,
    StateRow,
    count_shelf,
    dump_shelf,
    job_counts,
    stats_counted,
)
from ...model.job import JobState, JobTerms
from ...model.stream import MoveMark
from ...routing.contract import LearnedRoute
from ..schedule_rows import readable
from . import rows, stream_rows
from .connection import Server
from .jobs import RedisJobs, RedisSeedBook, StoredJob, read_job
from .keys import JOB_KEYS, SEED_KEYS, SHARD_KEYS, Keyspace
from .routes import RedisBudgetBook, RedisRobotsShelf, RedisRouteBook
from .schedules import read_schedule
from .shelf import RedisShelf, unpack_row
from .state_cut import CutSeen, JobCut, ShardCut, cut_job, require_clock

BATCH = 500  # rows in memory
MARK = "mark"  # a field of the book
BOOK_KEYS = (
    "jobs", "running", "dropping", "named", "listed", "workers", "learned_routes", "budgets", "schedules", "leader",
    *SEED_KEYS, "drains",
)  # fmt: skip
Names = dict[tuple[int, int], str]  # of sites, by shard and number
Taken = tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]
WALKS = 5  # HSCAN may return an entry twice; then the hash is scanned again


class RedisStateStream:
    def __init__(
        self,
        server: Server,
        keys: Keyspace,
        *,
        jobs: RedisJobs,
        seeds: RedisSeedBook,
        robots: RedisRobotsShelf,
        routes: RedisRouteBook,
        budgets: RedisBudgetBook,
    ) -> None:
        self._server = server
        self._keys = keys
        self._shards = range(keys.shards)
        self._jobs = jobs
        self._seeds = seeds
        self._robots = robots
        self._routes = routes
        self._budgets = budgets
        self._shelf = RedisShelf(server, keys)

    async def mark(self) -> MoveMark | None:
        text = await self._server.call("HGET", self._keys.book("book"), MARK)
        return msgspec.json.decode(text, type=MoveMark) if text else None

    async def set_mark(self, mark: MoveMark | None) -> None:
        book = self._keys.book("book")
        if mark is None:
            await self._server.call("HDEL", book, MARK)
        else:
            await self._server.call("HSET", book, MARK, msgspec.json.encode(mark))

    async def time(self) -> float:
        return await self._server.time()

    async def holders(self) -> list[str]:
        now, found = await self.time(), set()
        name, until = await self._server.call("HMGET", self._keys.book("leader"), "name", "until")
        if name and float(until) > now:
            found.add(name.decode("utf-8", "surrogatepass"))
        for job in await self._jobs.rows():
            for shard in self._shards:
                leased = await self._server.call(
                    "ZRANGEBYSCORE", self._key(shard, job, "leased"), f"({now!r}", "+inf"
                )  # few: as many as the workers hold
                found |= {row.worker for row in await self._rows(shard, job, leased)}
        return sorted(found)

    async def counts(self) -> dict[str, int]:
        await self._jobs.clear_all()
        counts: Counter[str] = Counter()
        jobs = await self._jobs.rows()
        for job in jobs:
            states = await self._count_states(job)
            counters = await self._counters(job)
            extras = {name: counters[name] for name in COUNTERS}
            extras |= stats_counted(await self._jobs.stats(job.number), await self._jobs.drops(job.number))
            forgotten = {f"{state} without a row": counters[state] - states[state] for state in STATES}
            counts.update(job_counts(job.id, states, {**extras, **forgotten}))
            for shard in self._shards:
                counts["path shapes"] += await self._server.call("HLEN", self._key(shard, job, "shapes"))
                async for _, noted in self._server.scan(self._key(shard, job, "incidents"), BATCH):
                    counts["incidents"] += len(stream_rows.incidents(noted))
        for shard in self._shards:
            counts["sites"] += await self._server.call("HLEN", self._keys.in_shard(shard, "numbers"))
        for name, key in (
            ("learned routes", "learned_routes"),
            ("budgets", "budgets"),
            ("schedules", "schedules"),
        ):
            counts[name] = await self._server.call("HLEN", self._keys.book(key))
        counts.update(await count_shelf(self._shelf))
        return {name: count for name, count in {"jobs": len(jobs), **counts}.items() if count}

    async def dump(self) -> AsyncGenerator[Sequence[StateRow]]:
        await self._jobs.clear_all()
        # Before the cut: then a job has taken these URLs at least, and its limits refuse none that they would not have
        # refused.
        taken = {job.number: [await self._taken(job, shard) for shard in self._shards] for job in await self._going()}
        jobs, callbacks, schedules = await self._book()
        # Those that run first, so that their cuts are close to the moment of the book.
        cuts = {job.number: await self._cut(job) for job in sorted(jobs, key=lambda job: job.state != JobState.RUNNING)}
        yield [await self._dumped_job(job, cuts[job.number]) for job in jobs]
        yield callbacks
        async for some in dump_shelf(self._shelf, [kind for kind in SHELF if kind not in CALLBACK_KINDS]):
            yield some
        yield schedules
        yield [
            DumpedSeeds(job.id, sown) for job in jobs if (sown := await self._seeds.findings(job.id)) != SeedFindings()
        ]
        names: Names = {}
        for shard in self._shards:
            async for batch in _batches(self._server.scan(self._keys.in_shard(shard, "sites"), BATCH)):
                sites = [(int(number), *rows.read_site(packed)) for number, packed in batch]
                names.update({(shard, number): name for number, _, name in sites})
                yield [stream_rows.dumped_site(site, name) for _, site, name in sites]
        async for batch in _batches(self._server.names(f"gossamer:{{{self._keys.project}.*}}:robots:*")):
            yield [entry for name in batch if (entry := await self._dumped_robots(name)) is not None]
        async for batch in _batches(self._routes.walk()):
            yield [msgspec.convert(msgspec.structs.asdict(one), DumpedRoute) for one in batch]
        for job in jobs:
            for shard, cut in enumerate(cuts[job.number].shards):
                counted = taken[job.number][shard] if job.number in taken else await self._taken(job, shard)
                yield stream_rows.dumped_budgets(job, counted[0], shard, names)
                yield [stream_rows.dumped_shape(job, which, int(count), shard, names) for which, count in counted[1]]
                async for items in self._dump_urls(job, shard, cut, names):
                    yield items
            await self._require_same(job)
        # Last of all: what the copied pages have cost is in it.
        yield [DumpedSpending(name=name, spent=units) for name, units in (await self._budgets.units()).items()]

    async def load(self, batch: Sequence[StateRow]) -> None:
        urls: dict[tuple[int, int], list[bytes]] = {}
        rest: dict[tuple[int, int], list[bytes]] = {}
        for item in batch:
            match item:
                case DumpedUrl():
                    urls.setdefault((self._keys.shard_of(item.site), item.job), []).append(stream_rows.pack_url(item))
                case DumpedSite():
                    packed = stream_rows.pack_site(item)
                    rest.setdefault((self._keys.shard_of(item.name), 0), []).append(packed)
                case DumpedBudget():
                    packed = stream_rows.head(2, item.site) + struct.pack(">I", item.taken)
                    rest.setdefault((self._keys.shard_of(item.site), item.job), []).append(packed)
                case DumpedShape():
                    packed = (
                        stream_rows.head(3, item.site)
                        + struct.pack(">I", item.taken)
                        + stream_rows.text(item.shape, 2, 1024)
                    )
                    rest.setdefault((self._keys.shard_of(item.site), item.job), []).append(packed)
                case DumpedRobots():
                    await self._robots.put(msgspec.convert(msgspec.structs.asdict(item), RobotsEntry))
                case DumpedRoute():
                    await self._routes.learn(
                        msgspec.convert(msgspec.structs.asdict(item), LearnedRoute), instead_of=None
                    )
                case DumpedSpending():
                    await self._server.call("HSETNX", self._keys.book("budgets"), item.name, item.spent)
                case DumpedJob():
                    await stream_rows.load_job(self._server, self._keys, item)
                case DumpedSeeds(job_id, sown):
                    await self._seeds.note(job_id, sown.sites, sown.trouble)
                case DumpedRow():
                    await self._shelf.commit([item.put()])
                case DumpedSchedule():
                    await stream_rows.load_schedule(self._server, self._keys, item.progress)
        now = repr(await self.time())
        for verb, groups in (("load_sites", rest), ("load_urls", urls)):
            for (shard, job), texts in groups.items():
                await self._server.run(verb, self._keys.of_job(shard, job), now, *texts)

    async def finish(self) -> None:
        """Nothing to do: a URL names its parent by fingerprint."""

    async def clear(self) -> None:
        await self._jobs.clear_all()  # and with it what deleted jobs have left
        for job in await self._jobs.rows():
            for shard in self._shards:
                await self._server.call("UNLINK", *(self._key(shard, job, name) for name in JOB_KEYS))
            await self._server.call("UNLINK", self._keys.book(f"sown:{job.id}"))
        for shard in self._shards:
            await self._server.call("UNLINK", *(self._keys.in_shard(shard, name) for name in SHARD_KEYS))
        async for name in self._server.names(f"gossamer:{{{self._keys.project}.*}}:robots:*"):
            if self._origin(name) is not None:
                await self._server.call("UNLINK", name)
        await self._server.call(
            "UNLINK",
            *(self._keys.book(name) for name in BOOK_KEYS),
        )
        await self._shelf.clear((*SHELF, *SHELF_LEFT))
        await self._server.call("HDEL", self._keys.book("book"), "jobs", "changes", "named")

    # -- reading -----------------------------------------------------------------------------------------------

    def _key(self, shard: int, job: StoredJob, name: str) -> str:
        return self._keys.in_shard(shard, f"{job.number}:{name}")

    async def _rows(self, shard: int, job: StoredJob, fingerprints: Sequence[bytes]) -> list[rows.Row]:
        found: list[rows.Row] = []
        for start in range(0, len(fingerprints), BATCH):
            part = fingerprints[start : start + BATCH]
            packed = await self._server.call("HMGET", self._key(shard, job, "urls"), *part)
            read = (rows.read_row(name, text) for name, text in zip(part, packed, strict=True) if text)
            found += [row for row in read if row is not None]
        return found

    async def _count_states(self, job: StoredJob) -> Counter[str]:
        states: Counter[str] = Counter()
        for shard in self._shards:
            key = self._key(shard, job, "urls")
            for _ in range(WALKS):
                seen: Counter[str] = Counter()
                async for name, packed in self._server.scan(key, BATCH):
                    row = rows.read_row(name, packed)
                    seen[row.state.value if row is not None else "unreadable"] += 1
                if seen.total() == await self._server.call("HLEN", key):
                    break
            else:
                raise BackendUnavailable(f"The URLs of {job.id} cannot be counted: another process is changing them.")
            states += seen
        return states

    async def _counters(self, job: StoredJob) -> dict[str, int]:
        names = (*COUNTERS, *STATES)
        totals = dict.fromkeys(names, 0)
        for shard in self._shards:
            values = await self._server.call("HMGET", self._key(shard, job, "counts"), *names)
            for name, value in zip(names, values, strict=True):
                totals[name] += int(value or 0)
        return totals

    async def _going(self) -> list[StoredJob]:
        return [job for job in await self._jobs.rows() if job.state == JobState.RUNNING]

    async def _book(self) -> tuple[list[StoredJob], list[StateRow], list[StateRow]]:
        """Jobs, callbacks and schedules as of one moment: a tick that was fired has its job, and one that was not has
        none; a callback that was sent has a job that has ended."""
        keys = [*map(self._keys.book, ("jobs", "schedules")), *map(self._shelf.key_of, CALLBACK_KINDS)]
        found = await self._server.run("read_book", keys)
        jobs, schedules, *callbacks = (dict(zip(one[::2], one[1::2], strict=True)) for one in found)
        return (
            sorted(map(read_job, jobs.values()), key=lambda job: job.number),
            [
                DumpedRow(kind=kind, key=row.key, value=row.value, at=row.at, until=row.until)
                for kind, fields in zip(CALLBACK_KINDS, callbacks, strict=True)
                for row in (unpack_row(key, packed) for key, packed in fields.items())
            ],
            [DumpedSchedule(readable(read_schedule(name, text))) for name, text in sorted(schedules.items())],
        )

    async def _cut(self, job: StoredJob) -> JobCut:
        return await cut_job(self._server, self._keys, job)

    async def _taken(self, job: StoredJob, shard: int) -> Taken:
        """The counted URLs of each queue and of each path shape."""
        queues = [pair async for pair in self._server.scan(self._key(shard, job, "queues"), BATCH)]
        return queues, [pair async for pair in self._server.scan(self._key(shard, job, "shapes"), BATCH)]

    async def _require_same(self, job: StoredJob) -> None:
        """Refuse the copy of an ended job that has come back, or was deleted, while its URLs were read. Raises
        BackendUnavailable."""
        if job.state != JobState.RUNNING and await self._jobs.find_row(job.id) != job:
            raise BackendUnavailable(f"The job {job.id} was changed while it was copied. Run this again.")

    async def _dumped_job(self, job: StoredJob, cut: JobCut) -> DumpedJob:
        terms = msgspec.json.decode(job.terms, type=JobTerms)
        forgotten: dict[str, int] = {}
        if terms.dedup != "exact":
            if job.state == JobState.RUNNING:
                raise Misconfigured(
                    f"The job {job.id} deduplicates by a filter, which only this server can read: elsewhere it would "
                    f"fetch again what it has done. Let it finish (or start it over with --fresh), then run this again."
                )
            states = await self._count_states(job)
            forgotten = {name: count - states[name] for name, count in cut.by_state.items() if count != states[name]}
        return DumpedJob(
            number=job.number,
            id=job.id,
            name=job.name,
            state=job.state,
            sealed=job.sealed,
            paused=job.paused,
            ending=job.ending,
            outcome=job.outcome,
            start=job.start,
            created_at=float(job.created_at),
            finished_at=float(job.finished_at) if job.finished_at else None,
            terms=terms,
            forgotten=forgotten,
            stats=cut.stats,
            drops=cut.drops,
            **cut.counters,
        )

    async def _dumped_robots(self, name: bytes) -> DumpedRobots | None:
        origin = self._origin(name)
        entry = await self._robots.get(origin) if origin is not None else None
        return msgspec.convert(msgspec.structs.asdict(entry), DumpedRobots) if entry is not None else None

    def _origin(self, name: bytes) -> str | None:
        """The origin in the name of a key, if the key is this project's: another project's name may start like ours."""
        tag, _, origin = name.decode("utf-8", "surrogatepass").partition(":robots:")
        shard = tag.removeprefix(f"gossamer:{{{self._keys.project}.").removesuffix("}")
        return origin if shard.isdigit() and int(shard) < self._keys.shards else None

    async def _dump_urls(
        self, job: StoredJob, shard: int, cut: ShardCut, names: Names
    ) -> AsyncIterator[Sequence[StateRow]]:
        """Queued URLs in the order in which they would be leased, then the others. Tasks change their places meanwhile:
        each is in the copy once. Raises BackendUnavailable if some are missing."""
        seen, unreadable, after = CutSeen(), set[bytes](), b"-"
        while members := await self._server.call(
            "ZRANGEBYLEX", self._key(shard, job, "queue"), after, "+", "LIMIT", 0, BATCH
        ):
            after = b"(" + members[-1]
            there = await self._rows(shard, job, [member[-16:] for member in members])
            yield await self._dumped_urls(
                job, shard, [row for row in there if cut.holds(row) and seen.add(row.id)], cut, names
            )
        async for batch in _batches(self._server.scan(self._key(shard, job, "urls"), BATCH)):
            read = [(name, rows.read_row(name, packed)) for name, packed in batch]
            unreadable |= {name for name, row in read if row is None}
            there = [row for _, row in read if row is not None and cut.holds(row) and seen.add(row.id)]
            yield await self._dumped_urls(job, shard, there, cut, names)
        if (found := len(seen) + len(unreadable)) != cut.urls:
            raise BackendUnavailable(
                f"{found:,} of {cut.urls:,} URLs of {job.id} were found: the server was restarted, or its keys were "
                f"moved, while they were read. Run this again."
            )
        await require_clock(self._server, self._keys, job, shard, cut)

    async def _dumped_urls(
        self, job: StoredJob, shard: int, there: Sequence[rows.Row], cut: ShardCut, names: Names
    ) -> list[StateRow]:
        if not there:
            return []
        key = self._key(shard, job, "incidents")
        noted = await self._server.call("HMGET", key, *(row.fingerprint for row in there))
        return [
            stream_rows.dumped_url(job, cut.as_of(row), names[shard, row.site], stream_rows.incidents(told))
            for row, told in zip(there, noted, strict=True)
        ]


async def _batches(things: AsyncIterator[Any]) -> AsyncIterator[list[Any]]:
    batch: list[Any] = []
    async for thing in things:
        batch.append(thing)
        if len(batch) == BATCH:
            yield batch
            batch = []
            await asyncio.sleep(0)
    if batch:
        yield batch
