"""Pipelines as Scrapy's manual shows them."""

import json

from itemadapter import ItemAdapter
from scrapy import Request
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline


class Counted:
    """Of the add-on."""

    def process_item(self, item):
        return item


class WithTax:
    factor = 1.2

    def process_item(self, item, spider):
        adapter = ItemAdapter(item)
        if adapter.get("price"):
            adapter["price"] = round(adapter["price"] * self.factor, 2)
            return item
        raise DropItem("no price")


class NoTwice:
    def open_spider(self, spider):
        self.seen = set()

    def process_item(self, item, spider):
        number = int(ItemAdapter(item)["sku"]) % 5
        if number in self.seen:
            raise DropItem(f"seen before: {number}")
        self.seen.add(number)
        return item


class ToFile:
    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        made.path = crawler.settings.get("FORTY_FILE", "lines.jsonl")
        return made

    def open_spider(self, spider):
        self.file = open(self.path, "w")

    def close_spider(self, spider):
        self.file.close()

    def process_item(self, item, spider):
        self.file.write(json.dumps(ItemAdapter(item).asdict()) + "\n")
        return item


class Asks:
    """Downloads for each item, as the manual's example with screenshots does."""

    @classmethod
    def from_crawler(cls, crawler):
        made = cls()
        made.crawler = crawler
        return made

    async def process_item(self, item, spider):
        adapter = ItemAdapter(item)
        response = await self.crawler.engine.download_async(Request(f"http://shop.example/tree/{adapter['sku']}"))
        adapter["name"] = f"{adapter['name']} at {response.css('h1::text').get()}"
        return item


class Manuals(FilesPipeline):
    def file_path(self, request, response=None, info=None, *, item=None):
        return request.url.rpartition("/")[2]
