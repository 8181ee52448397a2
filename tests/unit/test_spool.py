"""The spool on its own: order, bounds, crashes, damage and the folders of the dead."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.store import spool as spool_module
from gossamer.store.spool import Spool

from .spooling import disk_ends_after, number_of, waiting


async def emptied(spool: Spool) -> list[int]:
    """Take everything out, in the order in which it comes."""
    numbers = []
    while batch := await spool.next():
        numbers += [number_of(one) for one in batch]
        await spool.done()
    return numbers


def files_in(folder: Path, pattern: str = "*/*.spool") -> list[Path]:
    return sorted(folder.glob(pattern))


async def test_results_come_out_whole_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 3000)
    async with Spool(tmp_path / "spool", max_bytes=None) as spool:
        for n in range(0, 300, 3):
            await spool.append([waiting(n), waiting(n + 1), waiting(n + 2)])
        assert len(files_in(tmp_path / "spool")) > 10
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


async def test_what_was_promised_was_synced_to_the_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}
    fsync = os.fsync

    def note(descriptor: int) -> None:
        fsync(descriptor)
        synced[os.readlink(f"/proc/self/fd/{descriptor}")] = os.fstat(descriptor).st_size

    monkeypatch.setattr(os, "fsync", note)
    async with Spool(tmp_path, max_bytes=None) as spool:
        for n in range(3):
            await spool.append([waiting(n)])
            [file] = files_in(tmp_path)
            assert synced[str(file)] == file.stat().st_size  # its content,
            assert {str(file.parent), str(tmp_path)} <= set(synced)  # and the names on the way to it


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
        await one.append([waiting(0)])
        await two.append([waiting(1)])
        await one.next()  # closes the segment
        await one.append([waiting(2)])
    async with Spool(tmp_path, max_bytes=None) as heir:
        assert await emptied(heir) == [0, 1, 2]


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


async def test_a_torn_tail_is_dropped_without_a_word(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
    [file] = files_in(tmp_path)
    os.truncate(file, file.stat().st_size - 5)
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == [0, 1]
        assert spool.take_notes() == []
    assert list(tmp_path.iterdir()) == []


async def test_a_corrupt_entry_is_set_aside_and_the_rest_goes_on(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
    [file] = files_in(tmp_path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == [0, 2]
        [note] = spool.take_notes()
    [bad] = tmp_path.iterdir()
    assert str(bad) in note
    assert bad.suffix == ".bad"
    assert bad.read_bytes() in bytes(content)


async def test_when_there_is_no_room_to_set_aside_the_segment_itself_stays(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n) for n in range(3)])
        await spool.next()
        with disk_ends_after(10):
            await spool.set_aside(1, "nobody wants it")
        [file] = files_in(tmp_path)
        content = file.read_bytes()
        await spool.done()
        assert spool.empty
    [bad] = tmp_path.iterdir()
    assert bad.suffix == ".bad"
    assert bad.read_bytes() == content


async def test_a_segment_that_vanished_does_not_block_the_rest(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0)])
        await spool.next()  # closes the segment
        await spool.append([waiting(1)])
    first, _ = files_in(tmp_path)
    async with Spool(tmp_path, max_bytes=None) as spool:
        first.unlink()
        assert await emptied(spool) == [1]
        assert "cannot be read" in spool.take_notes()[0]


async def test_a_full_spool_refuses_and_takes_again_when_there_is_room(tmp_path: Path) -> None:
    limit = 20_000
    async with Spool(tmp_path, max_bytes=limit) as spool:
        taken = 10
        for n in range(taken):
            await spool.append([waiting(n, os.urandom(1000))])
        with pytest.raises(BackendUnavailable, match=r"full .* store\.spool_limit"):
            await spool.append([waiting(taken + n, os.urandom(1000)) for n in range(9)])
        assert sum(file.stat().st_size for file in files_in(tmp_path)) == spool.size <= limit
        assert await emptied(spool) == list(range(taken))
        await spool.append([waiting(taken)])
        assert await emptied(spool) == [taken]


async def test_what_was_adopted_counts_towards_the_limit(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0, os.urandom(5000))])
    async with Spool(tmp_path, max_bytes=5000) as spool:
        with pytest.raises(BackendUnavailable, match="full"):
            await spool.append([waiting(1)])
        assert await emptied(spool) == [0]
        await spool.append([waiting(1)])


async def test_a_full_disk_refuses_the_batch_and_spoils_nothing(tmp_path: Path) -> None:
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(0)])
        for size in (0, 5, 2000):  # before the first byte, in the middle of a head, in the middle of an entry
            with disk_ends_after(size), pytest.raises(BackendUnavailable, match="Free some space"):
                await spool.append([waiting(1), waiting(2, os.urandom(50_000))])
        await spool.append([waiting(3)])
        assert await emptied(spool) == [0, 3]
        assert spool.size == 0
        assert spool.take_notes() == []
    assert list(tmp_path.iterdir()) == []


async def test_a_large_batch_is_spread_over_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 10_000)
    monkeypatch.setattr(spool_module, "BATCH_BYTES", 10_000)
    async with Spool(tmp_path, max_bytes=None) as spool:
        await spool.append([waiting(n, os.urandom(4000)) for n in range(20)])
        assert max(file.stat().st_size for file in files_in(tmp_path)) < 16_000
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


async def test_a_segment_of_another_version_is_left_for_that_version(tmp_path: Path) -> None:
    from zlib import crc32

    home = tmp_path / "host-1-abc"
    home.mkdir()
    (home / "lock").touch()
    newer = b"GOSPOOL\x07"
    file = home / f"{1:020d}-{'ab' * 8}.spool"
    file.write_bytes(newer + crc32(newer).to_bytes(4, "little") + b"whatever")
    async with Spool(tmp_path, max_bytes=None) as spool:
        assert await emptied(spool) == []
        [note] = spool.take_notes()
        assert "format 7" in note
    assert file.exists()


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
