"""A Scrapy project in a folder of its own, run by Scrapy itself and by Gossamer, and what each makes of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gossamer.parse.discovery import load_spider
from gossamer.parse.spider import Spider
from tests.patience import PATIENCE

PROJECT = Path(__file__).with_name("scrapy_project")
SPIDERS = (
    "authors", "chosen", "enough", "files", "listing", "members", "moved", "parts", "quotes", "stock", "stored",
    "waiting", "wares",
)  # fmt: skip

# Every spider in one process, as Scrapy's manual shows it.
RUN_ALL = """
import sys
from scrapy.crawler import CrawlerProcess
from scrapy.downloadermiddlewares import cookies
from scrapy.utils.project import get_project_settings
from tldextract import TLDExtract

cookies._split_domain = TLDExtract(suffix_list_urls=())  # else it asks the network for a list of suffixes
settings = get_project_settings()
settings.set("FEEDS", {"theirs/%(name)s.jsonl": {"format": "jsonlines"}})
process = CrawlerProcess(settings)
for name in sys.argv[1:]:
    process.crawl(name)
process.start()
"""


class ScrapyProject:
    def __init__(self, folder: Path, site: str) -> None:
        self.folder = folder
        shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.environ = {
            "SHELF_SITE": site,
            "SHELF_DATABASE": str(folder / "wares.db"),
            "SHELF_FILES": str(folder / "files"),
        }

    def run_scrapy(self, *names: str) -> dict[str, list[Any]]:
        """The items of each spider, as Scrapy itself exports them."""
        subprocess.run(
            [sys.executable, "-c", RUN_ALL, *names],
            cwd=self.folder,
            env={**os.environ, **self.environ},
            check=True,
            timeout=PATIENCE,
        )
        feeds = {name: self.folder / "theirs" / f"{name}.jsonl" for name in names}
        return {name: sorted_items(map(json.loads, feed.read_text().splitlines())) for name, feed in feeds.items()}

    def spider(self, name: str) -> Spider:
        return load_spider(name, self.folder, "spiders")()


def sorted_items(items: Iterable[Any]) -> list[Any]:
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
