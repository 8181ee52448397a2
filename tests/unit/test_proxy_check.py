"""Knocking at a proxy: it lets us in, or the reason is told; nothing is fetched and no password is shown."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gossamer.errors import ProxyFailed
from gossamer.fetch.addresses import AddressGuard, GuardedResolver
from gossamer.fetch.proxy_check import knock
from gossamer.model.route import Proxy
from tests.patience import PATIENCE
from tests.services.proxies import http_proxy, https_proxy, socks_proxy, vouched_for

USERS = {"ann": "s3cr3t-pa55"}
WITHIN = timedelta(seconds=PATIENCE)


@pytest.fixture
async def resolver():
    opened = GuardedResolver(AddressGuard())
    yield opened
    await opened.close()


async def refusal(proxy: Proxy, resolver, *, within: timedelta = WITHIN, trust=None) -> str:
    with pytest.raises(ProxyFailed) as refused:
        await knock(proxy, AddressGuard(), resolver, within, trust)
    assert USERS["ann"] not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("kind", [http_proxy, socks_proxy])
async def test_who_has_the_password_or_needs_none_is_let_in(kind, resolver):
    with kind(users=USERS) as strict, kind() as open_to_all:
        await knock(strict.proxy(), AddressGuard(), resolver, WITHIN)
        await knock(open_to_all.proxy(), AddressGuard(), resolver, WITHIN)
        await knock(open_to_all.proxy(username="x", password="y"), AddressGuard(), resolver, WITHIN)
        await knock(strict.proxy(host="localhost"), AddressGuard(), resolver, WITHIN)


@pytest.mark.parametrize("kind", [http_proxy, socks_proxy])
async def test_a_wrong_password_and_none_at_all_are_refused(kind, resolver):
    with kind(users=USERS) as door:
        for proxy in (door.proxy(password="wrong-s3cr3t"), door.proxy(username="", password="")):
            assert "user name or the password" in await refusal(proxy, resolver)


async def test_a_proxy_inside_tls_is_let_in_when_its_certificate_is_good(tmp_path, resolver):
    vouched = vouched_for(tmp_path)
    with https_proxy(vouched.server, users=USERS) as proxy:
        await knock(proxy.proxy(), AddressGuard(), resolver, WITHIN, vouched.client)
        assert "TLS to it failed" in await refusal(proxy.proxy(), resolver)


@pytest.mark.parametrize("kind", [http_proxy, socks_proxy])
async def test_one_that_hangs_up_hangs_or_is_gone_is_told_as_such(kind, resolver):
    with kind(users=USERS) as proxy:
        proxy.close_at_once()
        told = await refusal(proxy.proxy(), resolver)
        assert "hung up" in told or "no connection" in told
        proxy.hang()
        assert "no answer within 0.3 s" in await refusal(proxy.proxy(), resolver, within=timedelta(seconds=0.3))
        proxy.stop()
        assert "no connection" in await refusal(proxy.proxy(), resolver)


@pytest.mark.parametrize(("scheme", "words"), [("http", "not HTTP"), ("socks5", "does not speak SOCKS5")])
async def test_a_server_that_is_no_proxy_is_told(resolver, scheme, words):
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-none\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        proxy = Proxy(pool="p", name="x", scheme=scheme, host="127.0.0.1", port=port, allow_private=True)
        assert words in await refusal(proxy, resolver)


async def test_a_proxy_at_a_private_address_is_not_dialled(resolver):
    with http_proxy() as web:
        assert "allow_private" in await refusal(web.proxy(allow_private=False), resolver)
        assert web.connections == 0
