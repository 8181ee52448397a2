"""The sink with a spool: while the store is away results wait on disk, and none is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite import connection
from gossamer.backends.sqlite.records import SqliteRecords, open_sqlite_records
from gossamer.clock import Clock, SystemClock, VirtualClock
from gossamer.errors import BackendUnavailable
from gossamer.model.events import Spooled, Trouble
from gossamer.model.record import PageResult
from gossamer.store.contract import RecordQuery
from gossamer.store.sink import Sink
from gossamer.store.spool import Spool
from tests.patience import PATIENCE, until

from ..conformance.stores import book, result, tried
from .spooling import Ears, Fickle, FickleArchive, all_stored, disk_ends_after, flip_in_a_frame, snap, visit
from .spooling import ears as ears
from .spooling import sqlite as sqlite
from .spooling import store as store


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[FickleArchive]:
    async with FolderArchive(tmp_path / "archive", level=1, writer="w", durable=False) as opened:
        yield FickleArchive(opened)


@pytest.fixture
def new_sink(tmp_path: Path, ears: Ears) -> Callable[..., Sink]:
    def make(
        store: Fickle | SqliteRecords,
        archive: FickleArchive | None = None,
        *,
        clock: Clock | None = None,
        max_bytes: int | None = None,
        **options: Any,
    ) -> Sink:
        spool = Spool(tmp_path / "spool", max_bytes=max_bytes)
        options = {"drain_within": timedelta(seconds=PATIENCE), **options}
        return Sink(store, archive, spool=spool, events=ears, clock=clock, **options)  # type: ignore[arg-type]  # doubles

    return make


async def keys_in(store: Fickle | SqliteRecords) -> list[str]:
    return [record.key async for record in store.records(RecordQuery())]  # type: ignore[operator]


async def test_while_the_store_answers_nothing_is_spooled(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, tmp_path: Path
) -> None:
    async with new_sink(store) as sink:
        assert await asyncio.gather(*(sink.keep(visit(n)) for n in range(10))) == [1] * 10
        assert list((tmp_path / "spool").glob("*.spool*")) == []
    assert ears.heard == []


async def test_results_wait_while_the_store_is_away_and_are_stored_in_order(
    store: Fickle, archive: FickleArchive, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    clock = VirtualClock()
    async with new_sink(store, archive, clock=clock) as sink:
        assert await sink.keep(visit(0), snap(0)) == 1
        store.down = True
        for n in range(1, 200):
            assert await sink.keep(visit(n), snap(n)) == 0
        assert sink.away
        assert await keys_in(sqlite) == ["0"]

        store.down = False
        clock.advance(60)
        await ears.hear(all_stored)
        assert not sink.away
        assert store.saved == [str(n) for n in range(200)]
        assert await sink.keep(visit(200), snap(200)) == 1
    for n in range(200):
        fingerprint = visit(n).attempt.fingerprint
        [page] = await sqlite.visits(fingerprint)
        assert await archive.get(page.archive_ref) == snap(n)
        assert len(await sqlite.attempts(fingerprint)) == 1


async def test_the_store_is_probed_with_growing_pauses_not_once_per_page(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears
) -> None:
    clock = VirtualClock()
    store.down = True
    async with new_sink(store, clock=clock) as sink:
        await sink.keep(visit(0))
        await ears.hear(lambda event: isinstance(event, Trouble) and store.asked == 2)  # by the sink, by the drain
        asked = store.asked
        for n in range(1, 100):
            await sink.keep(visit(n))
        assert store.asked == asked <= 2

        pauses = []
        for _ in range(7):
            pauses.append(clock.next_due - clock.now())
            store.asked_again.clear()
            clock.advance(pauses[-1])
            await store.asked_again.wait()
            await until(lambda: clock.sleepers, every=0)
        assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
        store.down = False


async def test_a_store_that_refuses_us_blames_no_result_and_is_told_once(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords, tmp_path: Path
) -> None:
    # given a store whose password was changed
    clock = VirtualClock()
    store.refusal = "The store refused the password."
    async with new_sink(store, clock=clock) as sink:
        assert await asyncio.gather(*(sink.keep(visit(n)) for n in range(6))) == [0] * 6
        # when it is asked again and again
        async with asyncio.timeout(PATIENCE):
            for _ in range(5):
                store.asked_again.clear()
                await until(lambda: clock.sleepers, every=0)
                clock.advance(10)
                await store.asked_again.wait()
        # then all wait, and one line says why
        assert sink.away
        assert [event.message for event in ears.heard if isinstance(event, Trouble)] == [store.refusal]
        assert list((tmp_path / "spool").rglob("*.bad")) == []
        store.refusal = ""
        await until(lambda: not sink.away, between=lambda: clock.advance(10), every=0.001)
    assert await keys_in(sqlite) == [str(n) for n in range(6)]


async def test_leaving_a_store_that_refuses_us_keeps_the_results_for_the_next_start(
    store: Fickle, new_sink: Callable[..., Sink], sqlite: SqliteRecords
) -> None:
    store.refusal = "The store refused the password."
    async with new_sink(store, clock=VirtualClock()) as sink:
        await sink.keep(visit(1))
    store.refusal = ""
    async with new_sink(store):
        pass
    assert await keys_in(sqlite) == ["1"]


async def test_an_archive_that_is_away_is_waited_for_as_well(
    store: Fickle, archive: FickleArchive, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    clock = VirtualClock()
    archive.down = True
    async with new_sink(store, archive, clock=clock) as sink:
        assert await asyncio.gather(*(sink.keep(visit(n), snap(n)) for n in range(5))) == [0] * 5
        assert store.asked == 0
        archive.down = False
        clock.advance(60)
        await ears.hear(all_stored)
    for n in range(5):
        [page] = await sqlite.visits(visit(n).attempt.fingerprint)
        assert await archive.get(page.archive_ref) == snap(n)


async def test_probing_a_store_does_not_archive_the_pages_again(
    store: Fickle, archive: FickleArchive, new_sink: Callable[..., Sink], ears: Ears
) -> None:
    clock = VirtualClock()
    store.down = archive.down = True
    async with new_sink(store, archive, clock=clock) as sink:
        await asyncio.gather(*(sink.keep(visit(n), snap(n)) for n in range(3)))  # spooled with their pages
        archive.down = False
        await until(lambda: store.asked >= 6, between=lambda: clock.advance(5 if clock.sleepers else 0), every=0)
        store.down = False
        clock.advance(5)
        await ears.hear(all_stored)
    assert archive.pages == 3


async def test_a_page_that_is_archived_is_not_spooled(
    store: Fickle, archive: FickleArchive, new_sink: Callable[..., Sink], tmp_path: Path
) -> None:
    store.down = True
    async with new_sink(store, archive, clock=VirtualClock()) as sink:
        await sink.keep(visit(0), snap(0, os.urandom(50_000)))
        assert sink.spooled_bytes < 15_000
        store.down = False
    assert archive.pages == 1


async def test_a_full_spool_refuses_until_the_store_is_back(
    store: Fickle, archive: FickleArchive, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    clock = VirtualClock()
    store.down = archive.down = True
    async with new_sink(store, archive, clock=clock, max_bytes=40_000) as sink:
        kept, refused = [], []
        for n in range(40):
            try:
                await sink.keep(visit(n), snap(n, os.urandom(2000)))
                kept.append(str(n))
            except BackendUnavailable as error:
                refused.append(str(error))
        assert 5 < len(kept) < 15
        assert all("store.spool_limit" in message for message in refused)
        store.down = archive.down = False
        clock.advance(60)
        await ears.hear(all_stored)
        assert await keys_in(sqlite) == kept
        assert await sink.keep(visit(40), snap(40)) == 1


async def test_a_spool_that_cannot_take_the_first_result_names_both_troubles(
    store: Fickle, new_sink: Callable[..., Sink]
) -> None:
    store.down = True
    async with new_sink(store, max_bytes=10) as sink:
        with pytest.raises(BackendUnavailable, match=r"The store is away\. The spool .* is full"):
            await sink.keep(visit(0))


async def test_a_disk_that_is_full_refuses_and_goes_on_later(
    store: Fickle, new_sink: Callable[..., Sink], sqlite: SqliteRecords
) -> None:
    store.down = True
    async with new_sink(store, clock=VirtualClock()) as sink:
        with disk_ends_after(100), pytest.raises(BackendUnavailable, match="Free some space"):
            await sink.keep(visit(0))
        assert await sink.keep(visit(1)) == 0
        store.down = False
    assert await keys_in(sqlite) == ["1"]


async def test_what_stays_behind_is_told_and_stored_after_the_restart(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords, tmp_path: Path
) -> None:
    store.down = True
    async with new_sink(store) as sink:
        await asyncio.gather(*(sink.keep(visit(n)) for n in range(30)))
    left = ears.heard[-1]
    assert isinstance(left, Spooled)
    assert left.bytes > 0
    assert "30 results of books-1 stay in" in left.message
    assert "The next worker that starts on this machine stores them" in left.message

    store.down = False
    ears.heard.clear()
    async with new_sink(store):
        await ears.hear(all_stored)
    assert await keys_in(sqlite) == [str(n) for n in range(30)]
    assert list((tmp_path / "spool").glob("*.spool*")) == []


async def test_leaving_empties_the_spool_when_the_store_is_back(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    store.down = True
    async with new_sink(store, clock=VirtualClock()) as sink:  # whose pauses never end
        await asyncio.gather(*(sink.keep(visit(n)) for n in range(30)))
        store.down = False
    assert await keys_in(sqlite) == [str(n) for n in range(30)]
    assert all_stored(ears.heard[-1])


async def test_leaving_does_not_wait_for_a_store_that_hangs(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(results: Sequence[PageResult]) -> list[int]:
        await asyncio.Event().wait()
        return []

    store.down = True
    async with new_sink(store, clock=VirtualClock(), drain_within=timedelta(milliseconds=20)) as sink:
        await sink.keep(visit(0))
        monkeypatch.setattr(store, "save", hang)
    left = ears.heard[-1]
    assert isinstance(left, Spooled)
    assert left.bytes > 0


async def test_results_that_come_in_while_the_spool_is_emptied_go_behind(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    clock = VirtualClock()
    store.down = True
    async with new_sink(store, clock=clock) as sink:
        await asyncio.gather(*(sink.keep(visit(n)) for n in range(500)))
        store.down = False
        clock.advance(60)
        for n in range(500, 700):
            await sink.keep(visit(n))
        await until(lambda: not sink.away, every=0)
        assert store.saved == [str(n) for n in range(700)]
    assert len(await keys_in(sqlite)) == 700


async def test_a_store_that_comes_and_goes_loses_and_doubles_nothing(
    store: Fickle, archive: FickleArchive, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    clock = VirtualClock()
    async with new_sink(store, archive, clock=clock) as sink, asyncio.TaskGroup() as journeys:
        for n in range(400):
            if n % 37 == 0:
                store.down = not store.down
            if n % 53 == 0:
                archive.down = not archive.down
            journeys.create_task(sink.keep(visit(n), snap(n)))
            if n % 5 == 0:
                clock.advance(5)
                await asyncio.sleep(0)
        store.down = archive.down = False
    assert sorted(await keys_in(sqlite), key=int) == [str(n) for n in range(400)]
    for n in range(400):
        fingerprint = visit(n).attempt.fingerprint
        assert len(await sqlite.attempts(fingerprint)) == 1
        [page] = await sqlite.visits(fingerprint)
        assert await archive.get(page.archive_ref) == snap(n)


async def test_a_spooled_result_that_can_never_be_stored_is_set_aside(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords, tmp_path: Path
) -> None:
    clock = VirtualClock()
    poison = result(attempt=tried("https://shop.example/poison", latency=0.5, bytes=1 << 63))
    store.down = True
    async with new_sink(store, clock=clock) as sink:
        await asyncio.gather(sink.keep(visit(1)), sink.keep(poison), sink.keep(visit(2)))
        store.down = False
        clock.advance(60)
        await ears.hear(all_stored)
    assert await keys_in(sqlite) == ["1", "2"]
    [bad] = (tmp_path / "spool").glob("*.bad")
    assert any(isinstance(event, Trouble) and str(bad) in event.message for event in ears.heard)


async def test_damage_on_the_disk_is_told_by_an_event(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords, tmp_path: Path
) -> None:
    store.down = True
    async with new_sink(store, clock=VirtualClock()) as sink:
        for n in range(3):
            await sink.keep(visit(n))
    [file] = (tmp_path / "spool").glob("*.spool")
    flip_in_a_frame(file, 1)
    store.down = False
    async with new_sink(store):
        await ears.hear(all_stored)
    assert len(await keys_in(sqlite)) == 2
    assert any(isinstance(event, Trouble) and event.stage == "spool" for event in ears.heard)


async def test_a_locked_sqlite_file_is_sat_out(
    tmp_path: Path, new_sink: Callable[..., Sink], ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT", timedelta(milliseconds=20))
    clock = VirtualClock()
    async with open_sqlite_records(tmp_path / "locked.db", SystemClock()) as records:
        other = sqlite3.connect(tmp_path / "locked.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # somebody else holds the file
        async with new_sink(records, clock=clock) as sink:
            assert await asyncio.gather(*(sink.keep(visit(n)) for n in range(20))) == [0] * 20
            assert await keys_in(records) == []
            other.execute("ROLLBACK")
            other.close()
            clock.advance(60)
            await ears.hear(all_stored)
            assert await keys_in(records) == [str(n) for n in range(20)]
            assert await sink.keep(visit(20)) == 1


async def test_a_cancelled_sink_leaves_the_spool_for_the_next(
    store: Fickle, new_sink: Callable[..., Sink], ears: Ears, sqlite: SqliteRecords
) -> None:
    store.down = True
    sink = new_sink(store)

    async def serve() -> None:
        async with sink:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        server = group.create_task(serve())
        await until(lambda: sink._open, every=0)
        await asyncio.gather(*(sink.keep(visit(n)) for n in range(10)))
        server.cancel()
    store.down = False
    async with new_sink(store):
        await ears.hear(all_stored)
    assert await keys_in(sqlite) == [str(n) for n in range(10)]


class Counter:
    """A store that only counts: what is measured is the spool's memory, not the store's."""

    def __init__(self) -> None:
        self.down = True
        self.saved = 0
        self.highest = 0

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if self.down:
            raise BackendUnavailable("The store is away.")
        self.saved += len(results)
        self.highest = max(self.highest, tracemalloc.get_traced_memory()[0])
        return [0] * len(results)


@pytest.mark.long
async def test_a_long_spool_is_emptied_in_flat_memory(tmp_path: Path, ears: Ears) -> None:
    body = os.urandom(1000)
    pages = 20_000
    counter = Counter()
    clock = VirtualClock()
    spool = Spool(tmp_path / "spool", max_bytes=None)
    async with Sink(counter, None, spool=spool, events=ears, clock=clock) as sink:  # type: ignore[arg-type]
        template = result(book("x", text=body.hex()), attempt=tried())
        for _ in range(0, pages, 200):
            await asyncio.gather(*(sink.keep(msgspec.structs.replace(template)) for _ in range(200)))
        waited = spool.size
        tracemalloc.start()
        try:
            counter.down = False
            clock.advance(60)
            await ears.hear(all_stored)
        finally:
            tracemalloc.stop()
    assert counter.saved == pages
    assert waited > 20_000_000
    assert counter.highest < 12_000_000
