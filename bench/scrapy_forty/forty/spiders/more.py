"""What projects do besides: mixins, lambdas in rules, requests in other shapes, middlewares that ask elsewhere."""

import asyncio
import json

from itemloaders.processors import Join, TakeFirst
from scrapy import FormRequest, Request
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import JsonRequest
from scrapy.linkextractors import LinkExtractor
from scrapy.loader import ItemLoader
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider, XMLFeedSpider
from scrapy.utils.request import request_from_dict

from forty.items import Ware

from .basics import SHOP, Base


class StructuredData:
    """A mixin, as projects with thousands of spiders have them."""

    def parse_sd(self, response, **kwargs):
        for text in response.xpath('//script[@type="application/ld+json"]/text()').getall():
            yield from self.post_process(Ware(sku=response.url, name=json.loads(text)["name"]), response)

    def post_process(self, item, response):
        yield item


class SitemapIndex(SitemapSpider, StructuredData):
    name = "sitemap_index"
    sitemap_urls = [f"{SHOP}/sitemap_index.xml"]
    sitemap_follow = ["stores"]
    sitemap_alternate_links = True
    sitemap_rules = [(r"/store/\d+$", "parse_sd")]


class LambdaRules(CrawlSpider, StructuredData):
    name = "lambda_rules"
    allowed_domains = ["shop.example"]
    start_urls = [f"{SHOP}/stores"]
    rules = [
        Rule(
            LinkExtractor(allow=r"/store/\d+", deny=r"/store/3$", process_value=lambda value: value.split("?")[0]),
            callback="parse_sd",
            process_links=lambda links: links[:3],
            process_request=lambda request, response: request.replace(url=f"{request.url}?seen=1"),
        ),
        Rule(
            LinkExtractor(restrict_xpaths="//a[@class='next']", deny_extensions=["pdf"]),
            callback="page",
            errback="lost",
        ),
    ]

    def page(self, response):
        yield {"page": response.url}

    def lost(self, failure):
        yield {"lost": failure.request.url}


class Blob(Base):
    """A property for start_urls, JSON by POST, and items of one list."""

    name = "blob"
    wanted = ["a", "b"]

    @property
    def start_urls(self):
        return [f"{SHOP}/api/search?kind={one}" for one in self.wanted]

    def start_requests(self):
        for url in self.start_urls:
            yield JsonRequest(url, data={"kind": url[-1]}, headers={"X-Own": "1"})

    async def start(self):
        for request in self.start_requests():
            yield request

    def parse(self, response):
        found = response.json()
        yield {"sku": found["asked"]["kind"], "method": found["method"]}


class FormKinds(Base):
    name = "form_kinds"
    start_urls = [f"{SHOP}/forms"]

    def parse(self, response):
        make = FormRequest.from_response
        yield make(response, formid="b", formdata={"user": "u"}, callback=self.sent, cb_kwargs={"by": "id"})
        yield make(response, formname="bb", clickdata={"name": "s2"}, callback=self.sent, cb_kwargs={"by": "click"})
        yield make(
            response, formnumber=1, dont_click=True, formdata={"c": None}, callback=self.sent, cb_kwargs={"by": "none"}
        )
        yield make(response, formcss="#a", callback=self.sent, cb_kwargs={"by": "css"})
        yield FormRequest(
            f"{SHOP}/mirror", formdata=[("a", "1"), ("a", "2")], callback=self.sent, cb_kwargs={"by": "list"}
        )
        yield FormRequest(
            f"{SHOP}/mirror", method="GET", formdata={"z": "\u00e9"}, callback=self.sent, cb_kwargs={"by": "get"}
        )

    def sent(self, response, by):
        yield {"by": by, **response.json()}


class Methods(Base):
    name = "methods"

    async def start(self):
        yield Request(f"{SHOP}/ware/1", self.head, method="HEAD")
        yield Request(f"{SHOP}/mirror?1", self.mirror, method="DELETE", body="gone")
        yield Request.from_curl(f"curl '{SHOP}/mirror?2' -H 'X-Own: c' -d 'a=b'", callback=self.mirror)
        yield FormRequest(f"{SHOP}/moved/307/3", formdata={"a": "1"}, callback=self.mirror)
        yield FormRequest(f"{SHOP}/moved/302/4", formdata={"a": "1"}, callback=self.mirror)

    def head(self, response):
        yield {"status": response.status, "length": len(response.body)}
        again = Request(f"{SHOP}/ware/2", self.parsed, meta={"a": 1})
        yield request_from_dict(again.to_dict(spider=self), spider=self)

    def parsed(self, response):
        yield self.item(response, a=response.meta["a"])

    def mirror(self, response):
        yield {"url": response.url, "times": response.meta.get("redirect_times", 0), **response.json()}


class Retried(Base):
    name = "retried"
    start_urls = [f"{SHOP}/empty", f"{SHOP}/flaky/1"]

    def parse(self, response):
        if not response.text:
            again = get_retry_request(response.request, spider=self, reason="empty", max_retry_times=1)
            yield again or {"gave": "up", "times": response.meta["retry_times"]}
        else:
            yield self.item(response)


class Lost(Base):
    name = "lost"

    async def start(self):
        yield Request(f"{SHOP}/missing/1", errback=self.lost)
        yield Request(f"{SHOP}/ware/1", self.raises, errback=self.lost)

    def parse(self, response):
        yield self.item(response)

    def raises(self, response):
        raise KeyError("no errback hears of it")

    def lost(self, failure):
        if failure.check(HttpError):
            yield {"status": failure.value.response.status}
            yield Request(f"{SHOP}/ware/{failure.value.response.status}")


class Refreshes(Base):
    name = "refreshes"
    start_urls = [f"{SHOP}/refresh"]

    def parse(self, response):
        yield self.item(response, times=response.meta["redirect_times"])


class Elsewhere(Base):
    """Its middleware asks an API of another site, by POST, in place of the page."""

    name = "elsewhere"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"forty.middlewares.ByApi": 500}}
    start_urls = [f"{SHOP}/ware/1", f"{SHOP}/ware/2"]

    def parse(self, response):
        yield {"answered": response.url, "body": response.json()["body"]}


class StartDownloads(Base):
    name = "start_downloads"

    async def start(self):
        listed = await self.crawler.engine.download_async(Request(f"{SHOP}/list?page=3"))
        for card in listed.css(".card a")[:2]:
            yield listed.follow(card)

    async def parse(self, response):
        asked = [Request(f"{SHOP}/tree/{number}") for number in (1, 2)]
        both = await asyncio.gather(*map(self.crawler.engine.download_async, asked))
        yield self.item(response, both=[one.css("h1::text").get() for one in both])


class Namespaces(XMLFeedSpider):
    name = "namespaces"
    start_urls = [f"{SHOP}/feed.xml"]
    namespaces = [("f", "http://feed.example/"), ("g", "http://base.example/ns")]
    itertag = "f:entry"
    iterator = "xml"

    def parse_node(self, response, node):
        yield {"id": node.xpath("g:id/text()").get(), "title": node.xpath("f:title/text()").get()}


class HtmlNodes(XMLFeedSpider):
    name = "html_nodes"
    start_urls = [f"{SHOP}/feed.xml"]
    itertag = "entry"
    iterator = "html"

    def parse_node(self, response, node):
        return {"title": node.xpath("title/text()").get()}

    def process_results(self, response, results):
        return list(results)[:1]


class Nested(Base):
    name = "nested"
    start_urls = [f"{SHOP}/ware/4"]

    def parse(self, response):
        loader = ItemLoader(item=Ware(sku="4"), response=response)
        loader.default_output_processor = TakeFirst()
        loader.nested_css("table").add_xpath("name", ".//th[1]/text()")
        loader.add_css("tags", ".tag::text", Join("+"), re=r"\\w+")
        loader.add_value(None, {"price": [1, 2]})
        loader.replace_value("price", 9)
        yield loader.load_item()


class Answers(Base):
    """Callbacks that return in every way."""

    name = "answers"
    start_urls = [f"{SHOP}/ware/1"]

    def parse(self, response):
        return [self.item(response), Request(f"{SHOP}/ware/2", self.one)]

    def one(self, response):
        return Request(f"{SHOP}/ware/3", self.awaited)

    async def awaited(self, response):
        return [self.item(response), Request(f"{SHOP}/ware/4", self.none)]

    def none(self, response):
        return None


class Encodings(Base):
    name = "encodings"
    start_urls = [f"{SHOP}/latin", f"{SHOP}/declared"]

    def parse(self, response):
        yield self.item(response, encoding=response.encoding, joined=response.urljoin("x"))


class Updated(Base):
    """Settings by `update_settings` and by the crawler; a log formatter of its own."""

    name = "updated"
    custom_settings = {"LOG_FORMATTER": "forty.extensions.QuietFormatter"}
    start_urls = [f"{SHOP}/echo"]

    @classmethod
    def update_settings(cls, settings):
        super().update_settings(settings)
        settings.set("USER_AGENT", "updated/1", priority="spider")

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        crawler.settings.set("DEFAULT_REQUEST_HEADERS", {"X-Own-Crawler": "1"}, priority="spider")
        return super().from_crawler(crawler, *args, **kwargs)

    def parse(self, response):
        yield self.item(response, agent=response.css("i::text").get())


class Batches(Base):
    """Feeds in batches, by an exporter of the project's."""

    name = "batches"
    custom_settings = {
        "FEED_EXPORTERS": {"tsv": "forty.extensions.TsvExporter"},
        "FEEDS": {"out/%(name)s-%(batch_id)d.tsv": {"format": "tsv", "batch_item_count": 2, "fields": ["sku"]}},
    }
    start_urls = [f"{SHOP}/ware/1"]

    def parse(self, response):
        yield from ({"url": f"{response.url}#{number}", "sku": number} for number in range(3))


class Failing(Base):
    name = "failing"
    custom_settings = {"CLOSESPIDER_ERRORCOUNT": 2, "CONCURRENT_REQUESTS": 1}
    start_urls = [f"{SHOP}/tree/0"]

    def parse(self, response):
        yield self.item(response)
        yield from response.follow_all(css="a")
        raise RuntimeError("of every page")
