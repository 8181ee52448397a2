"""What is particular to the archive in a folder: its files, their damage, a full disk."""

from __future__ import annotations

import gzip
import io
import random
import time
from datetime import timedelta
from pathlib import Path

import pytest
import zstandard

from gossamer.backends.folder.archive import FolderArchive
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, Misconfigured, Permanent
from gossamer.model.page import Headers, Snapshot
from gossamer.store import page_format

from .spooling import disk_ends_after

NOW = 1_800_000_000.0  # 2027-01-15


def snap(body: bytes) -> Snapshot:
    return Snapshot(
        url="https://a.example/", requested_url="https://a.example/", status=200, headers=Headers(), body=body,
        fetched_at=NOW,
    )  # fmt: skip


def archive_in(folder: Path, writer: str = "host/42/1") -> FolderArchive:
    return FolderArchive(folder, level=1, writer=writer, clock=VirtualClock(NOW))


def noise(size: int) -> bytes:
    """Bytes that do not compress."""
    state, out = 1, bytearray()
    while len(out) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out += state.to_bytes(8, "little")
    return bytes(out[:size])


async def test_a_segment_is_an_ordinary_zstd_file(tmp_path: Path) -> None:
    async with archive_in(tmp_path) as archive:
        refs = await archive.put([snap(b"<p>one"), snap(b"<p>two")])
    [file] = tmp_path.glob("*/*")
    assert file.relative_to(tmp_path).as_posix() == "2027-01-15/host-42-1-1.zst"
    assert refs[0].startswith("2027-01-15/host-42-1-1.zst#0+")
    reader = zstandard.ZstdDecompressor().stream_reader(file.open("rb"), read_across_frames=True)
    lines = io.TextIOWrapper(reader, encoding="utf-8").read().splitlines()
    assert lines[1::2] == ["<p>one", "<p>two"]
    assert lines[0].startswith('{"url":"https://a.example/"')


async def test_a_long_segment_is_followed_by_the_next(tmp_path: Path) -> None:
    pages = [snap(noise(1000) + bytes([n])) for n in range(10)]
    async with FolderArchive(tmp_path, level=1, writer="w", segment_bytes=3000, pending_bytes=1500) as archive:
        refs = await archive.put(pages)
        assert [await archive.get(ref) for ref in refs] == pages
    assert len(list(tmp_path.glob("*/*"))) == 4


@pytest.mark.parametrize("writer", ["", "../../x", "...", "a" * 500, "hôst/é", ".hidden", "x\x00y"])
async def test_any_writer_name_stays_inside_the_folder(tmp_path: Path, writer: str) -> None:
    async with archive_in(tmp_path / "archive", writer) as archive:
        [ref] = await archive.put([snap(b"x")])
        assert (await archive.get(ref)).body == b"x"
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


async def test_a_torn_tail_of_a_dead_process_harms_nobody(tmp_path: Path) -> None:
    async with archive_in(tmp_path) as archive:
        [before] = await archive.put([snap(b"before")])
    [file] = tmp_path.glob("*/*")
    with file.open("ab") as torn:
        torn.write(b"\x28\xb5\x2f\xfd half a frame")
    async with archive_in(tmp_path) as archive:
        [after] = await archive.put([snap(b"after")])
        assert [(await archive.get(ref)).body for ref in (before, after)] == [b"before", b"after"]


async def test_damage_is_named_as_such(tmp_path: Path) -> None:
    async with archive_in(tmp_path) as archive:
        [ref] = await archive.put([snap(noise(5000))])
        [file] = tmp_path.glob("*/*")
        whole = file.read_bytes()
        for position in range(0, len(whole), 97):
            file.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
            with pytest.raises(Permanent, match="damaged"):
                await archive.get(ref)
        file.write_bytes(whole[:-1])
        with pytest.raises(Permanent, match="truncated"):
            await archive.get(ref)
        file.write_bytes(whole)
        place, _, length = ref.rpartition("+")
        for wrong in (f"{place}+{int(length) - 1}", f"{place}+0", f"{place.replace('#0', '#1')}+{int(length) - 1}"):
            with pytest.raises(Permanent, match="damaged"):
                await archive.get(wrong)


async def test_a_frame_that_claims_to_be_huge_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_format, "MAX_PAGE_BYTES", 1024 * 1024)
    bomb = zstandard.ZstdCompressor(level=3).compress(bytes(1024 * 1024 + 1))
    (tmp_path / "2027-01-15").mkdir()
    (tmp_path / "2027-01-15/x-1.zst").write_bytes(bomb)
    async with archive_in(tmp_path) as archive:
        with pytest.raises(Permanent, match="claims to unpack"):
            await archive.get(f"2027-01-15/x-1.zst#0+{len(bomb)}")


async def test_a_full_disk_is_told_and_writing_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async with archive_in(tmp_path) as archive:
        [before] = await archive.put([snap(b"before")])
        with disk_ends_after(10_000), pytest.raises(BackendUnavailable, match="Free some space"):
            await archive.put([snap(b"small"), snap(noise(50_000))])
        [after] = await archive.put([snap(b"after")])
        assert [(await archive.get(ref)).body for ref in (before, after)] == [b"before", b"after"]
    for file in tmp_path.glob("*/*"):  # every file ends with a whole page
        reader = zstandard.ZstdDecompressor().stream_reader(file.open("rb"), read_across_frames=True)
        assert reader.read().endswith((b"before\n", b"after\n"))


async def test_a_place_that_cannot_be_a_folder_is_misconfigured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="archive = "):
        async with archive_in(tmp_path / "file" / "archive"):
            pass


async def test_nothing_is_written_outside_async_with(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    async with archive:
        pass
    with pytest.raises(BackendUnavailable, match="closed"):
        await archive.put([snap(b"x")])


async def test_pruning_leaves_what_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "2020-99-99").mkdir()
    (tmp_path / "2020-01-01").write_text("a file")
    (tmp_path / "2021-01-01").symlink_to(tmp_path / "notes")
    old = tmp_path / "2022-01-01"
    old.mkdir()
    (old / "w-1.zst").write_bytes(b"12345")
    async with archive_in(tmp_path) as archive:
        assert await archive.prune(timedelta(days=30)) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2020-01-01", "2020-99-99", "2021-01-01", "notes"]


def test_a_body_of_thousands_of_gzip_members_costs_no_more_than_its_bytes() -> None:
    rest = noise(4_000_000) + bytes(400_000)
    one = gzip.compress(rest, 1)
    many = gzip.compress(b"") * 9_000 + one

    def cost(packed: bytes) -> float:
        page = zstandard.compress(page_format.content_of(snap(rest), packed), 1)
        began = time.process_time()
        assert page_format.unpack_page(page).body == rest
        return time.process_time() - began

    # Each member has its price; it does not have that of all bytes behind it, which would be 36 GB.
    assert cost(many) < 30 * cost(one)


async def test_the_room_of_dropped_pages_comes_back_and_does_not_return_in_a_copy(tmp_path: Path) -> None:
    pages = [snap(random.Random(n).randbytes(40_000)) for n in range(30)]
    async with archive_in(tmp_path / "one") as archive, archive_in(tmp_path / "two") as copy:
        refs = await archive.put(pages)
        before = await archive.size()

        freed = await archive.drop([*refs[5:15], refs[20]])

        if not freed:
            pytest.skip("this file system has no holes")
        assert 360_000 <= freed <= 460_000
        assert await archive.size() == before - freed
        async for segment in archive.segments():
            await copy.write_segment(segment.name, await archive.read_segment(segment.name))
        assert await copy.size() <= before - 360_000
        assert (await copy.get(refs[29])).body == pages[29].body
