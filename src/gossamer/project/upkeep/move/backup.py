"""Backs a project up into one file, and restores it at the configured addresses. Workers may go on.

    backup    writes state, records and archive into the file, in this order (copy.py)
    restore   checks the file and that the addresses are empty, loads it, and compares the counts with those in the file

How it fails: `Misconfigured`, `BackendUnavailable`; then a backup leaves no file, and a restore leaves stores that
refuse every other command. How it recovers: run the same command again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, closing, contextmanager, suppress
from pathlib import Path

import msgspec

from .... import __version__
from ....access.contract import ApiKey, Callback
from ....backends.open import old_copy
from ....clock import SystemClock
from ....errors import Misconfigured
from ....frontier.state_rows import DumpedJob, DumpedRow, DumpedSchedule, StateRow
from ....model.stream import MoveMark, MoveStatus
from ....model.url import FINGERPRINT_VERSION, host_of
from ....schedule.sources.kinds import CommandSource, program, source_of
from ....settings import Settings
from ....store.spool_file import something_waits
from ....units import many, moment
from ...access.callbacks import is_message
from .backup_file import FORMAT, BackupHeader, BackupReader, new_backup, open_backup
from .copy import Listener, Watch, counts_of, dump, load, progress
from .move import MoveReport
from .proof import differing_counts
from .stores import ROLES, MovePart, Stores, at_work, exists, open_stores, require_complete, require_room


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that was written. `warnings` are for the user."""

    header: BackupHeader
    size: int  # bytes
    warnings: tuple[str, ...] = ()


async def backup(settings: Settings, file: Path, *, pages: bool = True, watch: Watch | None = None) -> BackupReport:
    """Write everything that the project holds into `file`; without `pages`, everything but the archive.

    Raises Misconfigured, BadState, BackendUnavailable.
    """
    clock, watch = SystemClock(), watch or (lambda role, done, total: None)
    roles = [role for role in ROLES if exists(settings, role) and (pages or role != "archive")]
    async with AsyncExitStack() as stack:
        source = await open_stores(stack, settings, clock, roles)
        await require_complete(source)
        warnings = [
            text for role in roles if (one := source.stream(role)) for text in await old_copy(settings, role, one)
        ]
        header = BackupHeader(
            format=FORMAT,
            version=__version__,
            project=settings.project,
            fingerprints=FINGERPRINT_VERSION,
            made_at=clock.now(),
        )
        busy = await at_work(source)
        with new_backup(file, header) as writer:
            for role in roles:
                counted = counts_of(role)
                async with aclosing(dump(source, role, watch)) as batches:
                    async for batch in batches:
                        await writer.write(batch)
                        counted.offer(batch)
                writer.counts[role] = counted.counts()
                if role == "state":
                    # After the state and before the records: what waits later belongs to pages that are not done here.
                    warnings += await _waiting_results(settings, source)
            if not any(writer.counts.values()):
                raise Misconfigured("There is nothing to back up: nothing has been crawled yet.")
        if busy:
            warnings.append(
                f"Workers were at work: the backup is the project as it was at {moment(header.made_at)}. After a "
                f"restore, pages that were in progress or came later are fetched again. Stop these workers before the "
                f"restored project is started: requests that must not be sent twice, and that they send from now on, "
                f"would be sent again."
            )
        header = msgspec.structs.replace(header, counts=writer.counts)
        return BackupReport(header=header, size=writer.size, warnings=tuple(warnings))


async def _waiting_results(settings: Settings, source: Stores) -> list[str]:
    """A warning about results that wait on the disks of workers."""
    notes = await source.state.spools.notes() if source.state is not None else []
    if not notes and not something_waits(settings.root / settings.store.spool):
        return []
    where = ", ".join(f"{note.host}: {many(sum(note.results.values()), 'result')}" for note in notes[:3])
    return [
        f"Results that could not be stored wait on the disks of workers{f' ({where})' if where else ''}: they are not "
        f"in this backup, and their pages count as done. Start `gossamer worker` while the record store answers, then "
        f"back up again."
    ]


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
            await require_room(target, role, MoveStatus.RESTORING, reader.place, header.counts[role] if begun else None)
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
                    self._look(f"schedule {row.progress.schedule.name}", row.progress.schedule.source)
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
_KEYS = "`gossamer keys list`"
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


async def _load(reader: BackupReader, target: Stores, watch: Watch, file: str, brought: _Brought) -> list[MovePart]:
    parts = []
    for role, counts in reader.header.counts.items():
        listeners: list[Listener] = [progress(role, reader.totals[role], watch)]
        listeners += [brought.offer] if role == "state" else []
        _, there = await load(target, role, reader.batches(role), *listeners)
        parts.append(MovePart(role=role, source=file, target=target.place(role), here=counts, there=there))
    return parts
