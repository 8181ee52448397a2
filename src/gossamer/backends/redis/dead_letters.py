"""Dead letters on Redis: listed, replayed, resolved, purged. Fulfils `DeadLetters`.

A letter is resolved together with the links of its page in one script, if the links belong to the shard of the page,
are not too many, and the job is running. Otherwise the links are added first, then the job is reopened for them, and
the letter is resolved last: a crash in between repeats work and loses nothing, because adding is idempotent.

How it fails: BackendUnavailable. How it recovers: call again, and the rest is done. If two callers resolve a letter at
the same time, one succeeds; the links of the other are duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...frontier.contract import Added, DeadFilter, DeadLetter, LetterPlace
from ...model.task import REPLAYED_PRIORITY, Candidate, UrlState
from . import rows
from .admission import ADD_AT_ONCE, KnownJob, ShardAdmission, admission_terms, total
from .connection import Server
from .jobs import RedisJobs, StoredJob
from .keys import Keyspace

CHUNK = 500
GONE, ENDED = -1, -2  # answers of lua/resolve.lua


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter with its shard, its job and its row."""

    shard: int
    job: StoredJob
    row: rows.Row
    number: int

    @property
    def place(self) -> LetterPlace:
        return LetterPlace(self.row.changed, self.number, self.job.id)


class RedisDeadLetters:
    def __init__(
        self,
        server: Server,
        keys: Keyspace,
        jobs: RedisJobs,
        admission: ShardAdmission,
    ) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._admission = admission

    async def dead(self, which: DeadFilter, limit: int = 100, *, before: LetterPlace | None = None) -> list[DeadLetter]:
        found = [one async for one in self._find_dead(which, limit, before)]
        found.sort(key=lambda one: one.place, reverse=True)
        newest = found[:limit]
        chunks = [await self._written(newest[start : start + CHUNK]) for start in range(0, len(newest), CHUNK)]
        return [letter for chunk in chunks for letter in chunk]

    async def letters(self, which: DeadFilter) -> AsyncIterator[DeadLetter]:
        found: list[Dead] = []
        async for one in self._find_dead(which):
            found.append(one)
            if len(found) == CHUNK:
                for letter in await self._written(found):
                    yield letter
                found = []
        for letter in await self._written(found):
            yield letter

    async def dead_reasons(self, which: DeadFilter) -> dict[str, int]:
        counted: Counter[str] = Counter()
        async for one in self._find_dead(which):
            counted[one.row.reason] += 1
        return dict(sorted(counted.items(), key=_most_first))

    async def dead_sites(self, which: DeadFilter, limit: int) -> dict[str, int]:
        some: dict[tuple[int, int], Dead] = {}  # one letter of each site
        counted: Counter[tuple[int, int]] = Counter()
        async for one in self._find_dead(which):
            place = one.shard, one.row.site
            some[place] = one
            counted[place] += 1
        names = await self._sites_of(list(some.values()))
        return dict(sorted(((names[place], count) for place, count in counted.items()), key=_most_first)[:limit])

    async def replay(self, which: DeadFilter) -> int:
        return await self._revive(which, "replay")

    async def purge(self, which: DeadFilter) -> int:
        return await self._revive(which, "purge")

    async def resolve(
        self, letter: DeadLetter, discovered: Sequence[Candidate] = (), *, duplicates: int = 0, reason: str = ""
    ) -> Added | None:
        known = await self._admission.job(letter.job)
        home = self._keys.shard_of(letter.site)
        links = [one for one in discovered if one.fingerprint != letter.fingerprint]
        to_itself = len(discovered) - len(links)
        row = await self._row(home, known.number, letter.fingerprint)
        if row is None or row.state is not UrlState.DEAD or row.changed != letter.died_at:
            return None
        duplicates += to_itself
        if len(links) <= ADD_AT_ONCE and all(self._keys.shard_of(one.site) == home for one in links):
            answer = await self._settle(known, letter, row.token, duplicates, reason, links)
            if answer[0] == GONE:
                return None
            if answer[0] != ENDED:
                added = await self._admission.look_twice(known, links, answer, letter)
                return total(added, Added(duplicates=to_itself))
        await self._jobs.clear_all()  # otherwise the links would be dropped with the URLs that were given up
        added = await self._admission.offer(known, links, parent=letter, refuse_when_full=False, revives=True)
        await self._jobs.revive(letter.job)
        answer = await self._settle(known, letter, row.token, duplicates, reason, ())
        return None if answer[0] == GONE else total(added, Added(duplicates=to_itself))

    # -- steps -------------------------------------------------------------------------------------------------

    async def _settle(
        self,
        known: KnownJob,
        letter: DeadLetter,
        token: int,
        duplicates: int,
        reason: str,
        links: Sequence[Candidate],
    ) -> list[Any]:  # Any: three numbers, then a list of them
        home = self._keys.shard_of(letter.site)
        bound = await self._admission.bound(known, home)
        answer: list[Any] = await self._server.run(
            "resolve",
            self._keys.of_job(home, known.number),
            self._server.now(),
            *bound,
            *admission_terms(known.terms, self._keys.shards),
            letter.fingerprint,
            token,
            duplicates,
            rows.pack_reason(reason),
            self._admission.packed(known, links, letter),
        )
        self._admission.note_depth(known, home, answer[4] if len(answer) > 4 else 0)
        return answer

    async def _revive(self, which: DeadFilter, how: str) -> int:
        groups: dict[tuple[int, int], tuple[StoredJob, list[bytes]]] = {}
        async for one in self._find_dead(which):
            groups.setdefault((one.job.number, one.shard), (one.job, []))[1].append(one.row.fingerprint)
        changed = 0
        if how == "replay":
            await self._jobs.clear_all()  # otherwise a job would run again with URLs that were given up
        for (number, shard), (job, fingerprints) in groups.items():
            first = "" if job.admission().limit is None else REPLAYED_PRIORITY  # or others use up the limit
            if how == "replay":
                await self._jobs.reopen(job.id)
            for start in range(0, len(fingerprints), CHUNK):
                chunk = fingerprints[start : start + CHUNK]
                changed += await self._server.run(
                    "revive", self._keys.of_job(shard, number), self._server.now(), how, first, *chunk
                )
            if how == "replay":
                # Once more: a worker may have found the job empty and closed it before the letters were back.
                await self._jobs.reopen(job.id)
        return changed

    async def _find_dead(
        self, which: DeadFilter, newest: int | None = None, before: LetterPlace | None = None
    ) -> AsyncIterator[Dead]:
        """Matching letters, shard by shard: all of them, or at least the `newest` of each shard; those `before` a
        place."""
        jobs = [job for job in await self._jobs.rows() if which.job in (None, job.id)]
        places = await self._places(which)
        some = await self._with_letters(jobs, [shard for shard, _ in places]) if which.fingerprint is None else None
        for job in jobs:
            for shard, site in places:
                if some is not None and (job.number, shard) not in some:
                    continue
                times: list[float] = []
                async for row in self._buried(shard, job.number, which.fingerprint, before):
                    # The caller sorts letters that died at the same moment, so none of them may be left out.
                    if newest is not None and len(times) >= newest and (not newest or row.changed < times[newest - 1]):
                        break
                    number = row.id * self._keys.shards + shard
                    one = Dead(shard=shard, job=job, row=row, number=number)
                    if before is not None and not one.place < before:
                        continue
                    if site in (None, row.site) and _fits(which, number, row):
                        if newest is not None:
                            times.append(row.changed)
                        yield one

    async def _with_letters(self, jobs: Sequence[StoredJob], shards: Sequence[int]) -> set[tuple[int, int]]:
        """The jobs that have letters, each with the shard: most have none, and are not queried one by one."""
        found: set[tuple[int, int]] = set()
        for shard in shards:
            for start in range(0, len(jobs), CHUNK):
                numbers = [job.number for job in jobs[start : start + CHUNK]]
                keys = [self._keys.in_shard(shard, f"{number}:dead") for number in numbers]
                counts = await self._server.run("dead_counts", keys)
                found |= {(number, shard) for number, count in zip(numbers, counts, strict=True) if count}
        return found

    async def _buried(
        self, shard: int, job: int, only: bytes | None, place: LetterPlace | None
    ) -> AsyncIterator[rows.Row]:
        """Newest first, from one time back to the next: pages that die and letters that leave move no others. With a
        `place`, from about there on."""
        if only is not None:
            row = await self._row(shard, job, only)
            if row is not None and row.state is UrlState.DEAD:
                yield row
            return
        dead = self._keys.in_shard(shard, f"{job}:dead")
        before = b"+inf" if place is None else repr(place.died_at + 1.0).encode()
        while True:
            answer = await self._server.call("ZREVRANGEBYSCORE", dead, before, "-inf", "WITHSCORES", "LIMIT", 0, CHUNK)
            times = dict(zip(answer[::2], answer[1::2], strict=True))
            if not times:
                return
            oldest = answer[-1]
            # There may be more that died at the same moment as the last one.
            together = await self._server.call("ZREVRANGEBYSCORE", dead, oldest, oldest)
            fingerprints = [one for one, time in times.items() if time != oldest] + together
            for start in range(0, len(fingerprints), CHUNK):
                for row in await self._rows(shard, job, fingerprints[start : start + CHUNK]):
                    if row is not None and row.state is UrlState.DEAD:
                        yield row
            before = b"(" + oldest

    async def _places(self, which: DeadFilter) -> list[tuple[int, int | None]]:
        """The shards to search, each with the number of the wanted site there; None: any site."""
        if which.site is None:
            return [(shard, None) for shard in range(self._keys.shards)]
        shard = self._keys.shard_of(which.site)
        number = await self._server.call("HGET", self._keys.in_shard(shard, "numbers"), which.site)
        return [(shard, int(number))] if number else []

    async def _written(self, found: Sequence[Dead]) -> list[DeadLetter]:
        """The complete letters, with the names of their sites and the pages that linked to them."""
        sites = await self._sites_of(found)
        parents = await self._parents_of(found, sites)
        return [
            DeadLetter(
                id=one.number,
                job=one.job.id,
                url=url_of(one.row),
                site=sites[one.shard, one.row.site],
                kind=one.row.tail.kind if one.row.tail else "",
                reason=one.row.reason,
                message=one.row.message,
                attempts=one.row.attempts,
                deliveries=one.row.deliveries,
                died_at=one.row.changed,
                found_on=parent,
                fingerprint=one.row.fingerprint,
                depth=one.row.depth,
                priority=one.row.priority,
            )
            for one, parent in zip(found, parents, strict=True)
        ]

    async def _sites_of(self, found: Sequence[Dead]) -> dict[tuple[int, int], str]:
        """Names of sites, by shard and number."""
        wanted: dict[int, set[int]] = {}
        for one in found:
            wanted.setdefault(one.shard, set()).add(one.row.site)
        names: dict[tuple[int, int], str] = {}
        for shard, numbers in wanted.items():
            packed = await self._server.call("HMGET", self._keys.in_shard(shard, "sites"), *numbers)
            for number, text in zip(numbers, packed, strict=True):
                names[shard, number] = rows.site_name(text)
        return names

    async def _parents_of(self, found: Sequence[Dead], sites: dict[tuple[int, int], str]) -> list[str | None]:
        """URLs of their parent pages, in the same order."""
        wanted: dict[tuple[int, int], dict[bytes, list[int]]] = {}  # by shard and job: fingerprint -> whose parent
        for place, one in enumerate(found):
            tail = one.row.tail
            if tail is not None and tail.parent is not None:
                shard = self._keys.shard_of(tail.parent_site or sites[one.shard, one.row.site])
                wanted.setdefault((shard, one.job.number), {}).setdefault(tail.parent, []).append(place)
        parents: list[str | None] = [None] * len(found)
        for (shard, job), children in wanted.items():
            for places, row in zip(children.values(), await self._rows(shard, job, list(children)), strict=True):
                for place in places:
                    parents[place] = url_of(row) if row is not None else None
        return parents

    async def _row(self, shard: int, job: int, fingerprint: bytes) -> rows.Row | None:
        return (await self._rows(shard, job, [fingerprint]))[0]

    async def _rows(self, shard: int, job: int, fingerprints: Sequence[bytes]) -> list[rows.Row | None]:
        if not fingerprints:
            return []
        packed = await self._server.call("HMGET", self._keys.in_shard(shard, f"{job}:urls"), *fingerprints)
        return [
            rows.read_row(fingerprint, text) if text else None
            for fingerprint, text in zip(fingerprints, packed, strict=True)
        ]


def url_of(row: rows.Row) -> str:
    return row.tail.url if row.tail is not None else f"(unreadable {row.fingerprint.hex()})"


def _most_first(counted: tuple[str, int]) -> tuple[int, str]:
    return -counted[1], counted[0]


def _fits(which: DeadFilter, number: int, row: rows.Row) -> bool:
    """Whether the row matches the filter, apart from its site."""
    return (
        (which.id is None or number == which.id)
        and (which.among is None or number in which.among)
        and (which.url is None or url_of(row) == which.url)
        and (which.reason is None or row.reason == which.reason or row.reason.startswith(f"{which.reason}-"))
        and (which.message is None or which.message in row.message)
    )
