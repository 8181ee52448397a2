"""A worker whose stores are away: what it goes on asking, what it stops doing, and what it tells."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gossamer.backends.folder.archive import FolderArchive
from gossamer.errors import BackendUnavailable
from gossamer.fetch.fetcher import PageRequest
from gossamer.model.events import Trouble
from gossamer.model.url import fingerprint
from gossamer.store.sink import Sink
from gossamer.store.spool import Spool

from ..conformance.frontiers import candidate
from ..conformance.stores import page_of, result, tried
from .spooling import Fickle, FickleArchive, snap, visit
from .test_worker import PAGE, Bench, Road, bench

__all__ = ("bench",)  # a fixture

PAGES = 60


class Asking(Road):
    """Remembers with which ETag each page was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.etags: dict[str, str] = {}
        self.go.set()

    async def fetch(self, request: PageRequest, *rest: Any, **watching: Any) -> Any:
        self.etags[request.url] = request.etag
        return await super().fetch(request, *rest)


async def test_a_full_spool_stops_fetching_and_room_lets_it_go_on(bench: Bench, tmp_path: Path) -> None:
    # given a store that is away, and a spool with room for some pages only
    await bench.lab.frontier.add(bench.job, [candidate(f"https://s{n}.example/") for n in range(PAGES)])
    await bench.lab.jobs.seal_seeds(bench.job)
    store = Fickle(bench.records)
    store.down = True
    road, spool = Asking(), Spool(tmp_path / "spool", max_bytes=14_000)
    async with Sink(store, None, spool=spool, events=bench.ears, clock=bench.lab.clock) as bench.sink:  # type: ignore[arg-type]
        worker = bench.worker(road)
        running = asyncio.create_task(worker.run())
        await bench.until(lambda: spool.full and not worker.in_flight, step=0.05)
        fetched, asked = len(road.sent), len(bench.line.asked)
        assert 0 < (await bench.lab.jobs.counts(bench.job)).dropped < PAGES

        # when it stays away for minutes
        minutes_later = bench.lab.clock.now() + 300
        await bench.until(lambda: bench.lab.clock.now() >= minutes_later, step=1)

        # then nothing more is leased or fetched, and that is told once
        assert (len(road.sent), len(bench.line.asked)) == (fetched, asked)
        told = [event for event in bench.ears.of(Trouble) if event.stage == "spool" and "is full" in event.message]
        assert len(told) == 1

        # and when it is back, all pages are done
        store.down = False
        await bench.until(running.done, step=0.5)
        assert running.result() is True
    assert (await bench.lab.jobs.counts(bench.job)).dropped == PAGES
    assert len(set(store.saved)) >= 1


async def test_a_full_spool_does_not_hide_that_the_job_is_over(bench: Bench, tmp_path: Path) -> None:
    store = Fickle(bench.records)
    store.down = True
    spool = Spool(tmp_path / "spool", max_bytes=12_500)
    async with Sink(store, None, spool=spool, clock=bench.lab.clock) as bench.sink:  # type: ignore[arg-type]
        await asyncio.gather(*(bench.sink.keep(visit(n)) for n in range(30)), return_exceptions=True)
        assert bench.sink.full
        running = asyncio.create_task(bench.worker(Asking(), is_over=_yes).run())
        await bench.until(running.done, step=0.5)
        assert running.result() is True


async def _yes() -> bool:
    return True


async def test_while_the_archive_alone_is_away_the_record_store_is_asked_what_is_known(
    bench: Bench, tmp_path: Path
) -> None:
    # given three pages that are known, and an archive that is away; a newer result of the second waits on disk
    urls = [PAGE, visit(1).attempt.url, "https://new.example/"]
    known = [page_of(url, fingerprint=fingerprint(url), etag='"old"', parser="1") for url in urls[:2]]
    await bench.records.save([result(page=page, attempt=tried(page.url)) for page in known])
    async with FolderArchive(tmp_path / "pages", level=1, writer="w", durable=False) as opened:
        archive = FickleArchive(opened)
        archive.down = True
        spool = Spool(tmp_path / "spool", max_bytes=None)
        store = Fickle(bench.records)
        async with Sink(store, archive, spool=spool, clock=bench.lab.clock) as bench.sink:  # type: ignore[arg-type]
            newer = page_of(urls[1], fingerprint=fingerprint(urls[1]), etag='"new"', parser="1")
            attempt = tried(urls[1], fingerprint=fingerprint(urls[1]))
            await bench.sink.keep(result(page=newer, attempt=attempt), snap(1))
            assert bench.sink.away

            # when the pages are fetched
            await bench.lab.frontier.add(bench.job, [candidate(url) for url in urls])
            road = Asking()
            running = asyncio.create_task(bench.worker(road).run())
            await bench.until(lambda: len(road.etags) == len(urls), step=0.05)

            # then the first is asked whether it has changed, and the second in full: its facts are not the newest
            assert road.etags == {urls[0]: '"old"', urls[1]: "", urls[2]: ""}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            archive.down = False


async def test_a_record_store_that_is_away_is_not_asked_with_every_lease(bench: Bench, tmp_path: Path) -> None:
    asked = 0

    class Away(Fickle):
        async def facts(self, fingerprints: list[bytes]) -> dict[bytes, Any]:
            nonlocal asked
            asked += 1
            raise BackendUnavailable("The store is away.")

    store: Any = Away(bench.records)
    store.down = True
    bench.records = store
    spool = Spool(tmp_path / "spool", max_bytes=None)
    async with Sink(store, None, spool=spool, clock=bench.lab.clock) as bench.sink:
        await bench.lab.frontier.add(bench.job, [candidate(f"https://s{n}.example/") for n in range(40)])
        await bench.lab.jobs.seal_seeds(bench.job)
        running = asyncio.create_task(bench.worker(Asking(), concurrency=2).run())
        await bench.until(running.done, step=0.01)
        assert running.result() is True
        assert asked <= 2
    assert (await bench.lab.jobs.counts(bench.job)).dropped == 40


async def test_a_settlement_that_the_state_does_not_take_is_told_at_once(bench: Bench) -> None:
    await bench.lab.frontier.add(bench.job, [candidate(f"https://s{n}.example/") for n in range(4)])
    line: Any = bench.line

    async def full(*_: Any, **__: Any) -> None:
        raise BackendUnavailable("The disk of the state is full.")

    line.complete = full
    worker = bench.worker(Asking())
    running = asyncio.create_task(worker.run())
    began = bench.lab.clock.now()
    await bench.until(lambda: any(event.stage == "settle" for event in bench.ears.of(Trouble)))
    assert bench.lab.clock.now() == began  # not after a minute of tries
    later = bench.lab.clock.now() + 10
    await bench.until(lambda: bench.lab.clock.now() >= later, step=0.5)
    assert len([event for event in bench.ears.of(Trouble) if event.stage == "settle"]) == 1
    del line.complete
    await bench.until(lambda: not worker.in_flight, step=0.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (await bench.lab.jobs.counts(bench.job)).dropped == 4
