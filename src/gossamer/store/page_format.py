"""How a raw page is written, wherever it is kept: one line of JSON, then the body, then the screenshot if there is one;
the archive compresses it. A body that came as gzip stays gzip: compressing it again costs more CPU than all other
storage of a page, and saves nothing.

All archives name what they hold alike, below their root or prefix:

    YYYY-MM-DD/<writer>-<n>.zst      a segment: one zstd frame per page, so it is a valid .zst file
    files/<ab>/<sha256>              a file that a spider asked for, as received

A reference to a page is `YYYY-MM-DD/<writer>-<n>.zst#offset+length`. A segment copied from one archive to another keeps
its references valid.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import struct
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from ..errors import Permanent
from ..model.file import is_hash
from ..model.page import Headers, Snapshot
from ..model.record import PageFacts
from ..model.url import site_of
from .contract import Archive, PageArchive

if TYPE_CHECKING:
    import zlib
else:  # the same, and more than twice as fast; its types differ
    from zlib_ng import zlib_ng as zlib

MAX_PAGE_BYTES = 512 * 1024 * 1024  # a frame that claims to decompress to more is not ours
MAX_HEAD_BYTES = 64 * 1024 * 1024  # of the line of JSON
GZIP = "gzip"
_GZIP_MEMBER = b"\x1f\x8b"  # magic number of each member
_GZIP_END = struct.Struct("<II")
_SLICE = 64 * 1024
_WRAP = -1  # zstd level for data that is compressed already: a third of the time of level 3, for half a percent more


class PagePacker:
    """Makes the zstd frames of pages. `level` is for pages that came uncompressed."""

    def __init__(self, level: int) -> None:
        self._pack = zstandard.ZstdCompressor(level=level, write_checksum=True).compress
        self._wrap = zstandard.ZstdCompressor(level=min(level, _WRAP), write_checksum=True).compress

    def frame(self, snapshot: Snapshot) -> bytes:
        """The page in one frame."""
        packed = bool(snapshot.packed) and _is_packed(snapshot.body, snapshot.packed)
        content = content_of(snapshot, snapshot.packed if packed else b"")
        return self._wrap(content) if packed else self._pack(content)


def head_of(snapshot: Snapshot) -> dict[str, Any]:
    """The facts of a page besides its body."""
    return {
        "url": snapshot.url,
        "requested_url": snapshot.requested_url,
        "status": snapshot.status,
        "headers": snapshot.headers.pairs,
        "fetched_at": snapshot.fetched_at,
        "cut": snapshot.cut,
        "kind": snapshot.kind,
        "job": snapshot.job,
        "data": snapshot.data,
    }


def content_of(snapshot: Snapshot, packed: bytes = b"") -> bytes:
    """The page before compression, with its body as gzip if given."""
    head = head_of(snapshot)
    head["length"] = len(snapshot.body)
    body = packed or snapshot.body
    if packed:
        head["packed"] = GZIP
        head["packed_length"] = len(packed)
    if snapshot.depth:
        head["depth"] = snapshot.depth
    if snapshot.screenshot:
        head["screenshot"] = len(snapshot.screenshot)
    try:
        line = msgspec.json.encode(head)
    except UnicodeEncodeError:  # header bytes that are not UTF-8 become lone surrogates; as escapes they survive
        line = json.dumps(head).encode("ascii")
    return b"".join((line, b"\n", body, snapshot.screenshot, b"\n"))


def _is_packed(body: bytes, packed: bytes) -> bool:
    """Is that the body as gzip? It ends with the checksum and the length of its content. An extension may have changed
    the body since it came."""
    return packed[-8:] == _GZIP_END.pack(zlib.crc32(body), len(body) & 0xFFFF_FFFF)


class _Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The line of JSON before the body. Who can write to the archive may have written anything there."""

    url: str
    requested_url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    fetched_at: float
    length: int
    cut: bool = False
    kind: str = "parse"
    job: str = ""
    data: str = ""
    depth: int = 0
    screenshot: int = 0
    packed: str = ""
    packed_length: int | None = None


def unpack_page(frame: bytes) -> Snapshot:
    """The page in one zstd frame. Raises ValueError, zstandard.ZstdError or msgspec.DecodeError for a damaged one."""
    if is_blank(frame):
        raise ValueError("it was erased on request, or pruned")
    # The frame's header states the size; check it before that much memory is allocated.
    size = zstandard.get_frame_parameters(frame).content_size
    if size > MAX_PAGE_BYTES:
        raise ValueError(f"it claims to unpack to {size} bytes")
    content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=MAX_PAGE_BYTES, allow_extra_data=False)
    end = content.index(b"\n")
    head = _read_head(content[:end])
    packed_length = head.length if head.packed_length is None else head.packed_length
    body_end = end + 1 + packed_length
    if min(head.length, packed_length, head.screenshot) < 0 or len(content) != body_end + head.screenshot + 1:
        raise ValueError(f"its body should have {packed_length} bytes")
    body = content[end + 1 : body_end]
    return Snapshot(
        url=head.url,
        requested_url=head.requested_url,
        status=head.status,
        headers=Headers(head.headers),
        body=_unpacked(body, head.packed, head.length) if head.packed else body,
        fetched_at=head.fetched_at,
        cut=head.cut,
        kind=head.kind,
        job=head.job,
        data=head.data,
        screenshot=content[body_end : body_end + head.screenshot],
        depth=head.depth,
    )


# -- names and references --------------------------------------------------------------------------------------------

SEGMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}/[A-Za-z0-9][A-Za-z0-9._-]*\.zst")
_REF = re.compile(rf"({SEGMENT.pattern})#([0-9]{{1,15}})\+([0-9]{{1,15}})")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_DAMAGED = (zstandard.ZstdError, msgspec.MsgspecError, ValueError, KeyError, TypeError)


def place_of(ref: str) -> tuple[str, int, int]:
    """The segment of a page, the offset and the length of its frame. Raises Permanent."""
    match = _REF.fullmatch(ref)
    if match is None:
        raise Permanent(f"{ref[:200]!r} is not an archive reference; they look like 2027-01-31/host-1.zst#0+999.")
    return match[1], int(match[2]), int(match[3])


def places_by_segment(refs: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """The offsets and lengths of these pages; what is not a reference is left out."""
    places: dict[str, list[tuple[int, int]]] = {}
    for segment, offset, length in map(place_of, filter(_REF.fullmatch, refs)):
        places.setdefault(segment, []).append((offset, length))
    return places


def read_page(frame: bytes, ref: str) -> Snapshot:
    """The page in the frame that a reference names. Raises Permanent."""
    try:
        return unpack_page(frame)
    except _DAMAGED as error:
        raise Permanent(
            f"The archived page {ref} is damaged ({error}). Fetch the page again to have a new copy."
        ) from error


def missing_page(ref: str, archive: object) -> Permanent:
    return Permanent(f"There is no archived page {ref} in {archive}: it was pruned, or the archive was moved.")


def name_of_writer(writer: str) -> str:
    """The name of a process as a part of the names of segments."""
    return _UNFIT.sub("-", writer).strip(".-_")[:100] or "writer"


def day_ended_before(day: str, cutoff: float) -> bool:
    """False for a name that is no day: the folder is not ours."""
    try:
        start = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return False
    return (start + timedelta(days=1)).timestamp() <= cutoff


def name_of_file(sha256: str) -> str:
    """Raises Permanent if that is not a hash."""
    if not is_hash(sha256):
        raise Permanent(f"{sha256[:80]!r} is not the hash of a file: 64 digits of 0-9 and a-f.")
    return f"files/{sha256[:2]}/{sha256}"


def missing_file(sha256: str, archive: object) -> Permanent:
    return Permanent(f"There is no file {sha256} in {archive}: it was pruned, or the archive was moved.")


# -- the frames of a segment ------------------------------------------------------------------------------------------

_SKIPPED = struct.Struct("<II")  # zstd's own kind of frame for what is to be passed over: magic number, length
_SKIPPABLE = 0x184D2A50
BLANK_HEAD = _SKIPPED.size
_CHECKSUM_BYTES = 4
_RLE = 1  # a block of one byte, repeated


def blank_frame(length: int) -> bytes:
    """What takes the place of a page that was erased: a segment stays a valid file, and other references hold."""
    return _SKIPPED.pack(_SKIPPABLE, length - _SKIPPED.size) + bytes(length - _SKIPPED.size)


def is_blank(frame: bytes) -> bool:
    """Was this page, perhaps with its neighbours, erased or dropped?"""
    return len(frame) >= BLANK_HEAD and (_SKIPPED.unpack_from(frame)[0] == _SKIPPABLE or not any(frame))


def joined(places: Iterable[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    """The offsets and lengths of pages before the `end` of a segment, with neighbours as one."""
    start = stop = 0
    for offset, length in sorted(set(places)):
        if offset + length > end or length < BLANK_HEAD:
            continue
        if stop != offset:
            if stop > start:
                yield start, stop - start
            start = offset
        stop = offset + length
    if stop > start:
        yield start, stop - start


def is_empty(segment: bytes) -> bool:
    """Is nothing left in a whole segment? Pages behind a damaged one are."""
    offset = 0
    while offset < len(segment):
        length = _frame_length(segment, offset)
        if length is None or not is_blank(segment[offset : offset + length]):
            return False
        offset += length
    return True


def frames_in(segment: bytes) -> Iterator[tuple[int, int]]:
    """The offset and length of every whole page in a segment; a torn tail ends it."""
    offset = 0
    while (length := _frame_length(segment, offset)) is not None and offset + length <= len(segment):
        if not is_blank(segment[offset : offset + length]):
            yield offset, length
        offset += length


def _frame_length(segment: bytes, offset: int) -> int | None:
    head = segment[offset : offset + 18]  # the longest
    if len(head) >= _SKIPPED.size and _SKIPPED.unpack_from(head)[0] & ~0xF == _SKIPPABLE:
        return _SKIPPED.size + int(_SKIPPED.unpack_from(head)[1])
    try:
        at = offset + zstandard.frame_header_size(head)
        ends_with = _CHECKSUM_BYTES if zstandard.get_frame_parameters(head).has_checksum else 0
    except zstandard.ZstdError:
        return None
    while at + 3 <= len(segment):
        block = int.from_bytes(segment[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
        if block & 1:
            return at + ends_with - offset
    return None


async def every_page(archive: PageArchive) -> AsyncIterator[list[tuple[str, Snapshot]]]:
    """Every page in an archive, segment by segment, with its reference; also pages that no record names, which a
    crash has left. Those that are damaged are passed over."""
    async for segment in archive.segments():
        try:
            content = await archive.read_segment(segment.name)
        except Permanent:  # pruned meanwhile
            continue
        yield await asyncio.to_thread(_pages_in, segment.name, content)


def _pages_in(name: str, content: bytes) -> list[tuple[str, Snapshot]]:
    found = []
    for offset, length in frames_in(content):
        with suppress(*_DAMAGED):
            found.append((f"{name}#{offset}+{length}", unpack_page(content[offset : offset + length])))
    return found


def _read_head(line: bytes) -> _Head:
    if len(line) > MAX_HEAD_BYTES:
        raise ValueError(f"its head has {len(line)} bytes")
    try:
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:  # lone surrogates
            head = msgspec.convert(json.loads(line), _Head)
    except RecursionError:
        raise ValueError("its head is nested too deeply") from None
    if not math.isfinite(head.fetched_at):
        raise ValueError("its time is not a number")
    return head


def _unpacked(body: bytes, packing: str, length: int) -> bytes:
    if packing != GZIP or length > MAX_PAGE_BYTES:
        raise ValueError(f"its body is packed as {packing!r:.40}, {length} bytes long")
    inflated, at = bytearray(), 0
    try:
        while body[at : at + 2] == _GZIP_MEMBER:  # all members; what follows them is padding
            member = zlib.decompressobj(31)
            while not member.eof:
                # In slices: each member that ends leaves a copy of the rest, and a hostile body has thousands.
                piece = body[at : at + _SLICE]
                inflated += member.decompress(piece, length - len(inflated) + 1)
                at += len(piece) - len(member.unused_data)
                if len(inflated) > length or not piece:
                    raise ValueError(f"its body should have {length} bytes when unpacked")
    except zlib.error as error:
        raise ValueError(f"its body cannot be unpacked: {error}") from error
    if len(inflated) != length:
        raise ValueError(f"its body should have {length} bytes when unpacked")
    return bytes(inflated)


# -- a page and what the records say about it ------------------------------------------------------------------------


def hash_of_body(body: bytes) -> bytes:
    """The hash of a body in the records, `PageFacts.body_hash`."""
    return sha256(body).digest()[:16]


async def read_visit(archive: Archive, visit: PageFacts) -> Snapshot:
    """The raw page of a visit. Raises Permanent if it was pruned, is damaged, or is not the page that was fetched."""
    page = await archive.get(visit.archive_ref)
    require_same(page, visit.archive_ref, visit.url, visit.body_hash)
    return page


def require_same(page: Snapshot, ref: str, url: str, body_hash: bytes) -> None:
    """Raise Permanent unless the archive holds the body that the records name, from the site that they name: who can
    write to the archive alone cannot make records of another page. Without a hash the body is not compared."""
    # Not the whole URL: a page may have moved within its site, and several spellings have one fingerprint.
    same = site_of(page.url) == site_of(page.requested_url) == site_of(url)
    if not same or (body_hash and hash_of_body(page.body) != body_hash):
        raise Permanent(
            f"The archived page {ref} is not the page that was fetched from {url}: the archive was changed. Fetch the "
            f"page again to have a new copy."
        )
