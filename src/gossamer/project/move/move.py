"""Carrying a project from one set of addresses to another: state, records and raw pages, each alone or all together.

    look      nobody may be at work, and the target must be empty (or hold this very move, not come to its end)
    carry     pages first, then records, then the state, in batches; the targets are marked as not complete
    compare   counts of everything, and a sample of contents; only then the mark goes
    leave     the source stays as it was, but for a mark that it is an old copy now

How it fails: `Misconfigured` before anything was touched; whatever comes later leaves targets that refuse to be used.
How it recovers: the same command again. It clears what it had begun, and copies no page twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from ...backends.open import open_archive
from ...clock import Clock, SystemClock
from ...errors import Misconfigured
from ...frontier.carrying import CarriedSite, CarriedUrl, StateItem
from ...frontier.politeness import TermsFor
from ...model.carrying import Carrier, Mark, Standing
from ...settings import Settings
from ...settings.effective import site_terms
from .comparing import RecordSample, StateSample, compare_pages, compare_segments, differing_counts
from .sides import Part, Side, count, demand_rest, demand_room, exists, open_side, part_of, place

ROLES = ("state", "records", "archive")
CLOCKS_AGREE = 1.0  # seconds; what is less is the way of the question

Watch = Callable[[str, int, int], None]
"""Told the role, how many of it are carried, and how many there are."""


class MoveReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a move. `compared` things were read on both sides; `problems` is empty when all is well."""

    parts: tuple[Part, ...]
    compared: int = 0
    problems: tuple[str, ...] = ()


async def move(
    settings: Settings,
    target: Settings,
    roles: Sequence[str],
    *,
    clock: Clock | None = None,
    watch: Watch | None = None,
    rehearse: bool = False,
) -> MoveReport:
    """Carry `roles` of the project from where `settings` say to where `target` says. Raises Misconfigured, Transient.

    `rehearse` looks at both sides and counts, and carries nothing.
    """
    clock, watch = clock or SystemClock(), watch or (lambda role, done, total: None)
    for role in roles:
        if place(settings, role) == place(target, role):
            raise Misconfigured(f"The {role} is at {place(settings, role)} already. Name another address.")
        if role != "archive" and not exists(settings, role):
            raise Misconfigured(f"There is no {role} to move at {place(settings, role)}: nothing has been crawled yet.")
    async with AsyncExitStack() as stack:
        everything = {*roles, *(role for role in ("state", "records") if exists(settings, role))}
        source = await open_side(stack, settings, clock, everything)
        await demand_rest(source)
        new = await open_side(stack, target, clock, {role for role in roles if not rehearse or exists(target, role)})
        here = {role: await count(source, role) for role in roles}
        for role in roles:
            await demand_room(source, new, role)
        if rehearse:
            return MoveReport(parts=tuple([await part_of(source, new, role) for role in roles]))
        return await _Move(source, new, here, clock, watch).run()


class _Move:
    """A move that may begin. `here` is what was counted at the source."""

    def __init__(self, source: Side, target: Side, here: dict[str, dict[str, int]], clock: Clock, watch: Watch) -> None:
        self._source = source
        self._target = target
        self._here = here
        self._clock = clock
        self._watch = watch
        self._urls = StateSample()
        self._results = RecordSample()

    async def run(self) -> MoveReport:
        marked = [role for role in ROLES if role in self._here and role != "archive"]
        for role in marked:
            await self._mark(self._target, role, self._source, Standing.ARRIVING)
        if "archive" in self._here:
            await self._carry_archive()
        if "records" in self._here:
            await self._carry_records()
        if "state" in self._here:
            await self._carry_state()
        report = await self._compare()
        if not report.problems:
            for role in marked:
                await self._carrier(self._target, role).set_mark(None)
                await self._mark(self._source, role, self._target, Standing.MOVED)
        return report

    async def _mark(self, bearer: Side, role: str, other: Side, standing: Standing) -> None:
        tally = self._here[role] if standing is Standing.MOVED else {}
        mark = Mark(standing=standing, place=place(other.settings, role), at=self._clock.now(), tally=tally)
        await self._carrier(bearer, role).set_mark(mark)

    def _carrier(self, side: Side, role: str) -> Carrier[Any]:
        carrier = side.carrier(role)
        assert carrier is not None
        return carrier

    async def _carry_archive(self) -> None:
        source, target = self._source.segments, self._target.segments
        assert source is not None
        assert target is not None
        there = {one.name: one.size async for one in target.segments()}
        total, done = self._here["archive"].get("bytes", 0), 0
        async for segment in source.segments():
            if segment.name not in there:
                await target.write(segment.name, await source.read(segment.name))
            done += segment.size
            self._watch("archive", done, total)

    async def _carry_records(self) -> None:
        source, target = self._source.record_carrier(), self._target.record_carrier()
        counted = ("pages", "records", "shapes of items", "quality counts")
        total, done = sum(self._here["records"].get(name, 0) for name in counted), 0
        await target.clear()
        async for batch in source.pour():
            await target.fill(batch)
            self._results.offer(batch)
            done += len(batch)
            self._watch("records", done, total)
        await target.settle()

    async def _carry_state(self) -> None:
        source, target = self._source.state, self._target.state
        assert source is not None
        assert target is not None
        now = await target.carrier.time()
        shift = now - await source.carrier.time()
        shift = shift if abs(shift) > CLOCKS_AGREE else 0.0
        terms_for = site_terms(self._target.settings, None)
        states = ("queued", "waiting", "done", "unchanged", "dropped", "dead")
        total = sum(many for name, many in self._here["state"].items() if name.rpartition(" ")[2] in states)
        done = 0
        await target.carrier.clear()
        async for batch in source.carrier.pour():
            await target.carrier.fill([in_time(item, shift, now, terms_for) for item in batch])
            self._urls.offer(batch)
            done += sum(isinstance(item, CarriedUrl) for item in batch)
            self._watch("state", done, total)
        await target.carrier.settle()

    async def _compare(self) -> MoveReport:
        parts = [await part_of(self._source, self._target, role) for role in ROLES if role in self._here]
        problems: list[str] = []
        for part in parts:
            if part.here != self._here[part.role]:
                problems.append(f"{part.role}: somebody worked on it meanwhile. Stop all workers, and move again")
            problems += differing_counts(part.role, part.here, part.there)
        compared = 0
        for many, found in await self._compare_contents():
            compared += many
            problems += found
        return MoveReport(parts=tuple(parts), compared=compared, problems=tuple(problems))

    async def _compare_contents(self) -> list[tuple[int, list[str]]]:
        source, target = self._source, self._target
        found = []
        if "state" in self._here and source.state is not None and target.state is not None:
            found.append(await self._urls.compare(source.state, target.state))
        if "records" in self._here and source.records is not None and target.records is not None:
            found.append(await self._results.compare(source.records, target.records))
        if "archive" in self._here and source.segments is not None and target.segments is not None:
            segments = [one async for one in source.segments.segments()]
            found.append(await compare_segments(segments, source.segments, target.segments))
            async with AsyncExitStack() as stack:
                pages = [
                    await stack.enter_async_context(open_archive(side.settings, "move")) for side in (source, target)
                ]
                found.append(await compare_pages(self._results.references, *pages))
        return found


def in_time(item: StateItem, shift: float, now: float, terms_for: TermsFor) -> StateItem:
    """The item by the target's clock. A site whose task was in hand may have been asked until this very moment."""
    if isinstance(item, CarriedUrl) and item.due_at is not None and shift:
        return msgspec.structs.replace(item, due_at=item.due_at + shift)
    if not isinstance(item, CarriedSite):
        return item
    next_at, rest_until = (at + shift if at else at for at in (item.next_at, item.rest_until))
    spacing = terms_for(item.name).spacing(item.asked_interval)
    if item.in_hand and spacing is not None:
        next_at = max(next_at, now + spacing)
    return msgspec.structs.replace(item, next_at=next_at, rest_until=rest_until, in_hand=0)
