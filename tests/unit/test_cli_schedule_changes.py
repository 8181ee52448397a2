"""`gossamer schedule run` and `remove`, and schedules of which something is the matter."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from gossamer.model.events import NullSink
from gossamer.project.open import open_project
from gossamer.project.schedules import changes as schedule_changes
from gossamer.settings import load
from gossamer.settings.tables import ScheduleTable
from tests.unit.commandline import project as project
from tests.unit.schedulers import patient_scheduler

SPIDER = """
from gossamer import Page, Spider

class Books(Spider):
    start_urls = ["https://shop.example/"]

    def parse(self, page: Page):
        return []
"""
DAILY = """
[schedules.daily]
spider = "books"
every = "1d"
budget = 240
limit = 5
"""


@pytest.fixture
def shop(project):
    """A project with one spider and one schedule."""
    project.write("spiders/books.py", SPIDER)
    project.write("gossamer.toml", DAILY)
    return project


def show(project, name: str = "daily"):
    return project.run("schedule", "show", name, "--json").json


def terms_of(project, *jobs: str):
    found = []

    async def look(system):
        found.extend([await system.state.jobs.terms(job) for job in jobs])

    project.fill(look)
    return found


def schedule(project):
    """Let a scheduler look twice: it follows the file, and does what is due."""

    async def turn(system):
        scheduler = patient_scheduler(system, NullSink())
        await scheduler.turn()
        await scheduler.turn()
        await scheduler.resign()

    project.fill(turn)


def test_a_run_by_hand_is_counted_and_the_next_one_gets_what_is_left_of_the_budget(shop):
    shop.run("schedule", "run", "daily")
    shop.run("schedule", "run", "daily", "--replace")

    first, second = terms_of(shop, "daily-1", "daily-2")
    assert (first.budget, second.budget) == (240, 1)  # a run by hand gets one fetch at least
    found = show(shop)
    assert (found["runs"], found["last_job"], found["last_due"]) == (2, "daily-2", None)
    assert found["last_runs"][1]["ending"] == "replaced"


def test_a_run_within_the_minimum_age_says_that_nothing_is_due(shop):
    shop.write("gossamer.toml", f'{DAILY}min_age = "2h"\n')
    assert "not due" not in shop.run("schedule", "run", "daily").err

    said = shop.run("schedule", "run", "daily", "--replace")

    assert said.code == 0
    assert "its min_age is 2 h" in said.err
    assert "are not due, and are left out" in said.err


def test_a_run_that_is_refused_changes_nothing(shop):
    shop.run("schedule", "run", "daily")
    shop.write("gossamer.toml", DAILY.replace("limit = 5", "limit = 500"))

    said = shop.run("schedule", "run", "daily")

    assert said.code == 1
    assert "daily-1 is still running" in said.err
    (terms,) = terms_of(shop, "daily-1")
    assert (terms.limit, show(shop)["runs"]) == (5, 1)


def test_a_schedule_that_was_taken_out_of_the_file_can_be_removed_at_once(shop):
    schedule(shop)
    shop.write("gossamer.toml", "")

    said = shop.run("schedule", "remove", "daily")

    assert said.code == 0, said
    assert shop.run("schedule", "list", "--json").json == []


def test_a_schedule_that_was_withdrawn_is_listed_with_what_becomes_of_it(shop):
    schedule(shop)
    shop.write("gossamer.toml", "")
    schedule(shop)

    assert show(shop)["state"] == "withdrawn"
    assert "daily: no longer in gossamer.toml" in shop.run("schedule", "list").err
    # and it is back with the table
    shop.write("gossamer.toml", DAILY)
    assert show(shop)["state"] != "withdrawn"


def test_a_schedule_that_nobody_can_read_is_listed_and_can_be_removed(shop):
    schedule(shop)
    shop.write("gossamer.toml", "")
    state = sqlite3.connect(shop.folder / "gossamer-data" / "state.db")
    with closing(state), state:
        state.execute("""UPDATE schedules SET progress = replace(progress, '"skip"', '"later"')""")

    listed, shown = shop.run("schedule", "list"), shop.run("schedule", "show", "daily")
    (found,) = shop.run("schedule", "list", "--json").json
    removed = shop.run("schedule", "remove", "daily")

    assert "Schedule daily cannot be read" in listed.err
    assert (shown.code, "Schedule daily cannot be read" in shown.err) == (1, True)
    assert (found["name"], found["state"]) == ("daily", "unreadable")
    assert removed.code == 0, removed
    assert shop.run("schedule", "list", "--json").json == []


def test_a_moment_that_is_past_is_told(shop):
    shop.write("gossamer.toml", '[schedules.once]\nspider = "books"\nat = "2020-01-31T12:00"\n')
    schedule(shop)

    assert show(shop, "once")["state"] == "missed"
    assert "once" not in shop.run("schedule", "list").err  # its state says it
    assert "its time has passed without a run." in shop.run("schedule", "show", "once").out
    assert "once: its time has passed without a run." in shop.run("doctor", "--json").out
    # and it is no longer so after a run by hand
    shop.run("schedule", "run", "once")
    assert show(shop, "once")["state"] == "over"


def leads(project):
    async def lead(system):
        assert await system.state.ticks.lead("here/1/0", timedelta(minutes=5)) is not None

    project.fill(lead)


def test_what_is_in_force_is_shown_while_the_leading_scheduler_has_not_read_the_file(shop):
    schedule(shop)
    leads(shop)
    shop.write("gossamer.toml", DAILY.replace("1d", "2d"))

    found, said = show(shop), shop.run("schedule", "list").err

    assert (found["trigger"], found["file_differs"]) == ("every 1d", True)
    assert "daily: changed in gossamer.toml; that is read when the leading scheduler is restarted." in said
    # and likewise when its table is taken out
    shop.write("gossamer.toml", "")
    said = shop.run("schedule", "list").err
    assert "daily: no longer in gossamer.toml; it rests when the leading scheduler is restarted." in said
    # but not when the file is as it was
    shop.write("gossamer.toml", DAILY)
    assert show(shop)["file_differs"] is False


async def test_a_schedule_whose_first_run_begins_at_once_says_so(tmp_path, monkeypatch):
    """A scheduler is quicker than the command that added the schedule."""
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "books.py").write_text(SPIDER)
    (tmp_path / "gossamer.toml").write_text("")
    settings = load(start=tmp_path)
    async with open_project(settings) as opened:
        running = schedule_changes._running

        async def turn_first(project, name):
            scheduler = patient_scheduler(project, NullSink())
            await scheduler.turn()
            await scheduler.turn()
            return await running(project, name)

        monkeypatch.setattr(schedule_changes, "_running", turn_first)
        new = schedule_changes.new_schedule(settings, "monthly", ScheduleTable(spider="books", every="30d"))
        added = await schedule_changes.add_schedule(opened, new)
        again = await schedule_changes.add_schedule(opened, new, replace=True)

    assert added.first_run.startswith("its first run has begun (monthly-1), the next ")
    assert "(in 30 d" in added.first_run
    assert again.first_run.startswith("next run ")
