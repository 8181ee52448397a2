"""Every frontier backend, opened the same way: a lab with a clock that only the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.frontier.contract import Frontier, FrontierDesk, JobBook, JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.job import Job
from gossamer.model.task import Candidate
from gossamer.model.url import fingerprint, shape_of, site_of

LEASE = timedelta(seconds=30)
UNLIMITED = SiteTerms(interval=None, burst=1, concurrency=None)


@dataclass
class Lab:
    """A frontier in hand. `terms` may be changed by a test per site; `gone` holds workers known to be dead."""

    frontier: Frontier
    jobs: JobBook
    desk: FrontierDesk
    clock: VirtualClock
    terms: dict[str, SiteTerms]
    gone: set[str] = field(default_factory=set)

    async def job(self, name: str = "test", *, fresh: bool = False, **terms: object) -> Job:
        job, _ = await self.jobs.open_job(name, JobTerms(**terms), fresh=fresh)  # type: ignore[arg-type]
        return job


def candidate(url: str, **fields: object) -> Candidate:
    return Candidate(url=url, fingerprint=fingerprint(url), site=site_of(url), shape=shape_of(url), **fields)


@asynccontextmanager
async def sqlite_lab(folder: Path) -> AsyncIterator[Lab]:
    clock, terms, gone = VirtualClock(), {}, set()
    async with open_sqlite_state(
        folder / "state.db",
        clock,
        lease_duration=LEASE,
        terms_for=lambda site: terms.get(site, UNLIMITED),
        is_gone=lambda worker: worker in gone,
    ) as state:
        yield Lab(state.frontier, state.jobs, state.desk, clock, terms, gone)


LABS: dict[str, Callable[[Path], AbstractAsyncContextManager[Lab]]] = {"sqlite": sqlite_lab}
