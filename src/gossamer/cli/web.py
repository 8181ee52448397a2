"""`gossamer fetch`: one polite request through the guarded transport. Also behind `gossamer shell`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from ..clock import Clock, SystemClock
from ..errors import FetchRefused, GossamerError, Misconfigured, RobotsUnreachable
from ..fetch.cookies import CookieJar
from ..fetch.fetcher import Disallowed, Fetched, Fetcher, PageRequest, Redirected
from ..fetch.robots import MemoryShelf
from ..fetch.way import Through, Way
from ..model.page import Snapshot
from ..model.route import Exit
from ..model.url import origin_of, site_of
from ..parse.media import Media
from ..parse.page import Page
from ..project.open import open_project
from ..project.transports import routing_of, transports_of
from ..project.wiring import open_robots
from ..routing.ladder import wished
from ..routing.proxies.pools import Pools
from ..settings import Settings
from ..settings.effective import limits_of
from ..text import size, span, visible
from .app import app, err, run_async, settings_with
from .crawl import allow_local
from .layout import print_json, write_bytes
from .typed import typed_url


class Download(msgspec.Struct, frozen=True, kw_only=True):
    """A page fetched for a person, with the redirects that led to it."""

    snapshot: Snapshot
    seconds: float
    wire_bytes: int
    address: str
    hops: tuple[tuple[int, str], ...] = ()  # status, and where it led
    note: str = ""


@app.command("fetch")
def fetch_verb(
    url: Annotated[str, typer.Argument(help="The address.")],
    headers: Annotated[bool, typer.Option("--headers", help="Status, redirects and headers, to stderr.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file.")] = None,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Do not ask robots.txt.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Only the text of the main content.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The main content as Markdown.")] = False,
    json_ld: Annotated[bool, typer.Option("--json-ld", help="The JSON-LD in the page, as a list.")] = False,
    route: Annotated[str | None, typer.Option(help="By this route: browser, or one from gossamer.toml.")] = None,
) -> None:
    """Fetch one page as the crawler would, and print it. Exit code 1 when the answer is an error."""
    if text + markdown + json_ld > 1:
        raise Misconfigured("Choose one of --text, --markdown and --json-ld.")
    settings = settings_for(url)
    robots = settings.politeness.robots and not no_robots
    download = run_async(download_page(typed_url(url), settings, robots=robots, route=route))
    if headers:
        _print_headers(download)
    snapshot = download.snapshot
    if snapshot.cut:
        err.print(f"[yellow]The body is cut[/] at {size(len(snapshot.body))} (fetch.max_body, or a broken transfer).")
    page = Page(snapshot)
    if json_ld and output is None:
        print_json(page.structured()["json_ld"])
    else:
        _deliver(_content(page, text=text, markdown=markdown, json_ld=json_ld), output, is_text=text or markdown)
    if snapshot.status >= 400:
        raise FetchRefused(f"{snapshot.url} answered {_status(snapshot.status)}.", status=snapshot.status)


def settings_for(url: str) -> Settings:
    """The settings, with a local host allowed because the user typed it."""
    return allow_local(settings_with(), [typed_url(url)], {})


async def download_page(url: str, settings: Settings, *, robots: bool, route: str | None = None) -> Download:
    """Fetch `url`, following redirects up to the limit; each hop is checked. Raises FetchFailed, FetchRefused.

    It goes by the route of that name, else by the first of the site's ladder. Raises Misconfigured when there is none.
    """
    clock = SystemClock()
    hops: list[tuple[int, str]] = []
    async with open_way(settings, url, route, clock) as way:
        asked = open_robots(settings, way.robots, MemoryShelf(), clock) if robots else None
        fetcher = Fetcher(
            way.page,
            lambda site: asked,
            way.jar,
            user_agent=settings.fetch.user_agent,
            limits=limits_of(settings),
            max_redirects=settings.fetch.max_redirects,
            clock=clock,
        )
        try:
            outcome = await fetcher.fetch(PageRequest(url=url.partition("#")[0]), _no_gate, way)
            while isinstance(outcome, Redirected):
                hops.append((outcome.status, outcome.to))
                outcome = await fetcher.fetch(PageRequest(url=outcome.to, redirects=outcome.redirects), _no_gate, way)
        except RobotsUnreachable as error:
            if isinstance(error.__cause__, GossamerError):
                raise error.__cause__ from error  # the name or the server is wrong: robots.txt is not the point
            raise
    if isinstance(outcome, Disallowed):
        rule = f" with {outcome.rule!r}" if outcome.rule else ""
        raise FetchRefused(
            f"{origin_of(outcome.url)}/robots.txt forbids {outcome.url}{rule}. "
            f"If you may fetch it all the same, say --no-robots."
        )
    assert isinstance(outcome, Fetched)  # a 304 comes only to those who sent validators
    response = outcome.response
    snapshot = Snapshot(
        url=response.url,
        requested_url=url,
        status=response.status,
        headers=response.headers,
        body=response.body,
        fetched_at=outcome.fetched_at,
        cut=response.cut,
    )
    return Download(
        snapshot=snapshot,
        seconds=response.seconds,
        wire_bytes=response.wire_bytes,
        address=response.address,
        hops=tuple(hops),
        note=response.note,
    )


@asynccontextmanager
async def open_way(settings: Settings, url: str, name: str | None, clock: Clock) -> AsyncIterator[Way]:
    """The way to one page that a person wants to see. Raises Misconfigured, AllExitsRest."""
    routing = routing_of(settings)
    ladder = routing.terms_for(site_of(url)).ladder
    route = ladder[0] if name is None else wished(ladder, routing.routes, fetcher=name, pool=None)[0]
    async with AsyncExitStack() as stack:
        transports = await stack.enter_async_context(transports_of(settings, clock))
        exit: Exit | None = None
        if route.pool is not None:
            project = await stack.enter_async_context(open_project(settings, to_look=True))
            pools = await stack.enter_async_context(
                Pools(settings.proxies, project.state.exits, clock, project=settings.project, root=settings.root)
            )
            exit = await pools.take(route.pool, site=site_of(url), fingerprint=b"")
        pages, texts = await transports.for_pages(route), await transports.for_robots(route)
        yield Way(
            page=Through(pages, exit=exit, profile=route.profile),
            robots=Through(texts, exit=exit),
            jar=CookieJar(clock=clock),
            route=route,
            exit=exit,
        )


async def _no_gate(asked: object = None) -> None:
    """One page for one person: there is nothing to pace."""


def _content(page: Page, *, text: bool, markdown: bool, json_ld: bool) -> bytes:
    if json_ld:
        return msgspec.json.format(msgspec.json.encode(page.structured()["json_ld"]), indent=2) + b"\n"
    if not text and not markdown:
        return page.body
    if page.media is Media.HTML:
        found = page.markdown() if markdown else page.main_text() or page.selector.text
    elif b"\0" in page.body[:1024]:
        raise FetchRefused(f"{page.url} is {page.content_type or 'binary'}, which has no text. Use -o FILE.")
    else:
        found = page.text
    return (found.rstrip("\n") + "\n").encode("utf-8", "replace")


def _deliver(content: bytes, output: Path | None, *, is_text: bool) -> None:
    if output is not None and output != Path("-"):
        try:
            output.write_bytes(content)
        except OSError as error:
            raise Misconfigured(f"{output} cannot be written ({error.strerror}). Choose another place.") from error
        err.print(f"{size(len(content))} written to {visible(str(output))}", markup=False)
        return
    if output is None and not is_text and sys.stdout.isatty() and b"\0" in content[:1024]:
        raise Misconfigured("The page is binary and would garble your terminal. Write it to a file with -o FILE.")
    write_bytes(content)


def _print_headers(download: Download) -> None:
    snapshot = download.snapshot
    for status, target in download.hops:
        err.print(Text.assemble((_status(status), "yellow"), f"  -> {visible(target)}"))
    style = "bold red" if snapshot.status >= 400 else "bold green"
    facts = [span(download.seconds) if download.seconds >= 10 else f"{download.seconds * 1000:.0f} ms"]
    facts.append(f"{size(download.wire_bytes)} received, {size(len(snapshot.body))} unpacked")
    facts += [fact for fact in (download.address, download.note) if fact]
    err.print(Text.assemble((_status(snapshot.status), style), (f"  {', '.join(facts)}", "dim")))
    for name, value in snapshot.headers:
        err.print(Text.assemble((f"{visible(name)}: ", "cyan"), visible(value)))
    err.print()


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
