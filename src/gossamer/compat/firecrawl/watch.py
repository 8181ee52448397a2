"""A job followed over a WebSocket: the pages fetched so far, each new page as it arrives, and the end.

How it fails: the connection is closed, with 3000 without a valid key, with 1008 for a job that does not exist or is
another key's. How it recovers: the client reconnects, or asks for the job over HTTP; nothing is kept here.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ...errors import GossamerError
from ...model.job import Job
from ...project.access.keys import JOBS, SCRAPE, Caller, is_still_open_to
from ...project.jobs.api_jobs import is_ended, job_for, wanted_pages
from ...project.jobs.api_views import encode, job_report
from ...project.jobs.site_crawl import is_site_crawl
from ...project.open import Project
from ...project.pages.results import PageReader
from ...project.sites.api_sites import listed_pages
from ...server.answers import ApiError
from ...server.door import Door
from .documents import SCRAPING, base_of, document_of, job_body, standing
from .errors import NO_JOB

log = logging.getLogger("gossamer.server")
LOOK = 1.0  # seconds between two looks for new pages; longer if a look takes long
LOOKS_SHARE = 5  # a pause is this many times as long as the look before it
LONGEST = 3600.0  # seconds; then the client connects again
NORMAL, NOT_THERE, NO_KEY = 1000, 1008, 3000


class JobWatch:
    """`WebSocketRoute` calls it with a path that has `job` in it."""

    def __init__(self, door: Door, project: Project, pages: PageReader) -> None:
        self._door = door
        self._project = project
        self._pages = pages

    async def __call__(self, socket: WebSocket) -> None:
        try:
            offered = socket.scope.get("subprotocols") or [""]
            try:
                caller = await self._door.admit(socket, offered[0])
            except ApiError as error:
                if error.status in (403, 421):  # cross-origin, or a foreign Host: no connection at all
                    await socket.close(NOT_THERE)
                    return
                await self._refuse(socket, offered[0], NO_KEY, str(error))
                return
            job = await self._job(caller, socket.path_params["job"])
            if job is None:
                await self._refuse(socket, offered[0], NOT_THERE, NO_JOB)
                return
            await socket.accept(subprotocol=offered[0] or None)
            await self._follow(socket, caller, job)
            await socket.close(NORMAL)
        except (WebSocketDisconnect, RuntimeError):  # the client is gone; sending to it is a RuntimeError
            return
        except GossamerError as error:
            log.warning("%s: %s", socket.url.path, error)
            await _send(socket, {"type": "error", "error": "A store of the project does not answer. Try again."})
            await socket.close(NORMAL)
        finally:
            self._door.leave(socket)

    async def _refuse(self, socket: WebSocket, protocol: str, code: int, words: str) -> None:
        await socket.accept(subprotocol=protocol or None)
        await _send(socket, {"type": "error", "error": words})
        await socket.close(code, words[:100])

    async def _job(self, caller: Caller, id: str) -> Job | None:
        if not (caller.may(JOBS) or caller.may(SCRAPE)):
            return None
        job = await job_for(self._project, caller, id)
        if job is None or not (is_site_crawl(job) or await wanted_pages(self._project, job)):
            return None
        return job

    async def _follow(self, socket: WebSocket, caller: Caller, job: Job) -> None:
        project, clock = self._project, self._project.clock
        address = base_of(socket, project.settings) + socket.url.path
        caught = await job_body(project, self._pages, job, address)
        if "next" in caught:  # clients stop at a final status: the other documents come first
            caught["status"] = SCRAPING
        await _send(socket, {"type": "catchup", "data": caught})
        sent = {document["metadata"]["sourceURL"] for document in caught["data"]}
        until = clock.monotonic() + LONGEST
        while clock.monotonic() < until:
            found = await job_for(project, caller, job.id)
            if found is None or not await is_still_open_to(project, caller):
                return
            began = clock.monotonic()
            if not await self._send_new(socket, caller, found, sent):
                return
            if is_ended(found):
                await self._send_end(socket, found)
                return
            await clock.sleep(max(LOOK, LOOKS_SHARE * (clock.monotonic() - began)))

    async def _send_new(self, socket: WebSocket, caller: Caller, job: Job, sent: set[str]) -> bool:
        """Send every page that was not sent yet, each in its own message. False if the key was revoked meanwhile."""
        clock = self._project.clock
        looked_at = clock.monotonic()
        async with aclosing(listed_pages(self._project, job)) as listed:
            async for page in listed:
                name = page.id or page.request.url
                if name in sent:
                    continue
                if clock.monotonic() - looked_at >= LOOK:
                    looked_at = clock.monotonic()
                    if not await is_still_open_to(self._project, caller):
                        return False
                outcome = await self._pages.outcome(job, page)
                if outcome.data is not None:
                    await _send(socket, {"type": "document", "data": document_of(outcome, name)})
                    sent.add(name)
        return True

    async def _send_end(self, socket: WebSocket, job: Job) -> None:
        report = await job_report(self._project, job)
        body = standing(report)
        if body["status"] == "completed":
            await _send(socket, {"type": "done", "data": {"success": True, **body, "data": []}})
            return
        words = "The job was cancelled." if body["status"] == "cancelled" else report.error or "The job failed."
        await _send(socket, {"type": "error", "error": words})


async def _send(socket: WebSocket, value: dict[str, Any]) -> None:
    await socket.send_text(encode(value).decode())
