"""Fetches and reads the files of sources, sitemaps and feeds, for `schedule.sources.reader.entries`.

    async with open_source_files(settings, clock=clock) as files:     # project/wiring.py
        async for entry in entries(source, files.context(report=print)):
            ...

What it does: files come through the same fetch loop as pages (fetch_page.py), by the first route of the site's ladder,
one polite request after the other. Redirects are followed. The body is held in memory while it arrives, within its
limit, and then written to the caller's file, which threads read.
How it fails: FetchFailed and FetchRefused; ParseFailed for a file that is no sitemap or feed. A file that is too long,
compressed or not, is refused as a whole.
How it recovers: transient failures are retried, as often and as late as the settings say for pages.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from ..clock import Clock
from ..errors import FetchFailed, FetchRefused, NoRoute, ParseFailed, RobotsUnreachable
from ..extract.feeds import parse_feed
from ..extract.sitemaps import ChildSitemap, SitemapEntry, SitemapReader
from ..fetch.contract import Gate
from ..fetch.fetcher import Disallowed, FetchedPage, Fetcher, NotModified, PageRequest
from ..fetch.retry_after import parse_retry_after
from ..fetch.robots import BeforeSend, Robots
from ..frontier.retry import GiveUp, decide, failure_of
from ..model.job import JobPoliteness
from ..model.page import Headers, Snapshot
from ..model.route import MANAGED
from ..model.url import origin_of, site_of, user_in
from ..parse.page import Page
from ..parse.spider import Spider
from ..routing.router import Router
from ..schedule.sources import (
    ListedSitemap,
    SourceBatch,
    SourceBounds,
    SourceDownload,
    SourceEntry,
    Validators,
    believable,
)
from ..schedule.sources.gzip_file import GZIP, Damaged, TooLarge, is_packed, unpacked
from ..settings import Settings
from ..terms import retry_terms, robots_rule, site_terms
from .fetch_page import fetch_unqueued, fetcher_of
from .pacer import AddressPace, Pacer, with_margin
from .unleased_turn import Announce, AnnouncedGate, Announcement
from .windows import NEXT_LOOK

NEAR = timedelta(seconds=1)  # connect no sooner than this before the request may leave
BATCH = 500  # entries
_PIECE = 32 * 1024
_LARGEST_FEED = SourceBounds().feed  # uncompressed; a feed is read as a whole
_ACCEPT = (("Accept", "application/xml,text/xml,application/rss+xml,application/atom+xml,text/plain;q=0.9,*/*;q=0.5"),)

ClosedFor = Callable[[str], timedelta]
Report = Callable[[str], None]


class SourceFiles:
    """Fetches the files of all sources of a process; between two files it keeps only the pace and the cookies.

    `announce` is awaited before each request, with the site, how long other workers should leave it alone, and a name
    unique to the request: the frontier does not count these requests, and its workers may be on the same site. It
    returns the moment (monotonic) from which that time counts, or an earlier one. `closed_for` says how long the window
    of the site stays closed. The `spider`'s own rate and robots settings hold for its source as for its pages.
    """

    def __init__(
        self,
        settings: Settings,
        router: Router,
        robots: Robots,
        clock: Clock,
        *,
        announce: Announce | None = None,
        closed_for: ClosedFor | None = None,
        spider: Spider | None = None,
        politeness: JobPoliteness | None = None,
        addresses: AddressPace | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._router = router
        self._robots = robots
        self._announce = announce
        self._closed_for = closed_for
        self._site_terms = site_terms(settings, politeness)
        self._obeys_robots = robots_rule(settings, spider or Spider())
        self._retry_terms = retry_terms(settings)
        self._pacer = Pacer(clock, max_hold=None, addresses=addresses)
        self._fetchers: dict[tuple[int, bool], Fetcher] = {}

    def context(self, *, report: Report, known: Mapping[str, Validators] | None = None) -> SourceReading:
        """The context for one reading of one source. Files that are `known` and have not changed yield nothing."""
        return SourceReading(self, report, known or {})

    async def fetch(self, url: str, to: BinaryIO, *, max_bytes: int, known: Validators) -> SourceDownload:
        """See `SourceContext.fetch`. With `known` validators the response may say that nothing has changed (304)."""
        terms = self._retry_terms(site_of(url))
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(url, to, max_bytes, known)
            except RobotsUnreachable:
                raise  # it is requested again only minutes later
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

    async def _attempt(self, url: str, to: BinaryIO, max_bytes: int, known: Validators) -> SourceDownload:
        outcome = await fetch_unqueued(
            PageRequest(
                url=url,
                etag=known.etag,
                last_modified=known.last_modified,
                headers=_ACCEPT,
                robots_answer=_is_robots(url) and user_in(url) is None,  # with credentials the answer may differ
            ),
            fetcher=lambda at: self._fetcher(at, max_bytes),
            router=self._router,
            before_send=self._before_send,
            clock=self.clock,
        )
        if isinstance(outcome, Disallowed):
            rule = f" with {outcome.rule!r}" if outcome.rule else ""
            raise FetchRefused(
                f"{origin_of(outcome.url)}/robots.txt forbids {outcome.url}{rule}. If you have permission to fetch it, "
                f'set robots = false in [domains."{site_of(outcome.url)}"].'
            )
        return await self._kept(outcome, to, max_bytes)

    async def _kept(self, outcome: FetchedPage | NotModified, to: BinaryIO, max_bytes: int) -> SourceDownload:
        """Write a successful response into the file; raise an error for any other."""
        response = outcome.response
        if isinstance(outcome, NotModified):
            return SourceDownload(status=304, url=response.url)
        retry_after = parse_retry_after(response.headers.get("retry-after"), outcome.fetched_at)
        failure = failure_of(response.status, self._retry_terms(site_of(response.url)), retry_after, response.url)
        if failure is not None:
            raise failure
        if response.status >= 300:
            raise FetchRefused(f"{response.url} answered {response.status}, not with a file.", status=response.status)
        if response.cut and not response.note:
            raise FetchRefused(
                f"{response.url} is longer than {_spelled(max_bytes)}, the limit for such files. It is not "
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

    def _fetcher(self, url: str, max_bytes: int) -> Fetcher:
        route = self._router.terms_for(site_of(url)).ladder[0]
        if route.transport == MANAGED:
            raise NoRoute(
                f"Pages of {site_of(url)} come through the managed API of route {route.name}, which cannot fetch "
                "sitemaps and feeds. Make a list of its URLs with `file` or `command`."
            )
        asks = not _is_robots(url) or user_in(url) is None
        found = self._fetchers.get((max_bytes, asks))
        if found is None:
            robots = self._robots if asks else None
            found = fetcher_of(self.settings, robots, self._obeys_robots, self.clock, max_body=max_bytes)
            self._fetchers[max_bytes, asks] = found
        return found

    def _before_send(self, site: str) -> BeforeSend:
        async def keep_pace(asked: timedelta | None = None, elsewhere: str | None = None) -> Gate:
            return await self._gate(elsewhere or site, asked)

        return keep_pace

    async def _gate(self, site: str, asked: timedelta | None) -> Gate:
        await self._wait_for_window(site)
        spacing = self._site_terms(site).own_spacing(asked.total_seconds() if asked is not None else None) or 0.0
        if not spacing:
            return self._pacer.gate(site)
        # Where other workers may be on the site too, leave them every other turn.
        own = timedelta(seconds=spacing if self._announce is None else 2 * spacing)
        while (wait := self._pacer.wait(site, own) - NEAR.total_seconds()) > 0:
            await self.clock.sleep(wait)
        if self._announce is None:
            return self._pacer.gate(site, own)
        announced = Announcement(site, with_margin(spacing), self._announce, self.clock)
        await announced.renew()
        return AnnouncedGate(self._pacer.gate(site, own), announced)

    async def _wait_for_window(self, site: str) -> None:
        while self._closed_for is not None and (closed := self._closed_for(site)):
            await self.clock.sleep(min(closed, NEXT_LOOK).total_seconds())


class SourceReading:
    """Fulfils `SourceContext` for one reading of one source. Hand `seen` in as `known` the next time, but keep it only
    once the last entry has been stored."""

    def __init__(self, files: SourceFiles, report: Report, known: Mapping[str, Validators]) -> None:
        self._files = files
        self._report = report
        self._known = known
        self.seen: dict[str, Validators] = {}

    @property
    def root(self) -> Path:
        return self._files.settings.root

    def now(self) -> float:
        return self._files.clock.now()

    async def fetch(self, url: str, to: BinaryIO, *, max_bytes: int) -> SourceDownload:
        known = self._known.get(url, Validators())
        download = await self._files.fetch(url, to, max_bytes=max_bytes, known=known)
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


def _is_robots(url: str) -> bool:
    return urlsplit(url).path == "/robots.txt"


def sitemap_batches(file: BinaryIO, url: str, *, max_bytes: int, now: float) -> Iterator[SourceBatch]:
    """Yield the entries of the sitemap in batches. Raises ParseFailed; for one that is too long, before the first
    batch."""
    _weigh(file, url, max_bytes)
    reader = SitemapReader(url, max_bytes=max_bytes, now=datetime.fromtimestamp(now, UTC))
    listed: list[SourceEntry | ListedSitemap] = []
    for one in _read(reader, file):
        listed.append(
            ListedSitemap(url=one.loc)
            if isinstance(one, ChildSitemap)
            else SourceEntry(url=one.loc, lastmod=_moment(one.lastmod, now), priority=one.priority)
        )
        if len(listed) >= BATCH:
            yield SourceBatch(listed=tuple(listed), is_index=reader.kind == "index")
            listed.clear()
    yield SourceBatch(
        listed=tuple(listed),
        is_index=reader.kind == "index",
        skipped=reader.skipped,
        troubles=(reader.trouble,) if reader.trouble is not None else (),
    )


def feed_batch(file: BinaryIO, url: str, content_type: str, *, now: float) -> SourceBatch:
    """The entries of the feed, which may be compressed with gzip, once. Raises ParseFailed."""
    try:
        body = b"".join(_unpacked(file, url, _LARGEST_FEED, "feed")) if is_packed(file) else file.read()
    except Damaged as error:
        raise ParseFailed(f"{url} is packed with gzip and damaged: {error}.") from error
    if body.startswith(GZIP):
        raise ParseFailed(f"{url} is packed with gzip twice, which no feed may be. It is not read.")
    headers = Headers([("Content-Type", content_type)])
    feed = parse_feed(
        Page(Snapshot(url=url, requested_url=url, status=200, headers=headers, body=body, fetched_at=now))
    )
    listed = tuple(
        SourceEntry(url=one.url, lastmod=_moment(one.updated or one.published, now))
        for one in feed.entries
        if one.url is not None
    )
    return SourceBatch(
        listed=listed,
        skipped=len(feed.entries) - len(listed),
        troubles=(f"{url}: {feed.trouble}",) if feed.trouble is not None else (),
    )


def _read(reader: SitemapReader, file: BinaryIO) -> Iterator[SitemapEntry | ChildSitemap]:
    while not reader.done and (piece := file.read(_PIECE)):
        yield from reader.feed(piece)
    yield from reader.close()


def _moment(date: datetime | None, now: float) -> float | None:
    return believable(date.timestamp(), now) if date is not None else None


def _weigh(file: BinaryIO, url: str, max_bytes: int) -> None:
    """Decompress the file once to learn its size, so that a bomb yields nothing rather than a part. Raises
    ParseFailed."""
    # The size of an uncompressed file was checked when it arrived.
    if is_packed(file):
        with suppress(Damaged):  # the reader will report it
            for _ in _unpacked(file, url, max_bytes, "sitemap"):
                pass
    file.seek(0)


def _unpacked(file: BinaryIO, url: str, max_bytes: int, kind: str) -> Iterator[bytes]:
    """Raises ParseFailed for more than `max_bytes`, and Damaged."""
    try:
        yield from unpacked(file, max_bytes=max_bytes)
    except TooLarge as error:
        raise ParseFailed(f"{url} unpacks to more than {error}, the limit for a {kind}; it is not read.") from error


def _spelled(size: int) -> str:
    return f"{size >> 20:,} MiB" if size >= 1 << 20 else f"{size:,} bytes"
