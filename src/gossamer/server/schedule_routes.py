"""Schedules: listed, shown, written, paused, resumed, run now, removed. Writes are for admins."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..errors import Misconfigured
from ..project.access.keys import ADMIN, JOBS
from ..project.schedules.api_schedules import ScheduleRequest, write_schedule
from ..project.schedules.changes import (
    ScheduleAdded,
    ScheduleChange,
    ScheduleRun,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from ..project.schedules.schedules import ScheduleDetail, ScheduleList, list_schedules, show_schedule
from .answers import not_found
from .endpoint import Call, Endpoint, Reply


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ticks: Annotated[int, Meta(ge=0, le=1000)] = 0  # how many of the next runs to list, over all schedules


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    replace: bool = False  # also end the current run


async def listed(call: Call) -> Reply:
    return Reply(value=await list_schedules(call.project, ticks=call.of(SchedulesQuery).ticks))


async def show(call: Call) -> Reply:
    try:
        return Reply(value=await show_schedule(call.project, call.path["name"]))
    except Misconfigured as error:
        raise not_found("schedule of that name") from error


async def add(call: Call) -> Reply:
    wanted = call.of(ScheduleRequest)
    return Reply(value=await write_schedule(call.project, wanted), status=201, target=wanted.name)


async def pause(call: Call) -> Reply:
    return Reply(value=await pause_schedule(call.project, await _name(call)), target=call.path["name"])


async def resume(call: Call) -> Reply:
    return Reply(value=await resume_schedule(call.project, await _name(call)), target=call.path["name"])


async def run(call: Call) -> Reply:
    replace = call.of(RunRequest).replace if call.body is not None else False
    done = await run_schedule(call.project, await _name(call), replace=replace)
    return Reply(value=done, status=202, target=done.job)


async def remove(call: Call) -> Reply:
    return Reply(value=await remove_schedule(call.project, await _name(call)), target=call.path["name"])


async def _name(call: Call) -> str:
    """The schedule's name. Raises ApiError if there is no such schedule."""
    await show(call)
    return call.path["name"]


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/schedules",
        scope=JOBS,
        summary="All schedules, and the next runs",
        handler=listed,
        query=SchedulesQuery,
        gives=ScheduleList,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules",
        scope=ADMIN,
        summary="Add a schedule, or replace one",
        handler=add,
        body=ScheduleRequest,
        gives=ScheduleAdded,
        example={"name": "nightly", "spider": "https://shop.example/", "cron": "0 3 * * *", "limit": 1000},
    ),
    Endpoint(
        method="GET",
        path="/api/v1/schedules/{name}",
        scope=JOBS,
        summary="One schedule with its last runs and its next ticks",
        handler=show,
        gives=ScheduleDetail,
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/schedules/{name}",
        scope=ADMIN,
        summary="Remove a schedule; its current run goes on",
        handler=remove,
        gives=ScheduleChange,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules/{name}/pause",
        scope=ADMIN,
        summary="Pause a schedule: no more runs start",
        handler=pause,
        gives=ScheduleChange,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules/{name}/resume",
        scope=ADMIN,
        summary="Begin its runs again",
        handler=resume,
        gives=ScheduleChange,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/schedules/{name}/run",
        scope=ADMIN,
        summary="Begin a run now",
        handler=run,
        body=RunRequest,
        body_optional=True,
        gives=ScheduleRun,
        example={"replace": False},
    ),
)
