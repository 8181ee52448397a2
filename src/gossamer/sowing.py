"""Where the first requests of a job come from: the spider's own start, or the source of the schedule that began it.

A source is read bit by bit: however long it is, memory stays flat, and reading waits while the queue is full. Whoever
works on a job whose seeds are not all in reads the source from its beginning again; what is in already is a duplicate.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from .assembly import System
from .frontier.contract import JobTerms
from .model.events import EventSink, Silence, Trouble
from .model.task import DEFAULT_KIND, Request
from .model.url import site_of
from .parse.spider import Spider, seeds
from .schedule.sources import FeedSource, Listing, Sitemap, Start, Urls, entries, source_of
from .sourcing import open_sourcing


def sites_of(terms: JobTerms) -> set[str]:
    """The sites that a source names itself; those of a file or a command are known when it is read."""
    source = source_of(terms.source)
    if isinstance(source, Urls):
        return {site_of(url) for url in source.urls if "{" not in url.partition("//")[2].partition("/")[0]}
    return {site_of(source.url)} if isinstance(source, Sitemap | FeedSource) else set()


async def requests_of(
    system: System, spider: Spider, job: str, terms: JobTerms, events: EventSink | None = None
) -> AsyncGenerator[Request, None]:
    """The first requests of a job, one at a time. Raises Misconfigured, SourceFailed."""
    source = source_of(terms.source)
    if isinstance(source, Start):
        async for request in seeds(spider):
            yield request
        return
    async for request in _listed(system, source, job, terms, events or Silence()):
        yield request


async def _listed(
    system: System, source: Listing, job: str, terms: JobTerms, events: EventSink
) -> AsyncIterator[Request]:
    def report(message: str) -> None:
        events.emit(Trouble(at=system.clock.now(), job=job, stage="source", message=message))

    async with (
        open_sourcing(system.settings, clock=system.clock, shelf=system.robots_shelf, exits=system.exits) as sourcing,
        aclosing(entries(source, sourcing.context(report=report))) as listed,
    ):
        async for entry in listed:
            yield Request(
                url=entry.url, kind=terms.kind or DEFAULT_KIND, priority=terms.priority, lastmod=entry.lastmod
            )
