"""The turn of a request at a site without a lease: for a file of a source, or a robots.txt on another site that a
page's own robots.txt redirects to.

How it works: the request has the site to itself for a moment. The workers of the fleet are told to leave the site alone
(`SiteBook.slow_down`), and one such request at a time may do so (`SeedBook.claim`).
How it fails: as the pacer does; BackendUnavailable.
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
ON_THE_WAY = 0.1  # seconds in which a request that another worker was just about to write has left, even if it is late

Announce = Callable[[str, timedelta, str], Awaitable[float]]


async def take_turn(
    seeds: SeedBook, sites: SiteBook, clock: Clock, *, site: str, rest: timedelta, request: str
) -> float:
    """Reserve the site for `rest`, or extend the reservation that `request` already has. Returns a moment (monotonic)
    before the reservation began."""
    asked_at = clock.monotonic()
    while not await seeds.claim(f"{SITE}{site}", request, rest):
        await clock.sleep(min(TURN_LOOK, rest).total_seconds())
        asked_at = clock.monotonic()
    await sites.slow_down(site, interval=None, rest=rest)
    return asked_at


class Announcement:
    """Asks other workers to leave the site alone. One interval must pass before the request is written, because another
    worker may have been there just now; at fast sites a longer one, because its request may be late. Then there is half
    an interval to write it in, and a whole one until the others come back. If the state is so slow that the time to
    write is over before it began, twice as much is reserved."""

    def __init__(self, site: str, spacing: float, announce: Announce, clock: Clock) -> None:
        self._site = site
        self._name = uuid4().hex
        self._spacing = max(spacing, ON_THE_WAY)
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
