"""DOWNLOADER_MIDDLEWARES of a Scrapy project, as an extension around each request for a page.

What it does: `process_request` may change headers or respond itself, `process_response` may change the response,
`process_exception` receives failures. The request that they see has its meta and its callback; what they write into
`meta` reaches the callback: texts, numbers and what else a queue can hold. A proxy that they choose is used, if the
address guard lets it.
A request that they give in place of the page's is made at once, at the pace of its site, and its answer is the
page's; the same for a request whose method or body they change.
How it fails: the tenth request in place of one is refused. IgnoreRequest gives the page up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import msgspec
import scrapy
from scrapy import signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse
from scrapy.http import Response as ScrapyResponse
from scrapy.utils.response import get_meta_refresh

from ...crawl.extension import Extension, NextFetch
from ...errors import ExtensionFailed, FetchFailed, FetchRefused, Misconfigured
from ...fetch.contract import Response, Verdict
from ...fetch.fetcher import FetchRequest
from ...model.page import Headers
from ...model.route import Proxy
from ...model.url import site_of
from ...parse.page_context import PageContext, Stats, ask_here, can_count, working_on
from ...routing.proxies.sources import parse_proxy
from .components import ProjectCrawler, call, settled
from .headers import sendable
from .requests import ANSWERED_AT, COUNTED, META, RequestTerms, queued, request_of, travelling
from .responses import made_response, network_error

MOST_AGAIN = 10  # requests that middlewares make in place of one
_OURS = frozenset(
    {"depth", "download_slot", "redirect_times", "redirect_urls", "redirect_reasons"}
)  # told from elsewhere
Send = Callable[[scrapy.Request], Awaitable[ScrapyResponse]]
_PLAIN: ContextVar[bool] = ContextVar("gossamer_plain_request", default=False)  # sent by a middleware that has seen it


class DownloaderMiddlewares(Extension):
    """The middlewares of one job, the first one nearest to the engine."""

    def __init__(self, parts: list[Any], terms: RequestTerms, crawler: ProjectCrawler) -> None:
        self._crawler = crawler
        self._parts = parts
        self._terms = terms
        self._spider = terms.spider

    async def around_fetch(self, request: FetchRequest, next: NextFetch) -> Response:
        if _PLAIN.get():
            return await next(request)
        counted: dict[str, int] = {}
        with working_on(PageContext("", request.url, counted)):
            found = await self._through(request, next, counted)
        for name, count in counted.items() if can_count() else ():  # a page waits for this answer: it counts there
            Stats().add(name, count)
        return found

    async def _through(self, request: FetchRequest, next: NextFetch, counted: dict[str, int]) -> Response:
        spider, crawler = self._spider, self._crawler
        first = request_of(request.url, request.data, spider, kind=request.kind or "parse", depth=request.depth)
        asked = first.replace(method=request.method, headers=dict(request.headers), body=request.body or b"")
        sent: list[tuple[Response, ScrapyResponse, bytes]] = []  # the latest response, with its headers as they came

        async def send(asked: scrapy.Request) -> ScrapyResponse:
            crawler.say(signals.request_reached_downloader, request=asked)
            try:
                if _is_another(asked, request):
                    return await self._by_itself(asked, plain=True)
                ours = await next(self._changed(request, asked, first.meta))
            finally:
                crawler.say(signals.request_left_downloader, request=asked)
            asked.meta["download_latency"] = ours.seconds
            theirs = made_response(asked.url, ours.status, ours.headers, ours.body, asked)
            sent[:] = [(ours, theirs, theirs.headers.to_string())]
            crawler.say(signals.response_downloaded, response=theirs, request=asked)
            return theirs

        try:
            answer, asked = await self._answer(asked, send, request)
        except IgnoreRequest as error:
            raise FetchRefused(f"A downloader middleware ignores {request.url}: {error}") from error
        if sent and answer is sent[0][1] and answer.headers.to_string() == sent[0][2] and answer.url == request.url:
            found = sent[0][0]
        else:
            found = _ours(answer, sent[0][0] if sent else None)
        if (onward := self._refreshes(asked, answer)) is not None:
            headers = Headers([*((n, v) for n, v in found.headers if n.lower() != "location"), ("Location", onward)])
            found = msgspec.structs.replace(found, status=302, headers=headers)
        more: dict[str, Any] = {COUNTED: counted} if counted else {}
        if site_of(found.url) != site_of(request.url):  # the page stays the one that was asked for
            more[ANSWERED_AT] = found.url
            found = msgspec.structs.replace(found, url=request.url)
        return msgspec.structs.replace(found, verdict=self._verdict(request, asked, found.status, more))

    def _refreshes(self, asked: scrapy.Request, answer: ScrapyResponse) -> str | None:
        """Where the page's refresh tag leads, as Scrapy follows it."""
        settings = self._crawler.settings
        if not isinstance(answer, HtmlResponse) or answer.status != 200 or asked.method == "HEAD":
            return None
        if asked.meta.get("dont_redirect") or not settings.getbool("METAREFRESH_ENABLED"):
            return None
        if b"refresh" not in answer.body[:4096].lower():  # as far as Scrapy looks
            return None
        interval, url = get_meta_refresh(answer, ignore_tags=settings.getlist("METAREFRESH_IGNORE_TAGS"))
        soon = interval is not None and interval < settings.getint("METAREFRESH_MAXDELAY")
        return url if url and soon and url.startswith("http") and url != answer.url else None

    def _verdict(self, request: FetchRequest, asked: scrapy.Request, status: int, more: dict[str, Any]) -> Verdict:
        meta = travelling({name: one for name, one in asked.meta.items() if name not in _OURS}, self._terms.warn)
        return Verdict(
            wanted=status in self._terms.statuses_for(asked.meta),
            keeps_cookies=self._terms.keeps_cookies and not asked.meta.get("dont_merge_cookies"),
            data_json=msgspec.json.encode({**request.data, META: meta, **more}).decode(),
        )

    async def _answer(
        self, asked: scrapy.Request, send: Send, page: FetchRequest
    ) -> tuple[ScrapyResponse, scrapy.Request]:
        for _ in range(MOST_AGAIN):
            given = await self._once(asked, send)
            if isinstance(given, ScrapyResponse):
                return given, asked
            if _is_another(given, page):
                return await self._by_itself(given), given
            asked = given
        raise ExtensionFailed(f"Downloader middlewares wanted {asked.url} {MOST_AGAIN} times in a row.")

    async def _by_itself(self, asked: scrapy.Request, *, plain: bool = False) -> ScrapyResponse:
        """The answer to a request that is not the page's, at the pace of its site; `plain`: past the middlewares."""
        ask = ask_here()
        if ask is None:
            raise ExtensionFailed(f"A middleware asks for {asked.url} where no crawl can make a request.")
        token = _PLAIN.set(plain)
        try:
            page = await ask(queued(asked, self._terms, inline=True))
        finally:
            _PLAIN.reset(token)
        return made_response(page.url, page.status, page.headers, page.body, asked)

    async def _once(self, asked: scrapy.Request, send: Send) -> ScrapyResponse | scrapy.Request:
        """The response, or the request that a middleware gives in its place."""
        try:
            answer = await self._asked(asked)
            if answer is None:
                answer = await send(asked)
        except (FetchFailed, FetchRefused, IgnoreRequest) as error:
            answer = await self._after(error, asked)
        for part in reversed(self._parts):
            if isinstance(answer, scrapy.Request):
                break
            if hasattr(part, "process_response"):
                given = call(part.process_response, spider=self._spider, request=asked, response=answer)
                answer = _answered(await settled(given, type(part).__name__), part, asked)
        return answer

    async def _asked(self, asked: scrapy.Request) -> ScrapyResponse | scrapy.Request | None:
        for part in self._parts:
            if hasattr(part, "process_request"):
                given = call(part.process_request, spider=self._spider, request=asked)
                given = await settled(given, type(part).__name__)
                if given is not None:
                    return _answered(given, part, asked)
        return None

    async def _after(self, error: Exception, asked: scrapy.Request) -> ScrapyResponse | scrapy.Request:
        theirs = error
        if isinstance(error, FetchFailed | FetchRefused):
            theirs = network_error(error.reason, str(error))
        for part in reversed(self._parts):
            if hasattr(part, "process_exception"):
                given = call(part.process_exception, spider=self._spider, request=asked, exception=theirs)
                given = await settled(given, type(part).__name__)
                if given is not None:
                    return _answered(given, part, asked)
        raise error

    def _changed(self, request: FetchRequest, asked: scrapy.Request, first: dict[str, Any]) -> FetchRequest:
        headers = tuple(sendable(asked.headers, asked.url, self._terms.warn))
        if asked.meta.get("dont_merge_cookies"):
            own = {name.lower(): value for name, value in request.headers if name.lower() == "cookie"}
            written = [value.decode("utf-8", "replace") for value in asked.headers.getlist("Cookie")]
            if written == list(own.values()):  # those of the session, which the middleware did not write
                headers = tuple(pair for pair in headers if pair[0].lower() != "cookie")
        timeout = asked.meta.get("download_timeout")
        return msgspec.structs.replace(
            request,
            url=asked.url,
            headers=headers,
            timeout=timedelta(seconds=float(timeout)) if timeout and timeout != first.get("download_timeout") else None,
            proxy=self._proxy(asked, first),
        )

    def _proxy(self, asked: scrapy.Request, first: dict[str, Any]) -> Proxy | None:
        proxy = asked.meta.get("proxy")
        if not proxy or proxy == first.get("proxy"):
            return None  # that of the request itself named a pool, which is the route
        try:
            return parse_proxy(str(proxy), pool="of a middleware", where="meta['proxy']")
        except Misconfigured as error:
            raise ExtensionFailed(f"A downloader middleware chose a proxy for {asked.url}. {error}") from error


def _answered(given: Any, part: object, asked: scrapy.Request) -> ScrapyResponse | scrapy.Request:
    if isinstance(given, ScrapyResponse | scrapy.Request):
        return given
    raise ExtensionFailed(f"{type(part).__name__} returned a {type(given).__name__} in place of {asked.url}.")


def _is_another(asked: scrapy.Request, page: FetchRequest) -> bool:
    """Is it a request that cannot be sent as the page's own, whose site and whose method the queue knows?"""
    same = (asked.method, asked.body) == (page.method, page.body or b"")
    return not same or site_of(asked.url) != site_of(page.url)


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
