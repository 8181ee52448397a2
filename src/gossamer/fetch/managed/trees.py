"""JSON of a vendor: read, and looked into. Pure, but for the turns that a long one leaves to others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

Tree = Any  # what JSON can hold

_LONG = 1024 * 1024  # bytes


def read(body: bytes) -> Tree:
    """Raises ValueError for what is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # No reader would find an end; only that half of a character near it looks the same.
        if "truncated" in str(error) and b"\\ud" not in body and b"\\uD" not in body:
            raise ValueError("it is not JSON") from None
    try:
        return json.loads(body)  # more lenient: pages that were decoded wrongly hold halves of characters
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None


async def read_in_parts(body: bytes, path: tuple[str, ...]) -> Tree:
    """As `read`; of a long text the members of the list at `path` are read one by one, and others have their turn.

    A thread would not do: the decoder holds the interpreter's lock from its first byte to its last.
    """
    if len(body) <= _LONG or not path:
        return read(body)
    levels: list[dict[str, msgspec.Raw]] = []
    rest: bytes | msgspec.Raw = body
    try:
        for step in path:
            levels.append(msgspec.json.decode(rest, type=dict[str, msgspec.Raw]))
            rest = levels[-1].pop(step)
            await asyncio.sleep(0)
        members = msgspec.json.decode(rest, type=list[msgspec.Raw])
        found: Tree = []
        often = 1 + len(members) // 1000
        for index, member in enumerate(members):
            found.append(msgspec.json.decode(member))
            if index % often == 0:
                await asyncio.sleep(0)
        for step, level in zip(reversed(path), reversed(levels), strict=True):
            found = {name: msgspec.json.decode(value) for name, value in level.items()} | {step: found}
    except (msgspec.DecodeError, UnicodeError, RecursionError, KeyError):
        return read(body)  # another shape, or one for the lenient reader
    return found


def at(path: tuple[str, ...], tree: Tree) -> Tree:
    """What is there, or None."""
    found = tree
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isascii() and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found
