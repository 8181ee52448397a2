"""Rows of a stream from and to Redis: from packed hash fields, and to what lua/load_urls.lua and lua/load_sites.lua
unpack; and how jobs and schedules are loaded: what exists already stays as it is."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from ...frontier.state_rows import COUNTERS, DumpedBudget, DumpedJob, DumpedShape, DumpedSite, DumpedUrl, StateRow
from ...model.schedule import ScheduleProgress
from ...model.task import UrlState
from . import rows
from .connection import Server
from .jobs import StoredJob
from .keys import DROPS, STATS, Keyspace
from .schedules import schedule_text

_URL = struct.Struct(">16sBiIIIIddd")
_LEAST, _MOST = -(2**31) + 1, 2**31 - 1  # priorities that fit into a row


def incidents(noted: bytes | None) -> tuple[tuple[float, str], ...]:
    return msgspec.msgpack.decode(noted, type=tuple[tuple[float, str], ...]) if noted else ()


def dumped_site(site: rows.SiteRow, name: str) -> DumpedSite:
    return DumpedSite(
        name=name,
        next_at=site.next_at,
        rest_until=site.rest_until,
        asked_interval=site.asked if site.asked >= 0 else None,
        in_progress=site.in_flight,
        learned_interval=site.learned.interval,
        refused_at=site.learned.refused_at,
        between_refusals=site.learned.between,
    )


def pack_site(site: DumpedSite) -> bytes:
    asked, learned = (-1.0 if one is None else one for one in (site.asked_interval, site.learned_interval))
    taught = (learned, site.refused_at, site.between_refusals)
    return head(1, site.name) + struct.pack(">dddddd", site.next_at, site.rest_until, asked, *taught)


def dumped_budgets(
    job: StoredJob, queues: Iterable[tuple[bytes, bytes]], shard: int, names: dict[tuple[int, int], str]
) -> list[StateRow]:
    # URLs are counted in the queue without a lane: its number is the site's.
    counted = ((rows.split_queue(int(number))[1], rows.read_taken(packed)) for number, packed in queues)
    return [DumpedBudget(job=job.number, site=names[shard, site], taken=count) for site, count in counted if count]


def dumped_shape(
    job: StoredJob, which: bytes, taken: int, shard: int, names: dict[tuple[int, int], str]
) -> DumpedShape:
    number, _, shape = which.partition(b" ")
    return DumpedShape(
        job=job.number, site=names[shard, int(number)], shape=shape.decode("utf-8", "ignore"), taken=taken
    )


def dumped_url(job: StoredJob, row: rows.Row, site: str, incidents: tuple[tuple[float, str], ...]) -> DumpedUrl:
    tail = row.tail or rows.Tail(f"(unreadable {row.fingerprint.hex()})", "")
    return DumpedUrl(
        job=job.number,
        site=site,
        fingerprint=row.fingerprint,
        url=tail.url,
        state=UrlState.QUEUED if row.state is UrlState.LEASED else row.state,
        reason=row.reason,
        message=row.message,
        priority=row.priority,
        depth=row.depth,
        attempts=row.attempts,
        deliveries=row.deliveries,
        max_attempts=row.max_attempts,
        due_at=row.at if row.state is UrlState.WAITING else None,
        created_at=row.created,
        changed_at=row.changed,
        kind=tail.kind,
        data=tail.data,
        redirects=tail.redirects,
        fetcher=tail.fetcher,
        proxy_pool=tail.proxy_pool,
        country=tail.country,
        how=tail.how,
        parent=tail.parent,
        parent_site=tail.parent_site,
        incidents=incidents,
    )


def pack_url(url: DumpedUrl) -> bytes:
    tail = rows.Tail(
        url=url.url,
        kind=url.kind,
        data=url.data,
        redirects=url.redirects,
        proxy_pool=url.proxy_pool,
        country=url.country,
        parent=url.parent,
        parent_site=url.parent_site if url.parent_site != url.site else None,
        how=url.how,
    )
    head = _URL.pack(
        url.fingerprint,
        rows.STATE_NUMBERS[url.state],
        min(max(url.priority, _LEAST), _MOST),
        url.attempts,
        url.deliveries,
        url.depth,
        url.max_attempts,
        url.due_at or 0.0,
        url.created_at,
        url.changed_at,
    )
    incidents = msgspec.msgpack.encode(url.incidents) if url.incidents else b""
    heads = (text(url.site, 2, 60_000), text(url.reason, 2, 60_000), text(url.message, 2, 60_000))
    return b"".join((head, *heads, len(incidents).to_bytes(4, "big"), incidents, rows.pack_tail(url.fetcher, tail)))


def head(kind: int, site: str) -> bytes:
    return bytes((kind,)) + text(site, 2, 60_000)


def text(value: str, width: int, most: int) -> bytes:
    """The text with its length in `width` bytes before it."""
    encoded = value.encode("utf-8", "surrogatepass")[:most]
    return len(encoded).to_bytes(width, "big") + encoded


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
