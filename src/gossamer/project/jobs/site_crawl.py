"""A crawl of a part of a site, as stored in the arguments of its job, where every worker and reader finds it.
api_sites.py starts such jobs."""

from __future__ import annotations

import msgspec

from ...model.job import SITE_PART, Job, read_arguments
from ...model.site_part import SitePart
from ...parse.site import SitePartSpider
from ...schedule.sources import WantedPage


class SiteCrawl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`page` says how to request each page and what the client wants from it; its address is that of the first page."""

    part: SitePart
    page: WantedPage
    follows: bool = True  # links

    def spider(self) -> SitePartSpider:
        return SitePartSpider(self.part, self.page.request, follows=self.follows)

    def page_at(self, url: str) -> WantedPage:
        return msgspec.structs.replace(self.page, request=msgspec.structs.replace(self.page.request, url=url))


def is_site_crawl(job: Job) -> bool:
    return job.spider_name == SITE_PART


def site_crawl_of(job: Job) -> SiteCrawl:
    return msgspec.convert(read_arguments(job.arguments), SiteCrawl)
