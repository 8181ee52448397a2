"""Spaces the requests of this process, site by site, at the moment they leave.

A lease reserves a place in the site's token bucket, but between the grant and the wire lie a busy event loop, a DNS
lookup and a handshake. So the worker to which turns of a site are owed counts its requests itself, with the same bucket
arithmetic, when they are written, and reports with the end of a turn, or of its lease, how far ahead of the bucket it
is. Further requests of a page (robots.txt, a hop after a cookie, a repeat) are counted here as well.

How it works: each request has a gate, which its transport enters once it is connected. A site with an interval lets
one request through at a time: the next gets its turn when the one before has left or failed, and its earliest start is
counted from the moment at which that one really left. After every sleep the clock is read again, and the lease is
checked last: a process that was suspended for a while sends nothing too late.
Where network addresses have their own pace (`AddressPace`), a request also takes its turn there, in the state that all
workers share.
How it fails: TooEarly for a wait that is better spent in the queue; whatever the check of the lease raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from ..clock import Clock
from ..errors import Transient
from ..frontier.contract import AddressBook
from ..frontier.politeness import after_start, earliest_start
from ..model.task import Lease, Pace

MAX_HOLD = timedelta(seconds=5)  # a longer wait is spent in the queue, not in a worker's slot
MARGIN = 0.005  # share of an interval added to it: requests that leave on time may arrive a little closer together
MAX_MARGIN = timedelta(milliseconds=5)
LATE = timedelta(milliseconds=50)  # how late a request may be for its turn at an address; at most half an interval
LONGEST_AHEAD = timedelta(minutes=1)  # turns at an address are reserved no further ahead
_NEVER = float("-inf")
_FEW_SITES = 1000  # up to this many sites are kept without checking which could be dropped


def with_margin(interval: float) -> float:
    """The interval to keep so that the target never sees one shorter than `interval`."""
    return interval + min(MARGIN * interval, MAX_MARGIN.total_seconds())


class TooEarly(Transient):
    """The site's pace allows no request soon. `wait` is how long it will take."""

    reason = "pace"

    def __init__(self, wait: timedelta) -> None:
        super().__init__(f"the site's pace allows the next request in {wait.total_seconds():.1f} s")
        self.wait = wait


class AddressBusy(TooEarly):
    """The site's network address is in heavy use, and has no free turn soon."""

    reason = "address pace"


class AddressPace:
    """The pace of network addresses, whichever sites they serve. A turn that is missed because this process or the
    state was slow lapses: delayed requests do not leave all at once."""

    def __init__(self, book: AddressBook, clock: Clock, interval: timedelta) -> None:
        self._book = book
        self._clock = clock
        self._interval = timedelta(seconds=with_margin(interval.total_seconds()))
        self._grace = max(interval.total_seconds() / 2, LATE.total_seconds())

    async def turn(self, address: str, max_hold: float) -> None:
        """Return when a request may be written. Raises AddressBusy if that would take longer than `max_hold`."""
        key, longest = _network(address), timedelta(seconds=min(max_hold, LONGEST_AHEAD.total_seconds()))
        while True:
            wait = await self._book.take_turn(key, self._interval, longest)
            turn = self._clock.monotonic() + wait.total_seconds()
            if wait > longest:
                if max_hold <= wait.total_seconds():
                    raise AddressBusy(wait)
                await self._clock.sleep(wait.total_seconds())
                continue
            while (left := turn - self._clock.monotonic()) > 0:
                await self._clock.sleep(left)
            if self._clock.monotonic() <= turn + self._grace:
                return


@lru_cache(maxsize=4096)
def _network(address: str) -> str:
    """What counts as one address: for IPv6 a /64, since every machine has a whole one."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        return str(ip.ipv4_mapped) if ip.ipv4_mapped is not None else str(ip_network((ip, 64), strict=False))
    return str(ip)


class _SitePace:
    """The pace of one site. `tat` is its bucket (frontier/politeness.py), counted in requests that have left."""

    __slots__ = (
        "asked", "burst", "expected", "gap", "granted", "interval", "last", "leases", "rest_until", "tat", "turn",
    )  # fmt: skip

    def __init__(self) -> None:
        self.tat = _NEVER
        self.interval: float | None = None
        self.asked = 0.0  # the crawl-delay of the site, as this process has read it
        self.granted: float | None = None  # the interval of the newest lease
        self.burst = 1
        self.gap = 0.0  # by how much the interval is longer than that of the site: the job has its own rate
        self.rest_until = _NEVER
        self.last = _NEVER  # when the last request left
        self.leases = 0
        self.expected = 0  # requests that have a gate and are not in the bucket yet
        self.turn = asyncio.Lock()  # for sites whose requests leave one at a time

    def earliest(self) -> float:
        """When the next request may leave, if no other is before it."""
        if self.interval is None:
            return self.rest_until
        return max(self.rest_until, earliest_start(self.tat, interval=self.interval, burst=self.burst))

    def ask_for(self, interval: float, burst: int, gap: float = 0.0) -> None:
        """Keep this interval unless a longer one is known. It also counts from the last request that left."""
        if interval > (self.interval or 0.0):
            self.interval, self.burst, self.gap = interval, burst, gap
            if burst == 1:
                self.tat = max(self.tat, self.last + interval)

    def grant(self, interval: float, burst: int, gap: float = 0.0) -> None:
        """Keep the interval of the newest lease, even if it is shorter than the one before: then an operator lets the
        site be faster. Never go below the site's own crawl-delay."""
        self.granted = interval
        if interval < (self.interval or 0.0) and interval >= self.asked:
            if not self.gap:  # else the longer one is another job's own rate, which its requests keep
                self.tat = min(self.tat, self.last + interval * burst)
            self.interval, self.burst, self.gap = interval, burst, gap
        else:
            self.ask_for(interval, burst, gap)

    def free(self) -> None:
        """The newest lease has no limit, so one that an operator has lifted ends. What the site has asked for stays,
        and the own rate of a job."""
        if self.interval is not None and self.interval == self.granted and not self.asked and not self.gap:
            self.interval, self.burst, self.gap, self.tat = None, 1, 0.0, _NEVER
        self.granted = None

    def is_over(self, now: float) -> bool:
        """Would a site that was never visited be treated the same way?"""
        return not self.leases and not self.expected and max(self.tat, self.rest_until) <= now


class SiteGate:
    """The turn of one request at its site: fulfils `fetch.contract.Gate`. A repeated request may enter again."""

    __slots__ = (
        "_addresses", "_check", "_clock", "_entered_at", "_expected", "_has_turn", "_max_hold", "_not_before", "_site",
        "is_out", "left_at",
    )  # fmt: skip

    def __init__(
        self,
        site: _SitePace,
        clock: Clock,
        check: Callable[[], None] | None,
        max_hold: float,
        addresses: AddressPace | None = None,
        not_before: float = _NEVER,
    ) -> None:
        self._site = site
        self._clock = clock
        self._check = check
        self._not_before = not_before
        self._max_hold = max_hold
        self._addresses = addresses
        self._entered_at: float | None = None
        self._has_turn = False
        self.is_out = False
        self.left_at = _NEVER  # monotonic; when it was written last
        site.expected += 1
        self._expected = True

    @property
    def may_leave(self) -> bool:
        """May the request still be written, or be on its way to the wire?"""
        return self._expected or self._entered_at is not None

    async def enter(self, address: str = "") -> None:
        """Return when the request may be written. Raises TooEarly, and whatever the check of the lease raises."""
        site, now = self._site, self._clock.monotonic
        if site.interval is not None and site.burst == 1:
            await site.turn.acquire()
            self._has_turn = True
        try:
            # Do not read the clock for a site without a limit.
            while (site.interval is not None or site.rest_until > _NEVER) and (
                wait := max(site.earliest(), self._not_before) - now()
            ) > 0:
                if wait > self._max_hold:
                    raise TooEarly(timedelta(seconds=wait))
                await self._clock.sleep(wait)
            if self._addresses is not None and address:
                try:
                    await self._addresses.turn(address, self._max_hold)
                except AddressBusy as busy:
                    site.rest_until = now() + busy.wait.total_seconds()  # the other requests would wait in vain
                    raise
            # Last of all: the process may have been suspended for minutes here.
            if self._check is not None:
                self._check()
        except BaseException:
            self._end_turn()
            raise
        self._entered_at = now()
        if site.interval is not None and not self._has_turn:
            # The requests of a burst leave together, so they are counted before they have left.
            site.tat = after_start(site.tat, start=self._entered_at, interval=site.interval)
            self._count()

    def withdraw(self) -> None:
        """The request was not written after all, and may enter again."""
        site = self._site
        if self._entered_at is not None and site.interval is not None and not self._has_turn:
            site.tat -= site.interval
        self._entered_at = None
        self._end_turn()

    def left(self, ago: float = 0.0) -> None:
        """The request was written, at most `ago` seconds ago."""
        entered_at, site = self._entered_at, self._site
        if entered_at is None:
            return
        at = max(entered_at, self._clock.monotonic() - ago)
        self._entered_at = None
        self.is_out = True
        self.left_at = at
        site.last = max(site.last, at)
        if site.interval is not None:
            site.tat = max(site.tat + (at - entered_at if site.burst > 1 else 0.0), at + site.interval)
        if self._expected:
            self._count()
        if self._has_turn:
            self._end_turn()

    def close(self) -> None:
        """The fetch is over, however it ended. A request that has entered may have left."""
        if self._entered_at is not None:
            self.left()
        if self._expected:
            self._count()
        if self._has_turn:
            self._end_turn()

    def _count(self) -> None:
        if self._expected:
            self._expected = False
            self._site.expected -= 1

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._site.turn.release()


class Pacer:
    """One per process. A site is kept while leases on it are held, and then until its bucket lies in the past: the next
    lease may be on its way, and the frontier does not know of the last requests yet."""

    def __init__(
        self, clock: Clock, *, max_hold: timedelta | None = MAX_HOLD, addresses: AddressPace | None = None
    ) -> None:
        self._clock = clock
        self._addresses = addresses
        self._max_hold = max_hold.total_seconds() if max_hold is not None else float("inf")
        self._sites: dict[str, _SitePace] = {}
        self._look_at = _FEW_SITES

    def enter(self, lease: Lease) -> float:
        """Count a lease that was just granted. Return the moment (monotonic) of its own turn in the site's bucket.

        No request of the lease must leave before it: leases are granted a little earlier (HEAD_START), and what this
        process remembers of the site may be out of date, for example after it was stopped for longer than its leases.
        """
        site, pace = self._site(lease.task.site), lease.pace
        if not site.leases and site.is_over(now := self._clock.monotonic()):
            site = self._sites[lease.task.site] = _SitePace()  # what was learned belongs to an earlier visit
            if pace is not None:
                # The bucket as it was before this grant, which is counted when the request leaves. If one of our own
                # requests left less than an interval ago, no other worker's did, and our own count is more exact.
                site.tat = now + pace.ahead - pace.interval
        site.leases += 1
        return self._turn(site, pace)

    def next_turn(self, name: str, pace: Pace | None) -> float:
        """A lease has got another turn of the site. Return the moment of it, as `enter` does."""
        return self._turn(self._site(name), pace)

    def _turn(self, site: _SitePace, pace: Pace | None) -> float:
        if pace is None:
            site.free()
            return _NEVER
        site.grant(with_margin(pace.interval), pace.burst, pace.gap)
        before = self._clock.monotonic() + pace.ahead - pace.interval  # the bucket as it was before this grant
        return earliest_start(before, interval=pace.interval, burst=pace.burst)

    def leave(self, lease: Lease) -> None:
        """Uncount a lease that was settled."""
        site = self._sites.get(lease.task.site)
        if site is not None:
            site.leases -= 1
            if not site.leases and site.is_over(self._clock.monotonic()):
                del self._sites[lease.task.site]

    def gate(
        self,
        name: str,
        asked: timedelta | None = None,
        check: Callable[[], None] | None = None,
        *,
        not_before: float = _NEVER,
    ) -> SiteGate:
        """The gate of a request to the site. `asked` is the site's crawl-delay; `check` is called last, and raises if
        the request must not be made any more. `not_before` is the turn of its lease, see `enter`. Raises TooEarly if
        the wait is already known to be too long."""
        site = self._site(name)
        if asked is not None:
            site.asked = max(site.asked, with_margin(asked.total_seconds()))
            site.ask_for(site.asked, 1)
        if site.interval is not None or site.rest_until > _NEVER:
            wait = self._wait(site)
            if wait > self._max_hold:
                raise TooEarly(timedelta(seconds=wait))
        return SiteGate(site, self._clock, check, self._max_hold, self._addresses, not_before)

    def wait(self, name: str, asked: timedelta) -> float:
        """Seconds until a request that asks for its gate now could leave, as far as is known."""
        site = self._site(name)
        site.asked = max(site.asked, with_margin(asked.total_seconds()))
        site.ask_for(site.asked, 1)
        return self._wait(site)

    def rest(self, name: str, duration: timedelta) -> None:
        """The site wants to be left alone: every journey of this process that holds a lease on it waits too."""
        site = self._sites.get(name)
        if site is not None:
            site.rest_until = max(site.rest_until, self._clock.monotonic() + duration.total_seconds())

    def slow(self, name: str, interval: timedelta) -> None:
        """The frontier has learned this slower pace: leases granted under a faster one keep to it too."""
        site = self._sites.get(name)
        if site is not None:
            site.ask_for(with_margin(interval.total_seconds()), 1)

    def ahead(self, name: str) -> timedelta:
        """How far ahead of now the bucket of the site is drawn; zero without a limit. The job's own rate is not the
        site's: other jobs need not wait for it."""
        site = self._sites.get(name)
        if site is None or site.interval is None:
            return timedelta(0)
        drawn = max(0.0, site.tat - self._clock.monotonic()) + site.expected * site.interval
        return timedelta(seconds=max(0.0, drawn - site.gap))

    def _site(self, name: str) -> _SitePace:
        site = self._sites.get(name)
        if site is None:
            if len(self._sites) >= self._look_at:
                now = self._clock.monotonic()
                self._sites = {name: site for name, site in self._sites.items() if not site.is_over(now)}
                self._look_at = max(_FEW_SITES, 2 * len(self._sites))
            site = self._sites[name] = _SitePace()
        return site

    def _wait(self, site: _SitePace) -> float:
        now = self._clock.monotonic()
        earliest = max(now, site.earliest())
        if site.interval is None:
            return earliest - now
        # Requests that already have a gate go first, as far as they exceed the burst.
        after = earliest_start(
            max(now, site.tat) + site.expected * site.interval, interval=site.interval, burst=site.burst
        )
        return max(earliest, after) - now
