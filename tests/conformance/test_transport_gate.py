"""The gate, for every transport: connection first, then the turn, then the request at once, and never a second one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gossamer.errors import ConnectionDropped, LeaseLost, StaleConnection
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits, Transport, TransportRequest
from tests.gates import HeldGate
from tests.patience import PATIENCE
from tests.services.proxies import ProxyServer, Vouched
from tests.sites import Park, park
from tests.sites.hostile import PAGE, HostileSite

from .transports import LIMITS, Opener, get
from .transports import opened as opened
from .transports import proxy as proxy
from .transports import safe_site as safe_site
from .transports import site as site
from .transports import target as target
from .transports import vouched as vouched


async def test_nothing_is_written_before_the_gate_opens(opened: Opener, target: HostileSite, vouched: Vouched) -> None:
    async with opened(trust=vouched.client) as transport:
        for _ in range(2):  # on a new connection, and on one that stands
            target.log.clear()
            gate = HeldGate(is_open=False)
            asked = asyncio.ensure_future(get(transport, target.url("/plain"), gate=gate))
            await asyncio.wait_for(gate.reached.wait(), PATIENCE)
            assert (target.log, gate.steps) == ([], [])
            gate.opened.set()
            assert (await asked).body == PAGE
            assert [seen.path for seen in target.log] == ["/plain"]
            assert gate.steps == ["entered", "left"]


async def test_through_a_proxy_nothing_is_written_before_the_gate_opens(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    gate = HeldGate(is_open=False)
    proxy = proxy.proxy()
    async with opened(trust=vouched.client) as transport:
        asked = asyncio.ensure_future(get(transport, target.url("/plain"), proxy=proxy, gate=gate))
        await asyncio.wait_for(gate.reached.wait(), PATIENCE)
        assert target.log == []
        gate.opened.set()
        assert (await asked).body == PAGE
    assert len(target.log) == 1
    assert gate.steps == ["entered", "left"]


async def test_a_request_that_may_not_leave_is_not_written_and_the_next_one_is(
    opened: Opener, site: HostileSite
) -> None:
    refused = HeldGate()
    refused.refusal = LeaseLost("another worker has it")
    async with opened() as transport:
        with pytest.raises(LeaseLost, match="another worker has it"):
            await get(transport, site.url("/plain"), gate=refused)
        assert site.log == []
        assert (await get(transport, site.url("/plain"), gate=HeldGate())).body == PAGE
    assert site.connections == 1  # the one that was made for the first


@pytest.mark.long
async def test_the_time_at_the_gate_is_not_counted(opened: Opener, site: HostileSite) -> None:
    most = timedelta(seconds=8)  # for all that is done before and after the gate, on a busy machine too
    gate = HeldGate(is_open=False)
    async with opened() as transport:
        limits = Limits(connect=most, read=most, total=most)
        asked = asyncio.ensure_future(get(transport, site.url("/plain"), limits=limits, gate=gate))
        await asyncio.wait_for(gate.reached.wait(), PATIENCE)
        await asyncio.sleep(1.05 * most.total_seconds())
        gate.opened.set()
        response = await asked
    assert response.body == PAGE
    assert response.seconds < most.total_seconds()


@pytest.mark.parametrize("tls", [False, True])
async def test_a_request_that_the_server_read_and_dropped_is_not_sent_again(opened: Opener, tls: bool) -> None:
    # given a server that reads every second request of a connection that stands, and hangs up
    async with a_park(opened, pages=9, drop_every=2, tls=tls) as (ground, transport):
        said = []
        for number in range(1, 5):
            gate = HeldGate()
            try:
                await transport.fetch(TransportRequest(url=ground.url(0, f"/page/{number}"), limits=LIMITS, gate=gate))
                said.append(200)
            except StaleConnection:
                said.append(0)
            assert gate.steps.count("entered") == 1
        # then what it saw is what we asked for, each once, and we know which one it dropped
        assert said == [200, 200, 0, 200]
        assert [hit.status for hit in ground.hits()] == said


async def test_a_stream_that_the_server_read_and_dropped_is_not_sent_again(opened: Opener) -> None:
    if opened.kind != "wreq":
        pytest.skip("speaks no HTTP/2")
    async with a_park(opened, drop_every=2, tls=True, http2=True) as (ground, transport):
        for _ in range(2):
            await transport.fetch(TransportRequest(url=ground.url(), limits=LIMITS, gate=HeldGate()))
        with pytest.raises(StaleConnection):
            await transport.fetch(TransportRequest(url=ground.url(), limits=LIMITS, gate=HeldGate()))
        assert [hit.status for hit in ground.hits()] == [200, 200, 0]


async def test_what_the_server_drops_on_a_new_connection_is_no_stale_one(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        with pytest.raises(ConnectionDropped) as dropped:
            await get(transport, site.url("/close-before-headers"), gate=HeldGate())
    assert type(dropped.value) is ConnectionDropped
    assert len(site.log) == 1


async def test_what_may_have_had_an_effect_is_never_stale(opened: Opener) -> None:
    async with a_park(opened, pages=9, drop_every=1) as (ground, transport):
        await transport.fetch(TransportRequest(url=ground.url(0, "/"), limits=LIMITS))
        order = TransportRequest(url=ground.url(0, "/"), limits=LIMITS, method="POST")
        if opened.kind == "aiohttp":  # it makes a connection for it, which cannot be stale
            await transport.fetch(order)
        else:
            with pytest.raises(ConnectionDropped) as dropped:
                await transport.fetch(order)
            assert type(dropped.value) is ConnectionDropped
        assert [hit.method for hit in ground.hits()] == ["GET", "POST"]


@asynccontextmanager
async def a_park(opened: Opener, **plan: object) -> AsyncIterator[tuple[Park, Transport]]:
    with park(**plan) as ground:
        trust = ssl.create_default_context(cafile=ground.certificate) if ground.certificate is not None else None
        guard = AddressGuard(allow_hosts=frozenset(ground.hosts))
        async with opened(guard, trust=trust) as transport:
            yield ground, transport
