"""Stores that are copied while workers go on: the copy is one that a crash could have left, and work goes on there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gossamer.backends.records.stream as record_stream
import gossamer.backends.redis.state_stream as redis_stream
import gossamer.backends.sqlite.state_stream as sqlite_stream
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable
from gossamer.frontier.state_rows import StateCounts, StateRow
from gossamer.model.item_account import ItemCounts
from gossamer.model.stream import RowStream
from gossamer.model.task import UrlState
from gossamer.store.contract import RecordQuery, SentNote
from gossamer.store.record_rows import DumpedPage, DumpedRecord

from .frontiers import Backends, Lab, candidate
from .stores import NOW, RECORD_STORES, book, visit

PAGES, HOSTS = 150, 7
STATES = ("sqlite", "valkey", "shards", "cluster")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (redis_stream, sqlite_stream, record_stream):
        monkeypatch.setattr(module, "BATCH", 4)


def url(number: int) -> str:
    return f"https://shop{number % HOSTS}.example/{number}"


async def work(lab: Lab, job: str, pages: int) -> list[str]:
    """Settle up to so many pages. Each links to four others, most of them of other sites."""
    done = []
    while len(done) < pages and (leases := (await lab.frontier.lease(job, "w", 1)).leases):
        lab.clock.advance(0.001)
        number = int(leases[0].task.url.rpartition("/")[2])
        links = [candidate(url(one)) for one in range(3 * number, 3 * number + 4) if 0 < one < PAGES]
        if number % 10 == 7:
            await lab.frontier.bury(leases[0], "client-error-404", "no", links)
        else:
            await lab.frontier.complete(leases[0], UrlState.DONE, discovered=links, stats={"pages": 1})
        done.append(leases[0].task.url)
        lab.clock.advance(0.001)
    return done


async def copy_of(stream: RowStream[Any], meanwhile: Callable[[], Any]) -> list[Any]:
    rows: list[Any] = []
    async with aclosing(stream.dump()) as batches:
        async for batch in batches:
            rows += batch
            await meanwhile()
    return rows


async def load(rows: Sequence[StateRow], target: RowStream[Any]) -> None:
    await target.clear()
    await target.load(rows)
    await target.finish()


@pytest.mark.parametrize("name", STATES)
async def test_a_queue_that_is_copied_at_work_goes_on_elsewhere_and_no_page_is_lost(
    name: str, backends: Backends, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(backends.open(name, tmp_path / "source"))
        target = await stack.enter_async_context(backends.open("sqlite", tmp_path / "target"))
        worker = await stack.enter_async_context(source.again())
        job = (await source.job("books", max_urls_per_site=PAGES)).id
        await source.frontier.add(job, [candidate(url(0)), candidate(url(1))])
        await source.jobs.seal_seeds(job)
        before = await work(worker, job, 40)
        (held,) = (await worker.frontier.lease(job, "slow", 1)).leases
        target.clock.advance(source.clock.now() - target.clock.now())

        # when the state is copied, and pages are settled between any two batches
        meanwhile: list[str] = []

        async def go_on() -> None:
            meanwhile.extend(await work(worker, job, 1))

        rows = await copy_of(source.stream, go_on)
        assert len(meanwhile) > 20
        await load(rows, target.stream)

        # then it is all there is, and the account adds up
        counted = StateCounts()
        counted.offer(rows)
        assert await target.stream.counts() == counted.counts()
        counts = await target.jobs.counts(job)
        assert counts.leased == 0
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates
        assert counts.stats["pages"] == counts.done  # what is counted with a settlement belongs to it

        # and it goes on to its end: nothing is missing, and nothing is done again that was done before
        again = await work(target, job, 10 * PAGES)
        states = {found: state async for found, state, _ in target.queue.urls(job)}
        assert {url(one) for one in range(PAGES)} == set(states)
        assert set(states.values()) == {UrlState.DONE, UrlState.DEAD}
        assert held.task.url in again
        assert not set(again) & set(before)
        counts = await target.jobs.counts(job)
        assert counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates
        assert counts.stats["pages"] == counts.done


@pytest.mark.parametrize("name", ["valkey"])
async def test_a_copy_in_which_urls_are_missing_is_refused(name: str, backends: Backends, tmp_path: Path) -> None:
    async with backends.open(name, tmp_path) as source, source.again() as other:
        job = (await source.job("books")).id
        await source.frontier.add(job, [candidate(url(one)) for one in range(PAGES)])
        stream = other.stream
        key = stream._key(0, (await stream._jobs.rows())[0], "urls")  # type: ignore[attr-defined]

        async def lose() -> None:
            name = candidate(url(PAGES - 1)).fingerprint
            await stream._server.call("HDEL", key, name)  # type: ignore[attr-defined]

        with pytest.raises(BackendUnavailable, match=r"149 of 150 URLs of books-1 were found"):
            await copy_of(source.stream, lose)


async def test_a_copy_during_which_the_clock_was_set_back_is_refused(
    backends: Backends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backends.open("valkey", tmp_path) as source:
        job = (await source.job("books")).id
        await source.frontier.add(job, [candidate(url(one)) for one in range(9)])
        ticks = iter(range(0, 100_000, 10))
        monkeypatch.setattr(source.stream._server, "ticks", lambda: next(ticks))  # type: ignore[attr-defined]

        async def nothing() -> None:
            pass

        with pytest.raises(BackendUnavailable, match="was set back"):
            await copy_of(source.stream, nothing)


@pytest.fixture(params=["sqlite", "postgres"])
def store_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_records_that_are_copied_at_work_are_as_of_one_moment(store_name: str, tmp_path: Path) -> None:
    open_store = RECORD_STORES[store_name]
    clock = VirtualClock(NOW)
    async with (
        open_store(tmp_path / "here", clock, None) as source,
        open_store(tmp_path / "here", clock, None) as worker,
        open_store(tmp_path / "there", clock, None) as target,
    ):
        stored = 0

        async def store() -> None:
            nonlocal stored
            page = f"https://shop.example/{stored}"
            one = visit(page, book(str(stored)), at=NOW + stored, job="books-1")
            await worker.save([msgspec.structs.replace(one, items=ItemCounts(yielded=1))])
            note = SentNote(job="books-1", fingerprint=candidate(page).fingerprint, owner="me", at=NOW)
            assert await worker.note_sent(note)
            stored += 1

        for _ in range(10):
            await store()
        rows = await copy_of(source.stream, store)
        assert stored > 14

        found = {kind: sum(isinstance(row, kind) for row in rows) for kind in (DumpedPage, DumpedRecord, SentNote)}
        assert found == {DumpedPage: 10, DumpedRecord: 10, SentNote: 10}
        await load(rows, target.stream)
        assert await target.count(RecordQuery()) == (await target.items("books-1")).yielded == 10
        # A request that may be out is not sent by the other stack.
        note = SentNote(
            job="books-1", fingerprint=candidate("https://shop.example/3").fingerprint, owner="other", at=NOW
        )
        assert not await target.note_sent(note)


@pytest.mark.parametrize("way", [("sqlite", "postgres"), ("postgres", "sqlite")], ids="-to-".join)
async def test_a_page_that_is_stored_again_elsewhere_is_counted_as_it_was(way: tuple[str, str], tmp_path: Path) -> None:
    clock = VirtualClock(NOW)
    async with (
        RECORD_STORES[way[0]](tmp_path / "here", clock, None) as source,
        RECORD_STORES[way[1]](tmp_path / "there", clock, None) as target,
    ):
        pages = [f"https://shop.example/{number}" for number in range(3)]
        first, equal, other = (book("b1"), book("b1"), book("b1", price=9))
        visits = [
            msgspec.structs.replace(visit(page, one, at=NOW + n, job="books-1"), items=ItemCounts(yielded=1))
            for n, (page, one) in enumerate(zip(pages, (first, equal, other), strict=True))
        ]
        await source.save(visits)
        before = (await source.items("books-1")).states()
        assert before == {"new": 1, "equal": 1, "conflict": 1}

        await load([row async for batch in source.stream.dump() for row in batch], target.stream)
        await target.save(visits)  # their pages were queued in the copy of the state

        assert (await target.items("books-1")).states() == before


async def test_notes_of_sent_requests_go_along(tmp_path: Path) -> None:
    clock = VirtualClock(NOW)
    async with (
        RECORD_STORES["postgres"](tmp_path / "here", clock, None) as source,
        RECORD_STORES["sqlite"](tmp_path / "there", clock, None) as target,
    ):
        notes = [
            SentNote(job=f"books-{n % 3}", fingerprint=bytes([n]) * 16, owner=str(n), at=NOW + n) for n in range(9)
        ]
        for note in notes:
            assert await source.note_sent(note)

        async def nothing() -> None:
            pass

        rows = await copy_of(source.stream, nothing)
        assert sorted(rows, key=lambda row: row.at) == notes
        await load(rows, target.stream)
        assert await target.stream.counts() == await source.stream.counts() == {"notes of sent requests": 9}
