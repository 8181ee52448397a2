"""Cookies between the jar and a browser. No browser is needed to write them."""

from __future__ import annotations

from typing import Any

import msgspec

from gossamer.clock import VirtualClock
from gossamer.fetch.browser.browser_cookies import browser_cookie, cookie_changes
from gossamer.fetch.cookies import CookieJar
from gossamer.model.page import Headers
from gossamer.model.session import Cookie

URL = "https://www.shop.example/books/page"
LATER = 4_000_000_000


def found(name: str, value: str = "1", domain: str = "www.shop.example", **more: Any) -> dict[str, Any]:
    """As the browser tells of it."""
    plain = {"path": "/", "expires": -1, "httpOnly": False, "secure": False, "sameSite": "Lax"}
    return {"name": name, "value": value, "domain": domain, **plain, **more}


def cookie(name: str, value: str = "1", **more: Any) -> Cookie:
    plain = {"domain": "www.shop.example", "path": "/", "host_only": True, "secure": False, "expires": None}
    return Cookie(name=name, value=value, **{**plain, **more})


def test_every_flag_goes_there_and_comes_back() -> None:
    flags = {"secure": True, "http_only": True, "same_site": "Strict", "expires": float(LATER), "path": "/books"}
    cookies = [cookie("a"), cookie("b", **flags), cookie("c", domain="shop.example", host_only=False), cookie("", "x")]
    told = [{**found("", ""), **browser_cookie(one)} for one in cookies]
    assert [one["domain"] for one in told] == [
        "www.shop.example",
        "www.shop.example",
        ".shop.example",
        "www.shop.example",
    ]
    assert (told[1]["httpOnly"], told[1]["secure"], told[1]["sameSite"], told[1]["expires"]) == (
        True,
        True,
        "Strict",
        LATER,
    )
    back = cookie_changes((), told)
    assert [msgspec.structs.replace(one, same_site="") for one in back] == [
        msgspec.structs.replace(one, same_site="") for one in cookies
    ]
    assert cookie_changes(cookies, told) == ()


def test_what_came_changed_and_went_is_told() -> None:
    given = [cookie("same", expires=LATER + 0.4), cookie("new"), cookie("longer"), cookie("gone", http_only=True)]
    left = [found("same", expires=LATER), found("new", "2"), found("longer", expires=LATER), found("script")]
    changes = cookie_changes(given, left)
    assert [(one.name, one.value, one.expires) for one in changes] == [
        ("new", "2", None), ("longer", "1", LATER), ("script", "1", None), ("gone", "1", 0.0),
    ]  # fmt: skip


def test_what_was_lent_for_one_page_is_not_kept() -> None:
    assert cookie_changes((), [found("once")], lent=[("once", "1")]) == ()
    assert len(cookie_changes((), [found("once", "2")], lent=[("once", "1")])) == 1


def test_an_address_of_numbers_keeps_its_cookies() -> None:
    (six,) = cookie_changes((), [found("a", domain="[::1]")])
    assert (six.domain, browser_cookie(six)["domain"]) == ("::1", "[::1]")


def test_the_jar_does_what_the_browser_did() -> None:
    jar = CookieJar(VirtualClock())
    jar.absorb(URL, Headers((("Set-Cookie", "gone=1; HttpOnly"), ("Set-Cookie", "a=1; Path=/"))))
    left = [
        found("a", "2"),
        found("alien", domain=".other.example"),
        found("split", "1\r\nX: y"),
        found("s", path="/books"),
    ]
    assert jar.take_in(URL, cookie_changes(jar.of_site(URL), left))
    assert jar.header_for(URL) == "s=1; a=2"
