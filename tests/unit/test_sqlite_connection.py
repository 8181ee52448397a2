"""Writes that are committed together and still fail alone; reads that nobody waits for any more."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from gossamer.backends.sqlite import connection as connection_file
from gossamer.backends.sqlite.connection import BUSY_TIMEOUT, CHECKPOINT_AFTER, LONG, Database
from gossamer.backends.sqlite.state import APPLICATION_ID
from gossamer.errors import BackendUnavailable
from tests.patience import MOMENT, PATIENCE, until


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(
        tmp_path / "state.db",
        schema="state",
        application_id=APPLICATION_ID,
        durable=False,
        linger=timedelta(milliseconds=20),
        role="state",
    )


async def test_a_value_that_cannot_be_stored_fails_its_own_write_only(database: Database) -> None:
    values = [1, 10**30, "half \ud800", 2]

    def note(value: object) -> asyncio.Task[int]:
        return asyncio.ensure_future(
            database.write(
                lambda connection: (
                    connection.execute("INSERT INTO incidents (url, at, what) VALUES (1, 0, ?)", (value,)).rowcount
                )
            )
        )

    async with database:
        await database.write(lambda connection: connection.execute("PRAGMA foreign_keys = OFF").rowcount)
        outcomes = await asyncio.gather(*(note(value) for value in values), return_exceptions=True)
        kept = await database.read(
            lambda connection: [row[0] for row in connection.execute("SELECT what FROM incidents ORDER BY rowid")]
        )

    assert [type(outcome) for outcome in outcomes] == [int, OverflowError, UnicodeEncodeError, int]
    assert kept == ["1", "2"]
    with pytest.raises(Exception, match="closed"):
        await note(3)


async def test_what_writes_leave_to_be_written_together_is_there_before_others_look(database: Database) -> None:
    left: list[int] = []
    seen: list[tuple[str, int]] = []

    def leave(connection: sqlite3.Connection) -> None:
        left.append(1)

    def write_left_over(connection: sqlite3.Connection) -> None:
        seen.append(("together", len(left)))
        left.clear()

    def look(connection: sqlite3.Connection) -> None:
        seen.append(("look", len(left)))

    async with database:
        database.left_over.append(write_left_over)
        # given: in one transaction two writes that fold, another one, and one more that folds
        await asyncio.gather(
            database.write(leave, folds=True),
            database.write(leave, folds=True),
            database.write(look),
            database.write(leave, folds=True),
        )

    # then nothing was left when the other one looked, nor at the commit
    assert seen == [("together", 2), ("look", 0), ("together", 1)]


async def test_a_read_that_nobody_waits_for_any_more_keeps_the_connection_to_its_end(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def slowly(connection: sqlite3.Connection) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        seen.append(f"slow {connection.execute('SELECT count(*) FROM jobs').fetchone()[0]}")

    def quickly(connection: sqlite3.Connection) -> None:
        seen.append(f"quick {connection.execute('SELECT count(*) FROM jobs').fetchone()[0]}")

    async def close_and_read_no_more() -> None:
        async with database:
            asking = asyncio.create_task(database.read(slowly))
            await asyncio.to_thread(began.wait, PATIENCE)
            # when whoever asked is cancelled, and others ask
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            waiting = asyncio.create_task(database.read(quickly))
            await asyncio.sleep(MOMENT)
            assert not seen
            asyncio.get_running_loop().call_later(0.1, go_on.set)
        with pytest.raises(BackendUnavailable):
            await database.read(quickly)
        await asyncio.gather(waiting, return_exceptions=True)

    await close_and_read_no_more()
    # then the first has read all it wanted before the file was closed, and nobody read at the same time
    assert seen[0] == "slow 0"


async def test_while_another_process_has_its_turn_the_loop_goes_on(database: Database) -> None:
    async with database:
        other = sqlite3.connect(database.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        writing = asyncio.create_task(database.write(note))
        # given that our write has been tried, and waits for its turn
        await until(lambda: database._busy, every=0.001)
        await asyncio.sleep(0)
        assert not writing.done()
        assert time.monotonic() - began < BUSY_TIMEOUT.total_seconds()  # the loop did not wait with it
        # when the other one has ended
        other.execute("COMMIT")
        other.close()
        # then it is done
        async with asyncio.timeout(PATIENCE):
            assert await writing == 1


async def test_what_took_long_is_left_to_the_thread_for_a_while(database: Database) -> None:
    threads: list[str] = []

    def slowly(connection: sqlite3.Connection) -> None:
        threads.append(threading.current_thread().name)
        time.sleep(2 * LONG.total_seconds())

    async with database:
        await database.write(slowly)
        await database.write(slowly)
        await database.read(lambda connection: threads.append(threading.current_thread().name), quick=True)
    assert threads[0] == threading.main_thread().name
    assert threads[1] == "sqlite-state"
    assert threads[2] not in threads[:2]


async def test_a_disk_that_stalls_again_and_again_takes_little_of_the_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, stalled = 1000.0, 0.0
    monkeypatch.setattr(connection_file, "time", SimpleNamespace(monotonic=lambda: now))

    def stalls(_: sqlite3.Connection) -> None:
        nonlocal now, stalled
        now += 3.0
        stalled += 3.0 * (threading.current_thread() is threading.main_thread())

    async with database:
        began = now
        for _ in range(100):
            await database.write(stalls)
        assert 0 < stalled < 0.1 * (now - began)


@pytest.mark.parametrize("durable", [False, True])
async def test_the_journal_stays_short_whatever_is_written_by_how_many(tmp_path: Path, durable: bool) -> None:
    megabyte = "x" * 1024 * 1024
    rounds = 2 * CHECKPOINT_AFTER // len(megabyte)

    def opened() -> Database:
        return Database(
            tmp_path / "state.db", schema="state", application_id=APPLICATION_ID, durable=durable,
            linger=timedelta(0), role="state",
        )  # fmt: skip

    def heavily(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO incidents (url, at, what) VALUES (1, 0, ?)", (megabyte,))

    # Given one that has the file open all the time and does not write, and others that come, write a little and go.
    async with opened() as first:
        journal = Path(f"{first.path}-wal")
        longest = 0
        for _ in range(rounds // 8):
            async with opened() as other:
                for _ in range(8):
                    await other.write(heavily)
                    longest = max(longest, journal.stat().st_size)
        assert longest < CHECKPOINT_AFTER + 3 * len(megabyte)
        # And what one writes alone, in few large rows.
        for _ in range(rounds):
            await first.write(heavily)
            longest = max(longest, journal.stat().st_size)
        assert longest < CHECKPOINT_AFTER + 3 * len(megabyte)
        assert first.path.stat().st_size > rounds * len(megabyte)


def note(connection: sqlite3.Connection) -> int:
    return connection.execute("INSERT INTO incidents (url, at, what) VALUES (1, 0, 'x')").rowcount


def write_nothing(connection: sqlite3.Connection) -> None:
    """A transaction all the same."""


class Journal:
    """Counts the syncs of a journal; the one under way ends when it is allowed to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.failure: OSError | None = None
        self.may_end = threading.Event()
        self.may_end.set()
        monkeypatch.setattr(connection_file, "_sync_file", self._sync)

    def _sync(self, path: str) -> None:
        self.may_end.wait(PATIENCE)
        self.syncs += 1
        if self.failure is not None:
            raise self.failure


async def test_those_who_wait_for_the_disk_share_a_sync(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(monkeypatch)
    async with database:
        await database.sync()
        assert journal.syncs == 0  # nothing was written
        await database.write(write_nothing)
        journal.may_end.clear()
        first = [asyncio.create_task(database.sync()) for _ in range(10)]
        await asyncio.sleep(0)
        await database.write(write_nothing)  # no transaction waits for a sync
        later = [asyncio.create_task(database.sync()) for _ in range(10)]
        await asyncio.sleep(0)
        journal.may_end.set()
        await asyncio.gather(*first, *later)
        assert journal.syncs == 2  # the first began before the second write
        await database.sync()
        assert journal.syncs == 2


async def test_after_a_failed_sync_nothing_is_durable(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(monkeypatch)
    async with database:
        await database.write(write_nothing)
        journal.failure = OSError(5, "Input/output error")
        with pytest.raises(BackendUnavailable, match="Input/output error"):
            await database.sync()
        journal.failure = None  # the kernel forgets what it has reported once
        with pytest.raises(BackendUnavailable):
            await database.sync()
