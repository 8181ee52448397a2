"""A vendor's API as a transport, against servers that speak each shape: asked at once, and by jobs."""

from __future__ import annotations

import asyncio
import gzip
import logging
from datetime import timedelta

import msgspec
import pytest
from aiohttp import web

from gossamer.clock import SystemClock, VirtualClock
from gossamer.errors import AddressRefused, ApiFailed, FetchFailed, FetchRefused, RouteFailed
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits
from gossamer.fetch.managed import ManagedTransport
from gossamer.fetch.managed.api import patience
from gossamer.model.route import Proxy, Render
from tests.gates import HeldGate
from tests.patience import until
from tests.services.vendors import KEY, GetVendor, get_vendor, in_a_thread, job_vendor, status, text
from tests.sites.hostile import PAGE, hostile_site
from tests.unit.managed import GUARD, SITE, described, exchange, transport_to, while_time_flies

# -- the GET shape ------------------------------------------------------------------------------------------


async def test_the_get_shape_brings_the_page_its_status_and_its_cost() -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        url = server.show(f"{SITE}/a?b=c&d=%2F", "<p>gone", 404, ETag='"x"')
        response = await transport.fetch(exchange(f"{url}#part"))
    assert (response.url, response.status, response.body, response.cost) == (url, 404, b"<p>gone", 5.0)
    assert response.headers.get("etag") == '"x"'
    assert response.wire_bytes == len(b"<p>gone")
    assert server.log[0].query == {"api_key": KEY, "url": url}
    assert "cookie" not in server.log[0].headers


async def test_wishes_become_parameters() -> None:
    text = 'residential = true\ncountry = "de"\nextra = ["device_type=mobile"]\n'
    async with get_vendor() as server, transport_to(server, text) as transport:
        url = server.show(f"{SITE}/")
        await transport.fetch(exchange(url))
        await transport.fetch(exchange(url, render=Render(wait_for="#price"), country="FR"))
    plain, rendered = (
        {name: value for name, value in asked.query.items() if name not in ("api_key", "url")} for asked in server.log
    )
    assert plain == {"premium": "true", "country_code": "de", "device_type": "mobile"}
    assert rendered == {
        "premium": "true", "country_code": "fr", "device_type": "mobile", "render": "true",
        "wait_for_selector": "#price",
    }  # fmt: skip


async def test_a_vendor_that_visits_a_real_site_brings_its_page() -> None:
    async with get_vendor() as server, hostile_site() as site:
        server.visits = True
        guard = AddressGuard(allow_hosts=frozenset({"127.0.0.1"}))
        async with transport_to(server, guard=guard) as transport:
            response = await transport.fetch(exchange(site.url("/plain")))
    assert (response.status, response.body) == (200, PAGE)
    assert len(site.log) == 1


async def test_a_vendor_in_a_thread_of_its_own_answers_too() -> None:
    server = GetVendor()
    with in_a_thread(server):
        url = server.show(f"{SITE}/", "<p>from a thread")
        async with transport_to(server) as transport:
            assert (await transport.fetch(exchange(url))).body == b"<p>from a thread"


async def test_a_packed_answer_is_unpacked_and_a_long_one_is_cut() -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        server.trouble = [
            lambda: web.Response(body=gzip.compress(b"<p>" * 100), headers={"Content-Encoding": "gzip"}),
            lambda: web.Response(body=gzip.compress(b"0" * 10_000_000), headers={"Content-Encoding": "gzip"}),
            lambda: web.Response(body=b"x" * 200_000),
        ]
        packed, bomb, long = [await transport.fetch(exchange(f"{SITE}/{n}")) for n in range(3)]
    assert (packed.body, packed.cut) == (b"<p>" * 100, False)
    assert "content-encoding" not in packed.headers
    assert (len(bomb.body), bomb.cut) == (100_000, True)
    assert (len(long.body), long.cut) == (100_000, True)


async def test_the_request_is_told_when_it_leaves() -> None:
    gate = HeldGate()
    async with get_vendor() as server, transport_to(server) as transport:
        server.hold = asyncio.Event()
        task = asyncio.create_task(transport.fetch(exchange(server.show(f"{SITE}/"), gate=gate)))
        await until(lambda: server.log)
        assert gate.steps == ["entered", "left"]
        server.hold.set()
        await task


# -- the JSON shape -----------------------------------------------------------------------------------------


async def test_the_json_shape_brings_the_page() -> None:
    async with job_vendor() as server, transport_to(server, "render = true\nresidential = true\n") as transport:
        url = server.show(f"{SITE}/\u00fc".replace("\u00fc", "%C3%BC"), "<p>\u00fc", 503)
        response = await transport.fetch(exchange(url, country="us"))
    assert (response.url, response.status, response.body, response.cost) == (url, 503, "<p>\u00fc".encode(), 5.0)
    assert response.headers.get("content-type") == "text/html; charset=utf-8"
    (asked,) = server.log
    assert (asked.method, asked.path, asked.query) == ("POST", "/scrape", {})
    assert asked.headers["x-api-key"] == KEY
    assert asked.json == {"url": url, "use_js_render": True, "use_residential": True, "country": "us"}


async def test_base64_brings_bytes_that_are_no_text() -> None:
    async with job_vendor() as server, transport_to(server, 'body_encoding = "base64"\n') as transport:
        server.base64 = True
        url = server.show(f"{SITE}/picture", b"\x89PNG\xff\x00", Content_Type="image/png")
        response = await transport.fetch(exchange(url))
    assert (response.body, response.headers.get("content-type")) == (b"\x89PNG\xff\x00", "image/png")


async def test_a_page_that_the_vendor_cannot_get_uses_up_a_try() -> None:
    async with job_vendor() as server, transport_to(server) as transport:
        server.fails[f"{SITE}/a"] = "the site hung up"
        server.refuses.add(f"{SITE}/b")
        for path, words in (("/a", "the site hung up"), ("/b", "not served")):
            with pytest.raises(FetchFailed, match=words) as caught:
                await transport.fetch(exchange(SITE + path))
            assert not isinstance(caught.value, RouteFailed)


async def test_a_third_vendor_needs_no_code() -> None:
    async with job_vendor() as server:
        vendor = described(f"""
            url = "{server.url}/v9"
            allow_private = true
            key = "{KEY}"
            key_at = "header:Authorization"
            key_prefix = "Bearer "
            method = "POST"
            send = "json"
            path = "/extract"
            url_param = "target"
            render_param = "engine=browser"
            country_param = "geo"
            extra = ["retries=2", "format=html"]
            body_at = "solution.pages.0.html"
            status_at = "solution.pages.0.code"
            cost_at = "header:x-credits"
            final_url_at = "solution.pages.0.address"
            error_at = "message"
        """)
        page = '{"html": "<p>third", "code": 200, "address": "https://www.shop.example/"}'
        server.trouble = [
            lambda: web.Response(text=f'{{"solution": {{"pages": [{page}]}}}}', headers={"x-credits": "0.25"})
        ]
        async with ManagedTransport(vendor, GUARD, SystemClock()) as transport:
            response = await transport.fetch(exchange(f"{SITE}/", render=Render(), country="IT"))
    assert (response.url, response.status, response.body) == ("https://www.shop.example/", 200, b"<p>third")
    assert response.cost == 0.25
    (asked,) = server.log
    assert (asked.path, asked.headers["authorization"]) == ("/v9/extract", f"Bearer {KEY}")
    assert asked.json == {"target": f"{SITE}/", "engine": "browser", "geo": "it", "retries": 2, "format": "html"}


# -- jobs ---------------------------------------------------------------------------------------------------


async def test_a_job_is_polled_until_it_is_done() -> None:
    async with job_vendor() as server, transport_to(server, 'mode = "async"\n') as transport:
        server.polls = 3
        url = server.show(f"{SITE}/", "<p>late", 410)
        response = await transport.fetch(exchange(url))
    assert (response.url, response.status, response.body, response.cost) == (url, 410, b"<p>late", 5.0)
    assert [asked.path for asked in server.log] == ["/scrape/async", *["/jobs/job-0"] * 3]
    assert {asked.headers["x-api-key"] for asked in server.log} == {KEY}


async def test_a_job_that_failed_uses_up_a_try_and_says_why() -> None:
    async with job_vendor() as server, transport_to(server, 'mode = "async"\n') as transport:
        server.fails[f"{SITE}/"] = "captcha"
        with pytest.raises(FetchFailed, match="could not get the page: captcha") as caught:
            await transport.fetch(exchange(f"{SITE}/"))
    assert not isinstance(caught.value, RouteFailed)


async def test_looks_at_a_job_become_rarer() -> None:
    clock = VirtualClock()
    text = 'mode = "async"\npoll = "1s"\nmax_poll = "1h"\ndeadline = "50s"\n'
    async with job_vendor() as server, transport_to(server, text, clock=clock) as transport:
        server.polls = None
        with pytest.raises(ApiFailed, match=r"not finished within 50 s \(managed\.acme\.deadline\)"):
            await while_time_flies(clock, transport.fetch(exchange(f"{SITE}/")), step=0.001)
    # 1, 1.5, 2.25 ... seconds apart, where looks every second would have made fifty.
    assert 2 <= len(server.asked("/jobs/job-0")) <= 9


def test_a_vendor_that_finds_us_impatient_is_looked_at_later() -> None:
    busy = ApiFailed("busy", wait=timedelta(seconds=77), status=429)
    assert patience(busy, timedelta(seconds=2)) == timedelta(seconds=77)
    assert patience(ApiFailed("down", status=502), timedelta(seconds=3)) == timedelta(seconds=3)


@pytest.mark.parametrize("job", ["", ".", "..", "x" * 300])
async def test_a_job_without_a_usable_id_is_garbage(job: str) -> None:
    async with job_vendor() as server, transport_to(server, 'mode = "async"\n') as transport:
        server.trouble = [text(f'{{"job_id": "{job}"}}')]
        with pytest.raises(ApiFailed, match="no job id"):
            await transport.fetch(exchange(f"{SITE}/"))
    assert len(server.log) == 1


async def test_the_id_of_a_job_cannot_lead_elsewhere() -> None:
    async with job_vendor() as server, transport_to(server, 'mode = "async"\n') as transport:
        server.trouble = [text('{"job_id": "../../admin?x=y#z"}')]
        with pytest.raises(ApiFailed):
            await transport.fetch(exchange(f"{SITE}/"))
    assert server.log[1].path == "/jobs/../../admin?x=y#z"  # one segment of the path, after unquoting
    assert server.log[1].query == {}


# -- what must not be asked ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://[::1]/", "http://169.254.169.254/latest",
        "http://10.0.0.1:8080/", "http://localhost/", "http://x.localhost/", "http://[::ffff:127.0.0.1]/",
        "http://0x7f.0.0.1/", "http://127.0.0.1./",
    ],
)  # fmt: skip
async def test_a_private_target_is_refused_before_the_vendor_is_asked(url: str) -> None:
    async with get_vendor() as server, transport_to(server, guard=AddressGuard()) as transport:
        with pytest.raises(AddressRefused):
            await transport.fetch(exchange(url))
    assert server.log == []


async def test_a_name_that_leads_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def inside(name: str, *_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 0))]

    async with get_vendor() as server, transport_to(server, guard=AddressGuard()) as transport:
        monkeypatch.setattr(socket, "getaddrinfo", inside)
        with pytest.raises(AddressRefused, match=r"inside\.example leads to 10\.1\.2\.3"):
            await transport.fetch(exchange("http://inside.example/"))
    assert server.log == []


async def test_a_name_that_only_the_vendor_can_look_up_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def nothing(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async with get_vendor() as server, transport_to(server, guard=AddressGuard()) as transport:
        monkeypatch.setattr(socket, "getaddrinfo", nothing)
        url = server.show("http://far-away.example/")
        assert (await transport.fetch(exchange(url))).status == 200


async def test_what_a_vendor_cannot_do_is_refused() -> None:
    proxy = Proxy(pool="p", name="p", scheme="http", host="proxy.example", port=1)
    async with get_vendor() as server, transport_to(server) as transport:
        for refused in (
            exchange(f"{SITE}/", method="POST"),
            exchange(f"{SITE}/", proxy=proxy),
            exchange("ftp://shop.localhost/"),
        ):
            with pytest.raises(FetchRefused):
                await transport.fetch(refused)
    assert server.log == []


async def test_a_private_base_is_never_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    async with get_vendor() as canary:
        vendor = described(f'preset = "scraperapi"\nurl = "http://api.example:{canary.port}"\nkey = "{KEY}"\n')
        async with ManagedTransport(vendor, GUARD, SystemClock()) as transport:
            answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
            monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
            with pytest.raises(ApiFailed, match=r"managed\.acme\.allow_private = true") as caught:
                await transport.fetch(exchange(f"{SITE}/"))
    assert canary.log == []
    assert caught.value.wait >= timedelta(minutes=1)


async def test_the_address_is_checked_once_more_when_it_is_dialled() -> None:
    async with get_vendor() as canary:
        vendor = described(f'preset = "scraperapi"\nurl = "https://api.example"\nkey = "{KEY}"\n')
        # As if the checks of the table had let it through: a literal address is not looked up.
        vendor = msgspec.structs.replace(vendor, base=canary.url)
        async with ManagedTransport(vendor, GUARD, SystemClock()) as transport:
            with pytest.raises(ApiFailed, match="private or reserved"):
                await transport.fetch(exchange(f"{SITE}/"))
    assert canary.log == []


# -- the key ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["sync", "async", "batch"])
async def test_a_redirect_of_the_api_is_not_followed_and_the_key_goes_nowhere(mode: str) -> None:
    text = f'mode = "{mode}"\n'
    async with job_vendor() as server, job_vendor() as canary, transport_to(server, text) as transport:
        server.always = status(307, location=f"{canary.url}/scrape?k={KEY}")
        with pytest.raises(ApiFailed, match="redirects us"):
            await transport.fetch(exchange(f"{SITE}/"))
    assert canary.log == []


async def test_a_redirect_with_the_key_in_it_is_not_taken_for_the_targets() -> None:
    async with get_vendor() as server, get_vendor() as canary, transport_to(server) as transport:
        server.always = status(302, location=f"{canary.url}/?api_key=k3y-of-the-account%2F%2B%3D7")
        with pytest.raises(ApiFailed, match="redirects us"):
            await transport.fetch(exchange(f"{SITE}/"))
    assert canary.log == []


def _everything_said(error: BaseException | None) -> str:
    said = ""
    while error is not None:
        said += repr(error) + str(error) + repr(vars(error))
        error = error.__cause__ or error.__context__
    return said


async def test_the_key_is_in_no_error_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    said = ""
    async with get_vendor() as server, transport_to(server) as transport:
        server.trouble = [
            status(502, f"failed for {KEY}"),
            status(500, f"failed for {KEY}"),
            lambda: web.Response(status=503, text=f"/?api_key=k3y-of-the-account%2F%2B%3D7&url={SITE}"),
            status(302, location=f"/?api_key={KEY}"),
            status(401, f"bad key {KEY}"),
        ]
        for _ in range(5):
            with pytest.raises(FetchFailed) as caught:
                await transport.fetch(exchange(f"{SITE}/"))
            said += _everything_said(caught.value)
        said += repr(transport)
    async with get_vendor() as server, transport_to(server, 'timeout = "300ms"\n') as transport:
        server.hold = asyncio.Event()
        with pytest.raises(ApiFailed, match="no answer within") as caught:
            await transport.fetch(exchange(f"{SITE}/"))
        said += _everything_said(caught.value)
        server.hold.set()
    async with transport_to(server) as transport:
        with pytest.raises(ApiFailed, match="no connection") as caught:
            await transport.fetch(exchange(f"{SITE}/"))
        said += _everything_said(caught.value)
    said += caplog.text
    assert "***" in said
    for form in (KEY, "k3y-of-the-account%2F%2B%3D7", "k3y-of-the-account"):
        assert form not in said


@pytest.mark.parametrize("path", ["/garbage", "/http09", "/huge-header", "/short-body", "/bad-chunked", "/two-lengths"])
async def test_a_vendor_that_speaks_no_http_costs_no_try_and_shows_no_key(path: str) -> None:
    async with hostile_site() as site:
        vendor = described(
            f'preset = "scraperapi"\nurl = "{site.url("")}"\npath = "{path}"\nkey = "{KEY}"\nallow_private = true\n'
        )
        async with ManagedTransport(vendor, GUARD, SystemClock()) as transport:
            with pytest.raises(ApiFailed) as caught:
                await transport.fetch(exchange(f"{SITE}/"))
    assert "k3y-of-the-account" in site.log[0].path
    assert "k3y-of-the-account" not in _everything_said(caught.value)


async def test_the_time_for_one_exchange_bounds_a_call() -> None:
    async with get_vendor() as server, transport_to(server) as transport:
        server.hold = asyncio.Event()
        with pytest.raises(ApiFailed, match=r"no answer within 0\.2 s"):
            await transport.fetch(exchange(f"{SITE}/", limits=Limits(total=timedelta(milliseconds=200))))
        server.hold.set()


async def test_a_transport_that_is_not_entered_says_so() -> None:
    async with get_vendor() as server:
        with pytest.raises(RuntimeError, match="async with"):
            await transport_to(server).fetch(exchange(f"{SITE}/"))
