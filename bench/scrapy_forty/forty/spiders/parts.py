"""Contrib spiders, loaders, pipelines, middlewares, feeds, contracts."""

from scrapy import Request, signals
from scrapy.exceptions import DontCloseSpider
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, CSVFeedSpider, Rule, SitemapSpider, XMLFeedSpider

from forty.items import Ware, WareAttrs, WareData, WareLoader

from .basics import SHOP, Base


class Rules(CrawlSpider):
    name = "rules"
    allowed_domains = ["shop.example"]
    start_urls = [f"{SHOP}/list"]
    rules = (
        Rule(LinkExtractor(allow=r"page=\d+", restrict_css="a.next")),
        Rule(LinkExtractor(allow=r"/ware/", deny=r"/ware/1$"), callback="parse_ware", cb_kwargs={"by": "rule"}),
    )

    def parse_ware(self, response, by):
        yield {"url": response.url, "by": by, "link": response.meta["link_text"]}


class RulesWithHooks(CrawlSpider):
    name = "rules_with_hooks"
    start_urls = [f"{SHOP}/list"]
    rules = (
        Rule(
            LinkExtractor(restrict_css=".card"),
            callback="parse_ware",
            process_links="first_two",
            process_request="mark",
        ),
    )

    def first_two(self, links):
        return links[:2]

    def mark(self, request, response):
        request.meta["from"] = response.url
        return request

    def parse_start_url(self, response):
        yield {"start": response.url}

    def parse_ware(self, response):
        yield {"url": response.url, "from": response.meta["from"]}


class Sitemap(SitemapSpider):
    name = "sitemap"
    sitemap_urls = [f"{SHOP}/sitemap.xml"]
    sitemap_rules = [(r"/ware/[1-4]$", "parse_low"), (r"/ware/", "parse_high")]

    def parse_low(self, response):
        yield {"url": response.url, "by": "low"}

    def parse_high(self, response):
        yield {"url": response.url, "by": "high"}

    def sitemap_filter(self, entries):
        for entry in entries:
            if not entry["loc"].endswith("/8"):
                yield entry


class Rows(CSVFeedSpider):
    name = "rows"
    start_urls = [f"{SHOP}/rows.csv"]
    delimiter = ";"
    headers = ["id", "name"]

    def parse_row(self, response, row):
        yield {"id": row["id"], "name": row["name"]}


class Nodes(XMLFeedSpider):
    name = "nodes"
    start_urls = [f"{SHOP}/nodes.xml"]
    itertag = "product"

    def parse_node(self, response, node):
        yield {"id": node.xpath("@id").get(), "name": node.xpath("name/text()").get()}


class Wares(Base):
    """Base of the spiders that read wares."""

    start_urls = [f"{SHOP}/ware/{number}" for number in range(1, 13)]

    def sku(self, response):
        return response.url.rpartition("/")[2]

    def loaded(self, response):
        loader = WareLoader(response=response)
        loader.add_value("sku", self.sku(response))
        loader.add_css("name", "h1::text")
        loader.add_css("price", ".price::text")
        loader.add_xpath("tags", "//span[@class='tag']/text()")
        return loader.load_item()


class Loaded(Wares):
    name = "loaded"

    def parse(self, response):
        yield self.loaded(response)


class Dataclasses(Wares):
    name = "dataclasses"

    def parse(self, response):
        yield WareData(sku=self.sku(response), price=1.5, tags=response.css(".tag::text").getall())


class Attrs(Wares):
    name = "attrs"

    def parse(self, response):
        yield WareAttrs(sku=self.sku(response), name="x")


class Piped(Wares):
    name = "piped"
    custom_settings = {
        "ITEM_PIPELINES": {
            "forty.pipelines.WithTax": 300,
            "forty.pipelines.NoTwice": 400,
            "forty.pipelines.ToFile": 500,
        },
    }
    start_urls = [f"{SHOP}/ware/{number}" for number in range(1, 6)]

    def parse(self, response):
        yield self.loaded(response)


class AsyncPiped(Wares):
    name = "async_piped"
    custom_settings = {"ITEM_PIPELINES": {"forty.pipelines.Asks": 300}}
    start_urls = [f"{SHOP}/ware/{number}" for number in range(1, 5)]

    def parse(self, response):
        yield self.loaded(response)


class Files(Wares):
    name = "files"
    custom_settings = {"ITEM_PIPELINES": {"forty.pipelines.Manuals": 1}, "FILES_STORE": "manuals"}
    start_urls = [f"{SHOP}/ware/{number}" for number in range(1, 5)]

    def parse(self, response):
        yield Ware(sku=self.sku(response), file_urls=[response.urljoin(response.css("a.doc::attr(href)").get())])


class Downloading(Base):
    name = "downloading"
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {"forty.middlewares.Marks": 543}}
    start_urls = [f"{SHOP}/ware/{number}" for number in (1, 2)]

    def parse(self, response):
        yield self.item(response, marked=response.meta["marked"])
        for path in ("ware/3", "missing/5", "echo"):
            yield response.follow(f"/{path}", self.found, errback=self.lost)

    def found(self, response):
        yield self.item(response, marked=response.meta["marked"])

    def lost(self, failure):
        yield {"lost": failure.request.url, "why": failure.type.__name__}


class Middle(Base):
    name = "middle"
    custom_settings = {"SPIDER_MIDDLEWARES": {"forty.middlewares.Deepens": 100, "forty.middlewares.AsyncOnly": 50}}
    start_urls = [f"{SHOP}/ware/1", f"{SHOP}/ware/2"]

    def parse(self, response):
        yield self.item(response)
        yield response.follow("/ware/12?skip=1")
        if response.url.endswith("/2"):
            raise ValueError("recovered from")


class Idle(Base):
    name = "idle"
    start_urls = [f"{SHOP}/ware/1"]

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        made = super().from_crawler(crawler, *args, **kwargs)
        made.left = ["/ware/2", "/ware/3"]
        crawler.signals.connect(made.idle, signal=signals.spider_idle)
        return made

    def idle(self, spider):
        if self.left:
            self.crawler.engine.crawl(Request(f"{SHOP}{self.left.pop()}"))
            raise DontCloseSpider

    def parse(self, response):
        yield self.item(response)


class Limited(Base):
    name = "limited"
    custom_settings = {"CLOSESPIDER_ITEMCOUNT": 3, "CONCURRENT_REQUESTS": 1}
    start_urls = [f"{SHOP}/list"]

    def parse(self, response):
        for card in response.css(".card")[:1]:
            yield {"sku": card.attrib["data-id"], "page": response.url}
        yield from response.follow_all(css="a.next")


class Exported(Wares):
    name = "exported"
    custom_settings = {
        "FEEDS": {
            "out/%(name)s.jsonl": {"format": "jsonlines", "fields": ["sku", "price"], "overwrite": True},
            "out/%(name)s.csv": {"format": "csv", "fields": {"sku": "SKU", "name": "Name"}, "overwrite": True},
            "out/%(name)s.xml": {"format": "xml", "item_classes": [Ware], "overwrite": True},
        },
    }
    start_urls = [f"{SHOP}/ware/{number}" for number in range(1, 4)]

    def parse(self, response):
        yield self.loaded(response)


class Contracted(Base):
    name = "contracted"
    start_urls = [f"{SHOP}/list?page=3"]

    def parse(self, response):
        """A list of wares.

        @url http://shop.example/list?page=3
        @returns items 6 6
        @returns requests 0 0
        @scrapes sku name
        """
        for card in response.css(".card"):
            yield {"sku": card.attrib["data-id"], "name": card.css("a::text").get()}
