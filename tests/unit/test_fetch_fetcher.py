from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import quote

import pytest

from gossamer.clock import VirtualClock
from gossamer.errors import AddressRefused, BadResponse, RedirectLoop, RobotsUnreachable, TimedOut
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Response, TransportRequest
from gossamer.fetch.cookies import CookieJar
from gossamer.fetch.fetcher import (
    Disallowed,
    FetchedPage,
    Fetcher,
    NotModified,
    Outcome,
    PageRequest,
    Redirected,
    without_login,
)
from gossamer.fetch.http import AiohttpTransport
from gossamer.fetch.http_errors import translated
from gossamer.fetch.open_route import OpenRoute
from gossamer.fetch.retry_after import LONGEST, parse_retry_after
from gossamer.fetch.robots import Robots
from gossamer.fetch.robots_shelf import MemoryShelf
from gossamer.model.page import Headers
from tests.patience import LIMITS
from tests.sites.hostile import PAGE, HostileSite, hostile_site

UA = "Gossamer/0.1 (+https://gossamer.example/bot)"


class Scene:
    """The hostile site and a fetcher on its way to it; `gates` counts how often the pacer was asked."""

    def __init__(self, site: HostileSite, transport: AiohttpTransport, *, robots: bool, max_redirects: int) -> None:
        self.site = site
        self.gates = 0
        clock = VirtualClock()
        asked = None
        if robots:
            asked = Robots(
                MemoryShelf(),
                clock,
                user_agent=UA,
                limits=LIMITS,
                max_crawl_delay=timedelta(minutes=5),
            )
        self.jar = CookieJar(clock)
        self.route = OpenRoute(transport=transport, robots_transport=transport, jar=self.jar)
        self.fetcher = Fetcher(
            asked,
            lambda site: True,
            user_agent=UA,
            limits=LIMITS,
            max_redirects=max_redirects,
            clock=clock,
        )

    async def gate(self, asked: object = None) -> None:
        self.gates += 1

    async def go(self, path: str, *, redirects: tuple[str, ...] = (), **facts: object) -> Outcome:
        led = tuple(self.site.url(url) for url in redirects)
        request = PageRequest(url=self.site.url(path), redirects=led, **facts)  # type: ignore[arg-type]
        return await self.fetcher.fetch(request, self.gate, self.route)

    @property
    def paths(self) -> list[str]:
        return [seen.path for seen in self.site.log]


@asynccontextmanager
async def a_scene(*, robots: bool = False, max_redirects: int = 5) -> AsyncIterator[Scene]:
    guard = AddressGuard(allow_hosts=frozenset({"127.0.0.1", "localhost"}))
    async with hostile_site() as site, AiohttpTransport(guard) as transport:
        yield Scene(site, transport, robots=robots, max_redirects=max_redirects)


async def test_a_page_is_fetched_with_honest_headers() -> None:
    async with a_scene() as scene:
        outcome = await scene.go("/plain")
    assert isinstance(outcome, FetchedPage)
    assert outcome.response.body == PAGE
    assert (outcome.crawl_delay, outcome.redirects) == (None, ())
    sent = scene.site.log[0].headers
    assert sent["user-agent"] == UA
    assert sent["accept"].startswith("text/html")
    assert sent["accept-encoding"] == "gzip, deflate, br, zstd"
    assert sent["accept-language"] == "en;q=0.8,*;q=0.5"
    assert "if-none-match" not in sent


@pytest.mark.parametrize("code", [200, 201, 300, 404, 410, 429, 500, 503])
async def test_any_other_status_is_an_answer(code: int) -> None:
    async with a_scene() as scene:
        outcome = await scene.go(f"/status?code={code}")
    assert isinstance(outcome, FetchedPage)
    assert outcome.response.status == code


async def test_an_unchanged_page_is_not_sent_again() -> None:
    async with a_scene() as scene:
        first = await scene.go("/conditional")
        assert isinstance(first, FetchedPage)
        again = await scene.go(
            "/conditional", etag=first.response.headers.get("etag"), last_modified="Thu, 01 Jan 2026 00:00:00 GMT"
        )
    assert isinstance(again, NotModified)
    assert scene.site.log[1].headers["if-none-match"] == '"one"'
    assert scene.site.log[1].headers["if-modified-since"] == "Thu, 01 Jan 2026 00:00:00 GMT"


async def test_a_304_nobody_asked_for_is_an_answer_like_any_other() -> None:
    async with a_scene() as scene:
        assert isinstance(await scene.go("/always-304"), FetchedPage)


async def test_extra_headers_are_sent_and_replace_the_defaults() -> None:
    async with a_scene() as scene:
        await scene.go("/plain", headers=(("accept", "application/json"), ("X-Key", "k")))
    assert scene.site.log[0].headers["accept"] == "application/json"
    assert scene.site.log[0].headers["x-key"] == "k"
    assert scene.site.log[0].raw.lower().count(b"accept:") == 1


# --- robots.txt ---------------------------------------------------------------------------------------------------


async def test_what_robots_txt_forbids_is_not_fetched() -> None:
    async with a_scene(robots=True) as scene:
        scene.site.answer_robots(200, "User-agent: *\nDisallow: /secret\nCrawl-delay: 2\n")
        outcome = await scene.go("/secret/x")
        assert outcome == Disallowed(
            url=scene.site.url("/secret/x"), rule="Disallow: /secret", crawl_delay=timedelta(seconds=2)
        )
        assert scene.paths == ["/robots.txt"]
        fetched = await scene.go("/plain")
        assert isinstance(fetched, FetchedPage)
        assert fetched.crawl_delay == timedelta(seconds=2)
        assert scene.gates == len(scene.site.log) == 2


async def test_while_robots_txt_is_unreachable_nothing_is_fetched() -> None:
    async with a_scene(robots=True) as scene:
        scene.site.answer_robots(500)
        for _ in range(2):
            with pytest.raises(RobotsUnreachable):
                await scene.go("/plain")
        assert scene.paths == ["/robots.txt"]


async def test_a_gate_that_refuses_stops_the_request() -> None:
    async with a_scene() as scene:

        async def closed(asked: object = None) -> None:
            raise KeyError("drained")

        with pytest.raises(KeyError):
            await scene.fetcher.fetch(PageRequest(url=scene.site.url("/plain")), closed, scene.route)
        assert scene.site.log == []


class Hung:
    """A transport whose every request ends with its time limit."""

    async def fetch(self, request: TransportRequest) -> Response:
        raise translated(TimeoutError(), request.url, request.limits)


async def test_a_timeout_of_the_request_itself_is_named_as_such() -> None:
    async with a_scene() as scene:
        scene.route = OpenRoute(transport=Hung(), robots_transport=Hung(), jar=scene.jar)
        with pytest.raises(TimedOut, match=r"within 3 s \(timeout of the request\)"):
            await scene.go("/plain", timeout=timedelta(seconds=3))
        with pytest.raises(TimedOut, match=r"\(fetch\.total_timeout\)"):
            await scene.go("/plain")


# --- redirects ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_goes_back_to_the_frontier(status: int) -> None:
    async with a_scene() as scene:
        outcome = await scene.go(f"/redirect?to=/plain%23part&status={status}", redirects=("/before",))
    assert isinstance(outcome, Redirected)
    assert (outcome.to, outcome.status) == (scene.site.url("/plain"), status)
    assert outcome.redirects == (scene.site.url("/before"), outcome.response.url)
    assert len(scene.site.log) == 1


@pytest.mark.parametrize("path", ["/redirect-nowhere", "/redirect?to=x&status=300", "/redirect?to=x&status=304"])
async def test_what_is_no_redirect_is_an_answer(path: str) -> None:
    async with a_scene() as scene:
        assert isinstance(await scene.go(path), FetchedPage)


@pytest.mark.parametrize(
    "to", ["file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "http://[", "http://", "ftp://a.example/"]
)
async def test_a_redirect_to_what_cannot_be_crawled_is_a_bad_response(to: str) -> None:
    async with a_scene() as scene:
        with pytest.raises(BadResponse, match="redirects to"):
            await scene.go(f"/redirect?to={quote(to)}")


async def test_a_redirect_to_a_private_address_is_refused_when_it_is_fetched() -> None:
    async with a_scene() as scene:
        outcome = await scene.go("/redirect?to=http://127.0.0.2/admin")
        assert isinstance(outcome, Redirected)
        with pytest.raises(AddressRefused):
            await scene.fetcher.fetch(PageRequest(url=outcome.to, redirects=outcome.redirects), scene.gate, scene.route)


@pytest.mark.parametrize(("path", "redirects"), [("/loop", ()), ("/redirect?to=/first", ("/first", "/second"))])
async def test_a_chain_that_comes_back_is_a_loop(path: str, redirects: tuple[str, ...]) -> None:
    async with a_scene() as scene:
        with pytest.raises(RedirectLoop):
            await scene.go(path, redirects=redirects)
    assert len(scene.site.log) == 1


async def test_a_chain_may_have_so_many_redirects_and_no_more() -> None:
    async with a_scene(max_redirects=3) as scene:
        assert isinstance(await scene.go("/redirect?to=/plain", redirects=("/1", "/2")), Redirected)
        with pytest.raises(RedirectLoop, match="max_redirects"):
            await scene.go("/redirect?to=/plain", redirects=("/1", "/2", "/3"))


# --- cookies ------------------------------------------------------------------------------------------------------


async def test_a_wall_that_wants_its_cookie_back_is_passed_at_once() -> None:
    async with a_scene() as scene:
        outcome = await scene.go("/cookie-wall")
    assert isinstance(outcome, FetchedPage)
    assert outcome.response.status == 200
    assert outcome.redirects == (scene.site.url("/cookie-wall"),)
    assert scene.site.log[1].headers["cookie"] == "let-me-in=1"
    assert scene.gates == 2


async def test_a_bounce_over_another_page_ends_where_it_began() -> None:
    async with a_scene() as scene:
        first = await scene.go("/bounce")
        assert isinstance(first, Redirected)
        request = PageRequest(url=first.to, redirects=first.redirects)
        outcome = await scene.fetcher.fetch(request, scene.gate, scene.route)
    assert isinstance(outcome, FetchedPage)
    assert outcome.response.url == scene.site.url("/bounce")
    assert outcome.response.body == PAGE
    assert scene.paths == ["/bounce", "/bounce-cookie", "/bounce"]
    assert scene.gates == 3


async def test_a_site_that_sets_cookies_for_ever_is_a_loop() -> None:
    async with a_scene(max_redirects=4) as scene:
        with pytest.raises(RedirectLoop):
            await scene.go("/counting-loop")
    assert len(scene.site.log) == 5


async def test_robots_txt_is_asked_for_a_followed_hop_too() -> None:
    async with a_scene(robots=True) as scene:
        scene.site.answer_robots(200, "User-agent: *\nDisallow: /secret\n")
        outcome = await scene.go("/redirect?to=/secret&cookie=a=b")
    assert isinstance(outcome, Disallowed)
    assert outcome.url == scene.site.url("/secret")
    assert outcome.redirects == (scene.site.url("/redirect?to=/secret&cookie=a=b"),)
    assert not scene.site.seen("/secret")


async def test_a_cookie_redirect_to_another_site_goes_to_the_frontier() -> None:
    async with a_scene() as scene:
        outcome = await scene.go(f"/redirect?cookie=a=b&to={scene.site.url('/plain', 'localhost')}")
        assert isinstance(outcome, Redirected)
        await scene.fetcher.fetch(PageRequest(url=outcome.to), scene.gate, scene.route)
    assert "cookie" not in scene.site.log[1].headers


@pytest.mark.parametrize(
    ("url", "auth", "expected"),
    [
        ("https://me:secret@a.example/x", None, ("me", "secret")),
        ("https://me:secret@a.example/x", ("you", "other"), ("you", "other")),
        ("https://a.example/x", ("you", "other"), ("you", "other")),
        ("https://a.example/x", None, None),
    ],
)
def test_the_login_of_an_address_is_that_of_the_request_unless_it_has_its_own(
    url: str, auth: tuple[str, str] | None, expected: tuple[str, str] | None
) -> None:
    request = without_login(PageRequest(url=url, auth=auth))
    assert (request.url, request.auth) == ("https://a.example/x", expected)


async def test_headers_for_one_origin_do_not_reach_another() -> None:
    async with a_scene() as scene, hostile_site() as other:
        # Same host, another port: one site, two origins.
        await scene.go(
            f"/redirect?cookie=a=b&to={other.url('/plain')}",
            headers=(("Authorization", "Bearer s3cret"),),
            etag='"one"',
        )
    assert scene.site.log[0].headers["authorization"] == "Bearer s3cret"
    assert other.log[0].headers["cookie"] == "a=b"
    assert "authorization" not in other.log[0].headers
    assert "if-none-match" not in other.log[0].headers


async def test_cookies_are_kept_for_the_next_visit() -> None:
    async with a_scene() as scene:
        await scene.go("/cookie?set=a%3D1")
        await scene.go("/plain", headers=(("X-Extra", "1"),))
    assert scene.site.log[1].headers["cookie"] == "a=1"
    assert scene.site.log[1].headers["x-extra"] == "1"


# --- wishes of the server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "waits"), [("7", timedelta(seconds=7)), ("1e12", LONGEST), ("-5", None), ("garbage", None), ("nan", None)]
)
async def test_the_wish_to_wait_can_be_read_from_the_answer(wish: str, waits: timedelta | None) -> None:
    async with a_scene() as scene:
        outcome = await scene.go(f"/retry-after?wish={wish}")
    assert isinstance(outcome, FetchedPage)
    assert parse_retry_after(outcome.response.headers.get("retry-after"), outcome.fetched_at) == waits


class Mover:
    """A transport that ends elsewhere: a browser whose page moved on, or a vendor that says so."""

    def __init__(self, there: str) -> None:
        self.there = there

    async def fetch(self, request: TransportRequest) -> Response:
        return Response(url=self.there, status=200, headers=Headers(), body=b"<p>from there</p>")


@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ("https://shop.example/p/1", Redirected),
        ("https://shop.example/p/1#top", Redirected),
        ("https://www.club.example/p/1", FetchedPage),  # the same site
        ("https://club.example/other", FetchedPage),
    ],
)
async def test_an_answer_of_another_site_is_a_redirect_there(there: str, kind: type) -> None:
    clock = VirtualClock()
    fetcher = Fetcher(None, lambda site: True, user_agent=UA, limits=LIMITS, max_redirects=5, clock=clock)
    mover = Mover(there)
    route = OpenRoute(transport=mover, robots_transport=mover, jar=CookieJar(clock))

    async def at_once(asked: object = None) -> None: ...

    asked = PageRequest(url="https://club.example/p/1")
    outcome = await fetcher.fetch(asked, at_once, route)
    assert type(outcome) is kind
    if isinstance(outcome, Redirected):
        assert (outcome.to, outcome.redirects) == ("https://shop.example/p/1", (asked.url,))
