"""A site that tells what it was asked, and keeps a list of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

HERE = {"fetch__allow_hosts": ["site0.localhost", "site1.localhost"]}


class Mirror:
    def __init__(self) -> None:
        self.port = 0
        self.asked: list[dict[str, Any]] = []

    def url(self, path: str, host: str = "site0") -> str:
        return f"http://{host}.localhost:{self.port}{path}"

    def hits(self, path: str) -> list[dict[str, Any]]:
        return [one for one in self.asked if one["path"] == path]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/robots.txt":
            raise web.HTTPNotFound
        told = {
            "method": request.method,
            "path": request.path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": (await request.read()).decode(),
        }
        self.asked.append(told)
        status = request.path.partition("/to/")[2]
        if status:
            return web.Response(status=int(status), headers={"location": "/target"})
        if request.path == "/away":
            return web.Response(status=307, headers={"location": self.url("/target", "site1")})
        if request.path == "/silent":
            assert request.transport is not None
            request.transport.abort()
        response = web.json_response(told)
        if "authorization" in told["headers"]:
            response.set_cookie("who", told["headers"]["authorization"].split()[-1])
        return response


@asynccontextmanager
async def mirroring() -> AsyncIterator[Mirror]:
    mirror, app = Mirror(), web.Application()
    app.router.add_route("*", "/{path:.*}", mirror.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    mirror.port = runner.addresses[0][1]
    try:
        yield mirror
    finally:
        await runner.cleanup()
