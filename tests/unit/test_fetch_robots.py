from __future__ import annotations

import asyncio
import gzip
import tarfile
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.clock import VirtualClock
from gossamer.errors import AddressRefused, ConnectFailed, RobotsUnreachable
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.cookies import CookieJar
from gossamer.fetch.http import AiohttpTransport
from gossamer.fetch.http_errors import no_file_left
from gossamer.fetch.open_route import OpenRoute
from gossamer.fetch.robots import FRESH, RECENT, UNREACHABLE, Robots
from gossamer.fetch.robots_rules import (
    MAX_RULES,
    MAX_STARS,
    MAX_TEXT,
    MAX_WILDCARD_RULES,
    RobotsRules,
    product_token,
    read_robots,
)
from gossamer.fetch.robots_shelf import MemoryShelf, OriginTurns, RobotsEntry
from tests.corpora import corpus
from tests.patience import LIMITS
from tests.sites.hostile import HostileSite, hostile_site, huge_robots

DELAY = timedelta(minutes=5)


def rules(text: str, token: str = "gossamer") -> RobotsRules:
    return read_robots(text, token, DELAY)


def allows(text: str, path: str) -> bool:
    return rules(text).allowed(f"https://a.example{path}")


@pytest.mark.parametrize("head", ["crawl-delay", "user-agent", "disallow", "sitemap", "host"])
def test_a_file_of_blanks_is_read_once(head: str) -> None:
    began = time.thread_time()
    rules("user-agent: *\n" + f"{head}{' ' * 2400}x\n" * 200)
    assert time.thread_time() - began < 3  # seconds of work; where blanks are gone through again it takes many more


@pytest.mark.parametrize("between", [":", " ", ": ", " :", "  :  ", "   "])
def test_a_delay_is_read_after_a_colon_or_blanks(between: str) -> None:
    assert rules(f"user-agent: *\ncrawl-delay{between}7").crawl_delay == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Gossamer/0.1 (+https://gossamer.example/bot)", "gossamer"),
        ("My_Own-Bot", "my_own-bot"),
        ("Mozilla/5.0 (compatible; Foobot/2.1; +http://foo.example)", "foobot"),
        ("Mozilla/5.0 (X11; Linux)", "mozilla"),
        ("", ""),
    ],
)
def test_the_product_token_is_the_name_robots_txt_knows(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True), ("/private", False), ("/private/x", False), ("/private/open", True), ("/x.pdf", False),
        ("/x.pdf?y", True), ("/a/search/b", False), ("/caf%C3%A9", False), ("/robots.txt", True),
    ],
)  # fmt: skip
def test_the_longest_rule_wins(path: str, allowed: bool) -> None:
    text = (
        "User-agent: *\nDisallow: /private\nAllow: /private/open\n"
        "Disallow: /*.pdf$\nDisallow: /*/search/\nDisallow: /café\n"
    )
    assert allows(text, path) is allowed


def test_our_own_group_replaces_that_for_everybody() -> None:
    text = "User-agent: *\nDisallow: /\n\nUser-agent: other\nUser-agent: GOSSAMER/2.0\nDisallow: /x\nCrawl-delay: 3\n"
    assert allows(text, "/y")
    assert not allows(text, "/x")
    assert rules(text).crawl_delay == timedelta(seconds=3)
    assert not rules(text, "somebody").allowed("https://a.example/y")


def test_groups_of_the_same_name_are_one() -> None:
    text = "User-agent: gossamer\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: gossamer\nDisallow: /b\n"
    assert [path for path in ("/a", "/b", "/c") if allows(text, path)] == ["/c"]


def test_an_own_group_that_forbids_nothing_allows_all() -> None:
    assert allows("User-agent: *\nDisallow: /\n\nUser-agent: gossamer\nDisallow:\n", "/x")


@pytest.mark.parametrize("between", ["Crawl-delay: 5", "Noindex: /a", "Request-rate: 1/5", "Clean-param: s /f", "text"])
def test_a_line_that_the_standard_does_not_know_does_not_end_the_names_of_a_group(between: str) -> None:
    for first, second in (("gossamer", "other"), ("other", "gossamer")):
        text = f"User-agent: {first}\n{between}\nUser-agent: {second}\nDisallow: /x\n\nUser-agent: *\nDisallow:\n"

        assert not allows(text, "/x")
        assert allows(text, "/y")


def test_a_rule_ends_the_names_of_a_group() -> None:
    text = "User-agent: gossamer\nAllow: /\nCrawl-delay: 5\nUser-agent: other\nDisallow: /x\n"

    assert allows(text, "/x")


def test_a_delay_belongs_to_those_who_were_named_before_it() -> None:
    text = "User-agent: other\nCrawl-delay: 7\nUser-agent: gossamer\nDisallow: /x\n"

    assert rules(text).crawl_delay is None
    assert rules(text, "other").crawl_delay == timedelta(seconds=7)


def test_a_sitemap_line_does_not_end_the_names_of_a_group() -> None:
    assert not allows("User-agent: *\nSitemap: https://a.example/s.xml\nUser-agent: x\nDisallow: /p\n", "/p")


def test_the_refusal_names_the_rule() -> None:
    held = rules("User-agent: *\nDisallow: /a\nDisallow: /a/b*c\n")
    assert held.refusal("https://a.example/a/bxc") == "Disallow: /a/b*c"
    assert held.refusal("https://a.example/other") == ""


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        ("2", timedelta(seconds=2)), ("0.5", timedelta(seconds=0.5)), (".5", timedelta(seconds=0.5)),
        ("99999999", DELAY), ("0", None), ("-1", None), ("nan", None), ("inf", None), ("soon", None),
        ("9" * 50, None), ("", None),
    ],
)  # fmt: skip
def test_the_crawl_delay_is_read_and_clamped(value: str, delay: timedelta | None) -> None:
    assert rules(f"User-agent: *\nCrawl-delay: {value}\nDisallow: /x\n").crawl_delay == delay


@pytest.mark.parametrize(
    "text",
    [
        "", "\ufeff", "<!doctype html>\n<p>User-agent: *\nDisallow: /\n", "  \n<html>\nUser-agent: *\nDisallow: /",
        "\x00\x01\nUser-agent: *\nDisallow: /\n", "Disallow: /\n", "User-agent: *\n", "no rules here",
    ],
)  # fmt: skip
def test_what_holds_no_rules_allows_all(text: str) -> None:
    assert allows(text, "/anything")


def test_a_byte_order_mark_and_odd_line_ends_do_no_harm() -> None:
    assert not allows("\ufeffUser-agent: *\r\nDisallow: /a\rDisallow: /b\n", "/a")
    assert not allows("\ufeffUser-agent: *\r\nDisallow: /a\rDisallow: /b\n", "/b")


def test_a_line_break_that_only_protego_knows_starts_no_new_group() -> None:
    assert allows("User-agent: *\nDisallow: /a\u2028User-agent: *\u2028Disallow: /\n", "/x")


def test_many_agents_over_many_rules_do_not_multiply() -> None:
    agents = "".join(f"User-agent: bot{i}\n" for i in range(12_000))
    text = agents + "User-agent: *\n" + "".join(f"Disallow: /{i}x\n" for i in range(15_000))
    assert len(text) < MAX_TEXT
    assert not allows(text, "/7x")
    assert allows(text, "/7y")


def test_stars_without_number_are_bounded_and_forbid_rather_more() -> None:
    pattern = "/" + "a*" * 1000 + "x$"
    assert not allows(f"User-agent: *\nDisallow: {pattern}\n", "/" + "a" * 100)
    assert allows(f"User-agent: *\nDisallow: {pattern}\n", "/" + "a" * (MAX_STARS - 2))
    assert not allows(f"User-agent: *\nDisallow: /\nAllow: {pattern}\n", "/" + "a" * 100)
    assert not allows("User-agent: *\nDisallow: /" + "*" * 2000 + "x$\n", "/abcx")


def test_the_number_of_wildcard_rules_is_bounded_and_that_of_plain_ones_is_not() -> None:
    wild = "".join(f"Disallow: /*q{i}q\n" for i in range(MAX_WILDCARD_RULES + 10))
    text = f"User-agent: *\n{wild}Disallow: /last\n"
    assert not allows(text, f"/xq{MAX_WILDCARD_RULES - 1}q")
    assert allows(text, f"/xq{MAX_WILDCARD_RULES}q")
    assert not allows(text, "/last")


@given(st.text(alphabet=st.sampled_from("User-agent: *\nDisallow/$%é\udc80\x00\u2028#0")))
def test_no_text_raises(text: str) -> None:
    held = rules(text)
    held.allowed("https://a.example/x?y=%zz")
    held.refusal("https://a.example/x?y=%zz")


UNTIDY = """\
# robots.txt of a shop that has seen many hands\t
<!-- do not edit -->
Host: shop.example
Sitemap: https://shop.example/sitemap.xml
Disallow: /belongs-to-nobody

user-agent : *   # everybody
Crawl-delay: 2
DISALLOW:/cart#no blank before this
Disallow:    /search?*q=
Allow: /search?lang=
Disallow: /*.pdf$
Noindex: /old
Request-rate: 1/5
Clean-param: sid /

User-agent: BadBot
User-agent: Gossamer-Images
Disallow: /
Disallow
User agent: *
Disallow: /%7Ejoe/
"""


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/belongs-to-nobody", True),
        ("/cart", False),
        ("/carton", False),
        ("/search?a=1&q=x", False),
        ("/search?lang=en", True),
        ("/file.pdf", False),
        ("/file.pdf?page=2", True),
        ("/old", True),
    ],
)
def test_an_untidy_file_is_read_line_by_line(path: str, allowed: bool) -> None:
    assert allows(UNTIDY, path) is allowed
    assert not allows(UNTIDY.replace("BadBot", "Gossamer"), path)


def test_real_files_are_read() -> None:
    with tarfile.open(corpus("robots-real", "robots.tar.gz")) as archive:
        files = [entry for entry in archive if entry.isfile()][::20]
        for entry in files:
            opened = archive.extractfile(entry)
            assert opened is not None
            held = rules(opened.read().decode("utf-8", "replace"))
            assert isinstance(held.allowed("https://a.example/some/page?x=1"), bool)
    assert len(files) > 100


# --- fetching ---------------------------------------------------------------------------------------------------


class Stage:
    """The hostile site, robots asked over the wire, and a count of the times the gate was passed."""

    def __init__(self, site: HostileSite, transport: AiohttpTransport, shelf: MemoryShelf) -> None:
        self.site = site
        self.clock = VirtualClock()
        self.shelf = shelf
        self.gates = 0
        self.route = OpenRoute(transport=transport, robots_transport=transport, jar=CookieJar(self.clock))
        self.robots = self.fresh_robots()

    def fresh_robots(
        self, max_origins: int = 2048, max_weight: int = 32 << 20, turns: OriginTurns | None = None
    ) -> Robots:
        return Robots(
            self.shelf,
            self.clock,
            turns=turns,
            user_agent="Gossamer/0.1",
            limits=LIMITS,
            max_crawl_delay=DELAY,
            max_origins=max_origins,
            max_weight=max_weight,
        )

    async def gate(self, asked: object = None, elsewhere: str | None = None) -> None:
        self.gates += 1

    async def rules(self, path: str = "/page", host: str | None = None) -> RobotsRules:
        return await self.robots.rules_for(self.site.url(path, host), self.gate, self.route)

    async def allowed(self, path: str, host: str | None = None) -> bool:
        return (await self.rules(path, host)).allowed(self.site.url(path, host))

    @property
    def asked(self) -> int:
        return len(self.site.seen("/robots.txt"))


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    guard = AddressGuard(allow_hosts=frozenset({"127.0.0.1", "localhost", "other.localhost"}))
    async with hostile_site() as site, AiohttpTransport(guard) as transport:
        yield Stage(site, transport, MemoryShelf())


async def test_robots_txt_is_asked_once_a_day() -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(200, "User-agent: *\nDisallow: /secret\nCrawl-delay: 2\n")
        assert await stage.allowed("/open")
        assert not await stage.allowed("/secret")
        assert (await stage.rules()).crawl_delay == timedelta(seconds=2)
        assert (stage.asked, stage.gates) == (1, 1)
        stage.clock.advance(FRESH.total_seconds() + 1)
        await stage.rules()
        assert (stage.asked, stage.gates) == (2, 2)
        assert stage.site.log[0].headers["user-agent"] == "Gossamer/0.1"


async def test_each_origin_has_its_own_rules() -> None:
    async with a_stage() as stage:
        await stage.rules(host="127.0.0.1")
        await stage.rules(host="localhost")
        assert stage.asked == 2


async def test_many_at_once_ask_once() -> None:
    async with a_stage() as stage:
        await asyncio.gather(*(stage.rules(f"/{i}") for i in range(50)))
        assert stage.asked == 1


async def test_jobs_and_sources_of_a_process_ask_once_at_the_same_moment() -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(200, "User-agent: *\nDisallow: /secret\nSitemap: /map.xml\n")
        turns, url = OriginTurns(), stage.site.url("/secret")
        of_jobs = [stage.fresh_robots(turns=turns).rules_for(url, stage.gate, stage.route) for _ in range(5)]
        entry, *rules = await asyncio.gather(
            stage.fresh_robots(turns=turns).answer_of(url, stage.gate, stage.route), *of_jobs
        )
        assert stage.asked == 1
        assert "map.xml" in entry.text
        assert not any(one.allowed(url) for one in rules)

        # sitemaps are looked up in a new answer much sooner than rules are asked for again
        stage.clock.advance(RECENT.total_seconds() + 1)
        await stage.fresh_robots().rules_for(url, stage.gate, stage.route)
        assert stage.asked == 1
        await stage.fresh_robots().answer_of(url, stage.gate, stage.route)
        assert stage.asked == 2


async def test_nobody_waits_for_ever_for_the_answer_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.fetch.robots_shelf.PATIENCE", timedelta(milliseconds=1))
    async with a_stage() as stage:
        turns, stuck = OriginTurns(), asyncio.Event()

        async def never(asked: object = None) -> None:
            stuck.set()
            await asyncio.Event().wait()

        waits = stage.fresh_robots(turns=turns).rules_for(stage.site.url("/a"), never, stage.route)
        first = asyncio.ensure_future(waits)
        await stuck.wait()
        await stage.fresh_robots(turns=turns).rules_for(stage.site.url("/a"), stage.gate, stage.route)
        assert stage.asked == 1
        first.cancel()
        await asyncio.wait([first])
        assert not turns._open


async def test_whoever_gives_up_leaves_the_turn_to_the_next() -> None:
    async with a_stage() as stage:
        stuck = asyncio.Event()

        async def never(asked: object = None) -> None:
            stuck.set()
            await asyncio.Event().wait()

        first = asyncio.ensure_future(stage.robots.rules_for(stage.site.url("/a"), never, stage.route))
        await stuck.wait()
        second = asyncio.ensure_future(stage.rules())
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).allowed(stage.site.url("/a"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
async def test_without_a_robots_txt_all_is_allowed(status: int) -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(status, "User-agent: *\nDisallow: /\n")
        assert await stage.allowed("/anything")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_failing_server_is_left_alone_for_minutes(status: int) -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(status, "", "Retry-After: 7")
        with pytest.raises(RobotsUnreachable) as caught:
            await stage.rules()
        assert (caught.value.status, caught.value.retry_after) == (status, timedelta(seconds=7))
        for _ in range(3):
            with pytest.raises(RobotsUnreachable) as again:
                await stage.rules()
            assert again.value.retry_after is not None
            assert timedelta(0) < again.value.retry_after <= UNREACHABLE
        assert stage.asked == 1
        stage.clock.advance(UNREACHABLE.total_seconds() + 1)
        stage.site.answer_robots(200, "User-agent: *\nDisallow: /secret\n")
        assert not await stage.allowed("/secret")


async def test_an_older_copy_serves_while_the_server_fails() -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(200, "User-agent: *\nDisallow: /secret\n")
        await stage.rules()
        stage.clock.advance(FRESH.total_seconds() + 1)
        stage.site.answer_robots(503)
        assert not await stage.allowed("/secret")
        assert await stage.allowed("/open")
        assert stage.asked == 2


async def test_a_connection_that_drops_makes_robots_unreachable() -> None:
    async with a_stage() as stage:

        async def drop(call: object) -> None:
            call.reset()  # type: ignore[attr-defined]

        stage.site.robots = drop
        for _ in range(2):  # the second time from memory
            with pytest.raises(RobotsUnreachable) as caught:
                await stage.rules()
            assert caught.value.__cause__ is not None
            assert caught.value.first_contact  # nothing of the site has answered before
        assert stage.asked == 1


async def test_an_address_that_is_refused_says_so() -> None:
    async with hostile_site() as site, AiohttpTransport(AddressGuard()) as transport:
        stage = Stage(site, transport, MemoryShelf())
        for _ in range(2):
            with pytest.raises(AddressRefused):
                await stage.rules()
        assert site.connections == 0


async def test_a_failure_of_our_own_side_is_remembered_as_one() -> None:
    async with a_stage() as stage:

        async def fetch(request: object) -> None:
            raise no_file_left("a.example")

        transport: Any = SimpleNamespace(fetch=fetch)
        stage.route = OpenRoute(transport=transport, robots_transport=transport, jar=CookieJar(stage.clock))
        for _ in range(2):
            with pytest.raises(ConnectFailed) as caught:
                await stage.rules()
            assert caught.value.is_not_the_sites_fault


async def test_redirects_are_followed_also_to_other_hosts() -> None:
    async with a_stage() as stage:

        async def elsewhere(call: object) -> None:
            target = stage.site.url("/robots.txt", "other.localhost")
            if call.seen.headers["host"].startswith("127."):  # type: ignore[attr-defined]
                await call.send(  # type: ignore[attr-defined]
                    f"HTTP/1.1 301 Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
                )
            else:
                text = b"User-agent: *\nDisallow: /secret\n"
                await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))  # type: ignore[attr-defined]

        stage.site.robots = elsewhere
        assert not await stage.allowed("/secret")
        assert (stage.asked, stage.gates) == (2, 2)


@pytest.mark.parametrize(("location", "asked"), [("/robots.txt", 6), ("file:///etc/passwd", 1), ("http://[", 1)])
async def test_redirects_that_lead_nowhere_are_no_robots_txt(location: str, asked: int) -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(302, "", f"Location: {location}")
        assert await stage.allowed("/anything")
        assert stage.asked == asked


async def test_a_redirect_to_a_private_address_makes_robots_unreachable() -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(302, "", "Location: http://127.0.0.2/robots.txt")
        with pytest.raises(RobotsUnreachable, match="private"):
            await stage.rules()


async def test_500_megabytes_are_read_up_to_the_limit_only() -> None:
    async with a_stage() as stage:
        stage.site.robots = huge_robots
        assert not await stage.allowed("/secret")
        assert await stage.shelf.get(stage.site.url("")) is None  # a shelf may be a server's memory
        assert stage.site.sent < 20_000_000


SUBDOMAINS = [f"s{number}.localhost" for number in range(6)]
MANY_RULES = "User-agent: *\n" + "".join(f"Disallow:/{number:x}\n" for number in range(40_000))  # 75 KB, packed


@pytest.mark.long
async def test_robots_txt_of_many_subdomains_take_bounded_memory() -> None:
    guard = AddressGuard(allow_hosts=frozenset(SUBDOMAINS))
    async with hostile_site() as site, AiohttpTransport(guard) as transport:
        stage = Stage(site, transport, MemoryShelf())
        packed = gzip.compress(MANY_RULES.encode())
        site.answer_robots(200, packed, "Content-Encoding: gzip")
        tracemalloc.start()
        try:
            for host in SUBDOMAINS:
                assert not await stage.allowed("/1", host)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 40_000_000  # 13 MB each without a bound on rules


async def test_rules_of_many_origins_weigh_no_more_than_they_may() -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(200, MANY_RULES[:60_000])
        stage.robots = stage.fresh_robots(max_weight=3_000_000)  # those of one origin
        for host in ("127.0.0.1", "localhost", "localhost", "127.0.0.1"):
            await stage.rules(host=host)
            stage.shelf = stage.robots._shelf = MemoryShelf()
        assert stage.asked == 3


async def test_a_long_robots_txt_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def reading(*args: Any) -> RobotsRules:
        threads.append(threading.current_thread() is threading.main_thread())
        return read_robots(*args)

    monkeypatch.setattr("gossamer.fetch.robots.read_robots", reading)
    async with a_stage() as stage:
        stage.site.answer_robots(200, MANY_RULES[:100_000])
        await stage.rules()
        stage.site.answer_robots(200, "User-agent: *\nDisallow: /x\n")
        await stage.rules(host="localhost")
    assert threads == [False, True]


async def test_a_memory_shelf_is_bounded_by_size() -> None:
    shelf = MemoryShelf(max_size=250)
    for name in ("a", "b", "a", "c"):
        await shelf.put(RobotsEntry(origin=name, status=200, text="x" * 100, fetched_at=0, expires_at=1))
    assert [await shelf.get(name) is not None for name in "abc"] == [True, False, True]


def test_rules_beyond_the_bound_are_left_out() -> None:
    held = rules("User-agent: *\n" + "".join(f"Disallow: /{number}/\n" for number in range(MAX_RULES + 1)))
    assert not held.allowed(f"https://a.example/{MAX_RULES - 1}/")
    assert held.allowed(f"https://a.example/{MAX_RULES}/")


@pytest.mark.parametrize("body", ["<html><body>User-agent: *\nDisallow: /", b"\x00\xff\xfe" * 500, b"\xff\xd8\xff\xe0"])
async def test_html_and_binary_allow_all(body: str | bytes) -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(200, body)
        assert await stage.allowed("/anything")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
async def test_a_file_is_read_in_the_encoding_that_its_first_bytes_name(encoding: str) -> None:
    async with a_stage() as stage:
        stage.site.answer_robots(200, "\ufeffUser-agent: *\r\nDisallow: /secret\r\n".encode(encoding))
        assert not await stage.allowed("/secret")
        assert await stage.allowed("/open")


@pytest.mark.parametrize("line_end", ["\n", "\r"])
async def test_a_line_that_the_limit_cuts_says_nothing(line_end: str) -> None:
    async with a_stage() as stage:
        head, last = f"User-agent: *{line_end}Disallow: /secret{line_end}", "Disallow: /"
        comment = "#" * (MAX_TEXT - len(head) - len(last) - 1) + line_end
        stage.site.answer_robots(200, f"{head}{comment}{last}private{line_end}")
        assert not await stage.allowed("/secret")
        assert await stage.allowed("/open")


async def test_a_new_process_takes_the_rules_from_the_shelf() -> None:
    async with a_stage() as stage:
        origin = stage.site.url("")
        now = stage.clock.now()
        text = "User-agent: *\nDisallow: /secret\n"
        await stage.shelf.put(RobotsEntry(origin=origin, status=200, text=text, fetched_at=now, expires_at=now + 50))
        assert not await stage.allowed("/secret")
        assert stage.asked == 0
        stage.clock.advance(51)
        assert await stage.allowed("/secret")  # the site has none by now
        assert stage.asked == 1


async def test_parsed_rules_are_bounded_and_found_again_on_the_shelf() -> None:
    async with a_stage() as stage:
        stage.robots = stage.fresh_robots(max_origins=1)
        for host in ("127.0.0.1", "localhost"):
            assert await stage.allowed("/page", host)
        kept = await stage.shelf.get(stage.site.url(""))
        assert kept is not None
        # Another process learns of a new rule meanwhile: seen, since our own copy had to go.
        await stage.shelf.put(msgspec.structs.replace(kept, text="User-agent: *\nDisallow: /page\n"))
        assert not await stage.allowed("/page")
        assert stage.asked == 2


async def test_what_the_gate_raises_comes_through() -> None:
    async with a_stage() as stage:

        async def closed(asked: object = None) -> None:
            raise KeyError("drained")

        with pytest.raises(KeyError):
            await stage.robots.rules_for(stage.site.url("/a"), closed, stage.route)
        assert stage.asked == 0


async def test_the_shelf_in_memory_is_bounded() -> None:
    shelf = MemoryShelf(max_entries=2)
    for i in range(3):
        await shelf.put(RobotsEntry(origin=f"http://{i}", status=404, text="", fetched_at=0, expires_at=1))
    assert [await shelf.get(f"http://{i}") is not None for i in range(3)] == [False, True, True]
