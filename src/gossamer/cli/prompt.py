"""`gossamer shell`: a Python prompt with a page at hand. Works as a filter, too, when code comes through a pipe."""

from __future__ import annotations

import ast
import code
import mimetypes
import os
import re
import sys
import tempfile
import time
import traceback
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from rich.text import Text

from ..errors import GossamerError, InvalidUrl, Misconfigured
from ..model.item import Item
from ..model.money import Money
from ..model.page import Headers, Snapshot
from ..model.url import parse_url, typed_url
from ..parse.page import Page
from ..parse.selectors import SelectorList
from ..project.fetch import fetch_one
from ..text import size, visible
from .app import app, err, open_crawled, run_async, settings_with
from .web import settings_for

_REF = re.compile(r"\d{4}-\d{2}-\d{2}/[^#\s]+#\d+\+\d+")
HISTORY_LINES = 2000


@app.command("shell")
def shell_verb(
    target: Annotated[str, typer.Argument(help="A URL, a file, or the reference of an archived page.")],
    url: Annotated[str | None, typer.Option(help="The address of a FILE, which relative links start from.")] = None,
    no_robots: Annotated[bool, typer.Option("--no-robots", help="Do not ask robots.txt.")] = False,
    route: Annotated[str | None, typer.Option(help="By this route: browser, or one from gossamer.toml.")] = None,
) -> None:
    """Try selectors on a page at a Python prompt; or pipe code in: echo 'page.title' | gossamer shell URL."""
    bench = Bench(open_page(target, url, robots=not no_robots, route=route), robots=not no_robots, route=route)
    if sys.stdin.isatty():
        _converse(bench)
    else:
        run_piped(sys.stdin.read(), bench.names)


def open_page(target: str, url: str | None, *, robots: bool, route: str | None = None) -> Page:
    """The page that the user means: fetched, read from a file, or from the archive. Raises GossamerError."""
    if _REF.fullmatch(target):
        return Page(run_async(_archived(target)))
    file = Path(target)
    if "://" not in target and file.is_file():
        return Page(_from_file(file, url))
    try:
        href = typed_url(target)
    except InvalidUrl as error:
        raise Misconfigured(f"{error} There is no file of that name either.") from error
    settings = settings_for(href)
    robots = robots and settings.politeness.robots
    return Page(run_async(fetch_one(href, settings, robots=robots, route=route)).snapshot)


async def _archived(ref: str) -> Snapshot:
    async with open_crawled(settings_with()) as project:
        return await project.archive.get(ref)


def _from_file(file: Path, url: str | None) -> Snapshot:
    try:
        body = file.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read ({error.strerror}).") from error
    kind = mimetypes.guess_type(file.name)[0] or "text/html"
    address = typed_url(url) if url is not None else parse_url(f"http://localhost/{file.name}")
    return Snapshot(
        url=address,
        requested_url=address,
        status=200,
        headers=Headers([("Content-Type", kind)]),
        body=body,
        fetched_at=time.time(),
    )


class Bench:
    """The names at the prompt. `fetch(url)` puts another page on the bench."""

    def __init__(self, page: Page, *, robots: bool, route: str | None = None) -> None:
        self._robots = robots
        self._route = route
        self.names: dict[str, Any] = {  # whatever the user binds joins them
            "css": self.css,
            "xpath": self.xpath,
            "view": self.view,
            "fetch": self.fetch,
            "Item": Item,
            "Money": Money,
        }
        self._put(page)

    @property
    def page(self) -> Page:
        found: Page = self.names["page"]
        return found

    def css(self, selector: str) -> SelectorList:
        """Select by CSS in the page."""
        return self.page.css(selector)

    def xpath(self, expression: str, **variables: Any) -> SelectorList:  # Any: as Page.xpath
        """Select by XPath in the page."""
        return self.page.xpath(expression, **variables)

    def view(self) -> None:
        """Write the page as it was received to a file, and open it in a browser where there is one."""
        suffix = mimetypes.guess_extension(self.page.content_type.partition(";")[0].strip()) or ".html"
        with tempfile.NamedTemporaryFile("wb", prefix="gossamer-", suffix=suffix, delete=False) as file:
            file.write(self.page.body)
        print(file.name)
        if sys.stdin.isatty() and (sys.platform == "darwin" or os.environ.get("DISPLAY")):
            webbrowser.open(Path(file.name).as_uri())

    def fetch(self, url: str) -> Page:
        """Fetch another page; it is `page` from here on. Relative addresses start from the present one."""
        self._put(open_page(self.page.urljoin(url), None, robots=self._robots, route=self._route))
        return self.page

    def _put(self, page: Page) -> None:
        self.names["page"] = page


def run_piped(source: str, names: dict[str, Any]) -> None:
    """Run code as the prompt would: the value of each expression is printed. Exit code 1 when it raises."""
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
    """Errors of ours in one line; others with the frames of the user's code, without those of the prompt."""
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
        "[cyan]page[/], [cyan]css[/](...), [cyan]xpath[/](...), [cyan]view[/]() in a browser, "
        "[cyan]fetch[/](url) another page, Tab completes, Ctrl-D leaves\n"
    )
    forget = _equip(bench.names)
    try:
        _Console(bench.names, "<console>").interact(banner="", exitmsg="")
    finally:
        forget()


def _equip(names: dict[str, Any]) -> Callable[[], None]:
    """Completion and history where the machine has readline; returns what saves the history."""
    try:
        import readline
        import rlcompleter
    except ImportError:
        return lambda: None
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    history = Path(home) / "gossamer" / "shell_history"
    with suppress(OSError):  # no history yet, or one that cannot be read: the prompt works without
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES)

    def save() -> None:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)

    return save
