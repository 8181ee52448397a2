"""What every archive promises (store/contract.py)."""

from __future__ import annotations

import asyncio
import gzip
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.clock import VirtualClock
from gossamer.errors import Permanent
from gossamer.model.page import Headers, Snapshot
from gossamer.store.contract import Archive, Segment, WholeArchive
from gossamer.store.page_format import every_page

from .archives import ARCHIVES, ArchiveOpener
from .stores import NOW

DAY = timedelta(days=1)

OpenArchive = Callable[..., AbstractAsyncContextManager[Archive]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture(params=ARCHIVES)
def new_place(request: pytest.FixtureRequest) -> Callable[[], ArchiveOpener]:
    return lambda: ARCHIVES[request.param](request)


@pytest.fixture
def open_archive(new_place: Callable[[], ArchiveOpener], clock: VirtualClock) -> OpenArchive:
    """Opens the same place every time: one call is one process."""
    place = new_place()

    def open_one(writer: str = "host/1/1") -> AbstractAsyncContextManager[Archive]:
        return place(clock, writer)

    return open_one


@pytest.fixture
async def archive(open_archive: OpenArchive) -> AsyncIterator[Archive]:
    async with open_archive() as one:
        yield one


def snap(body: bytes = b"<h1>Emma</h1>", url: str = "https://shop.example/b1") -> Snapshot:
    return Snapshot(
        url=url, requested_url=f"{url}?utm_source=x", status=200, body=body, fetched_at=NOW + 0.123456,
        headers=Headers([("Content-Type", "text/html"), ("Set-Cookie", "a=1"), ("set-cookie", "b=2")]),
        cut=True, kind="book", job="books-1", data='{"n":1}',
    )  # fmt: skip


async def test_a_page_comes_back_whole(archive: Archive) -> None:
    page = snap()
    [ref] = await archive.put([page])
    assert await archive.get(ref) == page


async def test_a_body_that_came_as_gzip_comes_back_unpacked(archive: Archive) -> None:
    body = b"<p>" + bytes(range(256)) * 200
    one, parted = gzip.compress(body), gzip.compress(body[:300]) + gzip.compress(body[300:])
    pages = [msgspec.structs.replace(snap(body), packed=packed) for packed in (one, parted, parted + b"\0\0")]
    refs = await archive.put([*pages, msgspec.structs.replace(snap(body), packed=one, screenshot=b"PNG")])
    came = await archive.get_many(refs)
    assert came == [*[snap(body)] * 3, msgspec.structs.replace(snap(body), screenshot=b"PNG")]


async def test_a_body_that_is_not_what_was_packed_is_kept_itself(archive: Archive) -> None:
    wrong = [gzip.compress(snap().body + b"!"), gzip.compress(b"short"), gzip.compress(snap().body)[:-9], b"no gzip"]
    refs = await archive.put([msgspec.structs.replace(snap(), packed=packed) for packed in wrong])
    assert await archive.get_many(refs) == [snap()] * len(wrong)


async def test_a_packed_body_that_does_not_unpack_to_what_it_says_is_called_damaged(archive: Archive) -> None:
    whole = gzip.compress(snap().body)
    bomb = gzip.compress(bytes(50_000_000))
    wrong = [bomb[:-8] + whole[-8:], gzip.compress(b"short")[:-8] + whole[-8:], whole[:-9] + whole[-8:], whole[-8:]]
    refs = await archive.put([msgspec.structs.replace(snap(), packed=packed) for packed in wrong])
    for ref in refs:
        with pytest.raises(Permanent, match="damaged"):
            await archive.get(ref)


async def test_each_page_of_a_batch_has_its_own_reference(archive: Archive) -> None:
    bodies = [b"", b"\n", b'{"url":1}\n\n', b"\x00\xff" * 50_000, bytes(range(256)) * 40, b"x"]
    pages = [snap(body, f"https://shop.example/{n}") for n, body in enumerate(bodies)]
    refs = await archive.put(pages)
    assert len(set(refs)) == len(pages)
    assert [await archive.get(ref) for ref in reversed(refs)] == pages[::-1]


@pytest.mark.parametrize(
    "wrong",
    [
        "{name}#{start}+99999999", "{name}#99999999+{length}", "{name}#{start}+0", "{name}#{inside}+{length}",
        "2027-01-15/nobody-1.zst#0+10", "{name}", "",
    ],
)  # fmt: skip
async def test_of_many_pages_one_that_cannot_be_had_fails_alone(archive: Archive, wrong: str) -> None:
    pages = [snap(f"page {n}".encode() * 9_000, f"https://shop.example/{n}") for n in range(6)]
    refs = await archive.put(pages)
    name, _, place = refs[2].partition("#")
    start, length = map(int, place.split("+"))
    bad = wrong.format(name=name, start=start, length=length, inside=start + 3)
    wanted = [refs[4], refs[0], bad, refs[1], refs[4], refs[2]]
    came = await archive.get_many(wanted)
    assert isinstance(came.pop(2), Permanent)
    assert came == [pages[4], pages[0], pages[1], pages[4], pages[2]]


async def test_an_empty_batch_gives_no_references(archive: Archive) -> None:
    assert await archive.put([]) == []


async def test_references_hold_after_more_was_written_and_after_reopening(open_archive: OpenArchive) -> None:
    pages = [snap(f"page {n}".encode()) for n in range(6)]
    refs = []
    for n in range(0, 6, 2):
        async with open_archive() as archive:  # the same writer's name every time
            refs += await archive.put(pages[n : n + 1])
            refs += await archive.put(pages[n + 1 : n + 2])
    async with open_archive("somebody else") as archive:
        assert [await archive.get(ref) for ref in refs] == pages


async def test_two_writers_at_once_do_not_disturb_each_other(open_archive: OpenArchive) -> None:
    async with open_archive() as one, open_archive() as two:
        pages = [snap(f"page {n}".encode() * 1000) for n in range(40)]
        puts = [(one, two)[n % 2].put([page]) for n, page in enumerate(pages)]
        refs = [ref for [ref] in await asyncio.gather(*puts)]
        assert [await one.get(ref) for ref in refs] == pages


async def test_odd_characters_in_the_header_survive(archive: Archive) -> None:
    page = msgspec.structs.replace(
        snap(url="https://shop.example/\x00\n\u2028é"),
        headers=Headers([("x-latin", "caf\udce9"), ("x-\udcff", ""), ("x-nul", "\x00")]),
        job="\ud800",
    )
    [ref] = await archive.put([page])
    assert await archive.get(ref) == page


@pytest.mark.parametrize(
    "ref",
    [
        "", "x", "2027-01-15", "../../etc/passwd#0+10", "2027-01-15/../../x.zst#0+10", "/etc/passwd#0+1",
        "2027-01-15/a/b.zst#0+10", "2027-01-15/..#0+1", "2027-01-15/host-1.zst", "2027-01-15/host-1.zst#-1+5",
        "2027-01-15/host-1.zst#0+99999999999999999999", "2027-01-15/host-1.zst#0+5\n", "\x00", "\ud800",
        "2027-01-15/nobody-1.zst#0+10", "٢٠٢٧-01-15/host-1.zst#0+5",
    ],
)  # fmt: skip
async def test_a_reference_that_names_nothing_is_permanent(archive: Archive, ref: str) -> None:
    await archive.put([snap()])
    with pytest.raises(Permanent):
        await archive.get(ref)


async def test_pruning_deletes_old_pages_and_nothing_else(archive: Archive, clock: VirtualClock) -> None:
    refs = []
    for _ in range(4):
        refs += await archive.put([snap(b"x" * 1000)])
        clock.advance(DAY.total_seconds())
    freed = await archive.prune(2 * DAY)
    assert freed > 0
    for ref in refs[:1]:
        with pytest.raises(Permanent):
            await archive.get(ref)
    assert [(await archive.get(ref)).body for ref in refs[2:]] == [b"x" * 1000] * 2
    assert await archive.prune(2 * DAY) == 0


async def test_its_size_is_that_of_all_pages_and_files(archive: Archive, clock: VirtualClock, tmp_path: Path) -> None:
    assert await archive.size() == 0
    refs = await archive.put([snap(), snap(b"another")])
    pages = sum(int(ref.rpartition("+")[2]) for ref in refs)
    assert await archive.size() == pages
    await taken_in(archive, tmp_path, b"x" * 1000)
    assert await archive.size() == pages + 1000
    clock.advance((2 * DAY).total_seconds())
    await archive.prune(DAY / 2)
    assert await archive.size() <= 1000  # how old a file is, the real clock says


async def test_writing_goes_on_after_everything_was_pruned(archive: Archive, clock: VirtualClock) -> None:
    await archive.put([snap()])
    clock.advance(3 * DAY.total_seconds())
    await archive.prune(timedelta(0))
    [ref] = await archive.put([snap(b"new")])
    assert (await archive.get(ref)).body == b"new"


texts = st.text(st.characters(), max_size=20)  # lone surrogates and NUL included
snapshots = st.builds(
    Snapshot,
    url=texts,
    requested_url=texts,
    status=st.integers(100, 599),
    headers=st.builds(Headers, st.lists(st.tuples(texts, texts), max_size=4)),
    body=st.binary(max_size=200),
    fetched_at=st.floats(0, 4e9),
    cut=st.booleans(),
    kind=texts,
    job=texts,
    data=texts,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pages=st.lists(snapshots, max_size=8))
def test_any_page_comes_back_as_it_was(new_place: Callable[[], ArchiveOpener], pages: list[Snapshot]) -> None:
    async def round_trip() -> list[Snapshot]:
        async with new_place()(VirtualClock(), "w") as archive:
            return [await archive.get(ref) for ref in await archive.put(pages)]

    assert asyncio.run(round_trip()) == pages


async def taken_in(archive: Archive, folder: Path, content: bytes) -> str:
    name = sha256(content).hexdigest()
    (folder / name).write_bytes(content)
    await archive.put_file(folder / name, name)
    return name


async def test_a_file_comes_back_whole_and_is_kept_once(archive: WholeArchive, tmp_path: Path) -> None:
    content = bytes(range(256)) * 50_000  # more than one part
    name = await taken_in(archive, tmp_path, content)
    assert b"".join([piece async for piece in archive.read_file(name)]) == content
    (tmp_path / "again").write_bytes(content)
    assert not await archive.put_file(tmp_path / "again", name)
    empty = await taken_in(archive, tmp_path, b"")
    assert sorted([one async for one in archive.files()]) == sorted([Segment(name, len(content)), Segment(empty, 0)])
    assert [one async for one in archive.segments()] == []
    assert await archive.has_file(name)


async def test_a_file_that_is_not_there_is_permanent(archive: Archive, tmp_path: Path) -> None:
    assert not await archive.has_file("0" * 64)
    for name in ("0" * 64, "../../etc/passwd", "", "A" * 64):
        with pytest.raises(Permanent):
            await anext(aiter(archive.read_file(name)))


async def test_old_files_are_pruned(archive: WholeArchive, clock: VirtualClock, tmp_path: Path) -> None:
    await taken_in(archive, tmp_path, b"a file")
    clock.advance(time.time() - clock.now())  # files carry the time of the disk, or of the service
    assert await archive.prune(DAY) == 0
    clock.advance(timedelta(days=3).total_seconds())
    assert await archive.prune(DAY) == len(b"a file")
    assert [one async for one in archive.files()] == []


# -- erasing -------------------------------------------------------------------------------------------------------


async def test_an_erased_page_is_gone_and_its_neighbours_stay(archive):
    refs = await archive.put([snap(b"Emma" * 50), snap(b"Jane Doe" * 50), snap(b"Anne" * 50)])

    assert await archive.erase([refs[1], "2027-01-31/unknown-1.zst#0+99", "nonsense"]) == 1

    kept = await archive.get_many(refs)
    assert [page.body[:4] for page in kept if isinstance(page, Snapshot)] == [b"Emma", b"Anne"]
    assert isinstance(kept[1], Permanent)
    assert "erased" in str(kept[1])
    pages = [ref for segment in [one async for one in every_page(archive)] for ref, _ in segment]
    assert pages == [refs[0], refs[2]]
    assert await archive.erase([refs[1]]) in (0, 1)  # again


async def test_pages_that_no_record_names_are_found_by_reading_everything(archive):
    refs = await archive.put([snap(url=f"https://shop.example/{n}") for n in range(3)])
    more = await archive.put([snap(bytes(200_000), url="https://shop.example/big"), snap(url="https://shop.example/e")])

    found = [(ref, page.url) for some in [one async for one in every_page(archive)] for ref, page in some]

    assert [ref for ref, _ in found] == [*refs, *more]
    assert found[-1][1] == "https://shop.example/e"


async def test_what_is_written_after_an_erasure_is_whole(archive):
    [ref] = await archive.put([snap(b"Jane Doe")])
    await archive.erase([ref])
    [later] = await archive.put([snap(b"Emma")])

    assert (await archive.get(later)).body == b"Emma"


async def test_an_erased_file_is_gone(archive, tmp_path):
    path = tmp_path / "part"
    path.write_bytes(b"portrait")
    digest = sha256(b"portrait").hexdigest()
    await archive.put_file(path, digest)

    assert await archive.erase_file(digest)
    assert not await archive.erase_file(digest)
    assert not await archive.has_file(digest)


# -- dropping ------------------------------------------------------------------------------------------------------


def heavy(number: int) -> Snapshot:
    return snap(random.Random(number).randbytes(40_000), url=f"https://shop.example/{number}")


async def test_dropped_pages_are_gone_and_other_references_hold(archive: WholeArchive) -> None:
    pages = [heavy(number) for number in range(30)]
    refs = await archive.put(pages)
    before = await archive.size()
    going = [*refs[5:15], refs[20]]

    freed = await archive.drop([*going, "2027-01-31/unknown-1.zst#0+99", "nonsense"])

    assert await archive.size() == before - freed
    came = await archive.get_many(refs)
    kept = [page for page, ref in zip(pages, refs, strict=True) if ref not in going]
    assert [page for page in came if isinstance(page, Snapshot)] == kept
    with pytest.raises(Permanent):
        await archive.get(refs[5])
    assert await archive.drop(going) == 0
    [later] = await archive.put([snap(b"later")])
    assert (await archive.get(later)).body == b"later"


async def test_more_can_be_dropped_or_erased_of_what_is_left(archive: WholeArchive) -> None:
    pages = [heavy(number) for number in range(20)]
    refs = await archive.put(pages)
    await archive.drop(refs[4:10])
    await archive.drop(refs[12:14])
    await archive.drop(refs[10:12])
    assert await archive.erase([refs[2], refs[16]]) == 2
    kept = [n for n in range(20) if n not in (2, *range(4, 14), 16)]
    assert [page for page in await archive.get_many(refs) if isinstance(page, Snapshot)] == [pages[n] for n in kept]

    found = [(ref, page.url) for some in [one async for one in every_page(archive)] for ref, page in some]
    assert sorted(url for _, url in found) == sorted(pages[n].url for n in kept)
    assert await archive.erase([next(ref for ref, url in found if url == pages[kept[3]].url)]) == 1
    assert isinstance((await archive.get_many([refs[kept[3]]]))[0], Permanent)
    await archive.drop(refs)
    assert await archive.size() < 200_000


async def test_a_copy_of_what_is_left_has_the_same_references_in_either_kind_of_archive(
    archive: WholeArchive, request: pytest.FixtureRequest, clock: VirtualClock
) -> None:
    pages = [heavy(number) for number in range(12)]
    refs = await archive.put(pages)
    await archive.drop(refs[3:8])
    for opener in ARCHIVES.values():
        async with opener(request)(clock, "host/2/2") as copy:
            async for segment in archive.segments():
                await copy.write_segment(segment.name, await archive.read_segment(segment.name))
            left = [page for page in await copy.get_many(refs) if isinstance(page, Snapshot)]
            assert left == [*pages[:3], *pages[8:]]
            assert await copy.erase([refs[0], refs[9]]) == 2
            assert isinstance((await copy.get_many([refs[9]]))[0], Permanent)


async def test_pages_behind_a_damaged_one_stay(archive: WholeArchive) -> None:
    refs = await archive.put([heavy(number) for number in range(4)])
    [segment] = [one async for one in archive.segments()]
    content = bytearray(await archive.read_segment(segment.name))
    place = int(refs[0].partition("#")[2].partition("+")[0])
    content[place : place + 8] = b"damaged!"
    await archive.write_segment(segment.name, bytes(content))

    await archive.drop(refs[1:3])

    assert (await archive.get(refs[3])).url == "https://shop.example/3"
    assert isinstance((await archive.get_many([refs[1]]))[0], Permanent)
