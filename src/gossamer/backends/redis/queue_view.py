"""Read access to the queue on Redis, for people. Fulfils `QueueView`; dead letters are in dead_letters.py.

Reads take no lock: rows may change between two reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping

import msgspec

from ...frontier.contract import LaneLoad, QueueLoad, SiteFacts, SiteLoad, UrlFate, UrlStory
from ...frontier.queue_values import MOST_COUNTED
from ...model.task import NO_ROOM_FROM, UrlState, options_of
from . import rows
from .dead_letters import RedisDeadLetters, url_of
from .jobs import StoredJob

AHEAD_COUNTED = 100_000
DUE_COUNTED = 2_000  # due waiting tasks counted per job and shard
SITES_AT_ONCE = 500
READY_LOOKED_AT = 20  # sites of a shard and lane that could give a task now
WAITING_LOOKED_AT = 500  # waiting tasks of a shard, for the reasons of their sites


class RedisQueueView(RedisDeadLetters):
    async def story(self, site: str, fingerprint: bytes) -> list[UrlStory]:
        stories = []
        shard = self._keys.shard_of(site)
        jobs = {job.number: job for job in await self._jobs.rows()}
        for job in jobs.values():
            row = await self._row(shard, job.number, fingerprint)
            if row is not None:
                stories.append(await self._tell(shard, site, job, row, jobs))
        return stories

    async def fate(self, job: str, site: str, fingerprint: bytes) -> UrlFate | None:
        known = await self._jobs.find_row(job)
        row = await self._row(self._keys.shard_of(site), known.number, fingerprint) if known is not None else None
        if row is None:
            return None
        return UrlFate(url=url_of(row), state=row.state, reason=row.reason, message=row.message)

    async def sites(self, job: str, limit: int | None = 20, *, site: str | None = None) -> list[SiteLoad]:
        row = await self._jobs.row(job)
        wanted = await self._number_of(site) if site is not None else None
        if site is not None and wanted is None:
            return []
        names = {other.number: other.id for other in await self._jobs.rows()}
        loads: dict[tuple[int, int], tuple[int, int, int]] = {}  # by shard and site, all lanes together
        refused: set[tuple[int, int]] = set()
        for shard in range(self._keys.shards):
            async for number, packed in self._scan(self._keys.in_shard(shard, f"{row.number}:queues")):
                queued, waiting, leased = rows.read_load(packed)
                if queued or waiting or leased:
                    which = (shard, rows.split_queue(int(number))[1])
                    if wanted not in (None, which):
                        continue
                    before = loads.get(which, (0, 0, 0))
                    loads[which] = (before[0] + queued, before[1] + waiting, before[2] + leased)
                    if rows.waits_for_slot(packed):
                        refused.add(which)
        most = sorted(loads.items(), key=lambda entry: -sum(entry[1]))[:limit]
        sites = await self._site_rows([which for which, _ in most])
        reasons = await self._waiting_reasons(row) if any(load[1] for _, load in most) else {}
        nothing: tuple[str, float | None] = ("", None)
        answer = []
        for which, (queued, waiting, leased) in most:
            found, name = sites[which]
            taken = which in refused and found.in_flight and found.latest != row.number
            answer.append(
                SiteLoad(
                    site=name,
                    queued=queued,
                    waiting=waiting,
                    leased=leased,
                    next_at=max(found.next_at, found.rest_until),
                    away_since=found.away_since,
                    rest_until=found.rest_until,
                    reason=reasons.get(which, nothing)[0],
                    due_at=reasons.get(which, nothing)[1],
                    taken_by=names.get(found.latest) if taken else None,
                    asked=found.crawl_delay,
                    learned=found.learned,
                )
            )
        return answer

    async def _site_rows(self, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], tuple[rows.SiteRow, str]]:
        """The rows of sites, by shard and number; one call for many of them."""
        found: dict[tuple[int, int], tuple[rows.SiteRow, str]] = {}
        for shard in range(self._keys.shards):
            here = [number for where, number in wanted if where == shard]
            for start in range(0, len(here), SITES_AT_ONCE):
                part = here[start : start + SITES_AT_ONCE]
                packed = await self._server.call("HMGET", self._keys.in_shard(shard, "sites"), *part)
                found |= {(shard, number): rows.read_site(one) for number, one in zip(part, packed, strict=True)}
        return found

    async def _waiting_reasons(self, job: StoredJob) -> dict[tuple[int, int], tuple[str, float | None]]:
        """Why tasks wait, by shard and site: the most frequent reason among those that are due first, and when the
        first is due."""
        found: dict[tuple[int, int], Counter[str]] = {}
        due: dict[tuple[int, int], float] = {}
        for shard in range(self._keys.shards):
            answer = await self._server.call(
                "ZRANGE", self._keys.in_shard(shard, f"{job.number}:waiting"), 0, WAITING_LOOKED_AT - 1, "WITHSCORES"
            )
            first, times = answer[::2], answer[1::2]
            packed = (
                await self._server.call("HMGET", self._keys.in_shard(shard, f"{job.number}:urls"), *first)
                if first
                else []
            )
            for name, at, text in zip(first, times, packed, strict=True):
                task = rows.read_row(name, text) if text else None
                if task is not None:
                    found.setdefault((shard, task.site), Counter())[task.reason] += 1
                    due.setdefault((shard, task.site), float(at))
        return {which: (counted.most_common(1)[0][0], due[which]) for which, counted in found.items()}

    async def lanes(self, job: str) -> list[LaneLoad]:
        known = await self._jobs.find_row(job)
        if known is None:
            return []
        counts, now = await self._jobs.counts(job), await self._server.time()
        loads: dict[str, list[int]] = {"": [counts.queued, counts.waiting, counts.leased]}
        since: dict[str, float] = {}
        for shard in range(self._keys.shards):
            names = await self._server.fields(self._keys.in_shard(shard, f"{known.number}:lanes"))
            lanes = {0: "", **{int(number): name.decode("utf-8", "replace") for name, number in names.items()}}
            if len(lanes) > 1:
                async for queue, packed in self._scan(self._keys.in_shard(shard, f"{known.number}:queues")):
                    if lane := lanes.get(rows.split_queue(int(queue))[0], ""):
                        load = rows.read_load(packed)
                        loads[lane] = [a + b for a, b in zip(loads.get(lane, (0, 0, 0)), load, strict=True)]
                        loads[""] = [max(0, a - b) for a, b in zip(loads[""], load, strict=True)]
            for number, lane in lanes.items():
                for at in await self._ready_since(shard, known.number, number, now):
                    since[lane] = min(at, since.get(lane, at))
        return [
            LaneLoad(lane=lane, queued=load[0], waiting=load[1], leased=load[2], ready_since=since.get(lane))
            for lane, load in sorted(loads.items())
            if not lane or any(load)
        ]

    async def _ready_since(self, shard: int, job: int, lane: int, now: float) -> list[float]:
        """Since when some sites of a lane could have given their next task."""
        ready, sleeping, queue, urls = (
            self._keys.in_shard(shard, f"{job}:{name}") for name in ("ready", "sleeping", "queue", "urls")
        )
        first, end = rows.ready_in_lane(lane)
        found = await self._server.call("ZRANGEBYLEX", ready, first, end, "LIMIT", 0, READY_LOOKED_AT)
        sites = [int.from_bytes(place[-4:], "big") for place in found]
        woken = await self._server.call("ZRANGEBYSCORE", sleeping, "-inf", now, "LIMIT", 0, READY_LOOKED_AT)
        sites += [site for of, site in (rows.split_queue(int(one)) for one in woken) if of == lane]
        known = await self._site_rows([(shard, site) for site in sites]) if sites else {}
        times = []
        for (_, number), (site, _) in known.items():
            start = rows.queue_start(number, lane)
            head = await self._server.call("ZRANGEBYLEX", queue, b"[" + start, "+", "LIMIT", 0, 1)
            if head and head[0].startswith(start):
                name = head[0][-rows.FINGERPRINT_BYTES :]
                packed = await self._server.call("HGET", urls, name)
                row = rows.read_row(name, packed) if packed else None
                if row is not None:
                    times.append(max(row.changed, site.next_at, site.rest_until))
        return [at for at in times if at <= now]

    async def _number_of(self, site: str) -> tuple[int, int] | None:
        """The shard of a site, and its number there; None if no job has had a page of it."""
        shard = self._keys.shard_of(site)
        number = await self._server.call("HGET", self._keys.in_shard(shard, "numbers"), site)
        return (shard, int(number)) if number else None

    async def site(self, name: str) -> SiteFacts | None:
        known = await self._number_of(name)
        if known is None:
            return None
        packed = await self._server.call("HGET", self._keys.in_shard(known[0], "sites"), known[1])
        if packed is None:
            return None
        site, _ = rows.read_site(packed)
        return SiteFacts(
            site=name,
            next_at=site.next_at,
            rest_until=site.rest_until,
            asked_interval=site.asked if site.asked >= 0 else None,
            in_flight=site.in_flight,
            holder=site.holder,
            answered_at=site.answered,
            away_since=site.away_since,
            away_reason=site.away_reason,
            learned=site.learned,
        )

    async def loads(self, job: str, now: float) -> list[QueueLoad]:
        row = await self._jobs.row(job)
        found: list[QueueLoad] = []
        for shard in range(self._keys.shards):
            found += await self._loads_of(shard, row, now)
        return found

    async def _loads_of(self, shard: int, job: StoredJob, now: float) -> list[QueueLoad]:
        sums: dict[tuple[int, int], tuple[int, int]] = {}  # by lane and site
        async for number, packed in self._scan(self._keys.in_shard(shard, f"{job.number}:queues")):
            queued, _, leased = rows.read_load(packed)
            if queued or leased:
                sums[rows.split_queue(int(number))] = (queued, leased)
        numbers = await self._server.fields(self._keys.in_shard(shard, f"{job.number}:lanes"))
        lanes = {0: "", **{int(number): name.decode("utf-8", "replace") for name, number in numbers.items()}}
        places = {name: number for number, name in lanes.items()}
        for late in await self._due(shard, job, now):
            lane = late.tail.fetcher or "" if late.tail else ""
            which = (places.get(lane, 0), late.site)
            before = sums.get(which, (0, 0))
            sums[which] = (before[0] + 1, before[1])
        rows_of = await self._site_rows([(shard, site) for site in sorted({site for _, site in sums})])
        sites = {number: found for (_, number), found in rows_of.items()}
        return [
            QueueLoad(
                site=sites[site][1],
                lane=lanes.get(lane, ""),
                ready=min(ready, MOST_COUNTED),
                leased=leased,
                rest_until=sites[site][0].rest_until,
                asked=sites[site][0].crawl_delay,
                learned=sites[site][0].learned.now(now),
                away=sites[site][0].away_since is not None,
            )
            for (lane, site), (ready, leased) in sums.items()
        ]

    async def _due(self, shard: int, job: StoredJob, now: float) -> list[rows.Row]:
        """Waiting tasks that are due: no worker has asked since."""
        key = self._keys.in_shard(shard, f"{job.number}:waiting")
        due = await self._server.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, DUE_COUNTED)
        if not due:
            return []
        packed = await self._server.call("HMGET", self._keys.in_shard(shard, f"{job.number}:urls"), *due)
        read = [rows.read_row(name, one) for name, one in zip(due, packed, strict=True) if one is not None]
        return [one for one in read if one is not None]

    async def urls(self, job: str, state: UrlState | None = None) -> AsyncIterator[tuple[str, UrlState, str]]:
        row = await self._jobs.row(job)
        for shard in range(self._keys.shards):
            async for fingerprint, packed in self._scan(self._keys.in_shard(shard, f"{row.number}:urls")):
                found = rows.read_row(fingerprint, packed)
                if found is not None and (state is None or found.state is state):
                    yield url_of(found), found.state, found.reason

    # -- steps -------------------------------------------------------------------------------------------------

    async def _parent(self, site: str, job: int, row: rows.Row) -> str | None:
        if row.tail is None or row.tail.parent is None:
            return None
        found = await self._row(self._keys.shard_of(row.tail.parent_site or site), job, row.tail.parent)
        return url_of(found) if found is not None else None

    async def _tell(
        self, shard: int, site: str, job: StoredJob, row: rows.Row, jobs: Mapping[int, StoredJob]
    ) -> UrlStory:
        packed = await self._server.call("HGET", self._keys.in_shard(shard, "sites"), row.site)
        politeness, _ = rows.read_site(packed)
        lane = await self._lane(shard, job, row)
        other = jobs.get(politeness.latest) if politeness.in_flight else None
        noted = await self._server.call("HGET", self._keys.in_shard(shard, f"{job.number}:incidents"), row.fingerprint)
        incidents = msgspec.msgpack.decode(noted, type=list[tuple[float, str]]) if noted else []
        return UrlStory(
            job=job.id,
            url=url_of(row),
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
            found_on=await self._parent(site, job.number, row),
            ready_at=row.at if row.state is UrlState.WAITING and row.at < NO_ROOM_FROM else None,
            worker=row.worker or None,
            lease_until=row.at if row.state is UrlState.LEASED else None,
            site_next_at=max(politeness.next_at, politeness.rest_until),
            site_away_since=politeness.away_since,
            site_taken_by=other.id if other not in (None, job) and await self._refused(shard, job, row, lane) else None,
            lane=row.tail.fetcher or "" if row.tail else "",
            ahead_of_it=await self._ahead(shard, job, row, lane) if row.state is UrlState.QUEUED else None,
            session=options_of(row.tail.how).session if row.tail else None,
            incidents=tuple(incidents),
        )

    async def _lane(self, shard: int, job: StoredJob, row: rows.Row) -> int:
        if row.tail is None or not row.tail.fetcher:
            return 0
        lanes = self._keys.in_shard(shard, f"{job.number}:lanes")
        return int(await self._server.call("HGET", lanes, rows.lane_name(row.tail.fetcher)) or 0)

    async def _refused(self, shard: int, job: StoredJob, row: rows.Row, lane: int) -> bool:
        """Whether the page's queue waits for a slot of the site."""
        queues = self._keys.in_shard(shard, f"{job.number}:queues")
        packed = await self._server.call("HGET", queues, rows.queue_number(lane, row.site))
        return packed is not None and rows.waits_for_slot(packed)

    async def _ahead(self, shard: int, job: StoredJob, row: rows.Row, lane: int) -> int:
        start, place = rows.place_in_queue(row, lane)
        key = self._keys.in_shard(shard, f"{job.number}:queue")
        return min(AHEAD_COUNTED, int(await self._server.call("ZLEXCOUNT", key, b"[" + start, b"(" + place)))

    async def _scan(self, key: str) -> AsyncIterator[tuple[bytes, bytes]]:
        """Every field of a hash, once, however the hash changes meanwhile."""
        seen: set[bytes] = set()
        async for name, value in self._server.scan(key):
            if name not in seen:
                seen.add(name)
                yield name, value
