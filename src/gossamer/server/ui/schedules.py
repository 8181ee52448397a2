"""Views of schedules: the list with the next day's runs; one, which can be paused, resumed, run, edited, removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured
from ...project.access.keys import ADMIN, JOBS
from ...project.row_page import RowFilters, row_page
from ...project.schedules.api_schedules import ScheduleRequest, write_schedule
from ...project.schedules.changes import (
    ScheduleEdit,
    edit_mark,
    edit_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
    written_trigger,
)
from ...project.schedules.schedules import ScheduleView, calendar, list_schedules, show_schedule
from ...units import many
from ..answers import ApiError
from .charts import hours, lane
from .forms import read_into
from .templates import segment
from .view import Context, Done, FormAction, Question, View, Visit

DAY = timedelta(days=1)
LANES_SHOWN = 50
Text = Annotated[str, Meta(max_length=1000)]


class SchedulesFilters(RowFilters, frozen=True, kw_only=True):
    state: Text | None = None


class EditForm(msgspec.Struct, frozen=True, kw_only=True):
    trigger: Text  # every 6h, at 2027-01-31T12:00, or a cron expression
    zone: Text = "UTC"
    windows: Text = ""
    overlap: Text = "skip"
    limit: Text = ""
    budget: Text = ""
    seen: Text = ""


class AddForm(EditForm, frozen=True, kw_only=True):
    name: Text
    spider: Text
    arguments: Annotated[str, Meta(max_length=10_000)] = ""  # name=value, one on each line


COLUMNS: dict[str, Callable[[ScheduleView], object]] = {
    "name": lambda one: one.name.casefold(),
    "spider": lambda one: one.spider.casefold(),
    "next": lambda one: one.next,
    "runs": lambda one: one.runs,
}


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(SchedulesFilters)
    found = await list_schedules(visit.project)
    wanted = [one for one in found.schedules if chosen.state in (None, one.state)]
    page = row_page(wanted, chosen, text=lambda one: f"{one.name} {one.spider}", columns=COLUMNS)
    return {
        "found": found,
        "page": page,
        "states": dict(Counter(one.state for one in found.schedules).most_common()),
        "filtered": bool(chosen.q or chosen.state),
    }


async def day(visit: Visit) -> Context:
    """A lane for each schedule with its runs of the next 24 hours; the schedule that runs next comes first."""
    now = visit.project.clock.now()
    lanes, due = await calendar(visit.project, DAY, LANES_SHOWN)
    end = now + DAY.total_seconds()
    return {
        "lanes": [(one, lane(f"Runs of {one.schedule}", one.times, now, end, cut=one.cut)) for one in lanes],
        "more": due - len(lanes),
        "total": sum(len(one.times) for one in lanes),
        "cut": due > len(lanes) or any(one.cut for one in lanes),
        "hours": hours(now, end),
    }


async def one(visit: Visit) -> Context:
    try:
        schedule = await show_schedule(visit.project, visit.path["name"])
        return {"schedule": schedule, "seen": edit_mark(schedule)}
    except Misconfigured as error:
        words = "There is no schedule of that name here. It may have been removed."
        raise ApiError(404, "not_found", words) from error


def page_of(name: str) -> str:
    return f"/ui/schedules/{segment(name)}"


async def pause(visit: Visit) -> Done:
    name = visit.path["name"]
    change = await pause_schedule(visit.project, name)
    going = f"; {', '.join(change.running)} goes on" if change.running else ""
    return Done(words=f"{name} is paused{going}.", to=page_of(name), target=name)


async def resume(visit: Visit) -> Done:
    name = visit.path["name"]
    change = await resume_schedule(visit.project, name)
    again = f"; its next run is {change.next_run}" if change.next_run else ""
    return Done(words=f"{name} goes on{again}.", to=page_of(name), target=name)


async def run(visit: Visit) -> Done:
    begun = await run_schedule(visit.project, visit.path["name"])
    words = f"{begun.job} has begun. {begun.note}".strip()
    return Done(words=words, to=f"/ui/jobs/{segment(begun.job)}", target=begun.job)


async def add(visit: Visit) -> Done:
    form = visit.of(AddForm)
    when = written_trigger(form.trigger)
    wanted = {
        "name": form.name.strip(),
        "spider": form.spider.strip(),
        "every": when.every,
        "at": when.at,
        "cron": when.cron,
        "zone": form.zone,
        "windows": form.windows,
        "overlap": form.overlap,
        "limit": _count(form.limit, "limit"),
        "budget": _count(form.budget, "budget"),
        "arguments": [line.strip() for line in form.arguments.splitlines() if line.strip()],
    }
    added = await write_schedule(visit.project, read_into(ScheduleRequest, wanted))
    words = f"{added.name} runs {added.when}; {added.first_run}."
    return Done(words=" ".join([words, *added.warnings]), to=page_of(added.name), target=added.name)


async def edit(visit: Visit) -> Done:
    name, form = visit.path["name"], visit.of(EditForm)
    wanted = ScheduleEdit(
        trigger=form.trigger,
        zone=form.zone,
        windows=form.windows,
        overlap=form.overlap,
        limit=_count(form.limit, "limit"),
        budget=_count(form.budget, "budget"),
        seen=form.seen,
    )
    changed = await edit_schedule(visit.project, name, wanted)
    return Done(words=f"{name} runs {changed.when}; next: {changed.first_run}.", to=page_of(name), target=name)


def _count(text: str, name: str) -> int | None:
    digits = text.strip()
    if not digits:
        return None
    if not digits.isdecimal() or len(digits) > 12 or not int(digits):
        raise Misconfigured(f"The {name} is a whole number above 0, or empty for none.")
    return int(digits)


async def ask_to_remove(visit: Visit) -> Question:
    found = await show_schedule(visit.project, visit.path["name"])
    words = f"Remove {found.name}? It has begun {many(found.runs, 'run')}, which stay; one that is going goes on."
    return Question(words=words, button="Remove it", back=page_of(found.name))


async def remove(visit: Visit) -> Done:
    name = visit.path["name"]
    await remove_schedule(visit.project, name)
    return Done(words=f"{name} is removed.", to="/ui/schedules", target=name)


VIEWS = (
    View("/ui/schedules", "Schedules", "schedules.html", {"listed": list_region, "day": day}, JOBS,
         query=SchedulesFilters, group="Work"),
    View("/ui/schedules/{name}", "Schedule", "schedule.html", {"one": one}, JOBS),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/schedules/add", handler=add, form=AddForm, scope=ADMIN),
    FormAction(path="/ui/schedules/{name}/pause", handler=pause, scope=ADMIN),
    FormAction(path="/ui/schedules/{name}/resume", handler=resume, scope=ADMIN),
    FormAction(path="/ui/schedules/{name}/run", handler=run, scope=ADMIN),
    FormAction(path="/ui/schedules/{name}/edit", handler=edit, form=EditForm, scope=ADMIN),
    FormAction(path="/ui/schedules/{name}/remove", handler=remove, ask=ask_to_remove, scope=ADMIN),
)
