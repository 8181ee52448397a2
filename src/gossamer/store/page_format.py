"""How a raw page is written, wherever it is kept: one line of JSON, then the body, then the screenshot if there is one;
the archive compresses it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import zstandard

from ..model.page import Headers, Snapshot

MAX_PAGE_BYTES = 512 * 1024 * 1024  # a frame that claims to unpack to more is not one of ours


def pack_page(snapshot: Snapshot) -> bytes:
    """The page, not yet compressed."""
    head = {
        "url": snapshot.url,
        "requested_url": snapshot.requested_url,
        "status": snapshot.status,
        "headers": snapshot.headers.pairs,
        "fetched_at": snapshot.fetched_at,
        "cut": snapshot.cut,
        "kind": snapshot.kind,
        "job": snapshot.job,
        "data": snapshot.data,
        "length": len(snapshot.body),
    }
    if snapshot.depth:
        head["depth"] = snapshot.depth
    if snapshot.screenshot:
        head["screenshot"] = len(snapshot.screenshot)
    try:
        line = msgspec.json.encode(head)
    except UnicodeEncodeError:  # header bytes that are not UTF-8 travel as lone surrogates; as escapes they survive
        line = json.dumps(head).encode("ascii")
    return b"".join((line, b"\n", snapshot.body, snapshot.screenshot, b"\n"))


def unpack_page(frame: bytes) -> Snapshot:
    """The page in one zstd frame. Raises ValueError, zstandard.ZstdError or msgspec.DecodeError for a damaged one."""
    # The size stands in the frame's header; it is checked before that much memory is taken.
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
    pictured = head.pop("screenshot", 0)
    body_end = end + 1 + length
    if len(content) != body_end + pictured + 1:
        raise ValueError(f"its body should have {length} bytes")
    body, screenshot = content[end + 1 : body_end], content[body_end : body_end + pictured]
    headers = Headers((name, value) for name, value in head.pop("headers"))
    return Snapshot(headers=headers, body=body, screenshot=screenshot, **head)
