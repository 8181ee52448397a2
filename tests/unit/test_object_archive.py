"""What is particular to the archive on S3: its objects, its refusals, a server that fails."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import zstandard

from gossamer.backends.object import archive as object_archive
from gossamer.backends.object.archive import ObjectArchive, open_object_archive
from gossamer.backends.object.bucket import connect, make_bucket, parse_address
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import SystemClock, VirtualClock
from gossamer.errors import BackendUnavailable, GossamerError, Misconfigured, Permanent
from gossamer.store.contract import RecordQuery
from gossamer.store.sink import Sink
from gossamer.store.spool import Spool
from tests.patience import PATIENCE

from ..conformance.stores import NOW
from ..services.seaweed import READER_KEY, READER_SECRET, SECRET_KEY, Seaweed
from .spooling import snap, visit


@pytest.fixture
def address(s3: Seaweed) -> str:
    return s3.address(f"unit/{uuid.uuid4().hex}")


@asynccontextmanager
async def opened(
    address: str, writer: str = "host/42/1", clock: VirtualClock | None = None
) -> AsyncIterator[ObjectArchive]:
    async with open_object_archive(address, level=1, writer=writer, clock=clock or VirtualClock(NOW)) as archive:
        yield archive


async def objects_at(address: str) -> dict[str, bytes]:
    bucket = connect(parse_address(address, os.environ))
    found = {}
    async for chunk in bucket.list():
        for one in chunk:
            found[one["path"]] = bytes(await (await bucket.get_async(one["path"])).bytes_async())
    return found


async def test_a_batch_is_one_object_that_zstd_can_read(address: str) -> None:
    async with opened(address) as archive:
        refs = await archive.put([snap(1), snap(2)])
        [(key, content)] = (await objects_at(address)).items()
        assert re.fullmatch(r"2027-01-15/host-42-1-[0-9a-f]{16}-1\.zst", key)
        assert [ref.partition("#")[0] for ref in refs] == [key, key]
        lines = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).read().splitlines()
        assert lines[1::2] == [b"page 1", b"page 2"]


async def test_a_large_batch_is_spread_over_objects(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_archive, "OBJECT_BYTES", 500)
    async with opened(address) as archive:
        refs = await archive.put([snap(n) for n in range(10)])
        assert [await archive.get(ref) for ref in refs] == [snap(n) for n in range(10)]
        assert 1 < len(await objects_at(address)) <= 5


@pytest.mark.parametrize("writer", ["", "../../x", "a" * 500, "hôst/é", "x\x00y"])
async def test_any_writer_name_gives_a_good_key(address: str, writer: str) -> None:
    async with opened(address, writer) as archive:
        [ref] = await archive.put([snap(1)])
        assert await archive.get(ref) == snap(1)


async def test_damage_is_named_as_such(address: str) -> None:
    async with opened(address) as archive:
        [ref, _] = await archive.put([snap(1), snap(2)])
        place, _, length = ref.rpartition("+")
        for wrong in (f"{place}+{int(length) - 1}", f"{place}+0", f"{place}+{int(length) + 1}"):
            with pytest.raises(Permanent, match="damaged"):
                await archive.get(wrong)
        for wrong in (f"{place}+99999", f"{place.replace('#0', '#99999')}+{length}"):
            with pytest.raises(Permanent, match="beyond the end"):
                await archive.get(wrong)


async def test_pruning_leaves_what_is_not_ours(address: str) -> None:
    clock = VirtualClock(NOW)
    async with opened(address, clock=clock) as archive:
        bucket = connect(parse_address(address, os.environ))
        for key in ("notes.txt", "2020-01-01/photo.jpg", "2020-99-99/w-1.zst", "deep/2020-01-01/w-1.zst"):
            await bucket.put_async(key, b"mine")
        await bucket.put_async("2020-01-01/w-1.zst", b"12345")
        await archive.put([snap(1)])
        assert await archive.prune(timedelta(days=30)) == 5
        left = sorted(key for key in await objects_at(address) if "host" not in key)
        assert left == ["2020-01-01/photo.jpg", "2020-99-99/w-1.zst", "deep/2020-01-01/w-1.zst", "notes.txt"]


async def test_nothing_is_written_outside_async_with(address: str) -> None:
    async with opened(address) as archive:
        pass
    with pytest.raises(BackendUnavailable, match="closed"):
        await archive.put([snap(1)])


async def test_a_missing_bucket_is_made_when_the_address_asks_for_it(s3: Seaweed) -> None:
    wanted = s3.address("some/prefix", bucket=f"made-{uuid.uuid4().hex[:8]}") + "&create=true"
    async with opened(wanted) as first, opened(wanted) as second:
        [ref] = await first.put([snap(1)])
        assert await second.get(ref) == snap(1)
    s3.drop_bucket(parse_address(wanted, {}).bucket)


async def test_a_key_that_may_not_make_the_bucket_is_told_so(s3: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER_SECRET)
    with pytest.raises(Misconfigured, match="The key may not do this"):
        async with opened(s3.address("x", bucket="no-such-bucket") + "&create=true"):
            pass


async def test_two_that_begin_at_once_make_one_bucket(s3: Seaweed) -> None:
    place = parse_address(s3.address("", bucket=f"made-{uuid.uuid4().hex[:8]}"), os.environ)
    await asyncio.gather(*(make_bucket(place) for _ in range(4)))
    s3.drop_bucket(place.bucket)


async def test_a_missing_bucket_is_named_at_the_start(s3: Seaweed) -> None:
    with pytest.raises(Misconfigured, match=r"s3://no-such-bucket.*Create it"):
        async with opened(s3.address("x", bucket="no-such-bucket")):
            pass


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("AWS_ACCESS_KEY_ID", "nobody", "does not know the access key"),
        ("AWS_SECRET_ACCESS_KEY", "a-wrong-secret", "secret does not belong"),
    ],
)
async def test_a_wrong_key_is_told_at_the_start_and_no_secret_with_it(
    address: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, remedy: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured, match=remedy) as caught:
        async with opened(address):
            pass
    told = f"{caught.value} {caught.value.__cause__}"
    assert SECRET_KEY not in told
    assert "a-wrong-secret" not in told


async def test_no_key_at_all_is_told_at_the_start(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Misconfigured, match="there are no keys for it"):
        async with opened(address):
            pass


async def test_a_key_that_may_not_write_makes_pages_wait(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(address) as archive:
        [ref] = await archive.put([snap(1)])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", READER_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", READER_SECRET)
    async with opened(address) as archive:
        assert await archive.get(ref) == snap(1)
        with pytest.raises(BackendUnavailable, match="s3:PutObject"):
            await archive.put([snap(2)])


async def test_a_bucket_that_goes_away_makes_pages_wait(s3: Seaweed) -> None:
    bucket = f"gone-{uuid.uuid4().hex[:8]}"
    s3.make_bucket(bucket)
    async with opened(s3.address("x", bucket)) as archive:
        [ref] = await archive.put([snap(1)])
        s3.drop_bucket(bucket)
        with pytest.raises(BackendUnavailable, match="no such bucket"):
            await archive.put([snap(2)])
        with pytest.raises(BackendUnavailable, match="no such bucket"):
            await archive.get(ref)


class Doorman:
    """Stands before the S3 server: lets everything through, answers 500, or is not there."""

    def __init__(self, server: Seaweed) -> None:
        self._port = int(server.endpoint.rpartition(":")[2])
        self.failing = False
        self.reads = 0  # requests with a range that were let through
        self._guests: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Doorman:
        self._server = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()

    async def fail(self) -> None:
        """From now on 500, also on connections that are open already."""
        self.failing = True
        await self._show_out()

    async def leave(self) -> None:
        self._server.close()
        await self._show_out()

    async def _show_out(self) -> None:
        for guest in list(self._guests):
            guest.cancel()
        await asyncio.gather(*self._guests, return_exceptions=True)

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._guests.add(task)
        try:
            if self.failing:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                await writer.drain()
                return
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await asyncio.gather(_forward(reader, inner_writer, self._count), _forward(inner_reader, writer))
            finally:
                inner_writer.close()
        finally:
            self._guests.discard(task)
            writer.close()

    def _count(self, chunk: bytes) -> None:
        self.reads += chunk.lower().count(b"\r\nrange: bytes=")


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tell: Callable[[bytes], None] | None = None
) -> None:
    while chunk := await reader.read(65536):
        if tell is not None:
            tell(chunk)
        writer.write(chunk)
        await writer.drain()
    writer.close()


async def test_a_server_that_answers_500_or_not_at_all_makes_pages_wait(s3: Seaweed) -> None:
    async with Doorman(s3) as door:
        # The pool keeps connections open: each way to fail is met by a client of its own.
        address = f"s3://pages/{uuid.uuid4().hex}?endpoint=http://127.0.0.1:{door.port}&region=us-east-1"
        door.failing = True
        with pytest.raises(BackendUnavailable, match="answered 500"):
            async with opened(address):
                pass
        door.failing = False
        async with opened(address) as archive:
            [ref] = await archive.put([snap(1)])
            await door.leave()
            for call in (archive.get(ref), archive.put([snap(2)]), archive.prune(timedelta(days=1))):
                with pytest.raises(BackendUnavailable, match="does not answer"):
                    await call
        with pytest.raises(BackendUnavailable, match="does not answer"):
            async with opened(address):
                pass


async def test_every_verb_translates_a_500(s3: Seaweed) -> None:
    async with Doorman(s3) as door:
        address = f"s3://pages/{uuid.uuid4().hex}?endpoint=http://127.0.0.1:{door.port}&region=us-east-1"
        async with opened(address) as archive:
            ref, other = await archive.put([snap(1), snap(2)])
            await door.fail()
            verbs = archive.put([snap(2)]), archive.get(ref), archive.get_many([ref, other])
            for call in (*verbs, archive.prune(timedelta(days=1))):
                with pytest.raises(GossamerError) as caught:
                    await call
                assert isinstance(caught.value, BackendUnavailable)
                assert "answered 500" in str(caught.value)
                assert caught.value.__cause__ is not None
            door.failing = False
            assert await archive.get(ref) == snap(1)


async def test_neighbours_are_read_by_one_request(s3: Seaweed) -> None:
    async with Doorman(s3) as door:
        address = f"s3://pages/{uuid.uuid4().hex}?endpoint=http://127.0.0.1:{door.port}&region=us-east-1"
        async with opened(address) as archive:
            pages = [snap(n) for n in range(12)]
            refs = [*await archive.put(pages[:8]), *await archive.put(pages[8:])]
            assert await archive.get_many(refs[::-1]) == pages[::-1]
    assert door.reads == 2  # there are two objects


async def test_a_crawl_goes_on_while_s3_answers_500(s3: Seaweed, tmp_path: Path) -> None:
    clock = VirtualClock()
    async with Doorman(s3) as door, open_sqlite_records(tmp_path / "records.db", SystemClock()) as records:
        address = f"s3://pages/{uuid.uuid4().hex}?endpoint=http://127.0.0.1:{door.port}&region=us-east-1"
        async with opened(address) as archive:
            spool = Spool(tmp_path / "spool", max_bytes=None)
            async with Sink(records, archive, spool=spool, clock=clock) as sink:
                await door.fail()
                assert await asyncio.gather(*(sink.keep(visit(n), snap(n)) for n in range(20))) == [0] * 20
                assert await records.count(RecordQuery()) == 0
                door.failing = False
            for n in range(20):
                [page] = await records.visits(visit(n).attempt.fingerprint)
                assert await archive.get(page.archive_ref) == snap(n)


def test_without_the_package_the_message_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['obstore.store'] = None\n"
        "import asyncio\n"
        "from gossamer.backends.object.archive import open_object_archive\n"
        "async def main():\n"
        "    async with open_object_archive('s3://pages', level=1, writer='w'): pass\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert "MissingExtra" in done.stderr
    assert "pip install 'gossamer[fleet]'" in done.stderr
