"""The bench site crawled with Scrapy and scrapy-redis: `python scrapy_redis_peer.py START_URL FOLDER REDIS_URL`.

Queue and duplicate filter on the server, kept there until the crawl has ended. Otherwise as scrapy_peer.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scrapy.crawler import CrawlerProcess
from scrapy_peer import SETTINGS, Shop


def main(start: str, folder: Path, address: str) -> None:
    process = CrawlerProcess(
        {
            **SETTINGS,
            "FEEDS": {str(folder / "records.jsonl"): {"format": "jsonlines", "encoding": "utf-8"}},
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "SCHEDULER_PERSIST": True,
            "SCHEDULER_FLUSH_ON_START": True,
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": address,
        }
    )
    process.crawl(Shop, start_urls=[start])
    process.start()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
