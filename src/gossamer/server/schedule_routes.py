"""Schedules: listed, shown, written, paused, resumed, run now, removed. Writes are for admins."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

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
from .endpoint import Call, Endpoint


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ticks: Annotated[int, Meta(ge=0, le=1000)] = 0  # how many of the next runs to list, over all schedules


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    replace: bool = False  # also end the current run


async def run(call: Call) -> ScheduleRun:
    replace = call.of(RunRequest).replace if call.body is not None else False
    return await run_schedule(call.project, call.path["name"], replace=replace)


ENDPOINTS = (
    Endpoint("GET", "/api/v1/schedules", JOBS, "All schedules, and the next runs",
             lambda call: list_schedules(call.project, ticks=call.of(SchedulesQuery).ticks),
             query=SchedulesQuery, gives=ScheduleList),
    Endpoint("POST", "/api/v1/schedules", ADMIN, "Add a schedule, or replace one",
             lambda call: write_schedule(call.project, call.of(ScheduleRequest)),
             body=ScheduleRequest, gives=ScheduleAdded, status=201, names="name",
             example={"name": "nightly", "spider": "https://shop.example/", "cron": "0 3 * * *", "limit": 1000}),
    Endpoint("GET", "/api/v1/schedules/{name}", JOBS, "One schedule with its last runs and its next ticks",
             lambda call: show_schedule(call.project, call.path["name"]), gives=ScheduleDetail),
    Endpoint("DELETE", "/api/v1/schedules/{name}", ADMIN, "Remove a schedule; its current run goes on",
             lambda call: remove_schedule(call.project, call.path["name"]), gives=ScheduleChange),
    Endpoint("POST", "/api/v1/schedules/{name}/pause", ADMIN, "Pause a schedule: no more runs start",
             lambda call: pause_schedule(call.project, call.path["name"]), gives=ScheduleChange),
    Endpoint("POST", "/api/v1/schedules/{name}/resume", ADMIN, "Begin its runs again",
             lambda call: resume_schedule(call.project, call.path["name"]), gives=ScheduleChange),
    Endpoint("POST", "/api/v1/schedules/{name}/run", ADMIN, "Begin a run now",
             run, body=RunRequest, body_optional=True, gives=ScheduleRun, status=202, names="job",
             example={"replace": False}),
)  # fmt: skip
