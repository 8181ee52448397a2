"""One page through a Scrapy spider: middlewares, callback, middlewares; then its items through the pipelines.

How it fails: any exception of a callback or a middleware fails the page, which becomes a dead letter with its
traceback. What a callback yielded before is kept, as in Scrapy.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import scrapy
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import CloseSpider, DropItem
from scrapy.http import Response
from scrapy.utils.misc import arg_to_iter
from twisted.python.failure import Failure as TwistedFailure

from ...errors import ParseFailed
from ...pipeline.steps import Drop
from .components import ProjectCrawler, call, settled
from .early_end import ERRORS, ITEMS


class CallbackFailed(Exception):
    """A callback failed, for the `__cause__`. `before` is what it yielded before."""

    def __init__(self, before: list[Any]) -> None:
        super().__init__()
        self.before = before


Places = dict[int, str]  # by identity of a request: the line that yielded it


async def collected(given: Any, what: str, places: Places, into: list[Any] | None = None) -> list[Any]:
    """Everything that a callback returns or yields, in order; also in `into`, if it raises midway."""
    given = await settled(given, what)
    found: list[Any] = [] if into is None else into
    if isinstance(given, AsyncIterable):
        async for entry in given:
            _note(entry, getattr(given, "ag_frame", None), places)
            found.append(entry)
        return found
    for entry in arg_to_iter(given):
        if inspect.isgenerator(given):
            _note(entry, _innermost(given), places)
        found.append(entry)
    return found


def _note(entry: Any, frame: Any, places: Places) -> None:
    if frame is not None and isinstance(entry, scrapy.Request):
        places[id(entry)] = f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def _innermost(generator: Any) -> Any:
    while inspect.isgenerator(generator.gi_yieldfrom):
        generator = generator.gi_yieldfrom
    return generator.gi_frame


class SpiderMiddlewares:
    """SPIDER_MIDDLEWARES of the project, the first one nearest to the engine."""

    def __init__(self, parts: list[Any], crawler: ProjectCrawler) -> None:
        self._parts = parts
        self._crawler = crawler

    @property
    def _spider(self) -> scrapy.Spider:
        assert self._crawler.spider is not None
        return self._crawler.spider

    async def scrape(self, callback: Any, response: Response, what: str, places: Places) -> list[Any]:
        """What the callback yields for the response, as the middlewares pass it on."""
        kwargs = response.request.cb_kwargs if response.request is not None else {}
        found: list[Any] = []
        try:
            for part in self._parts:
                if hasattr(part, "process_spider_input"):
                    call(part.process_spider_input, spider=self._spider, response=response)
            await collected(callback(response, **kwargs), what, places, found)
        except CloseSpider as error:  # what it yielded before counts
            self._crawler.closing.ask(error.reason)
        except Exception as error:
            before = await self.passed(response, found, places)
            try:
                return before + await self._recovered(error, response, places)
            except Exception as failure:
                raise CallbackFailed(before) from failure
        return await self.passed(response, found, places)

    async def passed(self, response: Response, found: list[Any], places: Places, after: int = 0) -> list[Any]:
        """The entries as the middlewares pass them on, without the first `after` ones, nearest to the spider."""
        for part in [*reversed(self._parts)][after:]:
            method = _output_method(part)
            if method is None:
                continue
            given: Any = _aiter(found) if inspect.isasyncgenfunction(method) else found
            given = call(method, spider=self._spider, response=response, result=given)
            found = await collected(given, type(part).__name__, places)
        return found

    async def _recovered(self, error: Exception, response: Response, places: Places) -> list[Any]:
        for number, part in enumerate(reversed(self._parts), 1):
            method = getattr(part, "process_spider_exception", None)
            if method is None:
                continue
            given = call(method, spider=self._spider, response=response, exception=error)
            if given is not None:
                found = await collected(given, type(part).__name__, places)
                return await self.passed(response, found, places, after=number)
        failure = TwistedFailure(error)  # type: ignore[no-untyped-call]
        self._crawler.closing.count(ERRORS)
        for name in (ERRORS, f"spider_exceptions/{type(error).__name__}"):
            self._crawler.stats.inc_value(name)
        await self._crawler.tell(signals.spider_error, failure=failure, response=response)
        raise error

    async def start(self) -> AsyncIterator[Any]:
        """The first requests of the spider, as the middlewares let them through."""
        spider = self._spider
        own = type(spider).start if hasattr(type(spider), "start") else None
        old = getattr(type(spider), "start_requests", None)
        if old is not None and (own is None or own is scrapy.Spider.start):
            given: Any = spider.start_requests()  # type: ignore[attr-defined]
        else:
            given = spider.start()
        for part in reversed(self._parts):
            if hasattr(part, "process_start"):
                given = part.process_start(given if isinstance(given, AsyncIterable) else _aiter(given))
            elif hasattr(part, "process_start_requests") and not isinstance(given, AsyncIterable):
                given = call(part.process_start_requests, given, spider=spider)
        if isinstance(given, AsyncIterable):
            async for entry in given:
                yield entry
        else:
            for entry in arg_to_iter(await settled(given, "start")):
                yield entry


def _output_method(part: Any) -> Any:
    return getattr(part, "process_spider_output", None) or getattr(part, "process_spider_output_async", None)


async def _aiter(entries: Iterable[Any]) -> AsyncIterator[Any]:
    for entry in entries:
        yield entry


class ItemPipelines:
    """ITEM_PIPELINES of the project, in order."""

    def __init__(self, parts: list[Any], crawler: ProjectCrawler) -> None:
        self.parts = parts
        self._crawler = crawler

    async def process(self, item: Any, response: Response | None) -> Any:
        """The item as the last pipeline returns it, or why it is dropped."""
        crawler = self._crawler
        assert crawler.spider is not None
        for part in self.parts:
            if not hasattr(part, "process_item"):
                continue
            name = type(part).__name__
            try:
                given = await settled(call(part.process_item, item, spider=crawler.spider), f"{name}.process_item")
            except DropItem as dropped:
                await crawler.tell(signals.item_dropped, item=item, response=response, exception=dropped)
                return Drop(str(dropped) or "no reason given", step=name)
            except Exception as error:
                failure = TwistedFailure(error)  # type: ignore[no-untyped-call]
                await crawler.tell(signals.item_error, item=item, response=response, failure=failure)
                raise
            if not ItemAdapter.is_item(given):
                raise ParseFailed(f"{name}.process_item returned a {type(given).__name__}, not an item.")
            item = given
        crawler.closing.count(ITEMS)
        await crawler.tell(signals.item_scraped, item=item, response=response)
        return item
