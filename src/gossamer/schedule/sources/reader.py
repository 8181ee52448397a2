"""`entries`: every URL of a source, one after the other, in flat memory. The consumer may be as slow as it likes: files
are fetched and programs run completely first, so only a temporary file waits for it.

How it fails: SourceFailed, possibly midway: URLs yielded before stay valid. How it recovers: the next run begins anew;
the frontier drops duplicates.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import BinaryIO

import msgspec

from ...errors import FetchFailed, FetchRefused, InvalidUrl, ParseFailed, SourceFailed
from ...model.url import origin_of, parse_url
from .command import run_command
from .contract import SourceBatch, SourceBounds, SourceContext, SourceEntry
from .kinds import (
    CommandSource,
    FeedSource,
    FileSource,
    Listing,
    LoginOf,
    SitemapSource,
    SiteSource,
    UrlsSource,
    discreet,
    program,
)
from .sitemap_walk import SitemapWalk
from .url_lists import AT_ONCE, MOST_TOLD, open_list, read_list
from .url_patterns import parse_pattern


async def entries(
    source: Listing, context: SourceContext, bounds: SourceBounds | None = None
) -> AsyncGenerator[SourceEntry, None]:
    """Yield all URLs of the source, up to its `max_urls`; if there are more, that is reported. No report and no error
    shows the password in a URL. Raises SourceFailed; Misconfigured and BackendUnavailable come from the context.

    A consumer that stops early must close it: `async with contextlib.aclosing(entries(...)) as found`.
    """
    found = _found(source, context, bounds or SourceBounds())
    count = 0
    try:
        async for entry in found:
            count += 1
            if count > source.max_urls:
                # Not a failure: the user set the limit, and retrying would find the same.
                context.report(
                    f"The source lists more than {source.max_urls:,} URLs; the rest is left out. Raise max_urls, or "
                    "make several schedules of it."
                )
                return
            yield entry
    except SourceFailed as error:
        raise SourceFailed(discreet(str(error))) from error.__cause__
    except OSError as error:  # of files on this machine; network errors are translated where they happen
        raise SourceFailed(
            f"A file of the source cannot be written or read ({error.strerror or error}). Make room in "
            f"{tempfile.gettempdir()}, or set TMPDIR to another folder."
        ) from error
    finally:
        await found.aclose()


def _found(source: Listing, context: SourceContext, bounds: SourceBounds) -> AsyncGenerator[SourceEntry, None]:
    match source:
        case UrlsSource():
            return _of_urls(source, context)
        case FileSource():
            return _of_file(source, context)
        case CommandSource():
            return _of_command(source, context)
        case SitemapSource():
            return SitemapWalk(source.url, context, bounds).entries()
        case FeedSource():
            return _of_feed(source, context, bounds)
        case SiteSource():
            return _of_site(source, context, bounds)


async def _of_urls(source: UrlsSource, context: SourceContext) -> AsyncGenerator[SourceEntry, None]:
    count = bad = 0
    for text in source.urls:
        for address in parse_pattern(text):
            count += 1
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)  # let other tasks run
            try:
                entry = SourceEntry(url=parse_url(address))
            except InvalidUrl as error:
                bad += 1
                if bad <= MOST_TOLD:
                    _tell(context, str(error))
                continue
            yield entry
    if bad > MOST_TOLD:
        _tell(context, f"{bad - MOST_TOLD:,} more entries of the source are not URLs.")


async def _of_file(source: FileSource, context: SourceContext) -> AsyncGenerator[SourceEntry, None]:
    with open_list(context.root / source.path) as file:
        async with aclosing(_of_list(file, source.path, source, context)) as found:
            async for entry in found:
                yield entry


async def _of_command(source: CommandSource, context: SourceContext) -> AsyncGenerator[SourceEntry, None]:
    with tempfile.TemporaryFile() as file:
        await run_command(source, context.root, file)
        file.seek(0)
        name = f"The output of {program(source.argv)}"
        async with aclosing(_of_list(file, name, source, context)) as found:
            async for entry in found:
                yield entry


async def _of_site(
    source: SiteSource, context: SourceContext, bounds: SourceBounds
) -> AsyncGenerator[SourceEntry, None]:
    if source.page:
        yield SourceEntry(url=source.url)
    # /sitemap.xml is the usual place if robots.txt names none. If it cannot be fetched there, nothing is reported:
    # nobody claimed that it exists.
    for name in ("/robots.txt", "/sitemap.xml") if source.sitemaps else ():
        try:
            walk = SitemapWalk(origin_of(source.url) + name, context, bounds, quiet=name != "/robots.txt")
            async with aclosing(walk.entries()) as found:
                async for entry in found:
                    yield entry
            return
        except SourceFailed as error:
            if isinstance(error.__cause__, FetchFailed):
                return  # the site does not answer: its pages will find out as well


async def _of_list(
    file: BinaryIO, name: str, source: FileSource | CommandSource, context: SourceContext
) -> AsyncGenerator[SourceEntry, None]:
    batches = read_list(file, name, form=source.form, column=source.column)
    given = bad = 0
    first = ""
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        for words in batch.troubles:
            _tell(context, words)
            first = first or words
        bad += batch.skipped
        for entry in _pages(batch):
            given += 1
            yield entry
    if bad:
        _tell(context, f"{name}: {bad:,} more lines without a valid URL were left out.")
    if first and not given:
        raise SourceFailed(f"{name} holds no valid URL. {first}")


async def _of_feed(
    source: FeedSource, context: SourceContext, bounds: SourceBounds
) -> AsyncGenerator[SourceEntry, None]:
    try:
        with tempfile.TemporaryFile() as file:
            download = await context.fetch(source.url, file, max_bytes=bounds.feed)
            if download.status == 304:
                return
            file.seek(0)
            batch = await asyncio.to_thread(context.read_feed, file, download.url, download.content_type)
    except ParseFailed as error:  # whose message says that it is not a feed
        raise SourceFailed(str(error)) from error
    except (FetchFailed, FetchRefused) as error:
        raise SourceFailed(f"The feed {source.url} cannot be read. {error}") from error
    troubles = [
        *batch.troubles,
        *([f"{source.url} is incomplete: {download.trouble}."] if download.trouble else ()),
    ]
    for words in troubles:
        _tell(context, words)
    if batch.skipped:
        _tell(context, f"{source.url}: {batch.skipped:,} entries without a URL were left out.")
    login = LoginOf(source.url)
    for entry in _pages(batch):
        yield msgspec.structs.replace(entry, url=login.on(entry.url))
    if not troubles and download.validators.usable:
        context.remember(source.url, download.validators)


def _tell(context: SourceContext, words: str) -> None:
    context.report(discreet(words))


def _pages(batch: SourceBatch) -> Iterator[SourceEntry]:
    return (one for one in batch.listed if isinstance(one, SourceEntry))
