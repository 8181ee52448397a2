"""ONE URL's whole path. Read this first.

    1. fetch     choose a route, ask robots.txt, wait for the site's pace, make the request (fetch_page.py)
    2. judge     a redirect goes back to the queue, a failure is retried or buried, a 304 ends here
    3. parse     the spider's callback turns the page into items and links
    4. pipeline  clean, validate, deduplicate, inspect: items become records, or are held back
    5. admit     links become candidates: scope, depth, traps
    6. store     raw page, records, the line in the audit log: in one commit, repeatable
    7. settle    the task is done and its links are queued: in one step

Store comes before settle: a crash in between repeats work, it never loses it. A journey whose lease was lost settles
nothing. An error of the site or of the spider is an outcome, not an exception, and does not affect other journeys. When
one of our own backends fails, the task goes back to the queue and the worker gets the error.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import msgspec

from ..clock import iso_time
from ..errors import (
    BudgetSpent,
    FetchFailed,
    FetchRefused,
    GossamerError,
    LeaseLost,
    ParseFailed,
    RateLimited,
    RouteFailed,
    Uncertain,
)
from ..fetch.contract import Gate
from ..fetch.fetcher import Disallowed, FetchedPage, NotModified, PageRequest, Redirected
from ..fetch.retry_after import parse_retry_after
from ..frontier.admission import Judged
from ..frontier.contract import NO_STATS, Added, redirect_reason
from ..frontier.retry import GiveUp, decide, failure_of
from ..model import events
from ..model.job import UNFINISHED
from ..model.page import Snapshot
from ..model.record import Attempt, PageFacts, Record
from ..model.route import FetchOptions
from ..model.task import SITE_AWAY, Candidate, DropReason, Request, UrlState
from ..parse.callbacks import ParsedPage
from ..pipeline.steps import Piped
from ..routing.router import RouteNotServed
from ..trace import Tracer, step, traced
from .attempt_log import AttemptLog
from .context import JobContext
from .errback import bury, leave_out
from .fetch_page import FetchResult, PageFetch, failure_of_block
from .held_lease import HeldLease
from .pacer import TooEarly
from .page_facts import content_of, links_of, observed, snapshot_of, was_done, without_validators
from .page_request import is_personal, redirected
from .parse_page import held_items, lost_items, parse_page
from .second_opinion import PAUSE
from .second_opinion import REASON as ELSEWHERE
from .side_requests import allow_side_requests
from .site_notes import SiteNotes
from .unsafe_send import UNCERTAIN, AlreadySent, earliest_answer, stored_answer, unsafe_send
from .windows import NEXT_LOOK, WINDOW

ROBOTS = DropReason.ROBOTS.value
POISON = "poison"  # the reason of a page that killed its workers too often
MOST_FAULTS = 50  # most faults that are listed for a page that is held back


class Journey:
    """Takes one lease from fetch to settlement. `known` holds the facts of the page from an earlier fetch."""

    def __init__(self, context: JobContext, held: HeldLease, known: PageFacts | None = None) -> None:
        self._context = context
        self._held = held
        self._lease = held.lease
        self._task = held.lease.task
        self._how = self._task.options() if self._task.how else None  # None: a plain GET
        self._once = unsafe_send(context, held.lease, self._how) if self._how is not None else None
        personal = self._how is not None and is_personal(self._how, context.spider)
        self._known = without_validators(known) if personal and known is not None else known
        self._site = SiteNotes(context, held)
        self._kept: ParsedPage | None = None  # what a callback that failed gave before, if that counts
        self._unfinished = ""  # why the page was taken before it had finished loading
        self._began = context.clock.monotonic()
        self._log = AttemptLog(
            self._task,
            context.clock,
            worker=context.worker,
            spider=context.spider.name,
            parser_version=context.parser_version,
            sink=context.sink,
            repeat=held.lease.delivery > 1 or was_done(self._task, known),
            personal=personal,
        )

    async def run(self) -> None:
        """Make the journey. Raises BackendUnavailable and our other Transient errors; every other outcome is settled.

        The caller must have the lease in the pacer before this call, and take it out only after the task is settled.
        """
        self._held.take_turn = self._site.take_turn
        try:
            if self._context.tracer is None:
                await self._fetch_and_settle()
                return
            with self._traced(self._context.tracer):
                await self._fetch_and_settle()
        except LeaseLost as lost:
            self._emit(events.LeaseLapsed, message=str(lost))
        finally:
            self._held.take_turn = None  # no circle of references for each page

    def _traced(self, tracer: Tracer) -> AbstractContextManager[None]:
        task = self._task
        since, url = self._began - self._held.asked_at, task.url.partition("?")[0]
        return traced(tracer, "attempt", since=since, job=task.job, site=task.site, url=url, attempt=task.attempt + 1)

    async def _fetch_and_settle(self) -> None:
        if self._lease.delivery > self._context.max_deliveries:
            died = self._lease.delivery - 1
            await self._give_up(POISON, f"{died} workers in a row died or hung while they had this page.")
            return
        closed = self._context.windows.wait_for(self._task.site) if self._context.windows is not None else None
        if closed:
            # The whole site rests, so that its other pages need not come here to find out. Not for long: windows may
            # change.
            pause = min(closed, NEXT_LOOK)
            await self._site.let_rest(pause)
            await self._release(pause, WINDOW)
            return
        if (away := self._site.given_up()) is not None:
            words = f"{away.host} has been unreachable since {iso_time(away.since)}; this page was not tried."
            await self._give_up(away.reason, words)
            return
        if self._lease.sent and self._once is not None and not self._once.repeats:
            await self._settle_sent()
            return
        try:
            result = await self._fetch()
        except AlreadySent:
            await self._settle_sent()
        except TooEarly as early:
            await self._release(early.wait, early.reason)
        except RouteNotServed as other:
            await self._release(timedelta(0), f"needs a worker for {other.lane}", other.lane)
        except RouteFailed as failure:
            await self._wait_for_a_route(failure)
        except (FetchFailed, FetchRefused) as failure:
            await self._fail(failure)
        else:
            if self._context.second_opinion is not None:
                self._context.second_opinion.succeeded()
            await self._settle(result)

    async def _settle_sent(self) -> None:
        """An earlier lease sent the request, which must not be repeated: settle it by its stored answer, if any."""
        context, task, how = self._context, self._task, self._how or FetchOptions()
        since = earliest_answer(context, self._lease, how)
        answer = await stored_answer(context.records, task.job, task.fingerprint, since)
        if answer is None:
            await self._give_up(Uncertain.reason, UNCERTAIN)
            # A worker that had lost its lease may have stored it meanwhile. If it stores it later, it finds the letter.
            answer = await stored_answer(context.records, task.job, task.fingerprint, since)
        if answer is None:
            return
        if answer.outcome == "redirected":
            await self._queue_target_again(answer)
        else:
            facts = (await context.records.facts([task.fingerprint])).get(task.fingerprint)
            judged = await self._judge(links_of(facts if facts is not None and facts.job == task.job else None))
            added = await self._complete(UrlState.DONE, "", judged.candidates, judged.duplicates)
            context.confirm(judged, added)
            self._ended("done", added)

    async def _settle(self, result: FetchResult) -> None:
        outcome = result.outcome
        match outcome:
            case Disallowed():
                await self._drop_for_robots(outcome)
            case Redirected():
                # If the session can log in, session_journey.py has dealt with a login wall before.
                if result.block is not None and (
                    wall := failure_of_block(result.block, self._task.url, outcome.status)
                ):
                    await self._fail(wall)
                else:
                    await self._queue_target(outcome)
            case NotModified():
                await self._keep_unchanged(outcome)
            case FetchedPage():
                await self._take_page(outcome, result)

    # -- 1. fetch ------------------------------------------------------------------------------------------

    async def _fetch(self) -> FetchResult:
        context = self._context
        with step("fetch"), allow_side_requests(context, self._held, self._how, self._before_send, self._emit):
            return await self._page_fetch().run(await self._request())

    async def _request(self) -> PageRequest:
        known = self._known
        # A page that other code parsed must be parsed again, so it is requested in full. So is one that another spider
        # parsed: spiders of one file have one version, and the records of the other one are not those of this one.
        usable = (
            self._context.conditional
            and known is not None
            and known.parser == self._context.parser_version
            and known.spider == self._context.spider.name
            and known.status == 200
            and not (self._context.spider._renders_anew and self._how is not None and self._how.render is not None)
        )
        return await self._context.requests.made_for(self._task, self._how, known if usable else None)

    def _page_fetch(self) -> PageFetch:
        context = self._context
        return PageFetch(
            self._task,
            self._log,
            fetcher=context.fetcher,
            router=context.router,
            before_send=self._before_send,
            held=self._held,
            emit=self._emit,
            ease=self._site.rest_shortly,
            wanted_statuses=self._wanted_statuses(),
            detects_blocks=context.detects_blocks(self._task.site),
            once=self._once,
        )

    def _wanted_statuses(self) -> frozenset[int]:
        """Error statuses whose pages go to the callback nevertheless."""
        own = self._how.statuses if self._how is not None else ()
        return frozenset((*self._context.spider.handle_statuses, *own))

    async def _before_send(self, asked: timedelta | None = None, elsewhere: str | None = None) -> Gate:
        if elsewhere is not None and elsewhere != self._task.site:
            return await self._context.unleased_turns.gate(elsewhere, self._held.check)
        await self._site.keep_crawl_delay(asked)
        held = self._held
        while held.turn_is_over:
            await self._site.take_turn()
        gate = self._context.pacer.gate(self._task.site, asked, held.check, not_before=held.turn)
        held.watch(gate)  # without a pause since the look: the turn may end at any other moment
        return gate

    # -- 2. judge ------------------------------------------------------------------------------------------

    async def _take_page(self, outcome: FetchedPage, result: FetchResult) -> None:
        response = outcome.response
        snapshot = self._log.snapshot = snapshot_of(self._task, outcome)
        self._unfinished = response.unfinished
        retry_after = parse_retry_after(response.headers.get("retry-after"), outcome.fetched_at)
        terms = self._context.retry_terms_for(self._task.site)
        by_status = None
        if response.status not in self._wanted_statuses() and not response.verdict.wanted:
            by_status = failure_of(response.status, terms, retry_after, self._task.url)
        failure = result.failure(self._task.url, response.status, by_status)
        if failure is not None:
            await self._fail(failure)
            return
        await self._parse_and_store(snapshot)

    async def _queue_target(self, outcome: Redirected) -> None:
        """Queue the target like any link, at the same depth: scope, dedup and the pace of its site apply to it."""
        task = self._task
        try:
            how, spider = self._how or FetchOptions(), self._context.spider
            request = redirected(task, how, outcome.to, outcome.method, outcome.status, spider)
        except FetchRefused as failure:
            await self._fail(failure)
            return
        judged, candidates = await self._judge_target(request, outcome.redirects)
        reason = redirect_reason(outcome.to)
        page, records = self._facts_of_redirect(), self._moved(outcome.to)
        await self._log.keep(outcome="redirected", reason=reason, page=page, records=records)
        added = await self._complete(UrlState.DONE, "", candidates, duplicates=judged.duplicates, redirect=outcome.to)
        self._ended("redirected", added)

    async def _queue_target_again(self, answer: Attempt) -> None:
        """The stored answer of an unsafe request is a redirect, whose target may not have entered the queue."""
        task, how, to = self._task, self._how or FetchOptions(), answer.reason.removeprefix(redirect_reason(""))
        method = how.method if answer.status in (307, 308) else "GET"
        try:
            request = redirected(task, how, to, method, answer.status or 302, self._context.spider)
        except FetchRefused as failure:
            await self._give_up(failure.reason, str(failure))
            return
        judged, candidates = await self._judge_target(request, (*task.redirects, task.url))
        added = await self._complete(UrlState.DONE, "", candidates, duplicates=judged.duplicates, redirect=to)
        self._ended("redirected", added)

    async def _judge_target(self, request: Request, redirects: tuple[str, ...]) -> tuple[Judged, list[Candidate]]:
        """The target takes the place of a page that was admitted: a limit of URLs must not drop it."""
        task = self._task
        judged = await self._context.judge([request], depth=task.depth, priority=task.priority, site=task.site)
        return judged, [msgspec.structs.replace(one, redirects=redirects, named=True) for one in judged.candidates]

    def _moved(self, to: str) -> tuple[Record, ...]:
        """The records of a page that redirects: none. A file overrides this."""
        return ()

    async def _drop_for_robots(self, outcome: Disallowed) -> None:
        await self._site.note_crawl_delay(outcome.crawl_delay)
        facts = self._facts_of_failure(ROBOTS)
        added = await leave_out(self._context, self._held, self._log, facts, ROBOTS, outcome.rule)
        self._ended("dropped", added)

    async def _keep_unchanged(self, outcome: NotModified) -> None:
        """The server says that nothing changed: do not parse the page again, but follow the links found the last
        time."""
        known = self._known
        try:
            links = links_of(known)
        except ParseFailed as failure:
            # Noted for every page, watched or not: otherwise the server would confirm the same row again and again.
            await self._give_up(failure.reason, str(failure), facts=self._log.failed(known, failure.reason))
            return
        judged = await self._judge(links)
        facts = msgspec.structs.replace(known, fetched_at=outcome.fetched_at, job=self._task.job) if known else None
        if facts is not None:
            facts = self._observed(facts, facts.content)
        await self._log.keep(outcome="unchanged", page=facts)
        added = await self._complete(UrlState.UNCHANGED, "", judged.candidates, judged.duplicates)
        self._context.confirm(judged, added)
        self._ended("unchanged", added)

    async def _fail(self, failure: GossamerError, detail: str = "") -> None:
        """The attempt failed: retry the page later, or bury it."""
        context, task = self._context, self._task
        message = str(failure)
        self._log.status = self._log.status or getattr(failure, "status", None)
        if self._once is not None and not self._once.may_repeat(failure):
            await self._give_up(failure.reason, message, detail)
            return
        if context.second_opinion is not None and await context.second_opinion.wants(task, failure):
            await self._log.keep(outcome="released", reason=failure.reason, error=message)
            await self._release(PAUSE, ELSEWHERE)
            self._emit(events.Trouble, stage=failure.reason, message=f"{message} Another machine tries it first.")
            return
        away = await self._site.failed(failure)
        if away is not None and away.over:
            since = iso_time(away.since)
            await self._give_up(failure.reason, f"{message} The site has been unreachable since {since}.", detail)
            return
        if away is not None and not away.counts:
            await self._log.keep(outcome="released", reason=failure.reason, error=message)
            await self._release(away.pause, SITE_AWAY)
            self._emit(events.SiteAway, delay=away.pause.total_seconds(), message=message)
            return
        attempt = task.attempt + 1
        terms = context.retry_terms_for(task.site)
        decision = decide(
            failure,
            attempt=attempt,
            max_attempts=terms.max_attempts or task.max_attempts,
            terms=terms,
            jitter=random.random(),
        )
        # Before the task is settled, so that no other page of the site leaves in between.
        if isinstance(failure, RateLimited) and not self._log.by_proxy:
            await self._site.refused(decision.rest)
        elif decision.rest:
            await self._site.let_rest(decision.rest)
        if isinstance(decision, GiveUp):
            await self._give_up(decision.reason, message, detail)
            return
        await self._log.keep(outcome="retry", reason=failure.reason, error=message)
        if self._once is not None:
            await self._once.withdraw()
        await self._held.settle(
            lambda: context.frontier.retry(
                self._lease, decision.delay, failure.reason, paced_ahead=context.pacer.ahead(task.site)
            )
        )
        self._emit(
            events.Retried,
            reason=failure.reason,
            attempt=attempt,
            delay=decision.delay.total_seconds(),
            message=message,
        )

    async def _give_up(self, reason: str, message: str, detail: str = "", facts: PageFacts | None = None) -> None:
        """Bury the page with the raw response, if there is one, and store what the spider's errback yields."""
        facts = facts or self._facts_of_failure(reason)
        message = await bury(self._context, self._held, self._log, facts, reason, message, detail, self._kept)
        self._emit(events.Buried, reason=reason, attempt=self._task.attempt + 1, message=message, detail=detail)

    async def _wait_for_a_route(self, failure: RouteFailed) -> None:
        """No request can leave at the moment, which is not the page's fault: it uses up no attempt."""
        if isinstance(failure, BudgetSpent):
            self._emit(events.BudgetReached, budget=failure.budget, message=str(failure))
            if self._context.buries_unpaid:
                await self._give_up(failure.reason, str(failure))
                return
        else:
            self._emit(events.Trouble, stage=failure.reason, message=str(failure))
        await self._release(failure.wait, failure.reason, failure.lane)

    async def _release(self, delay: timedelta, reason: str, lane: str | None = None) -> None:
        context = self._context
        if self._once is not None and self._once.noted:  # a task is released only if its request was not sent after all
            await self._once.withdraw()
            await self._held.settle(lambda: context.frontier.note_sent(self._lease, sent=False))
        await self._held.settle(
            lambda: context.frontier.release(
                self._lease, delay, reason, paced_ahead=context.pacer.ahead(self._task.site), lane=lane
            )
        )
        self._emit(events.Released, reason=reason)

    # -- 3. to 7. parse, pipeline, admit, store, settle ------------------------------------------------------

    async def _parse_and_store(self, snapshot: Snapshot) -> None:
        context = self._context
        began = context.clock.monotonic()
        new = self._known is None
        with step("parse"), allow_side_requests(context, self._held, self._how, self._before_send, self._emit):
            parsing = await parse_page(
                snapshot,
                self._task,
                context.spider,
                context.pipeline,
                context.time_limit,
                new=new,
                around=context.around_parse,
                describe=context.describe,
            )
        if isinstance(parsing, ParseFailed):
            self._log.quality = context.pipeline.refused(parsing, snapshot.fetched_at)
            self._log.items = msgspec.structs.replace(lost_items(parsing), flawed=1)
            self._count_quality(0, 1)
            self._kept = parsing.kept
            await self._fail(parsing, self._with_version(parsing.detail))
            return
        parsed, piped = parsing
        self._log.quality = piped.inspection.tallies
        self._log.items = piped.items
        self._count_quality(piped.items.fine, piped.items.flawed)
        if context.guard.closed and (piped.records or piped.inspection.empty):
            await self._hold_back(piped)
            return
        judged = await self._judge(parsed.requests, links_only=parsed.links_only)
        facts = self._facts(snapshot, parsed, piped)
        now = context.clock.monotonic()
        self._emit(events.Parsed, items=len(piped.records), links=len(parsed.requests), seconds=now - began)
        stats = {**parsed.stats, UNFINISHED: 1} if self._unfinished else parsed.stats
        del parsing, parsed  # free the links before waiting for the stores: the next page reuses their memory
        for drop in piped.dropped:
            self._emit(events.ItemDropped, step=drop.step, reason=drop.reason)
        faults = piped.inspection.faults
        if faults:
            self._emit(events.Flawed, faults=len(faults), message=faults[0].message)

        changed = await self._log.keep(
            outcome="done",
            error="; ".join(filter(None, (self._unfinished, piped.remarks()))),
            page=facts,
            records=tuple(piped.records),
            schemas=piped.schemas,
            with_raw_page=True,
        )
        if piped.records:
            self._emit(
                events.Stored, items=len(piped.records), changed=changed, seconds=context.clock.monotonic() - now
            )
        added = await self._complete(UrlState.DONE, "", judged.candidates, judged.duplicates, stats=stats)
        context.confirm(judged, added)
        self._ended("done", added)

    def _facts(self, snapshot: Snapshot, parsed: ParsedPage, piped: Piped) -> PageFacts:
        facts = self._log.facts(snapshot, parsed.requests, links_only=parsed.links_only)
        if self._unfinished or snapshot.cut or piped.held_back:
            facts = msgspec.structs.replace(facts, parser="")  # the store decides about the records themselves
        return self._observed(facts, content_of(piped.records, facts.body_hash))

    def _facts_of_failure(self, reason: str) -> PageFacts | None:
        """The facts of a watched page whose fetch failed: what earlier fetches learned, and when this one was made."""
        if not self._context.watched:
            return None
        return self._log.failed(self._known, reason)

    def _facts_of_redirect(self) -> PageFacts | None:
        """A page that was read before is asked for in full when it is back: its records may be those of the target."""
        if self._known is not None and self._known.status == 200:
            return self._log.failed(self._known, "redirected")
        return self._facts_of_failure("redirected")

    def _observed(self, facts: PageFacts, content: bytes) -> PageFacts:
        lastmod = self._task.options().lastmod
        return observed(facts, self._known, content, watched=self._context.watched, lastmod=lastmod)

    def _count_quality(self, fine: int, faulty: int) -> None:
        """Count these items, and emit an event when they close or reopen the quality guard."""
        turn = self._context.guard.note(fine, faulty)
        if turn is not None:
            self._emit(events.QualityChanged, **msgspec.structs.asdict(turn))

    async def _hold_back(self, piped: Piped) -> None:
        """Too many recent items were faulty: do not store the records; the raw page waits until the spider is fixed."""
        await self._site.answered()
        self._log.items = held_items(piped)
        detail = "\n".join(fault.message for fault in piped.inspection.faults[:MOST_FAULTS])
        await self._give_up("quality", self._context.guard.refusal(self._task.url), self._with_version(detail))

    def _with_version(self, detail: str) -> str:
        return f"{detail}\n\nParser version {self._context.parser_version}".strip()

    async def _judge(self, requests: Sequence[Request], *, links_only: bool = False) -> Judged:
        task = self._task
        return await self._context.judge(
            requests, depth=task.depth + 1, priority=task.priority, site=task.site, links_only=links_only
        )

    async def _complete(
        self,
        state: UrlState,
        reason: str,
        discovered: Sequence[Any] = (),
        duplicates: int = 0,
        *,
        redirect: str | None = None,
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        context = self._context
        try:
            return await self._held.complete(
                lambda: context.frontier.complete(
                    self._lease,
                    state,
                    reason,
                    discovered,
                    redirect=redirect,
                    duplicates=duplicates,
                    paced_ahead=context.pacer.ahead(self._task.site),
                    stats=stats,
                )
            )
        except LeaseLost:
            if self._once is None or context.close_letter is None:
                raise
            # Another worker may have buried the request, whose answer is stored by now, as `uncertain`.
            why = reason if redirect is None else redirect_reason(redirect)
            added = await context.close_letter(self._task, discovered, duplicates, why)
            if added is None:
                raise
            return added

    def _ended(self, outcome: str, added: Added) -> None:
        seconds = self._context.clock.monotonic() - self._began
        self._emit(events.Completed, outcome=outcome, added=added.queued, seconds=seconds)

    def _emit(self, kind: type[events.Event], /, **facts: Any) -> None:  # Any: the fields differ by event
        task = self._task
        self._context.events.emit(
            kind(at=self._context.clock.now(), job=task.job, url=task.url, site=task.site, **facts)
        )
