"""`POST /search`: the results of a search engine, with the pages themselves if `scrapeOptions` are given."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidUrl
from ...model.url import host_of, parse_url
from ...project.jobs.api_jobs import NO_WORKER, begin_batch, is_served, job_for, public_url, wanted_pages
from ...project.jobs.api_requests import BadRequest, BatchRequest, NoWorker
from ...project.pages.external_services import NotConfigured, SearchHit, ServiceFailed, search
from ...server.answers import ApiError
from ...server.endpoint import Call, Reply
from .bodies import SearchBody, check, warnings_of
from .conversion import requested_page
from .documents import document_of
from .errors import not_done, refused

USUAL = 5  # results
LOOKED_AT = 100  # results requested from the engine, before domains are left out
SEARCH_SECONDS = 60.0
_PERIODS = {"qdr:d": "day", "qdr:w": "week", "qdr:m": "month", "qdr:y": "year"}
_SOURCES = ("web", "news", "images")


async def search_pages(call: Call, *, plain: bool) -> Reply:
    """With `plain`, one list, as in v1."""
    body = call.of(SearchBody)
    check(body)
    if not call.project.settings.search.url:
        raise not_done("search", "No search engine is configured for this server. Map a site, or crawl it.")
    if body.tbs and body.tbs not in _PERIODS:
        raise refused(f"tbs {body.tbs!r}", f"There is {', '.join(_PERIODS)}.")
    named = [one if isinstance(one, str) else one.type for one in body.sources or ["web"]]
    for one in named:
        if one not in _SOURCES:
            raise refused(f"The source {one[:50]!r}", f"There is {', '.join(_SOURCES)}.")
    period = _PERIODS.get(body.tbs or "", "")
    found: dict[str, list[dict[str, Any]]] = {}
    for source in dict.fromkeys(named):
        try:
            hits = await search(call.project.settings, _query(body), source=source, limit=LOOKED_AT, period=period)
        except (NotConfigured, ServiceFailed) as error:
            raise ApiError(500, "SEARCH_FAILED", str(error)) from error
        hits = [hit for hit in hits if _is_wanted(hit, body)][: body.limit or USUAL]
        found[source] = [_result(hit, source, place) for place, hit in enumerate(hits, 1)]
    target = ""
    if body.scrape_options is not None and body.scrape_options.formats != []:
        target = await _add_documents(call, body, [row for rows in found.values() for row in rows])
    data: Any = [row for rows in found.values() for row in rows] if plain else found
    value = {"success": True, "data": data, "creditsUsed": sum(map(len, found.values()))}
    warnings = warnings_of(body.scrape_options) if body.scrape_options is not None else []
    return Reply(value=value | ({"warning": " ".join(warnings)} if warnings else {}), target=target)


def _query(body: SearchBody) -> str:
    only = " OR ".join(f"site:{domain}" for domain in body.include_domains or ())
    never = " ".join(f"-site:{domain}" for domain in body.exclude_domains or ())
    return " ".join(filter(None, (body.query, only, never)))


def _is_wanted(hit: SearchHit, body: SearchBody) -> bool:
    try:
        host = host_of(parse_url(hit.url))
    except InvalidUrl:
        return False
    below = [one for one in body.include_domains or () if host == one or host.endswith(f".{one}")]
    outside = [one for one in body.exclude_domains or () if host == one or host.endswith(f".{one}")]
    return not outside and (bool(below) or not body.include_domains)


def _result(hit: SearchHit, source: str, place: int) -> dict[str, Any]:
    row: dict[str, Any] = {"url": hit.url, "title": hit.title, "position": place}
    match source:
        case "images":
            return row | {"imageUrl": hit.image}
        case "news":
            return row | {"snippet": hit.text} | ({"date": hit.published} if hit.published else {})
        case _:
            return row | {"description": hit.text}


async def _add_documents(call: Call, body: SearchBody, rows: list[dict[str, Any]]) -> str:
    """Fetch the pages as a batch, add each document to its result, and return the id of the job. Pages that do not come
    in time are left out."""
    assert body.scrape_options is not None
    pages = {}
    for row in rows:
        try:
            href = public_url(call.project.settings, row["url"])
        except BadRequest:
            continue  # comes from outside
        pages[href] = requested_page(body.scrape_options, href, id=row["url"])
    if not pages:
        return ""
    if not await is_served(call.project):
        raise NoWorker(NO_WORKER)
    job = await begin_batch(call.asked, BatchRequest(requests=list(pages.values())))
    longest = call.project.settings.server.max_wait.total_seconds()
    seconds = min(body.timeout / 1000 if body.timeout is not None else SEARCH_SECONDS, longest)
    await call.pages.wait(job.id, seconds)
    job = await job_for(call.project, call.caller, job.id) or job
    outcomes = await call.pages.outcomes(job, await wanted_pages(call.project, job))
    documents = {one.id: document_of(one, one.id) for one in outcomes if one.data is not None}
    for row in rows:
        row |= documents.get(row["url"], {})
    return job.id
