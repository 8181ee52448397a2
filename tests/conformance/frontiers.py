"""Every frontier backend, opened the same way: a lab with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

from gossamer.backends.redis.state import open_redis_state
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.backends.state import State
from gossamer.clock import ServerClock, VirtualClock
from gossamer.frontier.contract import JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.job import Job, JobCounts
from gossamer.model.task import Candidate
from gossamer.model.url import fingerprint, shape_of, site_of
from tests.services.valkey import ValkeyServer, running_cluster, running_valkey

LEASE = timedelta(seconds=30)
UNLIMITED = SiteTerms(interval=None, burst=1, concurrency=None)


class Lab(State, frozen=True, kw_only=True):
    """A state in hand. `terms` may be changed by a test per site; `gone` holds workers known to be dead."""

    clock: VirtualClock
    terms: dict[str, SiteTerms]
    gone: set[str]
    again: Callable[[], AbstractAsyncContextManager[Lab]]  # the same state, as another process opens it

    async def job(self, name: str = "test", *, fresh: bool = False, **terms: object) -> Job:
        job, _ = await self.jobs.open_job(name, JobTerms(**terms), fresh=fresh)  # type: ignore[arg-type]
        return job


def candidate(url: str, **fields: object) -> Candidate:
    return Candidate(url=url, fingerprint=fingerprint(url), site=site_of(url), shape=shape_of(url), **fields)


@asynccontextmanager
async def sqlite_lab(folder: Path, clock: VirtualClock | None = None, lease: timedelta = LEASE) -> AsyncIterator[Lab]:
    clock, terms, gone = clock or VirtualClock(), {}, set()
    async with open_sqlite_state(
        folder / "state.db",
        clock,
        lease_duration=lease,
        terms_for=lambda site: terms.get(site, UNLIMITED),
        is_gone=lambda worker: worker in gone,
    ) as state:
        yield _lab(state, clock=clock, terms=terms, gone=gone, again=lambda: sqlite_lab(folder, clock, lease))


@asynccontextmanager
async def redis_lab(
    address: str,
    shards: int | None = None,
    project: str | None = None,
    clock: VirtualClock | None = None,
    lease: timedelta = LEASE,
) -> AsyncIterator[Lab]:
    clock, terms, gone = clock or VirtualClock(), {}, set()
    project = project or f"lab-{uuid4().hex}"
    async with open_redis_state(
        address,
        ServerClock(clock),
        project=project,
        shards=shards,
        lease_duration=lease,
        terms_for=lambda site: terms.get(site, UNLIMITED),
        is_gone=lambda worker: worker in gone,
        time=clock.now,
    ) as state:
        same = partial(redis_lab, address, shards, project, clock, lease)
        yield _lab(state, clock=clock, terms=terms, gone=gone, again=same)


def _lab(state: State, **fields: object) -> Lab:
    handles = {name: getattr(state, name) for name in State.__struct_fields__}
    return Lab(**{**handles, **fields})


class Backends:
    """Opens labs by name. Servers are started when the first lab asks for them, and stopped by `close`."""

    NAMES = ("sqlite", "valkey", "shards", "cluster")
    UNSHARDED = ("sqlite", "valkey", "cluster")  # for what is in no shard, or in that of one site

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._alone: ValkeyServer | None = None
        self._nodes: list[ValkeyServer] | None = None

    def open(self, name: str, folder: Path, lease: timedelta = LEASE) -> AbstractAsyncContextManager[Lab]:
        if name == "sqlite":
            return sqlite_lab(folder, lease=lease)
        return redis_lab(self.address(name), shards=5 if name == "shards" else None, lease=lease)

    def address(self, name: str) -> str:
        """Of the server behind a backend that has one."""
        if name == "cluster":
            if self._nodes is None:
                self._nodes = self._stack.enter_context(running_cluster())
            return self._nodes[0].address()
        if self._alone is None:
            self._alone = self._stack.enter_context(running_valkey("--appendonly", "yes", "--appendfsync", "no"))
        return self._alone.address()

    def close(self) -> None:
        self._stack.close()


def adds_up(counts: JobCounts) -> bool:
    """Is every URL that was ever offered in exactly one state, and every dropped one counted under its reason?"""
    known = counts.open + counts.settled + counts.dropped + counts.duplicates
    return (
        counts.discovered == known
        and sum(counts.drops.values()) == counts.dropped
        and 0 <= counts.postponed <= counts.waiting
    )
