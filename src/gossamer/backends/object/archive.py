"""Raw pages in an object store (S3, MinIO, SeaweedFS, R2 ...); fulfils `WholeArchive`.

Names and format are those of store/page_format.py: a range request reads a single page, and a bucket copied into a
folder is a folder archive. An object holds all pages of one `put` and is written whole. Its writer is
`<writer>-<life>`, where `life` is random, chosen when the archive is opened: two processes never write the same name,
and a write that is repeated because its answer was lost writes the same bytes again.

A file is uploaded in parts, in constant memory, and is either complete or absent. Pruning uses its modification time,
which is when it was last stored; a file requested after more than a day is copied onto itself through a second name,
which renews its time.

How it fails: `BackendUnavailable`; an object exists whole or not at all. How it recovers: the next `put` makes a new
object; one that was written although its answer was lost is a copy that no reference names, until it is pruned.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...clock import Clock, SystemClock
from ...errors import BackendUnavailable, Permanent
from ...model.page import Snapshot
from ...store import page_format
from ...store.contract import Segment
from .bucket import (
    BucketAddress,
    beyond_end,
    connect,
    demand_keys,
    make_bucket,
    missing,
    parse_address,
    refused_at_start,
    unavailable,
    without_bucket,
)

if TYPE_CHECKING:
    from obstore.store import S3Store

OBJECT_BYTES = 32 * 1024 * 1024  # a batch that compresses to more is spread over several objects
MAX_READS = 16  # at the same time
PART_BYTES = 8 * 1024 * 1024
PARTS_AT_ONCE = 4
TOUCH_AFTER = timedelta(days=1)
GAP = 256 * 1024  # bytes between two pages of an object: a smaller gap is read along instead of making two requests
_FILE = re.compile(r"files/[0-9a-f]{2}/([0-9a-f]{64})")


@asynccontextmanager
async def open_object_archive(
    address: str, *, level: int, writer: str, clock: Clock | None = None
) -> AsyncIterator[ObjectArchive]:
    """Open the archive at `s3://bucket/prefix?endpoint=...&region=...` (bucket.py), and check that it answers.

    With `create=true` a missing bucket is made. Raises Misconfigured (address, bucket, key, region), MissingExtra,
    BackendUnavailable.
    """
    place = parse_address(address, os.environ)
    demand_keys(place, os.environ)
    store = connect(place)
    await _check(store, place, create=place.create)
    archive = ObjectArchive(store, place, level=level, writer=writer, clock=clock or SystemClock())
    try:
        yield archive
    finally:
        archive.close()


async def _check(store: S3Store, place: BucketAddress, *, create: bool) -> None:
    try:
        await anext(aiter(store.list(chunk_size=1)), None)  # listing one name proves enough
    except Exception as error:
        if not (create and without_bucket(error)):
            raise refused_at_start(error, place) from error
        await make_bucket(place)
        await _check(store, place, create=False)


class ObjectArchive:
    """Pages in a bucket. `writer` identifies this process in object names, for people who look at them."""

    def __init__(self, store: S3Store, place: BucketAddress, *, level: int, writer: str, clock: Clock) -> None:
        self._store = store
        self._place = place
        self._clock = clock
        self._level = level
        self._author = f"{page_format.name_of_writer(writer)}-{secrets.token_hex(8)}"
        self._count = 0
        self._closed = False

    def close(self) -> None:
        self._closed = True

    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        if self._closed:
            raise BackendUnavailable(f"The archive {self._place} is closed.")
        if not snapshots:
            return []
        day = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%d")
        refs: list[str] = []
        for frames in await asyncio.to_thread(_compressed, snapshots, self._level):
            self._count += 1
            key = f"{day}/{self._author}-{self._count}.zst"
            try:
                await self._store.put_async(key, b"".join(frames), use_multipart=False)
            except Exception as error:
                raise unavailable(error, self._place) from error
            offset = 0
            for frame in frames:
                refs.append(f"{key}#{offset}+{len(frame)}")
                offset += len(frame)
        return refs

    async def get(self, ref: str) -> Snapshot:
        key, offset, length = page_format.place_of(ref)
        frame = await self._read(ref, key, offset, length) if length else b""
        return await asyncio.to_thread(page_format.read_page, frame, ref)

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        room = asyncio.Semaphore(MAX_READS)
        objects: dict[str, list[str]] = {}
        for ref in dict.fromkeys(refs):
            objects.setdefault(ref.partition("#")[0], []).append(ref)

        async def of_one_object(wanted: list[str]) -> list[Snapshot | Permanent]:
            async with room:
                return await self._neighbours(wanted) or [await self._get_or_why(ref) for ref in wanted]

        answers = await asyncio.gather(*map(of_one_object, objects.values()))
        found: dict[str, Snapshot | Permanent] = {}
        for wanted, pages in zip(objects.values(), answers, strict=True):
            found.update(zip(wanted, pages, strict=True))
        return [found[ref] for ref in refs]

    async def _get_or_why(self, ref: str) -> Snapshot | Permanent:
        try:
            return await self.get(ref)
        except Permanent as error:
            return error

    async def _neighbours(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        """Pages of one object; one request reads pages that lie close together. Empty if one of them cannot be read:
        read alone, each gives its own error."""
        key = refs[0].partition("#")[0]
        places = page_format.places_by_segment(refs).get(key, [])
        starts, lengths = [offset for offset, _ in places], [length for _, length in places]
        if len(places) < max(2, len(refs)) or not all(lengths):
            return []
        try:
            frames = await self._store.get_ranges_async(key, starts=starts, lengths=lengths, coalesce=GAP)
        except Exception as error:
            if missing(error) or beyond_end(error):
                return []
            raise unavailable(error, self._place) from error
        if [len(frame) for frame in frames] != lengths:
            return []
        try:
            return await asyncio.to_thread(lambda: [*map(page_format.read_page, map(bytes, frames), refs)])
        except Permanent:
            return []

    async def _read(self, ref: str, key: str, offset: int, length: int) -> bytes:
        try:
            frame = bytes(await self._store.get_range_async(key, start=offset, length=length))
        except Exception as error:
            if missing(error):
                raise page_format.missing_page(ref, self._place) from error
            if not beyond_end(error):
                raise unavailable(error, self._place) from error
            frame = b""
        if len(frame) < length:
            raise Permanent(f"The archived page {ref} lies beyond the end of its object: replaced or truncated.")
        return frame

    async def erase(self, refs: Sequence[str]) -> int:
        return sum([erased async for erased, _ in self._blank(refs)])

    async def drop(self, refs: Sequence[str]) -> int:
        return sum([freed async for _, freed in self._blank(refs)])

    async def _blank(self, refs: Sequence[str]) -> AsyncIterator[tuple[int, int]]:
        """Of each object, how many pages were overwritten, and its size if nothing was left of it: an object has no
        holes, so its room comes back with its last page."""
        for key, places in page_format.places_by_segment(refs).items():
            with suppress(Permanent):  # pruned meanwhile
                content = bytearray(await self.read_segment(key))
                whole = [(offset, length) for offset, length in places if offset + length <= len(content)]
                for offset, length in whole:
                    content[offset : offset + length] = page_format.blank_frame(length)
                is_empty = page_format.is_empty(bytes(content))
                try:
                    if is_empty:
                        await self._store.delete_async(key)
                    elif whole:
                        await self._store.put_async(key, bytes(content), use_multipart=False)
                except Exception as error:
                    raise unavailable(error, self._place) from error
                yield len(whole), len(content) if is_empty else 0

    async def size(self) -> int:
        try:
            return sum([one["size"] async for found in self._store.list() for one in found])
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def segments(self) -> AsyncIterator[Segment]:
        try:
            async for found in self._store.list():
                for one in found:
                    if page_format.SEGMENT.fullmatch(one["path"]):
                        yield Segment(one["path"], one["size"])
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def read_segment(self, name: str) -> bytes:
        try:
            answer = await self._store.get_async(name)
            return bytes(await answer.bytes_async())
        except Exception as error:
            if missing(error):
                raise Permanent(f"There is no object {name} in {self._place}: it was pruned meanwhile.") from error
            raise unavailable(error, self._place) from error

    async def write_segment(self, name: str, content: bytes) -> None:
        if not page_format.SEGMENT.fullmatch(name):
            raise Permanent(f"{name[:200]!r} is not the name of an archive object.")
        try:
            await self._store.put_async(name, content, use_multipart=False)
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        freed = 0
        try:
            for folder in sorted((await self._store.list_with_delimiter_async())["common_prefixes"]):
                if page_format.day_ended_before(folder.rstrip("/"), cutoff):
                    freed += await self._delete_day(folder)
            freed += await self._prune_files(cutoff)
        except Exception as error:
            raise unavailable(error, self._place) from error
        return freed

    async def _delete_day(self, folder: str) -> int:
        freed = 0
        async for found in self._store.list(folder):  # in chunks, so that memory does not grow with the archive
            ours = [one for one in found if page_format.SEGMENT.fullmatch(one["path"])]
            if ours:
                await self._store.delete_async([one["path"] for one in ours])
                freed += sum(one["size"] for one in ours)
        return freed

    # -- files that spiders asked for ------------------------------------------------------------------------------

    async def put_file(self, path: Path, sha256: str) -> bool:
        if await self.has_file(sha256):
            return False
        try:
            await self._store.put_async(
                page_format.name_of_file(sha256),
                path,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        except Exception as error:
            raise unavailable(error, self._place) from error
        return True

    async def erase_file(self, sha256: str) -> bool:
        if not await self.has_file(sha256):
            return False
        try:
            await self._store.delete_async(page_format.name_of_file(sha256))
        except Exception as error:
            raise unavailable(error, self._place) from error
        return True

    async def has_file(self, sha256: str) -> bool:
        key = page_format.name_of_file(sha256)
        try:
            found = await self._store.head_async(key)
            if self._clock.now() - found["last_modified"].timestamp() > TOUCH_AFTER.total_seconds():
                await self._store.copy_async(key, f"{key}.used")
                await self._store.copy_async(f"{key}.used", key)
                await self._store.delete_async(f"{key}.used")
        except Exception as error:
            if missing(error):
                return False
            raise unavailable(error, self._place) from error
        return True

    async def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        key = page_format.name_of_file(sha256)
        try:
            answer = await self._store.get_async(key)
            digest = hashlib.sha256()
            async for piece in answer.stream(min_chunk_size=1024 * 1024):
                digest.update(piece)
                yield bytes(piece)
        except Exception as error:
            if missing(error):
                raise page_format.missing_file(sha256, self._place) from error
            raise unavailable(error, self._place) from error
        if digest.hexdigest() != sha256:
            raise Permanent(f"The file {sha256} in {self._place} is not what its name says: the archive was changed.")

    async def files(self) -> AsyncIterator[Segment]:
        try:
            async for found in self._store.list("files"):
                for one in found:
                    name = _FILE.fullmatch(one["path"])
                    if name:
                        yield Segment(name[1], one["size"])
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def _prune_files(self, cutoff: float) -> int:
        freed, before = 0, datetime.fromtimestamp(cutoff, UTC)
        async for found in self._store.list("files"):
            old = [one for one in found if _FILE.fullmatch(one["path"]) and one["last_modified"] < before]
            if old:
                await self._store.delete_async([one["path"] for one in old])
                freed += sum(one["size"] for one in old)
        return freed


def _compressed(snapshots: Sequence[Snapshot], level: int) -> list[list[bytes]]:
    """One frame per page, gathered into objects."""
    packer = page_format.PagePacker(level)
    objects: list[list[bytes]] = [[]]
    size = 0
    for snapshot in snapshots:
        frame = packer.frame(snapshot)
        if objects[-1] and size + len(frame) > OBJECT_BYTES:
            objects.append([])
            size = 0
        objects[-1].append(frame)
        size += len(frame)
    return objects
