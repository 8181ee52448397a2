"""Sites: the queue by site and why it waits; one site; slow it down, let it rest, resume it: that needs an admin key,
because it applies to the jobs of all keys."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..project.access.keys import ADMIN, JOBS
from ..project.overrides import OverrideView
from ..project.sites.sites import (
    QueuePage,
    SiteView,
    queue_by_site,
    rest_site,
    resume_site,
    site_view,
    slow_site,
)
from .endpoint import Call, Endpoint, Reply


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


async def listed(call: Call) -> Reply:
    query = call.of(SitesQuery)
    found = await queue_by_site(
        call.project,
        job=query.job,
        cause=query.cause,
        search=query.search,
        sort=query.sort,
        limit=query.limit,
        skip=query.skip,
        sees=call.caller.sees,
    )
    return Reply(value=found)


async def show(call: Call) -> Reply:
    return Reply(value=await site_view(call.project, call.path["site"]))


async def slow(call: Call) -> Reply:
    one = await slow_site(call.project, call.caller, call.path["site"], call.of(SlowRequest).rate)
    return Reply(value=one, target=one.key)


async def rest(call: Call) -> Reply:
    wanted = call.of(RestRequest) if call.body is not None else RestRequest()
    one = await rest_site(call.project, call.caller, call.path["site"], wanted.duration)
    return Reply(value=one, target=one.key)


async def resume(call: Call) -> Reply:
    site = call.path["site"]
    return Reply(value=SiteResumed(site=site, changed=await resume_site(call.project, call.caller, site)), target=site)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/sites",
        scope=JOBS,
        summary="Sites with open pages of running jobs, and why they wait",
        handler=listed,
        query=SitesQuery,
        gives=QueuePage,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/sites/{site}",
        scope=ADMIN,
        summary="Everything known about a site",
        handler=show,
        gives=SiteView,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/sites/{site}/slow",
        scope=ADMIN,
        summary="Visit a site at a rate, on all workers",
        handler=slow,
        body=SlowRequest,
        gives=OverrideView,
        example={"rate": "6/m"},
    ),
    Endpoint(
        method="POST",
        path="/api/v1/sites/{site}/rest",
        scope=ADMIN,
        summary="Send no requests to a site for some time",
        handler=rest,
        body=RestRequest,
        body_optional=True,
        gives=OverrideView,
        example={"duration": "2h"},
    ),
    Endpoint(
        method="POST",
        path="/api/v1/sites/{site}/resume",
        scope=ADMIN,
        summary="Take back what was set by hand for a site's pace",
        handler=resume,
        gives=SiteResumed,
    ),
)
