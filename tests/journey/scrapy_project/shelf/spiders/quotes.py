import os

import scrapy

SITE = os.environ.get("SHELF_SITE", "http://127.0.0.1:8000")


class QuotesSpider(scrapy.Spider):
    """The spider of Scrapy's tutorial."""

    name = "quotes"
    start_urls = [f"{SITE}/quotes/page/1/"]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield {
                "text": quote.css("span.text::text").get(),
                "author": quote.css("small.author::text").get(),
                "tags": quote.css("div.tags a.tag::text").getall(),
            }
        yield from response.follow_all(css="ul.pager a", callback=self.parse)


class AuthorsSpider(scrapy.Spider):
    name = "authors"
    allowed_domains = ["127.0.0.1"]
    start_urls = [f"{SITE}/quotes/page/1/"]
    custom_settings = {
        "DOWNLOADER_MIDDLEWARES": {"shelf.middlewares.Marks": 543},
        "SPIDER_MIDDLEWARES": {"shelf.middlewares.Stamps": 543},
    }

    def parse(self, response):
        links = response.css(".author + a")
        yield from response.follow_all(links, self.parse_author, meta={"mark": "author"})
        yield from response.follow_all(response.css("li.next a"), self.parse)
        yield scrapy.Request("http://elsewhere.example/", self.parse)

    def parse_author(self, response):
        def extract(query):
            return response.css(query).get(default="").strip()

        yield {"name": extract("h3::text"), "born": extract(".born::text"), "depth": response.meta["depth"]}
