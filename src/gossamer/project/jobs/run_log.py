"""The log of a run: what workers report about a job and what its spider logs, kept in the state for all to read.

Each process writes the lines of a job into a ring of chunks for each level, so that thousands of retries push out
neither tracebacks nor the beginning and the end. How it fails: while the state does not answer, lines wait in memory up
to one chunk and are then counted as left out. How it recovers: with the next write.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
from msgspec import Meta

from ...clock import Clock, iso_time
from ...errors import NotThere, Transient
from ...model import events
from ...model.item import safe_text
from ...model.job import Job
from ...model.run_log import LEVELS, RUN_LOG, LogChunk, LogLine
from ...model.shelf import Put, Shelf, ShelfKind, Trim
from ...monitor.logs import hearing_spiders, level_of, words_of_spider
from ...parse.spider import Spider, is_own, spider_version
from ...units import many, span
from ..access.keys import JOBS, Caller
from ..open import Project
from ..operation import Operation

WRITE_EVERY = timedelta(seconds=2)
CLOSE_WITHIN = timedelta(seconds=2)
CHUNK_LINES, CHUNK_SIZE = 50, 16_000  # lines and characters of a chunk
RING = 20  # chunks of a job, a process and a level; the oldest is overwritten
KEPT = 5_000  # chunks of all jobs
KEPT_FOR = timedelta(days=14)
MOST_MESSAGE, MOST_DETAIL = 2_000, 6_000  # characters
MOST_JOBS = 1_000  # whose rings a process remembers
READ_CHUNKS = 60  # of a level at most, for one look at a log
LONGEST_REF = 500  # bytes of a file of git
# Each page that goes well emits these; they are counted, and logged at level debug only.
QUIET = (events.Fetched, events.Parsed, events.Stored, events.Completed, events.Released)


class _Ring(msgspec.Struct):
    """The chunks of a job and a level that this process has written; `lines` is the open one."""

    number: int = 0
    lines: list[LogLine] = []
    size: int = 0
    left_out: int = 0
    changed: bool = False


class RunLog:
    """An EventSink that keeps what is said about jobs, from info on; while `level` returns `debug`, what happens to
    each page, too. Writes inside `async with`."""

    def __init__(self, shelf: Shelf, clock: Clock, worker: str, level: Callable[[], str] = lambda: "info") -> None:
        self._chunks = ShelfKind(shelf, RUN_LOG, LogChunk)
        self._shelf = shelf
        self._clock = clock
        self._worker = worker
        self._level = level
        self._rings: dict[tuple[str, str], _Ring] = {}
        self._begun: set[str] = set()  # jobs; the spiders of another pool of this process are not heard
        self._full: list[tuple[str, str, int, LogChunk]] = []  # closed chunks that are not written yet
        self._task: asyncio.Task[None] | None = None
        self._hearing = ExitStack()
        self._is_debug = level() == "debug"

    async def __aenter__(self) -> Self:
        self._spiders = self._hearing.enter_context(hearing_spiders(self._hear))
        self._look()
        self._task = asyncio.create_task(self._run(), name="run log")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._hearing.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(Transient, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN.total_seconds()):
                await self._write()

    def _look(self) -> None:
        """Follow the level."""
        level = self._level()
        self._is_debug = level == "debug"
        self._spiders.hear_from(level)

    def emit(self, event: events.Event) -> None:
        quiet = isinstance(event, QUIET)
        if event.job and (self._is_debug or not quiet):
            begun = event if isinstance(event, events.JobBegun) else None
            if begun is not None:
                self._begun.add(event.job)
            line = LogLine(
                at=event.at,
                level="debug" if quiet else level_of(event),
                event=type(event).__name__,
                message=safe_text(_words(event)[:MOST_MESSAGE]),
                url=safe_text(event.url[:MOST_MESSAGE]),
                detail=safe_text(event.detail[-MOST_DETAIL:]) if isinstance(event, events.Buried) else "",
                code=begun.code if begun is not None else "",
                commit=begun.commit if begun is not None else "",
            )
            self._add(event.job, line)

    def _hear(self, record: logging.LogRecord) -> None:
        facts = words_of_spider(record)
        if facts["job"] in self._begun:
            level = next(
                (one for one in reversed(LEVELS) if record.levelno >= logging.getLevelName(one.upper())), LEVELS[0]
            )
            message, _, detail = facts["message"].partition("\nTraceback ")
            line = LogLine(
                at=record.created,
                level=level,
                event="Logged",
                message=safe_text(message[:MOST_MESSAGE]),
                url=safe_text(facts["url"]),
                detail=safe_text(f"Traceback {detail}"[:MOST_DETAIL]) if detail else "",
            )
            self._add(facts["job"], line)

    def _add(self, job: str, line: LogLine) -> None:
        ring = self._rings.setdefault((job, line.level), _Ring())
        size = len(line.message) + len(line.detail) + len(line.url) + 100
        if len(ring.lines) >= CHUNK_LINES or ring.size + size > CHUNK_SIZE:
            if len(self._full) >= RING:
                ring.left_out += 1
                ring.changed = True
                return
            self._full.append((job, line.level, ring.number, self._chunk(job, ring)))
            ring.number, ring.lines, ring.size, ring.left_out = ring.number + 1, [], 0, 0
        ring.lines.append(line)
        ring.size += size
        ring.changed = True
        while len(self._rings) > MOST_JOBS * len(LEVELS):
            del self._rings[next(iter(self._rings))]

    def _chunk(self, job: str, ring: _Ring) -> LogChunk:
        return LogChunk(job, self._worker, tuple(ring.lines), ring.left_out)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(WRITE_EVERY.total_seconds())
            self._look()
            with suppress(Transient):  # the worker itself reports that the state does not answer
                await self._write()

    async def _write(self) -> None:
        full, self._full = self._full, []
        changed = [(key, ring) for key, ring in self._rings.items() if ring.changed]
        rows = [
            *full,
            *((job, level, ring.number, self._chunk(job, ring)) for (job, level), ring in changed if ring.lines),
        ]
        if not rows:
            return
        for _, ring in changed:
            ring.changed = False
        try:
            await self._shelf.commit([*(self._put(*row) for row in rows), Trim(kind=RUN_LOG, keep=KEPT)])
        except Transient:
            self._full = [*full, *self._full][:RING]
            for _, ring in changed:
                ring.changed = True
            raise

    def _put(self, job: str, level: str, number: int, chunk: LogChunk) -> Put:
        at = chunk.lines[-1].at
        until = at + KEPT_FOR.total_seconds()
        return self._chunks.put(f"{job}/{level}/{self._worker}/{number % RING}", chunk, at=at, until=until)


def _words(event: events.Event) -> str:
    """What an event says, for people, without the address of its page, which stands beside it."""
    said = str(getattr(event, "message", ""))
    if event.url:
        said = said.removeprefix(event.url).removeprefix(":").lstrip()
    match event:
        case events.JobBegun():
            code = f", with version {event.code} of the spider" if event.code else ""
            return f"A worker begins{code}{f', commit {event.commit[:12]}' if event.commit else ''}."
        case events.JobEnded():
            did = f" Records: {event.records}." if event.records else ""
            return f"The job has ended: {(event.outcome or event.ending).removesuffix('.')}.{did}"
        case events.Retried():
            return f"{event.reason}, tried again in {span(event.delay)}: {said}".removesuffix(": ")
        case events.Buried():
            return f"given up, {event.reason}: {said}".removesuffix(": ")
        case events.Blocked():
            return f"blocked through {event.route}, {event.kind}: {said}".removesuffix(": ")
        case events.Trouble():
            return f"{event.stage}: {said}"
        case events.ItemDropped():
            return f"{event.step} refused an item: {event.reason}"
        case events.JobPaused():
            return "The job is paused." if event.paused else "The job goes on."
    shared = events.Event.__struct_fields__
    own = {name: getattr(event, name) for name in event.__struct_fields__ if name not in shared}
    return said or ", ".join(f"{name} {value}" for name, value in own.items() if value != "")


# -- the code of a spider --------------------------------------------------------------------------------------------


_OWN_CODES: dict[type[Spider], tuple[str, str]] = {}


def code_of(spider: Spider) -> tuple[str, str]:
    """The version of the spider's source (a hash), and the commit that is checked out where it lies; "" where it is in
    no git folder. That of our own spiders, which serve many short jobs, is read once."""
    kind = type(spider)
    if not is_own(kind):
        return _read_code(kind)
    if kind not in _OWN_CODES:
        _OWN_CODES[kind] = _read_code(kind)
    return _OWN_CODES[kind]


def _read_code(kind: type[Spider]) -> tuple[str, str]:
    try:
        file = Path(getattr(sys.modules[kind.__module__], "__file__", "") or "")
        return spider_version(kind), next((found for folder in file.parents if (found := _commit(folder))), "")
    except (OSError, KeyError, ValueError):
        return spider_version(kind), ""


def _commit(folder: Path) -> str:
    """Read from the files of git: no program is started in a folder that may be a stranger's."""
    git = folder / ".git"
    if git.is_file():  # of a work tree
        git = folder / _text(git).removeprefix("gitdir: ")
    if not (git / "HEAD").is_file():
        return ""
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return head if _is_hash(head) else ""
    name = head.removeprefix("ref: ")
    shared = git / _text(git / "commondir") if (git / "commondir").is_file() else git
    for place in (git, shared):
        if (place / name).is_file() and _is_hash(found := _text(place / name)):
            return found
    packed = shared / "packed-refs"
    lines = packed.read_text(encoding="utf-8", errors="replace").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}") and _is_hash(line.split()[0])), "")


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        return opened.read(LONGEST_REF).decode("utf-8", "replace").strip()


def _is_hash(text: str) -> bool:
    return len(text) in (40, 64) and all(letter in "0123456789abcdef" for letter in text)


# -- reading ---------------------------------------------------------------------------------------------------------

Level = Literal["debug", "info", "warning", "error"]


class LogQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: Annotated[str, Meta(max_length=300, description="Its id: books-3.")]
    level: Annotated[Level, Meta(description="Only lines of this level and above.")] = "info"
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many, the newest.")] = 100


class LogLineView(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's log."""

    at: str
    level: str
    worker: str
    event: str
    message: str
    url: str
    detail: str
    code: str
    commit: str


class RunLogView(msgspec.Struct, frozen=True, kw_only=True):
    """The newest lines of a run's log, the oldest of them first. `older` counts those of the level that come before
    them, `left_out` lines that had no room. `codes` are the versions of the spider that worked on it, each with its
    commit, if that is known."""

    lines: list[LogLineView]
    older: int
    left_out: int
    codes: dict[str, str]


async def run_log(project: Project, caller: Caller, query: LogQuery) -> RunLogView:
    """Raises NotThere for a job that the caller does not see."""
    job = await project.state.jobs.job(query.job)
    if job is None or not caller.sees(job):
        raise NotThere(f"There is no job {query.job}. `gossamer job list` lists them.")
    return await log_of(project, job, level=query.level, limit=query.limit)


async def log_of(project: Project, job: Job, *, level: Level = "info", limit: int = 100) -> RunLogView:
    wanted, kind = LEVELS[LEVELS.index(level) :], ShelfKind(project.state.shelf, RUN_LOG, LogChunk)
    after = job.created_at - KEPT_FOR.total_seconds()
    chunks = [
        chunk
        for one in sorted({*wanted, "info"})  # where a worker begins, its version of the spider is said at info
        for chunk in await kind.timed(after=after, limit=READ_CHUNKS, newest=True, prefix=f"{job.id}/{one}/")
    ]
    every = [(line, chunk.worker) for chunk in chunks for line in chunk.lines]
    kept = sorted((one for one in every if one[0].level in wanted), key=lambda one: one[0].at)
    found = kept[-limit:]
    return RunLogView(
        lines=[_view(line, worker) for line, worker in found],
        older=len(kept) - len(found),
        left_out=sum(chunk.left_out for chunk in chunks),
        codes={line.code: line.commit for line, _ in sorted(every, key=lambda one: one[0].at) if line.code},
    )


def _view(line: LogLine, worker: str) -> LogLineView:
    fields = {name: getattr(line, name) for name in line.__struct_fields__ if name != "at"}
    return LogLineView(at=iso_time(line.at), worker=worker, **fields)


def lines_of(view: RunLogView) -> Iterator[str]:
    if view.older:
        yield f"... {many(view.older, 'older line')}; --limit shows more."
    if view.left_out:
        yield f"... {many(view.left_out, 'line')} had no room."
    for one in view.lines:
        yield f"{one.at}  {one.level:7}  {one.message}{f'  {one.url}' if one.url else ''}"
        yield from (f"    {line}" for line in one.detail.splitlines())


LOG = Operation(
    verb="job log", summary="What workers and the spider said about a job", arguments=("job",),
    method="GET", path="/api/v1/jobs/{job}/log", scope=JOBS, ask=LogQuery, gives=RunLogView, run=run_log,
    words=lambda view: "\n".join(lines_of(view)) or "Nothing was said about it.",
)  # fmt: skip
