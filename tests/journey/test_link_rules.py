"""Link rules, the hooks of a job, and outputs: what a spider declares instead of writing it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer import Item, Page, Rule, Spider
from gossamer.errors import Misconfigured
from gossamer.model.events import NullSink, Trouble
from gossamer.model.page import Headers, Snapshot
from gossamer.project.records.export import outputs_of, try_outputs
from gossamer.project.workers.service import run_crawl
from tests.journey.crawling import Heard, crawled, settings_for
from tests.sites.hostile import HostileSite, hostile_site

HERE = "https://a.example/"


def page_of(markup: str) -> Page:
    headers = Headers([("Content-Type", "text/html; charset=utf-8")])
    return Page(
        Snapshot(url=HERE, requested_url=HERE, status=200, headers=headers, body=markup.encode(), fetched_at=0.0)
    )


LINKS = """<nav><a href=/list/2>2</a><a href=/login rel=nofollow>in</a></nav>
<main><a href=/book/1>1</a><a href=/book/22>22</a><img src=/cover.jpg><a data-to=/book/3>3</a></main>"""


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({}, "list/2 login book/1 book/22"),
        ({"allow": r"/book/\d$"}, "book/1"),
        ({"allow": [r"/book/", "list"], "deny": r"22"}, "list/2 book/1"),
        ({"restrict": "nav"}, "list/2 login"),
        ({"restrict": ["nav a", "main"], "nofollow": False}, "list/2 book/1 book/22"),
        ({"restrict": "main", "tags": ["a", "img"], "attrs": ["data-to", "src"]}, "cover.jpg book/3"),
        ({"restrict": ".none"}, ""),
    ],
)
def test_links_are_chosen_by_address_and_place(options: dict[str, Any], paths: str) -> None:
    assert page_of(LINKS).links(**options) == [HERE + path for path in paths.split()]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"allow": "("}, "not a valid regular expression"),
        ({"restrict": "a["}, "restrict"),
        ({"callback": "a b"}, "callback"),
        ({"canonical": "yes"}, "one of ignore, follow, prefer"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_when_it_is_made(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        Rule(**rule)
    with pytest.raises(Misconfigured, match="names the callback 'book'"):
        type("Lost", (Spider,), {"rules": [Rule(callback="book")]})


def test_a_hostile_address_of_any_length_is_not_held_against_patterns() -> None:
    page = page_of(f"<a href=/{'a' * 500_000}>x</a><a href=/aab>y</a>")
    began = time.process_time()
    assert page.links(allow=r"(a|aa)+b$") == [f"{HERE}aab"]
    assert time.process_time() - began < 20


class Book(Item, key="url"):
    title: str


class Books(Spider):
    rules = (
        Rule(allow=r"/book/", callback="book", follow=False, priority=3),
        Rule(restrict="nav", deny="/login"),
    )

    def __init__(self) -> None:
        self.hooks: list[Any] = []

    async def opened(self) -> None:
        await asyncio.sleep(0)
        self.hooks.append("opened")

    def closed(self, report: Any) -> None:
        self.hooks.append((report.done, report.stats))

    def book(self, page: Page) -> Iterator[Any]:
        self.stats.add("books")
        yield Book(url=page.url, title=page.css("h1::text").get())
        yield {"url": page.url}


def shop(site: HostileSite) -> Books:
    site.show("/start", "<nav><a href=/list/2>2</a><a href=/login>in</a></nav><a href=/book/1>1</a><a href=/x>x</a>")
    site.show("/list/2", "<a href=/book/2>2</a>")
    for n in (1, 2):
        site.show(f"/book/{n}", f"<h1>Book {n}</h1><nav><a href=/beyond>no</a></nav>")
    spider = Books()
    spider.start_urls = [site.url("/start")]
    return spider


async def test_rules_are_followed_and_hooks_are_called_once(tmp_path: Path) -> None:
    async with hostile_site() as site:
        spider = shop(site)
        left = await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))
        asked = sorted(seen.path for seen in site.log if seen.path != "/robots.txt")

    assert asked == ["/book/1", "/book/2", "/list/2", "/start"]
    assert len(left.records) == 4
    assert spider.hooks == ["opened", (4, {"books": 2})]


@pytest.mark.parametrize(
    ("policy", "asked", "stored"),
    [
        ("ignore", "/book/1 /book/1?ref=a /book/7 /far /shut", "/book/1 /book/1?ref=a /book/7"),
        ("follow", "/book/1 /book/1?ref=a /book/7 /book/8 /far /shut", "/book/1 /book/1?ref=a /book/7 /book/8"),
        ("prefer", "/book/1 /book/1?ref=a /book/7 /book/8 /far /shut", "/book/1 /book/8"),
    ],
)
async def test_rules_know_canonical_addresses_and_pages_whose_links_are_not_to_be_followed(
    tmp_path: Path, policy: str, asked: str, stored: str
) -> None:
    class Canonical(Books):
        rules = (
            Rule(allow=r"/book/", callback="book", follow=False, canonical=policy, nofollow=False),
            Rule(allow=r"/shut|/far", nofollow=False),
        )

        def book(self, page: Page) -> Iterator[Any]:
            yield {"url": page.url}

    async with hostile_site() as site:
        links = ("/book/1", "/book/1?ref=a", "/book/7", "/shut", "/far")
        site.show("/start", "".join(f"<a href='{link}'>x</a>" for link in links))
        site.show("/shut", "<meta name=Robots content='noindex, NOFOLLOW'><a href=/book/9>9</a>")
        site.show("/far", "<a href=/book/10>10</a>", "X-Robots-Tag: none")
        site.show("/book/1", "<link rel=canonical href=/book/1>")
        site.show("/book/7", "<link rel='alternate canonical' href=/book/8#top>")
        site.show("/book/8", "<link rel=canonical href=/book/7>")  # the two name each other
        spider = Canonical()
        spider.start_urls = [site.url("/start")]
        left = await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))
        seen = {one.path for one in site.log} - {"/robots.txt", "/start"}

    assert seen == set(asked.split())
    assert {record.url.removeprefix(site.url("")) for record in left.records} == set(stored.split())


async def test_hooks_that_fail_are_told(tmp_path: Path) -> None:
    class NotOpened(Books):
        def opened(self) -> Any:
            raise ValueError("no key")

    class NotClosed(Books):
        def closed(self, report: Any) -> Any:
            raise ValueError("no mail")

    async with hostile_site() as site:
        shop(site)
        settings = settings_for(tmp_path, fetch__allow_private=True)
        broken, lost = NotOpened(), NotClosed()
        broken.start_urls = lost.start_urls = [site.url("/start")]
        with pytest.raises(Misconfigured, match=r"NotOpened\.opened failed .* no key"):
            await crawled(broken, settings)
        assert site.log == []
        heard = Heard()
        left = await crawled(lost, settings, heard=heard)

    assert left.report.ended
    assert any("no mail" in trouble.message for trouble in heard.of(Trouble))


async def test_a_crawl_writes_to_several_outputs_and_a_file_for_each_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with hostile_site() as site:
        spider = shop(site)
        spider.outputs = ["{spider}-{type}-{day}.jsonl.gz", "all-{type}.csv"]
        settings = settings_for(tmp_path, fetch__allow_private=True)
        report = await run_crawl(spider, settings, events=NullSink())
        await run_crawl(shop(site), settings, events=NullSink(), output=["{job}.jsonl"])

    names = sorted(file.name for file in tmp_path.iterdir() if file.is_file())
    assert report.ended
    assert [name for name in names if name.startswith("books-") and "jsonl.gz" in name] == [
        name for kind in ("Book", "item") for name in names if name.startswith(f"books-{kind}-")
    ]
    assert len([name for name in names if name.endswith(".jsonl.gz")]) == 2
    assert {"all-Book.csv", "all-item.csv", "books-2.jsonl"} <= set(names)
    tables = [(tmp_path / f"all-{kind}.csv").read_text().splitlines() for kind in ("Book", "item")]
    assert sum(len(rows) - 1 for rows in tables) == 4


def test_outputs_that_cannot_be_written_are_refused_before_the_crawl(tmp_path: Path) -> None:
    spider, read = Books(), settings_for(tmp_path)
    with pytest.raises(Misconfigured, match=r"\{kind\} .* is unknown. There are \{time\}, .*\{type\}"):
        try_outputs([str(tmp_path / "{kind}.jsonl")], spider, read)
    with pytest.raises(Misconfigured, match="same file"):
        try_outputs([str(tmp_path / "a.jsonl")] * 2, spider, read)
    spider.outputs = 5  # type: ignore[assignment]
    with pytest.raises(Misconfigured, match="must be a list of file names, not 5"):
        outputs_of(None, spider)


class OwnHome(Spider):
    """Its start page is also a page that a rule's callback wants, and links to itself."""

    name = "own-home"
    rules = (Rule(allow="/thing/|/$", callback="thing"),)

    def thing(self, page: Page) -> Iterator[dict[str, Any]]:
        yield {"url": page.url, "title": page.css("title::text").get()}


async def test_a_start_page_that_links_to_itself_is_given_to_the_callback_of_its_rule(tmp_path: Path) -> None:
    async with hostile_site() as site:
        site.show("/", '<title>Home</title><a href="/">home</a><a href="/thing/1">1</a>')
        site.show("/thing/1", '<title>One</title><a href="/">home</a>')
        spider = OwnHome()
        spider.start_urls = [site.url("/")]
        after = await crawled(spider, settings_for(tmp_path, **{"fetch.allow_private": True}))

        assert len(after.records) == 2, after.report
        assert len(site.seen("/")) == 1  # by one request
