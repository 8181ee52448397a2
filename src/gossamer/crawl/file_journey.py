"""The path of one file, from its lease to the archive. Like that of a page (journey.py), except that a file is not
parsed and may be too large for memory.

    1. fetch    streamed to a part file on this machine's disk (store/part_files.py); if part of it is there already,
                the rest is requested by Range, provided the server identified the version
    2. check    type by header and first bytes, size, completeness
    3. store    into the archive under the hash of its content; then its record; then the task is settled

How it fails: FileRefused (wrong type, too large), DiskFull, and like any page. How it recovers: a connection that broke
after good progress is made again at once, when the site's pace allows, and uses up no attempt. Otherwise the part waits
for the next attempt on this machine. A server that does not support ranges, or has a new version, sends the whole file.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from ..errors import ClientError, ConnectionDropped, FetchFailed, FetchRefused, FileRefused
from ..fetch.contract import Limits
from ..fetch.fetcher import FetchedPage, NotModified, PageRequest
from ..fetch.open_route import Pairs
from ..fetch.retry_after import parse_retry_after
from ..frontier.retry import failure_of
from ..model import events
from ..model.download import Download
from ..model.file import (
    HEAD_BYTES,
    File,
    declared_type,
    file_name,
    file_type,
    is_welcome,
    sniffed_type,
)
from ..model.item import content_hash, item_data, schema_of, type_name
from ..model.item_account import ItemCounts
from ..model.page import Headers
from ..model.record import PageFacts, Record
from ..model.task import UrlState
from ..model.url import UrlRules, site_of
from ..store.contract import Archive
from ..store.part_files import FinishedFile, Part, PartFolder, PartHead
from ..units import Size
from .fetch_page import FetchResult
from .journey import Journey

PROGRESS = 1024 * 1024  # bytes after which a broken connection is made again at once
CUT = "cut"  # the reason of such an attempt in the log
_HTML = ("text/html", "application/xhtml+xml")
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


class FileTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of a job share."""

    archive: Archive
    parts: PartFolder
    limits: Limits
    max_size: int
    rules: UrlRules


class Receiver:
    """Writes the body of one file into its part file: fulfils `fetch.fetcher.FileReceiver`."""

    def __init__(self, part: Part, download: Download, url: str, max_size: int) -> None:
        self._part = part
        self._download = download
        self._url = url
        self._max_size = max_size
        self._judged = False
        self.received = 0

    def begin(self) -> Pairs:
        part, asking = self._part, [("Accept", "*/*"), ("Accept-Encoding", "identity")]
        part.flush()
        self.received = 0
        version = _strong(part.head)
        if part.complete:
            pass  # a conditional request asks whether it is still current
        elif part.size and version:
            asking += [("Range", f"bytes={part.size}-"), ("If-Range", version)]
        elif part.size:
            part.restart()
        return tuple(asking)

    def takes(self, status: int, headers: Headers) -> bool:
        if status == 206:
            return self._takes_rest(headers)
        if status != 200:
            return False
        self._part.restart()
        declared = declared_type(headers.get("content-type"))
        if declared in _HTML:
            return False  # it may be a block in front of the file, and is judged like a page
        self._demand_type(declared, by="its label")
        head = head_of(headers)
        self._demand_size(head.total)
        self._part.begin(head)
        self._judged = False
        return True

    def _takes_rest(self, headers: Headers) -> bool:
        part, found = self._part, _RANGE.fullmatch(headers.get("content-range").strip())
        begins = int(found[1]) if found else -1
        total = int(found[3]) if found and found[3] != "*" else None
        known = part.head.total if part.head is not None else None
        before, now = part.head.etag if part.head is not None else "", head_of(headers).etag
        another = bool(before and now and before != now)  # from a server that ignores If-Range
        if begins != part.size or another or (known is not None and total not in (None, known)):
            part.restart()
            raise FetchFailed(f"{self._url} answered with a different range of the file than the one requested.")
        self._demand_size(total)
        part.begin(msgspec.structs.replace(head_of(headers), total=total if total is not None else known))
        return True

    async def write(self, data: bytes) -> None:
        await self._part.write(data)
        self.received += len(data)
        self._demand_size(self._part.size)
        if not self._judged and self._part.size >= HEAD_BYTES:
            self._judged = True
            proven = sniffed_type(self._part.first_bytes)
            if proven:
                label = self._part.head.type if self._part.head is not None else ""
                self._demand_type(file_type(label, self._part.first_bytes), by="its first bytes")

    def _demand_type(self, name: str, *, by: str) -> None:
        if name and not is_welcome(name, self._download.types):
            wanted = ", ".join(self._download.types)
            raise FileRefused(f"{self._url} is {name} by {by}; the request asked for {wanted}.", reason="file-type")

    def _demand_size(self, size: int | None) -> None:
        if size is not None and size > self._max_size:
            raise FileRefused(
                f"{self._url} is larger than {Size(self._max_size)}. Ask for it with max_size=..., or raise "
                f"files.max_size.",
                reason="file-size",
            )


class FileJourney(Journey):
    """One lease on a file."""

    _part: Part
    _receiver: Receiver
    _copy: PageFacts | None = None  # the facts of the copy in the archive, if it is still there

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            if hasattr(self, "_part"):
                await asyncio.shield(asyncio.to_thread(self._part.close))

    # -- 1. fetch ------------------------------------------------------------------------------------------

    async def _fetch(self) -> FetchResult:
        terms, task = self._terms, self._task
        self._part = part = await asyncio.to_thread(terms.parts.open, task.job, task.fingerprint)
        self._receiver = Receiver(part, self._download, task.url, self._download.max_size or terms.max_size)
        known = self._known
        if self._context.conditional and known is not None and known.status == 200 and len(known.body_hash) == 32:
            self._copy = known if await terms.archive.has_file(known.body_hash.hex()) else None
        while True:
            before = part.size
            try:
                return await self._page_fetch().run(await self._request())
            except FileRefused:
                part.restart()
                raise
            except FetchFailed as failure:
                if part.size - before < PROGRESS or not _strong(part.head):
                    raise
                words = f"{failure} {Size(part.size)} are here; requesting the rest."
                await self._log.keep(outcome="released", reason=CUT, error=words)
                self._log.begin_attempt()

    async def _request(self) -> PageRequest:
        part, copy = self._part, self._copy
        etag = last_modified = ""
        if part.complete and part.head is not None:
            etag, last_modified = part.head.etag, part.head.last_modified
            if not (etag or last_modified):
                part.restart()
        elif copy is not None and not part.size:
            etag, last_modified = copy.etag, copy.last_modified
        request = await self._context.requests.made_for(self._task, self._how, None)
        return msgspec.structs.replace(
            request, etag=etag, last_modified=last_modified, into=self._receiver, limits=self._terms.limits
        )

    # -- 2. check ------------------------------------------------------------------------------------------

    async def _settle(self, result: FetchResult) -> None:
        outcome = result.outcome
        came = isinstance(outcome, NotModified) and self._part.complete  # all of it, before the archive failed
        if not isinstance(outcome, FetchedPage) and not came:
            await super()._settle(result)
            return
        assert isinstance(outcome, FetchedPage | NotModified)
        try:
            if isinstance(outcome, FetchedPage):
                await self._demand_whole(outcome, result)
            finished = await asyncio.to_thread(self._part.finish)
            kind = self._type_of(finished)
        except (FetchFailed, FetchRefused) as failure:
            if isinstance(failure, FileRefused):
                self._part.restart()
            await self._fail(failure)
            return
        await self._keep_file(outcome, finished, kind)

    async def _demand_whole(self, outcome: FetchedPage, result: FetchResult) -> None:
        """Raise an error if the response is not the whole file."""
        response, part, url = outcome.response, self._part, self._task.url
        if response.status == 416:
            part.restart()
            raise FetchFailed(f"{url} no longer has the requested range; it is requested from the start.", status=416)
        retry_after = parse_retry_after(response.headers.get("retry-after"), outcome.fetched_at)
        by_status = failure_of(response.status, self._context.retry_terms_for(self._task.site), retry_after, url)
        failure = result.failure(url, response.status, by_status)
        if failure is not None:
            raise failure
        if response.status not in (200, 203, 206):
            raise ClientError(f"{url} answered {response.status}, not with a file.", status=response.status)
        if not response.taken:
            if response.cut:
                raise FileRefused(
                    f"{url} is longer than fetch.max_body, and came by a route that holds files in memory: "
                    f"{self._log.route}, or a page of HTML. Ask for it by a route of transport http.",
                    reason="file-size",
                )
            part.restart()
            part.begin(msgspec.structs.replace(head_of(response.headers), total=len(response.body)))
            await self._receiver.write(response.body)
        elif response.cut:
            part.restart()
            raise ConnectionDropped(f"{url} ended before it was complete ({response.note}).")
        total = part.head.total if part.head is not None else None
        if total is not None and part.size != total:
            raise ConnectionDropped(f"{url} ended after {part.size} of {total} bytes.")

    def _type_of(self, finished: FinishedFile) -> str:
        label = self._part.head.type if self._part.head is not None else ""
        kind = file_type(label, finished.head)
        if not is_welcome(kind, self._download.types):
            wanted = ", ".join(self._download.types)
            raise FileRefused(f"{self._task.url} is {kind}; the request asked for {wanted}.", reason="file-type")
        return kind

    # -- 3. store ------------------------------------------------------------------------------------------

    async def _keep_file(self, outcome: FetchedPage | NotModified, finished: FinishedFile, kind: str) -> None:
        task, head, context = self._task, self._part.head or PartHead(), self._context
        began = context.clock.monotonic()
        # Before its record: a crash in between leaves a file without a record, never a record without its file.
        await self._terms.archive.put_file(finished.path, finished.sha256)
        file = File(
            url=task.url,
            sha256=finished.sha256,
            size=finished.size,
            type=kind,
            name=file_name(task.url, head.disposition),
            page=self._download.page,
        )
        digest = bytes.fromhex(finished.sha256)
        facts = PageFacts(
            fingerprint=task.fingerprint,
            url=task.url,
            job=task.job,
            fetched_at=outcome.fetched_at,
            status=200,
            etag=head.etag,
            last_modified=head.last_modified,
            body_hash=digest,
            spider=context.spider.name,
        )
        schema = schema_of(file)
        self._log.items = ItemCounts(yielded=1)
        changed = await self._log.keep(
            outcome="done",
            page=self._observed(facts, digest[:16]),
            records=(self._record(file, outcome.fetched_at),),
            schemas=(schema,) if schema is not None else (),
        )
        self._emit(events.Stored, items=1, changed=changed, seconds=context.clock.monotonic() - began)
        self._part.remove()
        self._ended("done", await self._complete(UrlState.DONE, ""))

    def _moved(self, to: str) -> tuple[Record, ...]:
        """A record with the new location, for readers that know the file by this URL."""
        file = File(url=self._task.url, location=to, page=self._download.page)
        self._log.items = ItemCounts(yielded=1)
        return (self._record(file, self._context.clock.now()),)

    def _record(self, file: File, at: float) -> Record:
        task, data = self._task, item_data(file)
        schema = schema_of(file)
        return Record(
            type=type_name(file),
            site=site_of(task.url),
            key=self._terms.rules.canonical(task.url),
            url=task.url,
            job=task.job,
            spider=self._context.spider.name,
            data=data,
            content_hash=content_hash(data),
            scraped_at=at,
            schema=schema.id if schema is not None else "",
        )

    @property
    def _download(self) -> Download:
        return self._task.options().file or Download()

    @property
    def _terms(self) -> FileTerms:
        terms = self._context.files
        assert isinstance(terms, FileTerms)
        return terms


def head_of(headers: Headers) -> PartHead:
    """The version of the file in a response. The validators and length of a compressed body are not those of the
    file."""
    packed = "content-encoding" in headers
    length = headers.get("content-length").strip()
    return PartHead(
        etag="" if packed else headers.get("etag")[:500],
        last_modified="" if packed else headers.get("last-modified")[:100],
        total=int(length) if not packed and length.isdecimal() and len(length) < 19 else None,
        type=headers.get("content-type")[:200],
        disposition=headers.get("content-disposition")[:1000],
    )


def _strong(head: PartHead | None) -> str:
    """The validator by which two parts are known to be of the same version; "" if there is none."""
    if head is None:
        return ""
    return head.last_modified if not head.etag or head.etag.startswith("W/") else head.etag
