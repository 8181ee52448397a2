"""robots.txt: fetched once a day per origin, cached, checked before every request.

What it does: `rules_for` returns the rules of an origin - from memory, else from the shelf, else from the server.
How it fails: RobotsUnreachable (5xx, 429, no response) until the server responds again. If the origin itself cannot be
reached (DnsFailed, ConnectFailed, TlsFailed, AddressRefused), that error is raised as it is.
How it recovers: an older copy on the shelf is used meanwhile; without one, robots.txt is requested again minutes later.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from functools import partial
from typing import Protocol

import msgspec

from ..clock import Clock
from ..errors import (
    AddressRefused,
    ConnectFailed,
    DnsFailed,
    FetchFailed,
    FetchRefused,
    GossamerError,
    InvalidUrl,
    ProxyRefused,
    RobotsUnreachable,
    RouteFailed,
    StaleConnection,
    TlsFailed,
)
from ..model.url import origin_of, parse_url, site_of, without_user
from .body import ACCEPT_ENCODING
from .contract import Gate, Limits, Response
from .open_route import OpenRoute
from .retry_after import parse_retry_after
from .robots_rules import MAX_TEXT, RobotsRules, product_token, read_robots, robots_text
from .robots_shelf import OriginTurns, RobotsEntry, RobotsShelf


class BeforeSend(Protocol):
    """Awaited before each request, with the crawl-delay of the site if known. A request to another site than that of
    the page names that site as `elsewhere`, and is paced there."""

    async def __call__(self, asked: timedelta | None, /, elsewhere: str | None = None) -> Gate | None:
        """The gate of the request. May raise."""


FRESH = timedelta(hours=24)
RECENT = timedelta(minutes=10)  # the oldest response in which to look up a site's sitemaps
UNREACHABLE = timedelta(minutes=2)
# Every attempt at a page checks again whether its host is reachable, as it would without robots.txt; only concurrent
# requests share the failure.
NOT_THERE = timedelta(milliseconds=500)
MAX_HOPS = 5
LONG = 32 * 1024  # characters; parsing a longer text takes tens of milliseconds, so it runs in a thread
LONGEST_SHELVED = 64 * 1024  # characters; each worker requests a longer text for itself

_MOVED = frozenset({301, 302, 303, 307, 308})
_NOT_THERE = (ConnectFailed, DnsFailed)


class _Held(msgspec.Struct, frozen=True):
    until: float
    rules: RobotsRules | None
    failure: FetchFailed | FetchRefused | None = None

    @property
    def weight(self) -> int:
        return self.rules.weight if self.rules is not None else 1_000


class Robots:
    """The rules of every origin, for one user agent. Parsed rules are kept for `max_origins` at most, up to
    `max_weight` bytes together; beyond that the least recently used are dropped. Several Robots on one shelf share
    `turns`, so that they request each file once."""

    def __init__(
        self,
        shelf: RobotsShelf,
        clock: Clock,
        *,
        user_agent: str,
        limits: Limits,
        max_crawl_delay: timedelta,
        max_origins: int = 2048,
        max_weight: int = 32 * 1024 * 1024,
        turns: OriginTurns | None = None,
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._token = product_token(user_agent)
        self._headers = (
            ("User-Agent", user_agent),
            ("Accept", "text/plain,*/*;q=0.5"),
            ("Accept-Encoding", ACCEPT_ENCODING),
        )
        self._limits = msgspec.structs.replace(limits, max_body=min(limits.max_body, MAX_TEXT))
        self._max_crawl_delay = max_crawl_delay
        self._max_origins = max_origins
        self._max_weight = max_weight
        self._weight = 0
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._turns = turns or OriginTurns()

    def known_for(self, url: str, route: OpenRoute) -> RobotsRules | None:
        """The rules that apply to `url`, if they are in memory, as for nearly every page. Raises as `rules_for`."""
        return self._known(origin_of(url), route.route.name)

    async def rules_for(self, url: str, before_send: BeforeSend, route: OpenRoute) -> RobotsRules:
        """The rules that apply to `url`. If robots.txt must be fetched, it is by `route`, each request after
        `before_send`.

        Raises RobotsUnreachable; DnsFailed, ConnectFailed, AddressRefused or TlsFailed when the origin itself cannot be
        reached; RouteFailed when the route to it failed.
        """
        origin = origin_of(url)
        name = route.route.name
        rules = self._known(origin, name)
        if rules is not None:
            return rules
        async with self._turns.of(origin):
            rules = self._known(origin, name)  # the page that had the turn before may have fetched it
            if rules is None:
                _, rules = await self._find_out(origin, before_send, route)
        return rules

    async def answer_of(self, url: str, before_send: BeforeSend, route: OpenRoute) -> RobotsEntry:
        """The response itself if it is RECENT, else a new one: for callers that look for the sitemaps in it. Raises as
        `rules_for`."""
        origin = origin_of(url)
        async with self._turns.of(origin):
            self._known(origin, route.route.name)  # raises, if the request failed a moment ago
            entry, _ = await self._find_out(origin, before_send, route, RECENT)
        return entry

    def _known(self, origin: str, route: str) -> RobotsRules | None:
        """The rules in memory; None if there are none. Raises the failure that is remembered for this route."""
        for key in (origin, f"{origin} {route}"):
            held = self._held.get(key)
            if held is not None and held.until > self._clock.now():
                break
        else:
            return None
        self._held.move_to_end(key)
        if held.failure is not None:
            again = type(held.failure)(str(held.failure), status=held.failure.status)
            if isinstance(again, FetchFailed) and isinstance(held.failure, FetchFailed):
                again.first_contact = True
                again.is_not_the_sites_fault = held.failure.is_not_the_sites_fault
                again.retry_after = timedelta(seconds=held.until - self._clock.now())
            raise again from held.failure
        return held.rules

    async def _find_out(
        self, origin: str, before_send: BeforeSend, route: OpenRoute, max_age: timedelta = FRESH
    ) -> tuple[RobotsEntry, RobotsRules]:
        entry, now = await self._shelf.get(origin), self._clock.now()
        if entry is not None and min(entry.expires_at, entry.fetched_at + max_age.total_seconds()) > now:
            return entry, await self._hold(origin, entry, entry.expires_at)
        try:
            fresh = await self._ask(origin, before_send, route)
        except (RouteFailed, StaleConnection):
            raise  # it says nothing about the site
        except (FetchFailed, FetchRefused) as failure:
            pause = NOT_THERE if isinstance(failure, _NOT_THERE) else UNREACHABLE
            soon = self._clock.now() + pause.total_seconds()
            if entry is not None:
                return entry, await self._hold(origin, entry, soon)
            if isinstance(failure, FetchFailed):
                failure.first_contact = True
            self._remember(f"{origin} {route.route.name}", _Held(soon, None, failure))
            raise
        if fresh.status == 403 and route.proxy is not None:
            # All proxies were refused: the site may have no rules, or may not want us. It is asked again soon.
            return fresh, await self._hold(origin, fresh, self._clock.now() + UNREACHABLE.total_seconds())
        if len(fresh.text) <= LONGEST_SHELVED:
            await self._shelf.put(fresh)
        return fresh, await self._hold(origin, fresh, fresh.expires_at)

    async def _ask(self, origin: str, before_send: BeforeSend, route: OpenRoute) -> RobotsEntry:
        url = f"{origin}/robots.txt"
        home = site_of(url)
        response: Response | None = None
        for _ in range(MAX_HOPS + 1):
            at = site_of(url)
            gate = await before_send(None) if at == home else await before_send(None, at)
            try:
                response = await route.fetch_robots(url, self._headers, self._limits, gate)
            except (RouteFailed, StaleConnection):
                raise
            except (AddressRefused, TlsFailed, *_NOT_THERE) as error:
                if origin_of(url) == origin:
                    raise  # pages of this origin will fail in the same way
                raise self._unreachable(origin, error) from error
            except (FetchFailed, FetchRefused) as error:
                raise self._unreachable(origin, error) from error
            if response.status not in _MOVED:
                break
            try:
                url = without_user(parse_url(response.headers.get("location"), url))
            except InvalidUrl:
                break  # it leads nowhere, so there is no robots.txt
        assert response is not None
        status = response.status
        if status in (403, 429) and route.others_left:
            # Not the site's rules, but what it thinks of this proxy: 403 would mean that all is allowed.
            raise ProxyRefused(f"{origin}/robots.txt answers {status} to this proxy.", status=status)
        if status == 429 or status >= 500:
            raise RobotsUnreachable(
                f"{origin}/robots.txt answers {status}; the site is left alone until that changes.",
                status=status,
                retry_after=parse_retry_after(response.headers.get("retry-after"), self._clock.now()),
            )
        now = self._clock.now()
        text = robots_text(response.body, cut=response.cut) if 200 <= status < 300 else ""
        return RobotsEntry(
            origin=origin, status=status, text=text, fetched_at=now, expires_at=now + FRESH.total_seconds()
        )

    def _unreachable(self, origin: str, error: GossamerError) -> RobotsUnreachable:
        return RobotsUnreachable(f"{origin}/robots.txt cannot be read, so the site is left alone for now: {error}")

    async def _hold(self, origin: str, entry: RobotsEntry, until: float) -> RobotsRules:
        read = partial(read_robots, entry.text, self._token, self._max_crawl_delay)
        rules = await asyncio.to_thread(read) if len(entry.text) > LONG else read()
        self._remember(origin, _Held(until, rules))
        return rules

    def _remember(self, origin: str, held: _Held) -> None:
        self._weight += held.weight - (before.weight if (before := self._held.pop(origin, None)) is not None else 0)
        self._held[origin] = held
        while len(self._held) > self._max_origins or (self._weight > self._max_weight and len(self._held) > 1):
            self._weight -= self._held.popitem(last=False)[1].weight
