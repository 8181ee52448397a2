"""Sites: the queue by site and why it waits; one site; slow it down, let it rest, resume it: that needs an admin key,
because it applies to the jobs of all keys."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..project.access.keys import ADMIN, JOBS
from ..project.overrides import OverrideView
from ..project.sites.sites import QueuePage, SiteView, queue_by_site, rest_site, resume_site, site_view, slow_site
from .endpoint import Call, Endpoint


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
