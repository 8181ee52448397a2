"""Files for sources: one polite request after the other, to checked addresses, as robots.txt and the pace allow.

What it does: it goes by the first way that the settings name for the site, and follows redirects, each of them checked
like the first address. The body is in memory while it comes, within its limit, and then in the caller's file.
How it fails: FetchFailed and FetchRefused. A file that is too long is refused whole.
How it recovers: what may pass is tried again, as often and as late as the settings say for pages.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import msgspec

from ...clock import Clock
from ...crawl.pacer import with_margin
from ...errors import FetchFailed, FetchRefused, NoWay, ProxyFailed, RobotsUnreachable
from ...fetch.contract import Transport
from ...fetch.cookies import CookieJar
from ...fetch.fetcher import Disallowed, Fetched, Fetcher, NotModified, PageRequest, Redirected
from ...fetch.retry_after import parse_retry_after
from ...fetch.robots import Gate, Robots, RobotsShelf
from ...fetch.way import Through, Way
from ...frontier.retry import GiveUp, decide, failure_of
from ...model.route import MANAGED, Exit, ExitOutcome, Route
from ...model.url import origin_of, site_of
from ...parse.spider import Spider
from ...routing.proxies.pools import Pools
from ...routing.transports import Transports
from ...schedule.sources import SourceBatch, SourceDownload, Validators
from ...settings import Settings
from ...settings.effective import limits_of, retry_terms, robots_rule, site_terms
from ..transports import routing_of
from ..wiring import open_robots
from .reading import feed_batch, sitemap_batches

LOOK_AGAIN = timedelta(minutes=1)  # at a window that is closed
MOST_SITES = 10_000  # whose last request is remembered
_ACCEPT = (("Accept", "application/xml,text/xml,application/rss+xml,application/atom+xml,text/plain;q=0.9,*/*;q=0.5"),)

Announce = Callable[[str, timedelta], Awaitable[None]]
ClosedFor = Callable[[str], timedelta]
Report = Callable[[str], None]


class Sourcing:
    """Fetches for all sources of a process. Made by `open_sourcing`; holds nothing between two files but the pace."""

    def __init__(
        self,
        settings: Settings,
        transports: Transports,
        direct: Transport,
        pools: Pools | None,
        shelf: RobotsShelf,
        clock: Clock,
        announce: Announce | None,
        closed_for: ClosedFor | None,
        spider: Spider | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._transports = transports
        self._pools = pools
        self._direct = direct
        self._robots = open_robots(settings, direct, shelf, clock)
        self._announce = announce
        self._closed_for = closed_for
        self._routing = routing_of(settings)
        self._site_terms = site_terms(settings, spider)
        self._obeys_robots = robots_rule(settings, spider or Spider())
        self._retry_terms = retry_terms(settings)
        self._last: OrderedDict[str, float] = OrderedDict()  # site -> when a request left, or will
        self._fetchers: dict[tuple[int, bool], Fetcher] = {}

    def context(self, *, report: Report, known: Mapping[str, Validators] | None = None) -> SourceContext:
        """For one reading of one source. Files that are `known` and have not changed give nothing."""
        return SourceContext(self, report, known or {})

    async def fetch(self, url: str, to: BinaryIO, *, max_bytes: int, known: Validators) -> SourceDownload:
        """As `Context.fetch`. With `known` validators the answer may be that nothing has changed (304)."""
        terms = self._retry_terms(site_of(url))
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._try(url, to, max_bytes, known)
            except RobotsUnreachable:
                raise  # it is asked again minutes later and not before
            except FetchFailed as failure:
                decision = decide(
                    failure,
                    attempt=attempt,
                    max_attempts=terms.max_attempts or self.settings.retry.max_attempts,
                    terms=terms,
                    jitter=random.random(),
                )
                if isinstance(decision, GiveUp):
                    raise
            await self.clock.sleep(decision.delay.total_seconds())

    async def _try(self, url: str, to: BinaryIO, max_bytes: int, known: Validators) -> SourceDownload:
        way = await self._way(site_of(url))
        visit = PageRequest(url=url, etag=known.etag, last_modified=known.last_modified, headers=_ACCEPT)
        try:
            outcome = await self._visit(visit, way, max_bytes)
            while isinstance(outcome, Redirected):
                if site_of(outcome.to) != site_of(visit.url):
                    way = await self._way(site_of(outcome.to))
                visit = msgspec.structs.replace(visit, url=outcome.to, redirects=outcome.redirects)
                outcome = await self._visit(visit, way, max_bytes)
        except ProxyFailed as failure:
            self._tell(way, ExitOutcome.FAILED, words=str(failure))
            raise
        if isinstance(outcome, Disallowed):
            rule = f" with {outcome.rule!r}" if outcome.rule else ""
            raise FetchRefused(
                f"{origin_of(outcome.url)}/robots.txt forbids {outcome.url}{rule}. If you may fetch it all the same, "
                f'set robots = false in [domains."{site_of(outcome.url)}"].'
            )
        self._tell(way, ExitOutcome.OK, seconds=outcome.response.seconds, received=outcome.response.wire_bytes)
        return await self._kept(outcome, to, max_bytes)

    async def _visit(
        self, visit: PageRequest, way: Way, max_bytes: int
    ) -> Fetched | NotModified | Redirected | Disallowed:
        asks = urlsplit(visit.url).path != "/robots.txt"  # whose rules do not hold for itself
        fetcher = self._fetchers.get((max_bytes, asks)) or self._fetcher(max_bytes, asks)
        return await fetcher.fetch(visit, self._gate(site_of(visit.url)), way)

    async def _kept(self, outcome: Fetched | NotModified, to: BinaryIO, max_bytes: int) -> SourceDownload:
        """Write a good answer into the file; any other is an error."""
        response = outcome.response
        if isinstance(outcome, NotModified):
            return SourceDownload(status=304, url=response.url)
        retry_after = parse_retry_after(response.headers.get("retry-after"), outcome.fetched_at)
        failure = failure_of(response.status, self._retry_terms(site_of(response.url)), retry_after, response.url)
        if failure is not None:
            raise failure
        if response.status >= 300:
            raise FetchRefused(f"{response.url} answered {response.status}, which is no file.", status=response.status)
        if response.cut and not response.note:
            raise FetchRefused(
                f"{response.url} is longer than {_spelled(max_bytes)}, which no file of its kind may be. It is not "
                "read; ask the site for a proper one, or make a list of its URLs with `command`."
            )
        await asyncio.to_thread(to.write, response.body)
        return SourceDownload(
            status=200,
            url=response.url,
            content_type=response.headers.get("content-type"),
            validators=Validators(
                etag=response.headers.get("etag"), last_modified=response.headers.get("last-modified")
            ),
            trouble=response.note if response.cut else "",
        )

    def _fetcher(self, max_bytes: int, asks: bool) -> Fetcher:
        settings, clock = self.settings, self.clock

        def robots_for(site: str) -> Robots | None:
            return self._robots if asks and self._obeys_robots(site) else None

        made = self._fetchers[max_bytes, asks] = Fetcher(
            self._direct,
            robots_for,
            CookieJar(clock=clock),
            user_agent=settings.fetch.user_agent,
            limits=msgspec.structs.replace(limits_of(settings), max_body=max_bytes),
            max_redirects=settings.fetch.max_redirects,
            clock=clock,
        )
        return made

    def _gate(self, site: str) -> Gate:
        async def gate(asked: timedelta | None = None) -> Callable[[], None]:
            await self._wait_for_window(site)
            spacing = self._site_terms(site).spacing(asked.total_seconds() if asked is not None else None) or 0.0
            now, last = self.clock.monotonic(), self._last.get(site, float("-inf"))
            if self._announce is None:
                start = max(now, last + with_margin(spacing))
            else:
                # Others are on the site, too: not before one turn has passed, and then they have one.
                await self._announce(site, timedelta(seconds=2 * with_margin(spacing)))
                now = self.clock.monotonic()
                start = max(now + with_margin(spacing), last + 2 * with_margin(spacing))
            self._note(site, start)  # before waiting: whoever comes meanwhile waits for the next turn
            if start > now:
                await self.clock.sleep(start - now)
            return lambda: self._note(site, max(self.clock.monotonic(), self._last.get(site, start)))

        return gate

    async def _wait_for_window(self, site: str) -> None:
        while self._closed_for is not None and (closed := self._closed_for(site)):
            await self.clock.sleep(min(closed, LOOK_AGAIN).total_seconds())

    def _note(self, site: str, start: float) -> None:
        self._last[site] = start
        self._last.move_to_end(site)
        if len(self._last) > MOST_SITES:
            self._last.popitem(last=False)

    async def _way(self, site: str) -> Way:
        """The first way of the site's ladder; a browser is not needed for files. Raises NoWay, AllExitsRest."""
        route = self._routing.terms_for(site).ladder[0]
        if route.transport == MANAGED:
            raise NoWay(
                f"Pages of {site} come by the managed API of route {route.name}, which brings no sitemaps and feeds. "
                "Make a list of its URLs with `file` or `command`."
            )
        transport = await self._transports.for_robots(route)
        exit = await self._exit(route, site) if route.pool is not None else None
        through = Through(transport, exit=exit)
        return Way(page=through, robots=through, jar=CookieJar(clock=self.clock), route=route, exit=exit)

    async def _exit(self, route: Route, site: str) -> Exit:
        assert route.pool is not None
        if self._pools is None:
            raise NoWay(f"{site} is reached through the proxy pool {route.pool}, which is not at hand here.")
        return await self._pools.take(route.pool, site=site, fingerprint=b"")

    def _tell(
        self, way: Way, outcome: ExitOutcome, *, seconds: float = 0.0, received: int = 0, words: str = ""
    ) -> None:
        if way.exit is not None and self._pools is not None:
            self._pools.report(way.exit, outcome, seconds=seconds, received=received, words=words)


class SourceContext:
    """The `Context` of one reading. `seen` is what to hand in as `known` the next time: keep it when the last entry
    has been taken and is safe, and not before."""

    def __init__(self, sourcing: Sourcing, report: Report, known: Mapping[str, Validators]) -> None:
        self._sourcing = sourcing
        self._report = report
        self._known = known
        self.seen: dict[str, Validators] = {}

    @property
    def root(self) -> Path:
        return self._sourcing.settings.root

    def now(self) -> float:
        return self._sourcing.clock.now()

    async def fetch(self, url: str, to: BinaryIO, *, max_bytes: int) -> SourceDownload:
        known = self._known.get(url, Validators())
        download = await self._sourcing.fetch(url, to, max_bytes=max_bytes, known=known)
        if download.status == 304:
            self.seen[url] = known
        return download

    def read_sitemap(self, file: BinaryIO, url: str, *, max_bytes: int) -> Iterator[SourceBatch]:
        return sitemap_batches(file, url, max_bytes=max_bytes, now=self.now())

    def read_feed(self, file: BinaryIO, url: str, content_type: str) -> SourceBatch:
        return feed_batch(file, url, content_type, now=self.now())

    def remember(self, url: str, validators: Validators) -> None:
        self.seen[url] = validators

    def report(self, words: str) -> None:
        self._report(words)


def _spelled(size: int) -> str:
    return f"{size >> 20:,} MiB" if size >= 1 << 20 else f"{size:,} bytes"
