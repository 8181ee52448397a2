"""The pages in a WARC file: records understood. No archive, no store.

How it fails: nothing in a file raises but what is no WARC file at all; a record that cannot be understood is `Passed`,
with the word under which it is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, BinaryIO, TypeAlias

import msgspec

from ...errors import BadResponse, InvalidUrl
from ...model.page import Headers, Snapshot
from ...model.url import parse_url
from .packing import PIECE, Unreadable
from .reading import Damage, WarcRecord, read_fields, records_of
from .writing import OURS, SCREENSHOT

MOST_DEPTH = 2**31
MAX_META = 4 * 1024 * 1024  # bytes of our own metadata: headers, and what the spider hands on

# Undoes Content-Encoding: its values, the pieces of the body, the limit -> the body, and whether its end is missing.
Decode: TypeAlias = Callable[[Sequence[str], Iterable[bytes], int], tuple[bytes, bool]]

_STATUS = re.compile(rb"HTTP/[0-9](?:\.[0-9])?\s+([1-9][0-9]{2})(?:\s|$)", re.IGNORECASE)
_CHUNK = re.compile(rb"\s*([0-9A-Fa-f]{1,15})\s*(?:;.*)?\r?\n")


class WarcPage(msgspec.Struct):
    """A page that is being put together: its metadata and its screenshot may follow it."""

    number: str
    snapshot: Snapshot
    keys: tuple[str, ...]
    spider: str = ""
    failure: str | None = None
    stripped: bool = False  # its address held a user name or a password


class Passed(msgspec.Struct, frozen=True):
    """A record that is no page. `why` is a field of `Imported`."""

    why: str


class Revisit(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    fetched_at: float
    status: int | None
    headers: Headers
    keys: tuple[str, ...]
    stripped: bool = False


class Bounds(msgspec.Struct, frozen=True):
    """What a page may be: bytes of its body, and the latest time at which it was fetched."""

    body: int
    latest: float


def pages_of(
    file: BinaryIO, name: str, decode: Decode, bounds: Bounds
) -> Iterator[WarcPage | Revisit | Passed | Damage]:
    """Pages, each with what follows it and belongs to it; and all that is none. The kind of a page is "" where its file
    does not say it."""
    held: WarcPage | None = None
    for record in records_of(file, name):
        if held is not None:
            if isinstance(record, Damage):  # right behind it: its own end may be wrong
                held.snapshot = msgspec.structs.replace(held.snapshot, cut=True)
            elif _belongs(held, record, bounds):
                continue
            yield held
            held = None
        made = record if isinstance(record, Damage) else _understood(record, decode, bounds)
        if isinstance(made, WarcPage):
            held = made
        else:
            yield made
    if held is not None:
        yield held


def _understood(record: WarcRecord, decode: Decode, bounds: Bounds) -> WarcPage | Revisit | Passed:
    if record.kind not in ("response", "resource", "revisit"):
        return Passed("other")
    address = record.field("warc-target-uri").strip("<>")  # some writers put it in brackets
    if not address.lower().startswith(("http:", "https:")):
        return Passed("foreign")
    fetched_at = _moment(record.field("warc-date"), bounds.latest)
    if fetched_at is None:
        return Passed("undated")
    try:
        named = parse_url(address)
        url = _without_login(named)
        if record.kind == "revisit":
            return _revisit(record, url, fetched_at, stripped=url != named)
        if record.kind == "resource":
            status, headers = 200, Headers([("Content-Type", record.field("content-type"))])
        else:
            status, headers = _http_head(record)
        if status == 304:  # it says that a page is as before, and not which one
            return Passed("unresolved")
        chunks = _Chunks(record) if "chunked" in headers.get("transfer-encoding").lower() else None
        body, cut = decode(headers.getall("content-encoding"), chunks or record.rest(), bounds.body)
    except (InvalidUrl, Unreadable, BadResponse):
        return Passed("unreadable")
    cut = cut or bool(record.trouble or record.field("warc-truncated")) or (chunks is not None and chunks.short)
    snapshot = Snapshot(
        url=url, requested_url=url, status=status, headers=headers, body=body, fetched_at=fetched_at, cut=cut, kind=""
    )
    number, digest = record.field("warc-record-id"), record.field("warc-payload-digest")
    return WarcPage(number, snapshot, _keys(number, address, record.field("warc-date"), digest), stripped=url != named)


def _revisit(record: WarcRecord, url: str, fetched_at: float, *, stripped: bool) -> Revisit:
    status: int | None = None
    headers = Headers()
    with suppress(Unreadable):  # many have no HTTP header of their own
        status, headers = _http_head(record)
    keys = _keys(
        record.field("warc-refers-to"),
        record.field("warc-refers-to-target-uri").strip("<>"),
        record.field("warc-refers-to-date"),
        record.field("warc-payload-digest"),
    )
    return Revisit(url=url, fetched_at=fetched_at, status=status, headers=headers, keys=keys, stripped=stripped)


def _keys(number: str, address: str, date: str, digest: str) -> tuple[str, ...]:
    """The names under which a body is referred to, the surest first."""
    visit = f"visit {address} {date}" if address and date else ""
    return tuple(key for key in (f"id {number}" if number else "", visit, f"digest {digest}" if digest else "") if key)


def _http_head(record: WarcRecord) -> tuple[int, Headers]:
    """Raises Unreadable."""
    match = _STATUS.match(record.line())
    if match is None:
        raise Unreadable("it is no answer in HTTP")
    return int(match[1]), Headers(read_fields(record.line))


class _Chunks:
    """The body without its chunks; `short` when it ends before the last one. Some writers undo the chunks and leave the
    header: then it is the body as it is."""

    def __init__(self, record: WarcRecord) -> None:
        self._record = record
        self.short = False

    def __iter__(self) -> Iterator[bytes]:
        record = self._record
        first = True
        while match := _CHUNK.fullmatch(line := record.line()):
            left = int(match[1], 16)
            if not left:
                return
            while left and (piece := record.read(min(left, PIECE))):
                left -= len(piece)
                yield piece
            record.line()  # the line end behind a chunk
            first = False
        if first:
            yield line
            yield from record.rest()
        else:
            self.short = True  # what comes now cannot be told from noise


def _moment(date: str, latest: float) -> float | None:
    """None for what is no date, and for one that cannot be: before the epoch, or in the future."""
    try:
        moment = datetime.fromisoformat(date)
        at = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at <= latest else None


def _without_login(href: str) -> str:
    """An absolute address without a user name and a password: they are secrets, and do not name a page."""
    scheme, mark, rest = href.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}"


def _belongs(page: WarcPage, record: WarcRecord, bounds: Bounds) -> bool:
    """Add to a page what follows and belongs to it; False when the record is something else."""
    if not page.number or record.field("warc-concurrent-to") != page.number:
        return False
    if record.kind == "resource" and record.field("warc-target-uri").startswith(SCREENSHOT):
        with suppress(ValueError):  # one that is too long is no screenshot
            page.snapshot = msgspec.structs.replace(
                page.snapshot, screenshot=b"".join(_first(record.rest(), bounds.body))
            )
        return True
    if record.kind != "metadata" or record.field("content-type") != OURS:
        return False
    try:
        ours = json.loads(b"".join(_first(record.rest(), MAX_META)))
        page.spider, page.failure = str(ours.pop("spider")), str(ours.pop("failure"))
        headers = Headers((str(name), str(value)) for name, value in ours.pop("headers"))
        said = msgspec.convert(ours, type=_Ours)
        page.snapshot = msgspec.structs.replace(page.snapshot, headers=headers, **said.kept(bounds.latest))
        page.stripped = (page.snapshot.url, page.snapshot.requested_url) != (said.url, said.requested_url)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidUrl):
        return False  # it says to be ours and is not
    return True


class _Ours(msgspec.Struct, frozen=True):
    """Our own metadata of a page, checked."""

    url: str
    requested_url: str
    status: int
    fetched_at: float
    cut: bool
    kind: str
    job: str
    data: str
    depth: Annotated[int, msgspec.Meta(ge=0, le=MOST_DEPTH)] = 0

    def kept(self, latest: float) -> dict[str, Any]:
        """The fields of the snapshot. Raises ValueError, InvalidUrl for what no page of ours has."""
        if not (0 <= self.fetched_at <= latest and 100 <= self.status <= 999):
            raise ValueError("no such time, or no such status")
        fields = msgspec.structs.asdict(self)
        for name in ("url", "requested_url"):
            fields[name] = _without_login(parse_url(fields[name]))
        return fields


def _first(pieces: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for piece in pieces:
        limit -= len(piece)
        if limit < 0:
            raise ValueError("too long")
        yield piece
