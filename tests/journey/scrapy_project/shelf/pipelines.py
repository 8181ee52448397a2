import sqlite3

from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline


class DuplicatesPipeline:
    """As in Scrapy's manual: the second of two is dropped. It sees what its own process has seen."""

    def __init__(self):
        self.seen = set()

    def process_item(self, item, spider):
        name = ItemAdapter(item)["name"]
        if name == "Clock":
            raise DropItem("no clocks")
        self.seen.add(name)
        return item


class DatabasePipeline:
    """As in Scrapy's manual, with a key, so that a page that is parsed twice is there once."""

    def __init__(self, file, stats):
        self.file = file
        self.stats = stats

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler.settings.get("DATABASE"), crawler.stats)

    def open_spider(self, spider):
        self.connection = sqlite3.connect(self.file, timeout=60)
        self.connection.execute("CREATE TABLE IF NOT EXISTS wares (name TEXT PRIMARY KEY, price REAL)")

    def close_spider(self, spider):
        self.connection.commit()
        self.connection.close()
        with open(f"{self.file}.closed", "a") as file:
            file.write(f"{spider.name}\n")

    async def process_item(self, item, spider):
        row = ItemAdapter(item)
        self.connection.execute("INSERT OR REPLACE INTO wares VALUES (?, ?)", (row["name"], row["price"]))
        self.connection.commit()
        self.stats.inc_value("wares/stored")
        row["shelf"] = "stored"
        return item


class PartFiles(FilesPipeline):
    """As in Scrapy's manual: names of its own, and the item says where its files are."""

    def file_path(self, request, response=None, info=None, *, item=None):
        return "parts/" + request.url.partition("://")[2].partition("/")[2].replace("/", "-")

    def item_completed(self, results, item, info):
        if "file_urls" in item:
            item["files"] = [{"path": value["path"], "sum": value["checksum"]} for ok, value in results if ok]
        return item
