"""project/schedules, as a server or a script calls it: no command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.errors import Misconfigured, SpiderNotFound
from gossamer.project.open import Project, open_project
from gossamer.project.schedules.changes import (
    ScheduleEdit,
    add_schedule,
    edit_mark,
    edit_schedule,
    new_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from gossamer.project.schedules.schedules import calendar, list_schedules, show_schedule, unstarted_schedules
from gossamer.settings import FILE_NAME, ScheduleTable, load

TOML = """
[schedules.nightly]
spider = "https://shop.example/"
cron = "0 3 * * *"
zone = "Europe/Berlin"
"""
HOURLY = ScheduleTable(spider="https://shop.example/", every="1h", sitemap="https://me:hunter2@shop.example/map.xml")


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    (tmp_path / FILE_NAME).write_text(TOML)
    async with open_project(load(start=tmp_path, environ={})) as opened:
        yield opened


def served(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


async def added(project: Project, name: str = "hourly", table: ScheduleTable = HOURLY, **how: Any) -> Any:
    return await add_schedule(project, new_schedule(project.settings, name, table), **how)


async def test_schedules_of_the_file_and_added_ones_are_one_list_without_secrets(project: Project) -> None:
    done = await added(project)
    assert (done.when, done.first_run, done.warnings) == ("every 1 h", "next run as soon as a scheduler runs", [])

    hourly, nightly = served((await list_schedules(project)).entries)

    assert (hourly["name"], hourly["origin"], hourly["state"]) == ("hourly", "added", "new")
    assert hourly["source"]["url"] == "https://me:***@shop.example/map.xml"
    assert (nightly["origin"], nightly["state"], nightly["file_differs"]) == ("file", "unread", True)
    assert nightly["notes"] == [{"about": "file", "text": "new in gossamer.toml; it is read when a scheduler starts."}]


async def test_before_anything_was_crawled_the_file_says_it_all(project: Project) -> None:
    found = unstarted_schedules(project.settings, 1_800_000_000.0, ticks=2)
    assert [one.name for one in found.schedules] == ["nightly"]
    assert [tick.at for tick in found.ticks] == ["2027-01-16T02:00:00.000Z", "2027-01-17T02:00:00.000Z"]


async def test_a_schedule_is_paused_resumed_run_and_removed(project: Project) -> None:
    await added(project)
    assert (await pause_schedule(project, "hourly")).changed
    assert not (await pause_schedule(project, "hourly")).changed
    assert (await resume_schedule(project, "hourly")).next_run.endswith(")")

    begun = await run_schedule(project, "hourly")

    detail = served(await show_schedule(project, "hourly"))
    assert (detail["runs"], detail["last_job"]) == (1, begun.job)
    assert [job["id"] for job in detail["last_runs"]] == [begun.job]
    assert (len(detail["next_ticks"]), detail["leads"]) == (5, False)
    with pytest.raises(Misconfigured, match="is still running"):
        await run_schedule(project, "hourly")
    assert (await run_schedule(project, "hourly", replace=True)).job != begun.job
    assert len((await remove_schedule(project, "hourly")).running) == 1
    with pytest.raises(Misconfigured, match="no schedule 'hourly'"):
        await show_schedule(project, "hourly")


async def test_of_two_who_edit_a_schedule_the_later_one_is_told(project: Project) -> None:
    await added(project)
    seen = edit_mark(await show_schedule(project, "hourly"))
    edit = ScheduleEdit(trigger="every 2h", zone="UTC", windows="", overlap="skip", limit=None, budget=None, seen=seen)
    await edit_schedule(project, "hourly", edit)

    late = msgspec.structs.replace(edit, trigger="every 1h", limit=5)
    with pytest.raises(Misconfigured, match="was changed since you looked: it runs every 2 h"):
        await edit_schedule(project, "hourly", late)

    again = msgspec.structs.replace(late, seen=edit_mark(await show_schedule(project, "hourly")))
    await edit_schedule(project, "hourly", again)
    assert (await show_schedule(project, "hourly")).limit == 5


async def test_what_cannot_be_added_or_removed_is_refused(project: Project) -> None:
    with pytest.raises(Misconfigured, match="change it there"):
        new_schedule(project.settings, "nightly", HOURLY)
    with pytest.raises(Misconfigured, match="remove it there"):
        await remove_schedule(project, "nightly")
    with pytest.raises(SpiderNotFound, match="add --force"):
        new_schedule(project.settings, "books", ScheduleTable(spider="books", every="1h"))
    await added(project)
    with pytest.raises(Misconfigured, match="Add --replace"):
        await added(project)
    assert (await added(project, replace=True)).name == "hourly"


async def test_a_busy_schedule_hides_no_other_in_the_coming_day(project: Project) -> None:
    await added(project, "busy", ScheduleTable(spider="https://shop.example/", every="1m"))

    (busy, nightly), due = await calendar(project, timedelta(days=1), most=10)

    assert (busy.schedule, busy.cut, len(busy.times)) == ("busy", True, 300)
    assert (nightly.schedule, nightly.cut, len(nightly.times)) == ("nightly", False, 1)
    assert due == 2
    first, due = await calendar(project, timedelta(days=1), most=1)
    assert ([one.schedule for one in first], due) == (["busy"], 2)


async def test_many_busy_schedules_share_the_ticks_of_the_calendar_and_the_rare_ones_are_whole(
    project: Project,
) -> None:
    for number in range(9):
        await added(project, f"busy-{number}", ScheduleTable(spider="https://shop.example/", every="1m"))
    await added(project, "hourly", ScheduleTable(spider="https://shop.example/", every="1h"))

    lanes, due = await calendar(project, timedelta(days=1), most=50)

    ticks = {lane.schedule: len(lane.times) for lane in lanes}
    assert due == len(lanes) == 11
    assert sum(ticks.values()) <= 1250
    assert (ticks["nightly"], ticks["hourly"]) == (1, 25)
    assert min(ticks[f"busy-{number}"] for number in range(9)) >= 100
