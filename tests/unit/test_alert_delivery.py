"""Messages about alerts on their way: at least once, in order, by the leader alone, over outages of all kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gossamer.errors import BackendUnavailable
from gossamer.model.alert import MOST_OPEN, AlertState, NoticeState
from gossamer.model.events import Trouble
from gossamer.project.alerts.watch import GIVE_UP
from gossamer.project.open import open_project
from gossamer.schedule.alert_book import AlertStep
from gossamer.schedule.leadership import TERM
from gossamer.store.contract import SpoolNote
from tests.server.receiver import Receiver
from tests.server.receiver import receiver as receiver

from .watched import MINUTE, Watched, watched

QUICK = '[alerts.spool]\nfor = "0s"\nkeep_for = "1m"\n'  # the alert that these tests use


@pytest.fixture
async def bench(tmp_path: Path, receiver: Receiver) -> AsyncIterator[Watched]:
    async with watched(tmp_path, receiver, QUICK) as bench:
        yield bench


async def amiss(bench: Watched, host: str = "far") -> None:
    note = SpoolNote(
        name=f"of-{host}", host=host, folder="/spool", worker=f"{host}/1/x", results={"b-1": 7}, bytes=9, noted_at=0.0
    )
    await bench.project.state.spools.note(note)


async def mended(bench: Watched, host: str = "far") -> None:
    await bench.project.state.spools.take_away([f"of-{host}"])


async def test_a_channel_that_is_down_gets_each_message_later_in_order_and_with_its_id(
    bench: Watched, receiver: Receiver
):
    receiver.answers = [(503, {})] * 6
    await amiss(bench)
    await bench.turn()
    await mended(bench)
    await bench.pass_time(3 * MINUTE)  # it was resolved before anybody could be told that it fires
    assert await bench.state("spool", "far") is AlertState.RESOLVED
    assert {one.told["type"] for one in receiver.deliveries} == {"alert.firing"}

    await bench.pass_time(40 * MINUTE)
    first, second = await bench.project.state.alerts.notices(9)
    assert [one["type"] for one in (got.told for got in receiver.deliveries)] == ["alert.firing"] * 7 + [
        "alert.resolved"
    ]
    assert len(receiver.ids()) == 2
    assert (first.state, second.state) == (NoticeState.DELIVERED, NoticeState.DELIVERED)
    assert sorted(one.tries for one in (first, second)) == [1, 7]


async def test_a_message_that_nobody_takes_is_given_up_after_a_day(bench: Watched, receiver: Receiver):
    receiver.answers = [(503, {})] * 1000
    await amiss(bench)
    await bench.turn()
    await bench.pass_time(2 * 3600.0)
    before = len(receiver.deliveries)
    assert before <= 15  # the pauses grow
    bench.clock.advance(GIVE_UP.total_seconds())
    await bench.turn()
    await bench.turn(5)
    over = [one for one in await bench.project.state.alerts.notices(9) if one.state is NoticeState.FAILED]
    assert [one.error for one in over] == ["The receiver answered 503."]
    assert any("given up" in event.message for event in bench.heard.of(Trouble))


async def test_a_channel_for_which_too_many_wait_loses_the_oldest(bench: Watched, receiver: Receiver):
    await amiss(bench)
    receiver.answers = [(503, {})]
    await bench.turn()
    (one,) = await bench.project.state.alerts.notices(9)
    more = tuple(
        msgspec.structs.replace(one, id=f"m{n}", made_at=one.made_at + n, next_at=one.made_at + 1e6)
        for n in range(1, MOST_OPEN + 3)
    )
    await bench.project.state.alerts.settle(bench.lead.term, AlertStep(notices=more))
    await bench.turn(1)
    await bench.watch.delivered()
    failed = [one for one in await bench.project.state.alerts.notices(2000) if one.state is NoticeState.FAILED]
    assert len(failed) == 3
    assert "wait for this channel" in failed[0].error


async def test_an_alert_that_fired_under_one_leader_is_told_by_the_next_and_once(bench: Watched, receiver: Receiver):
    receiver.answers = [(503, {})]
    await amiss(bench)
    await bench.turn()  # entered; its first try failed, and then this leader dies
    bench.clock.advance(TERM.total_seconds() + 1)
    async with open_project(bench.project.settings, clock=bench.clock) as project:
        heir = Watched(project, bench.clock, receiver, "two")
        await heir.pass_time(3 * MINUTE)
        assert heir.told("spool") == [("firing", ["far"])] * 2  # the same message
        assert len(receiver.ids()) == 1
        await mended(heir)
        await heir.pass_time(5 * MINUTE)
        assert [state for state, _ in heir.told("spool")] == ["firing", "firing", "resolved"]
        await heir.watch.stop()


async def test_of_two_schedulers_one_looks_and_tells(bench: Watched, receiver: Receiver):
    async with open_project(bench.project.settings, clock=bench.clock) as project:
        other = Watched(project, bench.clock, receiver, "two")
        await bench.turn()
        await amiss(bench)
        for _ in range(200):  # the lead goes to and fro
            for one in (bench, other):
                await one.turn(3)
            if bench.clock.now() % 60 < 6:
                await (bench if bench.lead.held else other).lead.resign()
        await mended(bench)
        for _ in range(100):
            for one in (other, bench):
                await one.turn(3)
        assert bench.told("spool") == [("firing", ["far"]), ("resolved", ["far"])]
        await other.watch.stop()


async def test_a_leader_that_was_deposed_without_knowing_can_neither_write_nor_tell(bench: Watched, receiver: Receiver):
    await bench.turn()
    term = bench.lead.term
    bench.clock.advance(TERM.total_seconds() + 1)
    async with open_project(bench.project.settings, clock=bench.clock) as project:
        heir = Watched(project, bench.clock, receiver, "two")
        receiver.answers = [(503, {})]
        await amiss(heir)
        await heir.turn()
        heir.clock.advance(40)
        assert (bench.lead.held, bench.lead.term) == (True, term)  # it still believes so
        before = await bench.project.state.alerts.notices(9)
        await mended(bench)

        for _ in range(3):
            await bench.watch.turn()
            await bench.watch.deliver()
            await bench.watch.delivered()

        assert len(receiver.deliveries) == 1
        assert await bench.project.state.alerts.notices(9) == before
        assert await bench.state("spool", "far") is AlertState.FIRING
        await heir.watch.stop()


async def test_a_message_that_is_taken_while_the_next_list_is_read_is_not_sent_again(
    bench: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
):
    # given a list that was read while the message was under way, and is here when it has been taken
    due = type(bench.project.state.alerts).due

    async def read_late(desk: object, limit: int) -> object:
        found = await due(desk, limit)  # type: ignore[arg-type]
        await bench.watch.delivered()
        return found

    await amiss(bench)
    await bench.lead.keep()
    await bench.watch.turn()
    monkeypatch.setattr(type(bench.project.state.alerts), "due", read_late)

    await bench.watch.deliver()
    await bench.watch.delivered()

    assert bench.told("spool") == [("firing", ["far"])]


@pytest.mark.parametrize(("book", "verb"), [("alerts", "standings"), ("alerts", "due")])
async def test_a_fault_of_our_own_is_told_and_ends_nothing(
    bench: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, book: str, verb: str
):
    async def broken(*arguments: object) -> None:
        raise KeyError("colour")

    await amiss(bench)
    with monkeypatch.context() as patch:
        patch.setattr(type(getattr(bench.project.state, book)), verb, broken)
        await bench.pass_time(2 * MINUTE)
    assert len({event.message for event in bench.heard.of(Trouble)}) == 1
    assert "colour" in bench.heard.of(Trouble)[0].message
    await bench.turn(5)
    assert bench.told("spool") == [("firing", ["far"])]


async def test_memory_of_the_queue_survives_a_change_of_leader(bench: Watched, receiver: Receiver):
    await bench.job(3)
    await bench.pass_time(8 * MINUTE)
    await bench.lead.resign()
    async with open_project(bench.project.settings, clock=bench.clock) as project:
        heir = Watched(project, bench.clock, receiver, "two")
        await heir.pass_time(4 * MINUTE)  # ten minutes of standing still, most of them under another leader
        assert await heir.state("stalled", "books-1") is AlertState.FIRING
        await heir.watch.stop()


@pytest.mark.parametrize("leads_again", [True, False])
async def test_that_the_state_is_away_is_told_by_the_one_that_led_and_mutes_the_rest(
    bench: Watched, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, leads_again: bool
):
    await bench.job(3)
    await bench.turn()

    async def away(*arguments: object, **named: object) -> None:
        raise BackendUnavailable("Redis at localhost:6379 refused the connection.")

    async def through(minutes: int) -> None:
        for _ in range(minutes * 6):
            bench.clock.advance(10)
            await bench.watch.turn()
            await bench.watch.delivered()

    with monkeypatch.context() as patch:
        for book, verb in (("alerts", "standings"), ("alerts", "due"), ("alerts", "note"), ("jobs", "jobs")):
            patch.setattr(type(getattr(bench.project.state, book)), verb, away)
        await through(20)
        assert bench.told("stores") == [("firing", ["state"])]
        assert bench.told("stalled") == []
    for _ in range(100):
        if not leads_again:
            assert await bench.project.state.ticks.lead("another", TERM) is not None
        await bench.turn(5)
    assert bench.lead.held is leads_again
    assert bench.told("stores") == [("firing", ["state"]), ("resolved", ["state"])]
    assert len(receiver.ids()) == len(receiver.deliveries)


async def test_records_that_are_away_mute_what_follows_from_it(bench: Watched):
    from gossamer.project.open import UnavailableRecords

    await bench.job(3)
    absent = UnavailableRecords(BackendUnavailable("away"))
    bench.watch._readings._project = msgspec.structs.replace(bench.project, records=absent)
    await bench.pass_time(30 * MINUTE)
    assert [one.key for one in await bench.project.state.alerts.standings()] == [("stores", "records")]


async def test_a_record_store_that_was_away_at_the_start_is_read_when_it_is_there(
    bench: Watched, monkeypatch: pytest.MonkeyPatch
):
    from gossamer.project.open import UnavailableRecords

    readings, real = bench.watch._readings, bench.project
    away = BackendUnavailable("PostgreSQL does not answer.")
    readings._project = msgspec.structs.replace(real, records=UnavailableRecords(away), absent=str(away))

    def refuses(*arguments: object) -> None:
        raise away

    async with readings:
        with monkeypatch.context() as patch:
            patch.setattr("gossamer.project.alerts.readings.open_records", refuses)
            await bench.pass_time(2 * MINUTE)
            assert await bench.state("stores", "records") is AlertState.FIRING
        await bench.pass_time(7 * MINUTE)
        assert await bench.state("stores", "records") is AlertState.RESOLVED
