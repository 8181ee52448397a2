import os

import scrapy
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider

from shelf.items import Part, Ware, WareLoader

SITE = os.environ.get("SHELF_SITE", "http://127.0.0.1:8000")


class WaresSpider(CrawlSpider):
    name = "wares"
    allowed_domains = ["127.0.0.1"]
    start_urls = [f"{SITE}/shop/"]
    rules = (
        Rule(LinkExtractor(allow=r"/shop/shelf/", deny=r"hidden")),
        Rule(LinkExtractor(restrict_css="li.ware"), callback="parse_ware", cb_kwargs={"shelf": "by rule"}),
    )

    def parse_ware(self, response, shelf):
        loader = WareLoader(response=response)
        loader.add_value("url", response.url)
        loader.add_css("name", "h1::text")
        loader.add_css("price", ".price::text")
        loader.add_value("shelf", shelf)
        yield loader.load_item()


class StoredSpider(WaresSpider):
    """The same wares, through pipelines into a database."""

    name = "stored"
    custom_settings = {
        "ITEM_PIPELINES": {"shelf.pipelines.DuplicatesPipeline": 100, "shelf.pipelines.DatabasePipeline": 300},
        "DATABASE": os.environ.get("SHELF_DATABASE", "wares.db"),
    }


class PartsSpider(SitemapSpider):
    name = "parts"
    sitemap_urls = [f"{SITE}/sitemap.xml"]
    sitemap_rules = [("/part/", "parse_part")]

    def parse_part(self, response):
        labels = response.xpath("//b/text()").getall()
        yield Part(number=int(response.css("h1::text").re_first(r"\d+")), labels=labels)


class ListingSpider(scrapy.Spider):
    """Pages by cb_kwargs; an item begun on one page and completed on another; errors and an argument."""

    name = "listing"

    def __init__(self, kind="all", **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.start_urls = [f"{SITE}/list?kind={kind}&page=1"]

    def parse(self, response, page=1):
        for link in response.css("a.one"):
            ware = Ware(name=link.css("::text").get(), shelf=f"page {page}")
            yield response.follow(
                link, self.parse_price, errback=self.lost, meta={"item": ware, "at": (page, 1)}, priority=page
            )
        if response.css("a.more"):
            url = f"{SITE}/list?kind={self.kind}&page={page + 1}"
            yield scrapy.Request(url, self.parse, cb_kwargs={"page": page + 1})
        else:
            yield scrapy.Request(f"{SITE}/list/none", self.gone, meta={"handle_httpstatus_list": [404]})

    def parse_price(self, response):
        ware = response.meta["item"]
        assert isinstance(response.meta["at"], tuple)
        ware["price"] = float(response.css(".price::text").get())
        ware["url"] = response.url
        yield ware

    def gone(self, response):
        yield {"gone": response.url, "status": response.status}

    def lost(self, failure):
        yield {"lost": failure.request.url, "status": failure.value.response.status}
