"""The turn of a request at a site without a lease: for a file of a source, or a robots.txt on another site that a
page's own robots.txt redirects to.

How it works: the request has the site to itself for a moment. No page of the site is handed out (`SiteBook.clear`), the
request waits until no turn is owed, and one such request at a time may do so (`SeedBook.claim`).
How it fails: as the pacer does; BackendUnavailable. A turn that is owed for longer than LONGEST is no longer waited
for: mostly its request has left, as in a burst, or never will, as that of a worker that died.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import uuid4

from ..clock import Clock
from ..fetch.contract import Gate
from ..frontier.contract import SeedBook, SiteBook
from ..frontier.politeness import TermsFor
from .pacer import Pacer, SiteGate, TooEarly, with_margin
from .windows import NEXT_LOOK

SITE = "@"  # prefix of a site's name where it stands in place of a job (SeedBook)
TURN_LOOK = timedelta(milliseconds=100)
CLEAR_FOR = timedelta(milliseconds=250)  # at least, while turns are owed: a look may be late on a busy machine
LONGEST = 5.0  # seconds; a pacer holds a request no longer than this (MAX_HOLD)

Announce = Callable[[str, timedelta, str], Awaitable[float]]


async def take_turn(
    seeds: SeedBook, sites: SiteBook, clock: Clock, *, site: str, rest: timedelta, request: str
) -> float:
    """Reserve the site for `rest`, or extend the reservation that `request` already has. Returns a moment (monotonic)
    before the reservation began, at which no turn of the site was owed."""
    rest, first = max(rest, CLEAR_FOR), None
    while True:
        asked_at = clock.monotonic()
        if await seeds.claim(f"{SITE}{site}", request, rest):
            first = asked_at if first is None else first
            if not await sites.clear(site, rest) or asked_at - first >= LONGEST:
                return asked_at
        await clock.sleep(min(TURN_LOOK, rest / 4).total_seconds())


class Announcement:
    """Asks for the site. When no turn of it is owed any more, one interval must pass before the request is written,
    because a page may have left just before it was settled. Then there is half an interval to write the
    request in, and a whole one until pages are handed out again. If the state is so slow that the time to write is over
    before it began, twice as much is reserved."""

    def __init__(self, site: str, spacing: float, announce: Announce, clock: Clock) -> None:
        self._site = site
        self._name = uuid4().hex
        self._spacing = spacing
        self._ready = 1.5 * self._spacing  # how long after the announcement the request may still be written
        self._announce = announce
        self._clock = clock
        self._until = float("-inf")

    async def renew(self) -> None:
        """Return when the request may be written; at once if it may be already."""
        while self._clock.monotonic() > self._until:
            rest = timedelta(seconds=self._ready + self._spacing)
            asked_at = await self._announce(self._site, rest, self._name)
            await self._clock.sleep(self._spacing)
            self._until = asked_at + self._ready
            self._ready = max(self._ready, 2 * (self._clock.monotonic() - asked_at) - self._spacing)


class AnnouncedGate:
    """The gate of an announced request; if connecting took too long, it is announced again. `check` is called last."""

    def __init__(self, gate: SiteGate, announced: Announcement, check: Callable[[], None] | None = None) -> None:
        self._gate = gate
        self._announced = announced
        self._check = check
        self.withdraw, self.left, self.close = gate.withdraw, gate.left, gate.close

    @property
    def is_out(self) -> bool:
        return self._gate.is_out

    async def enter(self, address: str = "") -> None:
        await self._gate.enter(address)
        await self._announced.renew()
        if self._check is not None:
            self._check()


class UnleasedTurns:
    """For journeys of one job whose robots.txt redirects to another site."""

    def __init__(
        self,
        pacer: Pacer,
        seeds: SeedBook,
        sites: SiteBook,
        clock: Clock,
        *,
        worker: str,
        terms_for: TermsFor,
        closed_for: Callable[[str], timedelta | None] = lambda site: None,
    ) -> None:
        self._pacer = pacer
        self._seeds = seeds
        self._sites = sites
        self._clock = clock
        self._worker = worker
        self._terms_for = terms_for
        self._closed_for = closed_for

    async def gate(self, site: str, check: Callable[[], None]) -> Gate:
        """The gate of one request to the site. Raises TooEarly if its turn is far off or its window closed."""
        closed = self._closed_for(site)
        if closed:
            raise TooEarly(min(closed, NEXT_LOOK))
        spacing = self._terms_for(site).own_spacing(None)
        if not spacing:
            return self._pacer.gate(site, None, check)
        gate = self._pacer.gate(site, timedelta(seconds=spacing))
        announced = Announcement(site, with_margin(spacing), self._announce, self._clock)
        try:
            await announced.renew()
        except BaseException:
            gate.close()
            raise
        return AnnouncedGate(gate, announced, check)

    async def _announce(self, site: str, rest: timedelta, request: str) -> float:
        name = f"{self._worker}.{request}"
        return await take_turn(self._seeds, self._sites, self._clock, site=site, rest=rest, request=name)
