"""A client for the HTTP API of a project, for programs on other machines: `Client`, and `AsyncClient` for asyncio.

    from gossamer.client import Client

    with Client("http://127.0.0.1:8420", key) as gossamer:
        page = gossamer.scrape("https://shop.example/p/1", formats=["markdown"])

How it fails: `ServerError` with the status, the code and the message of the server; `ConnectionError` if no server
answers. How it recovers: 429 and 503 are retried a few times, after the time that the server asks for, and so is a
request whose connection was lost. Writes carry an Idempotency-Key: one whose response was lost is not done twice, and
one that is still being processed is waited for, as long as the timeout of a scrape.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Self, TypeVar
from uuid import uuid4

import msgspec

from . import client_requests as requests
from .client_requests import Addresses, Ask, JobResult, StartedJob
from .errors import MissingExtra
from .model.figures import Figures
from .project.dead_letters.story import Story
from .project.jobs.api_views import JobReports
from .project.jobs.jobs import JobChange
from .project.pages.results import PageOutcome
from .project.records.figures import History

try:
    import httpx
except ImportError as error:
    raise MissingExtra("The client is not installed: pip install 'gossamer[client]'") from error

T = TypeVar("T")
TRIES = 4
LOST_PAUSE = 0.5  # seconds after a connection that was refused or lost
LONGEST_PAUSE = 30.0  # seconds, whatever the server asks for
ENDED = ("completed", "failed", "cancelled")
RETRIED = (429, 503)
WORKED_ON = "in_progress"  # the code of a 409
USUAL_TIMEOUT = 60.0  # seconds, for a scrape that sets none
PATIENCE = 650.0  # seconds to wait for a response; a scrape may take ten minutes


class ServerError(Exception):
    """The server refused the request. `details` depend on the code."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details


class StillRunning(Exception):
    """A scrape took longer than its timeout. The job goes on."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"The page did not come in time. Its job goes on: {job_id}")
        self.job_id = job_id


# -- sending -------------------------------------------------------------------------------------------------------


def _headers(ask: Ask[Any]) -> dict[str, str]:
    return {"idempotency-key": str(uuid4())} if ask.method == "POST" else {}


def _read(ask: Ask[T], answer: httpx.Response) -> T:
    """Raises ServerError and StillRunning."""
    if answer.status_code == 202 and ask.gives is PageOutcome:
        raise StillRunning(msgspec.json.decode(answer.content, type=StartedJob).job_id)
    if answer.is_success:
        return msgspec.json.decode(answer.content, type=ask.gives)
    try:
        error = msgspec.json.decode(answer.content)["error"]
        code, message, details = error["code"], error["message"], error["details"]
    except (msgspec.DecodeError, KeyError, TypeError):
        code, message, details = "unknown", f"The server answered {answer.status_code}, without saying why.", {}
    raise ServerError(answer.status_code, code, message, details)


def _is_worked_on(answer: httpx.Response) -> bool:
    """Is the first request with this key, whose connection was lost, still being processed?"""
    try:
        return answer.status_code == 409 and bool(msgspec.json.decode(answer.content)["error"]["code"] == WORKED_ON)
    except (msgspec.DecodeError, KeyError, TypeError):
        return False


def _pause(ask: Ask[Any], answer: httpx.Response, tries: int, waited: float) -> float | None:
    """Seconds until the next attempt; None if there is none. `waited` is the seconds since the first."""
    if _is_worked_on(answer):
        if waited >= (ask.body or {}).get("timeout", USUAL_TIMEOUT):
            return None
    elif answer.status_code not in RETRIED or tries >= TRIES:
        return None
    asked = answer.headers.get("retry-after", "")
    return min(float(asked) if asked.isdecimal() else 1.0, LONGEST_PAUSE)


class AsyncClient:
    """A client for asyncio. Use it inside `async with`. `transport` is an httpx transport, for tests."""

    def __init__(self, address: str, key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(
            base_url=address.rstrip("/"), headers={"x-api-key": key}, timeout=PATIENCE, transport=transport
        )
        self._addresses: Addresses | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def send(self, ask: Ask[T]) -> T:
        """Send any request. Raises ServerError, ConnectionError."""
        headers, tries, began = _headers(ask), 0, time.monotonic()
        while True:
            tries += 1
            try:
                answer = await self._http.request(
                    ask.method, ask.path, json=ask.body, params=ask.params, headers=headers
                )
            except httpx.TransportError as error:
                if tries >= TRIES:
                    raise ConnectionError(f"{self._http.base_url.host} does not answer ({error}).") from error
                pause = LOST_PAUSE
            else:
                asked = _pause(ask, answer, tries, time.monotonic() - began)
                if asked is None:
                    return _read(ask, answer)
                pause = asked
            await asyncio.sleep(pause)

    async def call(self, name: str, **fields: Any) -> Any:
        """Ask any endpoint by its name in /openapi.json, with the fields of its path, query or body; get JSON:
        `await client.call("post_notes", text="new proxies")`. Raises ValueError for a name that the server does
        not know, ServerError, ConnectionError."""
        if self._addresses is None:
            self._addresses = Addresses(await self.send(requests.DOCUMENT))
        return await self.send(self._addresses.ask(name, fields))

    async def scrape(self, url: str, **options: Any) -> PageOutcome:
        """Fetch a page and wait for it. Raises StillRunning, ServerError."""
        return await self.send(requests.scrape(url, options))

    async def scrape_async(self, url: str, **options: Any) -> StartedJob:
        return await self.send(requests.begin("/scrape/async", url=url, **options))

    async def batch(self, urls: list[str] | None = None, **options: Any) -> StartedJob:
        return await self.send(requests.begin("/batch", urls=urls, **options))

    async def crawl(self, **options: Any) -> StartedJob:
        """Begin a crawl: spider, recipe or url; arguments, limit, depth, rate, callback_url."""
        return await self.send(requests.begin("/crawls", **options))

    async def job(self, id: str) -> JobResult:
        return await self.send(requests.job(id))

    async def wait(self, id: str, *, every: float = 1.0) -> JobResult:
        """Poll the job until it has ended."""
        while True:
            job = await self.job(id)
            if job.status in ENDED:
                return job
            await asyncio.sleep(every)

    async def results(self, id: str) -> AsyncIterator[PageOutcome]:
        """Every page of a scrape or a batch."""
        after: int | None = 0
        while after is not None:
            page = await self.send(requests.results(id, after))
            for one in page.results:
                yield one
            after = page.next

    async def jobs(self, *, limit: int = 20, after: str | None = None, status: str | None = None) -> JobReports:
        return await self.send(requests.jobs(limit, after, status))

    async def pause(self, id: str) -> JobChange:
        return await self.send(requests.change("POST", id, "/pause"))

    async def resume(self, id: str) -> JobChange:
        return await self.send(requests.change("POST", id, "/resume"))

    async def cancel(self, id: str) -> JobChange:
        return await self.send(requests.change("DELETE", id))

    async def records(self, **filters: Any) -> AsyncIterator[dict[str, Any]]:
        """Records by job, spider, type, site, since, until, gone."""
        after: str | None = "0"
        while after is not None:
            page = await self.send(requests.records(after, filters))
            for record in page.records:
                yield record
            after = page.next

    async def figures(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        step: int | None = None,
        domain: str | None = None,
    ) -> History:
        """The figures since then (seconds since the epoch; None: of the last hour), in steps of equal length."""
        return await self.send(requests.figures(since, until, step, domain))

    async def total_figures(self) -> Figures:
        """The totals of all time."""
        return await self.send(requests.TOTALS)

    async def why(
        self,
        url: str,
        *,
        method: str | None = None,
        body: str | None = None,
        json: Any = None,
        form: Mapping[str, str] | None = None,
    ) -> Story:
        return await self.send(requests.why(url, method, body, json, form))


class Client:
    """The same client without asyncio. Use it inside `with`."""

    def __init__(self, address: str, key: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(
            base_url=address.rstrip("/"), headers={"x-api-key": key}, timeout=PATIENCE, transport=transport
        )
        self._addresses: Addresses | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def send(self, ask: Ask[T]) -> T:
        """Send any request. Raises ServerError, ConnectionError."""
        headers, tries, began = _headers(ask), 0, time.monotonic()
        while True:
            tries += 1
            try:
                answer = self._http.request(ask.method, ask.path, json=ask.body, params=ask.params, headers=headers)
            except httpx.TransportError as error:
                if tries >= TRIES:
                    raise ConnectionError(f"{self._http.base_url.host} does not answer ({error}).") from error
                pause = LOST_PAUSE
            else:
                asked = _pause(ask, answer, tries, time.monotonic() - began)
                if asked is None:
                    return _read(ask, answer)
                pause = asked
            time.sleep(pause)

    def call(self, name: str, **fields: Any) -> Any:
        """Ask any endpoint by its name in /openapi.json, with the fields of its path, query or body; get JSON:
        `client.call("post_notes", text="new proxies")`. Raises ValueError for a name that the server does not
        know, ServerError, ConnectionError."""
        if self._addresses is None:
            self._addresses = Addresses(self.send(requests.DOCUMENT))
        return self.send(self._addresses.ask(name, fields))

    def scrape(self, url: str, **options: Any) -> PageOutcome:
        """Fetch a page and wait for it. Raises StillRunning, ServerError."""
        return self.send(requests.scrape(url, options))

    def scrape_async(self, url: str, **options: Any) -> StartedJob:
        return self.send(requests.begin("/scrape/async", url=url, **options))

    def batch(self, urls: list[str] | None = None, **options: Any) -> StartedJob:
        return self.send(requests.begin("/batch", urls=urls, **options))

    def crawl(self, **options: Any) -> StartedJob:
        """Begin a crawl: spider, recipe or url; arguments, limit, depth, rate, callback_url."""
        return self.send(requests.begin("/crawls", **options))

    def job(self, id: str) -> JobResult:
        return self.send(requests.job(id))

    def wait(self, id: str, *, every: float = 1.0) -> JobResult:
        """Poll the job until it has ended."""
        while (job := self.job(id)).status not in ENDED:
            time.sleep(every)
        return job

    def results(self, id: str) -> Iterator[PageOutcome]:
        """Every page of a scrape or a batch."""
        after: int | None = 0
        while after is not None:
            page = self.send(requests.results(id, after))
            yield from page.results
            after = page.next

    def jobs(self, *, limit: int = 20, after: str | None = None, status: str | None = None) -> JobReports:
        return self.send(requests.jobs(limit, after, status))

    def pause(self, id: str) -> JobChange:
        return self.send(requests.change("POST", id, "/pause"))

    def resume(self, id: str) -> JobChange:
        return self.send(requests.change("POST", id, "/resume"))

    def cancel(self, id: str) -> JobChange:
        return self.send(requests.change("DELETE", id))

    def records(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Records by job, spider, type, site, since, until, gone."""
        after: str | None = "0"
        while after is not None:
            page = self.send(requests.records(after, filters))
            yield from page.records
            after = page.next

    def figures(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        step: int | None = None,
        domain: str | None = None,
    ) -> History:
        """The figures since then (seconds since the epoch; None: of the last hour), in steps of equal length."""
        return self.send(requests.figures(since, until, step, domain))

    def total_figures(self) -> Figures:
        """The totals of all time."""
        return self.send(requests.TOTALS)

    def why(
        self,
        url: str,
        *,
        method: str | None = None,
        body: str | None = None,
        json: Any = None,
        form: Mapping[str, str] | None = None,
    ) -> Story:
        return self.send(requests.why(url, method, body, json, form))
