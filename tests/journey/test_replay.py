"""A page whose parse failed is parsed again, also when the server would say that it has not changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gossamer import Page, Spider
from gossamer.frontier.contract import DeadFilter
from tests.journey.crawling import crawled, look, settings_for
from tests.sites.running import park

PAGES = 5


class Fickle(Spider):
    """The same code fails or not, as a fault in a module that it imports would have it."""

    broken = True

    def parse(self, page: Page) -> Iterator[Any]:
        yield from page.follow_all("a")
        if self.broken and page.url.endswith("/page/3"):
            raise ValueError("not today")
        yield {"url": page.url, "title": page.title}


async def test_a_replayed_parse_failure_is_fetched_in_full_and_parsed(tmp_path):
    with park(pages=PAGES, validators=True) as site:
        read = settings_for(tmp_path, fetch__allow_private=True)
        spider = Fickle()
        spider.start_urls = site.seeds()
        failed = await crawled(spider, read)
        assert list(failed.letters) == [site.url(path="/page/3")]

        assert await look(read, lambda system: system.state.queue.replay(DeadFilter(reason="parse"))) == 1
        spider.broken = False
        mended = await crawled(spider, read)

        assert mended.letters == {}
        assert mended.fate(site.url(path="/page/3")) == ("done", "")
        assert len(mended.records) == PAGES
        assert [hit.status for hit in site.hits(path="/page/3")] == [200, 200]


async def test_the_next_crawl_shows_the_same_failure_again(tmp_path):
    with park(pages=PAGES, validators=True) as site:
        read = settings_for(tmp_path, fetch__allow_private=True)
        spider = Fickle()
        spider.start_urls = site.seeds()
        await crawled(spider, read)
        again = await crawled(spider, read)

        assert again.fate(site.url(path="/page/3")) == ("dead", "parse")
        assert Counter(hit.status for hit in site.hits()) == {200: PAGES + 1, 304: PAGES - 1}
