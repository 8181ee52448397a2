"""Spiders with bugs: the page that met the bug is a dead letter with the reason, all other pages are had."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from gossamer import Item, Page
from gossamer.errors import Misconfigured
from gossamer.frontier.admission import Admission, LinkScope
from gossamer.model.task import Request
from gossamer.project.open import open_project
from gossamer.terms import job_terms
from tests.journey.crawling import Aftermath, crawled, settings_for
from tests.journey.visiting import GOOD, Curious, among_good_pages
from tests.sites.hostile import HostileSite, hostile_site


class Book(Item):
    title: str


class Circular(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that works")


class Buggy(Curious):
    """Every method but `parse` is wrong in its own way."""

    def parse(self, page: Page) -> Iterator[Any]:
        yield from super().parse(page)
        if page.url.endswith("/start"):
            for name in BUGS:
                yield page.follow(f"/bug/{name}", name)

    def raises(self, page: Page) -> Any:
        return {}["price"]

    def exits(self, page: Page) -> None:
        sys.exit(3)

    def recurses(self, page: Page) -> Any:
        return self.recurses(page)

    def cancels(self, page: Page) -> None:
        raise asyncio.CancelledError

    async def awaits_something_cancelled(self, page: Page) -> None:
        forgotten = asyncio.create_task(asyncio.Event().wait())
        forgotten.cancel()
        await forgotten

    def cannot_even_say_it(self, page: Page) -> None:
        raise Circular

    def misses_a_field(self, page: Page) -> Iterator[Any]:
        yield Book(title=None)  # type: ignore[arg-type]

    def gives_an_int(self, page: Page) -> Iterator[Any]:
        yield 5

    def gives_a_class(self, page: Page) -> Iterator[Any]:
        yield Book

    def gives_a_foreign_object(self, page: Page) -> Iterator[Any]:
        yield object()

    def gives_no_end(self, page: Page) -> Iterator[Any]:
        while True:
            yield {"url": page.url}

    def gives_nothing_without_end(self, page: Page) -> Iterator[Any]:
        while True:
            yield None

    def gives_a_key_that_is_none(self, page: Page) -> Iterator[Any]:
        yield {None: 1, "url": page.url}

    def gives_itself(self, page: Page) -> Iterator[Any]:
        item: dict[str, Any] = {"url": page.url}
        item["self"] = item
        yield item

    def gives_a_selector(self, page: Page) -> Iterator[Any]:
        yield {"url": page.url, "title": page.css("title")[0]}

    def follows_none(self, page: Page) -> Iterator[Any]:
        yield Request(url=None)  # type: ignore[arg-type]

    def follows_with_a_text_as_priority(self, page: Page) -> Iterator[Any]:
        yield Request(url=page.urljoin("/good/0?1"), priority="high")  # type: ignore[arg-type]

    def follows_with_an_enormous_priority(self, page: Page) -> Iterator[Any]:
        yield Request(url=page.urljoin("/good/0?2"), priority=10**30)

    def follows_with_no_attempts(self, page: Page) -> Iterator[Any]:
        yield page.follow("/good/0?3", max_attempts=0)

    def follows_with_a_page_as_data(self, page: Page) -> Iterator[Any]:
        yield page.follow("/good/0?4", data={"page": page})

    def follows_with_a_list_as_data(self, page: Page) -> Iterator[Any]:
        yield Request(url=page.urljoin("/good/0?5"), data=[1])  # type: ignore[arg-type]


BUGS = {
    "raises": "KeyError: 'price'",
    "exits": "SystemExit: 3",
    "recurses": "RecursionError",
    "cancels": "CancelledError",
    "awaits_something_cancelled": "CancelledError",
    "cannot_even_say_it": "Circular",
    "misses_a_field": "title is missing (str)",
    "gives_an_int": "gave a int (5)",
    "gives_a_class": "Book",
    "gives_a_foreign_object": "gave a object",
    "gives_no_end": "endless loop",
    "gives_nothing_without_end": "endless loop",
    "gives_a_key_that_is_none": "the key None, which is not a str",
    "gives_itself": "nested too deeply",
    "gives_a_selector": ".get()",
    "follows_none": "is wrong in url (expected str, got null)",
    "follows_with_a_text_as_priority": "is wrong in priority (expected int, got str)",
    "follows_with_an_enormous_priority": "priority beyond",
    "follows_with_no_attempts": "max_attempts",
    "follows_with_a_page_as_data": "is not JSON",
    "follows_with_a_list_as_data": "is wrong in data",
}


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostileSite, Aftermath]:
    async def visit() -> tuple[HostileSite, Aftermath]:
        async with hostile_site() as site:
            for name in BUGS:
                site.show(f"/bug/{name}", "<title>Bug</title>")
            return site, await among_good_pages(site, tmp_path_factory.mktemp("visited"), [], spider=Buggy())

    return asyncio.run(visit())


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_costs_its_page_only_and_is_told_in_one_line(visited, bug):
    site, after = visited
    url = site.url(f"/bug/{bug}")
    assert after.fate(url) == ("dead", "parse")
    letter = after.letters[url]
    assert BUGS[bug] in letter.message.partition("\n")[0]
    assert letter.attempts == 1  # the same code would fail again
    assert [record for record in after.records if record.url == url] == []


def test_the_line_of_the_bug_is_in_the_dead_letter(visited):
    site, after = visited
    detail = after.letters[site.url("/bug/raises")].message
    assert 'return {}["price"]' in detail
    assert "test_bad_spiders.py" in detail
    assert "gossamer/parse" not in detail


async def test_a_dict_is_an_item_as_well(tmp_path):
    async with hostile_site() as site:
        after = await among_good_pages(site, tmp_path, [])
        assert len(after.records) == GOOD + 1


async def test_a_request_for_what_is_no_url_is_dropped_with_that_reason(tmp_path):
    class Careless(Curious):
        def parse(self, page: Page) -> Iterator[Any]:
            yield from super().parse(page)
            yield Request(url="/relative")
            yield Request(url="mailto:someone@example.test")

    async with hostile_site() as site:
        after = await among_good_pages(site, tmp_path, [], spider=Careless())
        assert after.fate("/relative") == ("dropped", "invalid")
        assert after.fate("mailto:someone@example.test") == ("dropped", "invalid")


async def test_a_callback_that_is_gone_says_so_and_names_the_one_that_may_be_meant(tmp_path):
    class Shop(Curious):
        def products(self, page: Page) -> Iterator[Any]:
            yield {"url": page.url}

    async with hostile_site() as site:
        product = site.show("/product", "<title>Product</title>")
        spider = Shop()
        spider.start_urls = [site.url("/plain")]
        read = settings_for(tmp_path, fetch__allow_hosts=["127.0.0.1"])
        # given an unfinished crawl by an older version of the file, in which the method had another name
        async with open_project(read) as system:
            job, _ = await system.state.jobs.open_job("shop", job_terms(read, spider), fresh=False)
            judged = Admission(LinkScope(), system.rules).judge([Request(url=product, kind="product")])
            await system.state.frontier.add(job.id, judged.candidates)

        # when it goes on with today's
        after = await crawled(spider, read)

        # then that page says what happened, and the others are had
        assert after.report.resumed
        assert after.fate(product) == ("dead", "parse")
        assert "has no callback 'product' (any more)" in after.letters[product].message
        assert "Did you mean 'products'?" in after.letters[product].message
        assert after.fate(site.url("/plain")) == ("done", "")
        after.assert_adds_up()


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (["http://"], "'http://' is not a URL"),
        (["example.com/x"], "Did you mean https://example.com/x ?"),
        (["file:///etc/passwd"], "is a file: address; only http and https"),
        (["javascript:alert(1)"], "is a javascript: address"),
        (["data:text/html,x"], "is a data: address"),
        (["http://a\ud800.test/"], "surrogate"),
        ([5], "must give requests or addresses"),
        ([Request(url="http://127.0.0.1/", priority="high")], "is wrong in priority"),  # type: ignore[arg-type]
        ([Request(url="http://127.0.0.1/", data={"x": object()})], "is not JSON"),
        ([], "nothing to start from"),
    ],
)
async def test_a_seed_that_cannot_be_used_ends_the_crawl_with_one_line(tmp_path, start, words):
    spider = Curious()
    spider.start = lambda: start  # type: ignore[method-assign]
    with pytest.raises(Misconfigured) as caught:
        await crawled(spider, settings_for(tmp_path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
