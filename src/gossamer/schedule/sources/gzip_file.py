"""Decompresses gzip files piece by piece, in flat memory and linear time.

A file may consist of several members, one after the other. Trailing data that is not a member (zeros, other padding) is
ignored, as gzip itself does.

How it fails: Damaged for a file that is not gzip, or ends too early; TooLarge for more than is allowed. What was
yielded before stays valid.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

GZIP = b"\x1f\x8b"  # its magic number
SUFFIX = ".gz"
MOST_PARTS = 10_000  # members; programs that compress in blocks make one for every 64 KB

_PIECE = 65_536


class Damaged(Exception):
    """It cannot be decompressed to its end."""


class TooLarge(Exception):
    """It holds more than is allowed; its text says how much that is."""


def is_packed(file: BinaryIO) -> bool:
    """Does the file begin like gzip? Rewinds the file."""
    file.seek(0)
    head = file.read(len(GZIP))
    file.seek(0)
    return head == GZIP


def unpacked(file: BinaryIO, *, max_bytes: int) -> Iterator[bytes]:
    """The decompressed content of a file, from its beginning. Raises Damaged, TooLarge."""
    file.seek(0)
    unpacker, size, parts = zlib.decompressobj(31), 0, 1
    head = b""  # of what follows a member, while it is too short to identify
    while packed := file.read(_PIECE):
        packed = head + packed
        head = b""
        while packed:
            if unpacker.eof:
                if len(packed) < len(GZIP):
                    head = packed
                    break
                if not packed.startswith(GZIP):
                    return
                parts += 1
                if parts > MOST_PARTS:
                    raise TooLarge(f"{MOST_PARTS:,} parts")
                unpacker = zlib.decompressobj(31)
            try:
                piece = unpacker.decompress(packed, _PIECE)
            except zlib.error as error:
                raise Damaged(str(error)) from error
            size += len(piece)
            if size > max_bytes:
                raise TooLarge(_spelled(max_bytes))
            if piece:
                yield piece
            packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    while not unpacker.eof and (piece := unpacker.decompress(b"", _PIECE)):  # what is left in its buffer
        size += len(piece)
        if size > max_bytes:
            raise TooLarge(_spelled(max_bytes))
        yield piece
    if not unpacker.eof:
        raise Damaged("it ends too early")


def _spelled(size: int) -> str:
    return f"{size >> 20:,} MiB" if size >= 1 << 20 else f"{size:,} bytes"
