"""The format of a spool file: entries for which complete, torn and damaged can be told apart. No I/O here.

    segment   <nanoseconds>-<mark>.spool: a head, then entries. Appended to by one process only.
    head      magic, version, CRC32 of both
    entry     mark, length, CRC32 of the payload, CRC32 of these three, then the payload
    payload   one letter for the kind of text, then a zstd frame of MessagePack: [result, snapshot or nil]

The mark is eight random bytes of that segment, and is also in its name. After a damaged entry the next one is found by
it; a page from a hostile site cannot contain a forged entry, because the site cannot know the mark.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec
import zstandard

from ..model.item_account import ItemCounts
from ..model.page import Headers, Snapshot
from ..model.record import Attempt, ItemSchema, PageFacts, PageResult, Record, Tally

MAGIC, VERSION = b"GOSPOOL", 1
LEVEL = 1  # of compression: disk space limits how long the store may be unavailable
MAX_RESULT_BYTES = 1024 * 1024 * 1024  # a payload that claims to decompress to more is not ours

_HEAD = struct.Struct("<7sBI")
_ENTRY = struct.Struct("<8sIII")
HEAD_BYTES, ENTRY_BYTES = _HEAD.size, _ENTRY.size

_PLAIN, _ODD = b"P", b"O"  # kinds of text: all UTF-8, or with lone surrogates somewhere
_ODD_TEXT = 1  # MessagePack extension: a str that is not UTF-8


class Waiting(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A result on its way to the store; `snapshot` must go to the archive first."""

    result: PageResult
    snapshot: Snapshot | None = None


class _ReadResult(msgspec.Struct, frozen=True, gc=False):
    """A `PageResult` as decoded. Attempt has a field `bytes`, which hides the type of that name in its hints."""

    attempt: dict[str, Any]
    page: PageFacts | None
    records: tuple[Record, ...]
    quality: tuple[Tally, ...] = ()
    schemas: tuple[ItemSchema, ...] = ()
    items: ItemCounts | None = None


class _Read(msgspec.Struct, frozen=True, array_like=True, gc=False):
    result: _ReadResult
    snapshot: Snapshot | None


class _JobOnly(msgspec.Struct, frozen=True, gc=False):
    job: str
    fingerprint: bytes


class _ResultJob(msgspec.Struct, frozen=True, gc=False):
    attempt: _JobOnly


class _ReadJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    result: _ResultJob


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A complete entry: `payload` is for `unpack`; start and end are its position."""

    start: int
    end: int
    payload: bytes


class Damage(msgspec.Struct, frozen=True, gc=False):
    """Bytes between two positions that are not a complete entry."""

    start: int
    end: int


def pack(waiting: Waiting) -> bytes:
    if waiting.snapshot is not None and waiting.snapshot.packed:  # the body is there already, and is compressed here
        snapshot = msgspec.structs.replace(waiting.snapshot, packed=b"")
        waiting = Waiting(result=waiting.result, snapshot=snapshot)
    try:
        kind, packed = _PLAIN, _encoder.encode(waiting)
    except UnicodeEncodeError:  # header bytes that are not UTF-8 become lone surrogates
        plain = msgspec.to_builtins(waiting, builtin_types=(bytes,), enc_hook=_pairs)
        kind, packed = _ODD, msgspec.msgpack.encode(_wrapped(plain))
    return kind + zstandard.ZstdCompressor(level=LEVEL).compress(packed)


def unpack(payload: bytes) -> Waiting:
    """Raises ValueError (msgspec's errors are) or ZstdError if it is not ours, or of a later version."""
    size = zstandard.get_frame_parameters(payload[1:]).content_size
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"it claims to unpack to {size} bytes")
    packed = zstandard.ZstdDecompressor().decompress(payload[1:], max_output_size=MAX_RESULT_BYTES)
    if payload[:1] == _PLAIN:
        read = _decoder.decode(packed)
    else:
        read = msgspec.convert(msgspec.msgpack.decode(packed, ext_hook=_unwrapped), _Read, dec_hook=_headers)
    found = read.result
    known = {name: value for name, value in found.attempt.items() if name in Attempt.__struct_fields__}
    try:
        attempt = Attempt(**known)
    except TypeError as error:
        raise ValueError(f"its attempt is not one of ours: {error}") from error
    result = PageResult(
        attempt=attempt,
        page=found.page,
        records=found.records,
        quality=found.quality,
        schemas=found.schemas,
        items=found.items,
    )
    return Waiting(result=result, snapshot=read.snapshot)


def page_of(payload: bytes) -> tuple[str, bytes]:
    """The job and the fingerprint of a result, without decoding the rest. Raises as `unpack`."""
    if payload[:1] != _PLAIN:
        attempt = unpack(payload).result.attempt
        return attempt.job, attempt.fingerprint
    packed = zstandard.ZstdDecompressor().decompress(payload[1:], max_output_size=MAX_RESULT_BYTES)
    found = _job_decoder.decode(packed).result.attempt
    return found.job, found.fingerprint


def head() -> bytes:
    return _HEAD.pack(MAGIC, VERSION, crc32(MAGIC + bytes([VERSION])))


def frame(mark: bytes, payload: bytes) -> bytes:
    payload_crc = crc32(payload)
    return b"".join((_ENTRY.pack(mark, len(payload), payload_crc, _head_crc(mark, len(payload), payload_crc)), payload))


def other_version(content: bytes) -> int | None:
    """The version of a segment that is intact but not of ours; None if it is ours, or damaged."""
    if len(content) < HEAD_BYTES:
        return None
    magic, version, crc = _HEAD.unpack_from(content)
    whole = magic == MAGIC and crc == crc32(content[: HEAD_BYTES - 4])
    return version if whole and version != VERSION else None


def walk(content: bytes, mark: bytes) -> Iterator[Entry | Damage]:
    """The content of a segment, in order. A torn tail is not mentioned: its result was never confirmed."""
    at = HEAD_BYTES
    if not content.startswith(head()):
        if len(content) < HEAD_BYTES or not content.strip(b"\0"):
            return
        at = _next_entry(content, mark, 0)
        yield Damage(0, at)
    while len(content) - at >= ENTRY_BYTES:
        length = _length_at(content, mark, at)
        if length is None:
            if not content[at:].strip(b"\0"):  # the file had grown already, but its content had not arrived
                return
            following = _next_entry(content, mark, at + 1)
            yield Damage(at, following)
            at = following
            continue
        start, end = at + ENTRY_BYTES, at + ENTRY_BYTES + length
        if end > len(content):
            return
        payload = content[start:end]
        whole = crc32(payload) == _ENTRY.unpack_from(content, at)[2]
        yield Entry(at, end, payload) if whole else Damage(at, end)
        at = end


def parts_of(payloads: Sequence[tuple[str, bytes]], most: int) -> Iterator[list[tuple[str, bytes]]]:
    """The same payloads with their jobs, in parts not much longer than `most` bytes."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for job, payload in payloads:
        part.append((job, payload))
        size += len(payload)
        if size >= most:
            yield part
            part, size = [], 0
    if part:
        yield part


def _length_at(content: bytes, mark: bytes, at: int) -> int | None:
    """The payload's length in the entry that begins there; None if none does."""
    found, length, payload_crc, head_crc = _ENTRY.unpack_from(content, at)
    whole = found == mark and head_crc == _head_crc(mark, length, payload_crc)
    return int(length) if whole else None


def _next_entry(content: bytes, mark: bytes, at: int) -> int:
    """Where the next entry begins, else the end of the content."""
    while (at := content.find(mark, at)) >= 0 and at + ENTRY_BYTES <= len(content):
        if _length_at(content, mark, at) is not None:
            return at
        at += 1
    return len(content)


def _head_crc(mark: bytes, length: int, payload_crc: int) -> int:
    return crc32(struct.pack("<8sII", mark, length, payload_crc))


def _pairs(value: Any) -> Any:  # Any: msgspec's hook takes whatever it does not know
    if isinstance(value, Headers):
        return value.pairs
    raise NotImplementedError(f"cannot be spooled: {type(value).__name__}")


def _headers(kind: type, value: Any) -> Any:  # as above
    if kind is Headers:
        return Headers((str(name), str(text)) for name, text in value)
    raise NotImplementedError(f"cannot be read from a spool: {kind.__name__}")


def _wrapped(value: Any) -> Any:  # Any: any tree of plain values
    """The same tree, with each str that is not UTF-8 as an extension."""
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return msgspec.msgpack.Ext(_ODD_TEXT, value.encode("utf-8", "surrogatepass"))
        case list() | tuple():
            return [_wrapped(one) for one in value]
        case dict():
            return {name: _wrapped(one) for name, one in value.items()}
    return value


def _unwrapped(code: int, data: memoryview) -> str:
    if code != _ODD_TEXT:
        raise ValueError(f"extension {code} is unknown")
    return bytes(data).decode("utf-8", "surrogatepass")


_encoder = msgspec.msgpack.Encoder(enc_hook=_pairs)
_decoder = msgspec.msgpack.Decoder(_Read, dec_hook=_headers)
_job_decoder = msgspec.msgpack.Decoder(_ReadJob)
