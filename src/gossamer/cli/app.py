"""The `gossamer` command: its verbs, and how errors reach a person (one line, exit code, no traceback)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from ..errors import GossamerError
from ..settings import Settings, load

T = TypeVar("T")

app = typer.Typer(
    name="gossamer",
    help="Crawl the web politely, keep what you find with its history, and see what is going on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


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
    """Options of the command itself; its verbs are registered beside this."""


def run() -> None:
    """Run the command. Errors of ours end with one line and exit code 1; Ctrl-C with 130; a closed pipe quietly."""
    from .verbs import register

    register(sys.argv[1:])
    try:
        app()
    except GossamerError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it again while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def fail(error: GossamerError) -> None:
    err.print(f"[bold red]gossamer:[/] {_plain(str(error))}")
    sys.exit(1)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the fast loop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def settings_with(**flags: Any) -> Settings:
    """The settings as seen from here, with dotted flags on top (underscores double as dots: crawl__depth)."""
    return load(start=Path.cwd(), flags={name.replace("__", "."): value for name, value in flags.items()})
