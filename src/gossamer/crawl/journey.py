"""ONE URL's whole path. Read this first.

    1. fetch     ask robots.txt, wait for the site's pace, make the request
    2. judge     a redirect goes back to the queue, a failure is retried or buried, a 304 ends here
    3. parse     the spider's callback turns the page into items and links
    4. pipeline  clean, validate, deduplicate: items become records
    5. admit     links become candidates: scope, depth, traps
    6. store     raw page, records, the line in the audit log: in one commit, repeatable
    7. settle    the task is done and its links are queued: in one step

Store comes before settle: a crash in between repeats work, it never loses it. Whoever lost the lease on the way
settles nothing. An error of the site or of the spider is an outcome, not an exception: the next journey is not
touched by it. Errors of our own (a backend that does not answer) give the task back and pass on to the worker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec

from ..clock import Clock
from ..errors import FetchFailed, FetchRefused, GossamerError, LeaseLost, ParseFailed
from ..fetch.fetcher import Disallowed, Fetched, Fetcher, NotModified, Redirected, Visit
from ..fetch.retry_after import parse_retry_after
from ..frontier.admission import Admission, Judged
from ..frontier.contract import Added, Frontier
from ..frontier.retry import GiveUp, RetryTerms, decide, failure_of
from ..model import events
from ..model.page import Snapshot
from ..model.record import Attempt, PageFacts, PageResult, Record
from ..model.task import Request, UrlState
from ..parse.callbacks import Parsed, run_callback
from ..parse.page import Page
from ..parse.spider import Spider
from ..pipeline.steps import Piped, Pipeline
from ..store.batching import Sink
from .hold import Hold
from .pacer import Pacer, TooEarly

RetryTermsFor = Callable[[str], RetryTerms]


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a journey needs, shared by all journeys of one job in one process."""

    job: str
    worker: str
    spider: Spider
    parser_version: str
    fetcher: Fetcher
    pacer: Pacer
    pipeline: Pipeline
    admission: Admission
    sink: Sink
    frontier: Frontier  # one that sits out short absences
    retry_terms_for: RetryTermsFor
    clock: Clock
    events: events.EventSink


class Journey:
    """One lease, from fetch to settlement. `known` is what is remembered of the page from an earlier visit."""

    def __init__(self, crew: Crew, hold: Hold, known: PageFacts | None = None) -> None:
        self._crew = crew
        self._hold = hold
        self._lease = hold.lease
        self._task = hold.lease.task
        self._known = known
        self._began = crew.clock.monotonic()
        self._started_at = crew.clock.now()
        self._snapshot: Snapshot | None = None
        self._status: int | None = None
        self._bytes = 0
        self._latency = 0.0

    async def run(self) -> None:
        """Make the journey. Raises BackendUnavailable (and other Transient ones of ours); everything else settles.

        The pacer must know the lease from before this call until the task is settled, by whomever.
        """
        try:
            await self._travel()
        except LeaseLost as lost:
            self._emit(events.LeaseLapsed, message=str(lost))

    async def _travel(self) -> None:
        try:
            with self._hold.travelling():
                outcome = await self._crew.fetcher.fetch(self._visit(), self._gate)
        except TooEarly as early:
            await self._release(early.wait, early.reason)
            return
        except (FetchFailed, FetchRefused) as failure:
            self._latency = self._crew.clock.monotonic() - self._began
            await self._fail(failure)
            return
        if outcome.crawl_delay is not None and outcome.crawl_delay.total_seconds() > (self._pace_interval() or 0.0):
            await self._crew.frontier.slow_down(self._task.site, interval=outcome.crawl_delay, rest=timedelta(0))
        match outcome:
            case Disallowed():
                await self._drop_for_robots(outcome)
            case Redirected():
                self._note_response(outcome.response.status, outcome.response.wire_bytes, outcome.response.seconds)
                await self._hand_over(outcome)
            case NotModified():
                self._note_response(304, outcome.response.wire_bytes, outcome.response.seconds)
                await self._keep_unchanged(outcome)
            case Fetched():
                await self._arrive(outcome)

    # -- 1. fetch ------------------------------------------------------------------------------------------

    def _visit(self) -> Visit:
        known = self._known
        # A page parsed by other code than today's must be parsed again, so it is asked for in full.
        usable = known is not None and known.parser == self._crew.parser_version and known.status == 200
        return Visit(
            url=self._task.url,
            etag=known.etag if known is not None and usable else "",
            last_modified=known.last_modified if known is not None and usable else "",
            redirects=self._task.redirects,
        )

    async def _gate(self, asked: timedelta | None = None) -> Callable[[], None] | None:
        on_sent = await self._crew.pacer.start(self._task.site, asked)
        self._hold.check()  # last of all: the process may have been stopped for minutes meanwhile
        return on_sent

    def _pace_interval(self) -> float | None:
        return self._lease.pace.interval if self._lease.pace is not None else None

    def _note_response(self, status: int, wire_bytes: int, seconds: float) -> None:
        self._status, self._bytes, self._latency = status, wire_bytes, seconds
        self._emit(events.Fetched, status=status, bytes=wire_bytes, seconds=seconds)

    # -- 2. judge ------------------------------------------------------------------------------------------

    async def _arrive(self, outcome: Fetched) -> None:
        response = outcome.response
        self._note_response(response.status, response.wire_bytes, response.seconds)
        self._snapshot = Snapshot(
            url=response.url,
            requested_url=self._task.url,
            status=response.status,
            headers=response.headers,
            body=response.body,
            fetched_at=outcome.fetched_at,
            cut=response.cut,
            kind=self._task.kind,
            job=self._task.job,
            data=self._task.data,
        )
        retry_after = parse_retry_after(response.headers.get("retry-after"), outcome.fetched_at)
        terms = self._crew.retry_terms_for(self._task.site)
        failure = failure_of(response.status, terms, retry_after, self._task.url)
        if failure is not None and response.status not in self._crew.spider.handle_statuses:
            await self._fail(failure)
            return
        await self._understand(self._snapshot)

    async def _hand_over(self, outcome: Redirected) -> None:
        """The target is queued like any link, at the same depth: scope, dedup and its site's pace apply to it."""
        task = self._task
        request = Request(url=outcome.to, kind=task.kind, data=task.user_data(), max_attempts=task.max_attempts)
        judged = self._crew.admission.judge([request], depth=task.depth, priority=task.priority)
        candidates = [msgspec.structs.replace(one, redirects=outcome.redirects) for one in judged.candidates]
        reason = f"redirected to {outcome.to}"
        await self._keep(outcome="redirected", reason=reason)
        added = await self._complete(UrlState.DONE, reason, candidates, judged.duplicates)
        self._ended("redirected", added)

    async def _drop_for_robots(self, outcome: Disallowed) -> None:
        await self._keep(outcome="dropped", reason="robots", error=outcome.rule)
        added = await self._complete(UrlState.DROPPED, "robots")
        self._ended("dropped", added)

    async def _keep_unchanged(self, outcome: NotModified) -> None:
        """The server says that nothing changed: not parsed again, but its links are followed as they were."""
        known = self._known
        links = msgspec.json.decode(known.links, type=list[Request]) if known is not None and known.links else []
        judged = self._judge(links)
        facts = msgspec.structs.replace(known, fetched_at=outcome.fetched_at, job=self._task.job) if known else None
        await self._keep(outcome="unchanged", page=facts)
        added = await self._complete(UrlState.UNCHANGED, "", judged.candidates, judged.duplicates)
        self._crew.admission.confirm(judged, added)
        self._ended("unchanged", added)

    async def _fail(self, failure: GossamerError, detail: str = "") -> None:
        """The try failed: again later, or to the dead letters with the raw page."""
        crew, task = self._crew, self._task
        attempt = task.attempt + 1
        terms = crew.retry_terms_for(task.site)
        decision = decide(
            failure,
            attempt=attempt,
            max_attempts=terms.max_attempts or task.max_attempts,
            terms=terms,
            jitter=random.random(),
        )
        self._status = self._status or getattr(failure, "status", None)
        message = str(failure)
        if isinstance(decision, GiveUp):
            await self._keep(outcome="dead", reason=decision.reason, error=message, with_raw_page=True)
            text = f"{message}\n\n{detail}" if detail else message
            await crew.frontier.bury(self._lease, decision.reason, text, paced_ahead=crew.pacer.ahead(task.site))
            self._emit(events.Buried, reason=decision.reason, attempt=attempt, message=message)
            return
        if decision.rest:
            # Before the task is settled, so that nobody slips in between.
            crew.pacer.rest(task.site, decision.rest)
            await crew.frontier.slow_down(task.site, interval=None, rest=decision.rest)
        await self._keep(outcome="retry", reason=failure.reason, error=message)
        await crew.frontier.retry(self._lease, decision.delay, failure.reason, paced_ahead=crew.pacer.ahead(task.site))
        self._emit(
            events.Retried,
            reason=failure.reason,
            attempt=attempt,
            delay=decision.delay.total_seconds(),
            message=message,
        )

    async def _release(self, delay: timedelta, reason: str) -> None:
        await self._crew.frontier.release(
            self._lease, delay, reason, paced_ahead=self._crew.pacer.ahead(self._task.site)
        )
        self._emit(events.Released, reason=reason)

    # -- 3. to 7. parse, pipeline, admit, store, settle ------------------------------------------------------

    async def _understand(self, snapshot: Snapshot) -> None:
        crew = self._crew
        began = crew.clock.monotonic()
        harvest = await self._harvest(snapshot)
        if isinstance(harvest, ParseFailed):
            await self._fail(harvest, harvest.detail)
            return
        parsed, piped = harvest
        judged = self._judge(parsed.requests)
        now = crew.clock.monotonic()
        self._emit(events.Parsed, items=len(piped.records), links=len(parsed.requests), seconds=now - began)
        for drop in piped.dropped:
            self._emit(events.ItemDropped, step=drop.step, reason=drop.reason)

        changed = await self._keep(
            outcome="done",
            page=self._facts(snapshot, parsed.requests),
            records=tuple(piped.records),
            with_raw_page=True,
        )
        if piped.records:
            self._emit(events.Stored, items=len(piped.records), changed=changed, seconds=crew.clock.monotonic() - now)
        added = await self._complete(UrlState.DONE, "", judged.candidates, judged.duplicates)
        crew.admission.confirm(judged, added)
        self._ended("done", added)

    async def _harvest(self, snapshot: Snapshot) -> tuple[Parsed, Piped] | ParseFailed:
        """What the page gives. Its tree, many times the size of its body, ends here: storing may have to wait, and
        the trees of all pages that wait would fill the memory. So would a failure that holds on to its frames."""
        crew, task = self._crew, self._task
        try:
            page = Page(snapshot, depth=task.depth, spider=crew.spider)
            parsed = await run_callback(crew.spider, task.kind, page)
            return parsed, await crew.pipeline.run(
                parsed.items, page, spider=crew.spider.name, job=task.job, now=snapshot.fetched_at
            )
        except ParseFailed as failure:
            failure.__cause__ = failure.__context__ = None  # what they had to say is in the detail
            return failure.with_traceback(None)

    def _judge(self, requests: Sequence[Request]) -> Judged:
        task = self._task
        return self._crew.admission.judge(requests, depth=task.depth + 1, priority=task.priority, site=task.site)

    def _facts(self, snapshot: Snapshot, requests: Sequence[Request]) -> PageFacts:
        etag = snapshot.headers.get("etag")
        last_modified = snapshot.headers.get("last-modified")
        return PageFacts(
            fingerprint=self._task.fingerprint,
            url=self._task.url,
            job=self._task.job,
            fetched_at=snapshot.fetched_at,
            status=snapshot.status,
            etag=etag,
            last_modified=last_modified,
            body_hash=sha256(snapshot.body).digest()[:16],
            parser=self._crew.parser_version,
            links=msgspec.json.encode(requests) if (etag or last_modified) and requests else b"",
        )

    async def _keep(
        self,
        *,
        outcome: str,
        reason: str = "",
        error: str = "",
        page: PageFacts | None = None,
        records: tuple[Record, ...] = (),
        with_raw_page: bool = False,
    ) -> int:
        """Store what this visit leaves behind; return how many records were new or changed."""
        task = self._task
        snapshot = self._snapshot if with_raw_page else None
        if snapshot is not None and page is None:
            # Nothing came of it: the next visit asks for the page in full, so that it is parsed again.
            page = msgspec.structs.replace(self._facts(snapshot, ()), parser="")
        attempt = Attempt(
            at=self._started_at,
            job=task.job,
            url=task.url,
            fingerprint=task.fingerprint,
            site=task.site,
            worker=self._crew.worker,
            attempt=task.attempt + 1,
            outcome=outcome,
            status=self._status,
            bytes=self._bytes,
            latency=self._latency,
            reason=reason,
            error=error[:2000],
        )
        return await self._crew.sink.keep(PageResult(attempt=attempt, page=page, records=records), snapshot)

    async def _complete(
        self, state: UrlState, reason: str, discovered: Sequence[Any] = (), duplicates: int = 0
    ) -> Added:
        crew = self._crew
        return await crew.frontier.complete(
            self._lease,
            state,
            reason,
            discovered,
            duplicates=duplicates,
            paced_ahead=crew.pacer.ahead(self._task.site),
        )

    def _ended(self, outcome: str, added: Added) -> None:
        seconds = self._crew.clock.monotonic() - self._began
        self._emit(events.Completed, outcome=outcome, added=added.queued, seconds=seconds)

    def _emit(self, kind: type[events.Event], **facts: Any) -> None:  # Any: the fields differ by event
        task = self._task
        self._crew.events.emit(kind(at=self._crew.clock.now(), job=task.job, url=task.url, site=task.site, **facts))
