"""Pages over TLS: the tunnel is opened by the guard proxy, and the browser itself looks at the certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gossamer.clock import SystemClock
from gossamer.errors import AddressRefused, LeaseLost, ProxyFailed, TlsFailed
from gossamer.fetch.browser.guard_traffic import MAX_REQUESTS_ABROAD, MAX_TUNNELS_ABROAD
from gossamer.fetch.cookies import CookieJar
from tests.gates import HeldGate
from tests.patience import PATIENCE, until
from tests.services.proxies import ProxyServer, Vouched, http_proxy, socks_proxy, vouched_for
from tests.sites.hostile import Call, hostile_site
from tests.sites.http2 import http2_site

from .showing import CANARY, HOST, OTHER, Show, a_show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
USERS = {"ann": "pa55-w0rd"}


@pytest.fixture(scope="module")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> Vouched:
    return vouched_for(tmp_path_factory.mktemp("believed"), HOST, OTHER, CANARY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_show(chromium: None, vouched: Vouched) -> AsyncIterator[Show]:
    """What `show` shares here: servers with a certificate that this browser believes."""
    async with a_show(vouched=vouched) as show:
        yield show


async def test_a_page_over_https_is_shown(show: Show) -> None:
    url = show.page(f"<iframe src='{show.url('/rendered', OTHER)}'></iframe><script src=/script.js></script>")
    response = await show.get(url)
    assert url.startswith("https://")
    assert (response.url, response.status, response.address, response.note) == (url, 200, "127.0.0.1", "")
    assert b"by script" in response.body
    assert {seen.path for seen in show.site.log} == {"/page", "/rendered", "/data.json", "/script.js"}


async def test_a_page_over_http_2_is_shown(show: Show, vouched: Vouched) -> None:
    async with http2_site(vouched.file, vouched.key) as site:
        response = await show.get(f"https://{HOST}:{site.port}/")
        assert (response.status, b"<p>Hello</p>" in response.body) == (200, True)
        assert site.streams


@pytest.mark.parametrize("http2", [False, True])
async def test_the_document_waits_for_its_gate_when_the_handshake_is_over(
    show: Show, vouched: Vouched, http2: bool
) -> None:
    async with http2_site(vouched.file, vouched.key) as site:
        gate, page = HeldGate(is_open=False), show.page("<p>Hello</p>")
        url = f"https://{HOST}:{site.port}/" if http2 else page
        showing = asyncio.ensure_future(show.get(url, gate=gate))
        async with asyncio.timeout(PATIENCE):
            await gate.reached.wait()
        # the server has heard the end of the handshake, and no request
        await until(lambda: bool(site.connections) or not http2, "the connection")
        assert (site.streams, show.site.log) == ([], [])
        gate.opened.set()
        assert b"<p>Hello</p>" in (await showing).body
        assert len(site.streams) + len(show.site.log) == 1
        assert gate.steps == ["entered", "left"]


async def test_a_document_that_may_not_leave_is_not_asked_for(show: Show) -> None:
    gate = HeldGate()
    gate.refusal = LeaseLost("another worker has it")
    with pytest.raises(LeaseLost, match="another worker has it"):
        await show.get(show.page("<p>Hello</p>"), gate=gate)
    assert show.site.log == []
    assert (await show.get(show.page("<p>Hello</p>"), gate=HeldGate())).status == 200


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_a_page_over_https_leaves_through_its_proxy(show: Show, start: type[ProxyServer]) -> None:
    with start(users=USERS, source="127.0.0.7") as proxy:
        before = show.site.connections
        response = await show.get(show.url("/rendered"), proxy=proxy.proxy())
        assert b"Grace" in response.body
        assert {one.target for one in proxy.passages} == {f"{HOST}:{show.site.port}"}
        assert {one.username for one in proxy.passages} == {"ann"}
        assert len(proxy.passages) == show.site.connections - before  # and none by another way


async def test_a_proxy_that_opens_no_tunnel_is_told_of(show: Show) -> None:
    with http_proxy(users=USERS) as proxy:
        proxy.refuse()
        before = show.site.connections
        with pytest.raises(ProxyFailed) as caught:
            await show.get(show.url("/rendered"), proxy=proxy.proxy())
        assert "pa55-w0rd" not in str(caught.value)
        assert show.site.connections == before


async def test_cookies_for_safe_pages_go_there_and_come_back(show: Show) -> None:
    script = "<script>document.cookie = 'by_script=2; secure; path=/'</script>"
    url = show.page(script, "Set-Cookie: by_server=1; Secure; HttpOnly; Path=/")
    jar = CookieJar(SystemClock())
    jar.take_in(url, (await show.get(url, ("Cookie", "given=0"))).cookies)
    assert show.site.seen("/page")[0].headers["cookie"] == "given=0"
    assert jar.header_for(url) == "by_server=1; by_script=2"
    assert jar.header_for(url.replace("https:", "http:")) is None


async def test_a_certificate_that_is_not_the_one_believed_is_refused(
    show: Show, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = vouched_for(tmp_path_factory.mktemp("other"), HOST)
    async with hostile_site(tls=other.server) as locked:
        with pytest.raises(TlsFailed):
            await show.get(locked.url("/plain", HOST))
        assert not locked.log


async def test_the_canary_is_not_reached_over_https(show: Show) -> None:
    with pytest.raises(AddressRefused):
        await show.get(show.canary.url("/", CANARY))
    with pytest.raises(AddressRefused, match=CANARY):
        await show.get(show.url("/move/location"), wait=0.5)
    assert show.canary.connections == 0


# Each calls `said` when all of its requests have been answered, or have failed.
FLOODS = {
    "page": "{flood}",
    "page, one by one": "{in_turn}",
    "Worker": "new Worker({blob}).onmessage = said",
    "SharedWorker": "try {{ new SharedWorker({blob}) }} catch {{ said() }}",
}


@pytest.mark.long
@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("who", FLOODS)
async def test_no_page_floods_another_site_through_a_tunnel(
    show: Show, vouched: Vouched, who: str, http2: bool
) -> None:
    """What a tunnel carries is encrypted, and the browser tells of its requests late: the guard counts records."""
    show.site.show("/x", "x", kind="text/plain")
    async with http2_site(vouched.file, vouched.key) as fast:
        there = f"https://{OTHER}:{fast.port}" if http2 else show.url("", OTHER)
        ask = f"fetch('{there}/x?' + i, {{mode: 'no-cors', cache: 'no-store'}}).catch(() => 0)"
        flood = f"Promise.all(Array.from({{length: 450}}, (_, i) => {ask})).then(said)"
        in_turn = f"(async () => {{ for (let i = 0; i < 450; i++) await {ask}; said() }})()"
        blob = f"new Blob([`const said = () => postMessage(''); {flood}`], {{type: 'text/javascript'}})"
        script = FLOODS[who].format(flood=flood, in_turn=in_turn, blob=f"URL.createObjectURL({blob})")
        said = "const said = () => here.className = 'over'"
        url = show.page(f"<p id=here></p><script>{said}; {script}</script>", path="/flood")
        response = await show.get(url, wait_for=".over")
        asked = len(fast.streams) if http2 else len(show.site.seen("/x"))
    assert b"here" in response.body
    assert asked <= MAX_REQUESTS_ABROAD
    if who != "SharedWorker":  # which the browser is started without
        assert asked
        assert "asked too much of" in response.note


@pytest.mark.long
async def test_sockets_of_a_page_are_few_at_another_site_and_free_at_home(show: Show) -> None:
    async def hang(call: Call) -> None:
        await asyncio.Event().wait()

    show.site.shown["/socket"] = hang
    for host, most in ((OTHER, MAX_TUNNELS_ABROAD), (HOST, 200)):
        show.forget()
        there = show.url("/socket", host).replace("https:", "wss:")
        code = f"for (let i = 0; i < 100; i++) new WebSocket('{there}?' + i)"
        response = await show.get(show.page(f"<p id=here></p><script>{code}</script>", path="/sockets"), wait=3.0)
        assert b"here" in response.body
        assert 0 < len(show.site.seen("/socket")) <= most
        assert ("asked too much of" in response.note) == (host == OTHER)
