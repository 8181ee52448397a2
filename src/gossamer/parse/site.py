"""`SiteSpider` crawls a whole site without a line of code: title, text and metadata of every page. `UrlListSpider`
crawls the pages of a list that a person gave, `SitePartSpider` the part of a site that a client requested over the HTTP
API. `PageSpider` takes single pages and follows no links, `RawPageSpider` does so without a
record.

`SiteSpider` follows what a browser or a search engine would: links, redirects by <meta> and header, frames, <link> and
Link headers to other pages, forms without input, and the site's sitemaps.
Pictures, scripts and other files are not pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ..errors import Misconfigured, ParseFailed
from ..model.item import Item
from ..model.job import URL_LIST
from ..model.site_part import BadPattern, SitePart
from ..model.task import Request
from ..model.url import origin_of, site_of
from .callbacks import MAX_YIELDS
from .page import Page
from .spider import Spider

HAND_ON = "hand_on"  # the kind of a page that gives no record
MOST_LINKS = MAX_YIELDS - 1  # followed from one page, besides its record
MATCHING = 2.0  # seconds for matching patterns against the links of one page


class WebPage(Item, key="url"):
    """One page of a site. For anything but HTML and documents, title, text and metadata are None."""

    status: int
    content_type: str = ""
    title: str | None = None
    description: str | None = None
    language: str | None = None
    author: str | None = None
    published: datetime | None = None
    text: str | None = None
    structured: dict[str, Any] | None = None  # JSON-LD, microdata, Open Graph, meta, as on the page
    links: int = 0


class Description(msgspec.Struct, frozen=True):
    """The record of a page, and its links. Of a crawl of a part of a site, only the links that belong to the part, and
    whether the page itself does."""

    record: WebPage
    links: list[str]
    belongs: bool = True


class PartTerms(msgspec.Struct, frozen=True):
    """Which pages a crawl of a part of a site covers, and whether links lead to them."""

    part: SitePart
    follows: bool = True


def description_of(page: Page, terms: PartTerms | None = None) -> Description:
    """Read the page; if another process has done so (`Page._description`), take what it found. Raises ParseFailed for
    patterns that take too long."""
    if isinstance(page._description, Description):
        return page._description
    links = page.document_links() if page.has_content else []
    record = web_page(page, len(links))
    if terms is None:
        return Description(record, links)
    followed = _belonging(links[:MOST_LINKS], terms.part) if terms.follows else []
    return Description(record, followed, terms.part.has(page.requested_url))


def _belonging(links: list[str], part: SitePart) -> list[str]:
    """The links that belong to the part, without duplicates. Raises ParseFailed."""
    began, found = time.monotonic(), dict[str, None]()
    for link in links:
        if (wanted := part.page(link)) is not None:
            found[wanted] = None
        if part.has_patterns and time.monotonic() - began > MATCHING:
            raise ParseFailed("The patterns of the crawl take too long for one page. Make them simpler.")
    return list(found)


def web_page(page: Page, links: int) -> WebPage:
    """The record of a page with that number of links."""
    if not page.has_content:
        return WebPage(url=page.url, status=page.status, content_type=page.content_type)
    article, about = page.article(), page.metadata()
    return WebPage(
        url=page.url,
        status=page.status,
        content_type=page.content_type,
        title=page.title or about.title,
        description=about.description,
        language=about.language,
        author=about.author,
        published=about.published,
        text=article.text if article is not None else page.main_text() or None,
        structured=page.structured(),
        links=links,
    )


class SiteSpider(Spider):
    """Crawls the sites of any number of start URLs."""

    name = "site"
    sitemaps = True

    def __init__(self, start_urls: Sequence[str]) -> None:
        if not start_urls:
            raise Misconfigured("There is nothing to crawl. Give at least one address: gossamer crawl https://site/")
        self.start_urls = tuple(start_urls)
        self._sites = frozenset(site_of(url) for url in self.start_urls)

    def parse(self, page: Page) -> Iterator[Item | Request]:
        found = description_of(page)
        yield found.record
        here = f"{origin_of(page.url)}/"  # a fast check: most links stay on the host
        for link in found.links[:MOST_LINKS]:
            if link.startswith(here) or site_of(link) in self._sites:
                yield Request(url=link, kind=page.kind)


class UrlListSpider(SiteSpider):
    """Crawls the listed pages and, with `follows`, what they link to on their own sites. Only the command that was
    given the list has it; other processes (`urls` None) work on the pages that it has queued."""

    allowed_domains = "*"  # `parse` keeps to the site of each page: a worker does not know the sites of the list

    def __init__(self, urls: Callable[[], Iterable[str]] | None, *, follows: bool) -> None:
        self.start_urls = ()
        self.sitemaps = follows
        self._urls = urls
        self._has_list = urls is not None
        self._follows = follows
        self._stored_as = URL_LIST, {"follows": follows}

    def start(self) -> Iterator[Request]:
        if self._urls is None:
            raise Misconfigured("Its list of addresses was not read to the end. Run the command again that began it.")
        return (Request(url=url) for url in self._urls())

    def parse(self, page: Page) -> Iterator[Item | Request]:
        links = page.document_links() if page.has_content else []
        yield web_page(page, len(links))
        site = site_of(page.url)
        for link in links[:MOST_LINKS] if self._follows else ():
            if site_of(link) == site:
                yield Request(url=link, kind=page.kind)


class SitePartSpider(Spider):
    """Crawls a part of a site. `request` is the template for each page's request. The links of the first page are read
    even if the patterns exclude it. Links are followed unless `follows` is False. Raises Misconfigured for a pattern
    that cannot be used: it may come out of the queue."""

    name = "site-part"
    _renders_anew = True

    def __init__(self, part: SitePart, request: Request, *, follows: bool = True) -> None:
        try:
            part.check()
        except BadPattern as error:
            raise Misconfigured(f"The crawl of {part.url} has a pattern that cannot be used. {error}") from error
        self.start_urls = (part.url,)
        self.allowed_domains = "*" if part.other_sites else None
        self.terms = PartTerms(part, follows)
        self._request = request

    def parse(self, page: Page) -> Iterator[Item | Request]:
        found = description_of(page, self.terms)
        if found.belongs:
            # Under the requested address, by which clients find the raw page.
            yield msgspec.structs.replace(found.record, url=page.requested_url)
        for link in found.links:
            yield msgspec.structs.replace(self._request, url=link)

    def from_source(self, request: Request) -> Request | None:
        part = self.terms.part
        found = part.page(request.url) if request.url != part.url else request.url
        return msgspec.structs.replace(self._request, url=found, lastmod=request.lastmod) if found is not None else None


class PageSpider(SiteSpider):
    """Takes single pages, wherever their redirects lead. Follows no links."""

    name = "page"
    sitemaps = False
    _renders_anew = True
    allowed_domains = "*"

    def __init__(self) -> None:
        self.start_urls = ()

    def parse(self, page: Page) -> Iterator[Item | Request]:
        yield next(super().parse(page))

    def hand_on(self, page: Page) -> None:
        """The callback for a request whose response goes only to the client that made it: no items."""


class RawPageSpider(PageSpider):
    """Takes single pages for clients that asked for no records: nothing reads the page but the formats that they asked
    for. It has a name of its own, so that a page without a record is asked for in full when its record is wanted."""

    name = "raw-page"
    _gives_records = False

    def parse(self, page: Page) -> Iterator[Item | Request]:
        return iter(())
