"""The requests of the client (client.py): for each its address, what it carries, and the type of its response."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from .model.figures import Figures
from .project.dead_letters.story import Story
from .project.jobs.api_views import JobReport, JobReports, RecordPage
from .project.jobs.jobs import JobChange
from .project.pages.results import PageOutcome
from .project.records.figures import History

T = TypeVar("T")


class StartedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was started. `note` says what holds it up, if anything does."""

    job_id: str
    status: str
    note: str | None = None


class JobResult(JobReport, frozen=True, kw_only=True):
    """A job with the results of its pages."""

    result: PageOutcome | None = None
    results: list[PageOutcome] | None = None
    next: int | None = None


class ResultPage(msgspec.Struct, frozen=True, kw_only=True):
    results: list[PageOutcome]
    next: int | None = None


class Ask(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and the type of its response."""

    method: str
    path: str
    gives: type[T]
    body: dict[str, Any] | None = None  # JSON
    params: dict[str, Any] = {}  # of the URL


# -- requests ------------------------------------------------------------------------------------------------------


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def scrape(url: str, options: dict[str, Any]) -> Ask[PageOutcome]:
    return Ask(method="POST", path="/api/v1/scrape", gives=PageOutcome, body={"url": url, **_given(options)})


def begin(path: str, **options: Any) -> Ask[StartedJob]:
    return Ask(method="POST", path=f"/api/v1{path}", gives=StartedJob, body=_given(options))


def job(id: str) -> Ask[JobResult]:
    return Ask(method="GET", path=f"/api/v1/jobs/{_part(id)}", gives=JobResult)


def results(id: str, after: int) -> Ask[ResultPage]:
    return Ask(
        method="GET", path=f"/api/v1/jobs/{_part(id)}/results", gives=ResultPage, params={"after": after, "limit": 50}
    )


def jobs(limit: int, after: str | None, status: str | None) -> Ask[JobReports]:
    return Ask(
        method="GET",
        path="/api/v1/jobs",
        gives=JobReports,
        params=_given({"limit": limit, "after": after, "status": status}),
    )


def change(method: str, id: str, verb: str = "") -> Ask[JobChange]:
    return Ask(method=method, path=f"/api/v1/jobs/{_part(id)}{verb}", gives=JobChange)


def records(after: str | None, filters: dict[str, Any]) -> Ask[RecordPage]:
    return Ask(
        method="GET",
        path="/api/v1/records",
        gives=RecordPage,
        params=_given({"after": after, "limit": 1000, **filters}),
    )


def figures(since: float | None, until: float | None, step: int | None, domain: str | None) -> Ask[History]:
    wanted = {"since": since, "until": until, "step": step, "domain": domain}
    return Ask(method="GET", path="/api/v1/figures", gives=History, params=_given(wanted))


TOTALS = Ask(method="GET", path="/api/v1/figures/totals", gives=Figures)


def why(url: str, method: str | None, body: str | None, json: Any, form: Mapping[str, str] | None) -> Ask[Story]:
    texts = {
        "url": url,
        "method": method,
        "body": body,
        "json": msgspec.json.encode(json).decode() if json is not None else None,
        "form": urlencode(form) if form is not None else None,
    }
    return Ask(
        method="GET",
        path="/api/v1/why",
        gives=Story,
        params={name: text for name, text in texts.items() if text is not None},
    )


def _part(text: str) -> str:
    """One segment of a path, percent-encoded."""
    return quote(text, safe="")


class Addresses:
    """Every endpoint of a server by its name in /openapi.json, such as post_notes, and how to ask it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._known = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }

    def ask(self, name: str, fields: dict[str, Any]) -> Ask[Any]:
        if name not in self._known:
            near = get_close_matches(name, self._known, n=1)
            raise ValueError(f"The server has no endpoint {name!r}.{f' Did you mean {near[0]}?' if near else ''}")
        method, path, operation = self._known[name]
        places = {one["name"]: one["in"] for one in operation["parameters"]}
        for field in [field for field in fields if places.get(field) == "path"]:
            path = path.replace(f"{{{field}}}", _part(str(fields[field])))
        rest = {field: value for field, value in fields.items() if places.get(field) != "path"}
        in_body = "requestBody" in operation
        sent: dict[str, Any] = {"body": rest} if in_body else {"params": _given(rest)}
        return Ask(method=method, path=path, gives=Any, **sent)


DOCUMENT: Ask[Any] = Ask(method="GET", path="/openapi.json", gives=Any)  # any JSON
