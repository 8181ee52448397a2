"""From a URL to a response: checks robots.txt, sends cookies, judges redirects, paces each request.

What it does: turns one `PageRequest` into `FetchedPage`, `NotModified`, `Redirected` or `Disallowed`.
How it fails: FetchFailed (try later) or FetchRefused (do not), and whatever `before_send` raises.
How it recovers: it keeps no state but the cookies; the same request can be made again.

Redirects go back to the frontier, so that scope, deduplication, robots.txt and the pace of the target apply to them as
to any URL. One kind is followed here: a site that sets a cookie and redirects within itself (or back to the same URL)
expects the cookie at once, and the frontier would often drop the target as the very URL that it has just handed out.
The same holds for a page that redirects back to where it came from, when another page got the cookie meanwhile. A POST
is never sent again because of its redirect: if the page behind it cannot be fetched at once, that redirect goes to the
frontier as well.

A response from a site other than the requested one (a script navigated away, or a vendor reports another final URL)
counts as a redirect there: no site speaks for another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import msgspec

from .. import trace
from ..clock import Clock
from ..errors import (
    BadResponse,
    ConnectFailed,
    ExtensionFailed,
    FetchRefused,
    InvalidUrl,
    ProxyFailed,
    RedirectLoop,
    Transient,
)
from ..model.page import Headers
from ..model.payload import SAFE_METHODS, BadPayload, check_header
from ..model.route import Proxy
from ..model.url import origin_of, parse_url, site_of, user_in, without_user
from .body import ACCEPT_ENCODING
from .contract import BodyReceiver, Gate, Limits, Response
from .cookies import CookieJar
from .logins import Logins
from .open_route import OpenRoute, Pairs
from .robots import BeforeSend, Robots
from .robots_rules import RobotsRules
from .robots_shelf import RobotsEntry

Watch = Callable[[Gate | None], Gate]
LookingUp = Callable[[str], AbstractAsyncContextManager[None]]

PRIVATE = frozenset({"authorization", "cookie", "proxy-authorization"})
_MOVED = frozenset({301, 302, 303, 307, 308})
_NOT_NOW = frozenset({408, 425, 429, 500, 502, 503, 504})


class FileReceiver(BodyReceiver, Protocol):
    """Takes the body of a file. `begin` is called before every request for the file, and returns the headers that ask
    for the part still missing."""

    def begin(self) -> Pairs: ...


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to fetch. `redirects` are the URLs that led here, each with its method in front unless that is GET.

    `cookies`, `auth` and the headers named in `private` are sent to the origin of `url` only. `etag` and
    `last_modified` are the validators of the copy we have. A file is written to the receiver `into`, and has its own
    `limits`.
    """

    url: str
    etag: str = ""
    last_modified: str = ""
    redirects: tuple[str, ...] = ()
    headers: Pairs = ()
    private: frozenset[str] = PRIVATE  # header names, in lower case
    method: str = "GET"
    body: bytes | None = None
    private_body: bool = False  # the body holds secrets, for the origin of `url` only
    follows: bool = False  # follow redirects within the site at once
    kept: tuple[int, ...] = ()  # redirect statuses that count as the page itself
    data: str = ""  # data that the spider attached to the request, as JSON; for extensions
    kind: str = ""  # the callback that the page is for; for extensions
    depth: int = 0  # links from a start page; for extensions
    cookies: Pairs = ()  # sent before those of the jar
    auth: tuple[str, str] | None = None
    timeout: timedelta | None = None  # replaces the timeout of the settings, for each request
    into: FileReceiver | None = None
    limits: Limits | None = None
    robots_answer: bool = False  # the URL is a robots.txt, and the response that the rules were read from is enough


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request for a page, as extensions see it: what will be sent.

    An extension may send it with another `timeout`, or through an `proxy` in place of the route's: a proxy of its own,
    whose address and whose target are checked like all others.
    """

    url: str
    headers: Pairs
    method: str = "GET"
    data_json: str = ""
    kind: str = ""  # the callback that the page is for
    depth: int = 0  # links from a start page
    body: bytes | None = None  # as it will be sent; an extension cannot change it
    timeout: timedelta | None = None  # None: as the settings or the request say
    proxy: Proxy | None = None  # None: that of the route

    @property
    def data(self) -> dict[str, Any]:
        """The data that the spider attached to the request."""
        return msgspec.json.decode(self.data_json, type=dict[str, Any]) if self.data_json else {}

    def header(self, name: str) -> str:
        """The value of a header, or ""."""
        return next((value for own, value in self.headers if own.lower() == name.lower()), "")

    def with_header(self, name: str, value: str) -> FetchRequest:
        """A copy of the request with this header, which replaces one of the same name."""
        others = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return msgspec.structs.replace(self, headers=(*others, (name, value)))


Send: TypeAlias = Callable[[FetchRequest], Awaitable[Response]]
AroundFetch: TypeAlias = Callable[[FetchRequest, Send], Awaitable[Response]]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What the three kinds of outcome with a response share. `redirects` are all URLs that led to `response.url`."""

    response: Response
    fetched_at: float
    crawl_delay: timedelta | None = None
    redirects: tuple[str, ...] = ()


class FetchedPage(Answered, frozen=True, kw_only=True):
    """A response of any status."""


class NotModified(Answered, frozen=True, kw_only=True):
    """The copy we have is still good."""


class Redirected(Answered, frozen=True, kw_only=True):
    """The page is elsewhere: request `to` with `method`, and with the body if the method was kept. `redirects` are the
    ones that its PageRequest must carry."""

    to: str
    status: int
    method: str = "GET"


class Disallowed(msgspec.Struct, frozen=True, kw_only=True):
    """robots.txt forbids `url`; `rule` is the line that does so, if known."""

    url: str
    rule: str
    crawl_delay: timedelta | None = None
    redirects: tuple[str, ...] = ()


Outcome = FetchedPage | NotModified | Redirected | Disallowed


class Fetcher:
    """Makes the requests for one page by one route. `robots` supplies the rules for the sites where
    `obeys_robots(site)`; None: no site's robots.txt is read."""

    def __init__(
        self,
        robots: Robots | None,
        obeys_robots: Callable[[str], bool],
        *,
        user_agent: str,
        limits: Limits,
        max_redirects: int,
        clock: Clock,
        around: AroundFetch | None = None,
    ) -> None:
        self._around = around
        self._robots = robots
        self._obeys_robots = obeys_robots
        self._limits = limits
        self._max_redirects = max_redirects
        self._clock = clock
        self._logins = Logins()
        self._defaults: Pairs = (
            ("User-Agent", user_agent),
            ("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            ("Accept-Language", "en;q=0.8,*;q=0.5"),
            ("Accept-Encoding", ACCEPT_ENCODING),
        )

    async def fetch(
        self,
        request: PageRequest,
        before_send: BeforeSend,
        route: OpenRoute,
        *,
        watch: Watch | None = None,
        looking_up: LookingUp | None = None,
    ) -> Outcome:
        """Fetch the page; all its requests take the same route. `before_send` is awaited for the gate of every request,
        the one for robots.txt included, with the site's crawl-delay if known, and may raise. `watch` gets the gate of
        every request that is not safe to repeat, and returns the gate to use. `looking_up` is called with the site, and
        entered while a robots.txt is looked up.

        Raises FetchFailed or FetchRefused; RedirectLoop for a chain that loops or is too long.
        """
        request = without_login(request)
        if request.robots_answer and self._robots is not None:
            async with looking_up(site_of(request.url)) if looking_up is not None else nullcontext():
                return _of_entry(request.url, await self._robots.answer_of(request.url, before_send, route))
        jar = route.jar
        url, method = request.url, request.method
        limits = request.limits or self._limits
        if request.timeout is not None:
            limits = _within(limits, request.timeout)
        trail = request.redirects
        asked: set[str] = set()  # in this call; the other URLs of the trail were requested with other cookies
        while True:
            delay, rules = None, None
            if self._robots is not None and self._obeys_robots(site_of(url)):
                rules = self._robots.known_for(url, route)
                if rules is None:
                    looking = looking_up(site_of(url)) if looking_up is not None else nullcontext()
                    with trace.step("robots"):
                        async with looking:
                            rules = await self._robots.rules_for(url, before_send, route)
                delay = rules.crawl_delay
                if not rules.allowed(url):
                    return Disallowed(url=url, rule=rules.refusal(url), crawl_delay=delay, redirects=trail)
            asked.add(_step(method, url))
            if self._around is None:
                gate = await before_send(delay)
                headers = self._headers(request, url, method, jar)
                if method == "GET" and not request.headers:
                    response = await route.fetch_page(url, headers, limits, gate, request.into)
                else:
                    response = await _send(route, request, method, url, headers, limits, gate, watch)
            else:
                headers = self._headers(request, url, method, jar)
                body = request.body if method == request.method else None
                given = FetchRequest(
                    url=url, headers=headers, method=method, data_json=request.data, body=body, kind=request.kind,
                    depth=request.depth,
                )  # fmt: skip

                async def send(target: str, given: FetchRequest, gate: Gate | None, method: str = method) -> Response:
                    within = limits if given.timeout is None else _within(limits, given.timeout)
                    if given.proxy is None:
                        return await _send(route, request, method, target, given.headers, within, gate, watch)
                    way = msgspec.structs.replace(route, proxy=given.proxy)
                    try:
                        response = await _send(way, request, method, target, given.headers, within, gate, watch)
                    except ProxyFailed as error:  # the route is not to blame, so the page is tried again
                        raise ConnectFailed(str(error), status=error.status) from error
                    return msgspec.structs.replace(
                        response, note=f"through {given.proxy.address}, chosen by an extension"
                    )

                response = await self._send_around(self._around, given, send, before_send, rules)
            now = self._clock.now()
            verdict = response.verdict
            cookie_changed = verdict.keeps_cookies and jar.absorb(url, response.headers)
            if response.cookies:
                cookie_changed |= jar.take_in(url, response.cookies)
            status = response.status
            if status == 304 and url == request.url and (request.etag or request.last_modified):
                return NotModified(response=response, fetched_at=now, crawl_delay=delay, redirects=trail)
            moved = status in _MOVED and "location" in response.headers and status not in request.kept
            moved = moved and not verdict.wanted
            if not moved and (response.url == url or site_of(response.url) == site_of(url)):
                return FetchedPage(response=response, fetched_at=now, crawl_delay=delay, redirects=trail)
            target = _target(response) if moved else response.url.partition("#")[0]
            trail, before = (*trail, _step(method, url)), method
            method = method_after(status, method) if moved else "GET"
            if request.private_body and method == request.method and origin_of(target) != origin_of(request.url):
                raise FetchRefused(
                    f"{url} redirects to {target}, at another origin, which must not get the secrets in the body."
                )
            step = _step(method, target)
            same_site = site_of(target) == site_of(url)
            sent_back = same_site and step in trail and step not in asked
            let_in = cookie_changed or (sent_back and jar.header_for(target) is not None)
            self._check_trail(step, trail, let_in)
            if same_site and (let_in or request.follows) and (before in SAFE_METHODS or method not in SAFE_METHODS):
                url = target
                continue
            onward = Redirected(
                to=target,
                status=status,
                method=method,
                response=response,
                fetched_at=now,
                crawl_delay=delay,
                redirects=trail,
            )
            if same_site and (let_in or request.follows):
                return await self._behind(onward, towards(request, onward), before_send, route, looking_up)
            return onward

    async def _behind(
        self,
        answered: Redirected,
        request: PageRequest,
        before_send: BeforeSend,
        route: OpenRoute,
        looking_up: LookingUp | None,
    ) -> Outcome:
        """Fetch the page behind a request that was `answered` and must not be sent twice. Return `answered` itself if
        the page cannot be fetched now; the page then gets a task of its own."""
        try:
            outcome = await self.fetch(request, before_send, route, looking_up=looking_up)
        except Transient:
            return answered
        if isinstance(outcome, Disallowed):
            return outcome
        status = outcome.response.status
        return answered if status in _NOT_NOW or (status == 401 and request.auth is not None) else outcome

    async def _send_around(
        self,
        around: AroundFetch,
        request: FetchRequest,
        make: Callable[[str, FetchRequest, Gate | None], Awaitable[Response]],
        before_send: BeforeSend,
        rules: RobotsRules | None,
    ) -> Response:
        """Send the request through the extensions. Each time they send it, it is checked and paced."""
        url = request.url
        sent = False

        async def send(given: FetchRequest) -> Response:
            nonlocal sent
            if sent and request.method not in SAFE_METHODS:
                raise ExtensionFailed(f"An extension tried to send {request.method} {url} twice.")
            target = without_user(parse_url(given.url).partition("#")[0])
            if site_of(target) != site_of(url):
                raise ExtensionFailed(
                    f"An extension asked for {target} instead of {url}. A site has its own pace: yield a request."
                )
            if rules is not None and not rules.allowed(target):
                raise ExtensionFailed(f"An extension asked for {target}, which robots.txt forbids.")
            try:
                for name, value in given.headers:
                    check_header(name, value)
            except (BadPayload, TypeError, ValueError) as error:
                raise ExtensionFailed(f"An extension's request for {url} cannot be sent: it {error}.") from error
            sent = True
            response = await make(target, given, await before_send(rules.crawl_delay if rules is not None else None))
            # It stands for the page that was requested, wherever the extension found it.
            return msgspec.structs.replace(response, url=url) if target != url and response.url == target else response

        return await around(request, send)

    def _headers(self, request: PageRequest, url: str, method: str, jar: CookieJar) -> Pairs:
        cookie = jar.header_for(url)
        if cookie is None and not (
            request.headers or request.etag or request.last_modified or request.cookies or request.auth or request.into
        ):
            return self._defaults
        at_home = origin_of(url) == origin_of(request.url)
        extra = [pair for pair in request.headers if at_home or pair[0].lower() not in request.private]
        if method != request.method:
            extra = [pair for pair in extra if not pair[0].lower().startswith("content-")]  # they described the body
        if request.into is not None and url == request.url:
            extra += request.into.begin()
        if url == request.url:
            if request.etag:
                extra.append(("If-None-Match", request.etag))
            if request.last_modified:
                extra.append(("If-Modified-Since", request.last_modified))
        if at_home and request.cookies:
            own = "; ".join(f"{name}={value}" for name, value in request.cookies)
            cookie = f"{own}; {cookie}" if cookie is not None else own
        if cookie is not None:
            extra.append(("Cookie", cookie))
        if at_home and request.auth is not None:
            extra.append(("Authorization", self._logins.authorization(request.auth, method, url)))
        chosen = {name.lower() for name, _ in extra}
        return (*(pair for pair in self._defaults if pair[0].lower() not in chosen), *extra)

    def may_answer(self, request: PageRequest, response: Response) -> bool:
        """Does the server want another login scheme, so that the same request is worth making again?"""
        if response.status != 401 or request.auth is None:
            return False
        return self._logins.heed(response.url, response.headers)

    def _check_trail(self, target: str, trail: tuple[str, ...], let_in: bool) -> None:
        if len(trail) > self._max_redirects:
            raise RedirectLoop(
                f"{trail[0]} redirects more than {self._max_redirects} times, last to {target}. "
                "See fetch.max_redirects."
            )
        if target in trail and not let_in:
            raise RedirectLoop(f"{trail[-1]} redirects to {target}, which led there. The site must fix this loop.")


async def _send(
    route: OpenRoute,
    request: PageRequest,
    method: str,
    url: str,
    headers: Pairs,
    limits: Limits,
    gate: Gate | None,
    watch: Watch | None,
) -> Response:
    """Make a request that is more than a plain GET."""
    return await route.fetch_page(
        url,
        headers,
        limits,
        gate if watch is None or method in SAFE_METHODS else watch(gate),
        request.into,
        method=method,
        body=request.body if method == request.method else None,
        chosen=frozenset(name.lower() for name, _ in request.headers),
    )


def without_login(request: PageRequest) -> PageRequest:
    """The request with the credentials of its URL as its `auth`: a URL is shown in messages, logs and stores."""
    if (user := user_in(request.url)) is None:
        return request
    return msgspec.structs.replace(request, url=without_user(request.url), auth=request.auth or user)


def towards(request: PageRequest, outcome: Redirected) -> PageRequest:
    """The request for the target of a redirect."""
    stays, kept = origin_of(outcome.to) == origin_of(request.url), outcome.method == request.method
    return msgspec.structs.replace(
        request,
        url=outcome.to,
        redirects=outcome.redirects,
        method=outcome.method,
        body=request.body if kept else None,
        private_body=request.private_body and kept,
        headers=tuple(
            one
            for one in request.headers
            if (stays or one[0].lower() not in request.private) and (kept or not one[0].lower().startswith("content-"))
        ),
        cookies=request.cookies if stays else (),
        auth=request.auth if stays else None,
    )


def _of_entry(url: str, entry: RobotsEntry) -> FetchedPage:
    """A response for robots.txt, which may be an earlier one."""
    response = Response(url=url, status=entry.status, headers=Headers(), body=entry.text.encode("utf-8", "replace"))
    return FetchedPage(response=response, fetched_at=entry.fetched_at)


def _within(limits: Limits, timeout: timedelta) -> Limits:
    return msgspec.structs.replace(
        limits,
        total=timeout,
        total_from="timeout of the request",
        read=min(limits.read, timeout),
        connect=min(limits.connect, timeout),
    )


def _step(method: str, url: str) -> str:
    """A request as written in the trail."""
    return url if method == "GET" else f"{method} {url}"


def method_after(status: int, method: str) -> str:
    """The method with which a redirect is followed, as browsers do it; if it changes, the body is dropped. A page that
    moved without a redirect status is requested with GET."""
    if status not in _MOVED or (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        return "GET"
    return method


def _target(response: Response) -> str:
    location = response.headers.get("location")
    try:
        return without_user(parse_url(location, response.url).partition("#")[0])
    except InvalidUrl as error:
        raise BadResponse(
            f"{response.url} redirects to {location[:200]!a}, which cannot be crawled.",
            status=response.status,
        ) from error
