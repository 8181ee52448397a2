"""What a command loads before it works: people and scripts start commands all day."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_COMMAND = """
import atexit, sys
from gossamer.cli import main
atexit.register(lambda: sys.stderr.write(" ".join(sys.modules)))
sys.argv = ["gossamer", *sys.argv[1:]]
main()
"""
READS_PAGES = ("turbohtml", "gossamer.parse.page", "gossamer.extract", "gossamer.recipe", "gossamer.pipeline")
FETCHES = ("aiohttp", "brotli", "protego", "zlib_ng", "zstandard", "gossamer.fetch.http", "gossamer.crawl.journey")
OTHERS = (
    "redis",
    "asyncpg",
    "obstore",
    "wreq",
    "playwright",
    "starlette",
    "pydantic",
    "gossamer.server",
    "gossamer.compat",
)
WATCHES = ("ctypes", "gossamer.process.supervisor", "gossamer.process.lone_child")
HELP = ("pygments", "markdown_it", "asyncio", "msgspec", "tempfile", "gossamer.settings", "gossamer.project", *WATCHES)
LOOKS = (*READS_PAGES, *FETCHES, *OTHERS, *WATCHES, "tempfile", "zipfile")


def loaded(folder: Path, *words: str) -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout, set(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "never", "said"),
    [
        (("--version",), ("typer", "rich", "asyncio", "msgspec", *HELP), "gossamer "),
        (("--help",), (*HELP, *READS_PAGES, *FETCHES, *OTHERS), "Crawl a spider, a recipe or a URL."),
        (("crawl", "--help"), ("pygments", "markdown_it", *OTHERS), "--rate"),
        (("status",), ("pygments", "markdown_it", *LOOKS), "Nothing has been crawled"),
    ],
    ids=" ".join,
)
def test_a_command_loads_nothing_that_it_does_not_need(
    tmp_path: Path, words: tuple[str, ...], never: tuple[str, ...], said: str
) -> None:
    shown, modules = loaded(tmp_path, *words)

    assert said in shown
    assert "gossamer.cli" in modules
    assert sorted(modules & {*never}) == []


def test_status_of_a_project_loads_nothing_that_fetches_or_reads_pages(tmp_path: Path) -> None:
    loaded(tmp_path, "schedule", "add", "books", "--spider", "https://books.example/", "--every", "1h")

    _, modules = loaded(tmp_path, "status")

    assert "gossamer.backends.sqlite.state" in modules
    assert sorted(modules & {*LOOKS}) == []


def test_help_is_printed_without_what_is_loaded_for_markdown_and_leaves_it_usable(tmp_path: Path) -> None:
    code = """
import sys
from gossamer.cli.verbs import load_help
load_help()
assert "pygments" not in sys.modules
from rich.markdown import Markdown
from rich.traceback import Traceback
assert Markdown.__module__ == "rich.markdown" and Traceback.__module__ == "rich.traceback"
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
