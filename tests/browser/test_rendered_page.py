"""A page in a real browser: the few promises that `make test` looks at. All others are in test_rendering.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gossamer.model.page import Snapshot
from gossamer.parse.page import Page
from tests.patience import until
from tests.sites.hostile import Call, whole

from .showing import LIMITS, OTHER, Show, driver_and_browser, renderers

pytestmark = pytest.mark.asyncio(loop_scope="module")


def growing_page(show: Show) -> tuple[str, asyncio.Event]:
    """A page that grows when its server says so: its address, and the event that lets the server say it."""
    released = asyncio.Event()

    async def answer_then(call: Call) -> None:
        await released.wait()
        await whole(call, b"")

    show.site.shown["/later"] = answer_then
    page = "<p id=here></p><script>fetch('/later').then(() => here.className = 'late')</script>"
    return show.page(page), released


async def test_what_scripts_make_is_in_the_body(show: Show) -> None:
    response = await show.get(show.url("/rendered"))
    assert b'<p class="name">Ada</p><p class="name">Grace</p>' in response.body
    assert (response.status, response.headers.get("content-type")) == (200, "text/html; charset=utf-8")
    assert (response.url, response.address, response.cut) == (show.url("/rendered"), "127.0.0.1", False)
    assert response.wire_bytes > 100
    assert response.seconds > 0


async def test_what_stands_in_shadow_roots_is_part_of_the_page(show: Show) -> None:
    url = show.page(
        "<html lang=en><body><x-shop>on <b>sale</b></x-shop><script>"
        "const root = (host, html) => host.attachShadow({mode: 'open'}).innerHTML = html;"
        "root(document.querySelector('x-shop'), '<a href=/wares>All wares</a> <x-part></x-part><p><slot></slot></p>');"
        "root(document.querySelector('x-shop').shadowRoot.querySelector('x-part'), '<a href=/inner>More $& $1</a>');"
        "</script>"
    )
    response = await show.get(url)
    page = Page(
        Snapshot(url=url, requested_url=url, status=200, headers=response.headers, body=response.body, fetched_at=0)
    )
    assert page.links() == [show.url("/wares"), show.url("/inner")]
    assert page.css("x-shop a::text").getall() == ["All wares", "More $& $1"]
    assert page.css("x-shop p b::text").get() == "sale"
    assert page.css("html::attr(lang)").get() == "en"


async def test_a_page_is_waited_for_until_a_selector_is_there(show: Show) -> None:
    url, released = growing_page(show)
    assert b'class="late"' not in (await show.get(url, wait_until="load")).body
    waiting = asyncio.create_task(show.get(url, wait_for="#here.late"))
    await until(lambda: len(show.site.seen("/later")) == 2, "the second page asks")
    released.set()
    assert b'class="late"' in (await waiting).body


async def test_cookies_go_to_their_host_and_come_back(show: Show) -> None:
    other = show.url("/data.json", OTHER)
    url = show.page(f"<script>document.title = document.cookie; fetch('{other}')</script>", "Set-Cookie: new=1")
    response = await show.get(url, ("Cookie", "a=1; b=two words"))
    assert b"<title>a=1; b=two words" in response.body
    assert show.site.seen("/page")[0].headers["cookie"] == "a=1; b=two words"
    assert "cookie" not in show.site.seen("/data.json")[0].headers
    assert response.headers.getall("set-cookie") == ["new=1"]
    assert b"a=1" not in (await show.get(url)).body  # the next page knows nothing of it


async def test_a_redirect_is_returned_and_not_followed(show: Show) -> None:
    show.site.show("/moved", "", "Location: /rendered", "Set-Cookie: a=1", status=302)
    response = await show.get(show.url("/moved"), ("X-Own", "1"))
    assert (response.status, response.headers.get("location")) == (302, "/rendered")
    assert (response.url, response.body) == (show.url("/moved"), b"")
    assert response.headers.getall("set-cookie") == ["a=1"]
    assert {seen.path for seen in show.site.log} == {"/moved"}


async def test_a_page_longer_than_the_limit_is_cut(show: Show) -> None:
    response = await show.get(show.page("<script>document.write('x'.repeat(400000))</script>"))
    assert (len(response.body), response.cut) == (LIMITS.max_body, True)


async def test_the_browser_has_no_window_of_its_own_beside_the_page(show: Show) -> None:
    url, released = growing_page(show)
    waiting = asyncio.create_task(show.get(url, wait_for="#here.late"))
    await until(lambda: bool(show.site.seen("/later")), "the page asks")
    (process,) = show.transport.pool.processes
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in renderers(process.watchdog)}
    browser = Path(f"/proc/{driver_and_browser(process.watchdog)[1]}/cmdline").read_bytes().split(b"\0")
    released.set()
    await waiting

    # then there is no page of the address bar, and nothing is on that Playwright turns off
    assert [pid for pid, said in words.items() if b"--top-chrome-webui" in said] == []
    *before, last = [word.partition(b"=")[2].split(b",") for word in browser if word.startswith(b"--disable-features=")]
    assert before
    assert {name for names in before for name in names} <= {*last}
