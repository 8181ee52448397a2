"""The endpoints of Scrapyd. The project is the one of this server; its spiders are those of the catalogue.

How it fails: as Scrapyd does, with `{"status": "error", "message": ...}` and the status 200; what the door refuses (no
key, too many requests) keeps its status. What cannot be done here is refused with a sentence: code never comes over
HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from configparser import ConfigParser
from configparser import Error as BadConfig
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid1

import msgspec
from starlette.responses import Response

from ...model.job import Job
from ...model.task import MAX_PRIORITY
from ...project.access.keys import JOBS
from ...project.jobs.api_jobs import begin_crawl
from ...project.jobs.api_requests import CrawlRequest
from ...project.jobs.api_views import JobReport, job_report, job_reports
from ...project.jobs.jobs import cancel_job
from ...project.spiders.spiders import spiders_of
from ...server.answers import JSON, ApiError, encode
from ...server.endpoint import Call, Endpoint, Reply

VERSION = "current"  # there is one: the code of the project's folder
APART = "#"  # in the name of a job, before the id that its client knows
MOST_FIELDS = 200
MOST_JOBS = 100  # that listjobs shows
PENDING, RUNNING, FINISHED = "pending", "running", "finished"  # Scrapyd's words for the states of a job
NO_CODE = (
    "Code never comes over HTTP here. Put the project's folder on the machine (git pull, an image), and start the "
    "workers again: `gossamer up`."
)


class ScrapydForm(msgspec.Struct, frozen=True):
    """The fields of a form, in order; a name may come more than once."""

    fields: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in self.fields if key == name), default)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """The query of any of these endpoints; `_version` and what else clients add has no effect."""

    project: str = ""
    job: str = ""


def read_form(content: bytes, content_type: str) -> ScrapydForm:
    """Raises ApiError."""
    if content_type.partition(";")[0].strip().lower() == "multipart/form-data":
        return ScrapydForm()  # of addversion, which is refused
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except (ValueError, UnicodeError):
        raise ApiError(400, "form", "The body is not a form: project=...&spider=...") from None
    return ScrapydForm(tuple(pairs))


def error_response(error: ApiError) -> Response:
    """The error as Scrapyd's clients read it."""
    status = error.status if error.status in (401, 403, 413, 421, 429, 500, 501, 503) else 200
    return Response(encode({"status": "error", "message": str(error)}), status, error.headers, JSON)


def project_name(root: Path) -> str:
    """The project's name in the [deploy] section of scrapy.cfg, else that of its folder."""
    config = ConfigParser()
    try:
        config.read(root / "scrapy.cfg", encoding="utf-8")
    except (BadConfig, UnicodeError):
        return root.name
    sections = [one for one in config.sections() if one.partition(":")[0] == "deploy" and "project" in config[one]]
    return config.get(sections[0], "project", raw=True) if sections else root.name


# -- reading ---------------------------------------------------------------------------------------------------------


async def daemon_status(call: Call) -> Reply:
    counts: dict[str, Any] = dict.fromkeys((PENDING, RUNNING, FINISHED), 0)
    for job in await jobs_of(call):
        counts[state_of(job)] += 1
    return _reply(call, **counts)


async def list_projects(call: Call) -> Reply:
    return _reply(call, projects=[project_name(call.project.settings.root)])


async def list_versions(call: Call) -> Reply:
    _check_project(call, call.of(Query).project)
    return _reply(call, versions=[VERSION])


async def list_spiders(call: Call) -> Reply:
    _check_project(call, call.of(Query).project)
    found = spiders_of(call.project.settings)
    return _reply(call, spiders=[one.name for one in found.spiders])


async def list_jobs(call: Call) -> Reply:
    if wanted := call.of(Query).project:
        _check_project(call, wanted)
    name = project_name(call.project.settings.root)
    listed: dict[str, Any] = {PENDING: [], RUNNING: [], FINISHED: []}
    for job in await jobs_of(call):
        shown: dict[str, Any] = {"id": id_of(job.name, job.id), "project": name, "spider": job.spider}
        state = state_of(job)
        if state == PENDING:
            shown |= {"version": VERSION, "settings": {}, "args": {}}
        else:
            shown |= {"start_time": _time(job.started), **_addresses(name, job)}
            shown |= {"pid": None} if state == RUNNING else {"end_time": _time(job.finished or job.started)}
        listed[state].append(shown)
    return _reply(call, **listed)


def _addresses(project: str, job: JobReport) -> dict[str, str]:
    known = id_of(job.name, job.id)
    place = f"{project}/{job.spider}/{known}"
    return {"log_url": f"/logs/{place}.log", "items_url": f"/items/{place}.jl"}


async def status(call: Call) -> Reply:
    job = await _found(call, call.of(Query).job)
    return _reply(call, currstate=state_of(await job_report(call.project, job)))


# -- writing ---------------------------------------------------------------------------------------------------------


async def schedule(call: Call) -> Reply:
    form: ScrapydForm = call.body or ScrapydForm()
    _check_project(call, _demand(form, "project"))
    spider = _demand(form, "spider")
    if spider not in {one.name for one in spiders_of(call.project.settings).spiders}:
        raise ApiError(422, "spider", f"spider '{spider[:100]}' not found")
    taken = ("project", "spider", "setting", "jobid", "priority", "_version")
    arguments = {name: value for name, value in form.fields if name not in taken}
    terms = _terms(form.all("setting"))
    wanted = CrawlRequest(spider=spider, arguments=arguments or None, priority=_priority(form), **terms)
    apart = form.get("jobid") or uuid1().hex
    if not (len(apart) <= 60 and apart.isprintable() and APART not in apart):
        raise ApiError(422, "jobid", "A jobid has at most 60 printable characters, and no #.")
    job = await begin_crawl(call.project, call.caller, wanted, apart=f"{APART}{apart}")
    return _reply(call, target=job.id, jobid=apart)


async def cancel(call: Call) -> Reply:
    form: ScrapydForm = call.body or ScrapydForm()
    _check_project(call, _demand(form, "project"))
    job = await _found(call, _demand(form, "job"))
    before = state_of(await job_report(call.project, job))
    if before != FINISHED:
        await cancel_job(call.project, job.id)
    return _reply(call, target=job.id, prevstate=before if before != FINISHED else None)


async def no_code(call: Call) -> Reply:
    raise ApiError(501, "no_code", NO_CODE)


async def no_removal(call: Call) -> Reply:
    raise ApiError(501, "no_removal", "The project of this server is its folder, which is not removed over HTTP.")


# Settings of Scrapy that one job may have of its own, and the term of the job that each becomes.
_SETTINGS: dict[str, Callable[[str], dict[str, Any]]] = {
    "CLOSESPIDER_PAGECOUNT": lambda text: {"limit": max(int(text), 1)},
    "CONCURRENT_REQUESTS_PER_DOMAIN": lambda text: {"site_concurrency": max(int(text), 1)},
    "DEPTH_LIMIT": lambda text: {"depth": int(text)} if int(text) else {},
    "DOWNLOAD_DELAY": lambda text: {"rate": f"{60 / float(text):.6f}/m"} if float(text) else {},
    "JOBDIR": lambda text: {},
    "LOG_LEVEL": lambda text: {},
}


def _terms(given: list[str]) -> dict[str, Any]:
    """Raises ApiError for a setting that a job cannot have of its own."""
    terms: dict[str, Any] = {}
    for one in given:
        name, _, text = one.partition("=")
        if name not in _SETTINGS:
            known = ", ".join(sorted(_SETTINGS))
            raise ApiError(422, "setting", f"The setting {name[:60]} cannot be set for one job here; {known} can.")
        try:
            terms |= _SETTINGS[name](text.strip())
        except (ValueError, ZeroDivisionError):
            raise ApiError(422, "setting", f"The setting {name} = {text[:60]!r} is not a number.") from None
    return terms


def _priority(form: ScrapydForm) -> int | None:
    try:
        return max(-MAX_PRIORITY, min(MAX_PRIORITY, int(float(form.get("priority"))))) if form.get("priority") else None
    except (ValueError, OverflowError):
        raise ApiError(422, "priority", "The priority is not a number.") from None


def _demand(form: ScrapydForm, name: str) -> str:
    if not (value := form.get(name)):
        raise ApiError(422, "missing", f"'{name}' parameter is required")
    return value


def _check_project(call: Call, name: str) -> None:
    own = project_name(call.project.settings.root)
    if name not in (own, "default"):
        raise ApiError(422, "project", f"project '{name[:100]}' not found; this server has {own}")


async def jobs_of(call: Call) -> list[JobReport]:
    found = await job_reports(call.project, call.caller, limit=MOST_JOBS)
    return found.jobs


async def _found(call: Call, wanted: str) -> Job:
    """The job with the id that its client knows, or with ours. Raises ApiError."""
    for report in await jobs_of(call):
        if wanted in (report.id, id_of(report.name, report.id)):
            job = await call.project.state.jobs.job(report.id)
            if job is not None and call.caller.may_change(job):
                return job
    raise ApiError(422, "job", f"job '{wanted[:100]}' not found among the last {MOST_JOBS}")


def state_of(job: JobReport) -> str:
    return PENDING if job.status == "queued" else RUNNING if job.status in ("running", "paused") else FINISHED


def id_of(name: str, id: str) -> str:
    return name.rpartition(APART)[2] if APART in name else id


def _time(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _reply(call: Call, target: str = "", **values: Any) -> Reply:
    return Reply(value={"node_name": call.project.settings.root.name, "status": "ok", **values}, target=target)


def _endpoint(method: str, name: str, summary: str, handler: Callable[[Call], Awaitable[Reply]]) -> Endpoint:
    return Endpoint(
        method,
        f"/{name}.json",
        JOBS,
        summary,
        handler,
        aliases=(f"//{name}.json",),  # scrapyd-client asks so if its `url` ends with a slash, as it usually does
        query=Query,
        reads=read_form if method == "POST" else None,
        tells=error_response,
        basic=True,
    )


ENDPOINTS: tuple[Endpoint, ...] = (
    _endpoint("GET", "daemonstatus", "How many jobs wait, run, and are over", daemon_status),
    _endpoint("GET", "listprojects", "The project", list_projects),
    _endpoint("GET", "listversions", "The version of its code", list_versions),
    _endpoint("GET", "listspiders", "Its spiders", list_spiders),
    _endpoint("GET", "listjobs", "The newest jobs", list_jobs),
    _endpoint("GET", "status", "The state of a job", status),
    _endpoint("POST", "schedule", "Run a spider", schedule),
    _endpoint("POST", "cancel", "End a job", cancel),
    _endpoint("POST", "addversion", "Refused", no_code),
    _endpoint("POST", "delversion", "Refused", no_removal),
    _endpoint("POST", "delproject", "Refused", no_removal),
)
