"""A page in a browser that tries to leave by another way than the guard: UDP, WebRTC, QUIC, the DNS.

Tried here:

- WebRTC: STUN and TURN over UDP, TURN over TCP and TLS, on IPv4, IPv6 and a name, with every ICE policy; candidates of
  a forged far end over UDP and TCP
- WebTransport (QUIC), a socket of `UDPSocket`, a WebSocket
- `dns-prefetch`, `preconnect`, `prerender` and speculation rules that lead to a private address

What arrives is what listeners on loopback were sent; the same page reaches them when Chromium runs without our flags.

Tried elsewhere (tests/browser): fetch, frames, workers, forms, pictures and redirects to a private address
(test_guard.py, test_guard_proxy.py), who else is called (test_calls_home.py), floods, memory, endless scripts
(test_hostile_pages.py), names that are lent (test_impostors.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gossamer.fetch.browser import chromium as chromium_module
from tests.browser.conftest import chromium as chromium
from tests.browser.showing import a_show

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("chromium")]

PAGE = """<link rel=dns-prefetch href="//localhost:{tcp}"><link rel=preconnect href="http://127.0.0.1:{tcp}/">
<link rel=prerender href="http://127.0.0.1:{tcp}/prerender">
<script type=speculationrules>{{"prerender": [{{"source": "list", "urls": ["http://127.0.0.1:{tcp}/rule"]}}]}}</script>
<body><script>
const user = {{username: "a", credential: "b"}};
const servers = [
  {{urls: ["stun:127.0.0.1:{udp}", "stun:[::1]:{udp6}", "stun:localhost:{udp}"]}},
  {{urls: "turn:127.0.0.1:{udp}?transport=udp", ...user}},
  {{urls: "turn:127.0.0.1:{tcp}?transport=tcp", ...user}}, {{urls: "turns:127.0.0.1:{tcp}?transport=tcp", ...user}},
];
const far = [
  "candidate:1 1 udp 2122260223 127.0.0.1 {udp} typ host",
  "candidate:2 1 tcp 2122260223 127.0.0.1 {tcp} typ host tcptype passive",
];
async function connect(iceTransportPolicy) {{
  const one = new RTCPeerConnection({{iceTransportPolicy, iceServers: servers}}), other = new RTCPeerConnection();
  one.createDataChannel("x");
  const gathered = new Promise(done => one.onicecandidate = event => event.candidate || done());
  await one.setLocalDescription(await one.createOffer());
  await other.setRemoteDescription(one.localDescription);
  await other.setLocalDescription(await other.createAnswer());
  await one.setRemoteDescription(other.localDescription);
  for (const candidate of far) await one.addIceCandidate({{candidate, sdpMid: "0", sdpMLineIndex: 0}});
  await gathered;
}}
async function tryAll() {{
  const tries = ["all", "relay"].map(connect);
  tries.push(new WebTransport("https://127.0.0.1:{udp}/").ready);
  if (self.UDPSocket) tries.push(new UDPSocket({{remoteAddress: "127.0.0.1", remotePort: {udp}}}).opened);
  tries.push(new Promise(done => new WebSocket("ws://127.0.0.1:{tcp}/").onerror = done));
  await Promise.allSettled(tries);
  document.body.insertAdjacentHTML("beforeend", "<p id=done>done</p>");
}}
tryAll();
</script>"""


class Listeners(asyncio.DatagramProtocol):
    """What came over UDP and TCP."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.html = ""

    def datagram_received(self, data: bytes, source: object) -> None:
        self.came.append("udp")

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.append("tcp")
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Listeners]:
    heard, loop = Listeners(), asyncio.get_running_loop()
    four, _ = await loop.create_datagram_endpoint(lambda: heard, local_addr=("127.0.0.1", 0))
    six, _ = await loop.create_datagram_endpoint(lambda: heard, local_addr=("::1", 0))
    server = await asyncio.start_server(heard.connected, "127.0.0.1", 0)
    heard.html = PAGE.format(
        udp=four.get_extra_info("sockname")[1],
        udp6=six.get_extra_info("sockname")[1],
        tcp=server.sockets[0].getsockname()[1],
    )
    try:
        yield heard
    finally:
        four.close()
        six.close()
        server.close()


async def test_nothing_leaves_past_the_guard() -> None:
    async with listening() as heard, a_show() as show:
        page = await show.get(show.page(heard.html), wait_for="#done")
        assert b"done</p>" in page.body
    assert heard.came == []


async def test_the_same_page_reaches_them_without_our_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = chromium_module.flags

    def without(*, heap_megabytes: int) -> list[str]:
        return [flag for flag in ours(heap_megabytes=heap_megabytes) if "webrtc" not in flag]

    monkeypatch.setattr(chromium_module, "flags", without)
    async with listening() as heard, a_show() as show:
        await show.get(show.page(heard.html), wait_for="#done")
    assert "udp" in heard.came
