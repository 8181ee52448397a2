"""The `gossamer` command: its verbs, and how it reports errors (one line, an exit code, no traceback)."""

from __future__ import annotations

import errno
import gc
import logging
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, TypeVar, runtime_checkable

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.segment import Segment
from rich.text import Text

from ..errors import GossamerError, Misconfigured
from ..units import past_moment, visible, visible_lines
from .verbs import ReaderLeft, VerbList, load_help, only, register

if TYPE_CHECKING:
    from ..project.open import Project
    from ..settings import Settings

T = TypeVar("T")

app = typer.Typer(
    name="gossamer",
    cls=VerbList,
    help="Crawl the web politely, keep records with their history, and see what is going on.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},  # of every verb
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def styled(template: str, *values: object) -> Text:
    """Words of ours in rich's markup, with values in place of `{}`. The template is a literal: only there is markup
    read, never in a value or in any other string that is printed."""
    return Text.from_markup(template.format(*(escape(str(value)) for value in values)))


class Printer(Console):
    """Standard output or standard error. On a terminal, lines are wrapped between words; text that is already laid out
    is printed with `soft_wrap=True`.

    What is printed may come from a site. So no markup is read in strings (see `styled`), and control characters are
    made visible in everything, however it was put together (ADR 0074).
    """

    def __init__(self, **options: Any) -> None:  # Any: as rich has it
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible_lines(text), style, control)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:  # Any: as rich has it
        if soft_wrap is None and self.is_terminal:
            objects = tuple(map(self._wrapped, objects))
        super().print(*objects, soft_wrap=True, **options)

    def _wrapped(self, words: Any) -> Any:
        if isinstance(words, str):
            words = Text(words)
        if not isinstance(words, Text):
            return words
        lines = []
        for line in words.split("\n", allow_blank=True):
            margin = " " * (len(line.plain) - len(line.plain.lstrip()))
            for number, part in enumerate(line.divide(word_breaks(line.plain, self.width))):
                part.rstrip()
                lines.append(Text.assemble(margin, part) if number else part)
        return Text("\n").join(lines)

    def on_broken_pipe(self) -> None:
        if not self.stderr:
            raise ReaderLeft  # rich would exit with code 1
        super().on_broken_pipe()


def word_breaks(text: str, width: int) -> list[int]:
    """The offsets at which to break a text into lines of about `width`, between words."""
    offsets, start = [], 0
    for word in re.finditer(r"\S+\s*", text):
        if word.start() > start and cell_len(text[start : word.end()].rstrip()) > width:
            start = word.start()
            offsets.append(start)
    return offsets


out = Printer()
err = Printer(stderr=True)


class LogLines(logging.Formatter):
    """One line for each record, without control characters: a path that a client asks for, or an error that quotes a
    site, cannot forge another line. A traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [visible(record.getMessage())]
        if record.exc_info:
            lines += visible_lines(self.formatException(record.exc_info)).split("\n")
        return "\n  ".join(lines)


def print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"gossamer {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command itself; its verbs are registered separately."""


def run() -> None:
    """Run the command. An error prints one line and exits with 1 (usage errors: 2), Ctrl-C exits with 130, and a closed
    pipe with 0. A bug in Gossamer prints one line as well; Python's development mode shows its traceback."""
    gc.set_threshold(1_000_000)  # imports create no garbage
    if logging.lastResort is not None:  # what is logged by loggers that nobody has configured
        logging.lastResort.setFormatter(LogLines())
    try:
        register(sys.argv[1:])
        if not sys.argv[1:] or {"--help", "-h"} & {*sys.argv[1:]}:
            load_help()
        sys.exit(only(app, sys.argv[1:])(prog_name="gossamer", standalone_mode=False))
    except GossamerError as error:
        fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except ReaderLeft:
        _end_unread()
    except SystemExit as end:
        if "--help" in sys.argv and isinstance(end.__context__, BrokenPipeError):  # typer's own console printed it
            _end_unread()
        raise
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        fail(f"The output cannot be written ({error.strerror}).")
    except Exception as error:
        if isinstance(error, Mistyped):
            _fail_mistyped(error)
        if sys.flags.dev_mode:
            raise
        fail(
            f"This is a bug in Gossamer ({type(error).__name__}: {' '.join(str(error).split())}). "
            f"Please report it with the output of `python -X dev -m gossamer ...`."
        )


def _end_unread() -> NoReturn:
    """Exit with 0: the reader of our output has closed the pipe."""
    # Otherwise Python would complain again when it closes stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def fail(message: str, code: int = 1) -> NoReturn:
    """End the command with one line."""
    err.print(Text.assemble(("gossamer: ", "bold red"), visible(" ".join(message.split()))))
    sys.exit(code)


@runtime_checkable
class Mistyped(Protocol):
    """The usage error of typer. Its class depends on typer's version, its shape does not."""

    exit_code: int

    def format_message(self) -> str: ...


def _fail_mistyped(error: Mistyped) -> NoReturn:
    words = error.format_message()
    if not words or "\n" in words:  # no arguments: this is the help text
        typer.echo(words, err=True)
        sys.exit(error.exit_code)
    words = words if words.endswith((".", "?")) else f"{words}."
    context: typer.Context | None = getattr(error, "ctx", None)
    fail(f"{words} See {context.command_path if context is not None else 'gossamer'} --help.", error.exit_code)


# Thresholds of the garbage collector. A page makes hundreds of objects, and reference counts free nearly all of them;
# with Python's default of 700, a crawl spent a tenth of its time on collection.
LOOK_FOR_GARBAGE = (20_000, 20, 20)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop where that is installed."""
    import asyncio  # here, as in other functions of this file: the help and the version need no more than typer

    gc.freeze()  # imported modules stay for good, and need not be scanned again
    gc.set_threshold(*LOOK_FOR_GARBAGE)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def open_crawled(settings: Settings) -> AsyncIterator[Project]:
    """Open a project for reading; warn on standard error if it was moved away. Raises Misconfigured if nothing has been
    crawled yet."""
    from ..project.open import open_crawled as open_to_look

    async with open_to_look(settings) as project:
        for warning in project.old_copies:
            err.print(Text(f"Warning: {visible(warning)}", style="yellow"))
        yield project


def ask_at(
    work: Callable[[Project], Awaitable[T]],
    *,
    empty: Callable[[Settings], T] | None = None,
    begins: Callable[[Settings], bool] | None = None,
) -> tuple[T, float]:
    """Return the result of `work` for the current project, and the time by its clock. If nothing has been crawled yet,
    create the files of the project if `begins` says so; otherwise return that of `empty` without creating a file;
    without `empty`, raise Misconfigured."""
    settings = settings_with()

    async def asked() -> tuple[T, float]:
        from ..project.open import is_crawled, open_project

        if not is_crawled(settings) and begins is not None and begins(settings):
            async with open_project(settings, to_look=True) as project:
                return await work(project), project.clock.now()
        if empty is not None and not is_crawled(settings):
            return empty(settings), time.time()
        async with open_crawled(settings) as project:
            return await work(project), project.clock.now()

    return run_async(asked())


def ask(
    work: Callable[[Project], Awaitable[T]],
    *,
    empty: Callable[[Settings], T] | None = None,
    begins: Callable[[Settings], bool] | None = None,
) -> T:
    """Like `ask_at`, without the time."""
    return ask_at(work, empty=empty, begins=begins)[0]


def settings_with(**flags: Any) -> Settings:
    """The settings of the working directory, overridden by dotted flags: `**{"crawl.depth": 2}`."""
    from ..settings import load

    return load(start=Path.cwd(), flags=flags)


def allow_local(settings: Settings, urls: list[str], flags: dict[str, Any], *, says: bool = True) -> Settings:
    """Allow the local hosts that the user typed, and say so; other local hosts stay refused."""
    from ..terms import local_hosts

    if settings.fetch.allow_private:
        return settings
    hosts = [host for host in local_hosts(urls) if host not in settings.fetch.allow_hosts]
    if not hosts:
        return settings
    if says:
        named = ", ".join(hosts)
        words = "[dim]Private address: {} is allowed because you named it; all others are refused.[/]"
        err.print(styled(words, named))
    return settings_with(**flags, **{"fetch.allow_hosts": [*settings.fetch.allow_hosts, *hosts]})


def typed_moment(option: str, text: str | None, now: float) -> float | None:
    """Seconds since the epoch for `7d` (that long ago) or an ISO time (local unless it names a zone)."""
    if text is None:
        return None
    try:
        return past_moment(text, now)
    except ValueError:
        raise Misconfigured(
            f"{option} {visible(text)!r} is not a time. Write how long ago (7d, 12h, 90m) or a date: 2027-01-31, "
            f"2027-01-31T12:00, 2027-01-31T12:00Z."
        ) from None
