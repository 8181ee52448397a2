"""What the documentation tells people to type does what it says. Only the demo shop on loopback is crawled.

A page is followed from top to bottom in an empty folder, as a reader would:

    python, with title="x.py"   the file is written
    python                      run; the blocks of a page share their names
    pycon                       the answers must be those printed; `page` is a product page of the shop
    sh                          every command must succeed; a `cd` holds for the rest of the page
    sh shop                     opens the shop of the test anew, at the revision that the command names
    toml                        must be settings that Gossamer takes; with a title the file is written
    toml recipe, yaml recipe    must be a recipe; with a title the file is written
    toml fields                 must be fields of a recipe
    sql records, sql state      must find something in that file
    text, or none               not run

`<!-- not run: why -->` before a block leaves it out. The usual ports become those of the test: where its shop is open,
and a free one for the HTTP server. Rates are lifted where they would only cost time. What a page starts in the
background, and writes down in `up.pid`, is ended with the page.
"""

from __future__ import annotations

import csv
import doctest
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from gossamer.cli.app import run_async
from gossamer.cli.demo import shop_in_background
from gossamer.demo.catalogue import CATEGORIES, PER_CATEGORY
from gossamer.demo.shop import SHOP_HOST, USUAL_PORT
from gossamer.parse.page import Page
from gossamer.project.pages.fetch import fetch_one
from gossamer.recipe.reader import read_recipe
from gossamer.settings import load
from gossamer.settings.tables import ServerTable
from tests.patience import PATIENCE

from .manual import PAGES, ROOT, Block, blocks_of

# A crawl that its page has given a limit is incomplete (6), as it was asked to be. The demo shop has a page that no
# spider can read, so a crawl of it is done with warnings (3). The reader goes on after both. What stays in the
# background is the process itself, so that `$!` names it.
AS_ASKED = """sleep() { command sleep $(($1 * 5)); }  # a busy machine takes its time to start what is in the background
gossamer() {
  [ "$1" != up ] || exec gossamer "$@"
  command gossamer "$@" || case "$? $* " in
    "6 crawl "*" --limit "* | "3 crawl "*) ;;
    *) return 1 ;;
  esac
}"""
IMPATIENCE = {  # waiting would show nothing
    "GOSSAMER_RETRY__BASE": "50ms",
    "GOSSAMER_RETRY__RATE_LIMITED_CAP": "100ms",
    "GOSSAMER_POLITENESS__MAX_CRAWL_DELAY": "100ms",
}
PRODUCT = "product/slate-opal-glass-lantern-lit-033"
KNOWN = {"python", "pycon", "sh", "toml", "yaml", "sql", "text", ""}
FIRST_PAGES = ("README.md",)  # followed by `make test` already
FIELDS = 'start = "https://shop.example/"\n[pages.thing.fields]\n'
FOLLOWED = [
    str(page.relative_to(ROOT))
    for page in PAGES
    if any(block.run and block.language != "text" for block in blocks_of(page))
]


class Shop:
    """The shop of the test, and the free ports for what a page opens itself."""

    def __init__(self, spare_port: int, server_port: int) -> None:
        self.port = 0
        self.spare_port = spare_port  # for `gossamer demo`, which opens a shop of its own
        self.server_port = server_port  # for `gossamer up` and `gossamer serve`
        self.revision = 0
        self._opened = ExitStack()

    def open(self, revision: int) -> None:
        if revision != self.revision:
            self.close()
            urls = self._opened.enter_context(shop_in_background(self.port, revision))
            self.port, self.revision = int(urls[0].rstrip("/").rpartition(":")[2]), revision

    def close(self) -> None:
        self._opened.close()

    def adapt(self, text: str) -> str:
        """The text of a block for the ports of this test, and without waiting for a pace."""
        text = re.sub(r"\bgossamer demo\b", f"gossamer demo --port {self.spare_port} --rate unlimited", text)
        text = re.sub(r"--rate \d+/s", "--rate unlimited", text)
        text = re.sub(r'\brate="\d+/s"', 'rate="unlimited"', text)
        text = text.replace(f":{ServerTable().port}", f":{self.server_port}")
        return text.replace(f":{USUAL_PORT}", f":{self.port}")


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as another:
        spare, free = taken.getsockname()[1], another.getsockname()[1]
    shop = Shop(spare, free)
    shop.open(1)
    yield shop
    shop.close()


@pytest.fixture(scope="module")
def page(shop: Shop) -> Page:
    """A product page that fails twice before it answers."""
    url = f"http://{SHOP_HOST}:{shop.port}/{PRODUCT}"
    settings = load(environ={}, flags={"fetch.allow_hosts": [SHOP_HOST]})
    for _ in range(3):
        download = run_async(fetch_one(url, settings, robots=False))
    assert download.snapshot.status == 200
    return Page(download.snapshot)


class Reader:
    """Follows one page of the documentation in a folder of its own."""

    def __init__(self, folder: Path, shop: Shop, page: Page, name: str) -> None:
        self.folder = folder
        self._shop = shop
        self._end = folder.parent / "where"
        # A module of its own: type hints of items are looked up by the name of their module.
        self._module = ModuleType(f"read_{re.sub(r'[^a-z]', '_', name.lower())}")
        self._module.__dict__["page"] = page

    def follow(self, block: Block) -> None:
        code = self._shop.adapt(block.code)
        if block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")
        match block.language:
            case "python" if block.title:
                compile(code, block.title, "exec")
            case "python":
                exec(compile(code, f"line {block.line}", "exec"), self._module.__dict__)
            case "pycon":
                self._converse(code, block.line)
            case "sh" if block.words == "shop":
                self._shop.open(int((re.findall(r"--revision (\d+)", code) or [1])[0]))
            case "sh":
                self._type(code)
            case "toml" | "yaml" if block.words.startswith("recipe"):
                read_recipe(code.encode(), f"shop.{block.language}")  # raises for a fault
            case "toml" if block.words == "fields":
                read_recipe(FIELDS.encode() + code.encode(), "shop.toml")
            case "toml":
                self._set(code)
            case "sql":
                self._ask(block.words, code)

    def __enter__(self) -> Reader:
        sys.modules[self._module.__name__] = self._module
        return self

    def __exit__(self, *exc: object) -> None:
        del sys.modules[self._module.__name__]
        self._shop.open(1)
        started = self.folder / "up.pid"
        if started.exists():
            with suppress(ProcessLookupError):
                os.kill(int(started.read_text()), signal.SIGTERM)

    def _converse(self, code: str, line: int) -> None:
        test = doctest.DocTestParser().get_doctest(code, self._module.__dict__, "the page", None, line)
        said: list[str] = []
        failed = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(
            test, out=said.append, clear_globs=False
        )
        assert test.examples
        assert not failed.failed, "".join(said)

    def _type(self, code: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
        environ.update(IMPATIENCE, GOSSAMER_SERVER__PORT=str(self._shop.server_port))
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{AS_ASKED}\n{code}\npwd > '{self._end}'"],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        assert "Traceback" not in done.stderr, done.stderr
        self.folder = Path(self._end.read_text().strip())

    def _set(self, code: str) -> None:
        alone = self.folder.parent / "settings"
        alone.mkdir(exist_ok=True)
        (alone / "gossamer.toml").write_text(code, encoding="utf-8")
        assert load(start=alone, environ={}).origins  # raises for a key or a value that is none

    def _ask(self, database: str, code: str) -> None:
        file = self.folder / "gossamer-data" / f"{database}.db"
        connection = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
        try:
            assert connection.execute(code).fetchall(), f"{file.name} has no answer to:\n{code}"
        finally:
            connection.close()


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def after_the_readme(folder: Path) -> None:
    lamps = rows_of(folder / "lamps.csv")
    assert len(lamps) == PER_CATEGORY
    assert all(lamp["title"] and lamp["_key"].startswith("LIT-") for lamp in lamps)


def after_the_quickstart(folder: Path) -> None:
    wares = rows_of(folder / "wares.csv")
    assert len({ware["sku"] for ware in wares}) == len(CATEGORIES) * PER_CATEGORY - 1  # one page lacks its product


def after_the_tutorial(folder: Path) -> None:
    lamps = rows_of(folder / "lamps.csv")
    assert len(lamps) == PER_CATEGORY
    assert {lamp["_version"] for lamp in lamps} == {"1", "2"}


def after_the_port_from_scrapy(folder: Path) -> None:
    lines = (folder / "wares.jsonl").read_text(encoding="utf-8").splitlines()
    records = [msgspec.json.decode(line) for line in lines]
    assert records
    assert all(record["shelf"].endswith("/category/textiles") and record["price"] for record in records)


OUTCOMES: dict[str, Callable[[Path], None]] = {
    "README.md": after_the_readme,
    "docs/quickstart.md": after_the_quickstart,
    "docs/tutorial.md": after_the_tutorial,
    "docs/coming-from-scrapy.md": after_the_port_from_scrapy,
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in FIRST_PAGES else [pytest.mark.long]) for name in FOLLOWED],
)
def test_a_reader_who_types_what_the_page_says_succeeds(name, tmp_path, monkeypatch, shop, page):
    # Given an empty folder, and the shop that the page speaks of
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for variable in [variable for variable in os.environ if variable.startswith("GOSSAMER_")]:
        monkeypatch.delenv(variable)

    # When every block is followed, then none of them fails
    with Reader(folder, shop, page, name) as reader:
        for block in blocks_of(ROOT / name):
            if block.run:
                reader.follow(block)

    # And what was promised is there
    if name in OUTCOMES:
        OUTCOMES[name](reader.folder)


def test_every_block_says_what_it_is():
    unknown = [
        (page.name, block.line, block.language)
        for page in PAGES
        for block in blocks_of(page)
        if block.language not in KNOWN or (block.language == "sql" and block.words not in ("records", "state"))
    ]

    assert unknown == []


def test_the_pages_with_promises_are_followed():
    assert set(OUTCOMES) | {*FIRST_PAGES} <= {*FOLLOWED}
    assert {"docs/spiders.md", "docs/data.md", "docs/cli.md", "docs/settings.md"} <= {*FOLLOWED}
