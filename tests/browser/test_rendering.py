"""Pages in a real browser: what scripts make, what is waited for, what goes out and what comes back."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gossamer.clock import SystemClock
from gossamer.errors import (
    AddressRefused,
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    FetchRefused,
    TimedOut,
    TlsFailed,
)
from gossamer.fetch.browser import page_actions
from gossamer.fetch.contract import Limits
from gossamer.fetch.cookies import Cookie, CookieJar
from gossamer.model.route import Action
from tests.gates import HeldGate
from tests.patience import PATIENCE, until
from tests.sites.api import api_site
from tests.sites.certificates import self_signed
from tests.sites.hostile import Call, HostileSite, head, hostile_site

from .showing import CANARY, HOST, LIMITS, OTHER, Show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
HASTY = Limits(total=timedelta(seconds=1))  # for what ends by its limit alone


def paths(site: HostileSite) -> set[str]:
    return {seen.path for seen in site.log}


async def test_letters_of_another_encoding_come_as_utf_8(show: Show) -> None:
    show.site.show("/latin", "<meta charset=latin-1><p>Zürich</p>".encode("latin-1"), kind="text/html")
    response = await show.get(show.url("/latin"))
    assert "Zürich" in response.body.decode("utf-8")


async def test_a_page_is_waited_for_as_long_as_wished(show: Show) -> None:
    url = show.page("<p id=here></p><script>setTimeout(() => here.textContent = 'late', 600)</script>")
    # Much longer than the script takes: on a busy machine its timer is late.
    assert b"late</p>" in (await show.get(url, wait=2.5)).body


async def test_a_selector_that_never_comes_is_a_timeout(show: Show) -> None:
    with pytest.raises(TimedOut, match=r"fetch\.total_timeout"):
        await show.get(show.url("/rendered"), wait_for="#never", limits=HASTY)


async def test_a_selector_that_is_none_is_refused_for_good(show: Show) -> None:
    with pytest.raises(FetchRefused, match=r"the selector of wait p\[\[ is not valid CSS"):
        await show.get(show.url("/rendered"), wait_for="p[[")


async def test_a_page_that_is_never_quiet_is_read_all_the_same(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_actions, "_LONGEST_SETTLING", 1.0)
    response = await show.get(show.url("/never-quiet"))
    assert b'id="here"' in response.body
    assert "not quiet" in response.note


async def test_a_page_that_is_never_quiet_is_a_timeout_for_who_insists(show: Show) -> None:
    with pytest.raises(TimedOut):
        await show.get(show.url("/never-quiet"), wait_until="networkidle", limits=HASTY)


async def test_actions_happen_in_their_order(show: Show) -> None:
    actions = (
        Action(do="click", selector="#more", times=2),
        Action(do="type", selector="#word", text="silk"),
        Action(do="press", selector="#word", text="Enter"),
        Action(do="scroll", times=2),
        Action(do="wait", selector="#depth.deep", seconds=60),
    )
    response = await show.get(show.url("/acted"), actions=actions)
    assert b'<p id="out">clicked clicked entered </p>' in response.body
    assert b'<p id="echo">silk</p>' in response.body
    assert b'<p id="depth" class="deep">' in response.body


async def test_blocked_kinds_are_not_asked_for(show: Show) -> None:
    response = await show.get(show.url("/heavy"))
    assert b"by script" in response.body
    assert paths(show.site) == {"/heavy", "/style.css", "/script.js"}


async def test_a_page_can_block_other_kinds(show: Show) -> None:
    response = await show.get(show.url("/heavy"), block=("script", "stylesheet"))
    assert b"by script" not in response.body
    assert {"/picture.png", "/film.mp4"} <= paths(show.site)
    assert not {"/script.js", "/style.css"} & paths(show.site)


async def test_an_unknown_kind_is_refused(show: Show) -> None:
    with pytest.raises(FetchRefused, match="'pictures'"):
        await show.get(show.url("/heavy"), block=("pictures",))


async def test_a_screenshot_is_a_png(show: Show) -> None:
    response = await show.get(show.url("/rendered"), screenshot=True)
    assert response.screenshot.startswith(b"\x89PNG\r\n\x1a\n")
    width = int.from_bytes(response.screenshot[16:20], "big")
    assert width == 1280
    assert (await show.get(show.url("/rendered"))).screenshot == b""


async def test_cookies_that_scripts_set_come_back(show: Show) -> None:
    url = show.page(
        f"""<script>document.cookie = "own=1"; document.cookie = "given=new; path=/; max-age=3600";
        document.cookie = "wide=1; path=/; domain={HOST}";
        document.cookie = "gone=; path=/; max-age=0"; fetch("/shop/set")</script>""",
        "Set-Cookie: first=1; HttpOnly",
        path="/shop/page",
    )
    show.site.show("/shop/set", "", "Set-Cookie: late=1; Path=/shop; HttpOnly")
    given = Cookie("given", "old", HOST, "/", host_only=True, secure=False, expires=None)
    kept = Cookie("kept", "1", HOST, "/", host_only=True, secure=False, expires=None, http_only=True)
    gone = Cookie("gone", "1", HOST, "/", host_only=True, secure=False, expires=None)
    response = await show.get(url, ("Cookie", "given=old; kept=1; gone=1; lent=1"), cookies=(given, kept, gone))
    assert show.site.seen("/shop/page")[0].headers["cookie"] == "given=old; kept=1; gone=1; lent=1"
    found = {cookie.name: cookie for cookie in response.cookies}
    assert sorted(found) == ["first", "given", "gone", "late", "own", "wide"]
    assert (found["first"].http_only, found["late"].path, found["late"].http_only) == (True, "/shop", True)
    assert (found["given"].value, found["given"].host_only, found["wide"].host_only) == ("new", True, False)
    assert found["given"].expires is not None
    jar = CookieJar(SystemClock())
    for cookie in (given, kept, gone):
        jar.keep(cookie)
    jar.absorb(url, response.headers)
    jar.take_in(url, response.cookies)
    after = (jar.header_for(url) or "").split("; ")
    assert sorted(after) == ["first=1", "given=new", "kept=1", "late=1", "own=1", "wide=1"]


async def test_cookies_of_another_site_do_not_come_back(show: Show) -> None:
    """The page moves on to a site that sets some: they are not of the address that was asked for."""
    show.site.show("/foreign", "<script>document.title = document.cookie</script>", "Set-Cookie: foreign=1")
    there = show.url("/foreign", OTHER)
    url = show.page(f"<script>document.cookie = 'own=1'; location = '{there}'</script>", "Set-Cookie: server=1")
    response = await show.get(url)
    assert (response.url, b"<title>foreign=1</title>" in response.body) == (there, True)
    assert response.headers.getall("set-cookie") == []
    jar = CookieJar(SystemClock())
    jar.take_in(url, response.cookies)
    assert sorted(cookie.name for cookie in jar.all()) == ["own", "server"]


async def test_headers_go_with_the_document_and_with_nothing_else(show: Show) -> None:
    frame = show.url("/heavy", OTHER)
    url = show.page(f"<iframe src='{frame}'></iframe><script src=/script.js></script>")
    await show.get(url, ("Authorization", "Bearer s3cret"), ("X-Own", "1"), ("User-Agent", "Test/1"), ("Accept", "no"))
    first, *rest = show.site.log
    assert (first.headers["authorization"], first.headers["x-own"]) == ("Bearer s3cret", "1")
    assert first.headers["accept"].startswith("text/html")
    assert rest
    assert not [seen for seen in rest if "authorization" in seen.headers or "x-own" in seen.headers]
    assert {seen.headers["user-agent"] for seen in show.site.log} == {"Test/1"}


async def test_a_script_may_move_on_within_the_site(show: Show) -> None:
    response = await show.get(show.page("<script>location = '/rendered'</script>"))
    assert response.url == show.url("/rendered")
    assert b"Grace" in response.body


async def test_headers_do_not_follow_a_click_to_another_origin(show: Show) -> None:
    show.site.show("/away", "", f"Location: {show.url('/rendered', OTHER)}", status=302)
    url = show.page("<a id=go href=/away>go</a>")
    go = (Action(do="click", selector="#go"), Action(do="wait", selector=".name", seconds=10))
    response = await show.get(url, ("Authorization", "Bearer s3cret"), ("Cookie", "a=1"), actions=go)
    assert response.url == show.url("/rendered", OTHER)
    there = show.site.seen("/rendered")[0].headers
    assert not {"authorization", "cookie"} & there.keys()


async def test_json_and_text_come_as_they_are(show: Show) -> None:
    response = await show.get(show.url("/data.json"))
    assert (response.body, response.headers.get("content-type")) == (
        b'{"names": ["Ada", "Grace"]}',
        "application/json",
    )
    show.site.show("/long", b"x" * 500_000, kind="text/plain")
    long = await show.get(show.url("/long"))
    assert (len(long.body), long.cut) == (LIMITS.max_body, True)


@pytest.mark.parametrize(
    ("header", "kind"),
    [("Content-Disposition: attachment; filename=a.html", "text/html"), ("X-Any: 1", "application/octet-stream")],
)
async def test_a_file_comes_as_it_is(show: Show, header: str, kind: str) -> None:
    show.site.show("/file", b"\0x" * 1000, header, kind=kind)
    response = await show.get(show.url("/file"))
    assert (response.body, response.headers.get("content-type"), response.cut) == (b"\0x" * 1000, kind, False)
    few = await show.get(show.url("/file"), limits=msgspec.structs.replace(LIMITS, max_body=1000))
    assert (few.body, few.cut) == (b"\0x" * 500, True)
    (process,) = show.transport.pool.processes
    assert not [file for file in process.folder.rglob("*") if file.is_file() and file.read_bytes() == b"\0x" * 1000]


async def test_a_file_that_breaks_off_is_no_file(show: Show) -> None:
    async def broken(call: Call) -> None:
        await call.send(head(200, length=1000, kind="text/csv") + b"a,b")
        call.hang_up()

    show.site.shown["/broken.csv"] = broken
    with pytest.raises(ConnectionDropped, match="before the file was complete"):
        await show.get(show.url("/broken.csv"))


async def test_a_file_of_no_type_is_left_to_other_routes(show: Show) -> None:
    show.site.show("/bytes", b"\0\1\2", kind="")
    with pytest.raises(FetchRefused, match="Fetch it by a route without a browser"):
        await show.get(show.url("/bytes"))


async def test_an_unchanged_page_is_told_as_such(show: Show) -> None:
    show.site.show("/same", "", status=304)
    response = await show.get(show.url("/same"), ("If-None-Match", '"one"'))
    assert (response.status, response.body) == (304, b"")
    assert show.site.seen("/same")[0].headers["if-none-match"] == '"one"'


async def test_every_status_is_a_response(show: Show) -> None:
    url = show.page("<p>no</p>", status=503)
    assert (await show.get(url)).status == 503
    assert (await show.get(show.url("/nothing-there"))).status == 404


async def test_an_error_without_a_body_is_a_response(show: Show) -> None:
    """For which a browser shows a page of its own."""
    show.site.show("/empty", b"", "X-Why: gone", status=410)
    for url in (show.url("/empty"), show.page("<script>location = '/empty'</script>")):
        response = await show.get(url)
        assert (response.status, response.body, response.headers.get("x-why")) == (410, b"", "gone")
        assert response.url == show.url("/empty")


async def test_the_document_waits_for_its_gate_and_what_it_loads_does_not(show: Show) -> None:
    gate, before = HeldGate(is_open=False), show.site.connections
    showing = asyncio.ensure_future(show.get(show.url("/heavy"), gate=gate))
    async with asyncio.timeout(PATIENCE):
        await gate.reached.wait()
    await until(lambda: show.site.connections > before, "the connection")
    assert show.site.log == []
    gate.opened.set()
    await showing
    assert len(show.site.log) > 1
    assert gate.steps == ["entered", "left"]


async def test_a_site_that_asks_for_a_password_gets_none(show: Show) -> None:
    show.site.show("/locked", "locked", 'WWW-Authenticate: Basic realm="x"', status=401)
    response = await show.get(show.url("/locked"))
    assert response.status == 401
    url = show.page("<p id=out></p><script>fetch('/locked').then(a => out.textContent = a.status)</script>")
    response = await show.get(url)
    assert (b'<p id="out">401</p>' in response.body, response.unfinished) == (True, "")
    assert not [seen for seen in show.site.log if "authorization" in seen.headers]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/reset-before-headers", ConnectionDropped),
        ("/close-before-headers", ConnectionDropped),
        ("/reset-mid-body", ConnectionDropped),
        ("/short-body", ConnectionDropped),
        ("/short-chunked", ConnectionDropped),
        ("/garbage", BadResponse),
        ("/huge-header", BadResponse),
        ("/bad-chunked", BadResponse),
        ("/silence", TimedOut),
    ],
)
async def test_servers_that_fail_are_told_apart(show: Show, path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await show.get(show.url(path), limits=HASTY if error is TimedOut else LIMITS)


async def test_a_port_where_nobody_listens_is_a_failed_connection(show: Show) -> None:
    with pytest.raises(ConnectFailed, match="no connection"):
        await show.get(f"http://{HOST}:{_closed_port()}/")


async def test_a_document_without_end_is_cut(show: Show) -> None:
    response = await show.get(show.url("/endless"), limits=msgspec.structs.replace(LIMITS, max_body=50_000))
    assert (len(response.body), response.cut) == (50_000, True)
    assert response.wire_bytes < 1_000_000


async def test_a_certificate_that_nobody_vouches_for_is_refused(show: Show, tmp_path: Path) -> None:
    async with hostile_site(tls=self_signed(tmp_path)) as locked:
        with pytest.raises(TlsFailed):
            await show.get(locked.url("/plain", HOST))
    assert not locked.log


async def test_only_pages_that_can_be_opened_are_opened(show: Show) -> None:
    for url in ("file:///etc/passwd", "chrome://version", "http://site.localhost/a b"):
        with pytest.raises(FetchRefused):
            await show.get(url)
    with pytest.raises(FetchRefused, match="not by HEAD"):
        await show.get(show.url("/rendered"), method="HEAD")
    with pytest.raises(AddressRefused):
        await show.get(show.canary.url("/", CANARY))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_page_is_opened_by_any_method_with_its_body(show: Show, method: str) -> None:
    async with api_site() as site:
        url = site.url("/echo", HOST)
        response = await show.get(url, ("Content-Type", "application/json"), method=method, body=b'{"a":1}')

    (asked,) = [one for one in site.log if one.path == "/echo"]
    assert response.status == 200
    assert (asked.method, asked.body) == (method, b'{"a":1}')
    assert asked.headers["content-type"] == "application/json"


def _closed_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])
