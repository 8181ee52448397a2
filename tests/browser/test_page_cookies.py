"""Cookies of a browser as `Set-Cookie` lines. No browser is needed to write them."""

from __future__ import annotations

from typing import Any

from gossamer.clock import SystemClock
from gossamer.fetch.browser.browser_page import set_cookie_lines
from gossamer.fetch.cookies import CookieJar
from gossamer.model.page import Headers

URL = "https://www.shop.example/books/page"
LATER = 4_000_000_000


def cookie(name: str, value: str = "1", domain: str = "www.shop.example", **more: Any) -> dict[str, Any]:
    """As the browser tells of it."""
    plain = {"path": "/", "expires": -1, "httpOnly": False, "secure": False}
    return {"name": name, "value": value, "domain": domain, **plain, **more}


def lines(*cookies: dict[str, Any], url: str = URL, max_size: int = 10_000, **known: Any) -> list[str]:
    return set_cookie_lines(url, cookies, max_size=max_size, **{"given": (), "told": (), **known})


def test_a_line_says_all_that_a_jar_must_know() -> None:
    assert lines(cookie("a")) == ["a=1; Path=/"]
    long = cookie("b", domain=".shop.example", path="/books", expires=LATER, secure=True, httpOnly=True)
    assert lines(long) == [
        "b=1; Domain=shop.example; Path=/books; Expires=Tue, 02 Oct 2096 07:06:40 GMT; Secure; HttpOnly"
    ]


def test_only_what_the_address_may_set_is_told() -> None:
    others = ("other.example", ".other.example", "img.shop.example", ".img.shop.example", "shop.example", ".example")
    assert lines(*(cookie("a", domain=domain) for domain in others)) == []
    assert lines(cookie("a", secure=True), url="http://www.shop.example/") == []


def test_an_address_of_numbers_keeps_its_cookies() -> None:
    assert lines(cookie("a", domain="[::1]"), url="http://[::1]:8080/") == ["a=1; Path=/"]


def test_what_is_known_already_is_not_told_again() -> None:
    told = ["a=1; Domain=shop.example", "b=1; Path=/", "c=1; Max-Age=60"]
    left = [cookie("a", domain=".shop.example", path="/books"), cookie("b", "2"), cookie("c", path="/books")]
    assert lines(*left, told=told) == ["b=2; Path=/"]


def test_what_we_gave_comes_back_only_when_it_was_changed() -> None:
    given = [("same", "1"), ("changed", "1"), ("prolonged", "1"), ("elsewhere", "1")]
    left = [
        cookie("same"),
        cookie("changed", "2"),
        cookie("prolonged", expires=LATER),
        cookie("elsewhere", path="/books"),
    ]
    assert [line.partition("=")[0] for line in lines(*left, given=given)] == ["changed", "prolonged", "elsewhere"]


def test_the_fetchers_jar_takes_every_line() -> None:
    left = [cookie("a", expires=LATER), cookie("b", "x=y", path="/books"), cookie("", "nameless"), cookie("d", "")]
    jar = CookieJar(SystemClock())
    jar.absorb(URL, Headers(("Set-Cookie", line) for line in lines(*left)))
    assert jar.header_for(URL) == "b=x=y; a=1; nameless; d="


def test_there_is_an_end_to_what_a_page_may_leave() -> None:
    many = [cookie(f"c{number}", "x" * 4000) for number in range(50)]
    found = lines(*many, cookie("small"), max_size=10_000)
    assert [line.partition("=")[0] for line in found] == ["c0", "c1", "small"]
