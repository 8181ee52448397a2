"""Scraping APIs on loopback, in two shapes: a GET that answers with the page, and JSON with jobs and batches.

They speak HTTP on real sockets, write down what they are asked, and misbehave as they are told to. A page is what the
test says it is (`pages`), or what the server finds when it visits the address itself (`visits`).
"""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import aiohttp.abc
from aiohttp import web

from tests.patience import PATIENCE

KEY = "k3y-of-the-account/+=7"
HTML = {"Content-Type": "text/html; charset=utf-8"}


@dataclass
class Asked:
    """One request as the vendor saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    json: Any


@dataclass
class Page:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: dict(HTML))


class Vendor:
    """What both shapes share. `trouble` is an answer that is given instead of the real one, once for each entry."""

    def __init__(self) -> None:
        self.port = 0
        self.log: list[Asked] = []
        self.pages: dict[str, Page] = {}
        self.visits = False  # fetch the target for real, from a site of the test; names lead to loopback
        self.source: str | None = None  # the loopback address that visits come from
        self.cost: float | None = 5
        self.trouble: list[Callable[[], web.StreamResponse]] = []
        self.always: Callable[[], web.StreamResponse] | None = None
        self.hold: asyncio.Event | None = None  # answers wait for it
        self._tasks: set[asyncio.Task[None]] = set()
        self.client: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> list[Asked]:
        return [one for one in self.log if one.path == path]

    def show(self, url: str, body: bytes | str = b"<p>hello</p>", status: int = 200, **headers: str) -> str:
        text = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.pages[url] = Page(status, text, {**HTML, **named})
        return url

    async def page(self, url: str) -> Page:
        if self.visits and url not in self.pages:
            assert self.client is not None
            async with self.client.get(url, allow_redirects=False, headers={"X-Rendered": "yes"}) as answer:
                return Page(answer.status, await answer.read(), dict(answer.headers))
        return self.pages.get(url) or Page(404, b"no such page")

    def own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._reply(request)
        except HangUp:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        json = await request.json() if raw else None
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.log.append(Asked(request.method, request.path, dict(request.query), headers, json))
        if self.hold is not None:
            await self.hold.wait()
        if self.trouble:
            return self.trouble.pop(0)()
        if self.always is not None:
            return self.always()
        if not self.knows_key(self.log[-1]):
            return web.json_response({"error": f"bad key {KEY}"}, status=401)
        return await self.answer(self.log[-1])

    def knows_key(self, asked: Asked) -> bool:
        raise NotImplementedError

    async def answer(self, asked: Asked) -> web.StreamResponse:
        raise NotImplementedError

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class GetVendor(Vendor):
    """`GET /?api_key=KEY&url=TARGET`; the answer is the page."""

    def knows_key(self, asked: Asked) -> bool:
        return asked.query.get("api_key") == KEY

    async def answer(self, asked: Asked) -> web.StreamResponse:
        page = await self.page(asked.query["url"])
        headers = {name: value for name, value in page.headers.items() if name.lower() != "content-length"}
        if self.cost is not None:
            headers["sa-credit-cost"] = f"{self.cost:g}"
        return web.Response(status=page.status, body=page.body, headers=headers)


class JobVendor(Vendor):
    """`POST /scrape`; `POST /scrape/async` and `GET /jobs/{id}`; `POST /batch` and `GET /batch/{id}`, or a callback.

    `polls` is how often a job is looked at before it is done; None: it never is. `fails` are targets that cannot be
    had. `callbacks` is how often each batch is called back. `retag` changes the ids of results.
    """

    def __init__(self) -> None:
        super().__init__()
        self.polls: int | None = 1
        self.fails: dict[str, str] = {}
        self.refuses: set[str] = set()  # targets that a request must not hold
        self.callbacks = 1
        self.retag: Callable[[str], str] = lambda tag: tag
        self.leaves_out: set[str] = set()
        self.base64 = False
        self.jobs: dict[str, Any] = {}
        self.looked: dict[str, int] = {}
        self.called: list[tuple[str, Any, int]] = []  # address, what was sent, the answer's status

    def knows_key(self, asked: Asked) -> bool:
        return asked.headers.get("x-api-key") == KEY

    async def answer(self, asked: Asked) -> web.StreamResponse:
        match asked.path.strip("/").split("/"):
            case ["scrape"]:
                if asked.json["url"] in self.refuses:
                    return web.json_response({"error": "this address is not served"}, status=422)
                if asked.json["url"] in self.fails:
                    return web.json_response({"error": self.fails[asked.json["url"]]})
                return web.json_response(await self._told(asked.json["url"]))
            case ["scrape", "async"]:
                return self.new("job_id", asked.json)
            case ["batch"]:
                if self.refuses & {item["url"] for item in asked.json["requests"]}:
                    return web.json_response({"error": "an address is not served"}, status=422)
                return self.new("batch_id", asked.json)
            case ["jobs", job] if job in self.jobs:
                return web.json_response(await self._look(job))
            case ["batch", job] if job in self.jobs:
                return web.json_response(await self._look_at_batch(job))
        return web.json_response({"error": "no such thing"}, status=404)

    def new(self, name: str, question: Any) -> web.StreamResponse:
        job = f"job-{len(self.jobs)}"
        self.jobs[job] = question
        if name == "batch_id" and "callback_url" in question and self.callbacks:
            self.own(self._call_back(job, question["callback_url"]))
        return web.json_response({name: job, "status": "pending"}, status=202)

    async def _told(self, url: str) -> dict[str, Any]:
        page = await self.page(url)
        body = base64.b64encode(page.body).decode() if self.base64 else page.body.decode("utf-8", "replace")
        told: dict[str, Any] = {"status_code": page.status, "body": body, "headers": page.headers, "final_url": url}
        return told if self.cost is None else {**told, "tokens_used": self.cost}

    def _is_done(self, job: str) -> bool:
        self.looked[job] = self.looked.get(job, 0) + 1
        return self.polls is not None and self.looked[job] >= self.polls

    async def _look(self, job: str) -> dict[str, Any]:
        if not self._is_done(job):
            return {"job_id": job, "status": "processing"}
        return {"job_id": job, **await self._result(self.jobs[job]["url"])}

    async def _result(self, url: str) -> dict[str, Any]:
        if url in self.fails:
            return {"status": "failed", "error": self.fails[url], "result": None}
        return {"status": "completed", "result": await self._told(url)}

    async def _look_at_batch(self, job: str) -> dict[str, Any]:
        if not self._is_done(job):
            return {"batch_id": job, "status": "processing", "results": []}
        return await self.finished(job)

    async def finished(self, job: str) -> dict[str, Any]:
        """What is told of a batch that is done."""
        results = [
            {"id": self.retag(item["id"]), **await self._result(item["url"])}
            for item in self.jobs[job]["requests"]
            if item["url"] not in self.leaves_out
        ]
        return {"batch_id": job, "status": "completed", "results": results}

    async def _call_back(self, job: str, address: str) -> None:
        for _ in range(self.callbacks):
            await self.call(address, await self.finished(job))

    async def call(self, address: str, what: Any) -> int:
        """Call somebody back; the status of the answer."""
        assert self.client is not None
        data = what if isinstance(what, bytes) else None
        async with self.client.post(address, json=None if data is not None else what, data=data) as answer:
            await answer.read()
            self.called.append((address, what, answer.status))
            return answer.status


class Loopback(aiohttp.abc.AbstractResolver):
    """Every name leads to this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        return [
            aiohttp.abc.ResolveResult(
                hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        return None


@asynccontextmanager
async def running(vendor: Vendor) -> AsyncIterator[None]:
    """Serve on a free port of 127.0.0.1 until left."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", vendor._take)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    vendor.port = runner.addresses[0][1]
    try:
        local = (vendor.source, 0) if vendor.source is not None else None
        connector = aiohttp.TCPConnector(resolver=Loopback(), local_addr=local, use_dns_cache=False)
        async with aiohttp.ClientSession(connector=connector, trust_env=False) as client:
            vendor.client = client
            try:
                yield
            finally:
                await vendor.close()
    finally:
        await runner.cleanup()


@asynccontextmanager
async def get_vendor() -> AsyncIterator[GetVendor]:
    vendor = GetVendor()
    async with running(vendor):
        yield vendor


@asynccontextmanager
async def job_vendor() -> AsyncIterator[JobVendor]:
    vendor = JobVendor()
    async with running(vendor):
        yield vendor


# -- answers of a vendor in trouble ---------------------------------------------------------------------------


def status(code: int, words: str = "trouble", **headers: str) -> Callable[[], web.StreamResponse]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: web.json_response({"error": words}, status=code, headers=named)


def garbage() -> web.StreamResponse:
    return web.Response(body=b"\x00\xff{not json", content_type="application/json")


def text(content: str) -> Callable[[], web.StreamResponse]:
    return lambda: web.Response(text=content, content_type="application/json")


class HangUp(Exception):
    """The connection is cut instead of an answer."""


def hang_up() -> web.StreamResponse:
    raise HangUp


@contextmanager
def in_a_thread(vendor: Vendor) -> Iterator[None]:
    """The same for tests that wait for other processes: the server has a thread and a loop of its own."""
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running(vendor):
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="vendor", daemon=True)
    thread.start()
    assert ready.wait(PATIENCE), "the vendor's server did not start"
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        assert not thread.is_alive(), "the vendor's server did not end"
