"""The frontier on Redis: the worker's methods. Scripts in lua/ do the work; this file decides which shard does what.

Settlements of a shard are batched: those that arrive while one call is in flight go together in the next call. A page's
links may belong to other shards, or be very many. Those are added first, then the page is settled together with the
links of its own shard: a crash in between repeats work and loses nothing, because adding is idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import accumulate
from typing import Any

import msgspec

from ...errors import BackendUnavailable, LeaseLost, Misconfigured
from ...frontier.away import AwayTerms, AwayVerdict, SiteFailure
from ...frontier.contract import NO_STATS, Added, LeaseBatch, LeftTurn, NextTurn, redirect_reason
from ...frontier.politeness import TermsFor
from ...model.task import Candidate, Lease, Pace, UrlState
from . import rows
from .admission import ADD_AT_ONCE, KnownJob, ShardAdmission, admission_terms, total
from .connection import Server, out_of_memory
from .jobs import RedisJobs
from .keys import Keyspace
from .leasing import LeaseRequest, OrphanRounds, RedisTaskDispatcher

COMPLETE, RETRY, RELEASE, BURY, MOVE = 1, 2, 3, 4, 5
LOST, STARVED = -1, -2  # answers of settle.lua
MESSAGE_LENGTH = 4000  # characters kept of an error
LONGEST_NAME = 255  # bytes of a worker's name, which is stored in every row that it has leased


class RedisFrontier:
    """Fulfils `Frontier`. Time is the server's clock."""

    def __init__(
        self,
        server: Server,
        keys: Keyspace,
        jobs: RedisJobs,
        admission: ShardAdmission,
        *,
        lease_duration: timedelta,
        terms_for: TermsFor,
        is_gone: Callable[[str], bool],
        rounds: OrphanRounds,
    ) -> None:
        self._server = server
        self._keys = keys
        self._lease_seconds = lease_duration.total_seconds()
        self._terms_for = terms_for
        self._admission = admission
        self.job, self.packed = admission.job, admission.packed
        self._batchers: dict[tuple[str, int], CallBatcher] = {}
        self.dispatcher = RedisTaskDispatcher(
            server,
            keys,
            jobs,
            lease_seconds=self._lease_seconds,
            terms_for=terms_for,
            is_gone=is_gone,
            rounds=rounds,
        )

    async def add(self, job: str, candidates: Sequence[Candidate]) -> Added:
        known = await self.job(job)
        return await self._admission.offer(known, candidates, parent=None, refuse_when_full=True)

    async def lease(self, job: str, worker: str, n: int, lanes: frozenset[str] | None = None) -> LeaseBatch:
        if len(worker.encode("utf-8", "surrogatepass")) > LONGEST_NAME:
            raise Misconfigured(f"The worker's name is longer than {LONGEST_NAME} bytes: {worker[:40]}... Shorten it.")
        known = await self.job(job)
        batch, foreign = await self.dispatcher.lease(known, LeaseRequest(worker, rows.pack_lanes(lanes)), n)
        for lease in foreign:
            # A row that cannot be buried now returns when its lease ends; the good leases must not be lost with it.
            with suppress(BackendUnavailable, LeaseLost):
                await self.bury(lease, "unreadable", "This entry of the queue is not a task of Gossamer.")
        return msgspec.structs.replace(batch, epoch=self.dispatcher.epoch)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        lost: list[Lease] = []
        groups: dict[tuple[str, int], list[Lease]] = {}
        for lease in leases:
            groups.setdefault((lease.task.job, self._keys.shard_of(lease.task.site)), []).append(lease)
        for (job, shard), held in groups.items():
            known = await self.job(job)
            answer = await self._server.run(
                "renew",
                self._keys.of_job(shard, known.number),
                self._server.now(),
                self._lease_seconds,
                *(rows.pack_lease(lease) for lease in held),
            )
            lost += [lease for lease, kept in zip(held, answer, strict=True) if not kept]
        return lost

    async def left(self, turns: Sequence[LeftTurn]) -> None:
        groups: dict[tuple[str, int], list[bytes]] = {}
        for turn in turns:
            task = turn.lease.task
            groups.setdefault((task.job, self._keys.shard_of(task.site)), []).append(rows.pack_left(turn))
        for (job, shard), packed in groups.items():
            known = await self.job(job)
            await self._server.run("left", self._keys.of_job(shard, known.number), self._server.now(), *packed)

    async def next_turn(self, lease: Lease, number: int) -> NextTurn:
        known, site = await self.job(lease.task.job), lease.task.site
        terms = self._terms_for(site).under(known.terms.politeness)
        interval = terms.own_spacing(None)
        taken, *what = await self._server.run(
            "next_turn",
            self._keys.of_job(self._keys.shard_of(site), known.number),
            self._server.now(),
            rows.pack_lease(lease),
            number,
            -1 if interval is None else interval,
            terms.burst,
            int(terms.rests),
        )
        if taken < 0:
            raise _lost(lease)
        if not taken:
            return NextTurn(wait=timedelta(seconds=float(what[0])))
        paced, burst, ahead = float(what[0]), int(what[1]), float(what[2])
        return NextTurn(pace=Pace(paced, burst, ahead) if paced >= 0 else None)

    async def note_sent(self, lease: Lease, *, sent: bool = True) -> None:
        known, shard = await self.job(lease.task.job), self._keys.shard_of(lease.task.site)
        noted = await self._server.run(
            "note_sent",
            self._keys.of_job(shard, known.number),
            self._server.now(),
            rows.pack_lease(lease),
            int(sent),
        )
        if not noted:
            raise _lost(lease)

    async def complete(
        self,
        lease: Lease,
        state: UrlState,
        reason: str = "",
        discovered: Sequence[Candidate] = (),
        *,
        redirect: str | None = None,
        duplicates: int = 0,
        paced_ahead: timedelta = timedelta(0),
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        return await self._settle_with_links(
            COMPLETE,
            lease,
            discovered,
            state=state,
            redirected=redirect is not None,
            paced_ahead=paced_ahead.total_seconds(),
            duplicates=duplicates,
            reason=reason if redirect is None else redirect_reason(redirect),
            stats=stats,
        )

    async def _settle_with_links(
        self,
        verb: int,
        lease: Lease,
        discovered: Sequence[Candidate],
        **fields: Any,  # of rows.pack_settlement
    ) -> Added:
        known = await self.job(lease.task.job)
        home = self._keys.shard_of(lease.task.site)
        here = [one for one in discovered if self._keys.shard_of(one.site) == home]
        here, surplus = here[-ADD_AT_ONCE:], here[:-ADD_AT_ONCE]
        before = Added()
        if len(here) < len(discovered):
            # Not for a worker that has lost its lease: another worker adds the links of that page.
            if await self.renew([lease]):
                raise _lost(lease)
            away = [one for one in discovered if self._keys.shard_of(one.site) != home]
            before = await self._admission.offer(known, [*surplus, *away], parent=lease.task, refuse_when_full=False)
        answer = await self._settle(
            known,
            lease,
            rows.pack_settlement(verb, lease, candidates=self.packed(known, here, lease.task), **fields),
            len(here),
        )
        settled = await self._admission.look_twice(known, here, answer, lease.task)
        return total(settled, before)

    async def retry(
        self, lease: Lease, delay: timedelta, reason: str, *, paced_ahead: timedelta = timedelta(0)
    ) -> None:
        await self._put_off(RETRY, lease, delay, reason, paced_ahead)

    async def release(
        self,
        lease: Lease,
        delay: timedelta,
        reason: str,
        *,
        paced_ahead: timedelta = timedelta(0),
        lane: str | None = None,
    ) -> None:
        await self._put_off(RELEASE if lane is None else MOVE, lease, delay, reason, paced_ahead, lane or "")

    async def bury(
        self,
        lease: Lease,
        reason: str,
        message: str,
        discovered: Sequence[Candidate] = (),
        *,
        duplicates: int = 0,
        paced_ahead: timedelta = timedelta(0),
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        return await self._settle_with_links(
            BURY,
            lease,
            discovered,
            paced_ahead=paced_ahead.total_seconds(),
            duplicates=duplicates,
            reason=reason,
            message=message[:MESSAGE_LENGTH],
            stats=stats,
        )

    async def slow_down(self, site: str, *, interval: timedelta | None, rest: timedelta, worker: str = "") -> bool:
        asked = "" if interval is None else interval.total_seconds()
        keys = self._keys.of_job(self._keys.shard_of(site), 0)
        held, _ = await self._server.run(
            "slow_down", keys, self._server.now(), site, rest.total_seconds(), asked, worker
        )
        return bool(held)

    async def clear(self, site: str, rest: timedelta) -> int:
        keys = self._keys.of_job(self._keys.shard_of(site), 0)
        _, in_progress = await self._server.run(
            "slow_down", keys, self._server.now(), site, rest.total_seconds(), "", ""
        )
        return int(in_progress)

    async def too_often(self, site: str, *, rest: timedelta, worker: str = "") -> timedelta | None:
        ours = self._terms_for(site).spacing(None)
        keys = self._keys.of_job(self._keys.shard_of(site), 0)
        learned = await self._server.run(
            "too_often", keys, self._server.now(), site, rest.total_seconds(), -1 if ours is None else ours, worker
        )
        return timedelta(seconds=float(learned)) if learned else None

    async def site_away(self, site: str, failure: SiteFailure, terms: AwayTerms) -> AwayVerdict:
        counts, pause, over, since = await self._site_away(
            site,
            failure.host,
            failure.reason,
            int(failure.never),
            *(length.total_seconds() for length in (terms.base, terms.cap, terms.patience)),
            terms.probes,
        )
        return AwayVerdict(
            counts=bool(counts), pause=timedelta(seconds=float(pause)), over=bool(over), since=float(since)
        )

    async def site_back(self, site: str) -> None:
        await self._site_away(site)

    async def _site_away(self, site: str, *what: str | float) -> list[Any]:  # Any: numbers and texts
        interval = self._terms_for(site).spacing(None)
        keys = self._keys.of_job(self._keys.shard_of(site), 0)
        answer: list[Any] = await self._server.run(
            "site_away", keys, self._server.now(), site, -1 if interval is None else interval, *what
        )
        return answer

    # -- shared steps ----------------------------------------------------------------------------------------

    async def _put_off(
        self, verb: int, lease: Lease, delay: timedelta, reason: str, ahead: timedelta, lane: str = ""
    ) -> None:
        text = rows.pack_settlement(
            verb,
            lease,
            delay=delay.total_seconds(),
            paced_ahead=ahead.total_seconds(),
            reason=reason,
            message=rows.lane_name(lane).decode("utf-8", "ignore"),
        )
        await self._settle(await self.job(lease.task.job), lease, text)

    async def _settle(
        self, known: KnownJob, lease: Lease, text: bytes, candidates: int = 0
    ) -> list[Any]:  # Any: three numbers, then a list of them
        shard = self._keys.shard_of(lease.task.site)
        batcher = self._batchers.get((known.id, shard))
        if batcher is None:
            batcher = CallBatcher(lambda texts: self._settle_together(known.id, shard, texts))
            self._batchers[known.id, shard] = batcher
        answer: list[Any] = await batcher.give(text, candidates)
        if answer[0] == LOST:
            raise _lost(lease)
        if answer[0] == STARVED:
            raise out_of_memory(self._server.where)
        return answer

    async def _settle_together(self, job: str, shard: int, texts: Sequence[bytes]) -> list[Any]:
        known = await self.job(job)
        bound = await self._admission.bound(known, shard)
        answers: list[Any] = await self._server.run(
            "settle",
            self._keys.of_job(shard, known.number),
            self._server.now(),
            *bound,
            *admission_terms(known.terms, self._keys.shards),
            *texts,
        )
        self._admission.note_depth(known, shard, sum(answer[4] for answer in answers if len(answer) > 4))
        return answers


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"The lease on {lease.task.url} has expired or was given to another worker; nothing was changed.")


MAX_TOGETHER = 64
MAX_WEIGHT = 2_000  # of a batch: a longer call would block other workers
LINGER = 0.001  # seconds that the first item of a batch waits for others


class CallBatcher:
    """Single calls, sent in batches. `send` takes several items and returns as many answers, in order."""

    def __init__(self, send: Callable[[Sequence[bytes]], Awaitable[list[Any]]]) -> None:  # Any: the caller's answers
        self._send = send
        self._waiting: list[tuple[bytes, int, asyncio.Future[Any]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def give(self, item: bytes, weight: int = 0) -> Any:
        """The answer to this item. Raises what `send` raised for its batch."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, weight, future))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._work(), name="settle")
        return await future

    async def _work(self) -> None:
        await asyncio.sleep(LINGER)
        while self._waiting:
            size = self._size_of_next()
            group, self._waiting = self._waiting[:size], self._waiting[size:]
            try:
                answers: list[Any] = list(await self._send([item for item, _, _ in group]))
            except Exception as error:
                answers = [error] * len(group)
            for (_, _, future), answer in zip(group, answers, strict=True):
                if future.done():  # the caller was cancelled
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _size_of_next(self) -> int:
        """How many waiting items form the next batch: at least one, however heavy it is."""
        weights = accumulate(weight for _, weight, _ in self._waiting[:MAX_TOGETHER])
        return max(1, sum(total <= MAX_WEIGHT for total in weights))
