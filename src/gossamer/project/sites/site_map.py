"""Lists the pages of a site without fetching them: from its sitemaps, and the links of one page.

What it does: requests the page, robots.txt and the sitemaps like any page over HTTP (same queue, same pace, same
archive), and lists the addresses in them. How it fails: BadRequest and TooMuchAtOnce; a page or sitemap that cannot be
fetched is named in `missing`, and the rest is returned. Child processes read the files, in turns per key.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...model.job import Job
from ...model.url import origin_of
from ..access.keys import Caller
from ..jobs.api_jobs import Asked, begin_batch, job_for, public_url
from ..jobs.api_requests import BadRequest, BatchRequest
from ..open import Project
from ..pages.links import PageLinks, WantedLinks
from ..pages.results import PageReader

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
    origin, links, more = origin_of(href), dict[str, None](), False
    robots, usual = f"{origin}/robots.txt", f"{origin}/sitemap.xml"

    async def read(urls: list[str]) -> list[tuple[str, PageLinks]]:
        """What each file has; what could not be read is noted."""
        nonlocal more
        found: list[tuple[str, PageLinks]] = []
        asked = Asked(project=project, caller=caller, extraction=pages.extraction)
        for job, one, why in await _fetched(asked, pages, urls, max(0.0, deadline - project.clock.monotonic())):
            if job is None:
                missing.append(f"{one}: {why}")
                continue
            source: Literal["page", "sitemap", "robots"] = "robots" if one == robots else "sitemap"
            if one == href:
                source = "page"
            wanted = WantedLinks(source=source, address=href, search=search, subdomains=subdomains, limit=limit)
            has = await pages.links(job, one, wanted)
            more = more or has.more
            if has.trouble:
                missing.append(f"{one}: {has.trouble}")
            found.append((one, has))
        return found

    waiting: list[str] = []
    for one, has in await read([href, *([robots, usual] if sitemaps else [])]):
        waiting += has.sitemaps
        if one == href and page_links:
            links = dict.fromkeys(has.links) | links
        elif one != href:
            links.update(dict.fromkeys(has.links))
    if waiting:  # a missing sitemap at the well-known address is not worth reporting
        missing = [line for line in missing if not line.startswith(usual)]
    done = {usual}
    for _ in range(MOST_ROUNDS):
        batch = [one for one in dict.fromkeys(waiting) if one not in done][: MOST_SITEMAPS - len(done)]
        if not batch or len(links) > limit:
            break
        done.update(batch)
        for _, has in await read(batch):
            waiting += has.sitemaps
            links.update(dict.fromkeys(has.links))
    more = more or len(links) > limit or any(one not in done for one in waiting)
    return SiteMap(url=href, links=list(links)[:limit], more=more, missing=missing)


async def _fetched(
    asked: Asked, pages: PageReader, urls: list[str], seconds: float
) -> list[tuple[Job | None, str, str]]:
    """The job that fetched each file, or why it could not be fetched in this time."""
    try:
        job = await begin_batch(asked, BatchRequest(urls=urls))
    except BadRequest as error:  # a sitemap at an address that may not be requested
        if len(urls) == 1:
            return [(None, urls[0], str(error))]
        return [one for url in urls for one in await _fetched(asked, pages, [url], seconds)]
    if not await pages.wait(job.id, seconds):
        return [(None, url, f"it did not arrive within {seconds:.0f} s") for url in urls]
    job = await job_for(asked.project, asked.caller, job.id) or job  # as it ended
    return [(job, url, "") for url in urls]
