"""Tunnels through proxies: SOCKS5, the client's side (RFC 1928, passwords by RFC 1929), and HTTP CONNECT.

Lives here: the dialogue, over any pair of `send` and `read`, and the socket that the HTTP transport uses for it.
A proxy that gets a name looks it up itself. How it fails: ProxyFailed; ConnectFailed or TimedOut if the proxy reports
that the target failed; FetchRefused for a name that is too long. The socket is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, ip_address

from ..errors import ConnectFailed, FetchFailed, TimedOut
from ..model.route import Proxy
from .proxies import authorization, check_socks_name, proxy_failed, refused_credentials

Send = Callable[[bytes], Awaitable[object]]
Read = Callable[[int], Awaitable[bytes]]  # reads exactly that many bytes; raises OSError or EOFError

_MAX_ANSWER = 16 * 1024  # bytes of a proxy's response to CONNECT
_VERSION, _CONNECT = 5, 1
_OPEN, _PASSWORD = 0, 2  # methods of authentication
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REFUSALS = {
    1: "it reported a general failure",
    2: "its rules do not allow this target",
    7: "it does not support CONNECT",
    8: "it does not support this type of address",
}
NETWORK_UNREACHABLE, HOST_UNREACHABLE, CONNECTION_REFUSED, TTL_EXPIRED = 3, 4, 5, 6
_OF_THE_TARGET = {
    NETWORK_UNREACHABLE: "its network is unreachable",
    HOST_UNREACHABLE: "it is unreachable",
    CONNECTION_REFUSED: "it refused the connection",
    TTL_EXPIRED: "the connection took too long",
}


async def ask_for_line(send: Send, read: Read, proxy: Proxy, host: str, port: int) -> None:
    """Return when data sent next goes to `host`. Raises ProxyFailed, ConnectFailed, TimedOut, FetchRefused."""
    check_socks_name(host)
    try:
        await _introduce(send, read, proxy)
        await send(bytes([_VERSION, _CONNECT, 0]) + _packed(proxy, host) + port.to_bytes(2, "big"))
        version, word, _, kind = await read(4)
        if version != _VERSION:
            raise proxy_failed(proxy, "it does not speak SOCKS5")
        if word in _OF_THE_TARGET:
            raise target_failed(proxy, f"{host}:{port}", word)
        if word != 0:
            raise proxy_failed(proxy, _REFUSALS.get(word, f"it answered with {word}"))
        length = {_IPV4: 4, _IPV6: 16}.get(kind)
        await read((length if length is not None else (await read(1))[0]) + 2)  # the address it dialled from
    except (OSError, EOFError) as error:
        raise proxy_failed(proxy, f"it hung up ({type(error).__name__})") from None


def target_failed(proxy: Proxy, target: str, word: int) -> FetchFailed:
    """The error for a failure of the target that the proxy reports. It uses up an attempt of the page; the proxy is not
    to blame."""
    said = f"{target}: no connection: {_OF_THE_TARGET[word]}, says the proxy {proxy.address} (pool {proxy.pool})."
    return TimedOut(said) if word == TTL_EXPIRED else ConnectFailed(said)


async def _introduce(send: Send, read: Read, proxy: Proxy) -> None:
    known = bool(proxy.username or proxy.password)
    await send(bytes([_VERSION, 2, _OPEN, _PASSWORD]) if known else bytes([_VERSION, 1, _OPEN]))
    version, chosen = await read(2)
    if version != _VERSION:
        raise proxy_failed(proxy, "it does not speak SOCKS5")
    if chosen == _PASSWORD and known:
        await send(bytes([1]) + _counted(proxy, proxy.username) + _counted(proxy, proxy.password))
        if (await read(2))[1] != 0:
            raise refused_credentials(proxy)
    elif chosen != _OPEN:
        raise refused_credentials(proxy)


def _packed(proxy: Proxy, host: str) -> bytes:
    try:
        address = ip_address(host)
    except ValueError:
        return bytes([_NAME]) + _counted(proxy, host)
    return bytes([_IPV4 if isinstance(address, IPv4Address) else _IPV6]) + address.packed


def _counted(proxy: Proxy, text: str) -> bytes:
    data = text.encode()
    if len(data) > 255:
        raise proxy_failed(proxy, "a name or a password is longer than the 255 bytes that SOCKS5 can carry")
    return bytes([len(data)]) + data


async def ask_connect(send: Send, read: Read, proxy: Proxy, host: str, port: int) -> None:
    """Return when data sent next goes to `host`. Raises ProxyFailed."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    told = authorization(proxy)
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [f"Proxy-Authorization: {told}"] if told is not None else []
    answer = b""
    try:
        await send("".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii"))
        while not answer.endswith(b"\r\n\r\n"):  # byte by byte: data after the head is not ours to read
            answer += await read(1)
            if len(answer) > _MAX_ANSWER:
                raise proxy_failed(proxy, "its response has no end")
    except (OSError, EOFError) as error:
        raise proxy_failed(proxy, f"it hung up ({type(error).__name__})") from None
    version, _, rest = answer.partition(b" ")
    status = rest[:3]
    if not version.startswith(b"HTTP/1.") or not status.isdigit():
        raise proxy_failed(proxy, "its response is not HTTP. Is it a SOCKS5 proxy?")
    if status == b"407":
        raise refused_credentials(proxy)
    if not status.startswith(b"2"):
        raise proxy_failed(proxy, f"it does not let us through (status {int(status)})", status=int(status))


async def line_through(
    proxy: Proxy,
    addresses: Sequence[str],
    host: str,
    port: int,
    make_socket: Callable[[tuple[object, ...]], socket.socket],
) -> socket.socket:
    """A socket tunnelled to `host`. `make_socket` checks the dialled address. Raises as `ask_for_line` or
    `ask_connect`. Not for a proxy that speaks TLS."""
    ask = ask_for_line if proxy.scheme == "socks5" else ask_connect
    loop = asyncio.get_running_loop()
    line = await _dialled(loop, proxy, addresses, make_socket)

    async def read(size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await loop.sock_recv(line, size - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    try:
        await ask(lambda data: loop.sock_sendall(line, data), read, proxy, host, port)
    except BaseException:
        line.close()
        raise
    return line


async def _dialled(
    loop: asyncio.AbstractEventLoop,
    proxy: Proxy,
    addresses: Sequence[str],
    make_socket: Callable[[tuple[object, ...]], socket.socket],
) -> socket.socket:
    last = "no address"
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        line = make_socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, proxy.port)))
        try:
            line.setblocking(False)
            await loop.sock_connect(line, (address, proxy.port))
        except OSError as error:
            line.close()
            last = error.strerror or type(error).__name__
        except BaseException:
            line.close()
            raise
        else:
            return line
    raise proxy_failed(proxy, f"no connection to it ({last})")
