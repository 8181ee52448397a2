"""One SQLite file: opened, checked, migrated; its writes grouped into commits; its errors translated.

Writes are functions of a connection. Writes that arrive while a commit is in progress, or within a few milliseconds,
run one after the other in the next transaction. So they share the cost of a commit, and several processes take turns
with `BEGIN IMMEDIATE`.

Quick work is done at once, in the thread of the event loop: handing a page's statements to another thread costs more
than the statements. Potentially slow work is left to the file's own thread: waiting for another process's turn, the
commit of a durable file, checkpoints, and everything for a while after a slow transaction.

How it fails: a write that raises one of our own errors fails alone (it must raise before it changes anything); a driver
error rolls back the whole transaction, and every write of the group gets `BackendUnavailable`.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from ...errors import BackendUnavailable, BadState, GossamerError, Misconfigured
from ...process import limits as openfiles
from ...store.durable import make_folder

T = TypeVar("T")
Write = Callable[[sqlite3.Connection], Any]
Group = list[tuple[Write, asyncio.Future[Any], bool]]
Answers = list[tuple[asyncio.Future[Any], Any, BaseException | None]]

BUSY_TIMEOUT = timedelta(seconds=30)
SHORTEST_WAIT, LONGEST_WAIT = 0.0003, 0.010  # seconds between two checks whether another process has finished its turn
LONG = timedelta(milliseconds=50)  # a transaction this long should not have blocked the event loop ...
LONG_FOR = 40  # ... and for this many times its length, the thread does all work: a slow disk takes 1/40 of the loop
# A checkpoint moves each page once, however often it was written since the last one: rarer is cheaper. The limit is on
# the journal, which all processes share, and which SQLite truncates to JOURNAL_KEPT after a checkpoint.
CHECKPOINT_AFTER = 32 * 1024 * 1024  # bytes of the journal
JOURNAL_KEPT = CHECKPOINT_AFTER // 2
CACHE_KIB = 16 * 1024
MAX_GROUP = 512  # writes per commit; later ones wait for the next
_IDLE = re.compile(r"--[^\n]*|\s+")  # comments and spaces
_OBJECTS = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
UNRELEASED = (0x676F7372, 0x676F7373)  # application ids of files from before 0.1.0

# Without these, sqlite3 searches for an adapter for bytes and None and raises an internal error each time that it finds
# none, which takes longer than binding the value. The second is a C function that returns None.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(type(None), {}.get)  # type: ignore[arg-type]


class Database:
    """A SQLite file with our schema. Open inside `async with`.

    `durable` fsyncs every commit, so that it survives a power cut. Without it a power cut may undo the last commits
    (never half of one), except those before a `sync`; a killed process undoes nothing.
    """

    def __init__(
        self, path: Path, *, schema: str, application_id: int, durable: bool, linger: timedelta, role: str
    ) -> None:
        self.path = path
        self._schema = schema
        self._newest = 0  # schema version that this Gossamer knows, once the file is open
        self._application_id = application_id
        self._durable = durable
        self._linger = linger.total_seconds()
        self._role = role  # the setting's name, for messages: "state" or "records"
        self._pending: Group = []
        self._busy = False
        self._scheduled = False
        self._company = False  # whether several writes shared the last transaction
        self._slow_until = 0.0  # monotonic time: until then, the thread does all work
        self._journal = f"{path}-wal"
        self._inbox: SimpleQueue[Callable[[], Answers] | None] = SimpleQueue()
        self._read_lock = asyncio.Lock()
        self._commits = self._synced = 0  # transactions of this process that are committed, and that are on the disk
        self._syncing: asyncio.Future[None] | None = None
        self._sync_failure: OSError | None = None
        self._closed = True
        self.on_rollback: list[Callable[[], None]] = []  # called to drop what was cached from a rolled-back transaction
        self.left_over: list[Write] = []  # each writes what the folding writes have left to be written together

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._writer, self._reader = await asyncio.to_thread(self._open)
        self._thread = threading.Thread(target=self._work, name=f"sqlite-{self._role}", daemon=True)
        self._thread.start()
        self._closed = False
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        self._fail_pending(BackendUnavailable(f"The {self._role} file was closed."))
        async with self._read_lock:  # wait for the last read
            await asyncio.to_thread(self._close)

    async def write(self, write: Callable[[sqlite3.Connection], T], *, folds: bool = False) -> T:
        """Run `write` in a transaction and return its result after the commit.

        A write that `folds` may leave a part to its function in `left_over`, which runs before the commit, and before
        any write that does not fold.
        """
        if self._closed:
            raise BackendUnavailable(f"The {self._role} file {self.path} is closed.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._pending.append((write, future, folds))
        if not self._busy:
            self._schedule()
        return await future

    async def sync(self) -> None:
        """Return when everything that this process has committed is on the disk. Callers that wait at the same time
        share one sync, which delays no transaction. Raises BackendUnavailable."""
        wanted = self._commits
        while not self._durable and self._synced < wanted:
            if self._closed:
                raise BackendUnavailable(f"The {self._role} file {self.path} is closed.")
            if self._syncing is None:
                self._syncing = asyncio.ensure_future(self._sync_journal(self._commits))
            await asyncio.shield(self._syncing)  # others wait for it too

    async def _sync_journal(self, commits: int) -> None:
        try:
            # After a failed sync the kernel may have dropped what it could not write, and call the next one a success.
            if self._sync_failure is None:
                await asyncio.to_thread(_sync_file, self._journal)
                self._synced = commits
        except OSError as error:
            self._sync_failure = error
        finally:
            self._syncing = None
        if self._sync_failure is not None:
            raise BackendUnavailable(
                f"The disk that holds {self.path} did not keep what was written to it ({self._sync_failure.strerror}). "
                f"Check the disk, then start this program again."
            ) from self._sync_failure

    async def read(self, read: Callable[[sqlite3.Connection], T], *, quick: bool = False) -> T:
        """Run `read` on a separate connection, beside the writes; it sees only committed data. A `quick` read, a
        look-up of a few rows by their identity, is done at once."""
        if quick and not self._read_lock.locked() and not self._closed and time.monotonic() >= self._slow_until:
            try:
                return self._quickly(lambda: read(self._reader))
            except sqlite3.Error as error:
                raise translate(error, self.path, self._role) from error
        await self._read_lock.acquire()
        if self._closed:
            self._read_lock.release()
            raise BackendUnavailable(f"The {self._role} file {self.path} is closed.")
        try:
            reading = self._loop.run_in_executor(None, read, self._reader)
        except RuntimeError:  # the loop is about to end
            self._read_lock.release()
            raise
        reading.add_done_callback(self._has_read)
        try:
            # The caller may be cancelled. The thread is not, and uses the connection until it is done.
            return await asyncio.shield(reading)
        except sqlite3.Error as error:
            raise translate(error, self.path, self._role) from error

    async def compact(self) -> str:
        """Write the file anew, without what was deleted; return what could not be done. Other writers wait."""
        return await asyncio.to_thread(self._compact)

    def _compact(self) -> str:
        deadline = time.monotonic() + BUSY_TIMEOUT.total_seconds()
        try:
            with closing(self._connect()) as connection:
                connection.execute("VACUUM")
                while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:  # somebody reads
                    if time.monotonic() > deadline:
                        return f"{self._journal} may hold it until other programs close {self.path.name}."
                    time.sleep(SHORTEST_WAIT)
        except sqlite3.Error as error:
            return f"{self.path} may hold it in free space: it could not be written anew ({error})."
        return ""

    def _has_read(self, reading: asyncio.Future[Any]) -> None:
        self._read_lock.release()
        if not reading.cancelled():
            reading.exception()  # retrieved even if the caller was cancelled

    def _schedule(self) -> None:
        """Schedule the next transaction. If the last one had several writes, wait a little longer for others."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(self._linger * 2 if self._company else self._linger, self._dispatch)

    def _dispatch(self) -> None:
        self._scheduled = False
        if self._busy or not self._pending or self._closed:
            return
        group, self._pending = self._pending[:MAX_GROUP], self._pending[MAX_GROUP:]
        self._busy, self._company = True, len(group) > 1
        if time.monotonic() < self._slow_until or not self._has_turn():
            self._inbox.put(lambda: self._commit(group))
            return
        try:
            answers = self._quickly(lambda: self._transact(group, commits=not self._durable))
        except Exception as error:
            failure = error  # `error` is unbound when the thread reads it
            self._inbox.put(lambda: self._failed(group, failure))
            return
        if self._durable:
            self._inbox.put(lambda: self._finish(group, answers))
        elif self._wants_checkpoint:
            self._inbox.put(lambda: self._checkpoint(answers))
        else:
            self._settled(answers)

    def _has_turn(self) -> bool:
        """Begin a transaction, unless another process has its turn."""
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.Error:  # the thread meets the same error and reports it
            return False
        return True

    def _quickly(self, work: Callable[[], T]) -> T:
        """Run it in this thread, and measure how long it takes."""
        began = time.monotonic()
        try:
            return work()
        finally:
            now = time.monotonic()
            if now - began > LONG.total_seconds():
                self._slow_until = now + LONG_FOR * (now - began)

    def _settled(self, answers: Answers) -> None:
        self._busy = False
        self._commits += 1
        for future, value, error in answers:
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
        if self._pending:
            self._schedule()

    def _fail_pending(self, error: GossamerError) -> None:
        for _, future, _ in self._pending:
            if not future.done():
                future.set_exception(error)
        self._pending.clear()

    def _work(self) -> None:
        """The writer thread: one group, one transaction."""
        while (task := self._inbox.get()) is not None:
            answers = task()
            with suppress(RuntimeError):  # the loop is closed, and with it the callers
                self._loop.call_soon_threadsafe(self._settled, answers)

    def _commit(self, group: Group) -> Answers:
        """A whole transaction in the thread: another process may hold its turn for a while."""
        try:
            self._wait_for_turn()
            answers = self._transact(group, commits=True)
        except Exception as error:
            return self._failed(group, error)
        return self._checkpoint(answers) if self._wants_checkpoint else answers

    def _wait_for_turn(self) -> None:
        """Begin a transaction as soon as the other processes allow. SQLite's own wait sleeps up to a tenth of a second
        at a time, while turns take a few milliseconds."""
        deadline, pause = time.monotonic() + BUSY_TIMEOUT.total_seconds(), SHORTEST_WAIT
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                    raise
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_WAIT)

    def _transact(self, group: Group, *, commits: bool) -> Answers:
        """Run the writes of a group in the transaction that has begun; raises what they raise, except our own
        errors."""
        answers: Answers = []
        connection = self._writer
        folded = False
        for write, future, folds in group:
            if folded and not folds:
                self._write_left_over()
            folded = folds
            try:
                answers.append((future, write(connection), None))
            except GossamerError as error:
                answers.append((future, None, error))
        if folded:
            self._write_left_over()
        if commits:
            connection.execute("COMMIT")
        return answers

    def _write_left_over(self) -> None:
        for write in tuple(self.left_over):  # the loop's thread may add to it
            write(self._writer)

    def _finish(self, group: Group, answers: Answers) -> Answers:
        """Commit what was written at once."""
        try:
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            return self._failed(group, error)
        return self._checkpoint(answers) if self._wants_checkpoint else answers

    def _failed(self, group: Group, error: Exception) -> Answers:
        """The transaction is void. A value that SQLite cannot store is the fault of one write: the others are repeated
        without it."""
        if self._writer.in_transaction:
            with suppress(sqlite3.Error):  # the transaction is void either way
                self._writer.execute("ROLLBACK")
        for forget in tuple(self.on_rollback):  # the loop's thread may add to it
            forget()
        if not isinstance(error, sqlite3.Error) and len(group) > 1:
            return [answer for one in group for answer in self._commit([one])]
        failure = translate(error, self.path, self._role) if isinstance(error, sqlite3.Error) else error
        return [(future, None, failure) for _, future, _ in group]

    @property
    def _wants_checkpoint(self) -> bool:
        try:
            return os.stat(self._journal).st_size > CHECKPOINT_AFTER
        except OSError:  # it was deleted meanwhile: the next write reports it
            return False

    def _checkpoint(self, answers: Answers) -> Answers:
        """Move what was written since the last checkpoint from the journal to the file, except pages that readers
        need."""
        with suppress(sqlite3.Error):  # it is tried again, and the data is safe in the journal
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
        return answers

    def _open(self) -> tuple[sqlite3.Connection, sqlite3.Connection]:
        try:
            make_folder(self.path.parent)  # SQLite syncs only the folder of its files
        except OSError as error:
            raise Misconfigured(
                f"The folder {self.path.parent} cannot be created ({error.strerror}). "
                f"Set {self._role} = 'sqlite:///...' to a place you may write to."
            ) from error
        with suppress(OSError):  # it exists, or SQLite says what is wrong; the files beside it get its mode
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            with closing(self._connect()) as first:
                self._migrate(first)
                writer, reader = self._connect(), self._connect()
            writer.execute("PRAGMA busy_timeout = 0")  # we wait for our turn ourselves
            return writer, reader
        except sqlite3.Error as error:
            raise translate(error, self.path, self._role) from error
        except OSError as error:  # while reading the schema files
            if not openfiles.were_used_up(error):
                raise
            raise BackendUnavailable(openfiles.remedy()) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=BUSY_TIMEOUT.total_seconds(),
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        _use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see CHECKPOINT_AFTER
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_KEPT}")
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the file to the newest schema, in one transaction. Raises BadState for a file that is not
        Gossamer's."""
        scripts = numbered_scripts(self._schema)
        newest = self._newest = scripts[-1][0]
        connection.execute("BEGIN IMMEDIATE")
        found_id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if found_id != self._application_id and (tables or found_id):
            connection.execute("ROLLBACK")
            if found_id in UNRELEASED:
                raise self._unreleased()
            raise BadState(
                f"{self.path} is a SQLite file, but not a Gossamer {self._role} file. "
                f"Move it away, or set {self._role} to another path in gossamer.toml."
            )
        if version > newest:
            connection.execute("ROLLBACK")
        self.check_schema(version)
        if version == 1 and not _has_made(connection, scripts[0][1]):
            connection.execute("ROLLBACK")
            raise self._unreleased()
        for number, script in scripts:
            if number > version:
                for statement in statements_of(script):
                    connection.execute(statement)
        # Row counts, by which SQLite chooses an index in connections opened after this. They describe the day they were
        # made: after a crawl of two sites, a crawl of 100,000 sites scanned all of them for each page.
        connection.execute("DROP TABLE IF EXISTS sqlite_stat1")
        connection.execute(f"PRAGMA application_id = {self._application_id}")
        connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")

    def _unreleased(self) -> BadState:
        return BadState(
            f"{self.path} was written by a Gossamer from before 0.1.0, whose files are not read. Export what "
            f"you need with that version, then move the file away, or set {self._role} to another path."
        )

    def check_schema(self, version: int) -> None:
        """Raises BadState for a schema newer than this version."""
        if version > self._newest:
            raise BadState(
                f"{self.path} was written by a newer Gossamer (schema {version}, this one knows {self._newest}). "
                f"Upgrade Gossamer on this machine."
            )

    def _close(self) -> None:
        self._reader.close()
        self._writer.close()


def _sync_file(path: str) -> None:
    """Raises OSError. SQLite has no locks on its journal which closing the file would end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has no fdatasync
    finally:
        os.close(descriptor)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Retried here, because SQLite refuses it at once while another process creates the same file."""
    deadline = time.monotonic() + BUSY_TIMEOUT.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def numbered_scripts(name: str) -> list[tuple[int, str]]:
    """The migrations `schema/<name>-001.sql`, `-002.sql`, ... with their numbers, in order.

    A file's version is the highest number that was applied to it.
    """
    files = Path(__file__).with_name("schema").glob(f"{name}-*")  # importlib.resources would load a zip reader, too
    numbered = ((int(file.name.removeprefix(f"{name}-").removesuffix(".sql")), file) for file in files)
    return sorted((number, file.read_text(encoding="utf-8")) for number, file in numbered)


def statements_of(script: str) -> list[str]:
    """Split a script into statements, so that it can run inside a transaction."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if ";" in line and sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements


def _has_made(connection: sqlite3.Connection, script: str) -> bool:
    """Whether that script made this file, rather than one of a build before the first release, which has the same
    number. Later formats have numbers that are enough."""
    bare = _IDLE.sub("", script)
    found = [f"{_IDLE.sub('', sql)};" in bare for (sql,) in connection.execute(_OBJECTS)]
    return sum(found) == script.count("\nCREATE ")


def translate(error: sqlite3.Error, path: Path, role: str) -> GossamerError:
    """Translate a driver error, with the next step."""
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return BadState(
            f"{path} is damaged or not a SQLite file ({text}). Move it away, or set {role} to another path."
        )
    if "unable to open" in text and openfiles.are_used_up():
        return BackendUnavailable(openfiles.remedy())
    if "unable to open" in text or "readonly" in text:
        return BadState(f"{path} cannot be opened for writing ({text}). Check its permissions and its folder's.")
    if "disk is full" in text or "disk I/O" in text:
        return BackendUnavailable(f"The disk that holds {path} is full or failing ({text}). Free some space.")
    if "locked" in text or "busy" in text:
        return BackendUnavailable(
            f"{path} has been locked by another process for {BUSY_TIMEOUT.total_seconds():g} s. "
            f"Close programs that keep it open for writing."
        )
    return BackendUnavailable(f"SQLite refused to work on {path}: {text}")
