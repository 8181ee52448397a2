"""Fetches one page for a person: for `gossamer fetch`, `gossamer shell`, `gossamer check` and drafts of recipes.

What it does: fetches the page as the crawler would, by one route, following redirects; or reads it from a file or the
archive.
How it fails: FetchFailed, FetchRefused; Misconfigured if the route or file does not exist.
"""

from __future__ import annotations

import mimetypes
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import msgspec

from ...clock import SystemClock
from ...crawl.extension import Extensions
from ...crawl.fetch_page import fetch_unqueued, fetcher_of, unqueued_task
from ...crawl.page_request import PageRequests
from ...errors import FetchRefused, GossamerError, Misconfigured, RobotsUnreachable
from ...fetch.fetcher import Disallowed, FetchedPage, PageRequest
from ...fetch.robots_shelf import MemoryShelf
from ...model.page import Headers, Snapshot
from ...model.task import Request, fault_of
from ...model.url import origin_of, parse_url, site_of, typed_url, without_user
from ...parse.page import Page
from ...parse.spider import Spider
from ...parse.timelimit import TimeLimit
from ...routing.ladder import RouteTerms, wished
from ...routing.proxies.pools import Pools
from ...routing.router import Router
from ...settings import Settings
from ...terms import header_defaults, routing_of, secrets_of
from ..extensions import extensions_of
from ..open import Project, open_project
from ..transports import transports_of
from ..wiring import robots_of

_REF = re.compile(r"\d{4}-\d{2}-\d{2}/[^#\s]+#\d+\+\d+")


class FetchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A page fetched for a person, with the redirects that led to it."""

    snapshot: Snapshot
    seconds: float
    wire_bytes: int
    address: str
    hops: tuple[tuple[int, str], ...] = ()  # status, and where it led
    note: str = ""


async def fetch_one(
    url: str,
    settings: Settings,
    *,
    robots: bool,
    route: str | None = None,
    request: Request | None = None,
    spider: Spider | None = None,
) -> FetchedFile:
    """Fetch `url`, following redirects up to the limit; each hop is checked. Raises FetchFailed, FetchRefused.

    `request` says what to send, if it is more than a GET. It is sent as `spider` would send it: with the spider's
    headers and extensions, and for a start URL of its recipe with what the recipe sends there.

    `route` names the route; without it, the first of the site's ladder is used. Raises Misconfigured if there is none.
    """
    clock = SystemClock()
    routing = routing_of(settings)
    ladder = routing.terms_for(site_of(url)).ladder
    taken = ladder[0] if route is None else wished(ladder, routing.routes, fetcher=route, pool=None)[0]
    hops: list[tuple[int, str]] = []
    async with AsyncExitStack() as stack:
        transports = await stack.enter_async_context(transports_of(settings, clock))
        pools = None
        if taken.pool is not None:
            project = await stack.enter_async_context(open_project(settings, to_look=True))
            pools = await stack.enter_async_context(
                Pools(settings.proxies, project.state.proxies, clock, project=settings.project, root=settings.root)
            )
        await transports.for_pages(taken)  # raises MissingExtra if a package is missing
        asked = robots_of(settings, MemoryShelf(), clock) if robots else None
        around = Extensions(extensions_of(settings, spider), TimeLimit(settings.crawl.parse_timeout)).around_fetch
        fetcher = fetcher_of(settings, asked, lambda site: True, clock, around=around)
        try:
            outcome = await fetch_unqueued(
                await _page_request(url, request, settings, spider),
                fetcher=lambda at: fetcher,
                router=Router(
                    terms_for=lambda site: RouteTerms(ladder=(taken,), learns=False),
                    routes=routing.routes,
                    transports=transports,
                    proxies=pools,
                    clock=clock,
                ),
                before_send=lambda site: _at_once,
                clock=clock,
                redirected=lambda moved: hops.append((moved.status, moved.to)),
            )
        except RobotsUnreachable as error:
            if isinstance(error.__cause__, GossamerError):
                raise error.__cause__ from error  # the name or the server is at fault, not robots.txt
            raise
    if isinstance(outcome, Disallowed):
        rule = f" with {outcome.rule!r}" if outcome.rule else ""
        raise FetchRefused(
            f"{origin_of(outcome.url)}/robots.txt forbids {outcome.url}{rule}. "
            f"If you may fetch it all the same, say --no-robots."
        )
    assert isinstance(outcome, FetchedPage)  # a 304 only answers requests with validators
    response = outcome.response
    snapshot = Snapshot(
        url=response.url,
        requested_url=without_user(url),
        status=response.status,
        headers=response.headers,
        body=response.body,
        fetched_at=outcome.fetched_at,
        cut=response.cut,
    )
    return FetchedFile(
        snapshot=snapshot,
        seconds=response.seconds,
        wire_bytes=response.wire_bytes,
        address=response.address,
        hops=tuple(hops),
        note=response.note,
    )


async def _page_request(
    url: str, request: Request | None, settings: Settings, spider: Spider | None = None
) -> PageRequest:
    """Raises Misconfigured, FetchRefused."""
    how = None
    if request is None and spider is not None:
        request = next((one for one in spider._start_requests if one.url == url), None)
    if request is not None:
        if fault := fault_of(request):
            raise Misconfigured(f"The request for {request.url!a:.200} {fault}.")
        url, how = parse_url(request.address()), None if request.is_plain else request.options()
    requests = PageRequests(header_defaults(settings, spider), secrets_of(settings), None)
    return await requests.made_for(unqueued_task(url.partition("#")[0]), how, None)


async def _at_once(asked: timedelta | None = None, elsewhere: str | None = None) -> None:
    """No pacing: a person fetches a single page."""


# -- pages from elsewhere ----------------------------------------------------------------------------------------


def is_archive_ref(text: str) -> bool:
    """Whether the text is the reference of an archived page, `2027-01-31/NAME.zst#offset+length`."""
    return _REF.fullmatch(text) is not None


async def archived_page(project: Project, ref: str) -> Page:
    """A page from the archive. Raises Permanent if it was pruned or is damaged."""
    return Page(await project.archive.get(ref))


def file_page(file: Path, url: str | None = None) -> Page:
    """A page from a file, as if it had been fetched from `url`. Raises Misconfigured."""
    try:
        body = file.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read ({error.strerror}).") from error
    kind = mimetypes.guess_type(file.name)[0] or "text/html"
    address = typed_url(url) if url is not None else parse_url(f"http://localhost/{file.name}")
    return Page(
        Snapshot(
            url=address,
            requested_url=address,
            status=200,
            headers=Headers([("Content-Type", kind)]),
            body=body,
            fetched_at=SystemClock().now(),
        )
    )


def text_of(page: Page, *, markdown: bool = False) -> str:
    """The main content of a page as text or Markdown. Raises FetchRefused for a page without text."""
    if page.has_content:
        return page.markdown() if markdown else page.main_text(titled=True) or page.selector.text
    if page.document is not None:
        return page.markdown() if markdown else page.main_text()  # says how it can be read
    if b"\0" in page.body[:1024]:
        raise FetchRefused(f"{page.url} is {page.content_type or 'binary'}, which has no text. Use -o FILE.")
    return page.text
