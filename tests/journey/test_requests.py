"""Crawls of a site that wants more than GET. What was sent is told by the site's own log."""

from __future__ import annotations

import json
from datetime import timedelta
from importlib import import_module
from typing import ClassVar

import pytest

from gossamer import Page, Request, Spider
from gossamer.backends.sqlite.frontier import SqliteFrontier
from gossamer.cli.request_flags import request_of
from gossamer.crawl.unsafe_send import stored_answer
from gossamer.frontier.admission import FORCED_IN_VAIN
from gossamer.model.events import Blocked, Event, Trouble
from gossamer.model.secret_text import secrets_marked
from gossamer.parse.spider import Results
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, replay_letters
from gossamer.project.dead_letters.story import Story, story_of
from tests.journey.commands import gossamer
from tests.journey.crawling import crawled, look, settings_for
from tests.sites.api import PAGES, PASSWORD, PER_PAGE, USER, ApiSite, api_site

HOSTS = {"fetch__allow_hosts": ["127.0.0.1", "localhost"]}


class Visitor(Spider):
    """Makes the requests that a test gives it, and tells what came."""

    name = "visitor"
    allowed_domains = "*"

    def __init__(self, *requests: Request) -> None:
        self.requests = requests

    def start(self) -> list[Request]:
        return list(self.requests)

    def parse(self, page: Page) -> Results:
        yield {"url": f"{page.url}#{page.title or page.data.get('n')}", "text": page.text}


async def visited(folder, *requests: Request, **flags):
    return await crawled(Visitor(*requests), settings_for(folder, **{**HOSTS, **flags}))


async def test_lists_that_are_paged_by_post_are_read_to_their_end(tmp_path):
    class Offers(Spider):
        allowed_domains = "*"

        def __init__(self, site: ApiSite) -> None:
            self.site = site

        def start(self) -> list[Request]:
            graph = {"query": "query($after: Int) { list }", "variables": {"after": 0}}
            return [
                Request(url=self.site.url("/offers"), method="POST", json={"page": 0}),
                Request(url=self.site.url("/graphql"), method="POST", json=graph, kind="graph", data=graph),
            ]

        def parse(self, page: Page) -> Results:
            found = page.json()
            yield from ({"offer": number} for number in found["items"])
            if found["more"]:
                number = page.data.get("page", 0) + 1
                yield page.follow(page.url, method="POST", json={"page": number}, data={"page": number})

        def graph(self, page: Page) -> Results:
            found = page.json()["data"]["list"]
            yield from ({"node": number} for number in found["nodes"])
            if found["next"] is not None:
                asked = {**page.data, "variables": {"after": found["next"]}}
                yield page.follow(page.url, method="POST", json=asked, data=asked)

    async with api_site() as site:
        after = await crawled(Offers(site), settings_for(tmp_path, **HOSTS))

    assert {r.data["offer"] for r in after.records if "offer" in r.data} == set(range(PAGES * PER_PAGE))
    assert {r.data["node"] for r in after.records if "node" in r.data} == set(range(PAGES))
    assert sorted(site.lines()) == ["POST /graphql"] * PAGES + ["POST /offers"] * PAGES
    assert {asked.headers["content-type"] for asked in site.log if asked.method == "POST"} == {"application/json"}


async def test_headers_of_settings_site_spider_and_request_are_merged_and_secrets_are_nowhere_but_on_the_wire(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("GOSSAMER_SECRET_TOKEN", "tok-en-12345")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "PIN").write_text("p-i-n-67890\n")
    (tmp_path / "gossamer.toml").write_text(
        'secrets = "secrets"\n[fetch.headers]\nX-A = "settings"\nX-B = "settings"\nX-C = "settings"\nX-D = "settings"\n'
        'X-Pin = "is ${PIN}"\n[domains."127.0.0.1".headers]\nx-b = "site"\nX-C = "site"\nX-D = "site"\n'
    )

    class Polite(Visitor):
        headers: ClassVar[dict[str, str]] = {"X-c": "spider", "X-D": "spider", "User-Agent": "Own/1"}

        def start(self) -> list[Request]:
            token = self.secret("TOKEN")
            return [
                Request(
                    url=site.url("/echo"),
                    method="PUT",
                    headers={"x-d": "request", "Authorization": f"Bearer {token}"},
                    cookies={"a": "b", "t": token},
                    json={"token": token},
                    params={"q": "ä b"},
                )
            ]

    class Ears(list[Event]):
        emit = list.append

    async with api_site() as site:
        read = settings_for(tmp_path, **HOSTS)
        after = await crawled(Polite(), read, heard=(ears := Ears()))

    (asked,) = [one for one in site.log if one.method == "PUT"]
    sent = {name: asked.headers[f"x-{name}"] for name in "abcd"}
    assert sent == {"a": "settings", "b": "site", "c": "spider", "d": "request"}
    assert asked.headers["x-pin"] == "is p-i-n-67890"
    assert asked.headers["user-agent"] == "Own/1"
    assert asked.headers["authorization"] == "Bearer tok-en-12345"
    assert asked.headers["cookie"] == "a=b; t=tok-en-12345"
    assert asked.path == "/echo?q=%C3%A4+b"
    assert json.loads(asked.body) == {"token": "tok-en-12345"}
    assert after.report.counts.done == 1
    told = repr(list(ears)) + repr(after.fates)
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("state.db*"))
    for secret in ("tok-en-12345", "p-i-n-67890"):
        assert secret not in told
        assert secret.encode() not in kept


@pytest.mark.parametrize(
    ("method", "status", "expected"),
    [
        ("POST", 301, "GET"), ("POST", 302, "GET"), ("POST", 303, "GET"), ("POST", 307, "POST"), ("POST", 308, "POST"),
        ("PUT", 301, "PUT"), ("PUT", 303, "GET"), ("DELETE", 308, "DELETE"), ("HEAD", 303, "HEAD"), ("GET", 307, "GET"),
    ],
)  # fmt: skip
async def test_redirects_keep_or_change_the_method_as_browsers_do(tmp_path, method, status, expected):
    body = {"json": {"a": 1}} if method in ("POST", "PUT") else {}
    async with api_site() as site:
        request = Request(url=site.url(f"/move?status={status}&to=/target"), method=method, **body)
        after = await visited(tmp_path, request)

    asked = site.log[-1]
    assert site.lines()[1:] == [f"{expected} /target"]
    kept = expected == method and bool(body)
    assert asked.body == (b'{"a":1}' if kept else b"")
    assert ("content-type" in asked.headers) is kept
    assert after.report.counts.dead == 0


async def test_a_redirect_to_another_origin_gets_no_login_no_cookie_and_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_SECRET_KEY", "k-e-y")

    class Sent(Visitor):
        def start(self) -> list[Request]:
            away = site.url("/target", host="localhost")
            told = {"headers": {"X-Key": self.secret("KEY"), "X-Plain": "1"}, "auth": ("a", "b"), "cookies": {"c": "d"}}
            return [
                Request(url=site.url(f"/move?status=307&to={away}"), method="POST", form={"q": 1}, **told),
                Request(url=site.url("/move?status=307&to=/home"), method="POST", form={"q": 1}, **told),
                Request(url=site.url(f"/move?status=308&to={away}"), method="POST", form={"q": self.secret("KEY")}),
            ]

    async with api_site() as site:
        after = await crawled(Sent(), settings_for(tmp_path, **HOSTS))

    (away,) = [one for one in site.log if one.path == "/target"]
    (home,) = [one for one in site.log if one.path == "/home"]
    assert (away.method, away.body, away.headers["x-plain"]) == ("POST", b"q=1", "1")
    assert not {"authorization", "cookie", "x-key"} & set(away.headers)
    assert home.headers["x-key"] == "k-e-y"
    assert home.headers["cookie"] == "c=d"
    assert "authorization" in home.headers
    (letter,) = after.letters.values()
    assert "secrets in the body" in letter.message


async def test_a_form_that_leads_back_to_its_own_address_is_no_loop_but_post_after_post_is(tmp_path):
    async with api_site() as site:
        site.answer = lambda asked: _round(asked)  # type: ignore[method-assign]
        after = await visited(
            tmp_path,
            Request(url=site.url("/form"), method="POST", form={"a": 1}),
            Request(url=site.url("/round/1"), method="POST", form={"a": 1}),
        )
    assert site.lines().count("GET /form") == 1
    assert after.report.counts.dead == 1
    (letter,) = after.letters.values()
    assert letter.reason == "redirect-loop"
    assert len([line for line in site.lines() if "/round/" in line]) <= 4


def _round(asked):
    if asked.path == "/form" and asked.method == "POST":
        return 303, {"Location": "/form"}, b""
    if asked.path == "/round/1":
        return 307, {"Location": "/round/2"}, b""
    if asked.path == "/round/2":
        return 307, {"Location": "/round/1"}, b""
    return 200, {"Content-Type": "text/html"}, b"<title>there</title>" + b"<p>calm</p>" * 40


async def test_basic_and_digest_logins_are_answered(tmp_path):
    async with api_site() as site:
        login = (USER, PASSWORD)
        after = await visited(
            tmp_path,
            Request(url=site.url("/basic"), auth=login),
            Request(url=site.url("/digest"), auth=login, method="POST", json={}),
            Request(url=site.url("/digest?again=1"), auth=login, priority=-1),
            Request(url=site.url("/digest?wrong=1"), auth=(USER, "nonsense"), priority=-2),
            crawl__concurrency=1,
        )
        wrong = site.url("/digest?wrong=1")
        tried = await look(
            settings_for(tmp_path, **HOSTS),
            lambda project: project.records.attempts(after.letters[wrong].fingerprint),
        )
    assert sorted(site.lines()) == sorted([
        "GET /basic", "POST /digest", "POST /digest", "GET /digest?again=1", "GET /digest?wrong=1",
        "GET /digest?wrong=1",
    ])  # fmt: skip
    assert after.report.counts.done == 3
    assert after.fate(wrong) == ("dead", "http-401")
    assert [(one.outcome, one.reason, one.status) for one in tried] == [
        ("released", "login", 401),
        ("dead", "http-401", 401),
    ]


async def test_a_post_whose_answer_never_came_is_sent_once_and_waits_for_a_decision(tmp_path):
    async with api_site() as site:
        site.hang = {"/order", "/allowed"}
        site.fail = {
            "/busy": [503], "/throttled": [429], "/slow": [408], "/early": [425],
            "/broken": [500, 500], "/bad": [502, 502],
        }  # fmt: skip
        not_done = ("/busy", "/throttled", "/slow", "/early")  # the server says that it did not do it
        paths = ("/order", "/broken", "/bad", *not_done)
        requests = [Request(url=site.url(path), method="POST", form={"n": 1}) for path in paths]
        allowed = Request(url=site.url("/allowed"), method="POST", form={"n": 1}, retry_unsafe=True)
        after = await visited(tmp_path, *requests, allowed)
        sent = site.lines()

        assert {path: sent.count(f"POST {path}") for path in (*paths, "/allowed")} == {
            "/order": 1, "/broken": 1, "/bad": 1, "/allowed": 2, **dict.fromkeys(not_done, 2),
        }  # fmt: skip
        assert after.fate(site.url("/order")) == ("dead", "uncertain")
        assert after.fate(site.url("/broken")) == ("dead", "http-500")
        assert after.fate(site.url("/bad")) == ("dead", "http-502")
        assert {after.fate(site.url(path))[0] for path in not_done} == {"done"}
        assert after.fate(site.url("/allowed")) == ("dead", "dropped-connection")

        site.hang = set()
        read = settings_for(tmp_path, **HOSTS)
        for reason in ("uncertain", "http-500"):  # a person decides that they are sent again
            await look(read, lambda project, reason=reason: replay_letters(project, DeadLetterChoice(reason=reason)))
        again = await crawled(Visitor(), read)
        assert again.fate(site.url("/order"))[0] == "done"
        assert again.fate(site.url("/broken")) == ("dead", "http-500")
        assert site.lines().count("POST /order") == site.lines().count("POST /broken") == 2


async def test_the_letter_of_a_post_is_closed_when_its_answer_is_stored_after_all(tmp_path, monkeypatch):
    complete = SqliteFrontier.complete

    async def too_late(self, lease, *arguments, **options):
        # given another worker that had the lease meanwhile, and knew of no answer
        await self.bury(lease, "uncertain", "Whether it arrived is unknown.")
        return await complete(self, lease, *arguments, **options)

    monkeypatch.setattr(SqliteFrontier, "complete", too_late)
    async with api_site() as site:
        after = await visited(tmp_path, Request(url=site.url("/echo"), method="POST", form={"n": 1}))
        assert site.lines() == ["POST /echo"]
    assert (after.fate(site.url("/echo"))[0], after.letters) == ("done", {})
    assert (after.report.counts.done, after.report.counts.dead, len(after.records)) == (1, 0, 1)


async def test_a_post_whose_answer_is_stored_while_it_is_buried_has_no_letter(tmp_path, monkeypatch):
    complete, looks, leases = SqliteFrontier.complete, [], []

    async def gone(self, lease, *arguments, **options):
        leases.append(lease)
        if len(leases) == 1:  # given a worker that is lost after it stored the answer
            await self.release(lease, timedelta(0), "lost")
        return await complete(self, lease, *arguments, **options)

    async def look_too_early(*arguments):
        looks.append(None)
        return None if len(looks) == 1 else await stored_answer(*arguments)

    monkeypatch.setattr(SqliteFrontier, "complete", gone)
    monkeypatch.setattr(import_module("gossamer.crawl.journey"), "stored_answer", look_too_early)
    async with api_site() as site:
        after = await visited(tmp_path, Request(url=site.url("/echo"), method="POST", form={"n": 1}))
        assert site.lines() == ["POST /echo"]
    assert len(looks) == 2
    assert (after.fate(site.url("/echo"))[0], after.letters, len(after.records)) == ("done", {}, 1)


async def test_a_job_that_starts_over_sends_its_posts_again(tmp_path):
    async with api_site() as site:
        order = Request(url=site.url("/order"), method="POST", form={"n": 1})
        first = await visited(tmp_path, order)
        (tmp_path / "gossamer-data" / "state.db").unlink()
        again = await visited(tmp_path, order)

        assert first.report.job.id == again.report.job.id  # the same number
        assert site.lines().count("POST /order") == 2


class Poll(Spider):
    """Sends the same POST three times in one job, as the user wants."""

    url = ""

    def start(self):
        yield Request(url=self.url, method="POST", form={"n": 1}, data={"round": 1})

    def parse(self, page: Page) -> Results:
        if (number := page.data["round"]) < 3:
            yield page.follow(self.url, method="POST", form={"n": 1}, force=True, data={"round": number + 1})


async def test_a_post_is_repeated_by_force(tmp_path):
    async with api_site() as site:
        spider = Poll()
        spider.url = site.url("/poll")
        after = await crawled(spider, settings_for(tmp_path, **HOSTS))

        assert site.lines().count("POST /poll") == 3
        assert after.report.counts.dead == 0


async def test_a_post_that_could_not_be_sent_is_tried_again(tmp_path):
    async with api_site() as site:
        closed = site.url("/")
    after = await visited(tmp_path, Request(url=closed, method="POST", form={"n": 1}), retry__site_away="1s")

    assert after.fate(closed) == ("dead", "connect")
    assert after.letters[closed].attempts >= 1


async def test_a_post_does_not_take_up_a_connection_that_may_be_stale(tmp_path):
    async with api_site() as site:
        site.close_idle = True
        requests = [Request(url=site.url(f"/a/{n}"), method="POST" if n % 2 else "GET", priority=-n) for n in range(8)]
        after = await visited(tmp_path, *requests, crawl__concurrency=1)

    assert after.report.counts.done == 8
    assert sorted(site.lines())[4:] == [f"POST /a/{n}" for n in (1, 3, 5, 7)]


async def test_a_long_body_waits_in_the_archive_and_not_in_the_queue(tmp_path):
    class Uploads(Visitor):
        def parse(self, page: Page) -> Results:
            yield {"url": page.url, "size": len(page.text)}
            if page.data:
                yield page.follow("/echo", method="POST", body=b"y" * 200_000, headers={"X-N": "2"})

    async with api_site() as site:
        first = Request(url=site.url("/echo"), method="POST", body=b"x" * 300_000, data={"more": True})
        after = await crawled(Uploads(first), settings_for(tmp_path, **HOSTS))

    assert after.report.counts.done == 2
    assert [len(asked.body) for asked in site.log if asked.method == "POST"] == [300_000, 200_000]
    assert b"eHh4" * 100 not in b"".join(file.read_bytes() for file in tmp_path.rglob("state.db*"))
    assert b"eXl5" * 100 not in b"".join(file.read_bytes() for file in tmp_path.rglob("state.db*"))


async def test_pages_had_by_post_and_by_get_do_not_share_what_is_known_of_them(tmp_path):
    async with api_site() as site:
        etag = {"ETag": '"one"', "Content-Type": "text/html"}
        site.answer = lambda asked: (  # type: ignore[method-assign]
            (304, {}, b"")
            if asked.headers.get("if-none-match")
            else (200, etag, b"<title>t</title>" + b"<p>x</p>" * 99)
        )
        requests = [Request(url=site.url("/same")), Request(url=site.url("/same"), method="POST", form={"a": 1})]
        for fresh in (False, True):
            after = await crawled(Visitor(*requests), settings_for(tmp_path, **HOSTS), fresh=fresh)

    assert (after.report.counts.unchanged, after.report.counts.done) == (1, 1)
    assert [asked.method for asked in site.log if asked.headers.get("if-none-match")] == ["GET"]


async def test_the_story_of_a_post_is_found_by_its_body_and_tells_no_values(tmp_path, monkeypatch):
    class Asks(Spider):
        def start(self) -> list[Request]:
            url = f"{self.start_urls[0]}?a=1"
            return [
                Request(url=url, method="POST", json={"page": 1}, headers={"X-Token": self.secret("TOKEN")}),
                Request(url=url, method="POST", form={"user": "ada", "password": self.secret("TOKEN")}),
                Request(url=url, method="PUT", body="n=1"),
            ]

        def parse(self, page: Page) -> None:
            return None

    monkeypatch.setenv("GOSSAMER_SECRET_TOKEN", "s3cret")
    async with api_site() as site:
        spider = Asks()
        spider.start_urls = [site.url("/echo")]
        await crawled(spider, settings_for(tmp_path, **HOSTS))
    url = f"{spider.start_urls[0]}?a=1"

    async def why(
        method: str | None = None, data: str | None = None, json: str | None = None, form: list[str] | None = None
    ) -> Story:
        request = request_of(url, method, None, data, json, form, read=secrets_marked)
        return await look(settings_for(tmp_path), lambda project: story_of(project, url, request))

    for asked in (
        {"json": '{"page": 1}'}, {"method": "PUT", "data": "n=1"}, {"form": ["user=ada", "password=${TOKEN}"]},
    ):  # fmt: skip
        story = await why(**asked)
        assert [one.state for one in story.jobs] == ["done"]
        assert len(story.attempts) == len(story.visits) == 1
        assert "s3cret" not in str(story)
    for asked in ({}, {"data": "n=1"}, {"json": '{"page": 2}'}):
        assert not (await why(**asked)).known
    said = await gossamer(tmp_path, "why", url, "--json-data", '{"page": 1}')
    assert f"POST {url}" in said.out
    assert "POST with 10 B of body, Content-Type" in said.out
    assert "a POST is found by its body" in (await gossamer(tmp_path, "why", url)).one_line()
    assert "is not JSON" in (await gossamer(tmp_path, "why", url, "--json-data", "{")).one_line()
    wrong = await gossamer(tmp_path, "why", url, "-X", "GET", "-d", "a")
    assert "has a body and the method GET" in wrong.one_line()


@pytest.mark.parametrize("way", ["seeds", "links", "its own callback"])
async def test_force_on_a_page_that_is_still_open_is_told_and_on_one_that_was_had_it_is_fetched_again(tmp_path, way):
    class Forced(Visitor):
        def parse(self, page: Page) -> Results:
            yield from super().parse(page)
            if way == "links" and page.url.endswith("/start"):
                yield from (page.follow("/again", force=True, data={"n": n}) for n in range(3))
            if way == "its own callback" and page.data.get("n", 0) < 2:
                yield page.follow(page.url, force=True, data={"n": page.data.get("n", 0) + 1})

    async with api_site() as site:
        seeds = [Request(url=site.url("/start"), force=True)] * (3 if way == "seeds" else 1)
        after = await crawled(Forced(*seeds), settings_for(tmp_path, **HOSTS))

    after.assert_adds_up()
    told = [event.message for event in after.heard.of(Trouble) if event.stage == "force"]
    assert len(site.lines()) == {"seeds": 1, "links": 2, "its own callback": 3}[way]
    assert [one == FORCED_IN_VAIN for one in told] == ([] if way == "its own callback" else [True])


async def test_a_request_for_headers_alone_is_answered_whole_without_a_body(tmp_path):
    """A GET with the same answer gets a shell that its scripts would fill."""
    shell = b"<html><body><div id=root></div><script src=/app.js></script></body></html>"
    async with api_site() as site:
        site.answer = lambda asked: (404 if asked.path == "/robots.txt" else 200, {"Content-Type": "text/html"}, shell)
        blocked = {}
        for method in ("HEAD", "GET"):
            after = await visited(tmp_path / method, Request(url=site.url("/app"), method=method), retry__base="10ms")
            blocked[method] = [block.kind for block in after.heard.of(Blocked)]
    assert blocked["HEAD"] == []
    assert set(blocked["GET"]) == {"shell"}
