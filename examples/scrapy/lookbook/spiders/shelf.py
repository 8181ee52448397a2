from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class Shelf(CrawlSpider):
    name = "shelf"
    allowed_domains = ["shop.localhost"]
    start_urls = ["http://shop.localhost:8460/category/ceramics"]
    rules = (
        Rule(LinkExtractor(restrict_css="a.next")),
        Rule(LinkExtractor(restrict_css=".shelf"), callback="parse_ware"),
    )

    def parse_ware(self, response):
        yield {
            "sku": response.css(".sku::text").get(),
            "title": response.css("h1::text").get(),
            "price": response.css(".price::text").get(),
            "url": response.url,
        }
