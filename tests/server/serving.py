"""A project with its HTTP API and a worker, in this process: for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec

from gossamer.client import AsyncClient
from gossamer.model.events import NullSink
from gossamer.project.access.keys import SCOPES, add_key
from gossamer.project.jobs.slots import PoolTerms
from gossamer.project.jobs.worker_pool import WorkerPool
from gossamer.project.open import Project, open_project
from gossamer.project.pages.results import PageReader
from gossamer.server.app import make_app
from gossamer.server.run import HttpServer, listen
from gossamer.settings import Settings
from tests.journey.crawling import settings_for
from tests.patience import PATIENCE, until

QUICK_LOOK = timedelta(milliseconds=100)  # between two looks at which jobs run
ADDRESS = "http://127.0.0.1"
SPIDER = """
from gossamer import Spider

class Things(Spider):
    start_urls = ["{start}"]

    def parse(self, page):
        yield {{"url": page.url, "title": page.css("h1::text").get(), "sku": page.css(".sku::text").get()}}
        yield from page.follow_all(".links a")
"""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """An open door. `key` has every scope."""

    project: Project
    app: Any  # an ASGI application
    key: str
    http: httpx.AsyncClient

    def client(self, key: str | None = None) -> AsyncClient:
        return AsyncClient(ADDRESS, key or self.key, transport=httpx.ASGITransport(self.app))

    async def new_key(self, name: str, *scopes: str, **limits: Any) -> str:
        return (await add_key(self.project, name, list(scopes), **limits)).key

    async def call(self, method: str, path: str, key: str | None = None, **request: Any) -> httpx.Response:
        headers = {"x-api-key": key or self.key, **request.pop("headers", {})}
        return await self.http.request(method, path, headers=headers, **request)

    async def get(self, path: str, key: str | None = None, **params: Any) -> httpx.Response:
        return await self.call("GET", path, key, params=params)

    async def post(self, path: str, body: Any = None, key: str | None = None, **request: Any) -> httpx.Response:
        return await self.call("POST", path, key, json=body, **request)


def settings_of(folder: Path, start: str = "", **flags: Any) -> Settings:
    """Settings of a project in `folder`, with a spider `things` if there is a page to start from."""
    if start:
        (folder / "spiders").mkdir(exist_ok=True)
        (folder / "spiders" / "things.py").write_text(SPIDER.format(start=start), encoding="utf-8")
    return settings_for(folder, **{"server__rate": "unlimited", **flags})


@asynccontextmanager
async def serving(settings: Settings, *, worker: bool = True, **app: Any) -> AsyncIterator[Served]:
    """The door of the project, and a worker that serves its jobs."""
    async with open_project(settings) as project, PageReader(project) as pages:
        key = (await add_key(project, "all", list(SCOPES))).key
        made = make_app(project, pages, **app)
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url=ADDRESS, timeout=PATIENCE) as http,
            _working(settings, worker),
        ):
            yield Served(project=project, app=made, key=key, http=http)


@asynccontextmanager
async def _working(settings: Settings, wanted: bool) -> AsyncIterator[None]:
    if not wanted:
        yield
        return
    async with open_project(settings) as project:
        pool = WorkerPool(project, NullSink(), terms=PoolTerms(look=QUICK_LOOK))
        working = asyncio.create_task(pool.run(), name="worker")
        await until(project.state.workers.workers, "a worker is registered")
        try:
            yield
        finally:
            pool.drain()
            await working


@asynccontextmanager
async def listening(server: HttpServer) -> AsyncIterator[int]:
    """The port of a server that runs in this process."""
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving
