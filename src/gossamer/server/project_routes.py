"""The project as a whole: its sites, workers, spiders, routes, proxies, quality, settings and figures. What applies to
the jobs of all keys needs an admin key."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ..model.figures import Figures
from ..project.access.keys import ADMIN, JOBS, METRICS, RECORDS
from ..project.jobs.api_views import CatalogueEntry, catalogue, seen_quality
from ..project.open import Project
from ..project.overrides import OverrideView
from ..project.records.figures import History, history, totals
from ..project.records.metrics import CONTENT_TYPE, exposition
from ..project.records.records import QualityScore
from ..project.settings_view import SettingView, setting_lines, settings_view
from ..project.sites.proxies import PoolView, proxy_pools
from ..project.sites.routes import RouteReport, route_report
from ..project.sites.sites import QueuePage, SiteView, queue_by_site, rest_site, resume_site, site_view, slow_site
from ..project.workers.scaling import Scaling, scaling
from ..project.workers.workers import WorkerView, drain_worker, forget_worker, list_workers
from .endpoint import Call, Endpoint

HOUR = 3600.0
KEPT_FOR = 10  # metrics are reused for this many times as long as it took to read them ...
LONGEST_KEPT = 5.0  # ... and for this many seconds at most


class RoutesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    site: Annotated[str, Meta(max_length=253)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ProxiesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pool: str | None = None


class QualityQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spider: str | None = None
    days: Annotated[int, Meta(ge=1, le=366)] = 7


class SettingsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str | None = None  # a setting, or a group of them


class FiguresQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times are seconds since the epoch; `since` defaults to an hour ago."""

    since: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    until: Annotated[float, Meta(ge=0, le=1e11)] | None = None
    step: Annotated[int, Meta(ge=60, le=86_400)] | None = None  # seconds
    domain: Annotated[str, Meta(min_length=1, max_length=253)] | None = None  # only this site


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=255)]  # as in the list of workers; host/pid suffices


async def scores(call: Call) -> list[QualityScore]:
    query = call.of(QualityQuery)
    return await seen_quality(call.project, call.caller, query.spider, days=query.days)


async def figures(call: Call) -> History:
    query = call.of(FiguresQuery)
    since = call.project.clock.now() - HOUR if query.since is None else query.since
    return await history(call.project, since=since, until=query.until, step=query.step, domain=query.domain)


async def routes(call: Call) -> RouteReport:
    query = call.of(RoutesQuery)
    return await route_report(call.project, query.site, limit=query.limit)


async def settings(call: Call) -> dict[str, SettingView]:
    return settings_view(setting_lines(call.project.settings, call.of(SettingsQuery).key))


class SharedMetrics:
    """Concurrent requests share one reading of the figures, and so do requests soon after it: however many clients
    scrape, it costs a tenth of the server's time at most."""

    def __init__(self) -> None:
        self._shared: tuple[Project, asyncio.Task[bytes]] | None = None
        self._good_until = 0.0

    async def answer(self, call: Call) -> Response:
        shared, now = self._shared, call.project.clock.monotonic()
        if shared is None or shared[0] is not call.project or (shared[1].done() and now >= self._good_until):
            shared = self._shared = call.project, asyncio.create_task(self._read(call.project), name="metrics")
        text = await asyncio.shield(shared[1])  # a client that disconnects does not cancel it for the others
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _read(self, project: Project) -> bytes:
        began = project.clock.monotonic()
        self._good_until = began
        text = await exposition(project)
        ended = project.clock.monotonic()
        self._good_until = ended + min(LONGEST_KEPT, KEPT_FOR * (ended - began))
        return text


WORKER = {"name": "host/4711"}


# -- sites -------------------------------------------------------------------------------------------------------------


class SitesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: str | None = None
    cause: str | None = None
    search: Annotated[str, Meta(max_length=253)] = ""
    sort: str = "open"
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    skip: Annotated[int, Meta(ge=0, le=10_000_000)] = 0


class SlowRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rate: Annotated[str, Meta(max_length=50)]  # at this rate: 6/m


class RestRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    duration: Annotated[str, Meta(max_length=50)] = "1h"


class SiteResumed(msgspec.Struct, frozen=True, kw_only=True):
    """`changed` is False if nothing was set by hand for its pace, and none was learned."""

    site: str
    changed: bool


async def list_sites(call: Call) -> QueuePage:
    asked = msgspec.structs.asdict(call.of(SitesQuery))
    return await queue_by_site(call.project, **asked, sees=call.caller.sees)


async def rest(call: Call) -> OverrideView:
    wanted = call.of(RestRequest) if call.body is not None else RestRequest()
    return await rest_site(call.project, call.caller, call.path["site"], wanted.duration)


async def resume(call: Call) -> SiteResumed:
    site = call.path["site"]
    return SiteResumed(site=site, changed=await resume_site(call.project, call.caller, site))


ENDPOINTS = (
    Endpoint("GET", "/api/v1/workers", JOBS, "The processes that work on the project, on all machines",
             lambda call: list_workers(call.project), gives=list[WorkerView]),
    Endpoint("POST", "/api/v1/workers/drain", ADMIN, "Drain a worker: it finishes its pages and exits",
             lambda call: drain_worker(call.project, call.of(DrainRequest).name),
             body=DrainRequest, gives=WorkerView, status=202, names="name", example=WORKER),
    Endpoint("POST", "/api/v1/workers/restart", ADMIN,
             "Restart a worker: it finishes its pages, and another one takes its place",
             lambda call: drain_worker(call.project, call.of(DrainRequest).name, restart=True),
             body=DrainRequest, gives=WorkerView, status=202, names="name", example=WORKER),
    Endpoint("POST", "/api/v1/workers/forget", ADMIN, "Take a worker that is gone for good off the list",
             lambda call: forget_worker(call.project, call.of(DrainRequest).name),
             body=DrainRequest, gives=WorkerView, names="name", example=WORKER),
    Endpoint("GET", "/api/v1/spiders", JOBS, "The spiders and recipes of the project",
             lambda call: catalogue(call.project), or_scope=RECORDS, gives=list[CatalogueEntry]),
    Endpoint("GET", "/api/v1/routes", ADMIN, "The routes learned for each site, and what is left of the budgets",
             routes, query=RoutesQuery, gives=RouteReport),
    Endpoint("GET", "/api/v1/proxies", ADMIN, "The proxy pools and the health of their proxies",
             lambda call: proxy_pools(call.project, call.of(ProxiesQuery).pool),
             query=ProxiesQuery, gives=list[PoolView]),
    Endpoint("GET", "/api/v1/quality", RECORDS, "Quality scores by day, spider, type and field",
             scores, query=QualityQuery, gives=list[QualityScore]),
    Endpoint("GET", "/api/v1/settings", ADMIN, "The settings and where each came from; secrets are masked",
             settings, query=SettingsQuery, gives=dict[str, SettingView]),
    Endpoint("GET", "/api/v1/scaling", METRICS,
             "The pages that can be fetched now, and the number of workers for them",
             lambda call: scaling(call.project), gives=Scaling),
    Endpoint("GET", "/api/v1/figures", METRICS,
             "Figures over time, in steps: pages by outcome, speed, success, latency, errors",
             figures, query=FiguresQuery, gives=History),
    Endpoint("GET", "/api/v1/figures/totals", METRICS, "All counters since the beginning",
             lambda call: totals(call.project), gives=Figures),
    Endpoint("GET", "/metrics", METRICS, "Figures for Prometheus, from the shared state",
             SharedMetrics().answer, media="text/plain"),
    Endpoint("GET", "/api/v1/sites", JOBS, "Sites with open pages of running jobs, and why they wait",
             list_sites, query=SitesQuery, gives=QueuePage),
    Endpoint("GET", "/api/v1/sites/{site}", ADMIN, "Everything known about a site",
             lambda call: site_view(call.project, call.path["site"]), gives=SiteView),
    Endpoint("POST", "/api/v1/sites/{site}/slow", ADMIN, "Visit a site at a rate, on all workers",
             lambda call: slow_site(call.project, call.caller, call.path["site"], call.of(SlowRequest).rate),
             body=SlowRequest, gives=OverrideView, names="key", example={"rate": "6/m"}),
    Endpoint("POST", "/api/v1/sites/{site}/rest", ADMIN, "Send no requests to a site for some time",
             rest, body=RestRequest, body_optional=True, gives=OverrideView, names="key",
             example={"duration": "2h"}),
    Endpoint("POST", "/api/v1/sites/{site}/resume", ADMIN, "Take back what was set by hand for a site's pace",
             resume, gives=SiteResumed),
)  # fmt: skip
