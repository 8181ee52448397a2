"""The sink: many callers, few batches, nothing lost and nobody left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite.records import SqliteRecords, open_sqlite_records
from gossamer.clock import SystemClock
from gossamer.errors import BackendUnavailable, BadState, Misconfigured
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageResult
from gossamer.store.contract import RecordQuery
from gossamer.store.sink import Sink

from ..conformance.stores import NOW, book, page_of, result, tried


class Sluice:
    """A real store behind a gate that the test opens, and a note of every batch that went through."""

    def __init__(self, store: SqliteRecords) -> None:
        self._store = store
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()
        self.batches: list[int] = []
        self.down = False
        self.refusal: Misconfigured | None = None

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        self.batches.append(len(results))
        self.entered.set()
        await self.gate.wait()
        if self.down:
            raise BackendUnavailable("The store is away.")
        if self.refusal is not None:
            raise self.refusal
        return await self._store.save(results)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    async with open_sqlite_records(tmp_path / "records.db", SystemClock()) as opened:
        yield opened


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[FolderArchive]:
    async with FolderArchive(tmp_path / "archive", level=1, writer="w") as opened:
        yield opened


def visit(n: int, **fields: object) -> PageResult:
    url = f"https://shop.example/{n}"
    return result(book(f"{n}", n=n, **fields), page=page_of(url), attempt=tried(url))


def snap(n: int) -> Snapshot:
    url = f"https://shop.example/{n}"
    return Snapshot(
        url=url, requested_url=url, status=200, headers=Headers(), body=f"page {n}".encode(), fetched_at=NOW
    )


async def test_a_kept_page_can_be_found_and_read_again(store: SqliteRecords, archive: FolderArchive) -> None:
    async with Sink(store, archive) as sink:
        changed = await asyncio.gather(*(sink.keep(visit(n), snap(n)) for n in range(10)))
        assert changed == [1] * 10
        assert await sink.keep(visit(3), snap(3)) == 0
    for n in range(10):
        page = visit(n).attempt.fingerprint
        facts = (await store.facts([page]))[page]
        assert await archive.get(facts.archive_ref) == snap(n)
        assert [(await archive.get(v.archive_ref)).body for v in await store.visits(page)] == [f"page {n}".encode()]


async def test_without_an_archive_records_are_kept_all_the_same(store: SqliteRecords) -> None:
    async with Sink(store, None) as sink:
        assert await sink.keep(visit(1), snap(1)) == 1
    page = visit(1).attempt.fingerprint
    assert (await store.facts([page]))[page].archive_ref == ""
    assert await store.visits(page) == []


async def test_pages_with_and_without_a_raw_copy_mix_in_a_batch(store: SqliteRecords, archive: FolderArchive) -> None:
    async with Sink(store, archive) as sink:
        await asyncio.gather(*(sink.keep(visit(n), snap(n) if n % 2 else None) for n in range(6)))
        await sink.keep(result(attempt=tried("https://shop.example/failed", outcome="retry")))
    refs = [await store.facts([visit(n).attempt.fingerprint]) for n in range(6)]
    bodies = [
        (await archive.get(facts.archive_ref)).body if facts.archive_ref else None
        for found in refs
        for facts in found.values()
    ]
    assert bodies == [None, b"page 1", None, b"page 3", None, b"page 5"]


async def test_what_arrives_during_a_write_makes_up_the_next_batch(store: SqliteRecords) -> None:
    sluice = Sluice(store)
    sluice.gate.clear()
    async with Sink(sluice, None, max_batch=10) as sink, asyncio.TaskGroup() as journeys:
        journeys.create_task(sink.keep(visit(0)))
        await sluice.entered.wait()
        for n in range(1, 24):
            journeys.create_task(sink.keep(visit(n)))
        await asyncio.sleep(0)
        sluice.gate.set()
    assert sluice.batches == [1, 10, 10, 3]
    assert await store.count(RecordQuery()) == 24


async def test_a_full_sink_makes_its_callers_wait(store: SqliteRecords) -> None:
    sluice = Sluice(store)
    sluice.gate.clear()
    async with Sink(sluice, None, max_batch=2, max_waiting=4) as sink, asyncio.TaskGroup() as journeys:
        tasks = [journeys.create_task(sink.keep(visit(n))) for n in range(9)]
        await sluice.entered.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        sluice.gate.set()
    assert [task.result() for task in tasks] == [1] * 9
    assert sum(sluice.batches) == 9


async def test_a_store_that_is_away_fails_the_whole_batch_and_the_next_one_succeeds(
    store: SqliteRecords, archive: FolderArchive
) -> None:
    sluice = Sluice(store)
    sluice.down = True
    async with Sink(sluice, archive) as sink:
        outcomes = await asyncio.gather(*(sink.keep(visit(n), snap(n)) for n in range(5)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 5
        assert await store.count(RecordQuery()) == 0
        sluice.down = False
        assert await asyncio.gather(*(sink.keep(visit(n), snap(n)) for n in range(5))) == [1] * 5


@pytest.mark.parametrize("refusal", [Misconfigured("The password was refused."), BadState("The tables are gone.")])
async def test_a_store_that_refuses_us_is_away_for_every_caller_and_no_result_is_tried_alone(
    store: SqliteRecords, refusal: Misconfigured
) -> None:
    sluice = Sluice(store)
    sluice.refusal = refusal
    async with Sink(sluice, None) as sink:
        outcomes = await asyncio.gather(*(sink.keep(visit(n)) for n in range(5)), return_exceptions=True)
        assert [(type(outcome), str(outcome)) for outcome in outcomes] == [(BackendUnavailable, str(refusal))] * 5
        assert sluice.batches == [5]
        sluice.refusal = None
        assert await asyncio.gather(*(sink.keep(visit(n)) for n in range(5))) == [1] * 5


async def test_an_archive_that_fails_keeps_its_records_back(store: SqliteRecords, tmp_path: Path) -> None:
    closed = FolderArchive(tmp_path / "closed", level=1, writer="w")
    async with Sink(store, closed) as sink:
        with pytest.raises(BackendUnavailable):
            await sink.keep(visit(1), snap(1))
    assert await store.count(RecordQuery()) == 0


async def test_a_result_that_cannot_be_stored_fails_alone(store: SqliteRecords, archive: FolderArchive) -> None:
    poison = result(attempt=tried("https://shop.example/poison", bytes=1 << 80))
    async with Sink(store, archive) as sink:
        outcomes = await asyncio.gather(
            sink.keep(visit(1), snap(1)), sink.keep(poison), sink.keep(visit(2), snap(2)), return_exceptions=True
        )
    assert (outcomes[0], outcomes[2]) == (1, 1)
    assert isinstance(outcomes[1], OverflowError)
    assert await store.count(RecordQuery()) == 2


async def test_a_caller_that_gives_up_in_time_leaves_nothing(store: SqliteRecords) -> None:
    sluice = Sluice(store)
    sluice.gate.clear()
    async with Sink(sluice, None) as sink, asyncio.TaskGroup() as journeys:
        journeys.create_task(sink.keep(visit(1)))
        await sluice.entered.wait()
        given_up = journeys.create_task(sink.keep(visit(2)))
        journeys.create_task(sink.keep(visit(3)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        sluice.gate.set()
    assert sorted([record.key async for record in store.records(RecordQuery())]) == ["1", "3"]


async def test_leaving_the_sink_stores_what_is_waiting(store: SqliteRecords) -> None:
    sluice = Sluice(store)
    sluice.gate.clear()
    sink = Sink(sluice, None, max_batch=2)
    async with asyncio.TaskGroup() as journeys, sink:
        tasks = [journeys.create_task(sink.keep(visit(n))) for n in range(7)]
        await sluice.entered.wait()
        sluice.gate.set()
    assert [task.result() for task in tasks] == [1] * 7
    assert await store.count(RecordQuery()) == 7
    with pytest.raises(BackendUnavailable, match="closed"):
        await sink.keep(visit(8))


async def test_a_sink_that_is_cancelled_lets_its_callers_go(store: SqliteRecords) -> None:
    sluice = Sluice(store)
    sluice.gate.clear()
    sink = Sink(sluice, None, max_batch=1)

    async def serve() -> None:
        async with sink:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        server = group.create_task(serve())
        await asyncio.sleep(0)
        callers = [asyncio.ensure_future(sink.keep(visit(n))) for n in range(3)]
        await sluice.entered.wait()
        server.cancel()  # leaves the block: flushing begins
        await asyncio.sleep(0)
        server.cancel()  # and is cut short
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 3


async def test_a_snapshot_needs_facts_that_refer_to_it(store: SqliteRecords) -> None:
    async with Sink(store, None) as sink:
        with pytest.raises(ValueError, match="page facts"):
            await sink.keep(result(attempt=tried()), snap(1))
