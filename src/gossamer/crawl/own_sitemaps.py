"""Seeds from the sitemaps of the crawl's own sites: for crawls without a spider, and for spiders that ask for them.

How it fails: Misconfigured and BackendUnavailable. A crawl without a spider follows links, so missing or unreadable
sitemaps are no error to it. A spider that asks for sitemaps gets a warning.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from datetime import timedelta
from functools import partial

from ..frontier.contract import JobTerms
from ..model.task import Request
from ..parse.site import SiteSpider
from ..parse.spider import Spider
from ..schedule.sources import SiteSource
from ..schedule.sources.reader import entries
from .seed_context import SeedContext
from .windows import job_windows

MOST_PAGES = 1_000_000  # taken from the sitemaps of one origin
MOST_ORIGINS = 20  # of the seeds whose sitemaps are read


def reads_sitemaps(context: SeedContext, spider: Spider, depth: int | None) -> bool:
    """No if the depth of the crawl is limited: a sitemap lists pages of any depth."""
    return spider.sitemaps and context.settings.crawl.sitemaps and context.on_the_net and depth is None


async def listed_pages(
    context: SeedContext,
    spider: Spider,
    job: str,
    terms: JobTerms,
    origins: Iterable[str],
    tell: Callable[[str], None],
) -> AsyncGenerator[Request, None]:
    """Yield every page that the sitemaps of these origins list, as often as it is listed; from each origin no more than
    the job may fetch. `tell` receives what could not be read, if the spider asks for sitemaps itself."""
    windows = job_windows(context.settings, terms, context.clock)
    most = MOST_PAGES if terms.limit is None else min(terms.limit, MOST_PAGES)

    def closed_for(site: str) -> timedelta:
        return max(windows.job.wait(), windows.wait_for(site))

    def report(words: str) -> None:
        if not isinstance(spider, SiteSpider):
            tell(words)

    async with context.open_files(
        spider=spider, politeness=terms.politeness, announce=partial(context.take_turn, job), closed_for=closed_for
    ) as files:
        for origin in origins:
            source, count = SiteSource(url=f"{origin}/", page=False), 0
            async with aclosing(entries(source, files.context(report=report))) as listed:
                async for entry in listed:
                    yield Request(url=entry.url, lastmod=entry.lastmod)
                    count += 1
                    if count >= most:
                        break
            if not count:
                report(f"No page was found in sitemaps of {origin}, neither those in robots.txt nor /sitemap.xml.")
