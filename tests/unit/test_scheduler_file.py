"""How the book of schedules follows gossamer.toml."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.errors import Misconfigured
from gossamer.model.events import ScheduleFired, Trouble
from gossamer.schedule.definition import schedules_of
from gossamer.settings import load
from tests.unit.schedulers import DAY, HOUR, HOURLY, bench_in, patient_scheduler

TWO = """
[schedules.prices]
spider = "books"
every = "1h"

[schedules.news]
spider = "https://a.test/"
every = "2h"
"""


async def test_the_book_follows_the_file(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.look()
        assert sorted(event.schedule for event in bench.ear.heard(ScheduleFired)) == ["news", "prices"]
        assert {one.origin for one in await bench.system.state.schedules.schedules()} == {"file"}
    # when one is changed and the other one has vanished
    changed = TWO.partition("[schedules.news]")[0].replace("1h", "30m")
    async with bench_in(tmp_path, changed) as bench:
        await bench.look()

        news, prices = await bench.system.state.schedules.schedules()
        assert (prices.schedule.trigger, prices.runs, prices.withdrawn_at) == ("every 30m", 1, None)
        assert (news.runs, news.withdrawn_at) == (1, bench.clock.now())
        assert len(await bench.running()) == 2  # their jobs go on


async def test_a_schedule_that_was_added_stays_beside_one_of_the_file_with_its_name(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.add(HOURLY, trigger="every 7h")
        await bench.add(HOURLY, name="mine")

        await bench.look()
        await bench.look(60)

        standings = await bench.system.state.schedules.schedules()
        found = {one.schedule.name: (one.origin, one.schedule.trigger) for one in standings}
        assert found == {
            "mine": ("added", "every 1h"), "news": ("file", "every 2h"), "prices": ("added", "every 7h"),
        }  # fmt: skip
        (trouble,) = bench.ear.heard(Trouble)
        assert "prices of gossamer.toml is not used" in trouble.message


async def test_a_schedule_of_the_file_that_was_removed_comes_back(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.look()
        await bench.system.state.schedules.remove("news")

        await bench.look()

        assert sorted(schedules_of(bench.system.settings.schedules)) == ["news", "prices"]
        assert (await bench.standing("news")).origin == "file"


async def test_a_file_with_a_schedule_that_is_none_is_refused(tmp_path):
    with pytest.raises(Misconfigured, match=r"Schedule 'a': cron: .*minutes are 0 to 59"):
        async with bench_in(tmp_path, '[schedules.a]\nspider = "books"\ncron = "61 * * * *"') as bench:
            await bench.look()


async def test_a_table_that_is_away_for_a_while_rests_and_goes_on_where_it_was(tmp_path):
    without = TWO.partition("[schedules.news]")[0]
    async with bench_in(tmp_path, TWO) as bench:
        await bench.look()
        for job in await bench.running():
            await bench.end(job)
        await bench.look(HOUR)
        await bench.system.state.schedules.pause("prices", True)
        bench.fired()
        old = patient_scheduler(bench.system.of(settings_in(tmp_path, without)), bench.ear)
        # when a scheduler with another file leads, a tick does not run
        await bench.scheduler.resign()
        await bench.look(HOUR, scheduler=old)
        assert (await bench.standing("news")).withdrawn_at == bench.clock.now()
        assert bench.fired() == []
        # and when the first one leads again, it is made up for
        await old.resign()
        await bench.look(60)

        news, prices = await bench.system.state.schedules.schedules()
        assert (news.withdrawn_at, news.runs, bench.fired()) == (None, 2, [2 * HOUR])
        assert prices.paused


async def test_a_table_that_stays_away_is_forgotten_after_a_week(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.look()
    async with bench_in(tmp_path) as bench:
        await bench.look()
        await bench.look(6.9 * DAY)
        assert len(await bench.system.state.schedules.schedules()) == 2

        await bench.look(0.2 * DAY)

        assert await bench.system.state.schedules.schedules() == []


async def test_what_a_leader_of_yesterday_has_in_its_file_is_not_written_any_more(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        without = settings_in(tmp_path, TWO.partition("[schedules.news]")[0])
        old = patient_scheduler(bench.system.of(without), bench.ear, name="old")
        await old.turn()
        # given that its term ends just now, by the backend's clock, and that it does not know
        assert await bench.system.state.ticks.lead("old", timedelta(seconds=1))
        await bench.look(1)
        before = await bench.system.state.schedules.schedules()
        assert [one.schedule.name for one in before] == ["news", "prices"]

        await old.turn()

        assert await bench.system.state.schedules.schedules() == before
        assert not old.leads
        assert "does not lead" in bench.ear.heard(Trouble)[0].message


@pytest.mark.parametrize(("at", "fired"), [("2027-01-15T07:50", [-600]), ("2027-01-14T07:50", [])])
async def test_a_moment_that_was_read_too_late_is_made_up_for_within_a_day_and_else_told(tmp_path, at, fired):
    # given a clock that shows eight in the morning of 15 January
    async with bench_in(tmp_path, f'[schedules.once]\nspider = "books"\nat = "{at}"') as bench:
        await bench.look()
        await bench.look(60)

        assert bench.fired() == fired
        told = [event.message for event in bench.ear.heard(Trouble)]
        assert [("its moment was past" in words) for words in told] == ([] if fired else [True])


def settings_in(folder, toml):
    (folder / "gossamer.toml").write_text(toml)
    return load(start=folder, environ={})
