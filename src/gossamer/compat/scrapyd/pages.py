"""Scrapyd's own pages, for programs that read them (ScrapydWeb): home, jobs, the folders of logs and items, one job's
log and its items. They are there for requests with basic authentication only; in a browser `/` is the dashboard.

A log is made when it is asked for, in the form of Scrapy's: what the project knows of the job, the newest failures, and
its stats at the end.
How it fails: 404 for a project, spider or job that is not there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pprint import pformat
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from ...project.access.keys import JOBS
from ...project.jobs.api_views import JobReport, job_report, record_lines
from ...project.records.records import RecordFilter, query_of
from ...project.sites.api_sites import job_errors
from ...server.answers import ApiError
from ...server.endpoint import Call, Endpoint, Handler
from ...server.record_routes import LINES, as_lines, streamed
from .routes import FINISHED, PENDING, RUNNING, id_of, jobs_of, project_name, state_of

_HEADERS = {"content-security-policy": "default-src 'none'", "x-content-type-options": "nosniff"}
_MOMENT = "%Y-%m-%d %H:%M:%S"
_COLUMNS = ("Project", "Spider", "Job", "PID", "Start", "Runtime", "Finish", "Log", "Items")
_LOG, _ITEMS = ".log", ".jl"
_NO_PID = "-"


class BasicRoute(Route):
    """A route for requests with basic authentication; others go on to the next one."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        scheme = Headers(scope=scope).get("authorization", "").partition(" ")[0]
        return super().matches(scope) if scheme.lower() == "basic" else (Match.NONE, {})


async def home(call: Call) -> Response:
    name = escape(project_name(call.project.settings.root))
    links = "".join(f'<li><a href="/{one}">{one.strip("/").title()}</a></li>' for one in ("jobs", "items/", "logs/"))
    return _html(f"<h1>Scrapyd</h1><p>Available projects: <b>{name}</b></p><ul>{links}</ul>")


async def jobs(call: Call) -> Response:
    project, found = project_name(call.project.settings.root), await jobs_of(call)
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    parts = [f"<h1>Jobs</h1><table border='1'><thead><tr>{head}</tr></thead>"]
    for state in (PENDING, RUNNING, FINISHED):
        rows = [_row(call, job, project, state) for job in found if state_of(job) == state]
        title = f"<tr><th colspan='{len(_COLUMNS)}'>{state.title()}</th></tr>"
        parts.append(f"<tbody>{title}{''.join(rows)}</tbody>")
    return _html(f"{''.join(parts)}</table>")


def _row(call: Call, job: JobReport, project: str, state: str) -> str:
    known = id_of(job.name, job.id)
    cells = [escape(project), escape(job.spider), escape(known)]
    if state != PENDING:
        finish = _moment(job.finished or job.started) if state == FINISHED else ""
        cells += [_NO_PID if state == RUNNING else "", _moment(job.started), _span(job.seconds), finish]
        for folder, title, ending in (("logs", "Log", _LOG), ("items", "Items", _ITEMS)):
            address = escape(quote(f"/{folder}/{project}/{job.spider}/{known}{ending}"), quote=True)
            cells.append(f"<a href='{address}'>{title}</a>")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


async def folder(call: Call) -> Response:
    """`/logs/`, `/logs/PROJECT/`, `/logs/PROJECT/SPIDER/`, and the same of items."""
    kind, _, rest = call.request.url.path.strip("/").partition("/")
    place = [part for part in rest.split("/") if part]
    project, found = project_name(call.project.settings.root), await jobs_of(call)
    if place[:1] not in ([], [project]) or len(place) > 2:
        raise ApiError(404, "not_found", "There is no such folder.")
    names: list[str]
    if not place:
        names = [f"{project}/"]
    elif len(place) == 1:
        names = list(dict.fromkeys(f"{job.spider}/" for job in found))
    else:
        ending = _LOG if kind == "logs" else _ITEMS
        known = [job for job in found if job.spider == place[1] and state_of(job) != PENDING]
        names = [f"{id_of(job.name, job.id)}{ending}" for job in known]
    rows = "".join(_entry(name, number) for number, name in enumerate(names))
    title = f"Directory listing for {escape('/'.join(['', kind, *place, '']))}"
    return _html(f"<title>{title}</title><h1>{title}</h1><table>\n{rows}</table>")


def _entry(name: str, number: int) -> str:
    link = f'<a href="{escape(quote(name), quote=True)}">{escape(name)}</a>'
    cells = (link, "", "[Directory]" if name.endswith("/") else "[text/plain]", "")
    return (
        f'<tr class="{("odd", "even")[number % 2]}">\n' + "".join(f"    <td>{one}</td>\n" for one in cells) + "</tr>\n"
    )


async def log(call: Call) -> Response:
    job = await _job(call, _LOG)
    known = await call.project.state.jobs.job(job.id)
    letters = (await job_errors(call.project, known)).letters if known is not None else []
    began = _moment(job.started)
    lines = [
        f"{began} [scrapy.utils.log] INFO: Gossamer (bot: {job.spider}), job {job.id}. `gossamer job show {job.id}`",
        f"{began} [scrapy.core.engine] INFO: Spider opened",
    ]
    for one in letters:
        at = datetime.fromtimestamp(one.died_at, UTC).strftime(_MOMENT)
        words = one.message.partition("\n")[0]
        lines.append(f"{at} [scrapy.core.scraper] ERROR: {one.reason} <{one.url}>: {words}")
    ended = _moment(job.finished) if job.finished else _moment(datetime.now(UTC).isoformat())
    pages, items = job.done + job.unchanged, _scraped(job)
    seconds = max(job.seconds, 1e-6)
    lines.append(
        f"{ended} [scrapy.extensions.logstats] INFO: Crawled {pages} pages (at {pages / seconds * 60:.0f} pages/min), "
        f"scraped {items} items (at {items / seconds * 60:.0f} items/min)"
    )
    if job.finished:
        why = "shutdown" if job.status == "cancelled" else (known.stopped if known is not None else "") or "finished"
        lines += [
            f"{ended} [scrapy.core.engine] INFO: Closing spider ({why})",
            f"{ended} [scrapy.statscollectors] INFO: Dumping Scrapy stats:",
            pformat(_stats(job, pages, items, why)),
            f"{ended} [scrapy.core.engine] INFO: Spider closed ({why})",
        ]
    return Response("\n".join(lines) + "\n", media_type="text/plain; charset=utf-8", headers=_HEADERS)


def _scraped(job: JobReport) -> int:
    """Items as Scrapy counts them: those that no pipeline dropped, and that were no fault."""
    one = job.items
    return one.yielded - one.dropped - one.faulty - one.lost - one.held if one is not None else 0


def _stats(job: JobReport, pages: int, items: int, why: str) -> dict[str, Any]:
    times = {"start_time": datetime.fromisoformat(job.started).replace(tzinfo=None)}
    if job.finished:
        times["finish_time"] = datetime.fromisoformat(job.finished).replace(tzinfo=None)
    counted = {
        "downloader/request_count": pages + job.dead + job.retries,
        "downloader/response_count": pages,
        "item_scraped_count": items,
        "log_count/ERROR": job.dead,
        "retry/count": job.retries,
        "finish_reason": why,
        "elapsed_time_seconds": job.seconds,
    }
    return {**job.stats, **counted, **times}


async def items(call: Call) -> Response:
    job = await _job(call, _ITEMS)
    query = await query_of(call.project, RecordFilter(job=job.id))
    return await streamed(call.project, as_lines(record_lines(call.project, call.caller, query)), LINES)


async def _job(call: Call, ending: str) -> JobReport:
    """The job that an address names. Raises ApiError."""
    project, spider, name = (call.path[part] for part in ("project", "spider", "file"))
    if project == project_name(call.project.settings.root) and name.endswith(ending):
        for job in await jobs_of(call):
            if job.spider == spider and name.removesuffix(ending) in (job.id, id_of(job.name, job.id)):
                known = await call.project.state.jobs.job(job.id)
                return await job_report(call.project, known) if known is not None else job
    raise ApiError(404, "not_found", "There is no such file.")


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime(_MOMENT)


def _span(seconds: float) -> str:
    """`1:02:03`, as Scrapyd writes it."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _html(body: str) -> Response:
    return Response(f"<!doctype html><html><body>{body}</body></html>", media_type="text/html", headers=_HEADERS)


def _page(path: str, summary: str, handler: Handler, *aliases: str) -> Endpoint:
    return Endpoint(
        method="GET", path=path, aliases=aliases, scope=JOBS, summary=summary, handler=handler, media="text/html",
        basic=True,
    )  # fmt: skip


PAGES: tuple[Endpoint, ...] = (
    _page("/", "Scrapyd's home page", home),
    _page("/jobs", "Jobs, as a table", jobs),
    *(
        _page(f"/{kind}/", f"The folder of {kind}", folder, f"/{kind}/{{project}}/", f"/{kind}/{{project}}/{{spider}}/")
        for kind in ("logs", "items")
    ),
    _page("/logs/{project}/{spider}/{file:path}", "The log of a job", log),
    _page("/items/{project}/{spider}/{file:path}", "The records of a job, as JSON Lines", items),
)
