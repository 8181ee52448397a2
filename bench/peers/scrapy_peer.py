"""The bench site crawled with Scrapy. Runs in .venv-bench: `python scrapy_peer.py START_URL FOLDER`.

Durable queue (JOBDIR), robots.txt obeyed, every link followed, records in FOLDER/records.jsonl. Everything that
costs time and is not asked for (console, remote control, statistics dump) is off; the loop is uvloop.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import localhost_names
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse


class Shop(scrapy.Spider):
    name = "shop"

    async def start(self) -> AsyncIterator[scrapy.Request]:
        # The default skips the duplicate filter here, and the front page would be fetched twice.
        for url in self.start_urls:
            yield scrapy.Request(url)

    def parse(self, response: HtmlResponse) -> Iterator[Any]:
        yield {
            "url": response.url,
            "title": response.css("h1.product-title::text").get(),
            "price": response.css(".price .amount::text").get(),
            "description": response.css("#description::text").get(),
            "sku": response.css(".sku::text").get(),
        }
        yield from response.follow_all(css="a")


SETTINGS: dict[str, Any] = {
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    "AUTOTHROTTLE_ENABLED": False,
    "CONCURRENT_REQUESTS": 32,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 32,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "WARNING",
    "REMOTE_CONTROL_ENABLED": False,
    "ROBOTSTXT_OBEY": True,
    "STATS_DUMP": False,
    "TELNETCONSOLE_ENABLED": False,
}


def main(start: str, folder: Path) -> None:
    process = CrawlerProcess(
        {
            **SETTINGS,
            "FEEDS": {str(folder / "records.jsonl"): {"format": "jsonlines", "encoding": "utf-8"}},
            "JOBDIR": str(folder / "job"),
        }
    )
    process.crawl(Shop, start_urls=[start])
    process.start()


if __name__ == "__main__":
    localhost_names.resolve()
    main(sys.argv[1], Path(sys.argv[2]))
