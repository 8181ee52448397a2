"""The rows of a project on their way: out of the stores of a source, and into the stores of a target or into a file.

State, records and archive are dumped in this order, each as of the moment at which its turn comes, while workers go on.
What is settled in the state was stored before, so its records are in the copy, and what these refer to is in the
archive. A page that was settled in between is queued in the copy: it is fetched again, as after a crash.

How it fails: `BackendUnavailable`, and what was loaded stays. How it recovers: everything is loaded anew, except files
of the archive that have arrived.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ....errors import BadState, Permanent
from ....frontier.learned_pace import LearnedPace, longest
from ....frontier.politeness import TermsFor
from ....frontier.state_rows import DumpedSite, DumpedUrl, StateCounts, StateRow
from ....store.contract import Segment, WholeArchive
from ....store.record_rows import DumpedPage, DumpedRecord, RecordCounts
from ....terms import site_terms
from .stores import Counts, Stores, another_file

CLOCKS_AGREE = 1.0  # seconds; a smaller difference is the duration of the query
PIECE = 8 * 1024 * 1024  # bytes of a file in memory

Batch = Sequence[Any]  # Any: rows of one role
Listener = Callable[[Batch], None]
Watch = Callable[[str, int, int], None]
"""Called with the role, how much of it was copied, and how much there is."""


class SegmentFile(msgspec.Struct, frozen=True):
    """A file of the archive that holds raw pages."""

    name: str
    content: bytes


class FilePiece(msgspec.Struct, frozen=True):
    """A piece of a file that a spider asked for, whose name is its hash."""

    name: str
    content: bytes
    last: bool


class ArchiveCounts:
    """Counts the files of an archive."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._counts: Counter[str] = Counter()

    def offer(self, batch: Sequence[SegmentFile | FilePiece]) -> None:
        for row in batch:
            if isinstance(row, SegmentFile):
                self.names.add(row.name)
                self._counts.update(files=1, bytes=len(row.content))
            elif row.last:
                self.names.add(row.name)
                self._counts.update(downloads=1)

    def counts(self) -> Counts:
        return {name: count for name, count in self._counts.items() if count}


RowCounts = StateCounts | RecordCounts | ArchiveCounts
_COUNTS: dict[str, type[RowCounts]] = {"state": StateCounts, "records": RecordCounts, "archive": ArchiveCounts}


def counts_of(role: str) -> RowCounts:
    """What counts the rows of a role as its store does."""
    return _COUNTS[role]()


def progress(role: str, total: int, watch: Watch) -> Listener:
    """Tells the watch how many URLs, or pages and records, or bytes of raw pages have passed."""
    done = 0

    def listener(batch: Batch) -> None:
        nonlocal done
        done += sum(map(_weight, batch))
        watch(role, done, max(done, total))

    return listener


def _weight(row: object) -> int:
    return len(row.content) if isinstance(row, SegmentFile) else isinstance(row, DumpedUrl | DumpedPage | DumpedRecord)


# -- out of a source ---------------------------------------------------------------------------------------------


async def dump(source: Stores, role: str, watch: Watch, *, there: Collection[str] = ()) -> AsyncGenerator[Batch]:
    """The rows of a role, in batches, except for files of the archive that are `there`. Raises BackendUnavailable."""
    stream = source.stream(role)
    if role == "archive":
        segments = [one for one in await source.segments() if one.name not in there]
        rows, total = _archive_rows(source.archive, segments, there), sum(one.size for one in segments)
    elif stream is not None:
        rows, total = stream.dump(), await _expected(source, role)
    else:
        return
    passed = progress(role, total, watch)
    async with aclosing(rows):
        async for batch in rows:
            if batch:
                yield batch
                passed(batch)


async def _expected(source: Stores, role: str) -> int:
    """About how many rows there are: workers may go on."""
    if source.state is not None and role == "state":
        counts = [await source.state.jobs.counts(job.id) for job in await source.state.jobs.jobs()]
        return sum(one.open + one.settled + one.dropped for one in counts)
    held = await source.counts(role)
    return held.get("pages", 0) + held.get("records", 0)


async def _archive_rows(
    archive: WholeArchive | None, segments: Sequence[Segment], there: Collection[str]
) -> AsyncGenerator[Batch]:
    if archive is None:
        return
    for segment in segments:
        with suppress(Permanent):  # it was pruned meanwhile
            content = await archive.read_segment(segment.name)
            yield [SegmentFile(segment.name, content[: segment.size])]  # it may have grown since
    async for file in archive.files():
        if file.name not in there:
            async for piece in _pieces(archive, file):
                yield [piece]


async def _pieces(archive: WholeArchive, file: Segment) -> AsyncGenerator[FilePiece]:
    """The pieces of a file. Raises BadState for a damaged one."""
    digest, rest = sha256(), b""
    try:
        async for some in archive.read_file(file.name):
            digest.update(some)
            rest += some
            while len(rest) > PIECE:
                yield FilePiece(file.name, rest[:PIECE], last=False)
                rest = rest[PIECE:]
    except Permanent:  # it was deleted meanwhile
        return
    if digest.hexdigest() != file.name:
        raise BadState(f"The file {file.name} in the archive is damaged. Delete it there, and run this again.")
    yield FilePiece(file.name, rest, last=True)


# -- into a target -----------------------------------------------------------------------------------------------


async def load(
    target: Stores, role: str, batches: AsyncIterator[Batch], *listeners: Listener, shift: float = 0.0
) -> tuple[Counts, Counts]:
    """Replace the contents of a role by these rows; every listener is called with each loaded batch. Returns the counts
    of the rows, and those of the target. Raises BackendUnavailable, Misconfigured, BadState.

    `shift` is by how many seconds the clock of the target's state is ahead of the source's."""
    counted = counts_of(role)
    listeners = (counted.offer, *listeners)
    if isinstance(counted, ArchiveCounts):
        if target.archive is not None:
            await _load_archive(target, target.archive, batches, listeners)
        return counted.counts(), await target.archive_counts(counted.names)
    stream = target.stream(role)
    if stream is None:
        return {}, {}
    if target.state is not None and role == "state":
        batches = _in_time_of(target, await target.state.stream.time(), batches, shift)
    await stream.clear()
    async for batch in batches:
        await stream.load(batch)
        for listener in listeners:
            listener(batch)
    await stream.finish()
    return counted.counts(), await target.counts(role)


async def _load_archive(
    target: Stores, archive: WholeArchive, batches: AsyncIterator[Batch], listeners: Sequence[Listener]
) -> None:
    """Write the files that are missing."""
    known = {one.name: one.size for one in await target.segments()}
    with tempfile.TemporaryDirectory(prefix="gossamer-copy-") as folder:
        part, digest = Path(folder) / "part", sha256()
        async for batch in batches:
            for row in batch:
                if isinstance(row, FilePiece):
                    digest.update(row.content)
                    await asyncio.to_thread(_append, part, row.content)
                    if row.last:
                        if digest.hexdigest() != row.name:  # a name is a place, too, and the rows may be a stranger's
                            raise BadState(f"The file {row.name[:64]!r} is not what its name says. It was left out.")
                        await archive.put_file(part, row.name)
                        part.unlink(missing_ok=True)
                        digest = sha256()
                elif known.get(row.name, len(row.content)) != len(row.content):
                    raise another_file(target, row.name)
                elif row.name not in known:
                    await archive.write_segment(row.name, row.content)
            for listener in listeners:
                listener(batch)


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


async def _in_time_of(target: Stores, now: float, batches: AsyncIterator[Batch], shift: float) -> AsyncIterator[Batch]:
    """The rows with their times by the clock of the target."""
    terms_for = site_terms(target.settings)
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
    if row.in_progress and spacing is not None:
        next_at = max(next_at, now + spacing)
    return msgspec.structs.replace(row, next_at=next_at, rest_until=rest_until, refused_at=refused_at, in_progress=0)
