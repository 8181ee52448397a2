"""`gossamer fetch`: one polite request. `gossamer shell`: a Python prompt with a loaded page, or a filter that runs
code from a pipe."""

from __future__ import annotations

import ast
import code
import mimetypes
import os
import sys
import tempfile
import traceback
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from .. import Item, Money, Page, Request, Spider
from ..errors import FetchRefused, GossamerError, InvalidUrl, Misconfigured
from ..model.url import typed_url
from ..project.pages.fetch import FetchedFile, archived_page, fetch_one, file_page, is_archive_ref, text_of
from ..project.spiders.spiders import make_spiders_importable, prompt_spider
from ..settings import Settings
from ..units import size, span, visible
from .app import allow_local, app, err, open_crawled, run_async, settings_with, styled
from .layout import print_json, write_bytes
from .request_flags import request_of

HISTORY_LINES = 2000


# -- fetch -------------------------------------------------------------------------------------------------------


@app.command("fetch")
def fetch_verb(
    url: Annotated[str, typer.Argument(help="The address.")],
    headers: Annotated[bool, typer.Option("--headers", help="Print status, redirects and headers to stderr.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file.")] = None,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Ignore robots.txt.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print only the text of the main content.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the main content as Markdown.")] = False,
    json_ld: Annotated[bool, typer.Option("--json-ld", help="Print the JSON-LD of the page, as a list.")] = False,
    route: Annotated[str | None, typer.Option(help="Use this route: browser, or one from gossamer.toml.")] = None,
    method: Annotated[
        str | None, typer.Option("-X", "--request", help="The method (default: GET, or POST with a body).")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("-H", "--header", help="A header, 'Name: value'.")] = None,
    data: Annotated[str | None, typer.Option("-d", "--data", help="The body, sent as it is.")] = None,
    json: Annotated[str | None, typer.Option("--json", help="The body, as JSON.")] = None,
    form: Annotated[list[str] | None, typer.Option("--form", help="A field of a form, name=value.")] = None,
    auth: Annotated[
        str | None, typer.Option("--auth", help="user:password, for basic or digest authentication.")
    ] = None,
) -> None:
    """Fetch one page as the crawler would, and print it. Exit code 1 for an error response."""
    if text + markdown + json_ld > 1:
        raise Misconfigured("Choose one of --text, --markdown and --json-ld.")
    settings = settings_for(url)
    robots = settings.politeness.robots and not no_robots
    request = request_of(typed_url(url), method, header, data, json, form, auth)
    download = run_async(fetch_one(typed_url(url), settings, robots=robots, route=route, request=request))
    if headers:
        _print_headers(download)
    snapshot = download.snapshot
    if snapshot.cut:
        words = "[yellow]The body was truncated[/] at {} (fetch.max_body, or a broken transfer)."
        err.print(styled(words, size(len(snapshot.body))))
    page = Page(snapshot)
    if json_ld and output is None:
        print_json(page.structured()["json_ld"])
    elif json_ld:
        content = msgspec.json.format(msgspec.json.encode(page.structured()["json_ld"]), indent=2)
        _deliver(content + b"\n", output, is_text=False)
    elif text or markdown:
        content = (text_of(page, markdown=markdown).rstrip("\n") + "\n").encode("utf-8", "replace")
        _deliver(content, output, is_text=True)
    else:
        _deliver(page.body, output, is_text=False)
    if snapshot.status >= 400:
        raise FetchRefused(f"{snapshot.url} answered {_status(snapshot.status)}.", status=snapshot.status)


def settings_for(url: str) -> Settings:
    """The settings, with the local host that the user typed allowed."""
    return allow_local(settings_with(), [typed_url(url)], {})


def _deliver(content: bytes, output: Path | None, *, is_text: bool) -> None:
    if output is not None and output != Path("-"):
        try:
            output.write_bytes(content)
        except OSError as error:
            raise Misconfigured(f"{output} cannot be written ({error.strerror}). Choose another place.") from error
        err.print(f"{size(len(content))} written to {visible(str(output))}", markup=False)
        return
    if output is None and not is_text and sys.stdout.isatty() and b"\0" in content[:1024]:
        raise Misconfigured("The page is binary. Write it to a file with -o FILE.")
    write_bytes(content)


def _print_headers(download: FetchedFile) -> None:
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


# -- shell -------------------------------------------------------------------------------------------------------


@app.command("shell")
def shell_verb(
    target: Annotated[str, typer.Argument(help="A URL, a file, or the reference of an archived page.")],
    url: Annotated[str | None, typer.Option(help="The address of a FILE, to resolve its relative links.")] = None,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Ignore robots.txt.")] = False,
    route: Annotated[str | None, typer.Option(help="Use this route: browser, or one from gossamer.toml.")] = None,
    spider: Annotated[
        str | None, typer.Option("--spider", help="Ask as this spider does: with its headers, settings and extensions.")
    ] = None,
) -> None:
    """Try selectors on a page at a Python prompt; or pipe code in: echo 'page.title' | gossamer shell URL."""
    settings = settings_with()
    make_spiders_importable(settings)
    asking = prompt_spider(settings, spider, Path.cwd())
    robots = not no_robots and (asking is None or asking.robots is not False)
    page = open_page(target, url, robots=robots, route=route, spider=asking)
    bench = Bench(page, robots=robots, route=route, spider=asking)
    if sys.stdin.isatty():
        _converse(bench)
    else:
        run_piped(sys.stdin.read(), bench.names)


def open_page(
    target: str,
    url: str | None,
    *,
    robots: bool,
    route: str | None = None,
    request: Request | None = None,
    spider: Spider | None = None,
) -> Page:
    """Open the page that the user named: fetched, from a file, or from the archive. Raises GossamerError."""
    if is_archive_ref(target):
        return run_async(_archived(target))
    file = Path(target)
    if "://" not in target and file.is_file():
        return file_page(file, url)
    try:
        href = typed_url(target)
    except InvalidUrl as error:
        raise Misconfigured(f"{error} There is no file with that name either.") from error
    settings = settings_for(href)
    if spider is not None:
        settings = spider._adjusted(settings)
    robots = robots and settings.politeness.robots
    fetching = fetch_one(href, settings, robots=robots, route=route, request=request, spider=spider)
    return Page(run_async(fetching).snapshot)


async def _archived(ref: str) -> Page:
    async with open_crawled(settings_with()) as project:
        return await archived_page(project, ref)


class Bench:
    """The names at the prompt. `fetch(url)` replaces the page."""

    def __init__(self, page: Page, *, robots: bool, route: str | None = None, spider: Spider | None = None) -> None:
        self._spider = spider
        self._robots = robots
        self._route = route
        self.names: dict[str, Any] = {  # and whatever the user binds
            "css": self.css,
            "xpath": self.xpath,
            "view": self.view,
            "fetch": self.fetch,
            "Item": Item,
            "Money": Money,
            "Request": Request,
        }
        self._put(page)

    @property
    def page(self) -> Page:
        found: Page = self.names["page"]
        return found

    def css(self, selector: str) -> Any:  # as Page.css
        """Select by CSS in the page."""
        return self.page.css(selector)

    def xpath(self, expression: str, **variables: Any) -> Any:  # as Page.xpath
        """Select by XPath in the page."""
        return self.page.xpath(expression, **variables)

    def view(self, response: object = None) -> None:
        """Write the page as received to a file, and open it in a browser if there is one."""
        suffix = mimetypes.guess_extension(self.page.content_type.partition(";")[0].strip()) or ".html"
        with tempfile.NamedTemporaryFile("wb", prefix="gossamer-", suffix=suffix, delete=False) as file:
            file.write(self.page.body)
        print(file.name)
        if sys.stdin.isatty() and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
            webbrowser.open(Path(file.name).as_uri())

    def fetch(self, url: Any) -> Page:  # an address, a Request, or one of Scrapy's
        """Fetch another page and bind it to `page`. Relative addresses are resolved against the current page."""
        own = self._spider._shell_request(url) if self._spider is not None else None
        request = own or (url if isinstance(url, Request) else Request(url=url))
        request = msgspec.structs.replace(request, url=self.page.urljoin(request.url))
        self._put(
            open_page(request.url, None, robots=self._robots, route=self._route, request=request, spider=self._spider)
        )
        return self.page

    def _put(self, page: Page) -> None:
        self.names["page"] = page
        if self._spider is not None:
            self.names |= self._spider._shell_names(page)


def run_piped(source: str, names: dict[str, Any]) -> None:
    """Run code like the prompt: print the value of each expression. Exit code 1 when it raises."""
    try:
        statements = ast.parse(source, "<stdin>").body
        for statement in statements:
            # Compiled one by one in "single" mode: that is what makes an expression print its value.
            exec(compile(ast.Interactive([statement]), "<stdin>", "single"), names)  # noqa: S102 - it is the user's own
    except SystemExit:
        raise
    except BrokenPipeError:
        raise
    except Exception as error:
        sys.stderr.write(tell(error))
        raise typer.Exit(1) from None


def tell(error: BaseException) -> str:
    """A GossamerError in one line; other errors with the frames of the user's code, without those of the prompt."""
    if isinstance(error, GossamerError):
        return f"{type(error).__name__}: {error}\n"
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename not in ("<stdin>", "<console>"):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


class _Console(code.InteractiveConsole):
    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            self.write(tell(error))


def _converse(bench: Bench) -> None:
    page = bench.page
    err.print(Text.assemble((visible(page.title or "(no title)"), "bold")))
    err.print(Text(f"{page.status}  {visible(page.url)}  {size(len(page.body))}  {visible(page.content_type)}", "dim"))
    err.print(
        styled(
            "[cyan]page[/], [cyan]css[/](...), [cyan]xpath[/](...), [cyan]view[/]() in a browser, "
            "[cyan]fetch[/](url) another page, Tab completes, Ctrl-D leaves"
        )
    )
    if "response" in bench.names:
        err.print(styled("[cyan]response[/] and [cyan]settings[/] as in scrapy shell"))
    err.print()
    forget = _equip(bench.names)
    try:
        _Console(bench.names, "<console>").interact(banner="", exitmsg="")
    finally:
        forget()


def _equip(names: dict[str, Any]) -> Callable[[], None]:
    """Set up completion and history if readline is available; return a function that saves the history."""
    try:
        import readline
        import rlcompleter
    except ImportError:
        return lambda: None
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    history = Path(home) / "gossamer" / "shell_history"
    with suppress(OSError):  # no history yet, or one that cannot be read: the prompt works without it
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES)

    def save() -> None:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    return save
