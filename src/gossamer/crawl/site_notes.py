"""What a journey reports about its site to all workers: a crawl-delay, a request for rest, that it is unreachable.

A crawl-delay is reported before the first page is requested, so it holds even if this process dies right after.
How it fails: TooEarly when another worker holds the site; BackendUnavailable when the state does not answer for as long
as the lease lasts. How it recovers: the next journey that finds out reports it.
"""

from __future__ import annotations

from datetime import timedelta

from ..errors import FetchFailed, GossamerError
from ..frontier.away import AwayVerdict, SiteFailure
from ..frontier.retry import is_unreachable
from ..model.task import Away
from ..model.url import authority_of
from .context import JobContext
from .held_lease import HeldLease
from .pacer import TooEarly

SHORT_REST = timedelta(seconds=2)  # a rest this short is waited out in the journey's slot
LONGEST_WAIT = timedelta(seconds=30)  # for another turn: a page that is given back begins anew


class SiteNotes:
    """The reports about the site of one lease."""

    def __init__(self, context: JobContext, held: HeldLease) -> None:
        self._context = context
        self._held = held
        self._site = held.lease.task.site

    async def keep_crawl_delay(self, asked: timedelta | None) -> None:
        """Report a new crawl-delay before a request leaves. Raises TooEarly when another worker has the turn: workers
        whose leases are older than the delay take turns."""
        if not self._is_new(asked):
            return
        assert asked is not None
        if not await self._tell(asked, timedelta(0)):
            raise TooEarly(asked)
        if self._held.lease.pace is None:
            self._context.pacer.rest(self._site, asked)  # other workers may have fetched robots.txt just now

    async def take_turn(self) -> None:
        """The turn of the page is over, and it needs one more request: return when it has another turn. Raises TooEarly
        if that takes longer than LONGEST_WAIT."""
        context, held = self._context, self._held
        number, deadline = held.turn_number + 1, context.clock.monotonic() + LONGEST_WAIT.total_seconds()
        while True:
            turn = await context.frontier.next_turn(held.lease, number)
            if turn.wait is None:
                break
            if context.clock.monotonic() + turn.wait.total_seconds() > deadline:
                raise TooEarly(turn.wait)
            await context.clock.sleep(turn.wait.total_seconds())
        held.begin_turn(number, turn.pace, context.pacer.next_turn(self._site, turn.pace))

    async def note_crawl_delay(self, asked: timedelta | None) -> None:
        """Report a new crawl-delay when no request leaves: the next one of any worker keeps to it."""
        if self._is_new(asked):
            await self._tell(asked, timedelta(0))

    async def let_rest(self, rest: timedelta) -> None:
        """The site asked to be left alone for that time."""
        self._context.pacer.rest(self._site, rest)
        await self._tell(None, rest)

    async def refused(self, rest: timedelta) -> None:
        """The site said that requests come too often: it rests. If it says so repeatedly, its pace falls."""
        context = self._context
        context.pacer.rest(self._site, rest)
        learned = await self._held.settle(
            lambda: context.frontier.too_often(self._site, rest=rest, worker=context.worker)
        )
        if learned is not None:
            context.pacer.slow(self._site, learned)

    async def rest_shortly(self) -> None:
        """The site asked for fewer requests, and the page goes on by another route: after a short rest."""
        await self.let_rest(min(self._context.retry_terms_for(self._site).base, SHORT_REST))

    async def failed(self, failure: GossamerError) -> AwayVerdict | None:
        """What to do with the page if the site could not be reached; None if the site is there, or the failure does not
        tell."""
        lease, context = self._held.lease, self._context
        terms = context.retry_terms_for(self._site)
        if not isinstance(failure, FetchFailed) or not is_unreachable(failure, was_away=lease.away is not None):
            if not (isinstance(failure, FetchFailed) and failure.is_not_the_sites_fault):
                await self.answered()
            return None
        found = SiteFailure(host=authority_of(lease.task.url), reason=failure.reason, never=failure.first_contact)
        away = terms.away(terms.max_attempts or lease.task.max_attempts)
        verdict = await self._held.settle(lambda: context.frontier.site_away(self._site, found, away))
        if verdict.pause:
            context.pacer.rest(self._site, verdict.pause)
        return verdict

    async def answered(self) -> None:
        """A response came, whatever it said."""
        if self._held.lease.away is not None:
            await self._held.settle(lambda: self._context.frontier.site_back(self._site))

    def given_up(self) -> Away | None:
        """Return the outage if the page's host has been unreachable for so long that its pages are not tried any
        more."""
        away = self._held.lease.away
        if away is None or not away.given_up or away.host != authority_of(self._held.lease.task.url):
            return None
        return away

    def _is_new(self, asked: timedelta | None) -> bool:
        """Was the lease granted under a shorter interval?"""
        pace = self._held.lease.pace
        return asked is not None and asked.total_seconds() > (pace.interval if pace is not None else 0.0)

    async def _tell(self, interval: timedelta | None, rest: timedelta) -> bool:
        frontier, worker = self._context.frontier, self._context.worker
        return await self._held.settle(
            lambda: frontier.slow_down(self._site, interval=interval, rest=rest, worker=worker)
        )
