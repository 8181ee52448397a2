"""Moves a project from one set of addresses to another: state, records and raw pages, separately or together.

    check     no worker may be at work, and the target must be empty (or hold this same move, interrupted)
    copy      pages first, then records, then the state, in batches; the targets are marked as incomplete
    compare   counts of everything, and a sample of contents; only then the marks are removed
    leave     the source stays as it was, except for a mark that it is now an old copy

How it fails: `Misconfigured` before anything was touched; a later failure leaves targets that refuse to be used.
How it recovers: run the same command again. It clears what it had begun, and copies no page twice.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path

import msgspec

from ...backends.state import State
from ...clock import Clock, SystemClock
from ...errors import BadState, Misconfigured
from ...frontier.learned_pace import LearnedPace, longest
from ...frontier.politeness import TermsFor
from ...frontier.state_rows import DumpedSite, DumpedUrl, StateRow
from ...model.stream import MoveMark, MoveStatus, Row, RowStream
from ...settings import Settings
from ...settings.effective import site_terms
from ...store.contract import WholeArchive
from .proof import RecordSample, StateSample, compare_pages, compare_segments, differing_counts
from .stores import (
    ROLES,
    Counts,
    Part,
    Stores,
    compare_counts,
    exists,
    open_stores,
    place,
    require_rest,
    require_room,
    require_stored,
)

CLOCKS_AGREE = 1.0  # seconds; a smaller difference is the duration of the query
_URL_STATES = ("queued", "waiting", "done", "unchanged", "dropped", "dead")
_RECORD_KINDS = ("pages", "records", "shapes of items", "quality counts")

Watch = Callable[[str, int, int], None]
"""Called with the role, how much of it was copied, and how much there is."""


class MoveReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move or a restore. `compared` is how many things were read on both sides; `problems` is empty if
    all is well, and `warnings` are for the user."""

    parts: tuple[Part, ...]
    compared: int = 0
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


async def move(
    settings: Settings,
    target: Settings,
    roles: Sequence[str],
    *,
    clock: Clock | None = None,
    watch: Watch | None = None,
    rehearse: bool = False,
) -> MoveReport:
    """Copy `roles` of the project from the addresses in `settings` to those in `target`. Raises Misconfigured,
    Transient. `rehearse` checks and counts both sides, and copies nothing."""
    clock, watch = clock or SystemClock(), watch or (lambda role, done, total: None)
    for role in roles:
        if place(settings, role) == place(target, role):
            raise Misconfigured(f"The {role} is at {place(settings, role)} already. Name another address.")
        if role != "archive" and not exists(settings, role):
            raise Misconfigured(f"There is no {role} to move at {place(settings, role)}: nothing has been crawled yet.")
    async with AsyncExitStack() as stack:
        # State and records are opened in any case: the workers and marks there decide whether the move may start.
        present = {role for role in ROLES if exists(settings, role) and (role != "archive" or role in roles)}
        source = await open_stores(stack, settings, clock, present)
        await require_rest(source, "move")
        if "state" in roles:
            await require_stored(source)
        new = await open_stores(stack, target, clock, {role for role in roles if not rehearse or exists(target, role)})
        here = {role: await source.counts(role) for role in roles}
        for role in roles:
            await require_room(source, new, role)
        if rehearse:
            return MoveReport(parts=tuple([await compare_counts(source, new, role) for role in roles]))
        return await _Move(source, new, here, clock, watch).run()


class _Move:
    """A move that may start. `here` are the counts of the source."""

    def __init__(self, source: Stores, target: Stores, here: dict[str, Counts], clock: Clock, watch: Watch) -> None:
        self._source = source
        self._target = target
        self._here = here
        self._clock = clock
        self._watch = watch
        self._urls = StateSample()
        self._results = RecordSample()

    async def run(self) -> MoveReport:
        marked = [role for role in ("state", "records") if role in self._here]
        for role in marked:
            mark = MoveMark(status=MoveStatus.ARRIVING, place=self._source.place(role), at=self._clock.now())
            await self._target.set_mark(role, mark)
        await self._copy_archive()
        await self._copy_records()
        await self._copy_state()
        report = await self._compare()
        if not report.problems:
            for role in marked:
                await self._target.set_mark(role, None)
                left = MoveMark(
                    status=MoveStatus.MOVED,
                    place=self._target.place(role),
                    at=self._clock.now(),
                    counts=self._here[role],
                )
                await self._source.set_mark(role, left)
        return report

    async def _copy_archive(self) -> None:
        source, target = self._source.archive, self._target.archive
        if source is None or target is None:
            return
        there = {one.name async for one in target.segments()}
        total, done = self._here["archive"].get("bytes", 0), 0
        async for segment in source.segments():
            if segment.name not in there:
                await target.write_segment(segment.name, await source.read_segment(segment.name))
            done += segment.size
            self._watch("archive", done, total)
        await _copy_files(source, target)

    async def _copy_records(self) -> None:
        source, target = self._source.records, self._target.records
        if source is None or target is None:
            return
        progress = records_progress(self._here["records"], self._watch)
        await load_all(source.stream.dump(), target.stream, self._results.offer, progress)

    async def _copy_state(self) -> None:
        source, target = self._source.state, self._target.state
        if source is None or target is None:
            return
        shift = await target.stream.time() - await source.stream.time()
        rows = in_time_of(target, source.stream.dump(), self._target.settings, shift)
        await load_all(rows, target.stream, self._urls.offer, state_progress(self._here["state"], self._watch))

    async def _compare(self) -> MoveReport:
        parts = [await compare_counts(self._source, self._target, role) for role in ROLES if role in self._here]
        problems: list[str] = []
        for part in parts:
            if part.here != self._here[part.role]:
                problems.append(f"{part.role}: it was changed meanwhile. Stop all workers, and move again")
            problems += differing_counts(part.role, part.here, part.there)
        compared = 0
        for count, found in await self._compare_contents():
            compared += count
            problems += found
        return MoveReport(parts=tuple(parts), compared=compared, problems=tuple(problems))

    async def _compare_contents(self) -> list[tuple[int, list[str]]]:
        source, target = self._source, self._target
        found = []
        if source.state is not None and target.state is not None:
            found.append(await self._urls.compare(source.state, target.state))
        if source.records is not None and target.records is not None:
            found.append(await self._results.compare(source.records, target.records))
        if source.archive is not None and target.archive is not None:
            found.append(await compare_segments(await source.segments(), source.archive, target.archive))
            found.append(await compare_pages(self._results.references, source.archive, target.archive))
        return found


async def load_all(
    batches: AsyncIterator[Sequence[Row]], target: RowStream[Row], *listeners: Callable[[Sequence[Row]], None]
) -> None:
    """Replace the contents of `target` by these rows; every listener is called with each loaded batch."""
    await target.clear()
    async for batch in batches:
        if batch:
            await target.load(batch)
            for listener in listeners:
                listener(batch)
    await target.finish()


def records_progress(counts: Counts, watch: Watch) -> Callable[[Sequence[object]], None]:
    total, done = sum(counts.get(name, 0) for name in _RECORD_KINDS), 0

    def progress(batch: Sequence[object]) -> None:
        nonlocal done
        done += len(batch)
        watch("records", done, total)

    return progress


def state_progress(counts: Counts, watch: Watch) -> Callable[[Sequence[object]], None]:
    """Counts URLs: nearly all rows of a state are URLs."""
    total, done = sum(count for name, count in counts.items() if name.rpartition(" ")[2] in _URL_STATES), 0

    def progress(batch: Sequence[object]) -> None:
        nonlocal done
        done += sum(isinstance(row, DumpedUrl) for row in batch)
        watch("state", done, total)

    return progress


async def in_time_of(
    target: State, batches: AsyncIterator[Sequence[StateRow]], settings: Settings, shift: float
) -> AsyncIterator[Sequence[StateRow]]:
    """The rows with their times by the clock of `target`, which is `shift` seconds ahead of the source's."""
    now, terms_for = await target.stream.time(), site_terms(settings)
    shift = shift if abs(shift) > CLOCKS_AGREE else 0.0
    async for batch in batches:
        yield [in_time(row, shift, now, terms_for) for row in batch]


def in_time(row: StateRow, shift: float, now: float, terms_for: TermsFor) -> StateRow:
    """The row by the target's clock. A site with a leased task may have been sent a request until this very moment."""
    if isinstance(row, DumpedUrl) and row.due_at is not None and shift:
        return msgspec.structs.replace(row, due_at=row.due_at + shift)
    if not isinstance(row, DumpedSite):
        return row
    next_at, rest_until = (at + shift if at else at for at in (row.next_at, row.rest_until))
    refused_at = row.refused_at + shift if row.refused_at else 0.0
    learned = LearnedPace(interval=row.learned_interval, refused_at=refused_at).now(now)
    spacing = terms_for(row.name).spacing(longest(row.asked_interval, learned))
    if row.in_hand and spacing is not None:
        next_at = max(next_at, now + spacing)
    return msgspec.structs.replace(row, next_at=next_at, rest_until=rest_until, refused_at=refused_at, in_hand=0)


async def _copy_files(source: WholeArchive, target: WholeArchive) -> None:
    """Copy the files that the target lacks, piece by piece. Raises BadState for a damaged one, BackendUnavailable."""
    there = {one.name async for one in target.files()}
    async for file in source.files():
        if file.name in there:
            continue
        with tempfile.TemporaryDirectory(prefix="gossamer-move-") as folder:
            path, digest = Path(folder) / file.name, sha256()
            with await asyncio.to_thread(open, path, "wb") as copy:
                async for piece in source.read_file(file.name):
                    digest.update(piece)
                    await asyncio.to_thread(copy.write, piece)
            if digest.hexdigest() != file.name:
                raise BadState(f"The file {file.name} in the archive is damaged. Delete it there, and move again.")
            await target.put_file(path, file.name)
