"""Moves a project from one set of addresses to another: state, records and raw pages, separately or together. A backup
that goes straight into a restore.

    check     no worker may be at work, and the target must be empty (or hold this same move, interrupted)
    copy      in batches (copy.py); the targets are marked as incomplete
    compare   counts of everything, and a sample of contents; only then the marks are removed
    leave     the source stays as it was, except for a mark that it is now an old copy

How it fails: `Misconfigured` before anything was touched; a later failure leaves targets that refuse to be used.
How it recovers: run the same command again. It clears what it had begun, and copies no page twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing

import msgspec

from ....clock import Clock, SystemClock
from ....errors import Misconfigured
from ....model.stream import MoveMark, MoveStatus
from ....settings import Settings
from .copy import Listener, Watch, dump, load
from .proof import RecordSample, StateSample, compare_contents, differing_counts
from .stores import (
    ROLES,
    Counts,
    MovePart,
    Stores,
    exists,
    open_stores,
    place,
    require_rest,
    require_room,
    require_room_for_segments,
    require_stored,
)


class MoveReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move or a restore. `compared` is how many things were read on both sides; `problems` is empty if
    all is well, and `warnings` are for the user."""

    parts: tuple[MovePart, ...]
    compared: int = 0
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def move(
    settings: Settings,
    target: Settings,
    roles: Sequence[str],
    *,
    watch: Watch | None = None,
    rehearse: bool = False,
) -> MoveReport:
    """Copy `roles` of the project from the addresses in `settings` to those in `target`. Raises Misconfigured,
    Transient. `rehearse` checks and counts both sides, and copies nothing."""
    clock, watch = SystemClock(), watch or (lambda role, done, total: None)
    for role in roles:
        if place(settings, role) == place(target, role):
            raise Misconfigured(f"The {role} is at {place(settings, role)} already. Name another address.")
        if role != "archive" and not exists(settings, role):
            raise Misconfigured(f"There is no {role} to move at {place(settings, role)}: nothing has been crawled yet.")
    async with AsyncExitStack() as stack:
        # State and records are opened in any case: the workers and marks there decide whether the move may start.
        present = {role for role in ROLES if exists(settings, role) and (role != "archive" or role in roles)}
        source = await open_stores(stack, settings, clock, present)
        await require_rest(source)
        if "state" in roles:
            await require_stored(source)
        new = await open_stores(stack, target, clock, {role for role in roles if not rehearse or exists(target, role)})
        for role in roles:
            if role == "archive":
                await require_room_for_segments(await source.segments(), new)
            else:
                await require_room(new, role, MoveStatus.ARRIVING, source.place(role))
        if rehearse:
            return MoveReport(parts=tuple([await _part(source, new, role) for role in roles]))
        return await _copy(source, new, roles, clock, watch)


async def _copy(source: Stores, target: Stores, roles: Sequence[str], clock: Clock, watch: Watch) -> MoveReport:
    marked = [role for role in ("state", "records") if role in roles]
    for role in marked:
        mark = MoveMark(status=MoveStatus.ARRIVING, place=source.place(role), at=clock.now())
        await target.set_mark(role, mark)
    urls, results = StateSample(), RecordSample()
    listeners: dict[str, list[Listener]] = {"state": [urls.offer], "records": [results.offer]}
    there = {*await target.archive_names()} if "archive" in roles else set()
    sent: dict[str, Counts] = {}
    for role in roles:
        async with aclosing(dump(source, role, watch, there=there)) as batches:
            shift = await _shift(source, target) if role == "state" else 0.0
            sent[role], _ = await load(target, role, batches, *listeners.get(role, ()), shift=shift)
    parts, problems = [await _part(source, target, role) for role in ROLES if role in roles], []
    for part in parts:
        if part.role in marked and part.here != sent[part.role]:
            problems.append(f"{part.role}: it was changed meanwhile. Stop all workers, and move again")
        problems += differing_counts(part.role, part.here, part.there)
    compared, differences = await compare_contents(source, target, urls, results)
    problems += differences
    if not problems:
        for role in marked:
            await target.set_mark(role, None)
            left = MoveMark(status=MoveStatus.MOVED, place=target.place(role), at=clock.now(), counts=sent[role])
            await source.set_mark(role, left)
    return MoveReport(parts=tuple(parts), compared=compared, problems=tuple(problems))


async def _shift(source: Stores, target: Stores) -> float:
    """By how many seconds the clock of the target's state is ahead."""
    if source.state is None or target.state is None:
        return 0.0
    return await target.state.stream.time() - await source.state.stream.time()


async def _part(source: Stores, target: Stores, role: str) -> MovePart:
    here = await source.counts(role)
    there = (
        await target.archive_counts(await source.archive_names()) if role == "archive" else await target.counts(role)
    )
    return MovePart(role=role, source=source.place(role), target=target.place(role), here=here, there=there)
