"""Cleanup of jobs in the shards, in portions: drops the open URLs of replaced and cancelled jobs, deletes all keys of
deleted jobs.

The keys `dropping` and `forgetting` list these jobs. Every shard is told that a job was given up before its URLs are
dropped, so that none of them is handed out.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ...errors import BackendUnavailable
from .connection import Server
from .keys import JOB_KEYS, Keyspace

if TYPE_CHECKING:
    from .jobs import StoredJob

DROP_AT_ONCE = 250  # URLs; a longer script would block other workers
DROP_AT_FIRST = 50  # besides the leased ones, in the step that gives a job up: there may be many such jobs
TELL_AT_ONCE = 50  # jobs
UNAWARE = -1  # the answer of a shard that does not yet know that the job was given up


class Rows(Protocol):
    """What the cleanup needs from RedisJobs."""

    async def find_row(self, job: str) -> StoredJob | None: ...

    async def remind_shards(self, job: str) -> bool: ...

    async def tell_of(self, job: str) -> StoredJob: ...

    async def is_known_to_shards(self, row: StoredJob) -> bool: ...

    async def note_cleared(self, job: str, finished_at: str) -> None: ...


class JobCleanup:
    def __init__(self, server: Server, keys: Keyspace, jobs: Rows) -> None:
        self._server = server
        self._keys = keys
        self._jobs = jobs
        self._dropping, self._forgetting = keys.book("dropping"), keys.book("forgetting")

    async def drop(self, job: str) -> bool:
        """Drop the leased URLs of a job that was given up, and some of its other open URLs. True if none is left."""
        with suppress(BackendUnavailable):  # the job is over anyway: the next look continues
            return await self._drop_some(await self._jobs.tell_of(job), DROP_AT_FIRST)
        return False

    async def look(self) -> bool:
        """Tell the shards about jobs that were given up, if the process that did so died before; clear one portion.

        True if there may be more to clear.
        """
        jobs = [job.decode() for job in await self._server.call("SMEMBERS", self._dropping)]
        for start in range(0, len(jobs), TELL_AT_ONCE):
            await asyncio.gather(*(self._tell(job) for job in jobs[start : start + TELL_AT_ONCE]))
        return await self.clear_some()  # at once: sites may wait for their slots

    async def _tell(self, job: str) -> None:
        row = await self._jobs.find_row(job)
        if row is not None and not await self._jobs.is_known_to_shards(row):
            await self._jobs.remind_shards(job)

    async def clear_some(self) -> bool:
        """Clear one portion. False if there was nothing to clear."""
        given_up = await self._server.call("SRANDMEMBER", self._dropping)
        if given_up:
            job = given_up.decode()
            row = await self._jobs.find_row(job)
            if row is None:
                await self._jobs.note_cleared(job, "")
            else:
                await self._drop_some(row, DROP_AT_ONCE)
            return True
        forgotten = await self._server.call("SRANDMEMBER", self._forgetting)
        if not forgotten:
            return False
        for shard in range(self._keys.shards):
            names = (f"{int(forgotten)}:{name}" for name in JOB_KEYS)
            await self._server.call("UNLINK", *(self._keys.in_shard(shard, name) for name in names))
        await self._server.call("SREM", self._forgetting, forgotten)
        return True

    async def _drop_some(self, row: StoredJob, at_once: int) -> bool:
        """Drop some open URLs of a job that was given up, and free their slots. True if none is left, or the job runs
        again; then the job is no longer listed in `dropping`."""
        if row.given_up:
            answers = await asyncio.gather(
                *(
                    self._server.run(
                        "drop_open",
                        self._keys.of_job(shard, row.number),
                        self._server.now(),
                        row.ending,
                        DROP_AT_ONCE,
                        at_once,
                    )
                    for shard in range(self._keys.shards)
                )
            )
            if UNAWARE in answers:
                await self._jobs.remind_shards(row.id)
            if not all(0 <= seen < at_once for seen in answers):
                return False
        await self._jobs.note_cleared(row.id, row.finished_at)
        return True
