"""Pages that the sitemaps of a crawl's own sites list, as seeds: of a crawl without a spider, and of spiders that ask.

How it fails: Misconfigured and BackendUnavailable. To a crawl without a spider, a site without sitemaps, or with some
that cannot be read, is no trouble: it has its links. A spider that asks for them is told.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import timedelta
from functools import partial

from ..frontier.contract import JobTerms
from ..model.task import Request
from ..model.url import origin_of
from ..parse.site import SiteSpider
from ..parse.spider import Spider, listed_seeds
from ..schedule import sources
from ..schedule.sources import SiteSource
from .seed_context import SeedContext
from .windows import job_windows

MOST_PAGES = 1_000_000  # that are taken from the sitemaps of one origin
MOST_ORIGINS = 20  # of the start addresses whose sitemaps are read


def reads_sitemaps(context: SeedContext, spider: Spider, depth: int | None) -> bool:
    """Not where links are followed for some steps only: a sitemap lists pages of any depth."""
    return spider.sitemaps and context.settings.crawl.sitemaps and context.on_the_net and depth is None


async def listed_pages(
    context: SeedContext, spider: Spider, job: str, terms: JobTerms, tell: Callable[[str], None]
) -> AsyncGenerator[Request, None]:
    """Every page that they list, as often as they list it; of each origin no more than the job may fetch. `tell` hears
    what could not be read, where the spider asks for them itself."""
    windows = job_windows(context.settings, terms, context.clock)
    most = MOST_PAGES if terms.limit is None else min(terms.limit, MOST_PAGES)

    def closed_for(site: str) -> timedelta:
        return max(windows.job.wait(), windows.wait_for(site))

    def report(words: str) -> None:
        if not isinstance(spider, SiteSpider):
            tell(words)

    async with context.open_files(
        spider=spider, announce=partial(context.take_turn, job), closed_for=closed_for
    ) as files:
        for origin in list(dict.fromkeys(origin_of(url) for url in listed_seeds(spider)))[:MOST_ORIGINS]:
            source, count = SiteSource(url=f"{origin}/", page=False), 0
            async with aclosing(sources.entries(source, files.context(report=report))) as listed:
                async for entry in listed:
                    yield Request(url=entry.url, lastmod=entry.lastmod)
                    count += 1
                    if count >= most:
                        break
            if not count:
                report(f"No page was found in sitemaps of {origin}: none that its robots.txt names, nor /sitemap.xml.")
