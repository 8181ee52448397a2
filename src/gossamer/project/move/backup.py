"""Backs a project up into one file, and restores it at the configured addresses.

    backup    checks as a move does; writes state, records and raw pages into the file, and counts again at the end.
              While workers use files of this machine, it works on copies, taking that of the state first. Pages done
              there are in the records by then, since results are stored before their pages are settled, and what the
              records refer to is in the archive. A page that was done in between is fetched once more
    restore   checks the file and that the addresses are empty, loads it, and compares the counts with those in the file

How it fails: `Misconfigured`, `BackendUnavailable`; then a backup leaves no file, and a restore leaves stores that
refuse every other command. How it recovers: run the same command again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import msgspec

from ... import __version__
from ...access.contract import ApiKey, Callback
from ...backends.addresses import is_local, local_path
from ...backends.open import old_copy
from ...backends.sqlite.snapshot import copy_as_of_now
from ...clock import Clock, SystemClock
from ...errors import BadState, Misconfigured
from ...frontier.state_rows import DumpedJob, DumpedRow, DumpedSchedule, StateRow
from ...model.stream import MoveMark, MoveStatus
from ...model.url import FINGERPRINT_VERSION, host_of
from ...schedule.sources.kinds import CommandSource, program, source_of
from ...settings import Settings
from ...store.contract import Segment, WholeArchive
from ...store.record_rows import RecordRow
from ...store.spool_homes import something_waits
from ...units import moment
from ..callbacks import is_message
from ..spools import waiting_by_job
from .backup_file import FORMAT, BackupHeader, BackupReader, BackupWriter, SegmentFile, new_backup, open_backup
from .move import MoveReport, Watch, in_time_of, load_all, records_progress, state_progress
from .proof import differing_counts
from .stores import (
    ROLES,
    Counts,
    Part,
    Stores,
    another_file,
    at_work,
    exists,
    occupied,
    open_stores,
    require_complete,
    require_rest,
    sizes,
)


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was written. `warnings` are for the user."""

    header: BackupHeader
    size: int  # bytes
    warnings: tuple[str, ...] = ()


async def backup(
    settings: Settings, file: Path, *, pages: bool = True, clock: Clock | None = None, watch: Watch | None = None
) -> BackupReport:
    """Write everything that the project holds into `file`; without `pages`, everything but the archive.

    Raises Misconfigured, BadState, BackendUnavailable.
    """
    clock, watch = SystemClock(), watch or (lambda role, done, total: None)
    roles = [role for role in ROLES if exists(settings, role) and (pages or role != "archive")]
    async with AsyncExitStack() as stack:
        source = await open_stores(stack, settings, clock, roles)
        lives = is_on_this_machine(settings) and bool(await at_work(source))
        if lives:
            await require_complete(source)
            source = await open_stores(stack, await _copied(stack, settings, file), clock, roles)
        else:
            await require_rest(source, "back up")
        segments = await source.segments()
        counts = {role: await source.counts(role) for role in roles if role != "archive"}
        counts |= {"archive": sizes(segments)} if "archive" in roles else {}
        if not any(counts.values()):
            raise Misconfigured("There is nothing to back up: nothing has been crawled yet.")
        warnings = [
            text for role in roles if (one := source.stream(role)) for text in await old_copy(settings, role, one)
        ]
        spool = settings.root / settings.store.spool
        noted = waiting_by_job(await source.state.spools.notes()) if source.state is not None else {}
        if noted or something_waits(spool):
            warnings.append(
                "Results that could not be stored wait on the disks of workers (`gossamer spool`): they are not in "
                "this backup, and their pages count as done. Start `gossamer worker` while the record store answers, "
                "then back up again."
            )
        if source.archive is not None and await anext(aiter(source.archive.files()), None) is not None:
            warnings.append(
                "Files that spiders asked for are not in a backup. Copy the folder files/ of the archive beside it, or "
                "use `gossamer move`, which carries them."
            )
        if lives:
            warnings.append(
                f"Workers were at work: the backup is the project as it was at {moment(clock.now())}. After a restore, "
                "pages that were in hand or came later are fetched again."
            )
        header = BackupHeader(
            format=FORMAT,
            version=__version__,
            project=settings.project,
            fingerprints=FINGERPRINT_VERSION,
            made_at=clock.now(),
            counts=counts,
        )
        with new_backup(file, header) as writer:
            await _dump(source, writer, counts, segments, watch)
            if not lives and counts != {role: await source.counts(role) for role in roles}:
                raise Misconfigured("The project was changed meanwhile. Stop all workers, and back up again.")
        return BackupReport(header=header, size=writer.size, warnings=tuple(warnings))


def is_on_this_machine(settings: Settings) -> bool:
    """Whether state and records are files on this machine, which can be copied while others write."""
    return is_local(settings, "state") and is_local(settings, "records")


async def _copied(stack: AsyncExitStack, settings: Settings, file: Path) -> Settings:
    """The settings with copies of state and records, which the stack deletes. The order matters: see above."""
    folder = stack.enter_context(_folder_beside(file))
    for role in ("state", "records"):
        if not exists(settings, role):
            continue
        copy = Path(folder) / f"{role}.db"
        await asyncio.to_thread(copy_as_of_now, local_path(settings, role), copy, role)
        settings = msgspec.structs.replace(settings, **{role: f"sqlite:///{quote(str(copy))}"})
    return settings


def _folder_beside(file: Path) -> TemporaryDirectory[str]:
    """A temporary folder beside the backup: there must be room there anyway. Raises Misconfigured."""
    try:
        return TemporaryDirectory(prefix=".backup-", dir=file.absolute().parent)
    except OSError as error:
        raise Misconfigured(f"{file} cannot be written ({error.strerror}). Name another place for it.") from error


async def _dump(
    source: Stores, writer: BackupWriter, counts: dict[str, Counts], segments: Sequence[Segment], watch: Watch
) -> None:
    if source.state is not None:
        progress = state_progress(counts["state"], watch)
        async for states in source.state.stream.dump():
            await writer.write(states)
            progress(states)
    if source.records is not None:
        progress = records_progress(counts["records"], watch)
        async for records in source.records.stream.dump():
            await writer.write(records)
            progress(records)
    if source.archive is not None:
        done = 0
        for segment in segments:
            content = await source.archive.read_segment(segment.name)
            await writer.write([SegmentFile(segment.name, content[: segment.size])])  # it may have grown since
            done += segment.size
            watch("archive", done, counts["archive"].get("bytes", 0))


async def restore(settings: Settings, file: Path, *, watch: Watch | None = None) -> tuple[BackupHeader, MoveReport]:
    """Load the backup into the stores that `settings` name, which must be empty.

    Raises Misconfigured, BadState, BackendUnavailable.
    """
    clock, watch = SystemClock(), watch or (lambda role, done, total: None)
    async with AsyncExitStack() as stack:
        reader = stack.enter_context(closing(await open_backup(file)))
        header = reader.header
        target = await open_stores(stack, settings, clock, header.counts)
        marked = [role for role in header.counts if role != "archive"]
        begun = await _began(target, marked, reader.place)
        for role in marked:
            await _require_empty(target, role, header.counts[role] if begun else {})
        for role in marked:
            mark = MoveMark(status=MoveStatus.RESTORING, place=reader.place, at=clock.now())
            await target.set_mark(role, mark)
        brought = _Brought()
        with _fitting(str(file)):
            parts = await _load(reader, target, watch, str(file), brought)
        problems = [text for part in parts for text in differing_counts(part.role, part.here, part.there)]
        if not problems:
            for role in marked:
                await target.set_mark(role, None)
        return header, MoveReport(parts=tuple(parts), problems=tuple(problems), warnings=brought.warnings())


async def _began(target: Stores, roles: Sequence[str], place: str) -> bool:
    """Whether a restore of this same file was interrupted here."""
    marks = [await stream.mark() for role in roles if (stream := target.stream(role)) is not None]
    return any(one is not None and one.status is MoveStatus.RESTORING and one.place == place for one in marks)


async def _require_empty(target: Stores, role: str, loaded: Counts) -> None:
    """Refuse a store that is not empty, unless it holds an interrupted restore, perhaps one that was interrupted after
    the store had been loaded and its mark removed: then it holds what is `loaded`. Raises Misconfigured, BadState."""
    stream = target.stream(role)
    if stream is None:
        return
    mark = await stream.mark()
    if mark is not None and mark.status is MoveStatus.RESTORING:
        return
    if mark is not None and mark.status is MoveStatus.ARRIVING:
        raise BadState(
            f"What is at {target.place(role)} ({role}) is an unfinished move from {mark.place}. Run "
            f"that one again, or name another address or project."
        )
    held = await stream.counts()
    if held and held != loaded:
        raise occupied(target, role, held)


class _Brought:
    """What of a backup acts by itself once it is restored, for a user who may not have made the file: programs that
    print the addresses of schedules and unfinished jobs, keys that open the HTTP API, callbacks that are still to be
    sent."""

    def __init__(self) -> None:
        self._programs: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._receivers: dict[str, str] = {}

    def offer(self, batch: Sequence[StateRow]) -> None:
        for row in batch:
            match row:
                case DumpedSchedule():
                    self._look(f"schedule {row.standing.schedule.name}", row.standing.schedule.source)
                case DumpedJob() if row.finished_at is None:
                    self._look(f"job {row.id}", row.terms.source)
                case DumpedRow(kind="key"):
                    key: ApiKey = row.read()
                    if key.revoked_at is None:
                        self._keys[key.name or key.id] = " ".join(key.scopes)
                case DumpedRow(kind="callback"):
                    callback: Callback = row.read()
                    self._receivers[callback.url if is_message(callback) else host_of(callback.url)] = callback.job

    def _look(self, name: str, text: str) -> None:
        with suppress(msgspec.MsgspecError):  # a source that cannot be decoded is not run either
            if isinstance(source := source_of(text), CommandSource):
                self._programs[name] = program(source.argv)

    def warnings(self) -> tuple[str, ...]:
        found = (
            (self._programs, "Programs of this backup run on this machine when you start a worker", _PROGRAMS),
            (self._keys, "Keys of this backup open the HTTP API of this project", _KEYS),
            (self._receivers, "Callbacks of this backup are sent when you start a worker", _CALLBACKS),
        )
        return tuple(
            f"{words}: {_list(names)}. If the file is not yours, look at {where} first."
            for names, words, where in found
            if names
        )


_PROGRAMS = "`gossamer schedule list` and `gossamer job list`"
_KEYS = "`gossamer key list`"
_CALLBACKS = "`gossamer callbacks list`"


def _list(names: dict[str, str]) -> str:
    return ", ".join(f"{name} ({about})" for name, about in list(names.items())[:3]) + (", ..." * (len(names) > 3))


@contextmanager
def _fitting(file: str) -> Iterator[None]:
    """Rows that the schema allows and a store cannot hold, such as a number of a hundred digits. The stores keep their
    marks, and refuse every other command."""
    try:
        yield
    except (OverflowError, ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError) as error:
        raise Misconfigured(
            f"{file} holds a row that cannot be stored ({error}): no Gossamer has written it. What was loaded is not "
            f"complete: delete it, or name another address."
        ) from error


async def _load(reader: BackupReader, target: Stores, watch: Watch, file: str, brought: _Brought) -> list[Part]:
    counts = reader.header.counts
    there: dict[str, Counts] = {}
    if target.state is not None:
        rows = in_time_of(target.state, reader.batches("state"), target.settings, 0.0)
        await load_all(rows, target.state.stream, state_progress(counts["state"], watch), brought.offer)
        there["state"] = await target.counts("state")
    if target.records is not None:
        records: AsyncIterator[Sequence[RecordRow]] = reader.batches("records")
        await load_all(records, target.records.stream, records_progress(counts["records"], watch))
        there["records"] = await target.counts("records")
    if target.archive is not None:
        there["archive"] = await _load_segments(reader, target, target.archive, watch)
    return [
        Part(role=role, source=file, target=target.place(role), here=counts[role], there=there[role]) for role in counts
    ]


async def _load_segments(reader: BackupReader, target: Stores, archive: WholeArchive, watch: Watch) -> Counts:
    """Write the archive files that are missing; return the counts of those in the backup."""
    total, done, written = reader.header.counts["archive"].get("bytes", 0), 0, set()
    known = {one.name: one.size for one in await target.segments()}
    async for batch in reader.batches("archive"):
        for segment in batch:
            if known.get(segment.name, len(segment.content)) != len(segment.content):
                raise another_file(target, segment.name)
            if segment.name not in known:
                await archive.write_segment(segment.name, segment.content)
            written.add(segment.name)
            done += len(segment.content)
            watch("archive", done, total)
    return sizes([one for one in await target.segments() if one.name in written])
