"""`gossamer serve`: the application behind uvicorn, until a signal.

How it fails: Misconfigured if the address can be reached from elsewhere and the project has no key, or if it cannot be
bound. How it recovers: a server that starts before its stores waits for them; a supervisor restarts one that died.
Nothing is lost, because the server keeps no state.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from ipaddress import ip_address

import msgspec

from ..errors import Misconfigured, MissingExtra, Transient
from ..project.access.callback_delivery import Deliverer, callback_transport
from ..project.access.keys import Token, has_keys, one_time_token
from ..project.open import Project, open_patiently
from ..project.pages.results import PageReader
from ..project.records.erasure import erasing
from ..project.upkeep.retention import forget_owned_jobs
from ..project.workers import service
from ..settings import Settings
from ..settings.server_tables import ServerTable as ServerSettings

try:
    import uvicorn

    from ..compat.firecrawl.documents import document_of
    from .app import make_app
    from .connection import SocketConnection, connections
    from .ui.site import Dashboard
except ImportError as error:
    raise MissingExtra("The HTTP server is not installed: pip install 'gossamer[server]'") from error

log = logging.getLogger("gossamer.server")
BACKLOG = 1024
FORGET_SECONDS = 600.0  # between two sweeps for old jobs to forget
TAKEN_SECONDS = 2.0  # between two tries to bind a port that is taken
GRACE_SECONDS = 5  # for requests under way when the server stops
KEEP_ALIVE_SECONDS = 30
MOST_MESSAGE = 4096  # bytes of a message from a WebSocket client, which has no reason to send any
PING_SECONDS = 20.0  # after which a silent client counts as gone
MOST_CONNECTIONS = ServerSettings().connections


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens. `token` is the one-time token, where the project has no keys."""

    project: Project
    address: str
    token: str | None


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises Misconfigured."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections inherit it. Without uvloop nothing else sets it, and every second write would wait for 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        why = "something else listens there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        what = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        raise Misconfigured(
            f"The server cannot listen on {host}:{port} ({why}). Set server.{what} to another {what} in gossamer.toml,"
            f" or start it with `gossamer serve --{what}`."
        ) from error


async def serve(
    settings: Settings, *, welcome: Callable[[Listening], None], tell: service.Tell, pulse: service.Pulse | None = None
) -> None:
    """Answer requests until a signal. Raises Misconfigured."""
    host, port = settings.server.host, settings.server.port
    async with AsyncExitStack() as stack:
        server: list[HttpServer] = []  # empty until the stores are open
        dashboards: list[Dashboard] = []
        await stack.enter_async_context(service.touching_alive_file(settings))
        if pulse is not None:
            await stack.enter_async_context(pulse.beating(lambda: _stop(server, dashboards)))
        with await _listen(host, port, tell) if pulse is not None else listen(host, port) as listener:
            project = await open_patiently(stack, settings, tell, to_look=True)
            if project.state.may_lose:
                tell(project.state.may_lose)
            token, text = await _token(project, host)
            pages = await stack.enter_async_context(PageReader(project))
            transport = await stack.enter_async_context(callback_transport(settings))
            deliverer = Deliverer(project, pages, transport, document=document_of)
            app = make_app(project, pages, hosts=(host, *settings.server.hosts), token=token)
            dashboards.append(app.state.dashboard)
            limits = settings.server
            server.append(HttpServer(_config(app, limits.connections_per_address, limits.connections)))
            place = listener.getsockname()
            shown = f"[{place[0]}]" if ":" in place[0] else place[0]
            welcome(Listening(project=project, address=f"http://{shown}:{place[1]}", token=text))
            with service.stopping(lambda: _stop(server, dashboards)):
                beside = [
                    asyncio.create_task(_forget_old_jobs(project), name="forget old jobs"),
                    asyncio.create_task(deliverer.run(), name="deliver callbacks"),
                ]
                try:
                    async with (
                        erasing(project),
                        service.leaving_when_outdated(project, lambda: _stop(server, dashboards)),
                    ):
                        await server[0].serve(sockets=[listener])
                finally:
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)


async def _listen(host: str, port: int, tell: service.Tell) -> socket.socket:
    """As `listen`, but wait while the port is taken: the workers beside this server go on meanwhile."""
    told = False
    while True:
        try:
            return listen(host, port)
        except Misconfigured as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
            if not told:
                told = True
                tell(f"{error} Waiting for it.")
        await asyncio.sleep(TAKEN_SECONDS)


async def _forget_old_jobs(project: Project) -> None:
    """Forget old jobs now and then, as long as the server runs; a store that does not answer is tried again later."""
    while True:
        try:
            await forget_owned_jobs(project)
        except Transient as error:
            log.warning("Old jobs were not forgotten: %s", error)
        await asyncio.sleep(FORGET_SECONDS)


class HttpServer(uvicorn.Server):
    """Handles signals as every other process of a project does."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _stop(server: list[HttpServer], dashboards: list[Dashboard]) -> None:
    for one in server:
        one.should_exit = True
    for dashboard in dashboards:
        dashboard.close()


def _config(
    app: object, connections_per_address: int | None = None, most_connections: int = MOST_CONNECTIONS
) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="auto",
        http=connections(connections_per_address, most_connections // 2),
        ws=SocketConnection,
        ws_max_size=MOST_MESSAGE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        limit_concurrency=most_connections,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


async def _token(project: Project, host: str) -> tuple[Token | None, str | None]:
    """The one-time token of a project without keys. Raises Misconfigured where a token is not safe enough."""
    if await has_keys(project):
        return None, None
    if not is_loopback(host):
        raise Misconfigured(
            f"{host} can be reached from elsewhere, and this project has no key. Make one first: "
            "gossamer keys add NAME --scopes scrape,jobs,records"
        )
    text, token = one_time_token()
    return token, text
