"""The endpoints: scrape, crawl, batch and map, as v2 and v1 have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...clock import iso_time
from ...model.job import Job
from ...project.access import idempotency
from ...project.access.callback_messages import FIRECRAWL_EVENTS
from ...project.access.callbacks import FirecrawlShape, register
from ...project.access.keys import JOBS, SCRAPE
from ...project.jobs.api_jobs import NO_WORKER, begin_batch, is_ended, is_served, job_for, public_url, wanted_pages
from ...project.jobs.api_requests import BadRequest, BatchRequest, NoWorker
from ...project.jobs.jobs import cancel_job
from ...project.jobs.site_crawl import is_site_crawl, site_crawl_of
from ...project.pages.external_services import LanguageModel, NotConfigured, ServiceFailed
from ...project.pages.results import PageError, scraped
from ...project.sites.api_sites import begin_site_crawl, job_errors
from ...project.sites.site_map import map_site
from ...server.answers import ApiError
from ...server.endpoint import ANY, Call, Endpoint, Handler, Reply
from .bodies import (
    LONGEST_ADDRESS,
    MOST_ADDRESSES,
    BatchBody,
    CrawlBody,
    MapBody,
    ScrapeBody,
    SearchBody,
    Webhook,
    check,
    warnings_of,
)
from .conversion import ModelRequest, model_request, requested_page, scrape_request, site_crawl_request
from .documents import PAGE, base_of, document_of, job_body, warned
from .errors import error_response, no_job, not_done
from .search import search_pages

MAP_SECONDS = 60.0
MOST_HEADERS = 20  # of a webhook
MOST_METADATA = 4096  # bytes of the metadata of a webhook
CRAWL, BATCH = "crawl", "batch/scrape"  # the two kinds of jobs, by their addresses
_OWN_HEADERS = ("content-type", "content-length", "host", "user-agent", "connection", "transfer-encoding")
_FAILURES = {  # codes by the reason of a failed page; all others are SCRAPE_ALL_ENGINES_FAILED
    "timeout": (408, "SCRAPE_TIMEOUT"),
    "dns": (500, "SCRAPE_DNS_RESOLUTION_ERROR"),
    "tls": (500, "SCRAPE_SSL_ERROR"),
    "robots": (403, "SCRAPE_FORBIDDEN_BY_ROBOTS"),
    "address": (403, "SCRAPE_ADDRESS_REFUSED"),
}


class PageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    skip: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE


# -- one page ------------------------------------------------------------------------------------------------------


async def scrape(call: Call) -> Reply:
    body, model = call.of(ScrapeBody), call.pages.model
    wanted = scrape_request(body, call.project.settings.server.max_wait.total_seconds(), model=model.is_there)
    found = await scraped(call.asked, call.pages, wanted)
    if isinstance(found, Job):
        raise ApiError(408, "SCRAPE_TIMEOUT", f"The page did not come within {wanted.timeout:g} s. Ask again later.")
    if found.data is None:
        raise _failed(found.error)
    document = warned(document_of(found, wanted.url), warnings_of(body))
    asked = model_request(body) if model.is_there else None
    if asked is not None:
        document = await _read_by_model(model, document, asked)
    return Reply(value={"success": True, "data": document}, target=found.meta.job_id or "")


async def _read_by_model(model: LanguageModel, document: dict[str, Any], wanted: ModelRequest) -> dict[str, Any]:
    """The document with its json: what the page itself states, completed by the model."""
    stated: dict[str, Any] = document.get("json") or {}
    if wanted.prompt or not stated or None in stated.values():
        text, url = document.get("markdown") or "", document["metadata"]["url"]
        try:
            read = await model.values(text, url, wanted.prompt, wanted.schema)
        except (ServiceFailed, NotConfigured) as error:
            raise ApiError(500, "MODEL_FAILED", str(error)) from error
        stated = read if wanted.prompt else read | {name: one for name, one in stated.items() if one is not None}
    kept = document if wanted.also_markdown else {name: one for name, one in document.items() if name != "markdown"}
    return {**kept, "json": stated}


def _failed(error: PageError | None) -> ApiError:
    code, message = (error.code, error.message) if error is not None else ("", "The page could not be fetched.")
    for part, (status, theirs) in _FAILURES.items():
        if part in code:
            return ApiError(status, theirs, message)
    return ApiError(500, "SCRAPE_ALL_ENGINES_FAILED", message)


async def map_pages(call: Call, *, plain: bool) -> Reply:
    """With `plain`, the addresses alone, as in v1."""
    body = call.of(MapBody)
    check(body)
    public_url(call.project.settings, body.url)
    if not await is_served(call.project):
        raise NoWorker(NO_WORKER)
    only = body.sitemap == "only" or bool(body.sitemap_only)
    limit, longest = body.limit or 5000, call.project.settings.server.max_wait.total_seconds()
    seconds = min(body.timeout / 1000 if body.timeout is not None else MAP_SECONDS, longest)
    found = await map_site(
        call.project,
        call.pages,
        call.caller,
        body.url,
        search=body.search or "",
        limit=limit,
        subdomains=body.include_subdomains is not False,
        sitemaps=only or (body.sitemap != "skip" and not body.ignore_sitemap),
        page_links=not only,
        seconds=seconds,
    )
    late = [line for line in found.missing if "did not arrive within" in line]
    if late and not found.links:
        raise ApiError(408, "MAP_TIMEOUT", f"The site did not answer within {seconds:g} s. Ask again later.")
    links = found.links
    if body.ignore_query_parameters is not False:
        links = list(dict.fromkeys(link.partition("#")[0].partition("?")[0] for link in links))
    return Reply(value={"success": True, "links": links if plain else [{"url": link} for link in links]})


# -- jobs ----------------------------------------------------------------------------------------------------------


async def crawl(call: Call, *, version: str) -> Reply:
    body = call.of(CrawlBody)
    shape = _shape(call, body.webhook, "crawl")
    job = await begin_site_crawl(call.asked, site_crawl_request(body))
    return await _begun(call, job, f"/{version}/{CRAWL}/{job.id}", body.webhook, shape, warnings_of(body))


async def batch(call: Call, *, version: str) -> Reply:
    body = call.of(BatchBody)
    check(body)
    shape = _shape(call, body.webhook, "batch_scrape")
    lenient = body.ignore_invalid_urls if body.ignore_invalid_urls is not None else version == "v2"
    good, bad = _sorted_out(call, body.urls, lenient)
    wanted = BatchRequest(requests=[requested_page(body, url, id=url) for url in good])
    async with _once(call):
        job = await begin_batch(call.asked, wanted, most=MOST_ADDRESSES, site_concurrency=body.max_concurrency)
    told = warnings_of(body)
    return await _begun(call, job, f"/{version}/{BATCH}/{job.id}", body.webhook, shape, told, invalidURLs=bad)


def _sorted_out(call: Call, urls: list[str], lenient: bool) -> tuple[list[str], list[str]]:
    """The addresses that can be fetched, and the others. Raises ApiError, BadRequest."""
    if len(urls) > MOST_ADDRESSES:
        raise ApiError(422, "invalid", f"A batch has 1 to {MOST_ADDRESSES:,} pages, not {len(urls):,}. Split it.")
    good: dict[str, None] = {}
    bad: list[str] = []
    for url in urls:
        try:
            if len(url) > LONGEST_ADDRESS:
                raise BadRequest(f"An address may have {LONGEST_ADDRESS:,} characters, not {len(url):,}.")
            good[public_url(call.project.settings, url)] = None
        except BadRequest:
            if not lenient:
                raise
            bad.append(url)
    if not good:
        raise ApiError(422, "invalid", "None of the addresses can be fetched.", details={"invalidURLs": bad[:100]})
    return list(good), bad


@asynccontextmanager
async def _once(call: Call) -> AsyncIterator[None]:
    """An x-idempotency-key starts one job; if no job was started after all, it may be used again. Raises ApiError."""
    name = call.request.headers.get("x-idempotency-key", "")
    if not name:
        yield
        return
    name = f"firecrawl {name}"
    used = ApiError(409, "idempotency", "This x-idempotency-key was used before. Use a new one.")
    try:
        if await idempotency.begin(call.project, call.caller, name, b"") is not None:
            raise used
    except idempotency.StillWorking:
        raise used from None
    try:
        yield
    except BaseException:
        await idempotency.forget(call.project, call.caller, name)
        raise
    await idempotency.finish(call.project, call.caller, name, b"", 200, b"")


async def _begun(
    call: Call,
    job: Job,
    path: str,
    webhook: str | Webhook | None,
    shape: FirecrawlShape | None,
    warnings: list[str],
    **more: list[str],
) -> Reply:
    value: dict[str, Any] = {"success": True, "id": job.id, "url": base_of(call.request, call.project.settings) + path}
    value |= {name: found for name, found in more.items() if found}
    warnings = warnings if await is_served(call.project) else [NO_WORKER, *warnings]
    if shape is not None and webhook is not None:
        await register(call.project, call.caller, job, webhook if isinstance(webhook, str) else webhook.url, shape)
    return Reply(value=value | ({"warning": " ".join(warnings)} if warnings else {}), target=job.id)


def _shape(call: Call, webhook: str | Webhook | None, kind: str) -> FirecrawlShape | None:
    """Raises ApiError, BadRequest."""
    if webhook is None:
        return None
    wanted = Webhook(url=webhook) if isinstance(webhook, str) else webhook
    public_url(call.project.settings, wanted.url)
    events = wanted.events if wanted.events is not None else list(FIRECRAWL_EVENTS)
    for one in events:
        if one not in FIRECRAWL_EVENTS:
            hint = f"There is {', '.join(FIRECRAWL_EVENTS)}."
            raise ApiError(422, "invalid", f"The event {one[:50]!r} is not sent. {hint}")
    headers = tuple((wanted.headers or {}).items())
    for name, value in headers:
        plain = all(sign.isalnum() or sign in "-_" for sign in name) and name.isascii() and bool(name)
        ours = name.lower() in _OWN_HEADERS or name.lower().startswith(("webhook-", "x-firecrawl-"))
        if ours or not plain or not value.isprintable() or len(name) + len(value) > 2000:
            raise ApiError(422, "invalid", f"The header {name[:50]!r} of the webhook cannot be sent.")
    metadata = wanted.metadata or {}
    if len(headers) > MOST_HEADERS or len(msgspec.json.encode(metadata)) > MOST_METADATA:
        raise ApiError(422, "invalid", f"A webhook has {MOST_HEADERS} headers, {MOST_METADATA:,} bytes of metadata.")
    return FirecrawlShape(kind=kind, events=tuple(dict.fromkeys(events)), headers=headers, metadata=metadata)


async def status(call: Call) -> Reply:
    job, query = await job_of(call), call.of(PageQuery)
    address = base_of(call.request, call.project.settings) + call.request.url.path
    value = await job_body(call.project, call.pages, job, address, skip=query.skip, limit=query.limit)
    return Reply(value=value)


async def cancel(call: Call) -> Reply:
    job = await job_of(call, to_change=True)
    if is_ended(job):
        raise ApiError(409, "ended", f"The job has ended ({job.ending or job.state.value}).")
    await cancel_job(call.project, job.id)
    return Reply(value={"success": True, "status": "cancelled"}, target=job.id)


async def errors(call: Call) -> Reply:
    found = await job_errors(call.project, await job_of(call))
    letters = [
        {
            "id": f"{one.job}-{one.id}",
            "timestamp": iso_time(one.died_at),
            "url": one.url,
            "code": one.reason,
            "error": one.message.partition("\n")[0] or one.reason,
        }
        for one in found.letters
    ]
    return Reply(value={"errors": letters, "robotsBlocked": found.robots})


async def active(call: Call) -> Reply:
    running = await call.project.state.jobs.running_jobs()
    crawls = [
        {
            "id": job.id,
            "teamId": call.caller.id,
            "url": site_crawl_of(job).part.url,
            "created_at": iso_time(job.created_at),
        }
        for job in running
        if job.owner == call.caller.id and is_site_crawl(job)
    ]
    return Reply(value={"success": True, "crawls": crawls})


async def job_of(call: Call, *, to_change: bool = False) -> Job:
    """Raises ApiError for a job that does not exist, is another key's, or is neither a crawl of a site nor a batch."""
    job = await job_for(call.project, call.caller, call.path["job"], to_change=to_change)
    if job is None or not (is_site_crawl(job) or await wanted_pages(call.project, job)):
        raise no_job()
    return job


# -- what is not supported -----------------------------------------------------------------------------------------

_NOT_DONE = {
    "search": "Send POST to /v2/search.",
    "extract": "Scrape pages with the format json and a schema, or use recipes.",
    "agent": "Use an agent of your own: this server speaks MCP at /mcp.",
    "deep-research": "Use an agent of your own: this server speaks MCP at /mcp.",
    "llmstxt": "Crawl the site, and use the markdown of its pages.",
    "crawl/params-preview": "There is no model here: use includePaths and excludePaths.",
    "browser": "Use the actions of scrape.",
    "interact": "Use the actions of scrape.",
    "scrape": "Send POST to /v2/scrape.",
    "monitor": "Use schedules: /api/v1/schedules.",
    "parse": "Serve the file, and scrape its address.",
    "team": "There are no credits here. GET /api/v1/jobs lists what runs.",
    "concurrency-check": "GET /api/v1/jobs lists what runs.",
    "feedback": "Leave it out.",
    "keyless": "Keys are made with `gossamer keys add`.",
}


async def undone(call: Call) -> Reply:
    path = call.path["path"]
    for beginning, hint in _NOT_DONE.items():
        if path == beginning or path.startswith(f"{beginning}/"):
            raise not_done(f"{call.request.method} {call.request.url.path[:100]}", hint)
    raise ApiError(404, "not_found", "There is nothing at this URL. docs/firecrawl.md lists every endpoint.")


def _endpoint(method: str, path: str, scope: str, summary: str, handler: Handler, **more: Any) -> Endpoint:
    return Endpoint(method, path, scope, summary, handler, tells=error_response, **more)


def _of(version: str) -> list[Endpoint]:
    old = version == "v1"
    made = [
        _endpoint("POST", f"/{version}/scrape", SCRAPE, "One page", scrape, body=ScrapeBody, acknowledges=False),
        _endpoint("POST", f"/{version}/map", SCRAPE, "The addresses of a site", partial(map_pages, plain=old),
                  body=MapBody, acknowledges=False),
        _endpoint("POST", f"/{version}/search", SCRAPE, "Search, by the engine of the settings",
                  partial(search_pages, plain=old), body=SearchBody, acknowledges=False),
        _endpoint("POST", f"/{version}/crawl", JOBS, "Crawl a site", partial(crawl, version=version), body=CrawlBody),
        _endpoint("POST", f"/{version}/batch/scrape", SCRAPE, "Many pages", partial(batch, version=version),
                  body=BatchBody),
        _endpoint("GET", f"/{version}/crawl/active", JOBS, "Crawls that run", active, or_scope=SCRAPE),
    ]  # fmt: skip
    for kind in (CRAWL, BATCH):
        path = f"/{version}/{kind}/{{job}}"
        made += [
            _endpoint("GET", path, JOBS, "How a job stands", status, or_scope=SCRAPE, query=PageQuery),
            _endpoint("DELETE", path, JOBS, "Cancel a job", cancel, or_scope=SCRAPE),
            _endpoint("GET", f"{path}/errors", JOBS, "Pages that could not be fetched", errors, or_scope=SCRAPE),
        ]
    return made


ENDPOINTS: tuple[Endpoint, ...] = (*_of("v2"), *_of("v1"))
UNDONE: tuple[Endpoint, ...] = tuple(
    _endpoint(method, f"/{version}/{{path:path}}", ANY, "Not supported here", undone)
    for version in ("v2", "v1")
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
)
