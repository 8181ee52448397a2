import os

import scrapy
from scrapy import signals
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

SITE = os.environ.get("SHELF_SITE", "http://127.0.0.1:8000")


class MovedSpider(scrapy.Spider):
    """Redirects as `meta` tells of them, pages that are asked for again, and requests made of requests."""

    name = "moved"
    start_urls = [f"{SITE}/shop/old/{number}" for number in range(5, 15)]

    def parse(self, response):
        asked = response.meta.get("redirect_urls", [response.url])[0]
        yield {"asked": asked, "got": response.url, "reasons": response.meta["redirect_reasons"]}
        if response.url.endswith("/9"):
            yield response.request.replace(url=f"{SITE}/part/9", callback=self.again)

    def again(self, response):
        retry = get_retry_request(response.request, spider=self, reason="not yet", max_retry_times=2)
        yield retry or {"after": response.meta["retry_times"]}


class ChosenSpider(CrawlSpider):
    """Rules with everything that they may name."""

    name = "chosen"
    start_urls = [f"{SITE}/shop/"]
    rules = (
        Rule(
            LinkExtractor(restrict_xpaths="//body", deny=["hidden"], process_value=lambda value: value),
            callback="parse_shelf",
            follow=True,
            process_links="even",
            process_request="marked",
        ),
        Rule(
            LinkExtractor(allow=r"/ware/\d+", tags=["a"], attrs=["href"], canonicalize=True),
            callback="parse_ware",
            errback="lost",
            process_request=lambda request, response: request.replace(cb_kwargs={"shelf": response.url}),
        ),
    )

    def even(self, links):
        return [link for link in links if link.url.endswith(("/2", "/4"))]

    def marked(self, request, response):
        request.meta["from"] = response.url
        return request

    def parse_shelf(self, response):
        yield {"shelf": response.url, "from": response.meta["from"], "link": response.meta["link_text"]}

    def parse_ware(self, response, shelf):
        yield {"ware": response.css("h1::text").get(), "shelf": shelf}

    def lost(self, failure):
        yield {"lost": failure.request.url}


class EnoughSpider(scrapy.Spider):
    """Ends its crawl itself, in the middle of a page."""

    name = "enough"
    start_urls = [f"{SITE}/quotes/page/1/"]
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def parse(self, response):
        for number, quote in enumerate(response.css("div.quote")):
            yield {"text": quote.css("span.text::text").get()}
            if "/2/" in response.url and number == 4:
                raise CloseSpider("enough")
        yield from response.follow_all(css="ul.pager a")


class WaitingSpider(scrapy.Spider):
    """Takes its next address when nothing is left to do, as spiders with a queue of their own have it."""

    name = "waiting"
    start_urls = [f"{SITE}/part/1"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.left = [4, 3, 2]
        crawler.signals.connect(spider.take, signal=signals.spider_idle)
        return spider

    def take(self):
        if self.left:
            self.crawler.engine.crawl(scrapy.Request(f"{SITE}/part/{self.left.pop()}"))
            raise DontCloseSpider

    def parse(self, response):
        yield {"part": response.css("h1::text").get()}


class FilesSpider(scrapy.Spider):
    """Files by a pipeline of Scrapy's, an answer that a callback waits for, items before the first page."""

    name = "files"
    custom_settings = {
        "ITEM_PIPELINES": {"shelf.pipelines.PartFiles": 1},
        "FILES_STORE": os.environ.get("SHELF_FILES", "files"),
        "MEDIA_ALLOW_REDIRECTS": True,
    }

    async def start(self):
        yield {"begun": True}
        for number in range(1, 11):
            yield scrapy.Request(f"{SITE}/list/{number}4")

    async def parse(self, response):
        number = response.url[-2]
        count = await self.crawler.engine.download_async(scrapy.Request(f"{SITE}/api/stock?page=1"))
        file_urls = [f"{SITE}/part/{number}", f"{SITE}/shop/old/{number}", f"{SITE}/list/none"]
        yield {"price": response.css(".price::text").get(), "names": len(count.json()["names"]), "file_urls": file_urls}
