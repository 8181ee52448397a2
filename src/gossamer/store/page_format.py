"""How a raw page is written, wherever it is kept: one line of JSON, then the body, then the screenshot if there is one;
the archive compresses it. A body that came as gzip stays gzip: compressing it again costs more CPU than all other
storage of a page, and saves nothing."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import msgspec
import zstandard

from ..model.page import Headers, Snapshot

if TYPE_CHECKING:
    import zlib
else:  # the same, and more than twice as fast; its types differ
    from zlib_ng import zlib_ng as zlib

MAX_PAGE_BYTES = 512 * 1024 * 1024  # a frame that claims to decompress to more is not ours
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


def unpack_page(frame: bytes) -> Snapshot:
    """The page in one zstd frame. Raises ValueError, zstandard.ZstdError or msgspec.DecodeError for a damaged one."""
    # The frame's header states the size; check it before that much memory is allocated.
    size = zstandard.get_frame_parameters(frame).content_size
    if size > MAX_PAGE_BYTES:
        raise ValueError(f"it claims to unpack to {size} bytes")
    content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=MAX_PAGE_BYTES, allow_extra_data=False)
    end = content.index(b"\n")
    line = content[:end]
    try:
        head: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        head = json.loads(line)
    length = head.pop("length")
    packing, packed_length = head.pop("packed", ""), head.pop("packed_length", length)
    pictured = head.pop("screenshot", 0)
    body_end = end + 1 + packed_length
    if len(content) != body_end + pictured + 1:
        raise ValueError(f"its body should have {packed_length} bytes")
    body, screenshot = content[end + 1 : body_end], content[body_end : body_end + pictured]
    if packing:
        body = _unpacked(body, packing, length)
    headers = Headers((name, value) for name, value in head.pop("headers"))
    return Snapshot(headers=headers, body=body, screenshot=screenshot, **head)


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
