"""Converts Scrapy's requests to ours and back: what a callback yields is queued, and `response.request` is rebuilt.

Callbacks travel by name, `meta` and `cb_kwargs` as JSON in the data of the request. A request that cannot be queued is
refused with the line that yielded it: ParseFailed.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.settings import BaseSettings
from scrapy.utils.url import url_is_from_any_domain

from ...errors import ParseFailed
from ...model.route import BROWSER, MANAGED, PROFILE
from ...model.task import DEFAULT_KIND, Request
from ...parse.page import Page
from .callbacks import FOREIGN, ForeignCallbacks, foreign_name, own_name
from .declarations import declared
from .headers import COOKIE, cookies_in, sendable
from .playwright import PLAYWRIGHT, WITHOUT_EFFECT, queueable, render_of
from .values import NotQueueable, read, written

REDIRECTS = (301, 302, 303, 307, 308)
ERRORS = tuple(range(400, 600))
META, CB_KWARGS, REQUEST = "meta", "cb_kwargs", "request"  # the keys of the data of a queued request
ITEMS = "items"  # ... and of a request of start(): items that came before it
VISITED = "visited"  # ... and of a redirect target: [[URL, status], ...]
COUNTED, ANSWERED_AT = "counted", "answered_at"  # what downloader middlewares counted, and where the answer is from
_OF_REDIRECTS = ("redirect_times", "redirect_urls", "redirect_reasons")
# Keys that Scrapy's own middlewares write into meta, and we know from elsewhere.
_OF_SCRAPY = (
    "depth", "download_slot", "download_latency", "download_timeout", "redirect_ttl", "is_start_request",
    "_auth_proxy", "verbatim_url", *_OF_REDIRECTS,
)  # fmt: skip
# Keys of meta by which download handlers of others are asked for: scrapy-impersonate, scrapy-zyte-api.
_HANDLERS = {"impersonate": PROFILE, "zyte_api": MANAGED, "zyte_api_automap": MANAGED}
_UNFETCHABLE = ("ftp", "s3", "file", "data")  # Scrapy has handlers for them; other schemes it drops, and so do we
_MOST_WARNINGS = 100  # of one spider in one process
_LONGEST_BODY = 64 * 1024  # of a request, kept for `response.request`
_SILENT: Callable[[str], None] = lambda words: None  # noqa: E731 - live objects in meta stay with the code that waits


class RequestTerms:
    """The terms of all requests of one spider. `pool_of` finds the pool that contains a proxy's address."""

    def __init__(
        self,
        spider: scrapy.Spider,
        session: str | None,
        pool_of: Callable[[str], str | None],
        kinds: Set[str] = frozenset(),
    ) -> None:
        self.spider = spider
        self._kinds = kinds
        self._warned: set[str] = set()
        self.keeps_cookies = spider.settings.getbool("COOKIES_ENABLED")
        self.session = session
        self.pool_of = pool_of
        settings = spider.settings
        self._allowed = set(allowed_statuses(spider, settings))
        self._follows = settings.getbool("REDIRECT_ENABLED")
        user = getattr(spider, "http_user", "") or settings.get("HTTPAUTH_USER") or ""
        password = getattr(spider, "http_pass", "") or settings.get("HTTPAUTH_PASS") or ""
        domain = getattr(spider, "http_auth_domain", None) or settings.get("HTTPAUTH_DOMAIN")
        self._login = (user, password) if user or password else None
        self._login_domains = [domain] if domain else []

    def warn(self, words: str) -> None:
        """Log a warning, once in this process."""
        if words not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add(words)
            self.spider.logger.warning(words)

    def fetcher_for(self, meta: Mapping[str, Any]) -> str | None:
        """The kind of transport that stands for the download handler which the meta asks for, if a route has it."""
        if meta.get(PLAYWRIGHT):
            return BROWSER
        for key, kind in _HANDLERS.items():
            if meta.get(key):
                if kind in self._kinds:
                    return kind
                self.warn(f"meta[{key!r}] has no effect: no route has the transport {kind!r}. See docs/routes.md.")
        return None

    def login_for(self, request: scrapy.Request) -> tuple[str, str] | None:
        if self._login is None or "Authorization" in request.headers:
            return None
        anywhere = not self._login_domains
        return self._login if anywhere or url_is_from_any_domain(request.url, self._login_domains) else None

    def may_have(self, status: int, meta: Mapping[str, Any]) -> bool:
        """May a callback get a page of that status?"""
        if 200 <= status < 300 or meta.get("handle_httpstatus_all"):
            return True
        own = meta.get("handle_httpstatus_list")
        return status in (self._allowed if own is None else own)

    def statuses_for(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """The errors and redirects that a request wants passed to its callback, beyond the errors that all of them
        want."""
        if meta.get("handle_httpstatus_all"):
            return (*REDIRECTS, *ERRORS)
        unfollowed = REDIRECTS if meta.get("dont_redirect") or not self._follows else ()
        own = meta.get("handle_httpstatus_list")
        # Media pipelines have an object there that supports only `in`.
        allowed = self._allowed.intersection(REDIRECTS) if own is None else own
        listed = {code for code in (*REDIRECTS, *ERRORS) if code in allowed}
        return tuple(sorted({*unfollowed, *listed}))


def allowed_statuses(spider: scrapy.Spider | type[scrapy.Spider], settings: BaseSettings) -> tuple[int, ...]:
    """The errors and redirects that callbacks of the spider get, whatever its requests say."""
    get = partial(declared, spider) if isinstance(spider, type) else partial(getattr, spider)
    if settings.getbool("HTTPERROR_ALLOW_ALL") or get("handle_httpstatus_all", False):
        return (*REDIRECTS, *ERRORS)
    codes = (*settings.getlist("HTTPERROR_ALLOWED_CODES"), *(get("handle_httpstatus_list", ()) or ()))
    return tuple(sorted({int(code) for code in codes}))


def queued(
    request: scrapy.Request,
    terms: RequestTerms,
    place: str = "",
    *,
    seed: bool = False,
    inline: bool = False,
    items: Sequence[Any] = (),
) -> Request:
    """The request for the queue. `place` is the line that yielded it. An `inline` request, made by code that waits for
    the response, has no callback. `items` are stored with its page. Raises ParseFailed."""
    meta = request.meta
    pool = _pool_of(request, terms, place)
    timeout = meta.get("download_timeout")
    retries = 0 if meta.get("dont_retry") else meta.get("max_retry_times")
    scheme = request.url.partition(":")[0].lower()
    if scheme in _UNFETCHABLE:
        raise refusal(
            f"the request for {request.url:.200} cannot be queued: Gossamer fetches http and https, not {scheme}. "
            f"Fetch it in a program of your own, and crawl what it gives as a list of URLs",
            place,
        )
    rendered = bool(meta.get(PLAYWRIGHT))
    try:
        render = render_of(meta, terms.warn) if rendered else None
    except ValueError as error:
        raise refusal(f"the request for {request.url:.200} cannot be rendered: {error}", place) from None
    headers = dict(sendable(request.headers, request.url, terms.warn))
    cookies = _cookies_of(request, headers, terms)
    far = {} if inline else {
        role: name for role in ("callback", "errback") if (name := _foreign(getattr(request, role), terms.spider))
    }  # fmt: skip
    data = {META: travelling(meta, _SILENT)} if inline else _data(request, place, items, far)
    return Request(
        url=request.url,
        kind=_kind_of(request, terms.spider, "callback", place, inline, far) or DEFAULT_KIND,
        errback=_kind_of(request, terms.spider, "errback", place, inline, far),
        priority=request.priority,
        data=data,
        force=request.dont_filter and not seed,
        unlinked=request.dont_filter and seed,  # Scrapy notes no URL of such a request as seen
        offsite=request.dont_filter or bool(meta.get("allow_offsite")),
        fetcher=terms.fetcher_for(meta),
        render=render,
        proxy_pool=pool,
        session=_session(meta, terms.session),
        max_attempts=int(retries) + 1 if retries is not None else None,
        method=request.method,
        headers=headers or None,
        body=request.body or None,
        cookies=cookies,
        auth=terms.login_for(request),
        timeout=float(timeout) if timeout else None,
        handle_statuses=terms.statuses_for(meta),
    )


def restored(page: Page, spider: scrapy.Spider) -> scrapy.Request:
    """The request that led to a page, for its callback. Raises ParseFailed."""
    return request_of(page.requested_url, page.data, spider, kind=page.kind, depth=page.depth)


def request_of(
    url: str, data: Mapping[str, Any], spider: scrapy.Spider, *, kind: str = DEFAULT_KIND, depth: int | None = None
) -> scrapy.Request:
    """Rebuild a Scrapy request from the data that was queued with it. Raises ParseFailed."""
    told = data.get(REQUEST) or {}
    try:
        meta, cb_kwargs = read(data.get(META) or {}), read(data.get(CB_KWARGS) or {})
    except NotQueueable as error:
        raise ParseFailed(f"{url} cannot be parsed: {error}.") from error
    if depth is not None:
        meta |= {"depth": depth, "download_slot": urlsplit(url).hostname or ""}
    if visited := data.get(VISITED):
        reasons = [status for _, status in visited]
        meta |= zip(_OF_REDIRECTS, (len(visited), [one for one, _ in visited], reasons), strict=True)
    callback = getattr(spider, kind, None) if kind != DEFAULT_KIND or told.get("callback") else None
    errback = getattr(spider, told["errback"], None) if told.get("errback") else None
    if far := data.get(FOREIGN):
        foreign: ForeignCallbacks = spider.crawler.foreign  # type: ignore[attr-defined]  # of our crawler
        callback = foreign.get(far["callback"]) if "callback" in far else callback
        errback = foreign.get(far["errback"]) if "errback" in far else errback
    return scrapy.Request(
        url,
        callback=callback,
        errback=errback,
        method=told.get("method", "GET"),
        headers=told.get("headers"),
        body=b64decode(told["body"]) if "body" in told else None,
        cookies=told.get("cookies"),
        meta=meta,
        cb_kwargs=cb_kwargs,
        priority=told.get("priority", 0),
        dont_filter=told.get("dont_filter", False),
        flags=told.get("flags"),
    )


def redirected(data: Mapping[str, Any], url: str, status: int) -> dict[str, Any]:
    """The data of the request that follows a redirect from `url`."""
    return {**data, VISITED: [*data.get(VISITED, ()), [url, status]]}


def mark_of(data: Mapping[str, Any], kind: str) -> str:
    """What tells requests for one URL apart; "" for a plain one. Items without their own key need it."""
    told = data.get(REQUEST) or {}
    parts = [told.get("method", ""), told.get("body", "")]
    if told.get("dont_filter"):
        parts += ["" if kind == DEFAULT_KIND else kind, repr(data.get(CB_KWARGS) or "")]
    if not any(parts):
        return ""
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=5).hexdigest()


def travelling(meta: Mapping[str, Any], warn: Callable[[str], None]) -> dict[str, Any]:
    """What of the meta a queue can hold; the rest is left out with a warning."""
    kept = {}
    for name, value in queueable(meta).items():
        try:
            kept[str(name)] = written(value, f"meta[{name!r}]")
        except NotQueueable as error:
            warn(f"What a middleware wrote into meta does not reach the callback: {error}.")
    return kept


def start_items(data: Mapping[str, Any]) -> list[Any]:
    """The items that start() yielded before a request. Raises ParseFailed."""
    try:
        return [read(one) for one in data.get(ITEMS, ())]
    except NotQueueable as error:
        raise ParseFailed(f"Items of start() cannot be read: {error}.") from error


def _data(request: scrapy.Request, place: str, items: Sequence[Any], far: Mapping[str, str]) -> dict[str, Any]:
    meta = {name: value for name, value in queueable(request.meta).items() if name not in _OF_SCRAPY}
    meta = {name: value for name, value in meta.items() if name not in WITHOUT_EFFECT}
    try:
        data = {META: written(meta, META), CB_KWARGS: written(request.cb_kwargs, CB_KWARGS), REQUEST: _told(request)}
        data[FOREIGN] = dict(far)
        data[ITEMS] = [written(one, "an item of start()") for one in items]
    except NotQueueable as error:
        raise refusal(
            f"the request for {request.url:.200} cannot be queued: {error}. Give it texts, numbers, lists, dicts, "
            f"dates or items",
            place,
        ) from None
    return {name: value for name, value in data.items() if value}


def _told(request: scrapy.Request) -> dict[str, Any]:
    """What `response.request` shows besides URL, callback and meta, if it is not the default."""
    body = request.body if len(request.body) <= _LONGEST_BODY else b""
    told = {
        "method": "" if request.method == "GET" else request.method,
        "headers": {
            name.decode("latin-1"): [value.decode("utf-8", "replace") for value in values]
            for name, values in request.headers.items()
        },
        "body": b64encode(body).decode(),
        "cookies": request.cookies,
        "priority": request.priority,
        "dont_filter": request.dont_filter,
        "flags": request.flags,
        "errback": getattr(request.errback, "__name__", ""),
        "callback": DEFAULT_KIND if getattr(request.callback, "__name__", "") == DEFAULT_KIND else "",
    }
    return {name: written(value, name) for name, value in told.items() if value}


def _foreign(method: Callable[..., Any] | None, spider: scrapy.Spider) -> str | None:
    if method is None or own_name(method, spider) is not None:
        return None
    return foreign_name(method, spider)


def _kind_of(
    request: scrapy.Request, spider: scrapy.Spider, role: str, place: str, inline: bool, far: Mapping[str, str]
) -> str | None:
    """The name under which the callback or the errback is queued. Raises ParseFailed."""
    method: Callable[..., Any] | None = None if inline else getattr(request, role)
    if method is None:
        return None
    if role in far:
        return DEFAULT_KIND
    if (own := own_name(method, spider)) is not None:
        return own
    name = getattr(method, "__name__", "")
    code = getattr(method, "__code__", None)
    where = f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else place
    what = "a lambda" if name == "<lambda>" else name or type(method).__name__
    raise refusal(
        f"the {role} of the request for {request.url:.200} is {what}, not a method of the spider {spider.name}. A "
        f"queue can only name methods: write def {role}(self, ...) in the class, and pass values in cb_kwargs",
        where,
    )


def refusal(words: str, place: str) -> ParseFailed:
    return ParseFailed(f"{place}: {words}." if place else f"{words[0].upper()}{words[1:]}.")


def _session(meta: Mapping[str, Any], usual: str | None) -> str | None:
    jar = meta.get("cookiejar")
    return f"jar-{jar}"[:100] if jar is not None else usual


def _cookies_of(request: scrapy.Request, headers: dict[str, str], terms: RequestTerms) -> dict[str, str] | None:
    """The cookies to be sent. As in Scrapy a header `Cookie` counts where cookies are not kept, and only there."""
    header = next((headers.pop(name) for name in list(headers) if name.lower() == COOKIE), "")
    if terms.keeps_cookies and not request.meta.get("dont_merge_cookies"):
        return _cookies(request.cookies)
    return cookies_in(header) or None


def _cookies(cookies: Any) -> dict[str, str] | None:
    """Cookies of one request: a dict, or a list of dicts with name and value."""
    if not cookies:
        return None
    pairs = cookies.items() if isinstance(cookies, dict) else [(one.get("name"), one.get("value")) for one in cookies]
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _pool_of(request: scrapy.Request, terms: RequestTerms, place: str) -> str | None:
    address = request.meta.get("proxy")
    if not address:
        return None
    pool = terms.pool_of(str(address))
    if pool is None:  # leaving without it would reveal who is asking
        raise refusal(
            f"the request for {request.url:.200} names a proxy in meta that is not in a pool. Add it to "
            f"gossamer.toml: [proxies.NAME] with urls = [...]",
            place,
        )
    return pool
