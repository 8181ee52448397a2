"""Starting quickly is a feature: commands that only look load no transport and no worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from gossamer.cli.app import app
from gossamer.cli.verbs import only, register
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.crawled import crawl_half

HEAVY = [
    "aiohttp",
    "gossamer.crawl.journey",
    "gossamer.crawl.worker",
    "gossamer.fetch.http",
    "gossamer.project.workers.service",
    "gossamer.project.wiring",
]
LOOKS = [
    ["settings"], ["spiders"], ["schedule", "list"], ["routes"], ["proxies"], ["history", "1"], ["quality"],
    ["schemas"], ["export"], ["status"], ["why", "https://shop.example/done"], ["dead", "list"], ["job", "list"],
    ["check", "recipe.toml"], ["site"], ["attempts"], ["keys", "list"], ["workers"], ["scaling"], ["alerts", "list"],
    ["sessions"], ["spool"], ["top", "--json"],
]  # fmt: skip
CODE = """
import json, sys
from gossamer.cli.app import run
looks, heavy = json.loads(sys.argv[1])
for words in looks:
    sys.argv = ["gossamer", *words]
    try:
        run()
    except SystemExit:
        pass
    loaded = [name for name in heavy if name in sys.modules]
    if loaded:
        print(words, loaded, file=sys.stderr)
        sys.exit(3)
"""


def test_commands_that_look_load_nothing_that_fetches(project: ProjectFolder) -> None:
    project.fill(crawl_half)
    project.write(
        "recipe.toml", 'start = "https://shop.example/"\n[pages.book]\nitem = "Book"\nfields = { title = "h1" }\n'
    )

    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([LOOKS, HEAVY])],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


def test_only_the_verb_that_is_named_is_built() -> None:
    for verb in ("schedule", "crawl", "status"):
        register([verb])

    def built(*words: str) -> dict[str, Any]:  # Any: its class depends on the version of typer
        verbs = typer.main.get_command(only(app, [*words])).commands  # type: ignore[attr-defined]
        return {name: verb for name, verb in verbs.items() if verb.callback is not None or hasattr(verb, "commands")}

    assert [*built("schedule", "list", "--json")] == ["schedule"]
    assert [*built("schedule", "list", "--json")["schedule"].commands] == ["list"]
    assert len(built("schedule", "--help")["schedule"].commands) > 5
    assert [*built("crawl", "schedule")] == ["crawl"]
    assert {*built("nonsense")} >= {"schedule", "crawl", "status", "job"}


@pytest.mark.parametrize("words", [("--help",), ("crawl", "--help")])
def test_a_reader_who_has_seen_enough_of_the_help_is_no_error(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gossamer", *words], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_program_that_cannot_be_forked_says_how_several_processes_begin() -> None:
    code = "from gossamer.cli.app import run; run()"

    done = subprocess.run(
        [sys.executable, "-c", code, "crawl", "https://shop.example/", "--processes", "2"],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert "--processes needs a program that began as `gossamer`" in done.stderr


@pytest.mark.parametrize("words", [["crawl", "-h"], ["help", "crawl"], ["-h"], ["help"], ["dead", "list", "-h"]])
def test_help_is_where_people_look_for_it(words: list[str]) -> None:
    gossamer = os.path.join(os.path.dirname(sys.executable), "gossamer")
    done = subprocess.run([gossamer, *words], capture_output=True, text=True, timeout=100)

    verbs = [word for word in words if word not in ("-h", "help")]
    assert done.returncode == 0
    assert " ".join(["Usage: gossamer", *verbs, "[OPTIONS]"]) in done.stdout
