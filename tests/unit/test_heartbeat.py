"""The heart of a worker process, on a clock of the test's; and names, shares and pauses of worker processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.backends.worker_names import is_gone, numbered_name, worker_name
from gossamer.clock import ServerClock, VirtualClock
from gossamer.crawl.heartbeat import Heartbeat, Vitals, clock_is_wrong
from gossamer.crawl.slots import Slots
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.frontier.contract import WorkerCard
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.events import Buried, Completed, Event, EventHub, Retried, Trouble
from tests.patience import PATIENCE, until


@pytest.fixture
async def book(tmp_path):
    terms = SiteTerms(interval=None, burst=1, concurrency=None)
    async with open_sqlite_state(
        tmp_path / "state.db", VirtualClock(), lease_duration=timedelta(minutes=1), terms_for=lambda _: terms
    ) as state:
        yield state.workers


class Flaky:
    """A real book behind a line that may be cut."""

    def __init__(self, book) -> None:
        self._book = book
        self.away = False
        self.refusal: Exception | None = None
        self.beats = 0

    async def _line(self) -> None:
        self.beats += 1
        if self.away:
            raise BackendUnavailable("the line is cut")
        if self.refusal is not None:
            raise self.refusal

    async def beat(self, card: WorkerCard) -> None:
        await self._line()
        await self._book.beat(card)

    async def sign_off(self, name: str) -> None:
        await self._line()
        await self._book.sign_off(name)

    async def workers(self) -> list[WorkerCard]:
        return await self._book.workers()

    async def forget(self, before: float) -> int:
        return await self._book.forget(before)


async def test_a_card_is_entered_renewed_every_five_seconds_and_taken_out(book):
    clock = VirtualClock()
    vitals = [Vitals(job="a-1", in_flight=4)]
    heart = Heartbeat(book, clock, name="me", vitals=lambda: vitals[0])
    async with heart:
        await until(book.workers)
        [card] = await book.workers()
        assert (card.name, card.pid, card.job, card.state, card.in_flight, card.done) == (
            "me", os.getpid(), "a-1", "working", 4, 0,
        )  # fmt: skip
        assert card.memory > 1_000_000

        # Pages that came to an end count, those that are tried again do not.
        heart.emit(Completed(at=0, outcome="done"))
        heart.emit(Buried(at=0, reason="parse", attempt=1))
        heart.emit(Retried(at=0, reason="timeout", attempt=1, delay=1))
        vitals[0] = Vitals(state="idle")
        await until(lambda: clock.sleepers)  # whoever goes to sleep after the clock was moved is not woken by it
        clock.advance(5)

        async def renewed() -> bool:
            return (await book.workers())[0].seen_at == clock.now()

        await until(renewed)
        [card] = await book.workers()
        assert (card.state, card.done, card.started_at) == ("idle", 2, clock.now() - 5)
        assert 0 <= card.cpu < 10
    assert await book.workers() == []


async def test_a_clock_that_differs_from_the_states_is_reported_once_and_stops_work_when_it_is_wrong(book):
    machine, told = VirtualClock(), list[Event]()
    clock = ServerClock(machine)
    troubles = EventHub()
    troubles.emit = told.append  # type: ignore[method-assign]
    beats = Flaky(book)
    async with Heartbeat(beats, clock, name="me", vitals=Vitals, troubles=troubles):

        async def look(ahead: float) -> WorkerCard:
            """The card of the second beat from now on: the first may have been under way."""
            clock.agree(machine.now() - ahead)
            for _ in range(2):
                await until(lambda: machine.sleepers)
                before = beats.beats
                machine.advance(5)
                await until(lambda before=before: ran(before))
            return (await book.workers())[0]

        async def ran(before: int) -> bool:
            return beats.beats > before and machine.sleepers > 0

        assert (await look(0)).state == "working"
        assert told == []
        card = await look(20)
        assert (card.state, card.clock_ahead) == ("working", 0.0)  # a file keeps no difference: it has one machine
        assert [one.message for one in told] == ["The clock of this machine is 20 s ahead of the state's. Set it."]
        assert not clock_is_wrong(clock)
        assert (await look(-86400)).state == "clock wrong"
        assert clock_is_wrong(clock)
        assert "takes no work" in told[1].message
        assert (await look(0)).state == "working"
        assert told[2].message == "The clock of this machine is right again."
        assert len(told) == 3


async def test_a_worker_leaves_a_state_that_a_newer_version_has_opened(book, tmp_path):
    clock, drained, told = VirtualClock(), asyncio.Event(), list[Event]()
    troubles = EventHub()
    troubles.emit = told.append  # type: ignore[method-assign]
    heart = Heartbeat(book, clock, name="me", vitals=Vitals, troubles=troubles, drain=drained.set)
    async with heart:
        await until(book.workers)
        assert not heart.asked
        with closing(sqlite3.connect(tmp_path / "state.db")) as newer:
            newer.execute("PRAGMA user_version = 999")
            newer.commit()
        await until(lambda: clock.sleepers)
        clock.advance(5)
        async with asyncio.timeout(PATIENCE):
            await drained.wait()
        assert heart.asked == "drain"  # no other of its version takes its place
    [trouble] = told
    assert isinstance(trouble, Trouble)
    assert "newer Gossamer (schema 999" in trouble.message
    assert "finishes the pages it has in progress" in trouble.message


async def test_a_heart_goes_on_when_the_state_was_away(book):
    clock, line = VirtualClock(), Flaky(book)
    line.away = True
    async with Heartbeat(line, clock, name="me", vitals=Vitals):
        for _ in range(3):
            before = line.beats

            async def tried(before=before) -> bool:
                clock.advance(5)
                return line.beats > before

            await until(tried)
        assert await book.workers() == []
        line.away = False

        async def entered() -> bool:
            clock.advance(5)
            return bool(await book.workers())

        await until(entered)
        line.away = True
    # It could not sign off: the card fades, and the end is a good one all the same.
    assert [card.name for card in await book.workers()] == ["me"]


class Ears:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def emit(self, event: Event) -> None:
        self.heard.append(event)


@pytest.mark.parametrize("fault", [Misconfigured("no permission to beat"), RuntimeError("a defect")])
async def test_a_heart_goes_on_whatever_went_wrong_and_tells_it_once(book, fault):
    clock, line, ears = VirtualClock(), Flaky(book), Ears()
    line.refusal = fault
    async with Heartbeat(line, clock, name="me", vitals=Vitals, troubles=ears):

        async def tried() -> bool:
            clock.advance(5)
            return line.beats > 3

        await until(tried)
        [trouble] = ears.heard
        assert isinstance(trouble, Trouble)
        assert str(fault) in trouble.message
        line.refusal = None

        async def entered() -> bool:
            clock.advance(5)
            return bool(await book.workers())

        await until(entered)
    assert await book.workers() == []


async def test_whoever_beats_forgets_cards_of_more_than_an_hour(book):
    clock = VirtualClock()
    for name, age in (("recent", 3500), ("old", 3700)):
        at = clock.now() - age
        await book.beat(
            WorkerCard(name=name, host="h", pid=1, version="1", started_at=at, seen_at=at, serves="browser")
        )  # serves what "me" does not, which is no replacement for it
    async with Heartbeat(book, clock, name="me", vitals=Vitals):

        async def forgotten() -> bool:
            return [card.name for card in await book.workers()] == ["me", "recent"]

        await until(forgotten)


def test_the_workers_of_one_living_process_are_not_gone():
    name = worker_name()
    assert not is_gone(name)
    assert not is_gone(numbered_name(name, 3))
    host, pid, start = name.split("/")
    born, world = start.split("-")
    assert is_gone(numbered_name(f"{host}/{pid}/{int(born) + 1}-{world}", 3))
    assert not is_gone(numbered_name(f"{host}/{pid}/{int(born) + 1}-elsewhere", 3))


async def test_fewer_slots_leave_those_in_use_alone_and_more_are_free_at_once():
    slots = Slots(4)
    taken = [slots.take("x.example") for _ in range(3)]
    slots.resize(2)
    assert (slots.free, slots.busy) == (0, 3)
    taken.pop().leave()
    taken.pop().leave()
    assert slots.free == 1
    slots.changed.clear()
    slots.resize(8)
    assert slots.changed.is_set()
    assert slots.free == 7
    taken.pop().leave()
