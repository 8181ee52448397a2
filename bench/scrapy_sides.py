"""The two sides of `bench.scrapy_beside`: what replaces the network in Scrapy and in Gossamer. Copied into the project
that is run, beside scrapy_answers.py."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import scrapy_answers  # type: ignore[import-not-found]  # beside this file, in the project's folder


class Handler:
    """A download handler of Scrapy's."""

    lazy = False

    @classmethod
    def from_crawler(cls, crawler: Any) -> Handler:
        return cls()

    async def download_request(self, request: Any) -> Any:
        from scrapy.http import Headers
        from scrapy.responsetypes import responsetypes

        lines = [(k.decode(), b", ".join(v).decode("utf-8", "replace")) for k, v in request.headers.items()]
        asked = (request.method, request.url, lines, request.body)
        status, headers, body = await asyncio.to_thread(scrapy_answers.fetch, *asked)
        found = Headers()
        for name, value in headers:
            found.appendlist(name, value)
        kind = responsetypes.from_args(headers=found, url=request.url, body=body)
        return kind(url=request.url, status=status, headers=found, body=body, request=request)

    async def close(self) -> None:
        """Nothing is open."""


class Transport:
    """A transport of Gossamer's."""

    async def fetch(self, request: Any) -> Any:
        from gossamer import Response
        from gossamer.model.page import Headers

        if request.gate is not None:
            await request.gate.enter("127.0.0.1")
        asked = (request.method, request.url, list(request.headers), request.body or b"")
        status, headers, body = await asyncio.to_thread(scrapy_answers.fetch, *asked)
        return Response(url=request.url, status=status, headers=Headers(headers), body=body, wire_bytes=len(body))


def run_scrapy(name: str, into: Path, more: dict[str, str]) -> None:
    """Run a spider, and write its items and stats into a file."""
    from scrapy.crawler import CrawlerProcess
    from scrapy.downloadermiddlewares import cookies
    from scrapy.utils.project import get_project_settings
    from tldextract import TLDExtract

    cookies._split_domain = TLDExtract(suffix_list_urls=())  # else it asks the network for a list of suffixes
    settings = get_project_settings()
    handlers = dict.fromkeys(("http", "https"), f"{Handler.__module__}.Handler")
    settings.set("DOWNLOAD_HANDLERS", {**settings.getdict("DOWNLOAD_HANDLERS"), **handlers}, priority="cmdline")
    for setting, value in {"DOWNLOAD_DELAY": 0, "ROBOTSTXT_OBEY": False, **more}.items():
        settings.set(setting, value, priority="cmdline")
    settings.set("TELNETCONSOLE_ENABLED", False, priority="cmdline")
    process = CrawlerProcess(settings)
    crawler = process.create_crawler(name)
    items: list[Any] = []
    crawler.signals.connect(_note(items), signal=_scraped())
    process.crawl(crawler)
    process.start()
    stats = {key: one for key, one in crawler.stats.get_stats().items() if isinstance(one, int | str)}
    (into / f"{name}.json").write_text(json.dumps({"items": items, "stats": stats}, default=str))


_RECEIVERS: list[Any] = []  # the dispatcher keeps weak references


def _note(items: list[Any]) -> Any:
    from itemadapter import ItemAdapter

    def note(item: Any) -> None:
        items.append(json.loads(json.dumps(ItemAdapter(item).asdict(), default=str)))

    _RECEIVERS.append(note)
    return note


def _scraped() -> object:
    from scrapy import signals

    return signals.item_scraped


if __name__ == "__main__":
    run_scrapy(sys.argv[3], Path(sys.argv[1]), json.loads(sys.argv[2]))
