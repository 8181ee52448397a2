"""A crawl from the archive: every page is answered with its newest raw copy, and no request is sent.

State and records of the replay are in a temporary folder, deleted with it: the project stays unchanged. So a spider can
be tried repeatedly on yesterday's pages, and its records written to a file.

How it fails: a page without a raw copy is refused with the reason `not-archived`; the crawl continues.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from ...errors import NotArchived, Permanent
from ...fetch.contract import Response, TransportRequest
from ...fetch.open_route import Transports
from ...frontier.contract import redirect_reason
from ...model.download import Download
from ...model.events import Buried, Event, EventHub, EventSink
from ...model.job import Job
from ...model.page import Headers
from ...model.payload import Body
from ...model.route import TRANSPORTS, FetchOptions
from ...parse.spider import Spider
from ...settings import COMMAND_LINE, Settings
from ...settings.tables import RouterTable
from ...store.page_format import read_visit
from ...units import Rate
from ..open import Project, open_crawled
from ..records.export import outputs_of, write_outputs
from ..spiders.rules import in_use
from .crawl import CrawlReport, crawl

FAILURES_TOLD = 10


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay. `failures` are the first pages that failed, each with its reason and message; `missing`
    counts the pages without a raw copy."""

    crawl: CrawlReport
    failures: list[Buried]
    missing: int


class _Failures:
    """Fulfils EventSink: keeps the first failures of pages, and counts those that are not in the archive."""

    def __init__(self) -> None:
        self.first: list[Buried] = []
        self.missing = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, Buried):
            self.missing += event.reason == NotArchived.reason
            if len(self.first) < FAILURES_TOLD:
                self.first.append(event)


class ArchiveTransport:
    """Answers from the archive of a project; fulfils `Transport`."""

    def __init__(self, project: Project) -> None:
        self._project = project

    async def fetch(self, request: TransportRequest) -> Response:
        if request.gate is not None:
            await request.gate.enter()
            request.gate.left()
        records, fingerprint = self._project.records, self._fingerprint(request)
        if request.into is not None:
            return await self._file(request, fingerprint)
        for visit in reversed(await records.visits(fingerprint)):
            if visit.archive_ref:
                try:
                    copy = await read_visit(self._project.archive, visit)
                except Permanent as error:
                    raise NotArchived(f"{request.url} no longer has a raw copy: {error}") from error
                return Response(url=copy.url, status=copy.status, headers=copy.headers, body=copy.body, cut=copy.cut)
        for attempt in reversed(await records.attempts(fingerprint)):
            if attempt.outcome == "redirected":
                to = Headers([("Location", attempt.reason.removeprefix(redirect_reason("")))])
                return Response(url=request.url, status=attempt.status or 302, headers=to, body=b"")
        raise NotArchived(f"{request.url} is not in the archive: no crawl has fetched it, or its copy was pruned.")

    async def _file(self, request: TransportRequest, fingerprint: bytes) -> Response:
        facts = (await self._project.records.facts([fingerprint])).get(fingerprint)
        sha256 = facts.body_hash.hex() if facts is not None and len(facts.body_hash) == 32 else ""
        if not sha256 or not await self._project.archive.has_file(sha256):
            raise NotArchived(f"The file {request.url} is not in the archive.")
        headers = Headers()
        assert request.into is not None
        if not request.into.takes(200, headers):
            raise NotArchived(f"The file {request.url} cannot be replayed.")
        async for piece in self._project.archive.read_file(sha256):
            await request.into.write(piece)
        return Response(url=request.url, status=200, headers=headers, body=b"", taken=True)

    def _fingerprint(self, request: TransportRequest) -> bytes:
        how = FetchOptions(
            method=request.method,
            headers=request.headers,
            body=Body(parts=(request.body,), size=len(request.body)) if request.body is not None else None,
            file=Download() if request.into is not None else None,
        )
        return self._project.rules.fingerprint(request.url, how)


async def replay(
    spider: Spider,
    settings: Settings,
    *,
    name: str | None = None,
    events: EventSink,
    output: Sequence[str] | None = None,
) -> ReplayReport:
    """Crawl from the archive of the project, and write the records to `output`. Raises Misconfigured if nothing has
    been crawled yet."""
    failures = _Failures()

    async def write(apart: Project, job: Job) -> None:
        await write_outputs(apart, job.id, spider, outputs_of(output, spider), gone=None)

    async with open_crawled(settings) as project:
        spider = await in_use(project, spider)
        transport = ArchiveTransport(project)
        kinds = (*TRANSPORTS, *(f"managed/{vendor}" for vendor in settings.managed), *settings.transports)
        with tempfile.TemporaryDirectory(prefix="gossamer-replay-") as folder:
            report = await crawl(
                spider,
                _apart(settings, Path(folder)),
                name=name,
                events=EventHub(events, failures),
                after=write,
                transports=Transports({kind: lambda: nullcontext(transport) for kind in kinds}),
            )
    return ReplayReport(crawl=report, failures=failures.first, missing=failures.missing)


def _apart(settings: Settings, folder: Path) -> Settings:
    """The settings of a replay: separate stores, no pauses and no prices, since no server is asked."""
    replace = msgspec.structs.replace
    return replace(
        settings,
        project="",
        state=f"sqlite:///{folder / 'state.db'}",
        records=f"sqlite:///{folder / 'records.db'}",
        archive=f"folder:///{folder / 'archive'}",
        crawl=replace(settings.crawl, dedup="exact", rate=Rate(None)),
        politeness=replace(settings.politeness, rate=Rate(None), concurrency=None),
        fetch=replace(settings.fetch, conditional=False),
        retry=replace(settings.retry, max_attempts=1),
        store=replace(settings.store, keep_pages=False, spool=str(folder / "spool")),
        files=replace(settings.files, parts=str(folder / "parts")),
        router=RouterTable(ladder=settings.router.ladder, learn=False),
        domains={
            site: replace(domain, rate=None, concurrency=None, budget=None, windows=None)
            for site, domain in settings.domains.items()
        },
        origins={**settings.origins, "crawl.rate": COMMAND_LINE},
    )
