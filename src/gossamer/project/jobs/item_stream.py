"""The items of a crawl inside your own program: while it goes on (`gossamer.stream`), or later (`report.items()`).

The record store is the buffer: a program that takes its time delays no crawl, and memory holds a few items. Each record
that the job sees comes once, as it is when it is read; the item's own fields, as in exports.
How it fails: an error of the crawl is raised behind the last item. How it recovers: a stream that is left stops the
crawl like Ctrl-C, and the same call continues it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...errors import Transient
from ...settings import Settings
from ...store.contract import RecordQuery
from ..open import Project, open_project
from ..records.files import JoinedRecords
from ..records.live_lines import SeenNumbers

if TYPE_CHECKING:
    from .crawl import CrawlReport, RunningCrawl

Fields = dict[str, Any]  # of an item: any JSON

BUFFER = 100  # items read ahead
LOOK = timedelta(milliseconds=200)
CHUNK = 100  # items that one thread hands to another at once
_END: list[Fields] = []


class ItemStream:
    """The items of one crawl, on their way. `follow` runs beside the crawl; `rest` is read when it is over."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[Fields] = asyncio.Queue(maxsize=BUFFER)
        self._seen = SeenNumbers()

    async def follow(self, running: RunningCrawl) -> None:
        project, after = running.project, None
        while True:
            try:
                upto = await project.records.cursor()
                if upto != after:
                    query = RecordQuery(job=running.job.id, gone=False, after=after, upto=upto)
                    async for item in self._new(project, query):
                        await self.items.put(item)
                    after = upto
            except Transient:  # the next look tries again
                pass
            await project.clock.sleep(LOOK.total_seconds())

    async def rest(self, report: CrawlReport) -> AsyncIterator[Fields]:
        assert report.settings is not None
        async with open_project(report.settings, to_look=True) as project:
            async for item in self._new(project, RecordQuery(job=report.job.id, gone=False)):
                yield item

    async def _new(self, project: Project, query: RecordQuery) -> AsyncIterator[Fields]:
        async for record in JoinedRecords(project.records, project.rules).records(query):
            if record.number not in self._seen:
                yield record.data
                self._seen.add(record.number)  # behind it: what was not taken comes again


async def streamed(crawling: asyncio.Task[CrawlReport], stream: ItemStream) -> AsyncGenerator[Fields, None]:
    """The items while the crawl goes on, then the rest. Leaving it stops the crawl."""
    try:
        while not crawling.done():
            coming = asyncio.ensure_future(stream.items.get())
            try:
                await asyncio.wait({coming, crawling}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
            if coming.done() and not coming.cancelled():
                yield coming.result()
        while not stream.items.empty():
            yield stream.items.get_nowait()
        async for item in stream.rest(await crawling):
            yield item
    finally:
        crawling.cancel()
        await asyncio.gather(crawling, return_exceptions=True)


def items_of_job(settings: Settings, job: str) -> Iterator[Fields]:
    """Every item that a job saw, one after the other, in flat memory; also where an event loop is running, as in
    notebooks. Raises what the record store raises."""
    chunks: queue.Queue[list[Fields] | BaseException] = queue.Queue(maxsize=2)
    left = threading.Event()

    def put(chunk: list[Fields] | BaseException) -> None:
        while not left.is_set():
            with suppress(queue.Full):
                chunks.put(chunk, timeout=0.1)
                return

    async def read() -> None:
        async with open_project(settings, to_look=True) as project:
            some: list[Fields] = []
            records = JoinedRecords(project.records, project.rules).records(RecordQuery(job=job, gone=False))
            async for record in records:
                some.append(record.data)
                if len(some) == CHUNK:
                    await asyncio.to_thread(put, some)
                    some = []
                if left.is_set():
                    return
            put(some)

    def work() -> None:
        try:
            asyncio.run(read())
        except BaseException as error:  # raised in the thread that reads the items
            put(error)
        else:
            put(_END)

    reader = threading.Thread(target=work, name="items", daemon=True)
    reader.start()
    try:
        while (chunk := chunks.get()) is not _END:
            if isinstance(chunk, BaseException):
                raise chunk
            yield from chunk
    finally:
        left.set()
        reader.join()
