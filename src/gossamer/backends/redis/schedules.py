"""Schedules on Redis, for people and for the leading scheduler. Fulfils `ScheduleBook` and `TickBook`.

One script decides about a tick and starts its job, in the slot of the book. The first worker that asks for the job's
tasks tells the shards: the leader has many ticks to decide. Time is the server's clock.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ...errors import LeaseLost
from ...model.job import JobTerms, slug
from ...model.schedule import Schedule, ScheduleProgress, Settled, Term, UnreadableSchedule
from ..schedule_rows import decode_schedule, is_free
from .connection import Server
from .jobs import RedisJobs, read_job
from .keys import Keyspace

OVER, CHANGED = -1, 0  # answers of lua/settle_tick.lua


class RedisSchedules:
    def __init__(self, server: Server, keys: Keyspace, jobs: RedisJobs) -> None:
        self._server = server
        self._jobs = jobs
        self._schedules, self._leader = keys.book("schedules"), keys.book("leader")

    async def schedules(self) -> list[ScheduleProgress]:
        return [one for one in await self.everything() if isinstance(one, ScheduleProgress)]

    async def everything(self) -> list[ScheduleProgress | UnreadableSchedule]:
        return [
            read_schedule(name, text) for name, text in sorted((await self._server.fields(self._schedules)).items())
        ]

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        while True:
            known, now = await self._find(schedule.name), await self._server.time()
            if is_free(known, replace=replace):
                new = ScheduleProgress(schedule=schedule, origin=origin, created_at=now)
            elif not isinstance(known, ScheduleProgress) or not replace:
                return False
            elif (known.schedule, known.origin, known.withdrawn_at) == (schedule, origin, None):
                return True
            else:
                new = known.rewritten(schedule, origin, now)
            if await self._write(schedule.name, _version(known), new):
                return True

    async def remove(self, name: str) -> bool:
        return bool(await self._write(name, ""))

    async def pause(self, name: str, paused: bool) -> bool:
        while True:
            known = await self._find(name)
            if not isinstance(known, ScheduleProgress):
                return False
            if known.paused == paused:
                return True
            if await self._write(name, known.version, known.rested(paused, await self._server.time())):
                return True

    async def begin(
        self, before: ScheduleProgress, after: ScheduleProgress, opening: tuple[str, JobTerms], *, replaces: str = ""
    ) -> Settled | None:
        settled = await self._settle(None, before, after, opening, replaces)
        if settled is not None and replaces:
            await self._jobs.clear_all()
        return settled

    async def leader(self) -> Term | None:
        name, token, until = await self._server.call("HMGET", self._leader, "name", "token", "until")
        if not name or float(until) <= await self._server.time():
            return None
        return Term(name.decode(), int(token), float(until))

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        answer = await self._server.run(
            "lead", (self._leader,), self._server.now(), candidate, duration.total_seconds()
        )
        self._jobs.cleanup.resume_soon()  # in the background: a term that is returned late is partly over
        return Term(candidate, answer[0], float(answer[1])) if answer else None

    async def resign(self, term: Term) -> None:
        await self._server.run("resign", (self._leader,), term.leader, term.token)

    async def changes(self) -> int:
        return int(await self._server.call("HGET", self._jobs.book[0], "changes") or 0)

    async def settle(
        self,
        term: Term,
        before: ScheduleProgress | None,
        after: ScheduleProgress,
        opening: tuple[str, JobTerms] | None = None,
        *,
        replaces: str = "",
    ) -> Settled | None:
        return await self._settle(term, before, after, opening, replaces)

    async def forget(self, term: Term, progress: ScheduleProgress) -> bool:
        return bool(await self._write(progress.schedule.name, progress.version, term=term))

    async def _settle(
        self,
        term: Term | None,
        before: ScheduleProgress | None,
        after: ScheduleProgress,
        opening: tuple[str, JobTerms] | None,
        replaces: str,
    ) -> Settled | None:
        name = after.schedule.name
        begun: tuple[str | bytes, ...] = ()
        if opening is not None:
            begun = (opening[0], slug(opening[0]), msgspec.json.encode(opening[1]), replaces)
        answer = await self._write(name, _version(before), after, *begun, term=term)
        if answer is None:
            return None
        version, text, replaced = answer
        if opening is None:
            return Settled(msgspec.structs.replace(after, version=version))
        row = read_job(text)
        if replaced:
            await self._jobs.drop_soon(replaced.decode())
        return Settled(msgspec.structs.replace(after, version=version, last_job=row.id), row.job())

    async def _find(self, name: str) -> ScheduleProgress | UnreadableSchedule | None:
        text = await self._server.call("HGET", self._schedules, name)
        return read_schedule(name.encode(), text) if text else None

    async def _write(
        self,
        name: str,
        version: int | str,
        progress: ScheduleProgress | None = None,
        *opening: str | bytes,
        term: Term | None = None,
    ) -> tuple[int, bytes, bytes] | None:
        """Run lua/settle_tick.lua. None if the schedule has changed meanwhile. Raises LeaseLost."""
        answer, *rest = await self._server.run(
            "settle_tick",
            (*self._jobs.book, self._schedules, self._leader),
            self._server.now(),
            "" if term is None else term.leader,
            "" if term is None else term.token,
            name,
            version,
            b"" if progress is None else msgspec.json.encode(progress),
            "" if progress is None else progress.last_job,
            *opening,
        )
        if answer == OVER:
            who = "" if term is None else term.leader
            raise LeaseLost(f"{who} does not lead the schedulers any more; nothing was changed.")
        return None if answer == CHANGED else (answer, rest[0], rest[1])


def read_schedule(name: bytes, text: bytes) -> ScheduleProgress | UnreadableSchedule:
    """A schedule as lua/settle_tick.lua stores it."""
    shown = name.decode(errors="replace")
    try:
        version, last_job, progress = text.split(b" ", 2)
        number, job = int(version), last_job.decode()
    except ValueError:
        return UnreadableSchedule(shown, "it does not begin with a version and a job")
    found = decode_schedule(shown, progress)
    return (
        found if isinstance(found, UnreadableSchedule) else msgspec.structs.replace(found, version=number, last_job=job)
    )


def _version(known: ScheduleProgress | UnreadableSchedule | None) -> int | str:
    """The version that lua/settle_tick.lua must find: 0 for no schedule, "" for any, if it cannot be decoded."""
    if known is None:
        return 0
    return known.version if isinstance(known, ScheduleProgress) else ""


def schedule_text(progress: ScheduleProgress) -> bytes:
    return b"%d %s %s" % (progress.version, progress.last_job.encode(), msgspec.json.encode(progress))
