"""Schedules on Redis, for people and for the leading scheduler. Fulfils `ScheduleBook` and `TickBook`.

One script decides about a tick and begins its job, in the slot of the book. The shards are told of the job by the first
worker that asks for its tasks: the leader has many ticks to decide about. Time is the server's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from ...errors import LeaseLost
from ...model.job import JobTerms, slug
from ...model.schedule import Schedule, Settled, Standing, Term
from .connection import Server
from .jobs import RedisJobs, read_job
from .keys import Keyspace

OVER, CHANGED = -1, 0  # answers of lua/settle_tick.lua

_read = msgspec.json.Decoder(Standing).decode


class RedisSchedules:
    """`time` replaces the server's clock in tests."""

    def __init__(self, server: Server, keys: Keyspace, jobs: RedisJobs, time: Callable[[], float] | None) -> None:
        self._server = server
        self._jobs = jobs
        self._time = time
        self._schedules, self._leader = keys.book("schedules"), keys.book("leader")

    async def schedules(self) -> list[Standing]:
        texts = await self._server.call("HVALS", self._schedules)
        return sorted((read_schedule(text) for text in texts), key=lambda standing: standing.schedule.name)

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        while True:
            known = await self._find(schedule.name)
            if known is None:
                new = Standing(schedule=schedule, origin=origin, created_at=await self._clock())
            elif not replace:
                return False
            elif (known.schedule, known.origin) == (schedule, origin):
                return True
            else:
                new = known.rewritten(schedule, origin)
            if await self._write(new, known):
                return True

    async def remove(self, name: str) -> bool:
        return bool(await self._server.call("HDEL", self._schedules, name))

    async def pause(self, name: str, paused: bool) -> bool:
        while True:
            known = await self._find(name)
            if known is None or known.paused == paused:
                return known is not None
            if await self._write(msgspec.structs.replace(known, paused=paused), known):
                return True

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        answer = await self._server.run("lead", (self._leader,), self._now(), candidate, duration.total_seconds())
        return Term(candidate, answer[0], float(answer[1])) if answer else None

    async def resign(self, term: Term) -> None:
        await self._server.run("resign", (self._leader,), term.leader, term.token)

    async def settle(
        self, term: Term, before: Standing, after: Standing, opening: tuple[str, JobTerms] | None = None
    ) -> Settled | None:
        begun = () if opening is None else (opening[0], slug(opening[0]), msgspec.json.encode(opening[1]))
        version, *rest = await self._server.run(
            "settle_tick",
            (*self._jobs.book, self._schedules, self._leader),
            self._now(),
            term.leader,
            term.token,
            before.schedule.name,
            before.version,
            msgspec.json.encode(after),
            after.last_job,
            *begun,
        )
        if version == OVER:
            raise LeaseLost(f"{term.leader} does not lead the schedulers any more; nothing was changed.")
        if version == CHANGED:
            return None
        if opening is None:
            return Settled(msgspec.structs.replace(after, version=version))
        text, replaced = rest
        row = read_job(text)
        if replaced:
            await self._jobs.finish_dropping()
        return Settled(msgspec.structs.replace(after, version=version, last_job=row.id), row.job())

    async def _find(self, name: str) -> Standing | None:
        text = await self._server.call("HGET", self._schedules, name)
        return read_schedule(text) if text else None

    async def _write(self, standing: Standing, known: Standing | None) -> bool:
        """False when somebody else was faster."""
        (version, *_) = await self._server.run(
            "settle_tick",
            (*self._jobs.book, self._schedules, self._leader),
            self._now(),
            "",
            "",
            standing.schedule.name,
            0 if known is None else known.version,
            msgspec.json.encode(standing),
            standing.last_job,
        )
        return bool(version != CHANGED)

    async def _clock(self) -> float:
        if self._time is not None:
            return self._time()
        seconds, micros = await self._server.call("TIME")
        return int(seconds) + int(micros) / 1_000_000

    def _now(self) -> str:
        return "" if self._time is None else repr(self._time())


def read_schedule(text: bytes) -> Standing:
    """As lua/settle_tick.lua writes it."""
    version, last_job, standing = text.split(b" ", 2)
    return msgspec.structs.replace(_read(standing), version=int(version), last_job=last_job.decode())


def schedule_text(standing: Standing) -> bytes:
    return b"%d %s %s" % (standing.version, standing.last_job.encode(), msgspec.json.encode(standing))
