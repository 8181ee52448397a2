"""From one sitemap to all that it leads to: nested indexes, each file once, within limits.

Every file is fetched completely into a temporary file and parsed from there, so that no connection waits for the
consumer. An index is read while its sitemaps are: memory and disk hold as many files as the nesting is deep.

How it fails: a sitemap that cannot be fetched or read is reported and left out; if none could be read, or a limit of
the whole is exceeded, SourceFailed. How it recovers: it keeps no state; the next run begins anew.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from datetime import timedelta
from hashlib import blake2b
from typing import BinaryIO
from urllib.parse import urlsplit

import msgspec

from ...errors import FetchFailed, FetchRefused, InvalidUrl, ParseFailed, SourceFailed
from ...model.url import parse_url, site_of
from .contract import ListedSitemap, SourceBatch, SourceBounds, SourceContext, SourceDownload, SourceEntry, Validators
from .kinds import LoginOf, discreet

LONGEST_URL = 8_192  # characters
MOST_REPORTS = 20  # left-out sitemaps that are reported one by one
_SITEMAP_LINE = re.compile(r"^[ \t]*sitemap[ \t]*:[ \t]*([^\s#]\S*)", re.IGNORECASE | re.MULTILINE)


class _OpenFile:
    """A sitemap that is being read. `depth` is the number of steps that led to it."""

    def __init__(
        self, url: str, site: str, depth: int, file: BinaryIO, batches: Iterator[SourceBatch], validators: Validators
    ) -> None:
        self.url = url
        self.site = site  # that served it
        self.depth = depth
        self.file = file
        self.batches = batches
        self.validators = validators
        self.is_index = False
        self.listed: Iterator[SourceEntry | ListedSitemap] = iter(())


class SitemapWalk:
    """One reading of one source. `quiet`: do not report what was left out."""

    def __init__(self, url: str, context: SourceContext, bounds: SourceBounds, *, quiet: bool = False) -> None:
        self._root = url
        self._login = LoginOf(url)
        self._context = context
        self._bounds = bounds
        self._quiet = quiet
        self._open: list[_OpenFile] = []  # the innermost last
        self._seen: set[bytes] = set()
        self._sitemaps = 0
        self._given = 0
        self._read = 0  # files that list pages, or that have not changed
        self._left_out = 0
        self._lost_in_a_row = 0
        self._spent = timedelta(0)  # on parsing; the consumer's time does not count
        self._first_failure = ""

    async def entries(self) -> AsyncGenerator[SourceEntry, None]:
        """Every page that the sitemaps list, as often as they list it. Raises SourceFailed."""
        try:
            for url in await self._beginnings():
                await self._enter(url, 0)
                while self._open:
                    top = self._open[-1]
                    for one in top.listed:
                        if isinstance(one, ListedSitemap):
                            await self._enter(self._login.on(one.url), top.depth + 1, listed_by=top)
                            break  # the sitemap first, then on in the index
                        self._given += 1
                        yield msgspec.structs.replace(one, url=self._login.on(one.url))
                    else:
                        await self._next_batch(top)
        finally:
            for top in self._open:
                top.file.close()
        self._conclude()

    async def _beginnings(self) -> list[str]:
        """The first sitemaps: the one of the source, or those that its robots.txt names."""
        if urlsplit(self._root).path != "/robots.txt":
            return [self._root]
        try:
            with tempfile.TemporaryFile() as file:
                download = await self._context.fetch(self._root, file, max_bytes=self._bounds.robots)
                file.seek(0)
                named = sitemaps_in(file.read().decode("utf-8", "replace"), download.url)
                found = list(dict.fromkeys(self._login.on(url) for url in named))
        except (FetchFailed, FetchRefused) as error:
            raise SourceFailed(f"{self._root} could not be fetched, so no sitemap is known: {error}") from error
        if not found:
            raise SourceFailed(f"{self._root} names no sitemap. Give the URL of the sitemap itself.")
        return found

    async def _enter(self, url: str, depth: int, listed_by: _OpenFile | None = None) -> None:
        """Fetch a sitemap and put it on top of the open ones, unless it must be left out."""
        if listed_by is not None and site_of(url) not in (site_of(self._root), listed_by.site):
            self._failed(
                f"{url} is on another site than {listed_by.url}, which lists it. Make it a separate source if it is "
                "wanted."
            )
            return
        if depth > self._bounds.depth:
            self._leave_out(
                f"{url} is {depth} levels below {self._root}, and {self._bounds.depth} are allowed. "
                "Make it a separate source if it is wanted."
            )
            return
        if not self._is_new(url):
            self._leave_out(f"{url} was listed before; sitemaps that list themselves or each other are read once.")
            return
        self._sitemaps += depth > 0
        if self._sitemaps > self._bounds.sitemaps:
            raise SourceFailed(
                f"{self._root} leads to more than {self._bounds.sitemaps:,} sitemaps. Make separate sources of those "
                "that you want."
            )
        with ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            if await self._fetched(url, depth, file):
                stack.pop_all()  # it is closed when it has been read

    async def _fetched(self, url: str, depth: int, file: BinaryIO) -> bool:
        """True if the file is now open for reading."""
        context = self._context
        try:
            download = await context.fetch(url, file, max_bytes=self._bounds.download)
        except (FetchFailed, FetchRefused) as error:
            self._failed(str(error))
            self._lost_in_a_row = self._lost_in_a_row + 1 if isinstance(error, FetchFailed) else 0
            if self._lost_in_a_row >= self._bounds.lost_in_a_row:
                raise SourceFailed(
                    f"{self._lost_in_a_row} sitemaps of {self._root} in a row could not be fetched. The last: {error}"
                ) from error
            return False
        self._lost_in_a_row = 0
        if download.status == 304:
            self._read += 1
            return False
        if download.url != url and not self._is_new(download.url):
            self._leave_out(f"{url} redirects to {download.url}, which was read before.")
            return False
        if download.trouble:
            self._tell(f"{url} is incomplete: {download.trouble}. The part that came is read.")
        file.seek(0)
        batches = context.read_sitemap(file, download.url, max_bytes=self._bounds.unpacked)
        self._open.append(_OpenFile(url, site_of(download.url), depth, file, batches, _trusted(download)))
        return True

    async def _next_batch(self, top: _OpenFile) -> None:
        """Read more of the innermost file, or its end. In a thread: a hostile file may take long."""
        began = time.monotonic()
        try:
            batch = await asyncio.to_thread(next, top.batches, None)
        except ParseFailed as error:
            self._failed(str(error))
            self._close(top)
            return
        finally:
            self._spent += timedelta(seconds=time.monotonic() - began)
        if self._spent > self._bounds.reading:
            raise SourceFailed(
                f"{self._root} takes more than {self._bounds.reading.total_seconds() / 60:g} minutes to parse, "
                f"most recently {top.url}; no honest sitemap does. Make separate sources of those that you want."
            )
        if batch is not None:
            top.is_index = top.is_index or batch.is_index
            for words in batch.troubles:
                self._tell(words)
                top.validators = Validators()
            if batch.skipped:
                self._tell(f"{top.url}: {batch.skipped:,} entries without a valid URL were left out.")
            top.listed = iter(batch.listed)
            return
        if not top.is_index:
            self._read += 1
            # An unchanged index says nothing about the sitemaps that it lists: it is always fetched.
            if top.validators.usable:
                self._context.remember(top.url, top.validators)
        self._close(top)

    def _close(self, top: _OpenFile) -> None:
        self._open.remove(top)
        top.file.close()

    def _is_new(self, url: str) -> bool:
        mark = blake2b(url.partition("#")[0].encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if mark in self._seen:
            return False
        self._seen.add(mark)
        return True

    def _failed(self, words: str) -> None:
        self._first_failure = self._first_failure or words
        self._leave_out(words)

    def _leave_out(self, words: str) -> None:
        self._left_out += 1
        if self._left_out <= MOST_REPORTS:
            self._tell(words)

    def _tell(self, words: str) -> None:
        if not self._quiet:
            self._context.report(discreet(words))

    def _conclude(self) -> None:
        if self._first_failure and not self._read and not self._given:
            raise SourceFailed(f"Nothing of {self._root} could be read. {self._first_failure}")
        if self._left_out > MOST_REPORTS:
            self._tell(f"{self._root}: {self._left_out - MOST_REPORTS:,} more sitemaps were left out.")


def _trusted(download: SourceDownload) -> Validators:
    """One that is incomplete must be fetched again."""
    return Validators() if download.trouble else download.validators


def sitemaps_in(robots: str, base: str) -> list[str]:
    """The sitemaps that a robots.txt names, each once, in its order."""
    found: dict[str, None] = {}
    for line in _SITEMAP_LINE.finditer(robots.replace("\r", "\n")):
        if len(line[1]) > LONGEST_URL:
            continue
        try:
            found[parse_url(line[1], base)] = None
        except InvalidUrl:
            continue  # as crawlers do with any invalid line
    return list(found)
