"""The state on Redis as a stream of rows. Fulfils `StateStream`. lua/load_urls.lua and lua/load_sites.lua write."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...errors import BackendUnavailable, Misconfigured
from ...fetch.robots import RobotsEntry
from ...frontier.contract import SeedFindings
from ...frontier.state_rows import (
    COUNTERS,
    SHELF,
    SHELF_LEFT,
    STATES,
    DumpedBudget,
    DumpedJob,
    DumpedOrder,
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
from ...model.job import JobTerms
from ...model.schedule import ScheduleProgress
from ...model.stream import MoveMark
from ...model.task import UrlState
from ...routing.contract import LearnedRoute
from ..schedule_rows import readable
from . import rows, stream_rows
from .connection import Server
from .jobs import JobRow, RedisJobs, RedisSeedBook
from .keys import DROPS, JOB_KEYS, SEED_KEYS, SHARD_KEYS, STATS, Keyspace
from .robots import RedisRobotsShelf
from .routes import RedisBudgetBook, RedisRouteBook
from .schedules import RedisSchedules, schedule_text
from .shelf import RedisShelf
from .site_orders import RedisSiteOrders

BATCH = 500  # rows in memory
MARK = "mark"  # a field of the book
BOOK_KEYS = (
    "jobs", "running", "dropping", "named", "listed", "workers", "standings", "purses", "schedules", "leader",
    *SEED_KEYS, "orders", "drains",
)  # fmt: skip
WALKS = 5  # HSCAN may return an entry twice; then the hash is scanned again


class RedisStateStream:
    def __init__(
        self,
        server: Server,
        keys: Keyspace,
        *,
        jobs: RedisJobs,
        schedules: RedisSchedules,
        seeds: RedisSeedBook,
        robots: RedisRobotsShelf,
        routes: RedisRouteBook,
        budgets: RedisBudgetBook,
    ) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._schedules = schedules
        self._seeds = seeds
        self._robots = robots
        self._routes = routes
        self._budgets = budgets
        self._shelf = RedisShelf(server, keys)
        self._orders = RedisSiteOrders(server, keys, jobs)

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
            for shard in range(self._keys.shards):
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
            for shard in range(self._keys.shards):
                counts["path shapes"] += await self._server.call("HLEN", self._key(shard, job, "shapes"))
                async for _, noted in self._scan(self._key(shard, job, "incidents")):
                    counts["incidents"] += len(stream_rows.incidents(noted))
        for shard in range(self._keys.shards):
            counts["sites"] += await self._server.call("HLEN", self._keys.in_shard(shard, "numbers"))
        for name, key in (
            ("learned routes", "standings"),
            ("purses", "purses"),
            ("schedules", "schedules"),
            ("site orders", "orders"),
        ):
            counts[name] = await self._server.call("HLEN", self._keys.book(key))
        counts.update(await count_shelf(self._shelf))
        return {name: count for name, count in {"jobs": len(jobs), **counts}.items() if count}

    async def dump(self) -> AsyncIterator[Sequence[StateRow]]:
        await self._jobs.clear_all()
        jobs = sorted(await self._jobs.rows(), key=lambda job: job.number)
        yield [await self._dumped_job(job) for job in jobs]
        async for some in dump_shelf(self._shelf):
            yield some
        yield [DumpedSchedule(readable(one)) for one in await self._schedules.everything()]
        yield [
            DumpedSeeds(job.id, sown) for job in jobs if (sown := await self._seeds.findings(job.id)) != SeedFindings()
        ]
        names: dict[tuple[int, int], str] = {}
        for shard in range(self._keys.shards):
            async for batch in _batches(self._scan(self._keys.in_shard(shard, "sites"))):
                sites = [(int(number), *rows.read_site(packed)) for number, packed in batch]
                names.update({(shard, number): name for number, _, name in sites})
                yield [stream_rows.dumped_site(site, name) for _, site, name in sites]
        yield [DumpedOrder(one) for one in await self._orders.orders()]
        async for batch in _batches(self._server.names(f"gossamer:{{{self._keys.project}.*}}:robots:*")):
            yield [entry for name in batch if (entry := await self._dumped_robots(name)) is not None]
        async for batch in _batches(self._routes.walk()):
            yield [msgspec.convert(msgspec.structs.asdict(one), DumpedRoute) for one in batch]
        yield [DumpedSpending(name=name, spent=units) for name, units in (await self._budgets.units()).items()]
        for job in jobs:
            for shard in range(self._keys.shards):
                async for items in self._dump_shard(job, shard, names):
                    yield items

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
                    await self._server.call("HSETNX", self._keys.book("purses"), item.name, item.spent)
                case DumpedJob():
                    await self._add_job(item)
                case DumpedSeeds(job_id, sown):
                    await self._seeds.note(job_id, sown.sites, sown.trouble)
                case DumpedRow():
                    await self._shelf.commit([item.put()])
                case DumpedOrder(order):
                    await self._orders.give(order)
                case DumpedSchedule():
                    await self._add_schedule(item.standing)
        now = repr(await self.time())
        for verb, groups in (("load_sites", rest), ("load_urls", urls)):
            for (shard, job), texts in groups.items():
                await self._server.run(verb, self._keys.of_job(shard, job), now, *texts)

    async def finish(self) -> None:
        """Nothing to do: a URL names its parent by fingerprint."""

    async def clear(self) -> None:
        await self._jobs.clear_all()  # and with it what deleted jobs have left
        for job in await self._jobs.rows():
            for shard in range(self._keys.shards):
                await self._server.call("UNLINK", *(self._key(shard, job, name) for name in JOB_KEYS))
            await self._server.call("UNLINK", self._keys.book(f"sown:{job.id}"))
        for shard in range(self._keys.shards):
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

    def _key(self, shard: int, job: JobRow, name: str) -> str:
        return self._keys.in_shard(shard, f"{job.number}:{name}")

    async def _scan(self, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """Every field of a hash, in constant memory; rarely a field twice."""
        cursor: Any = 0
        while True:
            cursor, fields = await self._server.call("HSCAN", key, cursor, "COUNT", BATCH)
            for pair in fields.items() if isinstance(fields, dict) else zip(fields[::2], fields[1::2], strict=True):
                yield pair
            if int(cursor) == 0:
                return

    async def _rows(self, shard: int, job: JobRow, fingerprints: Sequence[bytes]) -> list[rows.Row]:
        found: list[rows.Row] = []
        for start in range(0, len(fingerprints), BATCH):
            part = fingerprints[start : start + BATCH]
            packed = await self._server.call("HMGET", self._key(shard, job, "urls"), *part)
            read = (rows.read_row(name, text) for name, text in zip(part, packed, strict=True) if text)
            found += [row for row in read if row is not None]
        return found

    async def _count_states(self, job: JobRow) -> Counter[str]:
        states: Counter[str] = Counter()
        for shard in range(self._keys.shards):
            key = self._key(shard, job, "urls")
            for _ in range(WALKS):
                seen: Counter[str] = Counter()
                async for name, packed in self._scan(key):
                    row = rows.read_row(name, packed)
                    seen[row.state.value if row is not None else "unreadable"] += 1
                if seen.total() == await self._server.call("HLEN", key):
                    break
            else:
                raise BackendUnavailable(f"The URLs of {job.id} cannot be counted: another process is changing them.")
            states += seen
        return states

    async def _counters(self, job: JobRow) -> dict[str, int]:
        names = (*COUNTERS, *STATES)
        totals = dict.fromkeys(names, 0)
        for shard in range(self._keys.shards):
            values = await self._server.call("HMGET", self._key(shard, job, "counts"), *names)
            for name, value in zip(names, values, strict=True):
                totals[name] += int(value or 0)
        return totals

    async def _dumped_job(self, job: JobRow) -> DumpedJob:
        terms = msgspec.json.decode(job.terms, type=JobTerms)
        if terms.dedup != "exact" and job.state == "running":
            raise Misconfigured(
                f"The job {job.id} deduplicates by a filter, which only this server can read: elsewhere it would fetch "
                f"again what it has done. Let it finish (or start it over with --fresh), then run this again."
            )
        counters, states = await self._counters(job), await self._count_states(job)
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
            forgotten={name: counters[name] - states[name] for name in STATES if counters[name] != states[name]},
            stats=await self._jobs.stats(job.number),
            drops=await self._jobs.drops(job.number),
            **{name: counters[name] for name in COUNTERS},
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

    async def _dump_shard(
        self, job: JobRow, shard: int, names: dict[tuple[int, int], str]
    ) -> AsyncIterator[Sequence[StateRow]]:
        async for batch in _batches(self._scan(self._key(shard, job, "queues"))):
            # URLs are counted in the queue without a lane: its number is the site's.
            counted = ((rows.split_queue(int(number))[1], rows.read_taken(packed)) for number, packed in batch)
            taken = ((names[shard, site], count) for site, count in counted)
            yield [DumpedBudget(job=job.number, site=site, taken=count) for site, count in taken if count]
        async for batch in _batches(self._scan(self._key(shard, job, "shapes"))):
            yield [stream_rows.dumped_shape(job, which, int(count), shard, names) for which, count in batch]
        async for batch in _batches(self._scan(self._key(shard, job, "urls"))):
            read = [row for name, packed in batch if (row := rows.read_row(name, packed)) is not None]
            there = [row for row in read if row.state is not UrlState.QUEUED]
            yield await self._dumped_urls(job, shard, there, names)
        after = b"-"
        while members := await self._server.call(
            "ZRANGEBYLEX", self._key(shard, job, "queue"), after, "+", "LIMIT", 0, BATCH
        ):
            after = b"(" + members[-1]
            there = await self._rows(shard, job, [member[-16:] for member in members])
            yield await self._dumped_urls(job, shard, there, names)

    async def _dumped_urls(
        self, job: JobRow, shard: int, there: Sequence[rows.Row], names: dict[tuple[int, int], str]
    ) -> list[StateRow]:
        if not there:
            return []
        key = self._key(shard, job, "incidents")
        noted = await self._server.call("HMGET", key, *(row.fingerprint for row in there))
        return [
            stream_rows.dumped_url(job, row, names[shard, row.site], stream_rows.incidents(told))
            for row, told in zip(there, noted, strict=True)
        ]

    # -- writing -----------------------------------------------------------------------------------------------

    async def _add_schedule(self, standing: ScheduleProgress) -> None:
        name, text = standing.schedule.name, schedule_text(standing)
        await self._server.call("HSETNX", self._keys.book("schedules"), name, text)
        changes = int(await self._server.call("HGET", self._keys.book("book"), "changes") or 0)
        await self._server.call("HSET", self._keys.book("book"), "changes", max(changes, standing.version))

    async def _add_job(self, job: DumpedJob) -> None:
        row = JobRow(
            number=job.number,
            id=job.id,
            name=job.name,
            state=job.state,
            ending=job.ending,
            sealed=job.sealed,
            paused=job.paused,
            outcome=job.outcome,
            start=job.start,
            created_at=repr(job.created_at),
            finished_at="" if job.finished_at is None else repr(job.finished_at),
            terms=msgspec.json.encode(job.terms).decode(),
        )
        if not await self._server.call("HSETNX", self._keys.book("jobs"), job.id, msgspec.json.encode(row)):
            return
        await self._server.call("HDEL", self._keys.book("book"), "named")  # its place by name is entered later
        newest = int(await self._server.call("HGET", self._keys.book("book"), "jobs") or 0)
        await self._server.call("HSET", self._keys.book("book"), "jobs", max(newest, job.number))
        if row.given_up:
            await self._server.call("SADD", self._keys.book("dropping"), job.id)
        if job.state == "running":
            older = await self._server.call("HGET", self._keys.book("running"), job.name)
            if older:
                await self._server.call("HSET", self._keys.book("running"), b"#" + older, older)
            await self._server.call("HSET", self._keys.book("running"), job.name, job.id)
        meta = ("state", row.word, "sealed", "1" if job.sealed else "", "paused", "1" if job.paused else "")
        for shard in range(self._keys.shards):
            await self._server.call("HSET", self._key(shard, row, "meta"), *meta)
        # It does not matter which shard counts URLs without a row: the counts are added up.
        counters = {**{name: getattr(job, name) for name in COUNTERS}, **job.forgotten}
        counters |= {STATS.decode() + name: count for name, count in job.stats.items()}
        counters |= {DROPS.decode() + reason: count for reason, count in job.drops.items()}
        await self._server.call(
            "HSET", self._key(0, row, "counts"), *(word for pair in counters.items() for word in pair)
        )


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
