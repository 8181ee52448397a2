"""Archived pages as a WARC/1.1 file (ISO 28500), for other tools and archives. Gossamer writes WARC files and does not
read them.

For each page:

    response   the status line, the headers as received, and the body, decoded. Headers that no longer hold for the
               decoded body (Content-Encoding, Transfer-Encoding, Content-Length) are renamed to X-Archive-Orig-..., and
               Content-Length is that of the decoded body
    metadata   what only Gossamer knows, as JSON: the request it answered, the job, the spider, the callback
    resource   its screenshot, if there is one, under `urn:view:` and the page's URL

In a compressed file each record is a separate gzip member, so that any of them can be read alone.

How it fails: a page whose raw copy was pruned or is damaged is left out and counted. A file that cannot be written, or
an archive that is unavailable, ends the export.
"""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from base64 import b32encode
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha1
from http import HTTPStatus
from uuid import uuid4

import msgspec

from ..errors import Misconfigured, Permanent
from ..model.page import Snapshot
from ..model.record import PageFacts
from ..units import within_calendar
from .contract import Archive
from .export.destination import ByteStream, Destination, export_error
from .page_format import head_of, read_visit

VERSION = "WARC/1.1"
CONFORMS = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
OURS = "application/vnd.gossamer.page+json"  # the content type of our own metadata
ORIGINAL = "X-Archive-Orig-"
SCREENSHOT = "urn:view:"
GZIP_LEVEL = 6

_UNTRUE = frozenset({"content-encoding", "transfer-encoding", "content-length"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BREAKS = re.compile(r"[\r\n\0]+")

Fields = Sequence[tuple[str, str]]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export: pages written, and pages whose raw copy is missing or damaged."""

    pages: int = 0
    lost: int = 0
    first_loss: str = ""


async def export_warc(
    visits: AsyncIterator[PageFacts],
    archive: Archive,
    place: Destination,
    *,
    program: str,
    tell: Callable[[int], None] = lambda pages: None,
) -> Kept:
    """Write the archived pages of `visits` to `place`. Raises Misconfigured, BackendUnavailable.

    `program` names and versions the writer; `tell` is called with the number of pages so far.
    """
    pages, lost, first_loss = 0, 0, ""
    compressed = is_compressed(place.name)
    try:
        async with place.opened() as stream:
            out = WarcWriter(stream, compressed=compressed)
            await asyncio.to_thread(out.info, place.name, program)
            async for facts in visits:
                try:
                    snapshot = await read_visit(archive, facts)
                except Permanent as loss:
                    lost, first_loss = lost + 1, first_loss or str(loss)
                    continue
                await asyncio.to_thread(out.page, snapshot, facts)
                pages += 1
                tell(pages)
            await asyncio.to_thread(stream.flush)
    except OSError as error:
        raise export_error(error, place) from error
    return Kept(pages=pages, lost=lost, first_loss=first_loss)


def is_compressed(name: str) -> bool:
    """Does a file of that name hold gzip members? Raises Misconfigured for a name of another format."""
    if name.lower().endswith((".warc", ".warc.gz")):
        return name.lower().endswith(".gz")
    raise Misconfigured(f"{name!r} is not the name of a WARC file. End it in .warc.gz or .warc.")


class WarcWriter:
    """Writes records one after the other."""

    def __init__(self, stream: ByteStream, *, compressed: bool) -> None:
        self._stream = stream
        self._compressed = compressed
        self._info = ""

    def info(self, filename: str, program: str) -> None:
        """The first record: who made the file, and how."""
        self._info = _new_id()
        fields = f"software: {program}\r\nformat: WARC File Format 1.1\r\nconformsTo: {CONFORMS}\r\n".encode()
        now = datetime.now(UTC).timestamp()
        self._record(
            "warcinfo", self._info, now, "application/warc-fields", fields, [("WARC-Filename", _one_line(filename))]
        )

    def page(self, snapshot: Snapshot, facts: PageFacts) -> None:
        """A page with all that belongs to it."""
        number, target = _new_id(), ("WARC-Target-URI", _one_line(snapshot.url))
        head = _http_head(snapshot)
        about = [target, ("WARC-Payload-Digest", _digest(snapshot.body))]
        if self._info:
            about.append(("WARC-Warcinfo-ID", self._info))
        if snapshot.cut:
            about.append(("WARC-Truncated", "length"))
        at = snapshot.fetched_at
        self._record("response", number, at, "application/http;msgtype=response", head + snapshot.body, about)
        belongs = ("WARC-Concurrent-To", number)
        self._record("metadata", _new_id(), at, OURS, _ours(snapshot, facts), [target, belongs])
        if snapshot.screenshot:
            shown = ("WARC-Target-URI", _one_line(SCREENSHOT + snapshot.url))
            self._record("resource", _new_id(), at, "image/png", snapshot.screenshot, [shown, belongs])

    def _record(self, kind: str, number: str, at: float, content_type: str, block: bytes, about: Fields) -> None:
        fields = [
            ("WARC-Type", kind),
            ("WARC-Record-ID", number),
            ("WARC-Date", _date(at)),
            *about,
            ("WARC-Block-Digest", _digest(block)),
            ("Content-Type", content_type),
            ("Content-Length", str(len(block))),
        ]
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        record = b"".join((f"{VERSION}\r\n{head}\r\n".encode(errors="replace"), block, b"\r\n\r\n"))
        if self._compressed:
            packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)
            record = packer.compress(record) + packer.flush()
        self._stream.write(record)


def _http_head(snapshot: Snapshot) -> bytes:
    """Status line and headers, as bytes."""
    try:
        phrase = HTTPStatus(snapshot.status).phrase
    except ValueError:
        phrase = ""
    lines = [f"HTTP/1.1 {snapshot.status} {phrase}"]
    for name, value in snapshot.headers:
        if _TOKEN.fullmatch(name):
            lines.append(f"{ORIGINAL if name.lower() in _UNTRUE else ''}{name}: {_one_line(value)}")
    lines.append(f"Content-Length: {len(snapshot.body)}")
    return b"".join(_bytes_of(line) + b"\r\n" for line in (*lines, ""))


def _bytes_of(line: str) -> bytes:
    """Header bytes that are not UTF-8 are held as lone surrogates, and become the original bytes; other halves of
    characters, which no server can have sent, become question marks."""
    try:
        return line.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return line.encode("utf-8", "replace")


def _ours(snapshot: Snapshot, facts: PageFacts) -> bytes:
    fields = head_of(snapshot) | {"depth": snapshot.depth, "spider": facts.spider, "failure": facts.failure}
    return json.dumps(fields).encode()  # lone surrogates as escapes


def _one_line(text: str) -> str:
    return _BREAKS.sub(" ", text)


def _date(at: float) -> str:
    return datetime.fromtimestamp(within_calendar(at), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _digest(content: bytes) -> str:
    return f"sha1:{b32encode(sha1(content, usedforsecurity=False).digest()).decode()}"


def _new_id() -> str:
    return f"<urn:uuid:{uuid4()}>"
