"""What follows upon a request that must not be sent twice: its redirects are followed, and it is not made again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer import Extension, Request, Spider
from gossamer.clock import VirtualClock
from gossamer.crawl.pacer import TooEarly
from gossamer.errors import BudgetSpent, ConnectFailed, FetchRefused, StaleConnection
from gossamer.fetch.contract import Response
from gossamer.fetch.cookies import CookieJar
from gossamer.fetch.fetcher import Fetcher, PageRequest, Redirected
from gossamer.fetch.open_route import OpenRoute
from gossamer.model.page import Headers
from tests.journey.crawling import crawled, settings_for
from tests.journey.test_requests import HOSTS, Visitor, visited
from tests.patience import LIMITS
from tests.sites.api import api_site


def entrance(to: str = "/inside", status: int = 303):
    """Whoever posts gets a cookie, and is sent on."""

    def answer(asked):
        if asked.method == "POST" and asked.path == "/enter":
            return status, {"Location": to, "Set-Cookie": "visitor=1"}, b""
        return ordinary(asked)

    return answer


def ordinary(asked):
    if asked.path == "/robots.txt":
        return 404, {}, b""
    return 200, {"Content-Type": "text/html"}, b"<title>inside</title>" + b"<p>A calm page.</p>" * 40


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 401])
async def test_a_post_that_was_answered_is_not_repeated_because_the_page_behind_it_fails(tmp_path, status):
    async with api_site() as site:
        enter, failed = entrance(), []

        def answer(asked):
            if asked.path == "/inside" and not failed:
                failed.append(status)
                return status, {"WWW-Authenticate": 'Digest realm="r", nonce="n", qop="auth"'}, b"not now"
            return enter(asked)

        site.answer = answer  # type: ignore[method-assign]
        request = Request(url=site.url("/enter"), method="POST", form={"a": 1}, auth=("a", "b"))
        after = await visited(tmp_path, request, retry__base="10ms")

    assert site.lines() == ["POST /enter", "GET /inside", "GET /inside"]
    assert after.letters == {}
    assert [record.url for record in after.records] == [site.url("/inside")]


@pytest.mark.parametrize(
    "failure",
    [
        TooEarly(timedelta(minutes=1)),
        ConnectFailed("no"),
        StaleConnection("gone"),
        BudgetSpent("no money", budget="site", wait=timedelta(minutes=1)),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_the_way_behind_an_answered_post_is_left_to_the_queue_when_it_cannot_be_gone_now(failure):
    class Site:
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def fetch(self, request):
            self.asked.append(request.method)
            if request.method == "GET":
                raise failure
            headers = Headers([("Location", "/inside"), ("Set-Cookie", "a=b")])
            return Response(url=request.url, status=303, headers=headers, body=b"")

    async def before_send(asked=None, elsewhere=None):
        return None

    site, clock = Site(), VirtualClock()
    fetcher = Fetcher(None, lambda site: False, user_agent="t", limits=LIMITS, max_redirects=5, clock=clock)
    route = OpenRoute(transport=site, robots_transport=site, jar=CookieJar(clock))
    outcome = await fetcher.fetch(
        PageRequest(url="http://a.example/enter", method="POST", body=b"x"), before_send, route
    )
    assert isinstance(outcome, Redirected)
    assert (outcome.to, outcome.method) == ("http://a.example/inside", "GET")
    assert site.asked == ["POST", "GET"]


async def test_a_body_with_secrets_goes_to_no_other_origin_of_the_site(tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_SECRET_KEY", "k-e-y")

    class Sent(Visitor):
        def start(self) -> list[Request]:
            return [Request(url=site.url("/enter"), method="POST", form={"q": self.secret("KEY")})]

    async with api_site() as site, api_site() as other:
        site.answer = entrance(other.url("/target"), 307)  # type: ignore[method-assign]
        after = await crawled(Sent(), settings_for(tmp_path, **HOSTS))

    assert "POST /enter" in site.lines()
    assert other.lines() == []
    (letter,) = after.letters.values()
    assert "secrets in the body" in letter.message


async def test_a_login_takes_its_secrets_to_no_other_origin(tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_SECRET_KEY", "k-e-y")

    class Member(Spider):
        session = "member"

        def start(self) -> list[Request]:
            return [Request(url=site.url("/page"))]

        async def login(self, session) -> None:
            session.headers["X-Token"] = "t-o-k-e-n"
            await session.get(site.url("/move?status=302&to=" + other.url("/first", host="localhost")))
            try:
                await session.post(
                    site.url("/move?status=307&to=" + other.url("/second")), form={"q": self.secret("KEY")}
                )
            except FetchRefused as refused:
                told.append(str(refused))

        def parse(self, page):
            return None

    told: list[str] = []
    async with api_site() as site, api_site() as other:
        await crawled(Member(), settings_for(tmp_path, **HOSTS))

    (first,) = [asked for asked in other.log if asked.path != "/robots.txt"]
    assert first.path == "/first"
    assert "x-token" not in first.headers
    assert "secrets in the body" in told[0]


async def test_an_extension_cannot_send_a_post_twice(tmp_path):
    class Twice(Extension):
        async def around_fetch(self, request, next):
            await next(request)
            return await next(request)

    class Doubled(Visitor):
        extensions = (Twice,)

    async with api_site() as site:
        after = await crawled(
            Doubled(Request(url=site.url("/a")), Request(url=site.url("/b"), method="POST", form={"a": 1})),
            settings_for(tmp_path, **HOSTS),
        )
    assert sorted(site.lines()) == ["GET /a", "GET /a", "POST /b"]
    (letter,) = after.letters.values()
    assert letter.reason == "extension"
    assert "twice" in letter.message
