"""Results that wait are noted in the shared state before their pages are done, and a note goes when they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gossamer.clock import Clock, SystemClock, VirtualClock
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.model.events import Trouble
from gossamer.model.record import PageResult
from gossamer.store.contract import SpoolNote
from gossamer.store.sink import Sink
from gossamer.store.spool import Spool
from gossamer.store.spool_drain import AWAY_FOR, INSIST, LOOK
from gossamer.store.spool_notes import SpoolNotes
from tests.patience import PATIENCE, until

from ..conformance.frontiers import sqlite_lab
from ..conformance.stores import NOW
from .spooling import Ears, Fickle, all_stored, visit
from .spooling import ears as ears
from .spooling import sqlite as sqlite
from .spooling import store as store


class Book:
    """The book of a real state, which can be away."""

    def __init__(self, book: object) -> None:
        self._book = book
        self.down = False
        self.asked = asyncio.Event()

    def __getattr__(self, name: str) -> object:
        self.asked.set()
        if self.down:
            raise BackendUnavailable("The state is away.")
        return getattr(self._book, name)

    async def waiting(self) -> dict[str, int]:
        notes: Sequence[SpoolNote] = await self._book.notes()  # type: ignore[attr-defined]
        return {job: count for note in notes for job, count in note.results.items()}


@pytest.fixture
async def book(tmp_path: Path) -> AsyncIterator[Book]:
    async with sqlite_lab(tmp_path) as lab:
        yield Book(lab.spools)


def sink_in(folder: Path, store: Fickle, book: Book, ears: Ears, clock: Clock | None = None) -> Sink:
    clock = clock or SystemClock()
    spool = Spool(folder / "spool", max_bytes=None, noted=True)
    notes = SpoolNotes(book, spool, clock, worker="here/7/1")  # type: ignore[arg-type]  # doubles
    within = timedelta(seconds=PATIENCE)
    return Sink(store, None, spool=spool, notes=notes, events=ears, clock=clock, drain_within=within)  # type: ignore[arg-type]  # doubles


def of_job(job: str, n: int) -> PageResult:
    result = visit(n)
    return msgspec.structs.replace(result, attempt=msgspec.structs.replace(result.attempt, job=job))


async def test_a_result_is_noted_when_its_page_may_be_done_and_the_note_goes_when_it_is_stored(
    tmp_path, store, book, ears
):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        store.down = True
        await sink.keep(of_job("books-1", 0))
        assert await book.waiting() == {"books-1": 1}
        await sink.keep(of_job("news-1", 1))
        assert (await book.waiting()).keys() == {"books-1", "news-1"}  # at once: a job that was not named yet

        store.down = False
        async with asyncio.timeout(PATIENCE):
            clock.advance(60)
            await sink.emptied()
        assert await book.waiting() == {}
    assert store.saved == ["0", "1"]
    assert list((tmp_path / "spool").glob("*.spool*")) == []


async def nothing_waits(book, clock):
    async def is_empty():
        return not await book.waiting()

    await until(is_empty, between=lambda: clock.advance(1), every=0.001)


async def test_the_note_stays_with_what_a_process_leaves_and_its_heir_takes_both(tmp_path, store, book, ears):
    store.down = True
    async with sink_in(tmp_path, store, book, ears) as sink:
        await asyncio.gather(*(sink.keep(of_job("books-1", n)) for n in range(40)))
    assert await book.waiting() == {"books-1": 40}

    async with sink_in(tmp_path, store, book, ears) as heir:

        async def its_own_note():
            notes = await book._book.notes()
            return notes if len(notes) == 1 else None

        async with asyncio.timeout(PATIENCE):
            await ears.hear(lambda event: isinstance(event, Trouble))  # it has tried
            (note,) = await until(its_own_note, every=0)
            assert note.results == {"books-1": 40}
            store.down = False
            await heir.emptied()
    assert await book.waiting() == {}
    assert len(set(store.saved)) == 40
    assert list((tmp_path / "spool").glob("*.spool*")) == []


async def test_while_the_state_is_away_no_page_is_done_whose_result_waits(tmp_path, store, book, ears):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        store.down = book.down = True
        keeping = asyncio.create_task(sink.keep(of_job("books-1", 0)))
        async with asyncio.timeout(PATIENCE):
            await ears.hear(lambda event: isinstance(event, Trouble) and "The state is away" in event.message)
            assert not keeping.done()
            book.down = False
            await until(keeping.done, between=lambda: clock.advance(1), every=0.001)
        assert await keeping == 0
        assert await book.waiting() == {"books-1": 1}


async def test_a_state_that_stays_away_fails_the_page_and_not_for_ever(tmp_path, store, book, ears):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        store.down = book.down = True
        keeping = asyncio.create_task(sink.keep(of_job("books-1", 0)))
        late = NOW + 10 * INSIST.total_seconds()
        await until(lambda: keeping.done() or clock.now() > late, between=lambda: clock.advance(1), every=0.001)
        with pytest.raises(BackendUnavailable, match="The state is away"):
            await keeping


async def test_a_note_that_could_not_be_taken_away_goes_with_the_next_start(tmp_path, store, book, ears):
    # given results that are stored while the state is away
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        store.down = True
        await sink.keep(of_job("books-1", 0))
        store.down, book.down = False, True
        await until(lambda: store.saved, between=lambda: clock.advance(60), every=0.001)
    assert await book.waiting() == {"books-1": 1}

    # when a process starts there later, then nothing says any more that something waits
    book.down = False
    async with sink_in(tmp_path, store, book, ears) as sink, asyncio.timeout(PATIENCE):
        await sink.emptied()
        assert await book.waiting() == {}
    assert list((tmp_path / "spool").glob("*.spool*")) == []


async def test_a_process_without_work_stores_what_another_one_left_that_died(tmp_path, store, book, ears):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as idle:
        async with asyncio.timeout(PATIENCE):
            await idle.emptied()
        store.down = True
        async with sink_in(tmp_path, store, book, Ears(), VirtualClock()) as dying:
            await dying.keep(of_job("books-1", 7))
        store.down = False
        assert await book.waiting() == {"books-1": 1}
        await until(lambda: store.saved, between=lambda: clock.advance(LOOK.total_seconds()), every=0.001)
        await nothing_waits(book, clock)
    assert store.saved == ["7"]


async def test_a_state_that_lost_the_note_gets_it_again(tmp_path, store, book, ears):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        store.down = True
        await sink.keep(of_job("books-1", 0))
        await book._book.take_away([note.name for note in await book._book.notes()])
        await until(book.waiting, between=lambda: clock.advance(1), every=0.001)
        assert await book.waiting() == {"books-1": 1}
        store.down = False


async def test_a_state_that_has_a_note_again_loses_it_again(tmp_path, store, book, ears):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink, asyncio.timeout(PATIENCE):
        store.down = True
        await sink.keep(of_job("books-1", 0))
        (note,) = await book._book.notes()
        store.down = False
        clock.advance(60)
        await sink.emptied()
        await book._book.note(note)  # the second in which it was taken away is lost
        await nothing_waits(book, clock)

        # and when its process has results again, their note stays
        store.down = True
        await sink.keep(of_job("news-1", 1))
        clock.advance(60)
        assert await book.waiting() == {"news-1": 1}
        store.down = False


async def test_a_note_whose_file_is_gone_is_removed_by_any_process_of_that_disk(tmp_path, store, book, ears):
    # given results that were stored by a process which has ended since
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink, asyncio.timeout(PATIENCE):
        store.down = True
        await sink.keep(of_job("books-1", 0))
        (note,) = await book._book.notes()
        store.down = False
        clock.advance(60)
        await sink.emptied()
    # when the state loses the second in which their note was taken away
    others = [
        msgspec.structs.replace(note, name="far-1-x", host="far"),
        msgspec.structs.replace(note, name="copy-1-x", disk="of another machine of this name"),
        msgspec.structs.replace(note, name="old-1-x", disk=""),
    ]
    for one in (note, *others):
        await book._book.note(one)
    # then the next process there removes it, and no note of another disk
    async with sink_in(tmp_path, store, book, ears) as heir:
        await heir.search_disk()
        assert {one.name for one in await book._book.notes()} == {"far-1-x", "copy-1-x", "old-1-x"}


async def test_results_are_counted_by_job_and_pages_are_known_to_wait(tmp_path, store, book, ears):
    async with sink_in(tmp_path, store, book, ears, VirtualClock()) as sink:
        store.down = True
        await asyncio.gather(*(sink.keep(of_job("books-1", n)) for n in range(5)))
        await asyncio.gather(*(sink.keep(of_job("news-1", n)) for n in range(5, 7)))
        assert sink.results == {"books-1": 5, "news-1": 2}
        assert sink.holds(visit(3).attempt.fingerprint)
        assert not sink.holds(visit(9).attempt.fingerprint)
        store.down = False
    assert all_stored(ears.heard[-1])
    assert sink.results == {}
    assert not sink.holds(visit(3).attempt.fingerprint)


async def test_a_record_store_that_hangs_counts_as_away_for_as_long_as_it_is_tried(
    tmp_path, store, book, ears, monkeypatch
):
    async def hang(results: Sequence[PageResult]) -> list[int]:
        hanging.set()
        await asyncio.Event().wait()
        return []

    clock, hanging = VirtualClock(), asyncio.Event()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        assert not sink.records_away
        store.down = True
        await sink.keep(of_job("books-1", 0))
        assert sink.records_away
        monkeypatch.setattr(store, "save", hang)
        await until(hanging.is_set, between=lambda: clock.advance(1), every=0.001)
        clock.advance(AWAY_FOR.total_seconds() * 5)
        assert sink.records_away
        monkeypatch.undo()


async def test_a_record_store_that_nobody_tries_is_asked_again_after_a_while(tmp_path, store, book, ears):
    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink:
        sink.records_failed()
        assert sink.records_away
        clock.advance(AWAY_FOR.total_seconds() + 1)
        assert not sink.records_away


async def test_a_state_that_refuses_a_note_once_does_not_end_the_draining(tmp_path, store, book, ears, monkeypatch):
    async def refuse(names: Sequence[str]) -> None:
        raise Misconfigured("NOPERM")

    clock = VirtualClock()
    async with sink_in(tmp_path, store, book, ears, clock) as sink, asyncio.timeout(PATIENCE):
        await sink.emptied()
        store.down = True
        await sink.keep(of_job("books-1", 0))
        monkeypatch.setattr(book, "take_away", refuse, raising=False)
        store.down = False
        await until(
            lambda: any(isinstance(event, Trouble) and "NOPERM" in event.message for event in ears.heard),
            between=lambda: clock.advance(1),
            every=0.001,
        )
        monkeypatch.undo()
        await nothing_waits(book, clock)
        await sink.emptied()
    assert store.saved == ["0"]


async def test_on_a_full_disk_what_another_process_left_is_stored(tmp_path, store, book, ears):
    store.down = True
    async with sink_in(tmp_path, store, book, ears) as sink:
        await sink.keep(of_job("books-1", 0))
    async with sink_in(tmp_path, store, book, ears) as heir, asyncio.timeout(PATIENCE):
        files = sorted((tmp_path / "spool").iterdir())
        await ears.hear(lambda event: isinstance(event, Trouble) and "store is away" in event.message)
        assert await book.waiting() == {"books-1": 1}
        assert sorted((tmp_path / "spool").iterdir()) == files  # nothing that needs room
        store.down = False
        await heir.emptied()
        assert await book.waiting() == {}
    assert store.saved == ["0"]


async def test_an_adopted_file_is_noted_under_its_new_process(tmp_path, store, book, ears):
    store.down = True
    async with sink_in(tmp_path, store, book, ears) as sink:
        await sink.keep(of_job("books-1", 0))
    (note,) = await book._book.notes()
    await book._book.note(msgspec.structs.replace(note, worker="there/7/1"))
    async with sink_in(tmp_path, store, book, ears):

        async def is_its_own() -> bool:
            return (await book._book.notes())[0].worker == "here/7/1"

        await until(is_its_own, every=0)
        (after,) = await book._book.notes()
        assert (after.name, after.results) == (note.name, {"books-1": 1})


async def test_who_waits_for_the_spool_to_be_emptied_lets_others_run(tmp_path, store, book, ears, monkeypatch):
    async with sink_in(tmp_path, store, book, ears, VirtualClock()) as sink:
        async with asyncio.timeout(PATIENCE):
            await sink.emptied()
        turns = iter([True] * 1000 + [False])  # a thread has just adopted something, and the drain does not know it yet
        monkeypatch.setattr(Sink, "away", property(lambda _: next(turns)))
        waiting = asyncio.create_task(sink.emptied())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        monkeypatch.undo()
