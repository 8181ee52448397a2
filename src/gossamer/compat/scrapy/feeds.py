"""FEEDS of a Scrapy project: written by Scrapy's own exporter, from the records that the job has stored.

A feed is written once, by a `gossamer crawl` that sees the end of the job: it has the items of all workers, each once,
even if workers were killed. Fields are in the order of the item unless FEEDS (or FEED_EXPORT_FIELDS) names them.
How it fails: a feed that cannot be written is logged, as in Scrapy; the records are in the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Item
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.extensions.feedexport import FeedExporter

from ...model.record import StoredRecord


def has_feeds(crawler: Crawler) -> bool:
    return bool(crawler.settings.getdict("FEEDS") or crawler.settings.get("FEED_URI"))


def feed_fault(crawler: Crawler) -> str:
    """What keeps the feeds from being written; "": nothing."""
    try:
        if has_feeds(crawler):
            FeedExporter(crawler)
    except NotConfigured as error:
        why = f" ({error})" if str(error) else ""
        return f"Scrapy setting FEEDS names a format or a place that Scrapy cannot write{why}; nothing is written."
    return ""


async def write_feeds(crawler: Crawler, records: AsyncIterator[StoredRecord]) -> tuple[int, list[str]]:
    """Write the records to every feed; return how many there were, and where the feeds are (of one in batches, its
    first)."""
    spider, count = crawler.spider, 0
    assert spider is not None
    exporter = FeedExporter(crawler)
    classes = {one.__name__: one for feed in exporter.filters.values() for one in feed.item_classes}
    exporter.open_spider(spider)
    slots = list(exporter.slots)
    async for record in records:
        exporter.item_scraped(_item(record, classes.get(record.type)), spider)
        count += 1
    await exporter.close_spider(spider)
    return count, [slot.uri for slot in slots if count or slot.store_empty]


def _item(record: StoredRecord, cls: Any) -> Any:  # Any: a class of items, of any kind
    """The item again if feeds select by class, else its fields."""
    if cls is None:
        return record.data
    return cls(record.data) if issubclass(cls, Item | dict) else cls(**record.data)
