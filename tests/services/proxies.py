"""Real proxy servers on loopback: HTTP (CONNECT and absolute addresses), the same inside TLS, and SOCKS5.

    with http_proxy(users={"ann": "secret"}) as proxy:
        request = TransportRequest(url=..., proxy=proxy.proxy(username="ann"))
        proxy.passages          # who went where, over which connection, and how many bytes
        proxy.refuse()          # from now on 407, whatever the password; proxy.behave() ends it
        proxy.stop()            # nobody listens any more; proxy.start() opens the same port again

`leads_to` says where names lead: {"shop.example": 8080} or one port for all; the rest is dialled as it was asked for.
`source` is the loopback address that a proxy dials from ("127.0.0.7"), so that a server can tell proxies apart; a
gateway has a function from the user's name to such an address.

Each server has a thread and a loop of its own, and ends with its block. What one connection says is in
proxy_lines.py; here is the server around it.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gossamer.model.route import Proxy
from tests.patience import PATIENCE

from .proxy_lines import Conduct, Passage, serve_http, serve_socks

Users = Mapping[str, str] | Callable[[str, str], bool]


class ProxyServer:
    """A running proxy. Use `http_proxy`, `https_proxy` or `socks_proxy` to get one."""

    def __init__(
        self,
        scheme: str,
        *,
        users: Users | None = None,
        leads_to: Mapping[str, int] | int | None = None,
        source: str | Callable[[str], str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.scheme = scheme
        self.host = "127.0.0.1"
        self.port = 0
        self.connections = 0  # accepted so far
        self.refused: list[str] = []  # user names that were turned away; "" for nobody
        self.passages: list[Passage] = []
        self.conduct = Conduct()
        self._users = users
        self._leads_to = leads_to
        self._source = source
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._place: socket.socket | None = None  # holds the port while nobody listens
        self._thread = threading.Thread(target=self._run, name=f"{scheme}-proxy", daemon=True)

    # --- where it is ------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Without credentials."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """With the credentials of the first user."""
        username, password = self._first_user()
        return f"{self.scheme}://{username}:{password}@{self.host}:{self.port}" if username else self.address

    def proxy(
        self, *, pool: str = "test", username: str | None = None, password: str | None = None,
        allow_private: bool = True, host: str | None = None,
    ) -> Proxy:  # fmt: skip
        """The way out through this proxy, as its first user unless said otherwise."""
        first, secret = self._first_user()
        name = first if username is None else username
        if password is None:
            password = self._users.get(name, secret) if isinstance(self._users, Mapping) else secret
        return Proxy(
            pool=pool, name=f"{host or self.host}:{self.port}", scheme=self.scheme, host=host or self.host,
            port=self.port, username=name, password=password, allow_private=allow_private,
        )  # fmt: skip

    def _first_user(self) -> tuple[str, str]:
        return next(iter(self._users.items()), ("", "")) if isinstance(self._users, Mapping) else ("", "")

    # --- what it saw ------------------------------------------------------------------------------------------

    def seen(self, target: str | None = None, *, username: str | None = None) -> list[Passage]:
        """Passages to `target` (`host:port`, or a host), of `username`."""
        return [
            one
            for one in self.passages
            if target in (None, one.target, one.target.rpartition(":")[0]) and username in (None, one.username)
        ]

    # --- how it behaves ---------------------------------------------------------------------------------------

    def behave(self) -> None:
        self.conduct = Conduct()

    def refuse(self) -> None:
        """Turn everybody away as if the password were wrong."""
        self.conduct = Conduct(refuse=True)

    def answer(self, status: int) -> None:
        """Answer every request with this status (SOCKS5: with its word for an unreachable host), and hang up."""
        self.conduct = Conduct(status=status)

    def hang_up_after(self, size: int) -> None:
        """Cut each passage when so many bytes went down to the client; zero: before the first."""
        self.conduct = Conduct(cut_after=size)

    def hang(self) -> None:
        """Take requests and never answer."""
        self.conduct = Conduct(hang=True)

    def close_at_once(self) -> None:
        """Hang up on everybody who connects."""
        self.conduct = Conduct(close=True)

    def stop(self) -> None:
        """End all lines and listen no more: who connects now is refused by the kernel."""
        self._do(self._stop())

    def start(self) -> None:
        """Listen again, at the same port."""
        self._do(self._start())

    # --- called by the lines ----------------------------------------------------------------------------------

    def admits(self, username: str, password: str) -> bool:
        if self.conduct.refuse:
            good = False
        elif self._users is None:
            good = True
        elif callable(self._users):
            good = self._users(username, password)
        else:
            good = username in self._users and self._users[username] == password
        if not good:
            self.refused.append(username)
        return good

    @property
    def asks_for_password(self) -> bool:
        return self._users is not None or self.conduct.refuse

    async def dial(self, host: str, port: int, username: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError."""
        if isinstance(self._leads_to, int):
            host, port = "127.0.0.1", self._leads_to
        elif self._leads_to is not None and host in self._leads_to:
            host, port = "127.0.0.1", self._leads_to[host]
        elif host == "localhost" or host.endswith(".localhost"):
            host = "127.0.0.1"
        if not (host == "::1" or host.startswith("127.")):
            raise ConnectionRefusedError(f"{host} is not on loopback, and the tests go nowhere else")
        source = self._source(username) if callable(self._source) else self._source
        from_here = (source, 0) if source and host != "::1" else None
        return await asyncio.open_connection(host, port, local_addr=from_here)

    # --- the thread -------------------------------------------------------------------------------------------

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)  # type: ignore[arg-type]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _start(self) -> None:
        if self._place is not None:
            self._place.close()
            self._place = None
        self._server = await asyncio.start_server(self._accept, self.host, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for line in tuple(self._lines):
            line.cancel()
        if self._lines:
            await asyncio.wait(tuple(self._lines))
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # then somebody else was quicker
            self._place.bind((self.host, self.port))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        self.connections += 1
        serve = serve_socks if self.scheme == "socks5" else serve_http
        try:
            if not self.conduct.close:
                await serve(self, self.connections, reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the client is gone, or the test stopped us
        finally:
            self._lines.discard(task)
            writer.close()

    def open(self) -> None:
        self._thread.start()
        self.start()

    def close(self) -> None:
        self.stop()
        if self._place is not None:
            self._place.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)


@contextmanager
def _running(proxy: ProxyServer) -> Iterator[ProxyServer]:
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()


@contextmanager
def http_proxy(
    *,
    users: Users | None = None,
    leads_to: Mapping[str, int] | int | None = None,
    source: str | Callable[[str], str] | None = None,
) -> Iterator[ProxyServer]:
    """A proxy for CONNECT and for absolute addresses. Without `users` it asks nobody who he is."""
    with _running(ProxyServer("http", users=users, leads_to=leads_to, source=source)) as proxy:
        yield proxy


@contextmanager
def https_proxy(
    tls: ssl.SSLContext,
    *,
    users: Users | None = None,
    leads_to: Mapping[str, int] | int | None = None,
    source: str | None = None,
) -> Iterator[ProxyServer]:
    """The same inside TLS; see `vouched_for`."""
    with _running(ProxyServer("https", users=users, leads_to=leads_to, source=source, tls=tls)) as proxy:
        yield proxy


@contextmanager
def socks_proxy(
    *, users: Users | None = None, leads_to: Mapping[str, int] | int | None = None, source: str | None = None
) -> Iterator[ProxyServer]:
    with _running(ProxyServer("socks5", users=users, leads_to=leads_to, source=source)) as proxy:
        yield proxy


# --- certificates ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vouched:
    """A certificate for loopback and its names, and what a client needs to believe it."""

    file: Path  # PEM; the certificate is its own authority
    key: Path
    server: ssl.SSLContext
    client: ssl.SSLContext


def vouched_for(folder: Path, *names: str) -> Vouched:
    """A certificate for 127.0.0.1, localhost and `names`. Skips where there is no openssl command."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command, which makes the test's certificate, is not installed")
    valid = ",".join(["IP:127.0.0.1", *(f"DNS:{name}" for name in ("localhost", *names))])
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "200", "-subj", "/CN=gossamer tests"]
    added = ["-addext", f"subjectAltName={valid}", "-addext", "basicConstraints=critical,CA:TRUE"]
    files = ["-keyout", "vouched-key.pem", "-out", "vouched.pem"]
    subprocess.run([openssl, "req", *made, *added, *files], cwd=folder, check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "vouched.pem", folder / "vouched-key.pem")
    return Vouched(
        folder / "vouched.pem",
        folder / "vouched-key.pem",
        server,
        ssl.create_default_context(cafile=folder / "vouched.pem"),
    )
