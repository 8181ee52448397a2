"""What seeding needs from an open project, in one value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Protocol

import msgspec

from ..backends.state import State
from ..clock import Clock
from ..frontier.admission import Judged
from ..model.events import EventSink
from ..model.job import Job, JobPoliteness
from ..model.url import UrlRules
from ..parse.spider import Spider
from ..settings import Settings
from ..store.contract import Archive, RecordStore
from .source_files import ClosedFor, SourceFiles
from .unleased_turn import Announce, take_turn

SOURCE_PAUSES = (timedelta(seconds=5), timedelta(seconds=30))  # between attempts at a source that fails


Candidates = Callable[[], AsyncIterator[Judged]]  # called again by each worker that begins to read


class OpenFiles(Protocol):
    """Opens the fetcher of sitemaps and feeds, with the project's settings, robots.txt answers and proxies."""

    def __call__(
        self, *, spider: Spider, politeness: JobPoliteness, announce: Announce, closed_for: ClosedFor
    ) -> AbstractAsyncContextManager[SourceFiles]: ...


class SeedContext(msgspec.Struct, frozen=True, kw_only=True):
    """What seeding needs from an open project. `end_job` ends a job that has no seeds."""

    settings: Settings
    clock: Clock
    rules: UrlRules
    state: State
    records: RecordStore
    worker: str
    open_files: OpenFiles
    end_job: Callable[[Job, str, EventSink], Awaitable[object]]
    source_pauses: tuple[timedelta, ...] = SOURCE_PAUSES
    claimed: bool = False  # this worker has the lease to read the source already
    candidates: Candidates | None = None  # replaces the spider's seeds and any source
    archive: Archive | None = None  # where long bodies of requests are kept
    on_the_net: bool = True  # False: pages come from elsewhere, and sitemaps are not read

    async def take_turn(self, job: str, site: str, rest: timedelta, request: str) -> float:
        """Take the site's turn for a request of a job's source: see `unleased_turn.take_turn`."""
        name = f"{self.worker}.{job}.{request}"
        return await take_turn(self.state.seeds, self.state.frontier, self.clock, site=site, rest=rest, request=name)
