"""What reading a source yields, and what it needs from outside. Sources themselves fetch and parse nothing, because
stages do not import each other. `gossamer.crawl.source_files` is the real `SourceContext`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

CLOCKS_DIFFER = timedelta(days=1)  # how far in the future a date may lie
OLDEST = 631_152_000.0  # 1990: no page is older than the web
LONGEST_VALIDATOR = 300  # characters


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One URL of a source. `lastmod` is when the page last changed, according to its site; `priority` is 0 to 1."""

    url: str
    lastmod: float | None = None
    priority: float | None = None


class ListedSitemap(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sitemap that an index lists."""

    url: str


class SourceBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a file lists, in its order. The last batch of a file carries the findings about the whole."""

    listed: tuple[SourceEntry | ListedSitemap, ...] = ()
    is_index: bool = False
    skipped: int = 0  # entries without a URL
    troubles: tuple[str, ...] = ()  # sentences


class Validators(msgspec.Struct, frozen=True, kw_only=True):
    """What a server needs to say whether a file has changed. Texts, as they came."""

    etag: str = ""
    last_modified: str = ""

    @property
    def usable(self) -> bool:
        """Are they worth keeping: neither empty nor too long?"""
        return 0 < len(self.etag) + len(self.last_modified) <= LONGEST_VALIDATOR


class SourceDownload(msgspec.Struct, frozen=True, kw_only=True):
    """A fetched file. `status` is 200 or 304: everything else is an error. `trouble` says what is missing."""

    status: int
    url: str  # after redirects
    content_type: str = ""
    validators: Validators = Validators()
    trouble: str = ""


class SourceBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for reading sitemaps and feeds. Sizes in bytes."""

    download: int = 50 * 1024 * 1024  # of one sitemap as it comes, compressed or not; the protocol's limit
    unpacked: int = 200 * 1024 * 1024  # of one sitemap when decompressed; some exceed the protocol a little
    feed: int = 10 * 1024 * 1024
    robots: int = 500 * 1024
    sitemaps: int = 50_000  # listed by all indexes of one source
    depth: int = 3  # levels from the first sitemap to the last
    reading: timedelta = timedelta(minutes=30)  # spent on parsing; half a million honest URLs take seconds
    lost_in_a_row: int = 20  # sitemaps in a row that could not be fetched; then the site is given up


class SourceContext(Protocol):
    """The outside world of a source. Relative paths begin at the folder `root`."""

    @property
    def root(self) -> Path: ...

    def now(self) -> float:
        """Wall time."""
        ...

    async def fetch(self, url: str, to: BinaryIO, *, max_bytes: int) -> SourceDownload:
        """Write the file at `url` into `to`, politely and as robots.txt allows, once all of it has come.

        One that is longer than `max_bytes` is refused. Raises FetchFailed or FetchRefused.
        """
        ...

    def read_sitemap(self, file: BinaryIO, url: str, *, max_bytes: int) -> Iterator[SourceBatch]:
        """Yield what a sitemap lists, in flat memory; called in a thread. Raises ParseFailed.

        One that decompresses to more than `max_bytes` is refused before anything is yielded.
        """
        ...

    def read_feed(self, file: BinaryIO, url: str, content_type: str) -> SourceBatch:
        """What a feed lists; called in a thread. Raises ParseFailed."""
        ...

    def remember(self, url: str, validators: Validators) -> None:
        """Everything that the file at `url` lists was yielded; it need not be fetched again while it is unchanged."""
        ...

    def report(self, words: str) -> None:
        """Report to people, in a sentence, that something was left out. Must not raise."""
        ...


def believable(moment: float, now: float) -> float | None:
    """The date that a site gave; None if it is not plausible."""
    return moment if OLDEST <= moment <= now + CLOCKS_DIFFER.total_seconds() else None
