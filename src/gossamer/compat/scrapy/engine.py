"""Replaces Scrapy's engine: downloads for code that waits for a response, and closes the spider.

Such downloads (inline requests, files and images of media pipelines) follow the pace, robots.txt and routes as pages
do, and are not queued: a page that is retried downloads again.
How it fails: a failed download raises the exception that Scrapy would; missing methods say what to do instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred, succeed

from ...errors import FetchFailed, FetchRefused, ParseFailed
from ...model.task import Request
from ...parse.page_context import ask_here
from .early_end import USUAL, EarlyEnd
from .responses import made_response, network_error

NO_PAGE = (
    "crawler.engine.download: {url} was requested outside the processing of a page. Callbacks and pipelines of a "
    "crawl can do so; a reparse makes no requests."
)


class CrawlerEngine:
    """The object at `crawler.engine`. `queued` converts a Scrapy request to ours, `received` tells of a response."""

    def __init__(self, closing: EarlyEnd) -> None:
        self._closing = closing
        self.queued: Callable[[scrapy.Request], Request] | None = None
        self.received: Callable[[Response], Awaitable[None]] | None = None
        self._asked: list[scrapy.Request] = []
        self.missed = 0  # downloads that were requested where none can be made

    async def download_async(self, request: scrapy.Request) -> Response:
        """The response, whatever its status. Raises IgnoreRequest, and Twisted's connection errors."""
        ask = ask_here()
        if ask is None or self.queued is None:
            self.missed += 1
            raise ParseFailed(NO_PAGE.format(url=request.url[:200]))
        try:
            page = await ask(self.queued(request))
        except FetchRefused as error:
            raise IgnoreRequest(str(error)) from error
        except FetchFailed as error:
            raise network_error(error.reason, str(error)) from error
        response = made_response(page.url, page.status, page.headers, page.body, request)
        if self.received is not None:
            await self.received(response)
        return response

    def download(self, request: scrapy.Request) -> Deferred[Response]:
        return deferred_from_coro(self.download_async(request))

    def crawl(self, request: scrapy.Request) -> None:
        """Queue a request: with the page whose code makes it, or at once if the spider is idle."""
        self._asked.append(request)

    def taken(self) -> list[scrapy.Request]:
        """The requests to be queued; each is returned once."""
        asked, self._asked = self._asked, []
        return asked

    def close_spider(self, spider: object = None, reason: str = USUAL) -> Deferred[None]:
        self._closing.ask(reason)
        return succeed(None)

    async def close_spider_async(self, *, reason: str = USUAL) -> None:
        self._closing.ask(reason)

    def __getattr__(self, name: str) -> NoReturn:
        raise ParseFailed(
            f"crawler.engine.{name} does not exist: Gossamer's queue and fetcher replace it. Yield a request "
            f"instead, with a callback that continues."
        )
