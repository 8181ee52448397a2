"""The addresses in a page, a sitemap or a robots.txt, for the map of a site. Pure; run in a child process."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...errors import ParseFailed
from ...extract.sitemaps import sitemap_of
from ...model.url import host_of, site_of
from ...parse.page import Page
from ...schedule.sources.sitemap_walk import sitemaps_in


class WantedLinks(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of the site of `address` that contain the text `search`, at most `limit`."""

    source: Literal["page", "sitemap", "robots"]
    address: str
    search: str
    subdomains: bool  # also other hosts of the site
    limit: int


class PageLinks(msgspec.Struct, frozen=True, kw_only=True):
    """`sitemaps` are those that the source names; `trouble` says what could not be read."""

    links: list[str] = []
    more: bool = False  # than `limit`
    sitemaps: list[str] = []
    trouble: str = ""


def links_in(page: Page, wanted: WantedLinks) -> PageLinks:
    match wanted.source:
        case "robots":
            return PageLinks(sitemaps=list(sitemaps_in(page.text, page.url)))
        case "page":
            links, more = _fitting(page.document_links() if page.has_content else [], wanted)
            return PageLinks(links=links, more=more)
        case "sitemap":
            try:
                sitemap = sitemap_of(page)
            except ParseFailed as error:
                return PageLinks(trouble=str(error))
            links, more = _fitting([entry.loc for entry in sitemap.urls], wanted)
            children = [child.loc for child in sitemap.children]
            return PageLinks(links=links, more=more, sitemaps=children, trouble=sitemap.trouble or "")


def _fitting(links: list[str], wanted: WantedLinks) -> tuple[list[str], bool]:
    site, host, search = site_of(wanted.address), host_of(wanted.address), wanted.search.casefold()
    found = [
        link
        for link in dict.fromkeys(links)
        if (site_of(link) == site if wanted.subdomains else host_of(link) == host) and search in link.casefold()
    ]
    return found[: wanted.limit], len(found) > wanted.limit
