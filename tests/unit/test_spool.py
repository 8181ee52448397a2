"""The spool on its own: order, bounds, crashes, damage and the files of the dead."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.store import spool as spool_module
from gossamer.store.spool import Spool
from gossamer.store.spool_file import APPLICATION_ID, FORMAT, TABLE, SpoolFile

from .spooling import disk_ends_after, flip_in_a_frame, number_of, waiting


async def emptied(spool: Spool) -> list[int]:
    """Take everything out, in the order in which it comes."""
    numbers = []
    while batch := await spool.next():
        numbers += [number_of(one) for one in batch]
        await spool.done()
    return numbers


def file_in(folder: Path) -> Path:
    [file] = folder.glob("*.spool")
    return file


@pytest.mark.parametrize("trim", [0, 3000, spool_module.TRIM_BYTES])
async def test_results_come_out_whole_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trim: int) -> None:
    monkeypatch.setattr(spool_module, "TRIM_BYTES", trim)
    async with Spool(tmp_path / "spool", max_bytes=None) as spool:
        for n in range(0, 300, 3):
            await spool.append([waiting(n), waiting(n + 1), waiting(n + 2)])
        assert (await spool.next())[0] == waiting(0)
        assert await emptied(spool) == list(range(300))
        assert spool.empty
        assert spool.size == 0


async def test_an_unused_spool_leaves_nothing_behind(tmp_path: Path) -> None:
    async with Spool(tmp_path / "spool", max_bytes=None) as spool:
        assert await spool.next() == []
    async with Spool(tmp_path / "spool", max_bytes=None) as spool:
        await spool.append([waiting(1)])
        assert await emptied(spool) == [1]
    assert list((tmp_path / "spool").iterdir()) == []


async def test_the_same_batch_is_given_until_it_is_done(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(100)])
        first = await spool.next()
        assert await spool.next() == first
        await spool.done()
        assert number_of((await spool.next())[0]) == len(first)


async def test_what_comes_while_it_is_emptied_goes_behind(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0)])
        await spool.next()
        await spool.append([waiting(1)])
        await spool.done()
        await spool.append([waiting(2)])
        assert await emptied(spool) == [1, 2]


async def test_a_stored_result_makes_room_for_others_while_more_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "TRIM_BYTES", 0)
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n, os.urandom(5000)) for n in range(100)])
        size, file = spool.size, file_in(tmp_path)
        for n in range(100, 164):
            if n == 100:
                await spool.next()
                await spool.done()
                assert spool.size < size / 2
            await spool.append([waiting(n, os.urandom(5000))])
        assert file.stat().st_size <= size * 1.1
        assert await emptied(spool) == list(range(64, 164))


async def test_what_is_left_is_there_after_a_restart(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(5)])
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert spool.size > 0
        await spool.append([waiting(5)])
        assert await emptied(spool) == [0, 1, 2, 3, 4, 5]
    assert list(tmp_path.iterdir()) == []


async def test_the_spools_of_several_dead_are_adopted_oldest_first(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as one, Spool(tmp_path, max_bytes=None) as two:
        for n in range(0, 20, 2):
            await one.append([waiting(n)])
            await two.append([waiting(n + 1)])
    async with Spool(tmp_path, max_bytes=None) as heir:
        assert await emptied(heir) == list(range(20))


async def test_the_spool_of_the_living_is_left_alone(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as alive:
        await alive.append([waiting(1)])
        async with Spool(tmp_path, max_bytes=None) as other:
            assert other.empty
            await other.append([waiting(2)])
            assert await emptied(other) == [2]
        assert await emptied(alive) == [1]


async def test_one_of_many_that_start_at_once_adopts(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as dead:
        await dead.append([waiting(n) for n in range(3)])
    heirs = [Spool(tmp_path, max_bytes=None) for _ in range(8)]
    await asyncio.gather(*(heir.__aenter__() for heir in heirs))
    found = await asyncio.gather(*(emptied(heir) for heir in heirs))
    assert sorted(found) == [[]] * 7 + [[0, 1, 2]]
    for heir in heirs:
        heir.close()


async def test_what_waits_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with Spool(tmp_path / "spool", max_bytes=None) as spool:
        await spool.append([waiting(1)])
        assert {path.stat().st_mode & 0o077 for path in (tmp_path / "spool").rglob("*")} == {0}


async def test_a_spool_is_begun_though_others_take_every_new_file_for_that_of_a_dead_process(tmp_path: Path) -> None:
    over = threading.Event()

    def adopt_everything() -> None:
        while not over.is_set():
            for path in tmp_path.glob("*.spool"):
                if (file := SpoolFile.adopt(path)) is not None:
                    file.close()

    with ThreadPoolExecutor(3) as others:
        try:
            adopting = [others.submit(adopt_everything) for _ in range(3)]
            for _ in range(100):
                file = SpoolFile.create(tmp_path)
                assert file.path.exists()
                file.delete()
        finally:
            over.set()
    assert [one.result() for one in adopting] == [None] * 3


WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from gossamer.store.spool import Spool
from tests.unit.spooling import waiting

async def main():
    async with Spool(Path(sys.argv[1]), max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(7)])
        print("spooled", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_process_leaves_all_that_it_was_promised(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, cwd=root)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"spooled\n"
        async with Spool(tmp_path, max_bytes=None) as too_early:
            assert too_early.empty
        process.send_signal(signal.SIGKILL)
        process.wait()
        async with Spool(tmp_path, max_bytes=None) as heir:
            assert await emptied(heir) == list(range(7))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


async def test_a_process_killed_in_the_middle_of_a_write_leaves_what_it_was_promised_before(tmp_path: Path) -> None:
    # given the files as they are in the middle of a write: new pages, and the journal that takes them back
    async with Spool(tmp_path / "spool", max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
        own = spool._own
        assert own is not None
        own._sql.execute("PRAGMA cache_size = 1")  # so that pages are written before the commit
        own._sql.execute("BEGIN")
        more = [(time.time_ns() + n, "books-1", b"page", os.urandom(3000)) for n in range(50)]
        own._sql.executemany("INSERT INTO results VALUES (?, ?, ?, ?)", more)
        shutil.copytree(tmp_path / "spool", tmp_path / "after")
        own._sql.execute("ROLLBACK")
    assert file_in(tmp_path / "after").stat().st_size > 40_000

    # when it is adopted, then what was not promised is gone without a word
    async with Spool(tmp_path / "after", max_bytes=None) as heir:
        assert await emptied(heir) == [0, 1, 2]
        assert heir.take_notes() == []
    assert list((tmp_path / "after").iterdir()) == []


@pytest.mark.parametrize("content", [b"", None])
async def test_what_a_process_left_that_died_before_it_wrote_anything_is_deleted(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "host-1-abc.spool").write_bytes(content)
    (tmp_path / "host-1-abc.spool-journal").write_bytes(bytes(512))  # the first half of a deletion, or of a creation
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == []
        assert spool.take_notes() == []
    assert list(tmp_path.iterdir()) == []


async def test_a_corrupt_result_is_set_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
    flipped = flip_in_a_frame(file_in(tmp_path), 1)
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == [0, 2]
        [note] = spool.take_notes()
    [bad] = tmp_path.iterdir()
    assert str(bad) in note
    assert bad.suffix == ".bad"
    assert bad.read_bytes() == flipped


@pytest.mark.parametrize("page", [2, 9, 20, 30])
async def test_a_file_with_a_lost_page_gives_what_can_be_read_and_is_kept(tmp_path: Path, page: int) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n, os.urandom(1500)) for n in range(60)])
    file = file_in(tmp_path)
    content = bytearray(file.read_bytes())
    content[page * 4096 : (page + 1) * 4096] = os.urandom(4096)
    file.write_bytes(content)
    async with Spool(tmp_path, max_bytes=None) as spool:
        found = await emptied(spool)
        assert found == sorted(set(found))
        assert 55 <= len(found) < 60
        assert spool.empty
        [note] = spool.take_notes()
    [bad] = tmp_path.iterdir()
    assert bad.name in note
    assert bad.read_bytes() == content


async def test_a_file_whose_head_is_lost_is_set_aside(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n, os.urandom(1500)) for n in range(60)])
    file = file_in(tmp_path)
    content = bytearray(file.read_bytes())
    content[100:4096] = os.urandom(3996)
    file.write_bytes(content)
    async with Spool(tmp_path, max_bytes=None, noted=True) as spool:
        assert await emptied(spool) == []
        assert [(one.name, one.results) for one in spool.contents()] == [(file.stem, {})]  # so that its note goes
        await spool.unnoted([file.stem])
        assert spool.contents() == []
        [note] = spool.take_notes()
    [bad] = tmp_path.iterdir()
    assert bad.name in note
    assert bad.read_bytes() == content


async def test_when_there_is_no_room_to_set_aside_the_file_itself_stays(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
        await spool.next()
        with disk_ends_after(10):
            await spool.set_aside(1, "nobody wants it")
        content = file_in(tmp_path).read_bytes()
        await spool.done()
        assert spool.empty
    [bad] = tmp_path.iterdir()
    assert bad.suffix == ".bad"
    assert bad.read_bytes() == content


async def test_a_file_that_vanished_is_stored_all_the_same(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0)])
    async with Spool(tmp_path, max_bytes=None) as spool:
        file_in(tmp_path).unlink()
        assert await emptied(spool) == [0]
    assert list(tmp_path.iterdir()) == []


async def test_on_a_full_disk_what_waits_is_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "TRIM_BYTES", 0)
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(200)])
        with disk_ends_after(0):
            assert await emptied(spool) == list(range(200))
        assert spool.empty
        assert spool.take_notes() == []
    assert list(tmp_path.iterdir()) == []


async def test_a_full_spool_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    limit = 30_000
    async with Spool(tmp_path, max_bytes=limit) as spool:
        taken = 10
        for n in range(taken):
            await spool.append([waiting(n, os.urandom(1000))])
        with pytest.raises(BackendUnavailable, match=r"full .* store\.spool_limit"):
            await spool.append([waiting(taken + n, os.urandom(1000)) for n in range(9)])
        assert file_in(tmp_path).stat().st_size == spool.size <= limit
        assert await emptied(spool) == list(range(taken))
        await spool.append([waiting(taken)])
        assert await emptied(spool) == [taken]


async def test_what_was_adopted_counts_towards_the_limit(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0, os.urandom(5000))])
    async with Spool(tmp_path, max_bytes=17_000) as spool:
        with pytest.raises(BackendUnavailable, match="full"):
            await spool.append([waiting(1)])
        assert await emptied(spool) == [0]
        await spool.append([waiting(1)])
        assert not spool.full


async def test_a_full_disk_refuses_the_batch_and_spoils_nothing(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0)])
        for size in (0, 5, 2000, 9000, 30_000):  # before the first byte, in the journal, in the file itself
            with disk_ends_after(size), pytest.raises(BackendUnavailable, match="Free some space"):
                await spool.append([waiting(1), waiting(2, os.urandom(50_000))])
        await spool.append([waiting(3)])
        assert await emptied(spool) == [0, 3]
        assert spool.size == 0
        assert spool.take_notes() == []
    assert list(tmp_path.iterdir()) == []


async def test_large_pages_come_out_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "BATCH_BYTES", 10_000)
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n, os.urandom(4000)) for n in range(20)])
        assert len(await spool.next()) == 3
        assert await emptied(spool) == list(range(20))


async def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "lock").touch()
    (tmp_path / "old" / "readme").touch()
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(1)])
        assert await emptied(spool) == [1]
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert names == ["notes.txt", "old", "old/lock", "old/readme", "photos", "photos/cat.jpg"]


def spool_of_others(file: Path, *statements: str, number: int = APPLICATION_ID, version: int = FORMAT) -> bytes:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        for sql in (f"PRAGMA application_id = {number}", f"PRAGMA user_version = {version}", *statements):
            database.execute(sql)
    return file.read_bytes()


FOREIGN = "it is not a spool file of Gossamer"
ROW = "INSERT INTO results VALUES (1, 'books-1', x'00', x'00')"
TRIGGER = "CREATE TRIGGER t AFTER DELETE ON results BEGIN SELECT load_extension('/tmp/x'); END"
VIEW = "CREATE VIEW results AS SELECT 1 n, 'books-1' job, x'00' page, randomblob(1000000000) frame"
MADE_BY_OTHERS: list[tuple[str, list[str], dict[str, int]]] = [
    (FOREIGN, [TABLE, ROW], {"number": 7}),
    (FOREIGN, ["CREATE TABLE other (n INTEGER)"], {}),
    (FOREIGN, [TABLE, TRIGGER], {}),
    (FOREIGN, [VIEW], {}),
    (FOREIGN, [TABLE.replace(" STRICT", "")], {}),
    ("another version of Gossamer wrote it (format 7)", [TABLE, ROW], {"version": 7}),
]


@pytest.mark.parametrize(("why", "statements", "marks"), MADE_BY_OTHERS)
async def test_a_file_that_is_not_ours_is_left_alone_and_told_once(
    tmp_path: Path, why: str, statements: list[str], marks: dict[str, int]
) -> None:
    file = tmp_path / "host-1-abc.spool"
    content = spool_of_others(file, *statements, **marks)
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == []
        await spool.adopt()
        assert spool.take_notes() == [f"{file} was left alone: {why}."]
    assert file.read_bytes() == content


async def test_what_is_no_database_and_what_an_unreleased_version_wrote_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.spool").write_bytes(os.urandom(5000))
    (tmp_path / "host-1-abc").mkdir()
    (tmp_path / "host-1-abc" / "1-2.spool").write_bytes(b"GOSPOOL")
    (tmp_path / "link.spool").symlink_to(tmp_path / "a.spool")
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == []
        assert sorted(spool.take_notes()) == [
            f"{tmp_path / 'a.spool'} was left alone: it is not a spool file of Gossamer.",
            f"{tmp_path / 'host-1-abc'} was left alone: a version of Gossamer before 0.1.0 wrote it.",
        ]
    assert len(list(tmp_path.iterdir())) == 3


PICKLE = b"\x80\x04K\x01."


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(99),
        PICKLE,
        zstandard.compress(PICKLE),
        zstandard.compress(b"[" * 100_000),
        zstandard.compress(b"\xc1"),
    ],
)
async def test_a_hostile_result_is_set_aside(tmp_path: Path, frame: bytes) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
    with closing(sqlite3.connect(file_in(tmp_path), isolation_level=None)) as database:
        database.execute("UPDATE results SET frame = ? WHERE n = (SELECT min(n) FROM results)", (frame,))
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == [1, 2]
        [note] = spool.take_notes()
        assert "cannot be understood" in note


async def test_a_row_with_values_of_other_types_is_passed_over_and_kept(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(5)])
    with closing(sqlite3.connect(file_in(tmp_path), isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema = ON")  # SQLite checks types when it writes, not when it reads
        loose = TABLE.removesuffix(" STRICT").replace(" NOT NULL", "")
        database.execute("UPDATE sqlite_master SET sql = ?", (loose,))
        database.execute("PRAGMA writable_schema = RESET")
        rows = [row[0] for row in database.execute("SELECT n FROM results ORDER BY n")]
        database.execute("UPDATE results SET frame = 'text' WHERE n = ?", (rows[0],))
        database.execute("UPDATE results SET job = NULL WHERE n = ?", (rows[1],))
        database.execute("UPDATE results SET job = x'ff00' WHERE n = ?", (rows[3],))
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_master SET sql = ?", (TABLE,))
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == [2, 4]
        assert spool.empty
        [note] = spool.take_notes()
        assert "other types" in note
    [bad] = tmp_path.iterdir()
    assert bad.suffix == ".bad"


async def test_a_place_that_cannot_be_a_folder_is_misconfigured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match=r"store\.spool"):
        async with Spool(tmp_path / "file" / "spool", max_bytes=None):
            pass


async def test_nothing_is_spooled_outside_async_with(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=None)
    async with spool:
        pass
    with pytest.raises(BackendUnavailable, match="closed"):
        await spool.append([waiting(1)])
    assert list(tmp_path.iterdir()) == []
