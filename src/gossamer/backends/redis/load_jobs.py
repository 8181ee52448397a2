"""Loads jobs and schedules from a stream of rows (state_stream.py). What exists already stays as it is."""

from __future__ import annotations

import msgspec

from ...frontier.state_rows import COUNTERS, DumpedJob
from ...model.schedule import ScheduleProgress
from .connection import Server
from .jobs import StoredJob
from .keys import DROPS, STATS, Keyspace
from .schedules import schedule_text


async def load_schedule(server: Server, keys: Keyspace, progress: ScheduleProgress) -> None:
    name, text = progress.schedule.name, schedule_text(progress)
    await server.call("HSETNX", keys.book("schedules"), name, text)
    changes = int(await server.call("HGET", keys.book("book"), "changes") or 0)
    await server.call("HSET", keys.book("book"), "changes", max(changes, progress.version))


async def load_job(server: Server, keys: Keyspace, job: DumpedJob) -> None:
    row = StoredJob(
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
    if not await server.call("HSETNX", keys.book("jobs"), job.id, msgspec.json.encode(row)):
        return
    await server.call("HDEL", keys.book("book"), "named")  # its place by name is entered later
    newest = int(await server.call("HGET", keys.book("book"), "jobs") or 0)
    await server.call("HSET", keys.book("book"), "jobs", max(newest, job.number))
    if row.given_up:
        await server.call("SADD", keys.book("dropping"), job.id)
    if job.state == "running":
        older = await server.call("HGET", keys.book("running"), job.name)
        if older:
            await server.call("HSET", keys.book("running"), b"#" + older, older)
        await server.call("HSET", keys.book("running"), job.name, job.id)
    meta = ("state", row.word, "sealed", "1" if job.sealed else "", "paused", "1" if job.paused else "")
    for shard in range(keys.shards):
        await server.call("HSET", keys.in_shard(shard, f"{row.number}:meta"), *meta)
    # It does not matter which shard counts URLs without a row: the counts are added up.
    counters = {**{name: getattr(job, name) for name in COUNTERS}, **job.forgotten}
    counters |= {STATS.decode() + name: count for name, count in job.stats.items()}
    counters |= {DROPS.decode() + reason: count for reason, count in job.drops.items()}
    await server.call(
        "HSET", keys.in_shard(0, f"{row.number}:counts"), *(word for pair in counters.items() for word in pair)
    )
