"""Start jobs: scrape a page and wait for it, scrape in the background, batches, crawls."""

from __future__ import annotations

from typing import Any

import msgspec

from ..model.job import Job
from ..project.access.callbacks import register
from ..project.access.keys import JOBS, SCRAPE
from ..project.jobs.api_jobs import (
    NO_WORKER,
    begin_batch,
    begin_crawl,
    begin_scrape,
    is_served,
    public_url,
    wanted_pages,
)
from ..project.jobs.api_requests import BatchRequest, CrawlRequest, ScrapeRequest
from ..project.pages.results import PageOutcome, scraped
from .endpoint import Call, Endpoint, Reply


class JobAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """A job was started, or was already running. `url` has its status."""

    success: bool = True
    job_id: str
    status: str = "queued"
    url: str
    note: str | None = None  # what keeps the job from starting now, if anything


class BatchBegun(JobAccepted, frozen=True, kw_only=True):
    """A batch is a job: both ids are the same."""

    batch_id: str
    total: int


async def scrape(call: Call) -> Reply:
    """Wait for a page, as long as the client wants and server.max_wait allows."""
    wanted = call.of(ScrapeRequest)
    _check(call, wanted.callback_url)
    found = await scraped(call.asked, call.pages, wanted, lambda job: _call_back(call, job, wanted.callback_url))
    if isinstance(found, Job):
        wait = min(wanted.timeout, call.project.settings.server.max_wait.total_seconds())
        return _begun(found, 202, f"The page did not come within {wait:g} s. It is still being worked on.")
    return Reply(value=found, target=found.meta.job_id or "")


async def scrape_async(call: Call) -> Reply:
    wanted = call.of(ScrapeRequest)
    _check(call, wanted.callback_url)
    job = await begin_scrape(call.asked, wanted, waits=False)
    await _call_back(call, job, wanted.callback_url)
    return _begun(job, 202, await _note(call))


async def batch(call: Call) -> Reply:
    wanted = call.of(BatchRequest)
    _check(call, wanted.callback_url)
    job = await begin_batch(call.asked, wanted)
    await _call_back(call, job, wanted.callback_url)
    total = len(await wanted_pages(call.project, job))
    value = BatchBegun(job_id=job.id, batch_id=job.id, url=_address(job), total=total, note=await _note(call))
    return Reply(value=value, status=202, target=job.id)


async def crawl(call: Call) -> Reply:
    wanted = call.of(CrawlRequest)
    _check(call, wanted.callback_url)
    job = await begin_crawl(call.project, call.caller, wanted)
    await _call_back(call, job, wanted.callback_url)
    return _begun(job, 202, await _note(call))


def _check(call: Call, callback_url: str | None) -> None:
    """Check the callback before the job starts. Raises BadRequest for an address that cannot be called."""
    if callback_url is not None:
        public_url(call.project.settings, callback_url)


async def _call_back(call: Call, job: Job, callback_url: str | None) -> None:
    if callback_url is not None:
        await register(call.project, call.caller, job, callback_url)


async def _note(call: Call) -> str | None:
    return None if await is_served(call.project) else NO_WORKER


def _begun(job: Job, status: int, note: str | None) -> Reply:
    value = JobAccepted(job_id=job.id, url=_address(job), note=note)
    return Reply(value=value, status=status, target=job.id)


def _address(job: Job) -> str:
    return f"/api/v1/jobs/{job.id}"


_PAGE: dict[str, Any] = {"url": "https://shop.example/p/1", "formats": ["markdown", "links"]}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/scrape",
        scope=SCRAPE,
        summary="Fetch one page and wait for it",
        handler=scrape,
        acknowledges=False,
        body=ScrapeRequest,
        gives=PageOutcome,
        example={**_PAGE, "timeout": 30},
        other_statuses={202: "Timed out: the job goes on", 503: "No worker is running"},
    ),
    Endpoint(
        method="POST",
        path="/api/v1/scrape/async",
        scope=SCRAPE,
        summary="Fetch one page; ask for the job later",
        handler=scrape_async,
        body=ScrapeRequest,
        gives=JobAccepted,
        example=_PAGE,
        aliases=("/api/v1/async/scrape",),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/batch",
        scope=SCRAPE,
        summary="Fetch 1 to 100 pages",
        handler=batch,
        body=BatchRequest,
        gives=BatchBegun,
        example={"urls": ["https://shop.example/p/1", "https://shop.example/p/2"], "formats": ["markdown"]},
        aliases=("/api/v1/async/batch",),
    ),
    Endpoint(
        method="POST",
        path="/api/v1/crawls",
        scope=JOBS,
        summary="Crawl with a spider, with a recipe, or a whole site",
        handler=crawl,
        body=CrawlRequest,
        gives=JobAccepted,
        example={"spider": "books", "limit": 1000},
    ),
)
