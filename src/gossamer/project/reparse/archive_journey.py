"""The journey of an archived visit: parsed again in a child process, stored, settled. No request is made.

Store comes before settle, as in crawl/journey.py: a crash in between repeats work, and storing twice is the same as
storing once, because a reparse is identified by its visit and the start of its job. A page that kills its child fails
alone; one that kills its worker is handed out a few times, and then becomes a dead letter.
How it fails: BackendUnavailable and Misconfigured (a spider that does not load here) give the task back and pass on to
the worker. Everything else is an outcome.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from ...crawl.context import JobContext
from ...crawl.held_lease import HeldLease
from ...crawl.journey import POISON
from ...crawl.worker import LOOK, Worker
from ...errors import LeaseLost
from ...fetch.open_route import Transports
from ...frontier.admission import LinkScope
from ...frontier.contract import JobTerms
from ...model import events
from ...model.job import Job
from ...model.record import PageFacts
from ...model.task import UrlState
from ...model.url import site_of
from ...store.record_rules import REPARSED, UNPARSED
from ...store.sink import Sink
from ..open import Project
from ..wiring import open_worker
from .archive_job import (
    CHANGED,
    FAILED,
    LOST,
    MENDED,
    NOT_PARSED,
    RECORDS,
    ReparseSpider,
    ReparseTerms,
    order_of,
    terms_of,
)
from .messages import ReparsedPage
from .parser_pool import ParserDesk
from .results import learned_of, leaves_something, patience_of, result_of

LOST_COPY = "lost"  # the failure of a page whose raw copy is no longer in the archive


class ArchiveJourney:
    """One lease, from the archive to its settlement."""

    def __init__(self, context: JobContext, held: HeldLease, desk: ParserDesk, terms: ReparseTerms) -> None:
        self._context = context
        self._held = held
        self._task = held.lease.task
        self._desk = desk
        self._terms = terms
        self._began = context.clock.monotonic()

    async def run(self) -> None:
        """Make the journey. Raises BackendUnavailable and Misconfigured; everything else settles."""
        try:
            if self._held.lease.delivery > self._context.max_deliveries:
                await self._bury()
            else:
                await self._parse_and_settle()
        except LeaseLost as lost:
            self._emit(events.LeaseLapsed, message=str(lost))

    async def _parse_and_settle(self) -> None:
        context, lease = self._context, self._held.lease
        outcome = await self._desk.parse(order_of(self._task, self._terms))
        self._emit(events.Parsed, items=len(outcome.records), links=0, seconds=self._seconds())
        changed = 0
        if leaves_something(outcome):
            kept = result_of(outcome, at=context.clock.now(), worker=context.worker, repeat=lease.delivery > 1)
            changed = await context.sink.keep(kept)
            if outcome.records:
                self._emit(events.Stored, items=len(outcome.records), changed=changed, seconds=self._seconds())
        stats = {name: count for name, count in _counted(outcome, changed).items() if count}
        await self._held.complete(lambda: context.frontier.complete(lease, UrlState.DONE, outcome.failure, stats=stats))
        self._emit(events.Completed, outcome=UNPARSED if outcome.failure else REPARSED, seconds=self._seconds())

    async def _bury(self) -> None:
        lease = self._held.lease
        message = f"{lease.delivery - 1} workers in a row died or hung while they had this page."
        await self._held.settle(lambda: self._context.frontier.bury(lease, POISON, message))
        self._emit(events.Buried, reason=POISON, attempt=self._task.attempt + 1, message=message)

    def _seconds(self) -> float:
        return self._context.clock.monotonic() - self._began

    def _emit(self, kind: type[events.Event], /, **facts: Any) -> None:  # Any: the fields differ by event
        task = self._task
        self._context.events.emit(
            kind(at=self._context.clock.now(), job=task.job, url=task.url, site=site_of(task.url), **facts)
        )


def _counted(outcome: ReparsedPage, changed: int) -> dict[str, int]:
    """What the page adds to the counters of its job. If a worker died between storing and settling, the changes are not
    counted again: they are already stored."""
    return {
        RECORDS: len(outcome.records),
        CHANGED: changed,
        MENDED: int(not outcome.failure and outcome.wanted.failure in FAILED),  # numbers: Redis adds no booleans up
        NOT_PARSED: int(outcome.failure in FAILED),
        LOST: int(outcome.failure == LOST_COPY),
    }


@asynccontextmanager
async def open_archive_worker(
    project: Project,
    job: Job,
    scope: LinkScope,
    sink: Sink,
    events: events.EventSink,
    *,
    terms: JobTerms,
    parsers: int,
    serves: frozenset[str] | None = None,
    look: timedelta = LOOK,
) -> AsyncIterator[Worker]:
    """A worker for a reparse, with `parsers` child processes. It has no transport, and cannot make requests."""
    wanted = terms_of(project.settings, job)
    desk = ParserDesk(job.created_at, size=parsers, patience=patience_of(project), learned=await learned_of(project))

    def journey(context: JobContext, held: HeldLease, known: PageFacts | None) -> ArchiveJourney:
        return ArchiveJourney(context, held, desk, wanted)

    async with (
        desk,
        open_worker(
            project,
            ReparseSpider(),
            job.id,
            scope,
            sink,
            events,
            terms=terms,
            serves=serves,
            look=look,
            transports=Transports({}),
            journey=journey,
        ) as worker,
    ):
        yield worker
