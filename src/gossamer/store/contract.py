"""Contracts of storage: `Records` (records and their history, the log of pages, quality, notes of sent requests,
figures), `Archive` (raw pages) and `SpoolBook` (which results wait on the disks of workers).

A record store fulfils all of `Records`; its callers ask for the part they need.

How they fail: `BackendUnavailable`, and then nothing of the batch is stored. How they recover: every write is
idempotent, so the caller repeats it. The caller batches writes (store/sink.py).
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..errors import Permanent
from ..model.erasure import Holdings
from ..model.figures import Figures
from ..model.item_account import ItemCounts
from ..model.page import Snapshot
from ..model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity, StoredRecord, Tally
from ..model.run_records import DifferenceKind, RunRecords
from ..model.shelf import Shelf, ShelfKind
from .attempt_pages import AttemptPage as AttemptPage  # part of this contract
from .attempt_pages import AttemptQuery as AttemptQuery

if TYPE_CHECKING:
    from .item_views import ItemViews
    from .record_rows import RecordStream

LAST_NUMBER = 2**63 - 1  # of a record, at most


class Retirement(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are gone: those of `spider` that `job` looked for and did not see.

    It looked for a record if it visited the page that last gave it (done, unchanged or reparsed), or learned that this
    page does not exist (status 404, 410). With `of`, the job stands only for records that one of these jobs saw; None:
    for all of the spider. With `earlier`, the job looked everywhere: all records that one of these jobs saw count as
    well, also those of a page that now leads elsewhere, unless their page was tried and not parsed, or they were
    checked after the job `began` (None: after `at`). Records that were seen since are left alone. With `records`,
    exactly these are gone, whatever was seen: what was stored of them is taken back.
    """

    job: str
    spider: str
    at: float
    of: Sequence[str] | None = None
    earlier: Sequence[str] = ()
    began: float | None = None
    records: Sequence[RecordIdentity] | None = None

    @property
    def checked_by(self) -> float:
        return self.at if self.began is None else self.began


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects records. None does not restrict. `since` is compared with last_changed. `job` and `spider` select what
    they saw, whoever wrote it.

    `gone` True means only records that are gone, False only those that are still there. `after` and `upto` are cursors:
    they select what was stored between the two, whatever its times say. `newest` reverses the order; `beyond` is the
    number of a record, and only those that follow it in that order are returned. `count` ignores both.
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
    gone_by: str | None = None  # the job that marked it as gone; it is gone since
    newest: bool = False
    beyond: int | None = None

    def first(self) -> int:
        """The number after which reading begins."""
        return self.beyond if self.beyond is not None else LAST_NUMBER if self.newest else 0

    def in_order(self, numbers: Sequence[int]) -> list[int]:
        """Those of these numbers that are wanted, in order."""
        first = self.first()
        return sorted((n for n in numbers if (n < first if self.newest else n > first)), reverse=self.newest)


class VisitQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects archived visits: of each page the newest one per spider that matches. None does not restrict."""

    spider: str | None = None
    job: str | None = None
    since: float | None = None
    failures: tuple[str, ...] | None = ("", "parse", "quality")  # of PageFacts.failure


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One step in a record's history: its data from `at` on, or that it was `gone` from then on."""

    at: float
    job: str
    version: int
    data: str
    gone: bool = False
    schema: str = ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a record between two jobs; `before` and `after` are its data, as JSON.

    added: it was not known when the first job ended. changed: other content. back: it was gone when the first job
    ended, and the second one found it. again: the first job did not see it, though it was there, and the second one
    found it as it was. gone: it was marked as gone by when the second job ended. unseen: the second job did not see it,
    and it is not gone; `reason` says why its page failed, if that is known.
    """

    kind: DifferenceKind
    type: str
    site: str
    key: str
    url: str
    before: str | None = None
    after: str | None = None
    reason: str = ""


class RecordStore(Protocol):
    """Records as they are now, and the facts of pages for their next visit."""

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        """Store all of it in one commit; return, for each result, how many of its records are new or changed.

        A record is identified by (type, site, key). Same content hash: only `last_checked` moves. An older `scraped_at`
        never replaces a newer one; store/record_rules.py decides. A result whose outcome is "unchanged" confirms the
        records that its page gave before: they were checked, and this job saw them. A record that was gone and is seen
        again gets a new version. Quality tallies are added up. Saving the same result (identified by its attempt) twice
        has the effect of saving it once.
        """

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        """The current data of each known record, as JSON."""

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        """The newest facts of each known page."""

    async def count(self, query: RecordQuery) -> int: ...

    def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        """Stream records in order of first storage, or its reverse, in flat memory. Raises Misconfigured for a cursor
        of another store."""

    async def cursor(self) -> str:
        """A position in the stream of changes, before which nothing more is stored. Read records `upto` it, keep it,
        and read `after` it the next time: no change is missed or returned twice."""

    async def prune(self, older_than: timedelta) -> int:
        """Delete attempts, and visits that a newer one has replaced, older than that; return how many were deleted.
        Notes of sent requests of that age are deleted too, and not counted.

        Records, their history and the newest facts of a page are never pruned.
        """

    def spare_copies(self, keep: int, before: float) -> AsyncIterator[list[SpareCopy]]:
        """Visits from before that time whose raw copies are beyond the newest `keep` of their page. Never that of the
        newest facts, and for each spider neither the newest nor the newest that it parsed well."""
        ...

    async def forget_copies(self, copies: Sequence[SpareCopy]) -> None:
        """Delete these visits."""
        ...


class SpareCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A visit whose raw copy may be deleted, unless somebody needs it that records do not know. `is_last_of_job`: it is
    the newest visit of its page in that job."""

    page: int  # its number in the record store
    fetched_at: float
    fingerprint: bytes
    job: str
    ref: str
    is_last_of_job: bool


class SiteCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a job did at one site. `pages` came, `dead` were given up, `missing` of them because they do not exist, and
    `mended` were parsed later after all; `good` and `bad` count requests."""

    site: str
    pages: int = 0
    dead: int = 0
    missing: int = 0
    mended: int = 0
    good: int = 0
    bad: int = 0
    records: int = 0  # that it saw
    bytes: int = 0
    credits: float = 0.0


class PageLog(Protocol):
    """The attempts at each page, and its raw copies."""

    async def attempts(self, fingerprint: bytes, job: str | None = None) -> list[Attempt]:
        """The audit log of a URL, oldest first; with a `job`, the attempts of that job."""

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        """The attempts at all URLs, newest first. `before` is `next` of the previous page. Raises Misconfigured for an
        invalid cursor."""

    async def site_counts(self, job: str, since: float, until: float, limit: int) -> list[SiteCounts]:
        """What a job that worked from `since` to `until` did at each site, those with the most requests first. Counts
        the newest attempts and records up to a fixed number: one job must not read the whole log."""

    async def visits(self, fingerprint: bytes, job: str | None = None) -> list[PageFacts]:
        """Every archived visit of a URL, oldest first; with a `job`, the visits of that job."""

    def archived(self, query: VisitQuery) -> AsyncIterator[PageFacts]:
        """Stream archived visits, of each page the newest per spider that matches, in flat memory."""


class RecordHistory(Protocol):
    """How records changed over time."""

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        """Every version of a record, oldest first; a time in which it was gone is a version too."""

    async def seen_version(self, job: str, type: str, site: str, key: str) -> int:
        """The version of a record that the job last saw; 0: it saw none, or that is unknown."""

    def differences(
        self, before: str, after: str, ends: tuple[float, float] = (math.inf, math.inf)
    ) -> AsyncIterator[Difference]:
        """Stream what the job `after` saw differently from the job `before`, each record in the version that the job
        last saw, and what it marked as gone. `ends` are the times at which the two ended. In flat memory."""

    async def run_records(self, job: str) -> RunRecords:
        """What a job did to records, by their history; without `unseen`."""

    async def unseen(self, wanted: Retirement) -> int:
        """How many records that one of the jobs `of` saw were not seen by the job, and are not gone."""

    async def retire(self, wanted: Retirement) -> int:
        """Mark records as gone; return how many. Being gone is a new version of the record; repeating the call changes
        nothing more."""

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        """Every known schema of items, with the time it was first stored, oldest first."""


class QualityBook(Protocol):
    async def scores(self, *, spider: str | None = None, since: str = "") -> list[Tally]:
        """The tallies, by day, spider, type, field and rule; `since` is a day."""


class ItemBook(Protocol):
    """The account of items (model/item_account.py). `save` writes that of a page, in the commit that stores its
    records: the account of the page's last settlement in this job replaces an earlier one."""

    async def items(self, job: str) -> ItemCounts:
        """What became of the items of a job. Items of spooled results are not in it yet."""

    async def recent_items(self, job: str, parser: str, limit: int) -> list[tuple[int, int]]:
        """What the quality checks found on the last pages of a job that this version of its spider parsed, oldest
        first: the number of faultless and of faulty items of each page that has any."""


class SentNote(msgspec.Struct, frozen=True, kw_only=True):
    """A request that must not be sent twice may be out. `owner` is a random name of the lease that sends it."""

    job: str
    fingerprint: bytes
    owner: str
    at: float


class SentNotes(Protocol):
    """Notes of requests that must not be sent twice, one per job and URL. They are here because the state may lose its
    last writes in a power cut or a failover, and a commit of the record store is not lost."""

    async def note_sent(self, note: SentNote, *, replaces_before: float = -math.inf) -> bool:
        """Keep the note; it is on disk when this returns. False, and nothing is changed, if there is a note of another
        owner that was made at `replaces_before` or later."""

    async def forget_sent(self, job: str, fingerprints: Sequence[bytes]) -> None:
        """Remove the notes of these URLs: their requests may be sent again."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of `span` seconds from `start` on."""

    start: int
    span: int
    figures: Figures


class FigurePart(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the figures a reader needs; the rest is left out, and need not be decoded.

    With `domain` or `job`, only the figures of that one are returned. Without `domains`, none by domain.
    """

    domain: str | None = None
    job: str | None = None
    domains: bool = True


class FigureBook(Protocol):
    """Figures over time, and their total. `save` counts every attempt once, in the same commit, in its own minute."""

    async def figures(self, since: float, until: float, part: FigurePart | None = None) -> list[Measured]:
        """The figures of the minutes and ten minutes that begin from `since` on and before `until`, oldest first.
        Minutes are kept for a day, ten minutes for 30 days; no time is in both. Reading only a `part` costs less."""

    async def total_figures(self) -> Figures:
        """The totals of all time. None of the numbers ever decreases."""


class RecordErasure(Protocol):
    """Erases records and pages, in three steps that may each be repeated: mark them, see what there is, erase it.

    What was marked as erased until a time is not stored when a result that was fetched before arrives late: `save`
    leaves these records and raw copies out, and returns `ERASED` (store/erasure.py) in place of a count.
    """

    async def mark_erased(self, marks: Sequence[bytes], until: float) -> None:
        """When this returns, no save in progress stores them any more."""

    async def holdings(
        self, records: Sequence[RecordIdentity], pages: Sequence[bytes], linking: Sequence[bytes] = ()
    ) -> Holdings:
        """All versions of these records, and the pages that gave them; and these pages. Pages that are only
        `linking` to them count as shared."""

    async def erase(self, records: Sequence[RecordIdentity], found: Holdings, until: float) -> int:
        """Erase what was stored until then: the records with their history, the raw copies' references, and of own
        pages everything but a hash; in one commit. Return how many records there were."""

    async def compact(self, *, rewrite: bool = False) -> str:
        """Remove what is left of deleted rows from the files of the store; return what could not be removed, in words.
        With `rewrite`, at the cost of keeping others waiting."""


class Records(
    RecordStore, PageLog, RecordHistory, QualityBook, ItemBook, SentNotes, FigureBook, RecordErasure, Protocol
):
    """Everything a record store does. `stream` is its whole content, row by row, for a move or a backup; `views` are
    the typed views of items."""

    @property
    def stream(self) -> RecordStream: ...

    @property
    def views(self) -> ItemViews: ...


class Archive(Protocol):
    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Write pages durably; return a reference for each, which never changes."""

    async def get(self, ref: str) -> Snapshot:
        """Read a page back. Raises Permanent if there is no page with this reference."""

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        """Read many pages at once, in the order of their references; an error in place of each that cannot be read."""

    async def erase(self, refs: Sequence[str]) -> int:
        """Overwrite these pages durably, the only change to a stored page; return how many there were. Unknown
        references are ignored."""

    async def drop(self, refs: Sequence[str]) -> int:
        """Delete these pages to have their space; return the number of bytes freed. Other references stay valid.
        Unknown references are ignored; after a failure, call again."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Delete pages older than that, and files that were neither stored nor requested since; return the number of
        bytes freed."""

    async def size(self) -> int:
        """How many bytes it holds, pages and files. Lists every name."""

    async def put_file(self, path: Path, sha256: str) -> bool:
        """Store a file completely and durably, or not at all, in flat memory. The file at `path` may be moved away.
        False: a file with that content exists already, and stays."""

    async def erase_file(self, sha256: str) -> bool:
        """Delete a file; False if there is none."""

    async def has_file(self, sha256: str) -> bool:
        """Is there a file with that content? If so, it counts as used today."""

    def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        """The file in pieces. Raises Permanent if there is none."""


class Segment(msgspec.Struct, frozen=True, order=True):
    """A file or object of an archive, with many pages in it: `2027-01-31/host-1.zst`."""

    name: str
    size: int


class PageArchive(Archive, Protocol):
    """An archive of which every page can be read: as its files. They never change, so a file with the same name and
    size need not be copied again, and a copy under the same name keeps references valid, as well as the day by which
    pages are pruned."""

    def segments(self) -> AsyncIterator[Segment]:
        """Every file that holds pages."""

    async def read_segment(self, name: str) -> bytes:
        """A whole file. Raises Permanent if there is none of that name."""


class WholeArchive(PageArchive, Protocol):
    """Everything an archive does."""

    async def write_segment(self, name: str, content: bytes) -> None:
        """Write a file that holds pages, completely and durably, or not at all."""

    def files(self) -> AsyncIterator[Segment]:
        """Every stored file, its hash as its name."""


class SpoolNote(msgspec.Struct, frozen=True, kw_only=True):
    """Results that wait on one disk, for every machine to read: how many of which job, in which folder of which host.

    `name` is the file of one process in the spool, `disk` the random name of its folder, which no other machine has.
    `given_up`: an operator declared these results lost.
    """

    name: str
    host: str
    folder: str
    worker: str  # the process that keeps them
    results: dict[str, int]  # by job
    bytes: int
    noted_at: float
    given_up: bool = False
    disk: str = ""


class SpoolBook:
    """Notes of spooled results, in the shared state. A note outlives its process: only a process of that disk, when the
    results are stored, or a person who gives them up, removes it."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._notes = ShelfKind(shelf, "spool", SpoolNote)

    async def note(self, note: SpoolNote) -> None:
        """Add a note, or replace the one of that name."""
        await self._shelf.commit([self._notes.put(note.name, note)])

    async def give_up(self, name: str) -> SpoolNote | None:
        """Mark a note as given up; return it, or None if there is none of that name."""
        return await self._notes.change(name, lambda note: note and msgspec.structs.replace(note, given_up=True))

    async def take_away(self, names: Sequence[str]) -> None:
        """Remove these notes. Unknown names are ignored."""
        if names:
            await self._shelf.commit([self._notes.drop(name) for name in names])

    async def notes(self) -> list[SpoolNote]:
        """Every note, by name."""
        return await self._notes.all()
