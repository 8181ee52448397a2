"""DOWNLOADER_MIDDLEWARES of a Scrapy project, as an extension around each request for a page.

What it does: `process_request` may change headers or respond itself, `process_response` may change the response,
`process_exception` receives failures. The request that they see has its meta; what they write there reaches other
middlewares, not the callback.
How it fails: a request in place of a response means: retry later. One for another URL, or with a proxy set by the
middleware, is refused. IgnoreRequest gives the page up.
"""

from __future__ import annotations

from typing import Any

import msgspec
import scrapy
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response as ScrapyResponse

from ..crawl.extension import Extension, NextFetch
from ..errors import ExtensionFailed, FetchFailed, FetchRefused
from ..fetch.contract import Response
from ..fetch.fetcher import FetchRequest
from ..model.page import Headers
from .components import call, settled
from .requests import request_of
from .responses import made_response


class DownloaderMiddlewares(Extension):
    """The middlewares of one job, the first one nearest to the engine."""

    def __init__(self, parts: list[Any], spider: scrapy.Spider) -> None:
        self._parts = parts
        self._spider = spider
        self._sends_cookies = spider.settings.getbool("COOKIES_ENABLED")

    async def around_fetch(self, request: FetchRequest, next: NextFetch) -> Response:
        if not self._sends_cookies:
            kept = tuple(pair for pair in request.headers if pair[0].lower() != "cookie")
            request = msgspec.structs.replace(request, headers=kept)
        if not self._parts:
            return await next(request)
        asked = request_of(request.url, request.data, self._spider).replace(
            method=request.method, headers=dict(request.headers)
        )
        proxy = asked.meta.get("proxy")
        sent: list[tuple[Response, ScrapyResponse, bytes]] = []  # its headers as they came

        async def send() -> ScrapyResponse:
            if asked.meta.get("proxy") != proxy:
                raise ExtensionFailed(
                    f"A downloader middleware chose a proxy for {request.url}. Pools of proxies are in gossamer.toml: "
                    f"[proxies.NAME]; each page then takes one of them."
                )
            ours = await next(_changed(request, asked))
            theirs = made_response(ours.url, ours.status, ours.headers, ours.body, asked)
            sent.append((ours, theirs, theirs.headers.to_string()))
            return theirs

        try:
            answer = await self._answer(asked, send)
        except IgnoreRequest as error:
            raise FetchRefused(f"A downloader middleware ignores {request.url}: {error}") from error
        if sent and answer is sent[0][1] and answer.headers.to_string() == sent[0][2]:
            return sent[0][0]
        return _ours(answer, sent[0][0] if sent else None)

    async def _answer(self, asked: scrapy.Request, send: Any) -> ScrapyResponse:
        try:
            answer = await self._asked(asked)
            if answer is None:
                answer = await send()
        except (FetchFailed, FetchRefused) as error:
            answer = await self._after(error, asked)
        for part in reversed(self._parts):
            if hasattr(part, "process_response"):
                given = call(part.process_response, spider=self._spider, request=asked, response=answer)
                answer = _answered(await settled(given, type(part).__name__), part, asked)
        return answer

    async def _asked(self, asked: scrapy.Request) -> ScrapyResponse | None:
        for part in self._parts:
            if hasattr(part, "process_request"):
                given = call(part.process_request, spider=self._spider, request=asked)
                given = await settled(given, type(part).__name__)
                if given is not None:
                    return _answered(given, part, asked)
        return None

    async def _after(self, error: Exception, asked: scrapy.Request) -> ScrapyResponse:
        for part in reversed(self._parts):
            if hasattr(part, "process_exception"):
                given = call(part.process_exception, spider=self._spider, request=asked, exception=error)
                given = await settled(given, type(part).__name__)
                if given is not None:
                    return _answered(given, part, asked)
        raise error


def _answered(given: Any, part: object, asked: scrapy.Request) -> ScrapyResponse:
    if isinstance(given, ScrapyResponse):
        return given
    name = type(part).__name__
    if isinstance(given, scrapy.Request) and given.url == asked.url:
        raise FetchFailed(f"{name} wants {asked.url} once more.")
    what = f"a request for {given.url}" if isinstance(given, scrapy.Request) else f"a {type(given).__name__}"
    raise ExtensionFailed(f"{name} returned {what} in place of {asked.url}. Yield a request for it in a callback.")


def _changed(request: FetchRequest, asked: scrapy.Request) -> FetchRequest:
    headers = tuple(
        (name.decode("latin-1"), b", ".join(values).decode("utf-8", "replace"))
        for name, values in asked.headers.items()
        if values
    )
    return msgspec.structs.replace(request, url=asked.url, headers=headers)


def _ours(answer: ScrapyResponse, sent: Response | None) -> Response:
    """A response that a middleware made or changed; its cost is that of the request that was sent, if any."""
    pairs = [
        (name.decode("latin-1"), value.decode("utf-8", "replace"))
        for name, values in answer.headers.items()
        for value in values
    ]
    headers, body = Headers(pairs), answer.body
    if sent is not None:
        return msgspec.structs.replace(
            sent, url=answer.url, status=answer.status, headers=headers, body=body, packed=b""
        )
    return Response(url=answer.url, status=answer.status, headers=headers, body=body)
