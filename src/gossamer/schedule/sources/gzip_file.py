"""Files that are packed with gzip, undone piece by piece: flat memory, and work that grows with the file and no faster.

A file may be packed in several parts, one after the other. What follows the last of them and is no part (zeros, other
filling) is left alone, as gzip itself does.

How it fails: Damaged for what is no gzip, or ends too early; TooLarge for more than is allowed. What was given before
stands.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

GZIP = b"\x1f\x8b"  # how it begins
SUFFIX = ".gz"
MOST_PARTS = 10_000  # programs that pack in blocks make one for every 64 KB

_PIECE = 65_536


class Damaged(Exception):
    """It cannot be unpacked to its end."""


class TooLarge(Exception):
    """It holds more than is allowed; its words say how much that is."""


def is_packed(file: BinaryIO) -> bool:
    """Does the file begin as gzip does? It stands at its beginning afterwards."""
    file.seek(0)
    head = file.read(len(GZIP))
    file.seek(0)
    return head == GZIP


def unpacked(file: BinaryIO, *, max_bytes: int) -> Iterator[bytes]:
    """What a packed file holds, from its beginning on. Raises Damaged, TooLarge."""
    file.seek(0)
    unpacker, size, parts = zlib.decompressobj(31), 0, 1
    head = b""  # of what follows a part, while it is too short to be told
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
    while not unpacker.eof and (piece := unpacker.decompress(b"", _PIECE)):  # what it still holds back
        size += len(piece)
        if size > max_bytes:
            raise TooLarge(_spelled(max_bytes))
        yield piece
    if not unpacker.eof:
        raise Damaged("it ends too early")


def _spelled(size: int) -> str:
    return f"{size >> 20:,} MiB" if size >= 1 << 20 else f"{size:,} bytes"
