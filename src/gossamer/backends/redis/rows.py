"""Packed rows that Python and the scripts exchange: candidates in, leases and rows out. lua/ has the same layouts."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from ...frontier.contract import NO_STATS, DeadLetter, LeftTurn
from ...frontier.learned_pace import LearnedPace
from ...model.task import Away, Candidate, DropReason, Lease, Pace, Task, UrlState

STATES = (
    UrlState.QUEUED, UrlState.WAITING, UrlState.LEASED, UrlState.DONE, UrlState.UNCHANGED, UrlState.DROPPED,
    UrlState.DEAD,
)  # fmt: skip
STATE_NUMBERS = {state: number for number, state in enumerate(STATES, start=1)}
_REASONS = {
    None: 0, DropReason.DUPLICATE: 1, DropReason.ROBOTS: 2, DropReason.SCOPE: 3, DropReason.DEPTH: 4,
    DropReason.TRAP: 5, DropReason.PATTERN_LIMIT: 6, DropReason.INVALID: 7, DropReason.FRESH: 8,
    DropReason.UNMODIFIED: 9, DropReason.SITE_LIMIT: 10,
}  # fmt: skip

_CANDIDATE = struct.Struct(">16sBiIIB")
_ROW = struct.Struct(">BIiddIIIIIddd")
_SHORT, _SHORT_ROW = 16, struct.Struct(">BIidHHIHHdd")  # of a settled row: no sequence, no time
_LEASE = struct.Struct(">16sdiIIIIIdddIddB")
_SITE = struct.Struct(">dddId")
_TURNS = struct.Struct(">IIddd")
_AWAY = struct.Struct(">dddI")
_LEARNED = struct.Struct(">ddd")
_AWAY_OF_LEASE = struct.Struct(">dB")
_SLOTLESS = (4, 5)  # Q_FULL and Q_HELD of prelude.lua
_QUEUE = struct.Struct(">BiddIIII")
_LEAST, _MOST = -(2**31), 2**31 - 1
_LANE_FOLLOWS = b"\xc1"  # no MessagePack value starts with it
_LONGEST_LANE = 1_000  # bytes
SITES_OF_A_LANE = 2**32
FINGERPRINT_BYTES = 16
_ABOVE = b"\xff" * 4  # before the number of a lane: such entries sort after those without one
EVERY_LANE = b"*"

Parent = Task | DeadLetter  # the page that a link was found on


class Tail(msgspec.Struct, frozen=True, array_like=True):
    """The part of a task that no script reads. `parent` is the fingerprint of the page that linked here.

    The lane of the task, if it has one, is stored before it. Older rows have it in `fetcher`, which is still read.
    """

    url: str
    kind: str
    data: str = ""
    redirects: tuple[str, ...] = ()
    fetcher: str | None = None
    proxy_pool: str | None = None
    country: str | None = None
    parent: bytes | None = None
    parent_site: str | None = None  # None: the site is the same
    how: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A URL as a shard stores it. `tail` is None if it cannot be decoded."""

    fingerprint: bytes
    state: UrlState
    site: int
    priority: int
    sequence: int
    id: int
    attempts: int
    deliveries: int
    token: int
    depth: int
    max_attempts: int
    at: float
    created: float
    changed: float
    worker: str
    reason: str
    message: str
    tail: Tail | None


class SiteRow(msgspec.Struct, frozen=True, kw_only=True):
    next_at: float
    rest_until: float
    asked: float
    in_flight: int
    pace: float
    holder: str = ""
    latest: int = 0  # number of the job that was last served; 0: none
    answered: float = 0.0
    away_since: float | None = None
    away_reason: str = ""
    learned: LearnedPace = LearnedPace()

    @property
    def crawl_delay(self) -> float | None:
        """Seconds between two requests that the site asked for."""
        return self.asked if self.asked >= 0 else None


_NUMBERS = (
    "state", "site", "priority", "sequence", "id", "attempts", "deliveries", "token", "depth", "max_attempts", "at",
    "created", "changed",
)  # fmt: skip
_encode = msgspec.msgpack.Encoder().encode
_SHORT_NUMBERS = tuple(name for name in _NUMBERS if name not in ("sequence", "at"))
_decode_tail = msgspec.msgpack.Decoder(Tail).decode


def pack_candidate(candidate: Candidate, *, max_attempts: int, parent: Parent | None) -> bytes:
    site = _text(candidate.site)
    shape = _text(candidate.shape)[:1024]
    tail = pack_tail(
        candidate.fetcher,
        Tail(
            url=candidate.url,
            kind=candidate.kind,
            data=candidate.data,
            redirects=candidate.redirects,
            proxy_pool=candidate.proxy_pool,
            country=candidate.country,
            parent=parent.fingerprint if parent is not None else None,
            parent_site=parent.site if parent is not None and parent.site != candidate.site else None,
            how=candidate.how,
        ),
    )
    head = _CANDIDATE.pack(
        candidate.fingerprint,
        _REASONS[candidate.dropped],
        min(max(candidate.priority, _LEAST + 1), _MOST),
        candidate.depth,
        candidate.max_attempts or max_attempts,
        candidate.force + 2 * candidate.named,
    )
    lengths = (len(site).to_bytes(2, "big"), len(shape).to_bytes(2, "big"), len(tail).to_bytes(4, "big"))
    return b"".join((head, lengths[0], site, lengths[1], shape, lengths[2], tail))


def _encode_tail(tail: Tail) -> bytes:
    """A seed with only an address and a callback is stored as just these."""
    if tail.parent is None and tail == (plain := Tail(tail.url, tail.kind)):
        return _encode((plain.url, plain.kind))
    return _encode(tail)


def pack_tail(fetcher: str | None, tail: Tail) -> bytes:
    """A task as its row stores it: the lane that its fetcher names, then the rest."""
    if not fetcher:
        return _encode_tail(tail)
    lane = lane_name(fetcher)
    return b"".join((_LANE_FOLLOWS, len(lane).to_bytes(2, "big"), lane, _encode_tail(tail)))


def lane_name(lane: str) -> bytes:
    name = _text(lane)
    return name if len(name) <= _LONGEST_LANE else _text(name[:_LONGEST_LANE].decode("utf-8", "ignore"))


def pack_lanes(lanes: frozenset[str] | None) -> bytes:
    """The names of lanes, packed for the scripts."""
    if lanes is None:
        return EVERY_LANE
    names = (lane_name(lane) for lane in sorted(lanes))
    return b"".join(len(name).to_bytes(2, "big") + name for name in names)


def split_queue(number: int) -> tuple[int, int]:
    """The numbers of the lane and of the site in the number of a queue."""
    return divmod(number, SITES_OF_A_LANE)


def queue_number(lane: int, site: int) -> int:
    return lane * SITES_OF_A_LANE + site


def queue_start(site: int, lane: int) -> bytes:
    """The position before all tasks of a site and lane in the queue."""
    return _lane_start(lane) + site.to_bytes(4, "big")


def ready_in_lane(lane: int) -> tuple[bytes, bytes]:
    """The bounds of a lane among the ready queues."""
    return (b"[" + _lane_start(lane), b"(" + _lane_start(lane + 1)) if lane else (b"-", b"(" + _ABOVE)


def _lane_start(lane: int) -> bytes:
    return _ABOVE + lane.to_bytes(4, "big") if lane else b""


def place_in_queue(row: Row, lane: int) -> tuple[bytes, bytes]:
    """The first position of the row's site and lane in the queue, and that of the row itself."""
    start = queue_start(row.site, lane)
    rank = (_MOST - row.priority).to_bytes(4, "big")
    return start, start + rank + row.sequence.to_bytes(6, "big") + row.fingerprint


def pack_settlement(
    verb: int,
    lease: Lease,
    *,
    state: UrlState = UrlState.DONE,
    redirected: bool = False,
    delay: float = 0.0,
    paced_ahead: float = 0.0,
    duplicates: int = 0,
    reason: str = "",
    message: str = "",
    stats: Mapping[str, int] = NO_STATS,
    candidates: bytes = b"",
) -> bytes:
    why, what = pack_reason(reason), _text(message)[:60_000]
    counted = msgspec.msgpack.encode([word for pair in stats.items() for word in pair]) if stats else b""
    head = struct.pack(
        ">B16sIBBdddI",
        verb, lease.task.fingerprint, lease.token, STATE_NUMBERS[state], redirected, delay, paced_ahead,
        lease.pace.gap if lease.pace is not None else 0.0, duplicates,
    )  # fmt: skip
    texts = b"".join(len(text).to_bytes(2, "big") + text for text in (why, what, counted))
    return b"".join((head, texts, candidates))


def pack_reason(reason: str) -> bytes:
    return _text(reason)[:60_000]


def pack_lease(lease: Lease) -> bytes:
    return struct.pack(">16sI", lease.task.fingerprint, lease.token)


def pack_left(turn: LeftTurn) -> bytes:
    return pack_lease(turn.lease) + struct.pack(">Id", turn.number, turn.paced_ahead.total_seconds())


def read_lease(packed: bytes, job: str, to_id: Any) -> tuple[Lease, bool]:  # Any: a function of a number
    """A lease as lua/serve.lua packs it, and whether its task could be decoded (if not, its URL is empty)."""
    (fingerprint, number, priority, depth, attempts, max_attempts, token, deliveries, created, expires_at, interval,
     burst, ahead, gap, sent) = _LEASE.unpack_from(packed)  # fmt: skip
    place = _LEASE.size
    length = int.from_bytes(packed[place : place + 2], "big")
    site = packed[place + 2 : place + 2 + length].decode("utf-8", "surrogatepass")
    since, given_up = _AWAY_OF_LEASE.unpack_from(packed, place + 2 + length)
    why, place = _string(packed, place + 2 + length + _AWAY_OF_LEASE.size, 2)
    host, place = _string(packed, place, 2)
    tail = _read_tail(packed[place:])
    readable = tail if tail is not None else Tail("", "")
    task = Task(
        id=to_id(int(number)),
        job=job,
        url=readable.url,
        fingerprint=fingerprint,
        site=site,
        kind=readable.kind,
        priority=priority,
        depth=depth,
        attempt=attempts,
        max_attempts=max_attempts,
        created_at=created,
        data=readable.data,
        redirects=readable.redirects,
        fetcher=readable.fetcher,
        proxy_pool=readable.proxy_pool,
        country=readable.country,
        how=readable.how,
    )
    pace = Pace(interval, burst, ahead, gap) if interval >= 0 else None
    away = Away(host, why, since, bool(given_up)) if since else None
    lease = Lease(
        task=task, token=token, delivery=deliveries, expires_at=expires_at, pace=pace, away=away, sent=bool(sent)
    )
    return lease, tail is not None


def read_row(fingerprint: bytes, packed: bytes) -> Row | None:
    """A row as lua/prelude.lua packs it; None if it cannot be decoded."""
    try:
        if _SHORT < packed[0] <= _SHORT + len(STATES):
            numbers = dict(zip(_SHORT_NUMBERS, _SHORT_ROW.unpack_from(packed), strict=True))
            numbers |= {"state": packed[0] - _SHORT, "sequence": 0, "at": 0.0}
            worker, place = _string(packed, _SHORT_ROW.size, 1)
        else:
            numbers = dict(zip(_NUMBERS, _ROW.unpack_from(packed), strict=True))
            worker, place = _string(packed, _ROW.size, 1)
        reason, place = _string(packed, place, 2)
        message, place = _string(packed, place, 2)
        numbers["state"] = STATES[numbers["state"] - 1]
    except (struct.error, IndexError):
        return None
    numbers["sequence"], numbers["id"] = int(numbers["sequence"]), int(numbers["id"])
    tail = _read_tail(packed[place:])
    return Row(fingerprint=fingerprint, worker=worker, reason=reason, message=message, tail=tail, **numbers)


def read_site(packed: bytes) -> tuple[SiteRow, str]:
    """The site's row and name."""
    next_at, rest_until, asked, in_flight, pace = _SITE.unpack_from(packed)
    holder, place = _string(packed, _SITE.size, 1)
    name, place = _string(packed, place, 2)
    latest = _TURNS.unpack_from(packed, place)[0] if place < len(packed) else 0
    place += _TURNS.size
    known = place < len(packed)
    answered, away_since, _, strikes = _AWAY.unpack_from(packed, place) if known else (0.0, 0.0, 0.0, 0)
    reason, place = _string(packed, place + _AWAY.size, 2) if known else ("", len(packed))
    place = _string(packed, place, 2)[1] if known else place
    interval, refused_at, between = _LEARNED.unpack_from(packed, place) if place < len(packed) else (-1.0, 0.0, 0.0)
    return SiteRow(
        next_at=next_at,
        rest_until=rest_until,
        asked=asked,
        in_flight=in_flight,
        pace=pace,
        holder=holder,
        latest=latest,
        answered=answered,
        away_since=away_since if strikes else None,
        away_reason=reason if strikes else "",
        learned=LearnedPace(interval=interval if interval >= 0 else None, refused_at=refused_at, between=between),
    ), name


def site_name(packed: bytes) -> str:
    """Only the name in a site's row."""
    return _string(packed, _SITE.size + 1 + packed[_SITE.size], 2)[0]  # after the holder


def waits_for_slot(packed: bytes) -> bool:
    """Whether a site's queue waits for a slot, because other queues have the site."""
    return packed[0] in _SLOTLESS


def read_load(packed: bytes) -> tuple[int, int, int]:
    """Queued, waiting and leased tasks of a site's queue."""
    *_, queued, waiting, leased = _QUEUE.unpack_from(packed)
    return queued, waiting, leased


def read_taken(packed: bytes) -> int:
    """How many URLs a site's queue has ever taken."""
    taken: int = _QUEUE.unpack_from(packed)[4]
    return taken


def _string(packed: bytes, place: int, width: int) -> tuple[str, int]:
    length = int.from_bytes(packed[place : place + width], "big")
    end = place + width + length
    return packed[place + width : end].decode("utf-8", "replace"), end


def _read_tail(packed: bytes) -> Tail | None:
    """The task in a row, with its lane as `fetcher`; None if it cannot be decoded."""
    try:
        if packed[:1] != _LANE_FOLLOWS:
            return _decode_tail(packed)
        lane, place = _string(packed, 1, 2)
        return msgspec.structs.replace(_decode_tail(packed[place:]), fetcher=lane or None)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
