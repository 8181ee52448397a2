"""What reading a source gives, and what it needs from outside. Sources fetch nothing and parse nothing by themselves:
stages do not import each other. `gossamer.crawl.source_files` is the real `SourceContext`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

CLOCKS_DIFFER = timedelta(days=1)  # a date may be so far in the future, and no further
OLDEST = 631_152_000.0  # 1990: no page is older than the web
LONGEST_VALIDATOR = 300  # characters


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One URL of a source. `lastmod` is when the page changed last, as its site says; `priority` is 0 to 1."""

    url: str
    lastmod: float | None = None
    priority: float | None = None


class ListedSitemap(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A sitemap that an index lists."""

    url: str


class SourceBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what a file lists, in its order. The last batch of a file has what is to be told about the whole."""

    listed: tuple[SourceEntry | ListedSitemap, ...] = ()
    is_index: bool = False
    skipped: int = 0  # places that should hold an address and do not
    troubles: tuple[str, ...] = ()  # sentences


class Validators(msgspec.Struct, frozen=True, kw_only=True):
    """What a server wants to see again when it is asked whether a file has changed. Texts, as they came."""

    etag: str = ""
    last_modified: str = ""

    @property
    def usable(self) -> bool:
        """Long ones are not worth keeping, and empty ones say nothing."""
        return 0 < len(self.etag) + len(self.last_modified) <= LONGEST_VALIDATOR


class SourceDownload(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was fetched. `status` is 200 or 304: everything else is an error. `trouble` says what is missing."""

    status: int
    url: str  # where it was in the end
    content_type: str = ""
    validators: Validators = Validators()
    trouble: str = ""


class SourceBounds(msgspec.Struct, frozen=True, kw_only=True):
    """How far the reading of sitemaps and feeds goes. Sizes in bytes."""

    download: int = 50 * 1024 * 1024  # of one sitemap as it comes, packed or not; what the protocol allows
    unpacked: int = 200 * 1024 * 1024  # of one sitemap when its gzip is undone; some exceed the protocol a little
    feed: int = 10 * 1024 * 1024
    robots: int = 500 * 1024
    sitemaps: int = 50_000  # that the indexes of one source may list in all
    depth: int = 3  # steps from the first sitemap to the last
    reading: timedelta = timedelta(minutes=30)  # spent on parsing; half a million honest URLs take seconds
    lost_in_a_row: int = 20  # sitemaps that the network did not bring; then the site is given up


class SourceContext(Protocol):
    """The outside of a source. `root` is the folder that relative paths begin at."""

    @property
    def root(self) -> Path: ...

    def now(self) -> float:
        """Wall time."""
        ...

    async def fetch(self, url: str, to: BinaryIO, *, max_bytes: int) -> SourceDownload:
        """Write the file at `url` into `to`, politely and as robots.txt allows, and only when all of it has come.

        One that is longer than `max_bytes` is refused. Raises FetchFailed or FetchRefused.
        """
        ...

    def read_sitemap(self, file: BinaryIO, url: str, *, max_bytes: int) -> Iterator[SourceBatch]:
        """What a sitemap lists, in flat memory; called in a thread. Raises ParseFailed.

        One that unpacks to more than `max_bytes` is refused before anything is given.
        """
        ...

    def read_feed(self, file: BinaryIO, url: str, content_type: str) -> SourceBatch:
        """What a feed lists; called in a thread. Raises ParseFailed."""
        ...

    def remember(self, url: str, validators: Validators) -> None:
        """All that the file at `url` lists was handed out; it need not come again while it stays as it is."""
        ...

    def report(self, words: str) -> None:
        """Something was left out; a sentence for people. Must not raise."""
        ...


def believable(moment: float, now: float) -> float | None:
    """A date that a site gave, or None when no page can have it."""
    return moment if OLDEST <= moment <= now + CLOCKS_DIFFER.total_seconds() else None
