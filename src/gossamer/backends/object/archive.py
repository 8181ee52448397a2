"""Raw pages in an object store (S3, MinIO, SeaweedFS, R2 ...); fulfils `WholeArchive`.

    <prefix>/YYYY-MM-DD/<writer>-<life>-<n>.zst      an object: all pages of one `put`, written whole, never changed
    <prefix>/files/<ab>/<sha256>                     a file that a spider asked for (files.py)

An object has the format of a segment of the folder archive: one zstd frame per page, so that a range request reads a
single page, and a bucket copied into a folder is a folder archive. A reference is
`YYYY-MM-DD/<writer>-<life>-<n>.zst#offset+length`. `life` is random, chosen when the archive is opened: two processes
never write the same name, and a write that is repeated because its answer was lost writes the same bytes again.

How it fails: `BackendUnavailable`; an object exists whole or not at all. How it recovers: the next `put` makes a new
object; one that was written although its answer was lost is a copy that no reference names, until it is pruned.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import zstandard

from ...clock import Clock, SystemClock
from ...errors import BackendUnavailable, Permanent
from ...model.page import Snapshot
from ...store.contract import Segment
from ...store.page_format import (
    PART,
    REF,
    SEGMENT,
    PagePacker,
    among_parts,
    blank_frame,
    frames_in,
    joined,
    part_name,
    part_with,
    places_of,
    start_of,
    unpack_page,
)
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
from .files import ObjectFiles

if TYPE_CHECKING:
    from obstore.store import S3Store

OBJECT_BYTES = 32 * 1024 * 1024  # a batch that compresses to more is spread over several objects
MAX_READS = 16  # at the same time
LISTED = 1000  # parts of an object at once
SPLIT_GAP = 64 * 1024  # bytes: an object is split where at least so many were dropped
GAP = 256 * 1024  # bytes between two pages of an object: a smaller gap is read along instead of making two requests
DAMAGED = (zstandard.ZstdError, msgspec.MsgspecError, ValueError, KeyError, TypeError)

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


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


class ObjectArchive(ObjectFiles):
    """Pages in a bucket. `writer` identifies this process in object names, for people who look at them."""

    def __init__(self, store: S3Store, place: BucketAddress, *, level: int, writer: str, clock: Clock) -> None:
        super().__init__(store, place, clock)
        self._level = level
        name = _UNFIT.sub("-", writer).strip(".-_")[:100] or "writer"
        self._author = f"{name}-{secrets.token_hex(8)}"
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
        match = REF.fullmatch(ref)
        if match is None:
            raise Permanent(f"{ref[:200]!r} is not an archive reference; they look like 2027-01-31/host-1.zst#0+999.")
        key, offset, length = match[1], int(match[2]), int(match[3])
        frame = await self._read(ref, key, offset, length) if length else b""
        try:
            return await asyncio.to_thread(unpack_page, frame)
        except DAMAGED as error:
            raise Permanent(
                f"The archived page {ref} is damaged ({error}). Fetch the page again to have a new copy."
            ) from error

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
        places = [match for match in map(REF.fullmatch, refs) if match is not None]
        starts, lengths = ([int(match[part]) for match in places] for part in (2, 3))
        if len(places) < max(2, len(refs)) or not all(lengths):
            return []
        try:
            frames = await self._store.get_ranges_async(places[0][1], starts=starts, lengths=lengths, coalesce=GAP)
        except Exception as error:
            if missing(error) or beyond_end(error):
                return []
            raise unavailable(error, self._place) from error
        if [len(frame) for frame in frames] != lengths:
            return []
        try:
            return await asyncio.to_thread(lambda: [unpack_page(bytes(frame)) for frame in frames])
        except DAMAGED:
            return []

    async def _read(self, ref: str, key: str, offset: int, length: int) -> bytes:
        try:
            frame = bytes(await self._store.get_range_async(key, start=offset, length=length))
        except Exception as error:
            if missing(error):
                if part := part_with(await self._parts(key), offset):
                    return await self._read(ref, *part, length)
                raise Permanent(
                    f"There is no archived page {ref} in {self._place}: it was pruned, or the archive was moved."
                ) from error
            if not beyond_end(error):
                raise unavailable(error, self._place) from error
            frame = b""
        if len(frame) < length:
            raise Permanent(f"The archived page {ref} lies beyond the end of its object: replaced or truncated.")
        return frame

    async def _parts(self, key: str) -> list[Segment]:
        """What is left of an object from which pages were dropped."""
        if PART in key:
            return []
        try:
            begins = key.removesuffix(".zst") + PART
            parts: list[Segment] = []
            async for found in self._store.list(key.partition("/")[0], offset=begins, chunk_size=LISTED):
                ours = [Segment(one["path"], one["size"]) for one in found if one["path"].startswith(begins)]
                parts += ours
                if len(ours) < len(found):
                    break
            return parts
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def _places(self, refs: Sequence[str]) -> list[tuple[str, list[tuple[int, int]]]]:
        """By object and by part of one, where these pages lie, if it is there."""
        found: list[tuple[str, list[tuple[int, int]]]] = []
        for key, frames in places_of(refs).items():
            found += among_parts(key, frames, await self._parts(key))
        return found

    async def drop(self, refs: Sequence[str]) -> int:
        """An object cannot have holes: what is left of it is written as parts, before it is deleted."""
        freed = 0
        for key, frames in await self._places(refs):
            with suppress(Permanent):  # pruned meanwhile
                content = bytearray(await self.read_segment(key))
                every, gone = list(frames_in(bytes(content))), set(frames)
                left = [place for place in every if place not in gone]
                if len(left) == len(every):
                    continue
                for offset, length in gone.intersection(every):
                    content[offset : offset + length] = blank_frame(length)
                whole, start = f"{key.removesuffix('.zst').partition(PART)[0]}.zst", start_of(key)
                parts = list(joined(left, len(content), SPLIT_GAP))
                names = [part_name(whole, start + offset) for offset, _ in parts]
                try:
                    for name, (offset, length) in zip(names, parts, strict=True):
                        await self._store.put_async(name, bytes(content[offset : offset + length]), use_multipart=False)
                    if key not in names:
                        await self._store.delete_async(key)
                except Exception as error:
                    raise unavailable(error, self._place) from error
                freed += len(content) - sum(length for _, length in parts)
        return freed

    async def erase(self, refs: Sequence[str]) -> int:
        erased = 0
        for key, frames in await self._places(refs):
            with suppress(Permanent):  # pruned meanwhile
                content = bytearray(await self.read_segment(key))
                whole = [(offset, length) for offset, length in frames if offset + length <= len(content)]
                for offset, length in whole:
                    content[offset : offset + length] = blank_frame(length)
                try:
                    if next(frames_in(bytes(content)), None) is None:
                        await self._store.delete_async(key)
                    else:
                        await self._store.put_async(key, bytes(content), use_multipart=False)
                except Exception as error:
                    raise unavailable(error, self._place) from error
                erased += len(whole)
        return erased

    async def size(self) -> int:
        try:
            return sum([one["size"] async for found in self._store.list() for one in found])
        except Exception as error:
            raise unavailable(error, self._place) from error

    async def segments(self) -> AsyncIterator[Segment]:
        try:
            async for found in self._store.list():
                for one in found:
                    if SEGMENT.fullmatch(one["path"]):
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
        if not SEGMENT.fullmatch(name):
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
                if _ended_before(folder.rstrip("/"), cutoff):
                    freed += await self._delete_day(folder)
            freed += await self._prune_files(cutoff)
        except Exception as error:
            raise unavailable(error, self._place) from error
        return freed

    async def _delete_day(self, folder: str) -> int:
        freed = 0
        async for found in self._store.list(folder):  # in chunks, so that memory does not grow with the archive
            ours = [one for one in found if SEGMENT.fullmatch(one["path"])]
            if ours:
                await self._store.delete_async([one["path"] for one in ours])
                freed += sum(one["size"] for one in ours)
        return freed


def _compressed(snapshots: Sequence[Snapshot], level: int) -> list[list[bytes]]:
    """One frame per page, gathered into objects."""
    packer = PagePacker(level)
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


def _ended_before(day: str, cutoff: float) -> bool:
    try:
        start = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:  # not a day: not ours
        return False
    return (start + timedelta(days=1)).timestamp() <= cutoff
