"""Responses for Firecrawl's clients: documents, the status of a job, and what has changed on a page (`changeTracking`:
status, diff as text and as chunks)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Any

from starlette.requests import HTTPConnection

from ...clock import iso_time
from ...model.job import Job
from ...project.jobs.api_jobs import is_ended
from ...project.jobs.api_views import JobReport, job_report
from ...project.open import Project
from ...project.pages.results import PageOutcome, PageReader
from ...project.sites.api_sites import fetched_pages
from ...settings import Settings
from .bodies import CHANGE_TRACKING, FORMATS
from .conversion import ABOUT

PAGE = 100  # documents of one answer
PAGE_BYTES = 10 * 1024 * 1024
_NAMES = {ours: theirs for theirs, ours in FORMATS.items()}
_STATUSES = {"completed": "completed", "failed": "failed", "cancelled": "cancelled"}  # all others:
SCRAPING = "scraping"
_OPEN_GRAPH = {
    "og:title": "ogTitle",
    "og:description": "ogDescription",
    "og:url": "ogUrl",
    "og:image": "ogImage",
    "og:audio": "ogAudio",
    "og:determiner": "ogDeterminer",
    "og:locale": "ogLocale",
    "og:site_name": "ogSiteName",
    "og:video": "ogVideo",
    "article:published_time": "publishedTime",
    "article:modified_time": "modifiedTime",
    "article:section": "articleSection",
}
_HOST = re.compile(r"[\w.-]{1,253}(?::\d{1,5})?", re.ASCII)
_MOST_TEXT = 10_000  # characters of a value in the metadata


def document_of(outcome: PageOutcome, url: str = "") -> dict[str, Any]:
    """A fetched page as a document. `url` is the requested address, if known."""
    data = outcome.data or {}
    document: dict[str, Any] = {
        _NAMES[name]: value for name, value in data.items() if name not in ABOUT and value is not None
    }
    if document.get("screenshot"):
        document["screenshot"] = f"data:image/png;base64,{document['screenshot']}"
    if changes := document.get(CHANGE_TRACKING):
        document[CHANGE_TRACKING] = change_tracking(changes)
    missing = [_NAMES[name] for name, value in data.items() if name not in ABOUT and value is None]
    if missing:
        document["warning"] = f"The page has no {', '.join(missing)}: it is {outcome.meta.content_type or 'no HTML'}."
    document["metadata"] = _metadata(outcome, data, url or outcome.id or outcome.url)
    return document


def warned(document: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """The document, with these warnings beside its own."""
    told = [*filter(None, [document.get("warning")]), *warnings]
    return document | ({"warning": " ".join(told)} if told else {})


def _metadata(outcome: PageOutcome, data: dict[str, Any], source: str) -> dict[str, Any]:
    about, graph = data.get("metadata") or {}, data.get("opengraph") or {}
    found: dict[str, Any] = {name: _first(about.get(name)) for name in ("description", "language", "favicon")}
    found["title"] = _first(about.get("page_title"))
    found["keywords"] = ", ".join(about.get("keywords") or ()) or None
    found |= {theirs: _first(graph.get(ours)) for ours, theirs in _OPEN_GRAPH.items()}
    found = {name: value for name, value in found.items() if value}
    if others := graph.get("og:locale:alternate"):
        found["ogLocaleAlternate"] = [str(one) for one in (others if isinstance(others, list) else [others])]
    cached = outcome.meta.from_cache
    found |= {
        "sourceURL": source,
        "url": outcome.url,
        "statusCode": outcome.status_code or 0,
        "creditsUsed": 0 if cached else 1,
        "proxyUsed": "basic",
        "cacheState": "hit" if cached else "miss",
    }
    if cached and outcome.meta.fetched_at:
        found["cachedAt"] = outcome.meta.fetched_at
    if outcome.meta.content_type:
        found["contentType"] = outcome.meta.content_type
    if outcome.meta.job_id:
        found["scrapeId"] = outcome.meta.job_id
    if outcome.error is not None:
        found["error"] = outcome.error.message
    return found


def _first(value: Any) -> str | None:
    value = value[0] if isinstance(value, list) and value else value
    return str(value)[:_MOST_TEXT] if isinstance(value, str | int | float) else None


async def job_body(
    project: Project, pages: PageReader, job: Job, address: str, *, skip: int = 0, limit: int = PAGE
) -> dict[str, Any]:
    """The status of the job, with some of its documents. `address` is the job's own, for the link to the next ones."""
    report = await job_report(project, job)
    found = await fetched_pages(project, pages, job, skip=skip, limit=limit, most=PAGE_BYTES)
    body: dict[str, Any] = {
        "success": True,
        **standing(report),
        "expiresAt": _expires(project, job),
        "data": [document_of(one) for one in found.documents],
    }
    if found.next is not None and found.documents:  # clients would follow a `next` after an empty page for ever
        body["next"] = f"{address}?skip={found.next}" + (f"&limit={limit}" if limit != PAGE else "")
    if report.status == "failed" and report.error:
        body["error"] = report.error
    return body


def standing(report: JobReport) -> dict[str, Any]:
    had = report.done + report.unchanged
    return {
        "status": _STATUSES.get(report.status, SCRAPING),
        "completed": had,
        "total": had + report.dead + report.remaining,
        "creditsUsed": had,
    }


def _expires(project: Project, job: Job) -> str:
    ended = job.finished_at if is_ended(job) and job.finished_at is not None else project.clock.now()
    keep: timedelta = project.settings.server.keep_jobs
    return iso_time((datetime.fromtimestamp(ended, UTC) + keep).timestamp())


def base_of(connection: HTTPConnection, settings: Settings) -> str:
    """The scheme and host under which the client knows this server: server.public_url, else what a trusted proxy says,
    else the Host header, which the door has checked."""
    if settings.server.public_url:
        return settings.server.public_url.rstrip("/")
    scheme, host = connection.url.scheme.replace("ws", "http"), connection.headers.get("host", "")
    if _is_trusted(connection, settings):
        scheme = connection.headers.get("x-forwarded-proto", scheme).partition(",")[0].strip()
        named = connection.headers.get("x-forwarded-host", "").partition(",")[0].strip()
        host = named if _HOST.fullmatch(named) else host
    return f"{'https' if scheme == 'https' else 'http'}://{host}"


def _is_trusted(connection: HTTPConnection, settings: Settings) -> bool:
    peer = connection.client.host if connection.client is not None else ""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    return any(address in ip_network(one, strict=False) for one in settings.server.trusted_proxies)


# -- changes since the last scrape -------------------------------------------------------------------------------------


_CHUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_KINDS = {"+": "add", "-": "del"}  # all others: normal


def change_tracking(changes: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "previousScrapeAt": changes["previous_at"],
        "changeStatus": changes["status"],
        "visibility": "visible",
    }
    if changes.get("diff"):
        found["diff"] = {"text": changes["diff"], "json": {"files": [_file(changes["diff"])]}}
    if changes.get("fields") is not None:
        found["json"] = changes["fields"]
    return found


def _file(diff: str) -> dict[str, Any]:
    """A unified diff as its chunks and lines, as the parsers of diffs that clients know give it."""
    chunks: list[dict[str, Any]] = []
    old = new = 0
    for line in diff.splitlines()[2:]:  # after the names of the two sides
        if (head := _CHUNK.match(line)) is not None:
            old, new = int(head[1]), int(head[3])
            chunks.append(
                {
                    "content": line,
                    "changes": [],
                    "oldStart": old,
                    "oldLines": int(head[2] or 1),
                    "newStart": new,
                    "newLines": int(head[4] or 1),
                }
            )
        elif chunks:
            kind = _KINDS.get(line[:1], "normal")
            where = {"ln1": old, "ln2": new} if kind == "normal" else {"ln": new if kind == "add" else old}
            chunks[-1]["changes"].append({"type": kind, kind: True, **where, "content": line})
            old, new = old + (kind != "add"), new + (kind != "del")
    lines = [change["type"] for chunk in chunks for change in chunk["changes"]]
    return {
        "from": "previous",
        "to": "current",
        "additions": lines.count("add"),
        "deletions": lines.count("del"),
        "chunks": chunks,
    }
