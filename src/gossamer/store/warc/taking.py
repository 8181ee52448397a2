"""Pages of a WARC file into the archive and the log of pages, so that a spider can parse a crawl of somebody else's.

What comes in: `response` and `resource` records of http(s) addresses, and `revisit` records, which refer to an earlier
body, where that one was in the same files. Chunked and compressed bodies are decoded, none is longer than the limit. Of
a file that Gossamer has written every page is exactly what it was. Everything else is counted and passed over.

A page is logged with the outcome "imported" by the route "warc", with no parser: nothing has been made of it yet, and
`gossamer reparse` finds it. Redirects and errors are no pages: they are kept, and logged as failures.

How it fails: `Misconfigured` for what is no WARC file, `BackendUnavailable`; what was read before is kept. How it
recovers: the same file can be imported again; pages that are there already are passed over.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ...clock import Clock
from ...errors import Misconfigured, Permanent
from ...model.page import Snapshot
from ...model.record import Attempt, PageFacts, PageResult
from ...model.url import UrlRules, site_of
from ..contract import Archive, Records
from .pages import Bounds, Decode, Passed, Revisit, WarcPage, pages_of
from .reading import Damage

BATCH_PAGES = 64
BATCH_BYTES = 16 * 1024 * 1024
MOST_DAMAGES = 100  # that are told; all are counted
FUTURE = 86_400.0  # seconds by which the clock of another machine may be ahead of ours
ROUTE, OUTCOME = "warc", "imported"
HTTP = "http-"  # so begin the failures of answers that are no page


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the records of some files."""

    pages: int = 0
    known: int = 0  # pages that were there already
    cut: int = 0  # of the pages, those whose end is missing: longer than the limit, or the file is damaged there
    barren: int = 0  # of the pages, those that are none: redirects and errors
    stripped: int = 0  # of the pages, those whose address held a user name or a password, which were left out
    foreign: int = 0  # records of other addresses than http(s)
    unresolved: int = 0  # revisits whose body is in none of the files, and answers 304
    undated: int = 0  # pages whose date is none, or cannot be
    unreadable: int = 0  # responses that are no HTTP, or do not decode
    other: int = 0  # requests, metadata of others, and so on
    damaged: int = 0  # places where a file is damaged
    damages: tuple[str, ...] = ()  # the first of them
    read: int = 0  # bytes of the file that is being read


class WarcImport:
    """Takes files into one project. `spider` is whose pages they are, `job` what they are filed under; `kind` is the
    callback for pages that do not say it themselves. Without it, it is decided when they are parsed."""

    def __init__(
        self,
        records: Records,
        archive: Archive,
        rules: UrlRules,
        *,
        decode: Decode,
        max_body: int,
        worker: str,
        clock: Clock,
        spider: str | None = None,
        kind: str | None = None,
        job: str | None = None,
        tell: Callable[[Imported], None] = lambda state: None,
    ) -> None:
        self._records = records
        self._archive = archive
        self._rules = rules
        self._decode = decode
        self._max_body = max_body
        self._worker = worker
        self._clock = clock
        self._spider = spider
        self._kind = kind
        self._job = job
        self._tell = tell
        self._bodies = _Bodies()
        self._state = Imported()
        self._batch: list[WarcPage] = []
        self._waiting: dict[str, Snapshot] = {}  # the pages of the batch, by the names under which they are referred to
        self._size = 0

    async def take(self, path: Path) -> Imported:
        """Read a file; return what became of all files so far. Raises Misconfigured, BackendUnavailable."""
        try:
            with path.open("rb") as file:
                await self._take(file, str(path))
        except (OSError, ValueError) as error:
            raise Misconfigured(f"{str(path)!a} cannot be read ({error}). Name a .warc or .warc.gz file.") from error
        return self._state

    def close(self) -> None:
        self._bodies.close()

    async def _take(self, file: BinaryIO, name: str) -> None:
        found = pages_of(file, name, self._decode, Bounds(self._max_body, self._clock.now() + FUTURE))
        try:
            while (one := await asyncio.to_thread(next, found, None)) is not None:
                if isinstance(one, WarcPage):
                    await self._add(one, name)
                elif isinstance(one, Revisit):
                    await self._resolve(one, name)
                else:
                    self._count(one, name)
        finally:
            await self._store()
            self._note(read=file.tell())

    async def _add(self, page: WarcPage, name: str) -> None:
        if not page.spider and self._spider is None:
            raise Misconfigured(
                f"{name} was not written by Gossamer. Say which spider its pages are for: --spider NAME."
            )
        if not page.snapshot.kind and self._kind:
            page.snapshot = msgspec.structs.replace(page.snapshot, kind=self._kind)
        self._batch.append(page)
        for key in page.keys:
            self._waiting.setdefault(key, page.snapshot)
        self._size += len(page.snapshot.body) + len(page.snapshot.screenshot)
        if len(self._batch) >= BATCH_PAGES or self._size >= BATCH_BYTES:
            await self._store()

    async def _resolve(self, revisit: Revisit, name: str) -> None:
        earlier = await self._earlier(revisit.keys)
        if earlier is None:
            self._note(unresolved=self._state.unresolved + 1)
            return
        own = revisit.status not in (None, 304)
        snapshot = msgspec.structs.replace(
            earlier,
            url=revisit.url,
            requested_url=revisit.url,
            fetched_at=revisit.fetched_at,
            status=revisit.status if own and revisit.status is not None else earlier.status,
            headers=revisit.headers if own and revisit.headers.pairs else earlier.headers,
            screenshot=b"",
        )
        await self._add(WarcPage("", snapshot, (), stripped=revisit.stripped), name)

    async def _earlier(self, keys: Sequence[str]) -> Snapshot | None:
        """The page that one of these names: it waits to be stored, or is in the archive."""
        for key in keys:
            if key in self._waiting:
                return self._waiting[key]
        ref = await asyncio.to_thread(self._bodies.find, keys)
        try:
            return await self._archive.get(ref) if ref is not None else None
        except Permanent:  # pruned since it was imported
            return None

    async def _store(self) -> None:
        batch, self._batch, self._size = self._batch, [], 0
        self._waiting = {}
        fresh = await self._without_known(batch)
        results: list[PageResult] = []
        if fresh:
            refs = await self._archive.put([page.snapshot for page, _, _ in fresh])
            results = [self._result(page, url, job, ref) for (page, url, job), ref in zip(fresh, refs, strict=True)]
            await self._records.save(results)
            await asyncio.to_thread(
                self._bodies.keep,
                [(key, ref) for (page, _, _), ref in zip(fresh, refs, strict=True) for key in page.keys],
            )
        self._note(
            pages=self._state.pages + len(fresh),
            known=self._state.known + len(batch) - len(fresh),
            cut=self._state.cut + sum(page.snapshot.cut for page, _, _ in fresh),
            barren=self._state.barren + sum(result.attempt.reason.startswith(HTTP) for result in results),
            stripped=self._state.stripped + sum(page.stripped for page, _, _ in fresh),
        )

    async def _without_known(self, batch: Sequence[WarcPage]) -> list[tuple[WarcPage, str, str]]:
        """The pages that are not in the log yet, with their address and job."""
        asked = [page.snapshot.requested_url for page in batch]
        prints = [self._rules.fingerprint(url) for url in asked]
        met = await self._records.facts(prints)
        fresh: list[tuple[WarcPage, str, str]] = []
        taken: set[tuple[bytes, float]] = set()
        for page, url, fingerprint in zip(batch, asked, prints, strict=True):
            at = page.snapshot.fetched_at
            if fingerprint in met:
                visits = await self._records.visits(fingerprint)
                ref = next((visit.archive_ref for visit in visits if visit.fetched_at == at), None)
                if ref is not None:
                    await asyncio.to_thread(self._bodies.keep, [(key, ref) for key in page.keys])
                    continue
            if (fingerprint, at) in taken:
                continue
            taken.add((fingerprint, at))
            fresh.append((page, url, self._job or page.snapshot.job or f"{self._spider}-{ROUTE}"))
        return fresh

    def _result(self, page: WarcPage, url: str, job: str, ref: str) -> PageResult:
        snapshot, fingerprint = page.snapshot, self._rules.fingerprint(url)
        failure = page.failure
        if failure is None:
            failure = "" if 200 <= snapshot.status < 300 else f"{HTTP}{snapshot.status}"
        facts = PageFacts(
            fingerprint=fingerprint,
            url=url,
            job=job,
            fetched_at=snapshot.fetched_at,
            status=snapshot.status,
            etag=snapshot.headers.get("etag"),
            last_modified=snapshot.headers.get("last-modified"),
            archive_ref=ref,
            body_hash=sha256(snapshot.body).digest()[:16],
            spider=self._spider or page.spider,
            failure=failure,
        )
        attempt = Attempt(
            at=snapshot.fetched_at,
            job=job,
            url=url,
            fingerprint=fingerprint,
            site=site_of(url),
            worker=self._worker,
            attempt=1,
            outcome=OUTCOME,
            route=ROUTE,
            status=snapshot.status,
            bytes=len(snapshot.body),
            reason=failure,
        )
        return PageResult(attempt=attempt, page=facts)

    def _count(self, one: Passed | Damage, name: str) -> None:
        if isinstance(one, Damage):
            told = (*self._state.damages, f"{name} at byte {one.at:,}: {one.what}")[:MOST_DAMAGES]
            self._note(damaged=self._state.damaged + 1, damages=told)
        else:
            self._note(**{one.why: getattr(self._state, one.why) + 1})

    def _note(self, **counts: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **counts)
        self._tell(self._state)


class _Bodies:
    """Where the bodies are that a revisit may refer to. On disk: a crawl may have millions."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)  # a file without a name
        self._database.execute("CREATE TABLE bodies (key BLOB PRIMARY KEY, ref TEXT NOT NULL) WITHOUT ROWID")

    def keep(self, refs: Sequence[tuple[str, str]]) -> None:
        self._database.executemany(
            "INSERT OR IGNORE INTO bodies VALUES (?, ?)", [(_short(key), ref) for key, ref in refs]
        )

    def find(self, keys: Sequence[str]) -> str | None:
        for key in keys:
            row = self._database.execute("SELECT ref FROM bodies WHERE key = ?", (_short(key),)).fetchone()
            if row is not None:
                return str(row[0])
        return None

    def close(self) -> None:
        self._database.close()


def _short(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).digest()
