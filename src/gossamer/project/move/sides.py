"""The two ends of a move: their open backends, what is counted there, and whether they are fit for a move."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ...backends.addresses import is_local, local_path, place_of, scheme_of
from ...backends.open import open_records, open_segments, open_state, record_carrier
from ...backends.processes import is_gone, worker_name
from ...backends.state import State
from ...clock import Clock, ServerClock
from ...errors import BadState, Misconfigured
from ...model.carrying import Carrier, Standing
from ...settings import Settings
from ...settings.effective import site_terms
from ...store.carrying import ArchiveCarrier, RecordCarrier, Segment
from ...store.contract import Records

SIGN_OF_LIFE = 30.0  # seconds; a worker that was heard of since then is at work


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One role of a move: where from, where to, and what was counted on both sides."""

    role: str
    source: str
    target: str
    here: dict[str, int]
    there: dict[str, int]


class Side:
    """The open backends at one end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state: State | None = None
        self.records: Records | None = None
        self.segments: ArchiveCarrier | None = None

    def carrier(self, role: str) -> Carrier[Any] | None:
        if role == "state":
            return self.state.carrier if self.state is not None else None
        return self.record_carrier() if self.records is not None else None

    def record_carrier(self) -> RecordCarrier:
        assert self.records is not None
        return record_carrier(self.settings, self.records)


def place(settings: Settings, role: str) -> str:
    """Where a role of the project is, without secrets: the same text means the same place."""
    scheme, address = scheme_of(settings, role), str(getattr(settings, role))
    if scheme in ("sqlite", "folder"):
        return place_of(settings, role)
    if scheme == "s3":
        return address  # keys never stand in it, and the endpoint is part of the place
    schema = "".join(value for name, value in parse_qsl(address.partition("?")[2]) if name == "schema")
    return f"{place_of(settings, role)}, {f'schema {schema}' if schema else f'project {settings.project}'}"


def exists(settings: Settings, role: str) -> bool:
    return not is_local(settings, role) or local_path(settings, role).exists()


async def open_side(stack: AsyncExitStack, settings: Settings, clock: Clock, roles: set[str]) -> Side:
    side = Side(settings)
    own = ServerClock(clock)  # the two sides may go by different clocks
    if "records" in roles:
        side.records = await stack.enter_async_context(open_records(settings, own, to_move=True))
    if "state" in roles:
        side.state = await stack.enter_async_context(
            open_state(settings, own, terms_for=site_terms(settings, None), to_move=True)
        )
    if "archive" in roles:
        side.segments = await stack.enter_async_context(open_segments(settings, worker_name().replace("/", "-")))
    return side


async def demand_rest(source: Side) -> None:
    """Nobody may be at work, and what is there must be whole. Raises Misconfigured, BadState."""
    for role in ("state", "records"):
        carrier = source.carrier(role)
        mark = await carrier.mark() if carrier is not None else None
        if mark is not None and mark.standing is Standing.ARRIVING:
            raise BadState(
                f"What is at {place(source.settings, role)} ({role}) is not complete itself: a move from {mark.place} "
                f"has not come to its end. Run that one again first."
            )
    if source.state is None:
        return
    now = await source.state.carrier.time()
    cards = [card.name for card in await source.state.workers.workers() if now - card.seen_at < SIGN_OF_LIFE]
    busy = {name for name in (*await source.state.carrier.holders(), *cards) if not is_gone(name)}
    if busy:
        names = ", ".join(sorted(busy)[:3]) + (", ..." if len(busy) > 3 else "")
        raise Misconfigured(
            f"{len(busy)} of the project's workers are at work ({names}). Stop them and move again; those that were "
            f"killed on another machine are forgotten when their leases end."
        )


async def demand_room(source: Side, target: Side, role: str) -> None:
    """The target must be empty, or hold what may be replaced. Raises Misconfigured, BadState."""
    here, there = place(source.settings, role), place(target.settings, role)
    if role == "archive":
        return await _demand_room_for_pages(source, target, there)
    carrier = target.carrier(role)
    if carrier is None:
        return None
    mark = await carrier.mark()
    if mark is not None and mark.standing is Standing.ARRIVING and mark.place != here:
        raise BadState(
            f"What is at {there} ({role}) is another move that has not come to its end, from {mark.place}. Run that "
            f"one again, or name another address or project."
        )
    if mark is not None and mark.standing is Standing.ARRIVING:
        return None
    held = await carrier.tally()
    if not held:
        return None
    if mark is None or mark.place != here:
        raise Misconfigured(
            f"There is a project at {there} ({role}) already ({_in_words(held)}). Nothing was changed. Name another "
            f"address or project, or empty it first."
        )
    if mark.tally != held:
        raise Misconfigured(
            f"What is at {there} ({role}) was moved to {here} once, and has been worked on since: moving back would "
            f"lose that. Move it away by hand, or name another address."
        )
    return None


async def _demand_room_for_pages(source: Side, target: Side, there: str) -> None:
    """Files of other names do no harm: only references lead to pages. Raises Misconfigured."""
    if target.segments is None or source.segments is None:
        return
    known = {one.name: one.size async for one in target.segments.segments()}
    async for segment in source.segments.segments():
        if known.get(segment.name, segment.size) != segment.size:
            raise Misconfigured(
                f"The archive at {there} has another file {segment.name} than this one. Nothing was changed. Name "
                f"another address."
            )


async def count(side: Side, role: str) -> dict[str, int]:
    if role != "archive":
        carrier = side.carrier(role)
        return await carrier.tally() if carrier is not None else {}
    if side.segments is None:
        return {}
    return _sizes([one async for one in side.segments.segments()])


async def part_of(source: Side, target: Side, role: str) -> Part:
    here, there = await count(source, role), await count(target, role)
    if role == "archive" and source.segments is not None and target.segments is not None:
        ours = {one.name async for one in source.segments.segments()}
        there = _sizes([one async for one in target.segments.segments() if one.name in ours])
    return Part(
        role=role, source=place(source.settings, role), target=place(target.settings, role), here=here, there=there
    )


def _sizes(segments: Sequence[Segment]) -> dict[str, int]:
    counts = {"files": len(segments), "bytes": sum(one.size for one in segments)}
    return {name: count for name, count in counts.items() if count}


def _in_words(tally: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in list(tally.items())[:3])
