"""A process that spools, stores and is killed at any instant: what it was told to be safe is there afterwards, once.
As long as it waits, the shared state says so."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import SystemClock
from gossamer.store.contract import RecordQuery
from gossamer.store.sink import Sink
from gossamer.store.spool import Spool
from gossamer.store.spool_notes import SpoolNotes
from tests.patience import PATIENCE

from ..conformance.frontiers import sqlite_lab
from .spooling import visit

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

KEEPER = """
import asyncio, os, sys
from pathlib import Path
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import SystemClock
from gossamer.errors import BackendUnavailable
from gossamer.store.sink import Sink
from gossamer.store.spool import Spool
from gossamer.store.spool_notes import SpoolNotes
from tests.conformance.frontiers import sqlite_lab
from tests.unit.spooling import visit

folder, first = Path(sys.argv[1]), int(sys.argv[2])

class Moody:  # away for twenty calls, there for twenty
    def __init__(self, store):
        self.store, self.calls = store, 0

    async def save(self, results):
        self.calls += 1
        if self.calls // 20 % 2 == 0:
            raise BackendUnavailable("The store is away.")
        return await self.store.save(results)

class Hasty(SystemClock):  # so that spooling and draining follow each other quickly
    async def sleep(self, seconds):
        await asyncio.sleep(0)

async def main():
    async with open_sqlite_records(folder / "records.db", SystemClock()) as store, sqlite_lab(folder) as lab:
        spool = Spool(folder / "spool", max_bytes=None, noted=True)
        notes = SpoolNotes(lab.spools, spool, SystemClock(), worker="w")
        async with Sink(Moody(store), None, spool=spool, notes=notes, clock=Hasty()) as sink:
            numbers = iter(range(first, first + 100_000))

            async def journey():
                for n in numbers:
                    await sink.keep(visit(n))
                    os.write(1, b"%d\\n" % n)

            await asyncio.gather(*(journey() for _ in range(8)))

asyncio.run(main())
"""


async def no_result_waits_unnoticed(folder: Path, kept: set[int]) -> None:
    async with open_sqlite_records(folder / "records.db", SystemClock()) as store, sqlite_lab(folder) as lab:
        stored = {int(record.key) async for record in store.records(RecordQuery())}
        noted = {job for note in await lab.spools.notes() for job in note.results}
        assert kept <= stored or noted == {visit(0).attempt.job}


@pytest.mark.parametrize("after", [[1, 9, 60], [200, 33, 411]])
async def test_a_killed_keeper_loses_and_doubles_nothing(tmp_path: Path, after: list[int]) -> None:
    kept: list[int] = []
    for life, lines in enumerate(after):
        command = [sys.executable, "-c", KEEPER, str(tmp_path), str(life * 100_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            told = [process.stdout.readline() for _ in range(lines)]
            process.kill()
            told += process.stdout.read().splitlines(keepends=True)  # what it had said by then
        kept += [int(line) for line in told if line.endswith(b"\n")]
        await no_result_waits_unnoticed(tmp_path, set(kept))
    assert len(kept) >= sum(after)

    async with open_sqlite_records(tmp_path / "records.db", SystemClock()) as store, sqlite_lab(tmp_path) as lab:
        spool = Spool(tmp_path / "spool", max_bytes=None, noted=True)
        notes = SpoolNotes(lab.spools, spool, SystemClock(), worker="w")
        async with Sink(store, None, spool=spool, notes=notes, drain_within=timedelta(seconds=PATIENCE)):
            pass
        assert await lab.spools.notes() == []
        stored = [int(record.key) async for record in store.records(RecordQuery())]
        assert set(kept) <= set(stored)
        assert len(stored) == len(set(stored))
        for n in stored:
            assert len(await store.attempts(visit(n).attempt.fingerprint)) == 1
    assert list((tmp_path / "spool").glob("*.spool*")) == []
