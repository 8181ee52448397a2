"""Spiders: names, seeds, callbacks of every shape, and bugs that fail one page only."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any

import msgspec
import pytest

from gossamer.errors import Misconfigured, ParseFailed
from gossamer.model.item import Item, Money, item_data
from gossamer.model.page import Headers, Snapshot
from gossamer.model.task import Request
from gossamer.parse.callbacks import run_callback
from gossamer.parse.page import Page
from gossamer.parse.seeds import named_addresses, seeds, start_addresses
from gossamer.parse.site import SiteSpider, WebPage
from gossamer.parse.spider import Results, Spider, default_name, parser_version, spider_version
from gossamer.terms import local_hosts

LISTING = """<article><h3><a href="/b/1">A</a></h3></article><article><h3><a href="/b/2">B</a></h3></article>
<li class="next"><a href="?page=2">next</a></li>"""


def page_of(body: str, spider: Spider | None = None, content_type: str = "text/html") -> Page:
    snapshot = Snapshot(
        url="https://books.example/",
        requested_url="https://books.example/",
        status=200,
        headers=Headers([("content-type", content_type)]),
        body=body.encode(),
        fetched_at=0.0,
    )
    return Page(snapshot, spider=spider)


class Book(Item, key="url"):
    title: str
    price: Money | None = None


class Books(Spider):
    start_urls = ("https://books.example/",)

    def parse(self, page: Page) -> Results:
        for link in page.css("article h3 a"):
            yield page.follow(link, self.book, priority=8)
        yield from page.follow_all("li.next a")

    def book(self, page: Page) -> Iterator[Book]:
        yield Book(url=page.url, title=page.css("h1::text").get(), price=Money.parse(page.css("p::text").get()))


class Links(Spider):
    start_urls = ("https://books.example/",)

    def parse(self, page: Page) -> Results:
        yield from page.follow_all("a")
        yield from page.follow_all(page.css("li a"), self.plain)

    def plain(self, page: Page) -> Request:
        return page.follow("/b/1")

    def forced(self, page: Page) -> Results:
        yield from page.follow_all("a")
        yield from page.follow_all("li a", force=True)

    def with_data(self, page: Page) -> Results:
        for request in page.follow_all("a"):
            request.data["seen"] = True
            yield request

    def other(self, page: Page) -> Results:
        yield Request(url=page.urljoin("/b/1"), method="POST")

    def some(self, page: Page) -> Results:
        yield from [request for request in page.follow_all("a") if not request.url.endswith("/2")]

    def backwards(self, page: Page) -> Results:
        first, second = page.follow_all("h3 a"), page.follow_all("li a")
        yield from second
        yield {"a": 1}
        yield from first

    async def one_by_one(self, page: Page) -> AsyncIterator[Request]:
        for request in page.follow_all("a"):
            yield request

    def among_others(self, page: Page) -> Results:
        yield page.follow("/before", force=True)
        yield from page.follow_all("a")
        yield page.follow("/behind", priority=1)

    def twice(self, page: Page) -> Results:
        links = list(page.follow_all("li a"))
        yield from links
        yield from links


@pytest.mark.parametrize(
    ("kind", "links_only"),
    [
        ("parse", True),
        ("plain", True),
        ("some", True),
        ("backwards", True),
        ("one_by_one", True),
        ("forced", False),
        ("with_data", False),
        ("other", False),
        ("among_others", False),
    ],
)
async def test_a_page_that_gives_nothing_but_links_says_so(kind: str, links_only: bool) -> None:
    spider = Links()
    parsed = await run_callback(spider, kind, page_of(LISTING, spider))
    assert parsed.requests
    assert parsed.links_only is links_only


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("parse", ["b/1", "b/2", "?page=2", "?page=2"]),
        ("some", ["b/1", "?page=2"]),
        ("backwards", ["?page=2", "b/1", "b/2"]),
        ("one_by_one", ["b/1", "b/2", "?page=2"]),
        ("among_others", ["before", "b/1", "b/2", "?page=2", "behind"]),
        ("twice", ["?page=2", "?page=2"]),
    ],
)
async def test_requests_keep_the_order_in_which_the_spider_gave_them(kind: str, paths: list[str]) -> None:
    spider = Links()
    parsed = await run_callback(spider, kind, page_of(LISTING, spider))
    assert [request.url.removeprefix("https://books.example/") for request in parsed.requests] == paths


async def test_spider_as_in_the_design_follows_and_extracts() -> None:
    books = Books()
    listing = await run_callback(books, "parse", page_of(LISTING, books))
    detail = await run_callback(books, "book", page_of("<h1>Tea</h1><p>£5.50</p>", books))
    assert [(request.url, request.kind, request.priority) for request in listing.requests] == [
        ("https://books.example/b/1", "book", 8),
        ("https://books.example/b/2", "book", 8),
        ("https://books.example/?page=2", "parse", None),
    ]
    assert listing.items == []
    assert detail.items == [Book(url="https://books.example/", title="Tea", price=Money(Decimal("5.50"), "GBP"))]


@pytest.mark.parametrize(
    ("class_name", "name"),
    [("Books", "books"), ("BookShop", "book-shop"), ("HTTPNews", "http-news"), ("My_Shop2", "my-shop2")],
)
def test_name_follows_from_the_class(class_name: str, name: str) -> None:
    assert default_name(class_name) == name


def test_given_name_stays_and_is_not_inherited() -> None:
    class Named(Spider):
        name = "special"

    class Child(Named):
        pass

    assert (Books.name, Named.name, Child.name) == ("books", "special", "child")


class Shapes(Spider):
    """One callback of every shape."""

    def generator(self, page: Page) -> Results:
        yield {"a": 1}
        yield None
        yield page.follow("/x")

    def listed(self, page: Page) -> list[Any]:
        return [{"a": 1}, page.follow("/x")]

    def single(self, page: Page) -> dict[str, Any]:
        return {"a": 1}

    def nothing(self, page: Page) -> None:
        return None

    async def coroutine(self, page: Page) -> list[Any]:
        await asyncio.sleep(0)
        return [{"a": 1}, page.follow("/x")]

    async def stream(self, page: Page) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield {"a": 1}
        yield page.follow("/x")

    def lazy(self, page: Page) -> Iterator[Request]:
        return page.follow_all(["/x"])


@pytest.mark.parametrize(
    ("kind", "items", "requests"),
    [
        ("generator", 1, 1),
        ("listed", 1, 1),
        ("single", 1, 0),
        ("nothing", 0, 0),
        ("coroutine", 1, 1),
        ("stream", 1, 1),
        ("lazy", 0, 1),
    ],
)
async def test_callbacks_may_have_any_shape(kind: str, items: int, requests: int) -> None:
    parsed = await run_callback(Shapes(), kind, page_of(""))
    assert (len(parsed.items), len(parsed.requests)) == (items, requests)


class Buggy(Spider):
    def raises(self, page: Page) -> Results:
        yield {"a": 1}
        int("twelve \ud800")

    def proxies(self, page: Page) -> None:
        raise SystemExit(3)

    def recurses(self, page: Page) -> None:
        self.recurses(page)

    def bad_selector(self, page: Page) -> None:
        page.css("a[")

    def text(self, page: Page) -> Any:
        yield "https://books.example/"

    def nested(self, page: Page) -> Any:
        yield [{"a": 1}]

    def number(self, page: Page) -> Any:
        return 3

    def endless(self, page: Page) -> Results:
        while True:
            yield {"a": 1}

    def bad_data(self, page: Page) -> Results:
        yield page.follow("/x", data={"page": page})

    async def interrupted(self, page: Page) -> None:
        raise asyncio.CancelledError

    def ctrl_c(self, page: Page) -> None:
        raise KeyboardInterrupt


async def test_a_request_is_judged_by_itself_also_after_one_that_equals_it() -> None:
    class Alike(Spider):
        def parse(self, page: Page) -> Results:
            yield Request(url="http://a.example/1", method="POST", form={"in": 1})
            yield Request(url="http://a.example/2", method="POST", form={"in": True})

    with pytest.raises(ParseFailed, match="neither text nor number: True"):
        await run_callback(Alike(), "parse", page_of(""))


async def failure_of(kind: str) -> ParseFailed:
    with pytest.raises(ParseFailed) as caught:
        await run_callback(Buggy(), kind, page_of(""), max_yields=1000)
    return caught.value


class Following(Spider):
    start_urls = ("https://x.example/",)

    def before(self, page: Page) -> Any:
        for request in page.follow_all("a"):
            request.data["of"] = object()
            yield request

    def whole(self, page: Page) -> Any:
        for request in page.follow_all("a"):
            request.data["page"] = page
            yield request

    def other(self, page: Page) -> Any:
        for number, request in enumerate(page.follow_all("a")):
            yield msgspec.structs.replace(request, priority="high" if number else 1)

    def odd(self, page: Page) -> Any:
        yield from page.follow_all("a")
        yield from page.follow_all("a", "\udc80")

    def endless(self, page: Page) -> Any:
        yield from page.follow_all(f"/{n}" for n in count())


@pytest.mark.parametrize(
    ("kind", "fault"), [("before", "JSON"), ("other", "priority"), ("odd", "kind"), ("endless", "more than")]
)
async def test_what_is_done_to_followed_links_is_judged(kind: str, fault: str) -> None:
    with pytest.raises(ParseFailed, match=fault):
        await run_callback(Following(), kind, page_of("<a href=/1></a><a href=/2></a>"), max_yields=1000)


async def test_pages_that_are_put_into_their_own_links_do_not_stay_in_memory() -> None:
    def pages() -> int:
        gc.collect()
        return sum(type(one) is Page for one in gc.get_objects())

    before = pages()
    for _ in range(5):
        with pytest.raises(ParseFailed, match="JSON"):
            await run_callback(Following(), "whole", page_of("<a href=/1></a>"), max_yields=1000)
    assert pages() == before


async def test_exception_becomes_a_parse_failure_with_the_users_frames() -> None:
    error = await failure_of("raises")
    assert "Buggy.raises failed on https://books.example/: ValueError" in str(error)
    assert re.search(r"\(test_spider\.py, line \d+\)$", str(error))
    assert "test_spider.py" in error.detail
    assert "callbacks.py" not in error.detail
    assert isinstance(error.__cause__, ValueError)
    error.detail.encode()


async def test_system_proxy_in_a_spider_fails_the_page_only() -> None:
    assert "SystemExit: 3" in str(await failure_of("proxies"))


async def test_endless_recursion_is_told_in_brief() -> None:
    error = await failure_of("recurses")
    assert "RecursionError" in str(error)
    assert len(error.detail) < 20_001


async def test_bad_selector_names_itself_and_its_line() -> None:
    error = await failure_of("bad_selector")
    assert "'a['" in str(error)
    assert 'page.css("a[")' in error.detail


@pytest.mark.parametrize(
    ("kind", "hint"), [("text", "page.follow"), ("nested", "yield from"), ("number", "items, dicts, requests")]
)
async def test_what_cannot_be_yielded_is_refused_with_a_hint(kind: str, hint: str) -> None:
    assert hint in str(await failure_of(kind))


async def test_endless_generator_is_stopped() -> None:
    assert "more than 1,000" in str(await failure_of("endless"))


async def test_request_data_must_be_json() -> None:
    assert "is not JSON" in str(await failure_of("bad_data"))


async def test_cancellation_and_ctrl_c_pass_through() -> None:
    class Patient(Spider):
        async def parse(self, page: Page) -> None:
            await asyncio.Event().wait()

    waiting = asyncio.create_task(run_callback(Patient(), "parse", page_of("")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(KeyboardInterrupt):
        await run_callback(Buggy(), "ctrl_c", page_of(""))


async def test_a_cancelled_error_of_the_spiders_own_fails_the_page() -> None:
    assert "CancelledError" in str(await failure_of("interrupted"))


@pytest.mark.parametrize("kind", ["bok", "start", "__init__", "name", "allowed_sites"])
async def test_callback_that_does_not_exist_is_named_with_the_ones_there_are(kind: str) -> None:
    with pytest.raises(ParseFailed) as caught:
        await run_callback(Books(), kind, page_of(""))
    assert "Spider books has no callback" in str(caught.value)
    assert "book, parse" in str(caught.value)


async def test_spider_without_parse_says_so() -> None:
    class Empty(Spider):
        pass

    with pytest.raises(ParseFailed, match="has no parse"):
        await run_callback(Empty(), "parse", page_of(""))


async def test_seeds_come_from_start_of_any_shape() -> None:
    class Generated(Spider):
        def start(self) -> Iterator[Request | str]:
            yield "https://a.example/"
            yield Request(url="https://b.example/", kind="other")

    class Streamed(Spider):
        async def start(self) -> AsyncIterator[Request | str]:
            yield "https://c.example/"

    class Awaited(Spider):
        async def start(self) -> list[Request | str]:
            return ["https://d.example/"]

    async def urls(spider: Spider) -> list[str]:
        return [request.url async for request in seeds(spider)]

    assert await urls(Books()) == ["https://books.example/"]
    assert await urls(Generated()) == ["https://a.example/", "https://b.example/"]
    assert await urls(Streamed()) == ["https://c.example/"]
    assert await urls(Awaited()) == ["https://d.example/"]


WRONG_ATTRIBUTES = {
    "start_urls = None": "must be a list",
    "start_urls = 'https://books.example/'": "must be a list",
    "pipeline = print": "pipeline = [step]",
    "handle_statuses = 404": "handle_statuses = [404]",
    "handle_statuses = ['404']": "must be numbers",
    "rate = 5": 'rate = "5/s"',
    "concurrency = 0": "1 or more",
    "max_depth = -1": "0 or more",
    "limit = '5'": "whole number",
    "allowed_domains = ['https://books.example/']": "is not a host",
    "allowed_domains = 'books.example:8080'": "is not a host",
}


@pytest.mark.parametrize("line", WRONG_ATTRIBUTES)
def test_an_attribute_of_the_wrong_type_is_refused_with_the_right_one(line: str) -> None:
    with pytest.raises(Misconfigured, match=f"^Spider wrong: .*{re.escape(WRONG_ATTRIBUTES[line])}"):
        exec(f"class Wrong(Spider):\n    {line}", {"Spider": Spider})


def test_attributes_of_any_right_type_are_taken() -> None:
    class Right(Spider):
        allowed_domains = "*"
        handle_statuses = frozenset({404})
        max_depth = 0

        @property
        def start_urls(self) -> list[str]:  # type: ignore[override]
            return ["https://books.example/"]

    assert start_addresses(Right()) == ["https://books.example/"]


@pytest.mark.parametrize("bad", ["books.example", "file:///etc/passwd", "javascript:1", "http://[", 3])
async def test_bad_seed_is_refused_in_one_line(bad: Any) -> None:
    class Wrong(Spider):
        start_urls = (bad,)

        def start(self) -> list[Any]:
            return list(self.start_urls)

    with pytest.raises(Misconfigured, match="wrong: "):
        [request async for request in seeds(Wrong())]


def test_allowed_sites_are_those_of_the_seeds_unless_named() -> None:
    class Wide(Spider):
        allowed_domains = "*"

    class Named(Spider):
        allowed_domains = ("Shop.Example.", "b.example")

    seed = ["https://www.books.example/x"]
    assert Books().allowed_sites(seed) == {"books.example"}
    assert Wide().allowed_sites(seed) is None
    assert Named().allowed_sites(seed) == {"shop.example", "b.example"}


def test_version_is_stable_and_differs_between_modules() -> None:
    assert spider_version(Books) == spider_version(Books)
    assert spider_version(Books) != spider_version(SiteSpider)


def test_the_version_of_a_parser_covers_its_steps_and_its_arguments(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    versions = set()
    for n, body in enumerate(("return item", "return None")):
        (tmp_path / f"steps_{n}.py").write_text(f"def step(item, page):\n    {body}\n", encoding="utf-8")
        steps = importlib.import_module(f"steps_{n}")
        versions.add(spider_version(type("Stepped", (Books,), {"pipeline": (steps.step,)})))
        versions.add(spider_version(type("Stepped", (Books,), {"pipeline": (functools.partial(steps.step),)})))
    assert len(versions) == 2
    assert parser_version(Books(), "") == spider_version(Books)
    assert len({parser_version(Books(), one) for one in ("", '{"a":1}', '{"a":2}')}) == 3


async def test_site_spider_describes_a_page_and_stays_on_the_site() -> None:
    spider = SiteSpider(["https://books.example/"])
    words = "Loose-leaf tea steeps best just off the boil, and it wants time to do so. " * 8
    body = f"""<html lang=en><title>Tea</title><meta name=description content="About tea">
    <meta name=author content="A. Leaf"><meta property="article:published_time" content="2026-01-02">
    <script type="application/ld+json">{{"@type":"Article"}}</script>
    <article><p>{words}</p></article><a href="/a">a</a><a href="https://www.books.example/b">b</a>
    <a href="https://elsewhere.example/">c</a>"""
    parsed = await run_callback(spider, "parse", page_of(body, spider))
    [page] = parsed.items
    assert isinstance(page, WebPage)
    assert (page.title, page.description, page.language) == ("Tea", "About tea", "en")
    assert (page.author, page.published, page.status, page.links) == ("A. Leaf", datetime(2026, 1, 2), 200, 3)
    assert page.text is not None
    assert "steeps best" in page.text
    assert page.structured is not None
    assert page.structured["json_ld"] == [{"@type": "Article"}]
    assert [request.url for request in parsed.requests] == ["https://books.example/a", "https://www.books.example/b"]
    item_data(page)


async def test_site_spider_records_other_content_without_text() -> None:
    spider = SiteSpider(["https://books.example/"])
    parsed = await run_callback(spider, "parse", page_of("\x89PNG\x00", spider, "image/png"))
    [page] = parsed.items
    assert isinstance(page, WebPage)
    assert (page.title, page.text, page.content_type) == (None, None, "image/png")
    assert parsed.requests == []


def test_site_spider_needs_a_start() -> None:
    with pytest.raises(Misconfigured, match="at least one address"):
        SiteSpider([])


def test_the_sites_of_listed_seeds_are_known_before_the_first_is_read():
    class Listed(Spider):
        start_urls = ("https://a.example/", "no url", "https://b.example/x#y")

    class Own(Listed):
        def start(self):
            yield "https://c.example/"

    assert start_addresses(Listed()) == ["https://a.example/", "https://b.example/x#y"]
    assert start_addresses(Own()) == []


def test_an_address_that_start_computes_in_part_names_only_the_port_that_is_written() -> None:
    class Built(Spider):
        start_urls = ("http://10.0.0.1:8000",)

        def start(self) -> Any:
            port, rest, number = int(str(9000)), "/x", 1
            yield f"http://10.0.0.2:{port}/x"
            yield f"http://10.0.0.3{rest}"
            yield f"https://10.0.0.4:{port}"
            yield "http://10.0.0.5:%d/x" % port  # noqa: UP031
            yield "http://10.0.0.6:{}/x".format(port)  # noqa: UP032
            yield f"http://10.0.0.7:80{number}/"
            yield f"http://me@[fd00::8]:{port}/"
            yield f"http://10.0.0.9:8080/list?page={number}"
            yield f"http://10.0.0.10/list?page={number}"
            yield f"http://{rest}.example:8080/"

    assert local_hosts(named_addresses(Built())) == [
        "10.0.0.1", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:443", "10.0.0.5:80", "10.0.0.6:80", "10.0.0.7:80",
        "[fd00::8]:80", "10.0.0.9", "10.0.0.10",
    ]  # fmt: skip
