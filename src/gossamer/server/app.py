"""The ASGI application: which endpoint answers which address; and whether the server is alive and ready."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from .. import __version__
from ..compat.firecrawl import routes as firecrawl_routes
from ..compat.firecrawl.watch import JobWatch
from ..compat.scrapyd import routes as scrapyd_routes
from ..compat.scrapyd.pages import PAGES as SCRAPYD_PAGES
from ..compat.scrapyd.pages import BasicRoute
from ..errors import GossamerError
from ..project import overrides, search
from ..project.access.keys import Token
from ..project.alerts import incidents
from ..project.boards import boards
from ..project.jobs import compare, notes, run_log
from ..project.jobs.api_views import ask_stores
from ..project.open import Project
from ..project.outputs import outputs
from ..project.pages.results import PageReader
from ..project.records import forget
from ..project.spiders import healing
from ..project.upkeep import disk
from . import (
    access_routes,
    alert_routes,
    dead_letter_routes,
    job_routes,
    project_routes,
    record_routes,
    scrape_routes,
)
from .answers import ApiError
from .door import Door, DoorApp
from .endpoint import ANY, PUBLIC, Call, Endpoint, endpoint_of
from .openapi import document
from .ui.site import Dashboard
from .ui.views import ACTIONS, DOWNLOADS, VIEWS

if TYPE_CHECKING:
    from .mcp_app import McpApp


class HealthAnswer(msgspec.Struct, frozen=True):
    status: str


class VersionAnswer(msgspec.Struct, frozen=True):
    version: str


async def healthz(call: Call) -> HealthAnswer:
    return HealthAnswer("ok")


async def readyz(call: Call) -> HealthAnswer:
    try:
        await ask_stores(call.project)
    except GossamerError as error:
        raise ApiError(503, "not_ready", "A store of the project does not answer.") from error
    return HealthAnswer("ready")


async def version(call: Call) -> VersionAnswer:
    return VersionAnswer(__version__)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", "/healthz", PUBLIC, "The server is there", healthz, gives=HealthAnswer),
    Endpoint("GET", "/readyz", PUBLIC, "The stores answer", readyz, gives=HealthAnswer),
    Endpoint("GET", "/api/v1/version", ANY, "Its version", version, gives=VersionAnswer),
    *scrape_routes.ENDPOINTS,
    *job_routes.ENDPOINTS,
    *alert_routes.ENDPOINTS,
    *record_routes.ENDPOINTS,
    *dead_letter_routes.ENDPOINTS,
    *project_routes.ENDPOINTS,
    *access_routes.ENDPOINTS,
    *map(endpoint_of, boards.OPERATIONS),
    *map(endpoint_of, search.OPERATIONS),
    endpoint_of(run_log.LOG),
    endpoint_of(compare.COMPARE),
    *map(endpoint_of, notes.OPERATIONS),
    *map(endpoint_of, incidents.OPERATIONS),
    *map(endpoint_of, healing.OPERATIONS),
    *map(endpoint_of, outputs.OPERATIONS),
    *map(endpoint_of, overrides.OPERATIONS),
    *map(endpoint_of, disk.OPERATIONS),
    *map(endpoint_of, forget.OPERATIONS),
)
log = logging.getLogger("gossamer.server")
LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


async def openapi(call: Call) -> dict[str, object]:
    return document(ENDPOINTS)


OPENAPI = Endpoint("GET", "/openapi.json", PUBLIC, "This document", openapi, gives=dict[str, object])


def make_app(
    project: Project, pages: PageReader, *, hosts: Iterable[str] = (), token: Token | None = None
) -> Starlette:
    """The application for an open project. `hosts` are names of this server beside those of the machine itself."""
    names = LOOPBACK | {host.lower() for host in hosts}
    door = Door(project, pages, hosts=names, token=token)
    routes: list[BaseRoute] = [
        Route(path, DoorApp(door, partial(door.serve, endpoint)), methods=[endpoint.method])
        for endpoint in (
            *ENDPOINTS,
            OPENAPI,
            *firecrawl_routes.ENDPOINTS,
            *firecrawl_routes.UNDONE,
            *scrapyd_routes.ENDPOINTS,
        )
        for path in (endpoint.path, *endpoint.aliases)
    ]
    routes += [
        BasicRoute(path, DoorApp(door, partial(door.serve, endpoint)), methods=[endpoint.method])
        for endpoint in SCRAPYD_PAGES
        for path in (endpoint.path, *endpoint.aliases)
    ]
    watch = JobWatch(door, project, pages)
    routes += [
        WebSocketRoute(f"/{version}/{kind}/{{job}}", watch.__call__)
        for version in ("v1", "v2")
        for kind in (firecrawl_routes.CRAWL, firecrawl_routes.BATCH)
    ]
    mcp = _mcp_app(door, project, pages)
    if mcp is not None:
        routes.append(Route("/mcp", mcp, methods=["GET", "POST", "DELETE"]))
    dashboard = Dashboard(
        project, pages, door, views=VIEWS, actions=ACTIONS, downloads=DOWNLOADS, api=lambda: document(ENDPOINTS)
    )
    app = Starlette(
        routes=[*routes, *dashboard.routes()],
        exception_handlers={404: _refusing(door, _missing), 405: _refusing(door, _wrong_method)},
        lifespan=lambda _: mcp.manager.run() if mcp is not None else nullcontext(),
    )
    app.state.dashboard = dashboard
    app.router.redirect_slashes = False  # a redirect would be sent before the door checks the host
    return app


def _mcp_app(door: Door, project: Project, pages: PageReader) -> McpApp | None:
    """None where the package for agents is not installed."""
    try:
        from .mcp_app import McpApp
    except ModuleNotFoundError:
        return None
    return McpApp(door, project, pages, most=project.settings.server.max_body.bytes)


Handler = Callable[[Request, Exception], Awaitable[Response]]


def _refusing(door: Door, refusal: Callable[[Exception], ApiError]) -> Handler:
    """Answer requests for an unknown address or with a wrong method. A foreign Host header is refused first."""

    async def answer(request: Request, error: Exception) -> Response:
        try:
            door.check_host(request)
        except ApiError as refused:
            return refused.answer()
        return refusal(error).answer()

    return answer


def _missing(error: Exception) -> ApiError:
    return ApiError(404, "not_found", "There is nothing at this URL. /openapi.json lists every endpoint.")


def _wrong_method(error: Exception) -> ApiError:
    headers = dict(getattr(error, "headers", None) or {})
    return ApiError(405, "method", "This address takes another method: see the Allow header.", headers=headers)
