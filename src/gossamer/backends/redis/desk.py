"""What people ask of the queue, on Redis. Fulfils `FrontierDesk`. Answers are read, not locked: a moment's picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from ...frontier.contract import DeadFilter, DeadLetter, SiteLoad, UrlStory
from ...model.task import UrlState
from . import rows
from .connection import Server
from .jobs import JobRow, RedisJobs
from .keys import Keyspace

CHUNK = 500
AHEAD_COUNTED = 100_000


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as it was found: where, and what is known without asking further."""

    shard: int
    job: JobRow
    row: rows.Row
    number: int


class RedisDesk:
    def __init__(
        self, server: Server, keys: Keyspace, jobs: RedisJobs, *, time: Callable[[], float] | None = None
    ) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._time = time

    async def story(self, site: str, fingerprint: bytes) -> list[UrlStory]:
        stories = []
        shard = self._keys.shard_of(site)
        for job in await self._jobs.rows():
            row = await self._row(shard, job, fingerprint)
            if row is not None:
                stories.append(await self._tell(shard, site, job, row))
        return stories

    async def dead(self, which: DeadFilter, limit: int = 100) -> list[DeadLetter]:
        found = [one async for one in self._find_dead(which, limit)]
        found.sort(key=lambda one: (one.row.changed, one.number), reverse=True)
        return [await self._letter(one) for one in found[:limit]]

    async def dead_reasons(self, which: DeadFilter) -> dict[str, int]:
        counted = Counter([one.row.reason async for one in self._find_dead(which)])
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))

    async def replay(self, which: DeadFilter) -> int:
        return await self._revive(which, "replay")

    async def purge(self, which: DeadFilter) -> int:
        return await self._revive(which, "purge")

    async def sites(self, job: str, limit: int = 20) -> list[SiteLoad]:
        row = await self._jobs.row(job)
        loads: dict[tuple[int, int], tuple[int, int, int]] = {}  # by shard and site, all lanes together
        for shard in range(self._keys.shards):
            async for number, packed in self._scan(self._keys.in_shard(shard, f"{row.number}:queues")):
                queued, waiting, leased = rows.read_load(packed)
                if queued or waiting or leased:
                    which = (shard, rows.split_queue(int(number))[1])
                    before = loads.get(which, (0, 0, 0))
                    loads[which] = (before[0] + queued, before[1] + waiting, before[2] + leased)
        most = sorted(loads.items(), key=lambda entry: -sum(entry[1]))[:limit]
        answer = []
        for (shard, place), (queued, waiting, leased) in most:
            site, name = rows.read_site(await self._server.call("HGET", self._keys.in_shard(shard, "sites"), place))
            next_at = max(site.next_at, site.rest_until)
            answer.append(SiteLoad(site=name, queued=queued, waiting=waiting, leased=leased, next_at=next_at))
        return answer

    async def urls(self, job: str, state: UrlState | None = None) -> AsyncIterator[tuple[str, UrlState, str]]:
        row = await self._jobs.row(job)
        for shard in range(self._keys.shards):
            async for fingerprint, packed in self._scan(self._keys.in_shard(shard, f"{row.number}:urls")):
                found = rows.read_row(fingerprint, packed)
                if found is not None and (state is None or found.state is state):
                    yield _url(found), found.state, found.reason

    # -- how -------------------------------------------------------------------------------------------------

    async def _row(self, shard: int, job: JobRow, fingerprint: bytes) -> rows.Row | None:
        packed = await self._server.call("HGET", self._keys.in_shard(shard, f"{job.number}:urls"), fingerprint)
        return rows.read_row(fingerprint, packed) if packed else None

    async def _parent(self, site: str, job: JobRow, row: rows.Row) -> str | None:
        if row.tail is None or row.tail.parent is None:
            return None
        found = await self._row(self._keys.shard_of(row.tail.parent_site or site), job, row.tail.parent)
        return _url(found) if found is not None else None

    async def _tell(self, shard: int, site: str, job: JobRow, row: rows.Row) -> UrlStory:
        packed = await self._server.call("HGET", self._keys.in_shard(shard, "sites"), row.site)
        politeness, _ = rows.read_site(packed)
        noted = await self._server.call("HGET", self._keys.in_shard(shard, f"{job.number}:incidents"), row.fingerprint)
        incidents = msgspec.msgpack.decode(noted, type=list[tuple[float, str]]) if noted else []
        return UrlStory(
            job=job.id,
            url=_url(row),
            state=row.state,
            reason=row.reason,
            message=row.message,
            site=site,
            kind=row.tail.kind if row.tail else "",
            depth=row.depth,
            priority=row.priority,
            attempts=row.attempts,
            max_attempts=row.max_attempts,
            deliveries=row.deliveries,
            created_at=row.created,
            changed_at=row.changed,
            found_on=await self._parent(site, job, row),
            ready_at=row.at if row.state is UrlState.WAITING else None,
            worker=row.worker or None,
            lease_until=row.at if row.state is UrlState.LEASED else None,
            site_next_at=max(politeness.next_at, politeness.rest_until),
            lane=row.tail.fetcher or "" if row.tail else "",
            ahead_of_it=await self._ahead(shard, job, row) if row.state is UrlState.QUEUED else None,
            incidents=tuple(incidents),
        )

    async def _ahead(self, shard: int, job: JobRow, row: rows.Row) -> int:
        lane = 0
        if row.tail is not None and row.tail.fetcher:
            lanes = self._keys.in_shard(shard, f"{job.number}:lanes")
            lane = int(await self._server.call("HGET", lanes, rows.lane_name(row.tail.fetcher)) or 0)
        start, place = rows.place_in_queue(row, lane)
        key = self._keys.in_shard(shard, f"{job.number}:queue")
        return min(AHEAD_COUNTED, int(await self._server.call("ZLEXCOUNT", key, b"[" + start, b"(" + place)))

    async def _find_dead(self, which: DeadFilter, newest: int | None = None) -> AsyncIterator[Dead]:
        """Those that fit, all or at least so many of the newest, shard by shard."""
        for job in await self._jobs.rows():
            if which.job is not None and job.id != which.job:
                continue
            for shard, site in await self._places(which):
                times: list[float] = []
                async for row in self._buried(shard, job, whole=newest is None):
                    # Those that died at the same moment are put in order by whoever asks, so none is left out.
                    if newest is not None and len(times) >= newest and (not newest or row.changed < times[newest - 1]):
                        break
                    number = row.id * self._keys.shards + shard
                    if site in (None, row.site) and _fits(which, number, row):
                        times.append(row.changed)
                        yield Dead(shard=shard, job=job, row=row, number=number)

    async def _buried(self, shard: int, job: JobRow, *, whole: bool) -> AsyncIterator[rows.Row]:
        """Newest first. `whole`: as they stand now, whoever changes them meanwhile; else read as far as is wanted."""
        dead = self._keys.in_shard(shard, f"{job.number}:dead")
        urls = self._keys.in_shard(shard, f"{job.number}:urls")
        known = await self._server.call("ZREVRANGE", dead, 0, -1) if whole else None
        seen: set[bytes] = set()
        start = 0
        while chunk := (
            known[start : start + CHUNK]
            if known is not None
            else await self._server.call("ZREVRANGE", dead, start, start + CHUNK - 1)
        ):
            packed = await self._server.call("HMGET", urls, *chunk)
            for fingerprint, text in zip(chunk, packed, strict=True):
                row = rows.read_row(fingerprint, text) if text else None
                if row is not None and fingerprint not in seen:
                    yield row
            seen.update(chunk)
            start += len(chunk)

    async def _places(self, which: DeadFilter) -> list[tuple[int, int | None]]:
        """Shards to look into, and the number that the site asked for has there; None: any site."""
        if which.site is None:
            return [(shard, None) for shard in range(self._keys.shards)]
        shard = self._keys.shard_of(which.site)
        number = await self._server.call("HGET", self._keys.in_shard(shard, "numbers"), which.site)
        return [(shard, int(number))] if number else []

    async def _letter(self, dead: Dead) -> DeadLetter:
        row = dead.row
        packed = await self._server.call("HGET", self._keys.in_shard(dead.shard, "sites"), row.site)
        _, site = rows.read_site(packed)
        return DeadLetter(
            id=dead.number,
            job=dead.job.id,
            url=_url(row),
            site=site,
            kind=row.tail.kind if row.tail else "",
            reason=row.reason,
            message=row.message,
            attempts=row.attempts,
            deliveries=row.deliveries,
            died_at=row.changed,
            found_on=await self._parent(site, dead.job, row),
        )

    async def _revive(self, which: DeadFilter, how: str) -> int:
        groups: dict[tuple[int, int], tuple[JobRow, list[bytes]]] = {}
        async for one in self._find_dead(which):
            groups.setdefault((one.job.number, one.shard), (one.job, []))[1].append(one.row.fingerprint)
        changed = 0
        now = "" if self._time is None else repr(self._time())
        for (number, shard), (job, fingerprints) in groups.items():
            if how == "replay":
                await self._jobs.reopen(job.id)
            for start in range(0, len(fingerprints), CHUNK):
                chunk = fingerprints[start : start + CHUNK]
                changed += await self._server.run("revive", self._keys.of_job(shard, number), now, how, *chunk)
            if how == "replay":
                # Once more: somebody may have found it empty and closed it before the letters were back.
                await self._jobs.reopen(job.id)
        return changed

    async def _scan(self, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """Every field of a hash, once, however the hash changes meanwhile."""
        cursor: Any = 0
        seen: set[bytes] = set()
        while True:
            cursor, fields = await self._server.call("HSCAN", key, cursor, "COUNT", CHUNK)
            for name, value in _pairs(fields):
                if name not in seen:
                    seen.add(name)
                    yield name, value
            if int(cursor) == 0:
                return


def _pairs(fields: Any) -> Sequence[tuple[bytes, bytes]]:
    if isinstance(fields, dict):
        return list(fields.items())
    return list(zip(fields[::2], fields[1::2], strict=True))


def _url(row: rows.Row) -> str:
    return row.tail.url if row.tail is not None else f"(unreadable {row.fingerprint.hex()})"


def _fits(which: DeadFilter, number: int, row: rows.Row) -> bool:
    """Whether it is asked for, its site aside."""
    return (
        (which.id is None or number == which.id)
        and (which.url is None or _url(row) == which.url)
        and (which.reason is None or row.reason == which.reason or row.reason.startswith(f"{which.reason}-"))
    )
