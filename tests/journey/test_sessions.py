"""Members only: logins, sessions that end, pools of visitors. The site's own log is the witness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossamer import Page, Request, Results, Session, Spider
from gossamer.fetch.sessions import header_place, headers_for
from gossamer.model import events
from gossamer.model.session import KeptSession
from gossamer.project.open import open_project
from tests.browser.conftest import chromium as chromium
from tests.journey.crawling import Aftermath, crawled, settings_for
from tests.sites.api import Asked, api_site
from tests.sites.club import PASSWORD, USER, Club, club


class Members(Spider):
    session = "member"
    site: Club

    def start(self) -> list[Request]:
        return [Request(url=self.site.url("/page/0"))]

    async def login(self, session: Session) -> None:
        page = await session.get(self.site.url("/login"))
        await session.submit(page.form("#login"), user=USER, password=PASSWORD)

    def logged_out(self, page: Page) -> bool:
        return bool(page.css("form#login"))

    def parse(self, page: Page) -> Results:
        yield {"url": page.url, "title": page.css("h1::text").get()}
        yield from page.follow_all("a")


class ByDefault(Members):
    logged_out = Spider.logged_out


async def visited(site: Club, folder: Path, spider: type[Members] = Members, **flags: Any) -> Aftermath:
    made = spider()
    made.site = site
    read = settings_for(folder, **{"fetch__allow_private": True, "sessions__login_pause": "50ms", **flags})
    return await crawled(made, read)


def assert_all_there(site: Club, after: Aftermath) -> None:
    after.assert_adds_up()
    assert after.letters == {}
    assert {record.url for record in after.records} == {site.url(path) for path in site.paths}


@pytest.mark.parametrize("wall", ["redirect", "form", "401"])
@pytest.mark.parametrize("spider", [Members, ByDefault])
async def test_a_login_with_a_token_is_made_once(tmp_path, wall, spider):
    with club(pages=30, wall=wall) as site:
        after = await visited(site, tmp_path, spider)

        assert_all_there(site, after)
        assert (site.logins, len(site.seen("/page/", status=200))) == (1, 30)
        assert len(after.heard.of(events.LoggedIn)) == 1


async def test_a_session_lives_on_in_the_next_crawl(tmp_path):
    with club(pages=5) as site:
        await visited(site, tmp_path)
        after = await visited(site, tmp_path, fetch__conditional=False)

        assert_all_there(site, after)
        assert (site.logins, len(site.sessions)) == (1, 1)


@pytest.mark.parametrize("spider", [Members, ByDefault])
async def test_a_session_that_ends_is_logged_in_again_and_no_page_uses_up_a_try(tmp_path, spider):
    with club(pages=60, lasts=25) as site:
        after = await visited(site, tmp_path, spider, retry__max_attempts=1)

        assert_all_there(site, after)
        assert site.logins == len(site.sessions)
        assert site.used_up <= site.logins <= site.used_up + 1
        assert len(site.seen("/page/", status=200)) == 60
        assert after.report.counts.retries == 0


async def test_a_login_that_never_works_gives_pages_up_with_a_clear_reason(tmp_path):
    # However late a page comes back: the pause after the last login is over by then.
    with club(pages=5, never=True) as site:
        after = await visited(site, tmp_path, sessions__login_pause="1ms")

        after.assert_adds_up()
        (letter,) = after.letters.values()
        assert letter.reason == "login"
        assert "still logged out after login()" in letter.message
        assert site.logins == 3
        failed = after.heard.of(events.LoginFailed)
        assert [event.failures for event in failed] == [1, 2, 3]


async def test_a_login_that_fails_backs_off_and_is_tried_again(tmp_path):
    class Strict(Members):
        async def login(self, session: Session) -> None:
            page = await session.get(self.site.url("/login"))
            answer = await session.submit(page.form("#login"), {"user": USER, "password": PASSWORD})
            if answer.status != 200:
                raise ValueError(f"the club says {answer.status}")

    with club(pages=5, refuses=2) as site:
        after = await visited(site, tmp_path, Strict)

        assert_all_there(site, after)
        assert (len(site.seen("/login", "POST", 500)), site.logins) == (2, 1)
        assert "ValueError: the club says 500" in after.heard.of(events.LoginFailed)[0].message
        assert PASSWORD not in str(after.heard.events)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("await __import__('asyncio').sleep(60)", "longer than 0.3 s (sessions.login_timeout)"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("await session.get('http://10.255.255.1/')", "private or reserved"),
        ("await session.get('nonsense')", "cannot be made"),
        ("session.headers['X'] = 'a\\r\\nb'", "X"),
    ],
)
async def test_a_login_that_goes_wrong_is_told(tmp_path, code, words):
    names: dict[str, Any] = {}
    exec(f"async def login(self, session):\n    {code}", names)
    wrong = type("Wrong", (Members,), {"login": names["login"]})
    with club(pages=2) as site:
        after = await visited(
            site, tmp_path, wrong, sessions__login_timeout="300ms", sessions__login_tries=1,
            fetch__allow_private=False, fetch__allow_hosts=["127.0.0.1"],
        )  # fmt: skip

        (letter,) = after.letters.values()
        assert (letter.reason, words in letter.message) == ("login", True), letter.message


async def test_a_page_that_always_looks_logged_out_is_given_up_and_others_are_not(tmp_path):
    class Confused(Members):
        def logged_out(self, page: Page) -> bool:
            return page.url.endswith("/page/3") or super().logged_out(page)

    with club(pages=6) as site:
        after = await visited(site, tmp_path, Confused)

        assert [(url, letter.reason) for url, letter in after.letters.items()] == [(site.url("/page/3"), "login")]
        assert len(after.records) == 5
        assert 3 <= site.logins <= 5


async def test_headers_of_a_session_go_to_its_site(tmp_path):
    class Token(Members):
        async def login(self, session: Session) -> None:
            await super().login(session)
            assert "sid" in session.cookies
            session.headers["X-Token"] = "t0ken"

    with club(pages=3) as site:
        after = await visited(site, tmp_path, Token)

        assert_all_there(site, after)
        assert {hit.headers.get("x-token") for hit in site.seen("/page/")} == {"t0ken"}
        assert site.seen("/login")[0].headers.get("x-token") is None


async def test_headers_of_a_session_go_to_no_other_site_that_its_login_touched(tmp_path):
    class Token(Members):
        elsewhere = ""

        async def login(self, session: Session) -> None:
            session.headers["X-Token"] = "t0ken"
            await session.get(self.elsewhere)
            await super().login(session)

        def parse(self, page: Page) -> Results:
            yield from super().parse(page)
            yield page.download(self.elsewhere + "?file")

    async with api_site() as other:
        Token.elsewhere = other.url("/echo", host="localhost")
        with club(pages=2) as site:
            after = await visited(site, tmp_path, Token)

            assert after.letters == {}
            assert {hit.headers.get("x-token") for hit in site.seen("/page/")} == {"t0ken"}
        assert {asked.path for asked in other.log} >= {"/echo", "/echo?file"}
        assert [asked.path for asked in other.log if "x-token" in asked.headers] == []


async def test_a_token_that_came_from_elsewhere_goes_to_the_site_of_the_page_that_waited(tmp_path):
    class Token(Members):
        elsewhere = ""

        async def login(self, session: Session) -> None:
            page = await session.get(self.elsewhere)
            session.headers["X-Token"] = page.json()["method"]

        def logged_out(self, page: Page) -> bool:
            return False

    async with api_site() as other:
        Token.elsewhere = other.url("/echo", host="localhost")
        with club(pages=2) as site:
            await visited(site, tmp_path, Token)

            assert {hit.headers.get("x-token") for hit in site.seen("/page/")} == {"GET"}


async def test_a_password_in_an_address_of_a_login_is_sent_and_not_logged(tmp_path):
    class Basic(Members):
        door = ""

        async def login(self, session: Session) -> None:
            page = await session.get(self.door)
            assert page.title == "in", page.status
            await super().login(session)

    async with api_site() as other:
        Basic.door = other.url("/basic").replace("://", "://reader:se%3Acret@")
        with club(pages=2) as site:
            after = await visited(site, tmp_path, Basic)

            assert_all_there(site, after)
        async with open_project(settings_for(tmp_path)) as project:
            attempts = await project.records.attempts(project.rules.fingerprint(other.url("/basic")))
    assert [attempt.url for attempt in attempts] == [other.url("/basic")]
    assert "cret@" not in str(after.heard.events)


def test_headers_of_a_login_by_https_do_not_go_out_by_http():
    def sent(asked: str, url: str) -> bool:
        kept = KeptSession(name="m/a", headers={"X-Token": "t"}, header_sites=(header_place(asked),))
        return bool(headers_for(kept, url))

    assert sent("https://club.example/login", "https://www.club.example/page")
    assert not sent("https://club.example/login", "http://club.example/page")
    assert not sent("https://club.example/login", "https://other.example/page")
    assert sent("http://club.example/login", "http://club.example/page")
    assert sent("http://club.example/login", "https://club.example/page")


async def test_requests_may_name_a_session_and_cookies_stay_apart(tmp_path):
    class Two(Members):
        session = None

        def start(self) -> list[Request]:
            return [Request(url=self.site.url(f"/page/{n}"), session=name) for n, name in enumerate(("one", "two"))]

        def parse(self, page: Page) -> Results:
            yield {"url": page.url}

    with club(pages=2) as site:
        after = await visited(site, tmp_path, Two)
        assert (len(after.records), site.logins, len(site.sessions)) == (2, 2, 2)


async def test_a_pool_of_sessions_shares_the_pages_and_replaces_who_is_blocked(tmp_path):
    class Pool(Members):
        session = None
        sessions = 3

    with club(pages=40) as site:
        blocked: list[str] = []
        answer = site.answer

        def answers(method, path, body, cookies, address):
            from tests.sites.club import Answer

            member = site.sessions.get(cookies.get("sid", ""))
            if path.startswith("/page/") and member is not None and not blocked:
                blocked.append(cookies["sid"])
            if cookies.get("sid") in blocked and path.startswith("/page/"):
                return Answer(200, "<title>Are you a robot?</title><div class=g-recaptcha data-sitekey=x></div>")
            return answer(method, path, body, cookies, address)

        site.answer = answers
        after = await visited(site, tmp_path, Pool, retry__max_attempts=5)

        assert_all_there(site, after)
        assert site.logins == 4  # three, and one for who was blocked
        assert len({hit.session for hit in site.seen("/page/", status=200)} - set(blocked)) == 3


async def test_no_value_of_a_cookie_is_written_anywhere_but_in_the_state(tmp_path):
    with club(pages=3) as site:
        after = await visited(site, tmp_path)
        (sid,) = site.sessions
        assert sid not in str(after.heard.events)
        async with open_project(settings_for(tmp_path), to_look=True) as project:
            (kept,) = await project.state.sessions.sessions()
            assert (kept.name, sid in repr(kept)) == ("members/member", False)
            attempts = await project.records.attempts(project.rules.fingerprint(site.url("/login")))
        assert [(one.reason, one.outcome, one.status) for one in attempts] == [("login", "done", 200)] * 2


class ThroughTheDoor(Members):
    """A page of scripts lets its visitor in; the rest is fetched without a browser."""

    login = Spider.login
    logged_out = Spider.logged_out

    def start(self) -> list[Request]:
        return [Request(url=self.site.url("/script"), fetcher="browser", kind="door")]

    def door(self, page: Page) -> Results:
        yield page.follow("/vault/0", self.parse)

    def parse(self, page: Page) -> Results:
        yield {"url": page.url}


@pytest.mark.long
@pytest.mark.usefixtures("chromium")
async def test_a_cookie_that_a_script_has_set_opens_the_door_for_plain_requests(tmp_path):
    with club(pages=1) as site:
        after = await visited(site, tmp_path, ThroughTheDoor)

        assert [record.url for record in after.records] == [site.url("/vault/0")]
        (hit,) = site.seen("/vault/")
        assert (hit.headers["cookie"], "Mozilla" in hit.headers["user-agent"]) == ("key=open", False)


async def test_a_cookie_that_a_request_brings_goes_with_that_request_and_not_into_its_session(tmp_path):
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.path == "/robots.txt":
            return 404, {}, b""
        headers = {"Content-Type": "text/html", **({"Set-Cookie": "member=ann"} if asked.path == "/login" else {})}
        return 200, headers, f"<h1>{asked.path}</h1><p>{'A calm page. ' * 20}</p>".encode()

    class Basket(Spider):
        session = "ann"

        def start(self) -> list[Request]:
            return [Request(url=site.url("/first"), cookies={"once": "1"})]

        async def login(self, session: Session) -> None:
            await session.get(site.url("/login"))

        def parse(self, page: Page) -> Results:
            yield {"url": page.url}
            if page.url.endswith("/first"):
                yield Request(url=site.url("/second"))

    async with api_site() as site:
        site.answer = answer  # type: ignore[method-assign]
        await crawled(Basket(), settings_for(tmp_path, fetch__allow_private=True))
        sent = {asked.path: asked.headers.get("cookie", "") for asked in site.log}
    assert set(sent["/first"].split("; ")) == {"member=ann", "once=1"}
    assert sent["/second"] == "member=ann"


@pytest.mark.parametrize("way", ["session", "cookies", "auth", "headers"])
async def test_a_copy_that_one_visitor_has_got_is_not_taken_for_that_of_another(tmp_path, way, monkeypatch):
    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes]:
        if asked.path.startswith("/login"):
            return 200, {"Set-Cookie": f"user={asked.path.rpartition('=')[2]}"}, b"welcome"
        if asked.path == "/robots.txt":
            return 404, {}, b""
        if "if-modified-since" in asked.headers:
            return 304, {}, b""
        told = asked.headers.get("authorization", "") + asked.headers.get("cookie", "")
        page = f"<h1>{told}</h1><p>{'A calm page. ' * 20}</p>"
        return 200, {"Content-Type": "text/html", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}, page.encode()

    class Account(Spider):
        name = "account"

        def start(self) -> list[Request]:
            url = site.url("/account")
            given: dict[str, Any] = {
                "session": {"session": self.user},
                "cookies": {"cookies": {"user": self.user}},
                "auth": {"auth": (self.user, "x")},
                "headers": {"headers": {"Authorization": f"Bearer {self.secret('WHO')}"}},
            }
            return [Request(url=url, **given[way])]

        async def login(self, session: Session) -> None:
            await session.get(site.url(f"/login?user={session.name}"))

        def parse(self, page: Page) -> Results:
            yield {"url": page.url, "told": page.css("h1::text").get()}

    told = []
    async with api_site() as site:
        site.answer = answer  # type: ignore[method-assign]
        for user in ("alice", "bob"):
            spider = Account()
            spider.user = user  # type: ignore[attr-defined]
            monkeypatch.setenv("GOSSAMER_SECRET_WHO", user)
            after = await crawled(spider, settings_for(tmp_path, fetch__allow_private=True))
            told.append([record.data["told"] for record in after.records])
    assert told[0] != told[1]
    assert not [asked for asked in site.log if "if-modified-since" in asked.headers]
