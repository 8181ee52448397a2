"""Which scheduler leads, and what it survives: clocks, rows that nobody can read, a state that is away."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from datetime import timedelta

import msgspec

from gossamer.clock import SystemClock
from gossamer.model.events import Leading, ScheduleFired, ScheduleSkipped, Trouble
from gossamer.model.schedule import ScheduleProgress
from gossamer.schedule.decisions import BACKOFF, Due, Rest, failed, look
from gossamer.schedule.leader import TROUBLED
from gossamer.schedule.leadership import Lead
from gossamer.schedule.triggers import Every
from tests.patience import PATIENCE, until
from tests.services.valkey import running_valkey
from tests.unit.schedulers import DAY, HOUR, HOURLY, bench_in, patient_scheduler
from tests.unit.schedulers import bench as bench

# -- who leads ----------------------------------------------------------------------------------------------------


async def test_another_scheduler_leads_when_the_leader_is_silent_and_fires_what_was_missed_once(bench):
    await bench.add(HOURLY)
    other = patient_scheduler(bench.system, bench.ear, name="two")
    await bench.look()
    await bench.look(scheduler=other)
    assert (bench.scheduler.leads, other.leads, bench.fired()) == (True, False, [0])
    await bench.end("prices-1")
    # when the leader falls silent, and a tick is due
    await bench.look(HOUR - 7, scheduler=other)
    await bench.look(7, scheduler=other)

    assert other.leads
    assert bench.fired() == [HOUR]
    # and the old one comes back to life, it follows
    await bench.look()
    assert not bench.scheduler.leads
    assert [(event.leader, event.leads) for event in bench.ear.heard(Leading)] == [
        ("one", True), ("two", True), ("one", False),
    ]  # fmt: skip


async def test_a_leader_that_was_overtaken_in_the_middle_of_its_look_fires_nothing(bench):
    await bench.add(HOURLY)
    await bench.look()
    await bench.end("prices-1")
    bench.clock.advance(HOUR - 1)
    await bench.scheduler.turn()
    # given that its term ends just now, by the backend's clock, and that it does not know
    other = await bench.system.state.ticks.lead("one", timedelta(seconds=1))
    bench.clock.advance(1)
    assert other is not None

    await bench.scheduler.turn()

    assert not bench.scheduler.leads
    assert "does not lead" in bench.ear.heard(Trouble)[0].message
    assert bench.fired() == [0]
    await bench.look()
    assert bench.fired() == [HOUR]


async def test_a_scheduler_that_is_drained_lets_the_next_one_lead_at_once(bench):
    await bench.add(HOURLY)
    fired = asyncio.Event()

    class Bell:
        def emit(self, event):
            if isinstance(event, ScheduleFired):
                fired.set()

    first = patient_scheduler(bench.system, Bell(), name="first")
    running = asyncio.create_task(first.run())
    async with asyncio.timeout(PATIENCE):
        await fired.wait()
        first.drain()
        await running

    await bench.look()
    assert bench.scheduler.leads


async def test_a_state_that_is_away_is_told_once_and_waited_for(tmp_path):
    with running_valkey("--appendonly", "yes", "--appendfsync", "always") as server:
        async with bench_in(tmp_path, f'state = "{server.address()}"\nproject = "away"\n') as bench:
            await bench.add(HOURLY)
            await bench.look()
            server.kill()
            bench.clock.advance(3)
            for _ in range(5):
                await bench.scheduler.turn()
            words = [event.message for event in bench.ear.heard(Trouble)]
            assert 1 <= len(words) == len(set(words)) <= 2  # a lost connection, then one that is refused
            server.start()

            await bench.look()

            assert bench.scheduler.leads
            assert (await bench.standing()).runs == 1


async def test_the_lead_is_renewed_beside_all_other_work(bench):
    lead = Lead(bench.system.state.ticks, SystemClock(), bench.ear, "one", renew=timedelta(milliseconds=5))
    end = asyncio.Event()
    assert await lead.keep()
    first = lead.term
    staying = asyncio.create_task(lead.stay(end, bench.ear.emit))

    bench.clock.advance(4)
    await until(lambda: lead.term.until == first.until + 4)

    end.set()
    await staying
    assert (lead.term.token, bench.ear.heard(Exception)) == (first.token, [])


# -- what it survives ---------------------------------------------------------------------------------------------


class Crooked:
    """A book that fails in a way that nobody foresaw, so many times in a row; else it is the real one."""

    def __init__(self, book, verb, times, name=None):
        self._book, self._verb, self._times, self._name = book, verb, times, name

    def __getattr__(self, verb):
        return self._fail if verb == self._verb and self._times else getattr(self._book, verb)

    async def _fail(self, *words, **more):
        if self._name in (None, *(one.schedule.name for one in words if isinstance(one, ScheduleProgress))):
            self._times -= 1
            raise ZeroDivisionError("a fault of ours")
        return await getattr(self._book, self._verb)(*words, **more)


async def test_a_row_that_cannot_be_read_is_told_once_and_disturbs_no_other(bench):
    await bench.add(HOURLY, name="odd")
    await bench.add(HOURLY)
    state = sqlite3.connect(bench.system.settings.root / "gossamer-data" / "state.db")
    with closing(state), state:
        state.execute("""UPDATE schedules SET progress = replace(progress, '"skip"', '"later"') WHERE name = 'odd'""")

    await bench.look()
    await bench.look(60)

    assert bench.fired() == [0]
    (trouble,) = bench.ear.heard(Trouble)
    assert "Schedule odd cannot be read" in trouble.message
    assert "gossamer schedule remove odd" in trouble.message


async def test_a_fault_in_a_look_is_told_and_the_next_look_comes_after_a_pause(bench):
    await bench.add(HOURLY)
    ticks = Crooked(bench.system.state.ticks, "changes", times=1)
    scheduler = patient_scheduler(with_state(bench.system, ticks=ticks), bench.ear, name="two")

    assert await scheduler.turn() == TROUBLED
    assert "a fault of ours" in bench.ear.heard(Trouble)[0].message
    await bench.look(5, scheduler=scheduler)

    assert bench.fired() == [0]


async def test_a_fault_over_one_schedule_leaves_that_one_alone_for_a_while(bench):
    for name in ("odd", "prices"):
        await bench.add(HOURLY, name=name, spider="https://a.test/")
    ticks = Crooked(bench.system.state.ticks, "settle", times=1, name="odd")
    scheduler = patient_scheduler(with_state(bench.system, ticks=ticks), bench.ear, name="two")

    await bench.look(scheduler=scheduler)
    assert [event.schedule for event in bench.ear.heard(ScheduleFired)] == ["prices"]
    assert "Schedule odd is left alone for 5 minutes" in bench.ear.heard(Trouble)[0].message
    await bench.look(301, scheduler=scheduler)

    assert [event.schedule for event in bench.ear.heard(ScheduleFired)] == ["odd"]


def with_state(system, **handles):
    return msgspec.structs.replace(system, state=msgspec.structs.replace(system.state, **handles))


class Counting:
    """A book that counts how often it is read as a whole."""

    def __init__(self, book):
        self._book, self.read = book, 0

    def __getattr__(self, verb):
        self.read += verb == "everything"
        return getattr(self._book, verb)


async def test_the_book_is_read_as_a_whole_only_when_somebody_else_has_changed_it(bench):
    await bench.add(HOURLY)
    book = Counting(bench.system.state.schedules)
    scheduler = patient_scheduler(with_state(bench.system, schedules=book), bench.ear, name="two")
    await bench.look(scheduler=scheduler)
    await bench.look(HOUR, scheduler=scheduler)
    assert (book.read, (await bench.standing()).skipped) == (1, 1)

    await bench.system.state.schedules.remove("prices")
    await bench.look(HOUR, scheduler=scheduler)

    assert (book.read, (bench.ear.heard(ScheduleSkipped))[1:]) == (2, [])


# -- clocks -------------------------------------------------------------------------------------------------------


def test_a_pause_that_a_wrong_clock_made_is_not_waited_out():
    now = 1_800_000_000.0
    broken = failed(ScheduleProgress(schedule=HOURLY, origin="added", created_at=now), now, now, "no").after

    assert look(broken, Every(HOUR), now + 1) == Rest(now + 5)
    assert look(broken, Every(HOUR), now + 5) == Due(now)
    # when the clock is put back by a while, the remembered moment is farther away than any pause
    assert look(broken, Every(HOUR), now - BACKOFF.longest.total_seconds() - 10) == Rest(now)


async def test_a_clock_that_was_a_day_ahead_does_not_silence_a_schedule_for_a_day(bench):
    await bench.add(HOURLY)
    await bench.look(DAY)
    await bench.end("prices-1")
    bench.fired()
    # when the clock is put right
    bench.clock.advance(-DAY)
    await bench.look(60)
    assert bench.fired() == []
    await bench.look(HOUR)

    assert bench.fired() == [HOUR]


async def test_a_clock_that_was_behind_for_longer_repeats_nothing_when_it_is_right(bench):
    # given a schedule of every night, which has fired, and a clock that is a day behind when the next night comes
    await bench.add(HOURLY, trigger="30 3 * * *")
    await bench.look(20 * HOUR)
    await bench.end("prices-1")
    await bench.look(-26 * HOUR)
    await bench.look(1.75 * HOUR)
    assert bench.fired() == [19.5 * HOUR, -4.5 * HOUR]
    await bench.end("prices-2")

    await bench.look(30 * HOUR)
    assert bench.fired() == []
    await bench.look(DAY)

    assert bench.fired() == [19.5 * HOUR + DAY]


async def test_a_leader_goes_by_the_clock_of_the_server_also_after_that_was_set(tmp_path):
    with running_valkey() as server:
        async with bench_in(tmp_path, f'state = "{server.address()}"\nproject = "clocks"\n') as bench:
            await bench.look()
            bench.clock.advance(3000)  # as if the server's clock had been put back by so much

            await bench.look()

            assert abs(bench.system.clock.now() - time.time()) < 60
