"""Lists the pages of a site without fetching them: from its sitemaps, and the links of one page.

What it does: requests the page, robots.txt and the sitemaps like any page over HTTP (same queue, same pace, same
archive), and lists the addresses in them. How it fails: BadRequest and TooMuchAtOnce; a page or sitemap that cannot be
fetched is named in `missing`, and the rest is returned.
"""

from __future__ import annotations

import asyncio

import msgspec

from ..errors import ParseFailed
from ..model.page import Snapshot
from ..model.url import host_of, origin_of, site_of
from ..parse.media import Media
from ..parse.page import Page
from ..parse.sitemaps import sitemap_of
from ..schedule.sources.sitemap_walk import sitemaps_in
from .api_jobs import Asked, begin_batch, public_url
from .api_requests import BadRequest, BatchRequest
from .keys import Caller
from .open import Project
from .page_results import PageReader

MOST_SITEMAPS = 20  # read for one map
MOST_ROUNDS = 3  # an index may list indexes


class SiteMap(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses found, those of the page first. `missing` says what could not be read, and why."""

    url: str
    links: list[str]
    more: bool  # whether there are more than these, or unread sitemaps
    missing: list[str]


async def map_site(
    project: Project,
    pages: PageReader,
    caller: Caller,
    url: str,
    *,
    search: str = "",
    limit: int = 1000,
    subdomains: bool = True,
    sitemaps: bool = True,
    page_links: bool = True,
    seconds: float = 60.0,
) -> SiteMap:
    """The addresses of a site that contain the text `search`, at most `limit`, within `seconds`."""
    href = public_url(project.settings, url)
    deadline = project.clock.monotonic() + seconds
    missing: list[str] = []

    async def ask(urls: list[str]) -> list[tuple[str, Snapshot]]:
        left = deadline - project.clock.monotonic()
        fetched = await _fetched(project, pages, caller, urls, max(0.0, left)) if urls else []
        missing.extend(f"{one}: {said}" for one, said in fetched if isinstance(said, str))
        return [(one, said) for one, said in fetched if not isinstance(said, str)]

    origin, found = origin_of(href), dict[str, None]()
    robots, usual = f"{origin}/robots.txt", f"{origin}/sitemap.xml"
    waiting: list[str] = []
    for one, snapshot in await ask([href, *([robots, usual] if sitemaps else [])]):
        if one == robots:
            waiting += sitemaps_in(Page(snapshot).text, snapshot.url)
        elif one == usual:
            waiting += await asyncio.to_thread(_take_sitemap, snapshot, found, missing)
        elif page_links:
            found = dict.fromkeys(await asyncio.to_thread(_page_links, snapshot)) | found
    if waiting:  # a missing sitemap at the well-known address is not worth reporting
        missing = [line for line in missing if not line.startswith(usual)]
    read = {usual}
    for _ in range(MOST_ROUNDS):
        batch = [one for one in dict.fromkeys(waiting) if one not in read][: MOST_SITEMAPS - len(read)]
        if not batch or len(found) > limit:
            break
        read.update(batch)
        for _, snapshot in await ask(batch):
            waiting += await asyncio.to_thread(_take_sitemap, snapshot, found, missing)
    site, host, wanted = site_of(href), host_of(href), search.casefold()
    links = [
        link
        for link in found
        if (site_of(link) == site if subdomains else host_of(link) == host) and wanted in link.casefold()
    ]
    more = len(links) > limit or any(one not in read for one in waiting)
    return SiteMap(url=href, links=links[:limit], more=more, missing=missing)


async def _fetched(
    project: Project, pages: PageReader, caller: Caller, urls: list[str], seconds: float
) -> list[tuple[str, Snapshot | str]]:
    """Each page, or why it could not be fetched in this time."""
    asked = Asked(project=project, caller=caller, extraction=pages.extraction)
    try:
        job = await begin_batch(asked, BatchRequest(urls=urls))
    except BadRequest as error:  # a sitemap at an address that may not be requested
        if len(urls) == 1:
            return [(urls[0], str(error))]
        return [one for url in urls for one in await _fetched(project, pages, caller, [url], seconds)]
    if not await pages.wait(job.id, seconds):
        return [(url, f"it did not arrive within {seconds:.0f} s") for url in urls]
    return list(zip(urls, await pages.snapshots(job, urls), strict=True))


def _page_links(snapshot: Snapshot) -> list[str]:
    page = Page(snapshot)
    return page.document_links() if page.media is Media.HTML and page.tree is not None else []


def _take_sitemap(snapshot: Snapshot, found: dict[str, None], missing: list[str]) -> list[str]:
    """Add the pages of the sitemap to `found`; return the sitemaps that it names."""
    try:
        sitemap = sitemap_of(Page(snapshot))
    except ParseFailed as error:
        missing.append(f"{snapshot.url}: {error}")
        return []
    found.update(dict.fromkeys(entry.loc for entry in sitemap.urls))
    if sitemap.trouble is not None:
        missing.append(f"{snapshot.url}: {sitemap.trouble}")
    return [child.loc for child in sitemap.children]
