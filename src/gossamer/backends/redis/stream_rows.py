"""Rows of a stream from and to Redis: from packed hash fields, and to what lua/load_urls.lua and lua/load_sites.lua
unpack. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from ...frontier.state_rows import DumpedBudget, DumpedShape, DumpedSite, DumpedUrl, StateRow
from ...model.task import UrlState
from . import rows
from .jobs import StoredJob

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
