"""Contracts of storage: `Records` (records and their history, the log of pages, quality, figures), `Archive` (raw
pages) and `SpoolBook` (which results wait on the disks of workers).

A record store fulfils all of `Records`; those who use it ask for the part they need.

How they fail: `BackendUnavailable`, and then nothing of the batch is stored. How they recover: every write is
idempotent, so the caller repeats it. Writes are batched by the caller (store/sink.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from ..errors import Permanent
from ..model.figures import Figures
from ..model.page import Snapshot
from ..model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity, StoredRecord, Tally
from .attempt_pages import AttemptPage as AttemptPage  # a part of this contract
from .attempt_pages import AttemptQuery as AttemptQuery

if TYPE_CHECKING:
    from .record_rows import RecordStream

LAST_NUMBER = 2**63 - 1  # of a record, at most


class Retirement(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are gone: those of `spider` that `job` did not see though it looked.

    It looked at a record when it visited the page that gave it last (done, unchanged or reparsed), or learned that this
    page does not exist (status 404, 410). With `of`, the job stands only for records that one of these jobs saw; None:
    for all of the spider. With `earlier`, the job looked everywhere: all records that one of these jobs saw count as
    well, also those of a page that leads elsewhere now, unless their page was tried and not understood, or somebody has
    checked them after the job `began` (None: after `at`). What somebody has seen since is left alone.
    """

    job: str
    spider: str
    at: float
    of: Sequence[str] | None = None
    earlier: Sequence[str] = ()
    began: float | None = None

    @property
    def checked_by(self) -> float:
        return self.at if self.began is None else self.began


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are meant. None does not restrict. `since` is compared with last_changed.

    `gone` True means only those that were not found any more, False only those that are still there. `after` and
    `upto` are cursors: what was stored between the two, whatever its times say. `newest` turns the order around;
    `beyond` is the number of a record, and those come that follow it in that order. `count` heeds neither.
    """

    job: str | None = None
    spider: str | None = None
    type: str | None = None
    site: str | None = None
    key: str | None = None
    url: str | None = None  # the page it was found on, after redirects
    since: float | None = None
    until: float | None = None
    gone: bool | None = None
    after: str | None = None
    upto: str | None = None
    newest: bool = False
    beyond: int | None = None

    def first(self) -> int:
        """The number behind which reading begins."""
        return self.beyond if self.beyond is not None else LAST_NUMBER if self.newest else 0

    def in_order(self, numbers: Sequence[int]) -> list[int]:
        """Those among these numbers that are wanted, as they come."""
        first = self.first()
        return sorted((n for n in numbers if (n < first if self.newest else n > first)), reverse=self.newest)


class VisitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which archived visits are meant: of each page the newest one of each spider that fits. None does not restrict."""

    spider: str | None = None
    job: str | None = None
    since: float | None = None
    failures: tuple[str, ...] | None = ("", "parse", "quality")  # of PageFacts.failure


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One step in a record's history: what it looked like from `at` on, or that it was `gone` from then on."""

    at: float
    job: str
    version: int
    data: str
    gone: bool = False
    schema: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A record that two jobs saw differently; `before` and `after` are its data, as JSON."""

    kind: Literal["added", "changed", "gone"]
    type: str
    site: str
    key: str
    url: str
    before: str | None = None
    after: str | None = None


class RecordStore(Protocol):
    """Records as they are now, and what is known of pages for their next visit."""

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        """Store all of it in one commit; return, for each result, how many of its records were new or changed.

        A record is identified by (type, site, key). Same content hash: only `last_checked` moves. An older
        `scraped_at` never replaces a newer one; store/record_rules.py decides. A result whose outcome is "unchanged"
        confirms the records that its page gave before: they were checked, and this job saw them. A record that was
        gone and is seen again is a new version. Quality tallies are added up. Saving the same result (known by its
        attempt) twice leaves what saving it once left.
        """
        ...

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        """The present data of each record that is known, as JSON."""
        ...

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        """The newest facts of each known page."""
        ...

    async def count(self, query: RecordQuery) -> int: ...

    def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        """Stream records in order of first storage, or its reverse, in flat memory. Raises Misconfigured for a cursor
        that is none of this store."""
        ...

    async def cursor(self) -> str:
        """A mark in the stream of changes: nothing is stored before it any more. Ask for records `upto` it, keep it,
        and ask `after` it the next time: no change is missed, and none is told twice."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Forget attempts, and visits that a newer one has replaced, older than that; return how many went.

        Records, their history and the newest facts of a page are never pruned.
        """
        ...


class PageLog(Protocol):
    """What was tried for each page, and where its raw copies are."""

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        """The audit log of a URL, oldest first."""
        ...

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        """The attempts of all URLs, the newest first. `before` is `next` of the page before. Raises Misconfigured for
        what is no cursor."""
        ...

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        """Every archived visit of a URL, oldest first."""
        ...

    def archived(self, query: VisitQuery) -> AsyncIterator[PageFacts]:
        """Stream archived visits, of each page the newest of each spider that fits, in flat memory."""
        ...


class RecordHistory(Protocol):
    """How records came to be what they are."""

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        """Every version of a record, oldest first; that it was gone for a time is a version too."""
        ...

    async def seen_version(self, job: str, type: str, site: str, key: str) -> int:
        """The version of a record that the job saw last; 0: it saw none, or that is not known."""
        ...

    def differences(self, before: str, after: str) -> AsyncIterator[Difference]:
        """What the job `after` saw differently from the job `before`: each record in the version that the job saw last.
        In flat memory."""
        ...

    async def retire(self, wanted: Retirement) -> int:
        """Mark records as gone; return how many. Being gone is a new version of the record; calling this again
        changes nothing more."""
        ...

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        """Every known shape of items, with the time it was first stored, oldest first."""
        ...


class QualityBook(Protocol):
    async def scores(self, *, spider: str | None = None, since: str = "") -> list[Tally]:
        """What was counted, by day, spider, type, field and rule; `since` is a day."""
        ...


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of `span` seconds from `start` on."""

    start: int
    span: int
    figures: Figures


class FigurePart(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader needs of figures; the rest is left out, and need not be decoded.

    With `domain` or `job`, these figures of that one are all there is. Without `domains`, there are none by domain.
    """

    domain: str | None = None
    job: str | None = None
    domains: bool = True


class FigureBook(Protocol):
    """Figures over time, and their total. `save` counts: every attempt once, in the same commit, in its own minute."""

    async def figures(self, since: float, until: float, part: FigurePart | None = None) -> list[Measured]:
        """What was counted in the minutes and ten minutes that begin from `since` on and before `until`, oldest first.
        Minutes are kept for a day, ten minutes for 30 days; no time is in both. A `part` of it costs less."""
        ...

    async def total_figures(self) -> Figures:
        """Everything that was ever counted here. No number of it becomes smaller."""
        ...


class Records(RecordStore, PageLog, RecordHistory, QualityBook, FigureBook, Protocol):
    """All that a record store does. `stream` is all that it holds, row by row, for a move or a backup."""

    @property
    def stream(self) -> RecordStream: ...


class Archive(Protocol):
    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Write pages durably; return one reference each. A reference names its place and never changes."""
        ...

    async def get(self, ref: str) -> Snapshot:
        """Read a page back. Raises Permanent when the reference names nothing."""
        ...

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        """Read many pages at once, in the order of their references; in place of one that cannot be had, why."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Delete pages, and files that nobody has put or asked for since, older than that; return the number of bytes
        given back."""
        ...

    async def size(self) -> int:
        """How many bytes it holds, pages and files. It looks at every name."""
        ...

    async def put_file(self, path: Path, sha256: str) -> bool:
        """Take in a file whole and durably, or nothing of it, in flat memory. What is at `path` may be moved away.
        False: a file of that content was here already, and stays."""
        ...

    async def has_file(self, sha256: str) -> bool:
        """Is a file of that content here? One that is counts as used today."""
        ...

    def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        """The file in pieces. Raises Permanent when there is none."""
        ...


class Segment(msgspec.Struct, frozen=True, order=True):
    """A file or object of an archive, with many pages in it: `2027-01-31/host-1.zst`."""

    name: str
    size: int


class ArchiveSegments(Protocol):
    """An archive as its files. They never change, so that a file with the same name and size needs no second copy, and
    a copy under the same name keeps references good and the day by which pages are pruned."""

    def segments(self) -> AsyncIterator[Segment]:
        """Every file that holds pages."""
        ...

    async def read_segment(self, name: str) -> bytes:
        """A whole file. Raises Permanent when there is no file of that name."""
        ...

    async def write_segment(self, name: str, content: bytes) -> None:
        """Write a file, whole and durable, or nothing of it."""
        ...


class ArchiveFiles(Protocol):
    def files(self) -> AsyncIterator[Segment]:
        """Every file that was taken in, its hash as its name."""
        ...


class WholeArchive(Archive, ArchiveSegments, ArchiveFiles, Protocol):
    """All that an archive does."""


class SpoolNote(msgspec.Struct, frozen=True, kw_only=True):
    """Results that wait on one disk, as every machine can read: how many of which job, in which folder of which host.

    `name` is the folder of one process below the spool. `given_up`: somebody said that these results are lost.
    """

    name: str
    host: str
    folder: str
    worker: str  # the process that keeps them
    results: dict[str, int]  # by job
    bytes: int
    noted_at: float
    given_up: bool = False


class SpoolBook(Protocol):
    """Notes of results that wait, in the shared state. A note outlives its process: only that who stored the results,
    or a person who gives them up, takes it away."""

    async def note(self, note: SpoolNote) -> None:
        """Enter a note, or replace the one of that name."""
        ...

    async def give_up(self, name: str) -> SpoolNote | None:
        """Mark a note as given up; return it as it is now, or None when there is none of that name."""
        ...

    async def take_away(self, names: Sequence[str]) -> None:
        """Remove these notes. Names that are unknown are ignored."""
        ...

    async def notes(self) -> list[SpoolNote]:
        """Every note, by name."""
        ...
