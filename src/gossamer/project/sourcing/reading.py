"""What sitemaps and feeds list, from files on disk. Without I/O of its own but reading; runs in threads.

How it fails: ParseFailed for what is no sitemap or feed, and for one that unpacks to more than it may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import BinaryIO

from ...errors import ParseFailed
from ...model.page import Headers, Snapshot
from ...parse.feeds import parse_feed
from ...parse.page import Page
from ...parse.sitemaps import ChildSitemap, SitemapEntry, SitemapReader
from ...schedule.sources import ListedSitemap, SourceBatch, SourceBounds, SourceEntry, believable
from ...schedule.sources.gzip_file import GZIP, Damaged, TooLarge, is_packed, unpacked

AT_ONCE = 500  # entries in one batch
_PIECE = 32 * 1024
_LARGEST_FEED = SourceBounds().feed  # unpacked; it is read whole


def sitemap_batches(file: BinaryIO, url: str, *, max_bytes: int, now: float) -> Iterator[SourceBatch]:
    """What the sitemap lists, part by part. Raises ParseFailed; for one that is too long before the first part."""
    _weigh(file, url, max_bytes)
    reader = SitemapReader(url, max_bytes=max_bytes, now=datetime.fromtimestamp(now, UTC))
    listed: list[SourceEntry | ListedSitemap] = []
    for one in _read(reader, file):
        listed.append(
            ListedSitemap(url=one.loc)
            if isinstance(one, ChildSitemap)
            else SourceEntry(url=one.loc, lastmod=_moment(one.lastmod, now), priority=one.priority)
        )
        if len(listed) >= AT_ONCE:
            yield SourceBatch(listed=tuple(listed), is_index=reader.kind == "index")
            listed.clear()
    yield SourceBatch(
        listed=tuple(listed),
        is_index=reader.kind == "index",
        skipped=reader.skipped,
        troubles=(reader.trouble,) if reader.trouble is not None else (),
    )


def feed_batch(file: BinaryIO, url: str, content_type: str, *, now: float) -> SourceBatch:
    """What the feed lists; it may be packed with gzip, once. Raises ParseFailed."""
    try:
        body = b"".join(_unpacked(file, url, _LARGEST_FEED, "feed")) if is_packed(file) else file.read()
    except Damaged as error:
        raise ParseFailed(f"{url} is packed with gzip and damaged: {error}.") from error
    if body.startswith(GZIP):
        raise ParseFailed(f"{url} is packed with gzip twice, which no feed is. It is not read.")
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
    """Unpack it once for its size alone, so that a bomb gives nothing rather than a part. Raises ParseFailed."""
    # What is not packed is as long as it came, and its size was looked at then.
    if is_packed(file):
        with suppress(Damaged):  # the reader will say so
            for _ in _unpacked(file, url, max_bytes, "sitemap"):
                pass
    file.seek(0)


def _unpacked(file: BinaryIO, url: str, max_bytes: int, kind: str) -> Iterator[bytes]:
    """Raises ParseFailed for more than `max_bytes`; Damaged."""
    try:
        yield from unpacked(file, max_bytes=max_bytes)
    except TooLarge as error:
        raise ParseFailed(f"{url} unpacks to more than {error}, which no {kind} may. It is not read.") from error
