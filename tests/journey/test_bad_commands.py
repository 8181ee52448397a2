"""What a person may type wrongly: one line that says what to do, an exit code, no traceback."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket

import pytest

from gossamer.demo.shop import USUAL_PORT
from tests.journey.commands import QUICK, all_of, gossamer
from tests.journey.visiting import closed_port
from tests.sites.hostile import hostile_site
from tests.unit.commandline import on_a_terminal

pytestmark = pytest.mark.long

TWINS = """
from gossamer import Spider

class First(Spider):
    name = "twin"

class Second(Spider):
    name = "twin"
"""

BOOKS = """
from gossamer import Spider

class Books(Spider):
    start_urls = ["http://127.0.0.1:9/"]
"""

UNMADE = """
from gossamer import Spider

class Unmade(Spider):
    def __init__(self, category):
        self.category = category

class Unfinished(Spider):
    start_urls = ["http://127.0.0.1:9/"]

    def start(self):
        yield "http://127.0.0.1:9/"
        raise LookupError("the list is away")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "spiders").mkdir()
    (tmp_path / "gossamer.toml").write_text(QUICK)
    return tmp_path


async def test_what_cannot_be_crawled_is_told_in_one_line(folder):
    (folder / "spiders" / "books.py").write_text(BOOKS)
    (folder / "spiders" / "twins.py").write_text(TWINS)
    (folder / "spiders" / "bad.py").write_text("from gossamer import Spider\nclass Bad(Spider)\n    pass\n")
    (folder / "spiders" / "empty.py").write_text("")
    (folder / "unmade.py").write_text(UNMADE)
    targets = {
        "unmade.py:Unmade": "Spider unmade cannot be created (TypeError",
        "http://": "'http://' is not a URL",
        "http://[::1/": "is not a URL",
        "file:///etc/passwd": "is a file: address; only http and https can be crawled",
        "javascript:alert(1)": "is a javascript: address",
        "data:text/html,x": "is a data: address",
        "example.com": "To crawl a site, write its whole address: https://example.com",
        "bocks": "Did you mean 'books'?",
        "twin": "There are 2 spiders called 'twin'",
        "spiders/bad.py": "bad.py, line 2: syntax error: expected ':'",
        "spiders/bok.py": "Did you mean",
        "spiders/empty.py": "holds no spider",
    }

    answers = await all_of([(folder, ("crawl", target)) for target in targets])

    for said, words in zip(answers, targets.values(), strict=True):
        assert words in said.one_line()
    assert not (folder / "gossamer-data").exists()


async def test_what_the_spiders_own_start_raises_is_told_as_its_own(folder):
    (folder / "unmade.py").write_text(UNMADE)

    said = await gossamer(folder, "crawl", "unmade.py:Unfinished")

    assert said.code == 1
    assert "start() of unfinished failed: LookupError: the list is away" in said.err
    assert "bug in Gossamer" not in said.err


async def test_flags_that_mean_nothing_are_told_in_one_line(folder):
    flags = {
        ("--rate", "0"): "'0' is not a rate; write it like 5/s, 30/m, 0.5/s or unlimited.",
        ("--rate", "abc"): "'abc' is not a rate",
        ("-o", "items.xyz"): "does not tell the format. End it in .jsonl, .ndjson, .jl, .json, .csv",
        ("-o", "/proc/nowhere/items.csv"): "cannot be written",
    }
    unreadable = {
        ("--depth", "-1"): "Invalid value for '--depth'",
        ("--limit", "0"): "Invalid value for '--limit'",
        ("--nosuch",): "No such option: --nosuch",
    }

    answers = await all_of([(folder, ("crawl", "http://127.0.0.1:9/", *words)) for words in [*flags, *unreadable]])

    for said, words in zip(answers[: len(flags)], flags.values(), strict=True):
        line = said.one_line()
        assert words in line
        assert "$" not in line  # no path of a schema
    for said, words in zip(answers[len(flags) :], unreadable.values(), strict=True):
        line = said.one_line(code=2)
        assert words in line
        assert line.endswith("See gossamer crawl --help.")
    assert not (folder / "gossamer-data").exists()


async def test_settings_that_mean_nothing_are_told_in_one_line(tmp_path):
    files = {
        "[crawl]\ndepht = 3": "gossamer.toml: there is no setting 'crawl.depht'. Did you mean crawl.depth?",
        "[crawl]\ndepth = -1": "must be 0 or more; none means no limit",
        "[crawl]\nlimit = 0": "must be 1 or more; none means no limit",
        "[crawl]\nlimit = 'many'": "Expected a whole number or none, got a text.",
        "[crawl\n": "at line 1",
        "state = 'sqlite:///a%00b.db'": "cannot be the name of a file",
        "state = 'carrier-pigeon://u:secret@db/x'": "state = 'carrier-pigeon://***@db/x'",
    }
    commands = []
    for n, text in enumerate(files):
        folder = tmp_path / str(n)
        folder.mkdir()
        (folder / "gossamer.toml").write_text(text)
        commands.append((folder, ("crawl", "http://127.0.0.1:9/")))

    answers = await all_of(commands)

    for said, words in zip(answers, files.values(), strict=True):
        line = said.one_line()
        assert words in line
        assert "secret" not in line


async def test_a_verb_that_does_not_exist(folder):
    line = (await gossamer(folder, "crwal")).one_line(2)
    assert line == "No such command 'crwal'. Did you mean 'crawl'? See gossamer --help."


async def test_no_verb_at_all_shows_the_help(folder):
    said = await gossamer(folder)
    assert said.code == 2
    assert "crawl" in said.out + said.err


async def test_the_demo_says_when_its_port_is_taken(folder):
    async with hostile_site() as taken:
        line = (await gossamer(folder, "demo", "--port", str(taken.port))).one_line()
    assert line == f"Port {taken.port} is already in use. Choose another with --port, or any free one with --port 0."


async def test_the_demo_takes_a_free_port_where_none_was_chosen(folder):
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # another program has it already
            held.enter_context(socket.create_server(("127.0.0.1", USUAL_PORT)))
        said = await gossamer(folder, "demo", "--rate", "unlimited")
    assert f"Port {USUAL_PORT} is in use, so the shop took a free one" in said.err
    assert (said.code, "Done" in said.err) == (0, True)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://no-such-name.invalid/", "The name no-such-name.invalid does not resolve. Check the spelling"),
        ("http://127.0.0.1:{port}/", "no connection (Connection refused). Is the server running"),
    ],
)
async def test_a_crawl_that_had_not_one_page_fails_with_the_reason(folder, url, words):
    (folder / "items.jsonl").write_text("of the last crawl")

    said = await gossamer(folder, "crawl", url.format(port=closed_port()), "-o", "items.jsonl")

    line = said.one_line()
    assert line.startswith("No page could be used. ")
    assert words in line
    assert (folder / "items.jsonl").read_text() == "of the last crawl"


async def test_a_spider_that_forgets_to_yield_or_raises_is_told_where_to_look(folder):
    async with hostile_site() as site:
        head = f"from gossamer import Spider\nclass Shop(Spider):\n    start_urls = [{site.url('/plain')!r}]\n"
        (folder / "shop.py").write_text(head + "    def parse(self, page):\n        {'url': page.url}\n")
        silent = await gossamer(folder, "crawl", "shop.py")
        (folder / "shop.py").write_text(head + "    def parse(self, page):\n        yield page.nothing\n")
        raising = await gossamer(folder, "crawl", "shop.py")

    scores = await asyncio.to_thread(on_a_terminal, folder, "quality", columns=78)
    assert silent.code == 0
    assert "gossamer check shop.py URL" in silent.err
    assert re.search(r"DAY\W+SPIDER.*RULES BROKEN", re.sub(r"\x1b\[\d+m", "", scores))
    assert "(shop.py, line 5). `gossamer dead list --job shop-2` has the details." in raising.one_line()


async def test_a_page_that_is_gone_fails_and_one_that_is_there_does_not(folder):
    async with hostile_site() as site:
        gone = await gossamer(folder, "crawl", site.url("/status?code=410"), "--quiet")
        assert "answered 410" in gone.one_line()

        there = await gossamer(folder, "crawl", site.url("/plain"), "-o", "not/yet/there/items.jsonl")
        assert there.code == 0
        assert "1 done" in there.err
        assert (folder / "not/yet/there/items.jsonl").read_text().count("\n") == 1


async def test_a_hostile_page_cannot_write_on_the_terminal(folder):
    async with hostile_site() as site:
        site.show("/jump", "", "Location: \x1b]0;owned\x07http://[", status=302)
        said = await gossamer(folder, "crawl", site.url("/jump"))
        said.one_line()
        assert "\x1b]0" not in said.err
