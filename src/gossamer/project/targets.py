"""What can be crawled: a spider by name or file, a recipe, or a URL."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..errors import InvalidUrl, Misconfigured
from ..model.url import parse_url
from ..parse.discovery import is_file_ref, load_spider
from ..parse.site import SiteSpider
from ..parse.spider import Spider
from ..settings import Settings

_NOT_CRAWLED = ("javascript", "data", "mailto", "file")  # schemes that are meant as URLs, and refused as such


class CrawlTarget(msgspec.Struct, frozen=True):
    """A spider, the name of its job (None: that of the spider), and the addresses that the user has named."""

    spider: Spider
    name: str | None
    urls: list[str]


def crawl_target(settings: Settings, target: str, folder: Path) -> CrawlTarget:
    """The spider that is meant. A path is looked for from `folder`, a name in the project. Raises Misconfigured."""
    if "://" not in target and target.partition(":")[0].lower() not in _NOT_CRAWLED:
        home = folder if is_file_ref(target) else settings.root
        spider = load_spider(target, home, settings.spiders)()
        return CrawlTarget(spider, None, list(spider.start_urls))
    try:
        url = parse_url(target)
    except InvalidUrl as error:
        raise Misconfigured(
            f"{error} A spider's name, a .py file, a recipe or an http(s) URL can be crawled."
        ) from error
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise Misconfigured("The address holds a user name or password, and would be shown and stored. Leave it out.")
    return CrawlTarget(SiteSpider([url]), url, [url])
