"""Proxies below the transports: what is said in SOCKS5, and the errors of aiohttp on the way through a proxy."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode

import msgspec
import pytest

from gossamer.errors import ConnectFailed, FetchFailed, FetchRefused, GossamerError, ProxyFailed, TimedOut
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import TransportRequest
from gossamer.fetch.http import AiohttpTransport, translated_on_proxy
from gossamer.fetch.proxies import authorization, masked_url, proxy_failed, without_login
from gossamer.fetch.socks import ask_for_line
from gossamer.model.route import Proxy

from .test_fetch_http import LIMITS, _every_error

PROXY = Proxy(pool="p", name="n", scheme="socks5", host="gate.example", port=1080, username="ann", password="s3cret")
NOBODY = msgspec.structs.replace(PROXY, username="", password="")
DONE = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00"


async def asked(replies: bytes, proxy: Proxy = PROXY, host: str = "shop.example", port: int = 443) -> bytes:
    """What the client says to a proxy that answers like this."""
    said = bytearray()
    left = bytearray(replies)

    async def send(data: bytes) -> None:
        said.extend(data)

    async def read(size: int) -> bytes:
        if len(left) < size:
            raise EOFError
        taken = bytes(left[:size])
        del left[:size]
        return taken

    await ask_for_line(send, read, proxy, host, port)
    assert not left  # what follows belongs to the site, and nothing of it was taken
    return bytes(said)


async def test_a_line_is_asked_for_by_name_with_a_password() -> None:
    said = await asked(b"\x05\x02" + b"\x01\x00" + DONE)
    assert said == b"\x05\x02\x00\x02" + b"\x01\x03ann\x06s3cret" + b"\x05\x01\x00\x03\x0cshop.example\x01\xbb"


async def test_who_has_no_password_offers_none() -> None:
    said = await asked(b"\x05\x00" + DONE, NOBODY, "8.8.4.4", 80)
    assert said == b"\x05\x01\x00" + b"\x05\x01\x00\x01\x08\x08\x04\x04\x00\x50"


async def test_a_proxy_that_wants_no_password_is_told_none() -> None:
    assert b"s3cret" not in await asked(b"\x05\x00" + DONE)


async def test_addresses_of_the_newer_kind_are_asked_for_as_such() -> None:
    said = await asked(b"\x05\x00" + DONE, NOBODY, "2001:4860:4860::8844", 80)
    assert said[3:7] == b"\x05\x01\x00\x04"
    assert len(said) == 3 + 4 + 16 + 2


@pytest.mark.parametrize(
    "bound", [b"\x01" + bytes(4), b"\x04" + bytes(16), b"\x03\x05a.com"], ids=["IPv4", "IPv6", "name"]
)
async def test_the_reply_is_read_to_its_end_and_no_further(bound: bytes) -> None:
    await asked(b"\x05\x00" + b"\x05\x00\x00" + bound + b"\x00\x50", NOBODY)


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        (b"", "hung up"),
        (b"\x05", "hung up"),
        (b"HT", "does not speak SOCKS5"),
        (b"\x05\xff", "user name or the password"),
        (b"\x05\x01", "user name or the password"),  # a way to say who one is that was never offered
        (b"\x05\x02\x01\x01", "user name or the password"),
        (b"\x05\x00\x05\x02\x00\x01", "rules do not allow"),
        (b"\x05\x00\x05\x01\x00\x01", "reported a general failure"),
        (b"\x05\x00\x05\x63\x00\x01", "answered with 99"),
        (b"\x05\x00\x04\x00\x00\x01", "does not speak SOCKS5"),
        (b"\x05\x00\x05\x00\x00\x01\x7f", "hung up"),
    ],
)
async def test_a_proxy_that_does_not_do_it_has_failed(replies: bytes, words: str) -> None:
    with pytest.raises(ProxyFailed, match=words) as caught:
        await asked(replies)
    assert "s3cret" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    ("word", "kind", "words"),
    [
        (3, ConnectFailed, "network is unreachable"),
        (4, ConnectFailed, "is unreachable"),
        (5, ConnectFailed, "refused the connection"),
        (6, TimedOut, "took too long"),
    ],
)
async def test_what_the_proxy_says_of_the_target_is_the_targets_failure(
    word: int, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=f"^shop.example:443: .*{words}") as caught:
        await asked(b"\x05\x00\x05" + bytes([word]) + b"\x00\x01")
    assert "s3cret" not in str(caught.value) + repr(caught.value)


async def test_a_name_that_is_too_long_for_socks_is_neither_cut_nor_the_proxys_failure() -> None:
    with pytest.raises(FetchRefused, match="255 bytes"):
        await asked(b"\x05\x00", host="a" * 256)


async def test_a_password_that_is_too_long_for_socks_is_not_cut() -> None:
    with pytest.raises(ProxyFailed, match="255 bytes"):
        await asked(b"\x05\x02", msgspec.structs.replace(PROXY, password="p" * 256))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("http://ann:s3cret@h/a@b", "http://h/a@b"),
        ("http://a@b:s3cret@h", "http://h"),
        ("Url: http://ann:s3cret@h?q, //x@y/", "Url: http://h?q, //y/"),
        ("http://h/?mail=a@b", "http://h/?mail=a@b"),
    ],
)
def test_an_address_is_shown_without_its_login(text: str, left: str) -> None:
    assert without_login(text) == masked_url(text) == left


@pytest.mark.parametrize("error", list(_every_error()), ids=lambda error: type(error).__name__)
def test_no_error_of_aiohttp_comes_through_unmapped_on_an_proxy(error: Exception) -> None:
    ours = translated_on_proxy(error, "http://h/", LIMITS, msgspec.structs.replace(PROXY, scheme="http"))
    assert isinstance(ours, FetchFailed | FetchRefused)
    assert type(ours) is not FetchFailed
    assert "s3cret" not in str(ours) + repr(ours)


def test_a_failure_names_the_proxy_and_its_pool_and_nobody_else() -> None:
    said = str(proxy_failed(PROXY, "it hung up"))
    assert said == "The proxy socks5://gate.example:1080 (pool p) failed: it hung up."


def test_credentials_are_packed_as_utf8_and_left_out_where_there_are_none() -> None:
    assert authorization(msgspec.structs.replace(PROXY, password="ß")) == "Basic YW5uOsOf"
    assert authorization(NOBODY) is None


async def test_a_proxy_that_quotes_our_password_in_its_status_line_is_not_quoted() -> None:
    async def parrot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        code = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"proxy-authorization"))
        login = b64decode(code.rpartition(b" ")[2])
        writer.write(b"HTTP/1.1 denied for " + login + b" " + code + b"\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(parrot, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy = Proxy(
        pool="p", name="parrot", scheme="http", host="127.0.0.1", port=port, username="ann", password="hunter2hunter2",
        allow_private=True,
    )  # fmt: skip
    guard = AddressGuard(allow_private=True)
    async with server, AiohttpTransport(guard) as transport:
        with pytest.raises(GossamerError) as failure:
            await transport.fetch(TransportRequest(url="http://shop.example/", headers=(), limits=LIMITS, proxy=proxy))
    words = f"{failure.value}"
    assert "hunter2" not in words
    assert b64encode(b"ann:hunter2hunter2").decode() not in words
