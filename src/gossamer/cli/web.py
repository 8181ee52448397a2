"""`gossamer fetch`: one polite request through the guarded transport. Also behind `gossamer shell`."""

from __future__ import annotations

import sys
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from ..errors import FetchRefused, Misconfigured
from ..model.url import typed_url
from ..parse.media import Media
from ..parse.page import Page
from ..project.fetch import Download, fetch_one
from ..settings import Settings
from ..text import size, span, visible
from .app import app, err, run_async, settings_with
from .crawl import allow_local
from .layout import print_json, write_bytes


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
    download = run_async(fetch_one(typed_url(url), settings, robots=robots, route=route))
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
