"""The results of pages that were requested over HTTP: read from the queue, the audit log and the archive.

What it does: follows redirects inside the job to the page that answered, and converts it to the requested formats.
Pages are read in child processes, in turns per key (page_children.py): heavy pages of one key delay no other key.
How it fails: a page that could not be fetched is a result with `error`; BackendUnavailable, KeyBusy and ServerBusy are
raised.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Self

import msgspec

from ...clock import iso_time
from ...crawl.page_request import how_after
from ...errors import BackendUnavailable, GossamerError, Misconfigured, ParseFailed, Permanent
from ...fetch.fetcher import method_after
from ...frontier.contract import UrlFate, is_redirect
from ...model.job import Job, JobState
from ...model.page import Snapshot
from ...model.record import Attempt, PageFacts
from ...model.route import FetchOptions
from ...model.task import UrlState
from ...model.url import site_of
from ...schedule.sources import WantedPage
from ...store.contract import RecordQuery
from ...store.page_format import read_visit
from ..access.key_turns import KeyBusy, ServerBusy
from ..access.keys import Caller
from ..dead_letters.story_text import DROPPED
from ..jobs import api_views
from ..jobs.api_jobs import (
    NO_WORKER,
    Asked,
    begin_scrape,
    check_scrape,
    is_ended,
    is_served,
    job_for,
    public_url,
    wanted_pages,
)
from ..jobs.api_requests import NoWorker, RequestedPage, ScrapeRequest
from ..jobs.outcome_cache import OutcomeCache
from ..open import Project
from .changes import CHANGES, changes_of
from .external_services import LanguageModel
from .extraction import Extraction
from .formats import WantedFormats
from .links import PageLinks, WantedLinks
from .page_child import FormatPage, ListLinks, PageAnswer, Work
from .page_children import PageChild, PageChildren

PLAIN = FetchOptions()  # a plain GET
SOONEST, LOOK = timedelta(milliseconds=5), timedelta(milliseconds=100)  # between two checks which jobs still run
PATIENCE = 0.2  # of the time that the newest client has waited is the pause before the next check
EARLY, LATEST = 0.7, timedelta(milliseconds=20)  # of the time that pages usually take is the pause before the first one
AT_REST = 10  # times as long as a check took is the pause after it, at least
MOST_REDIRECTS = 50
MOST_RECORDS = 1000  # of one page
FIRST_RESULTS = 100  # shown with a batch's job: all of them, unless they are too big
MOST_OF_A_PAGE = 64 * 1024 * 1024  # bytes, over all requested formats
_NOT_READ = ("screenshot", "records", CHANGES)  # formats that are not made from the body of the page alone


class PageMeta(msgspec.Struct, frozen=True, kw_only=True):
    """How a page was fetched. `latency` is that of the last request, in seconds."""

    job_id: str | None
    route: str | None
    latency: float | None
    attempts: int
    from_cache: bool
    fetched_at: str | None
    content_type: str | None = None


class PageError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a page could not be fetched. `code` is the reason shown by `why` and in the dead letters."""

    code: str
    message: str


class PageOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A requested page. `url` is its final address; `data` has a field for each format."""

    success: bool
    id: str
    url: str
    status_code: int | None
    data: dict[str, Any] | None  # the content of the formats
    meta: PageMeta
    tokens_used: float
    error: PageError | None


class JobAnswer(api_views.JobReport, frozen=True, kw_only=True):
    """A job. `result` is the page of a scrape, `results` are the first pages of a batch, once they are fetched."""

    success: bool
    result: PageOutcome | None
    results: list[PageOutcome] | None
    next: int | None  # pass it as `after` to /results for more


async def answer_of(project: Project, pages: PageReader, job: Job) -> JobAnswer:
    """Where a job stands, and the results of its pages when it has ended."""
    report = await api_views.job_report(project, job)
    result, results, following = None, None, None
    wanted = await wanted_pages(project, job)
    if wanted and is_ended(job):
        results = await pages.outcomes(job, wanted[:FIRST_RESULTS])
        following = len(results) if len(wanted) > len(results) else None
        if job.name.startswith("scrape-"):
            result, results = results[0], None
    return JobAnswer(
        **msgspec.structs.asdict(report),
        success=report.status != "failed",
        result=result,
        results=results,
        next=following,
    )


async def scraped(
    asked: Asked, pages: PageReader, wanted: ScrapeRequest, begun: Callable[[Job], Awaitable[object]] | None = None
) -> PageOutcome | Job:
    """A page, from the archive if the client accepts a copy; or its job, if the page does not arrive in time. `begun`
    is called when a job was started. Raises BadRequest, TooMuchAtOnce, NoWorker."""
    project = asked.project
    href = public_url(project.settings, wanted.url)
    if wanted.max_age and wanted.spider is None and wanted.recipe is None:
        cached = await pages.cached(asked.caller, wanted, href, wanted.max_age)
        if cached is not None:
            return cached
    if not await is_served(project):
        await check_scrape(asked, wanted)  # report faults of the request first
        raise NoWorker(NO_WORKER)
    job = await begin_scrape(asked, wanted, waits=True)
    if begun is not None:
        await begun(job)
    if not await pages.wait(job.id, min(wanted.timeout, project.settings.server.max_wait.total_seconds())):
        return job
    job = await job_for(project, asked.caller, job.id) or job
    (outcome,) = await pages.outcomes(job, await wanted_pages(project, job))
    return outcome


class PageReader:
    """Waits for results and reads them. Open inside `async with`: it owns the child processes that read pages, and a
    task that polls for all waiting clients.

    However many clients wait, one query serves all of them: a little before most pages come, then ten times a second.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}  # by job
        self._wanted = asyncio.Event()
        self._newest_wait = 0.0  # when the newest client began to wait
        self._usual = 0.0  # seconds that pages have taken of late
        self._children = PageChildren()
        self.extraction = Extraction(project.clock, self._children)
        self.model = LanguageModel(project.settings)
        self._cache = OutcomeCache(project.clock)

    async def __aenter__(self) -> Self:
        self._looking = asyncio.create_task(self._look(), name="look for results")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        await self._children.__aexit__(*exc)

    async def wait(self, job: str, seconds: float) -> bool:
        """Wait until the job has ended; False if `seconds` passed first. Raises BackendUnavailable."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, []).append(ended)
        self._newest_wait = began = self._project.clock.monotonic()
        self._wanted.set()
        try:
            async with asyncio.timeout(seconds):
                await ended
            took = self._project.clock.monotonic() - began
            self._usual = min(took, self._usual + (took - self._usual) / 10)  # a slow page delays no quick one for long
        except TimeoutError:
            return False
        finally:
            left = self._waiting.get(job, [])
            if ended in left:
                left.remove(ended)
            if not left:
                self._waiting.pop(job, None)
        return True

    async def _look(self) -> None:
        clock = self._project.clock
        checked = 0.0  # how long the last check took
        while True:
            await self._wanted.wait()
            waited = clock.monotonic() - self._newest_wait
            first = min(EARLY * self._usual, LATEST.total_seconds()) - waited
            soon = max(SOONEST.total_seconds(), first, PATIENCE * waited)
            await clock.sleep(max(min(soon, LOOK.total_seconds()), AT_REST * checked))
            began = clock.monotonic()
            waiting = list(self._waiting)  # before the query: jobs added meanwhile are included in the next look
            try:
                running = {job.id for job in await self._project.state.jobs.running_jobs()}
            except GossamerError as error:
                self._tell(waiting, error)
            else:
                self._tell([job for job in waiting if job not in running], None)
            if not self._waiting:
                self._wanted.clear()
            checked = clock.monotonic() - began

    def _tell(self, jobs: list[str], error: GossamerError | None) -> None:
        for job in jobs:
            for ended in self._waiting.pop(job, []):
                if ended.done():
                    continue
                if error is None:
                    ended.set_result(None)
                else:
                    ended.set_exception(error)

    async def cached(self, caller: Caller, wanted: RequestedPage, href: str, max_age: float) -> PageOutcome | None:
        """The newest good copy in the archive that a job visible to the caller has fetched, if it is at most `max_age`
        seconds old and has what the client wants. None for a request with a payload or with options about how to fetch:
        a copy does not tell how it was fetched, and a payload may change the response."""
        if not {"records", CHANGES}.isdisjoint(wanted.formats) or not _is_plain(wanted):
            return None
        oldest = self._project.clock.now() - max_age
        copies = await self.copies(caller, href)
        good = [one for one in copies if not one.failure and one.fetched_at >= oldest]
        return await self.of_copy(caller, good[-1], wanted) if good else None

    async def copies(self, caller: Caller, href: str) -> list[PageFacts]:
        """The archived copies of a page that the caller may see, failed ones too, oldest first."""
        visits = await self._project.records.visits(self._project.rules.fingerprint(href))
        return [one for one in visits if one.archive_ref and await self._may_read(caller, one.job)]

    async def of_copy(self, caller: Caller, copy: PageFacts, wanted: RequestedPage) -> PageOutcome | None:
        """One archived copy; None if it was pruned, or lacks a screenshot that is wanted."""
        error = None
        async with self._children.turn(caller.id) as child:
            try:
                snapshot = await read_visit(self._project.archive, copy)
            except Permanent:
                return None  # pruned
            if "screenshot" in wanted.formats and not snapshot.screenshot:
                return None
            try:
                data = await self._data(child, snapshot, wanted, None)
            except _NotExtracted as failure:
                data, error = failure.data, PageError(code="extract", message=str(failure))
        return PageOutcome(
            success=error is None,
            id=wanted.id,
            url=snapshot.url,
            status_code=snapshot.status,
            data=data,
            meta=PageMeta(
                job_id=None,
                route=None,
                latency=None,
                attempts=0,
                from_cache=True,
                fetched_at=iso_time(snapshot.fetched_at),
                content_type=snapshot.headers.get("content-type") or None,
            ),
            tokens_used=0.0,
            error=error,
        )

    async def ask_of(self, caller: Caller, copy: PageFacts, work: Work, seconds: float) -> PageAnswer | None:
        """What a child makes of one archived copy; None if that took too long, or if the copy was pruned."""
        async with self._children.turn(caller.id) as child:
            try:
                snapshot = await read_visit(self._project.archive, copy)
            except Permanent:
                return None
            return await child.ask(work, snapshot, seconds)

    async def may_read(self, caller: Caller, copy: PageFacts) -> bool:
        return bool(copy.archive_ref) and await self._may_read(caller, copy.job)

    async def _may_read(self, caller: Caller, id: str) -> bool:
        """If the project's own jobs may visit private addresses, only pages fetched by jobs of keys are returned."""
        job = await self._project.state.jobs.job(id)
        if job is None:
            return caller.is_admin and not self._project.settings.fetch.allow_private
        return caller.sees(job) and bool(job.owner or not self._project.settings.fetch.allow_private)

    async def outcomes(self, job: Job, pages: tuple[WantedPage, ...]) -> list[PageOutcome]:
        """The results of these pages of the job, in order; only the first ones if all would be too big."""
        found: list[PageOutcome] = []
        weight = 0
        for page in pages:
            if weight >= api_views.MOST_BYTES:
                break
            found.append(await self.outcome(job, page))
            weight += api_views.weight_of(found[-1].data)
        return found

    async def outcome(self, job: Job, page: WantedPage) -> PageOutcome:
        """The result of one page of the job, after its redirects."""
        key = (job.id, msgspec.json.encode(page))
        known = self._cache.get(key)
        if known is None:
            known = await self._outcome(job, page)
            if known.success and "records" not in page.formats:
                self._cache.put(key, known)
        return known

    async def _outcome(self, job: Job, page: WantedPage) -> PageOutcome:
        project, url, how = self._project, page.request.url, page.request.options()
        fate = await self._fate(job, url, how)
        attempts: list[Attempt] = []
        for _ in range(MOST_REDIRECTS):
            if fate is None:
                break
            url, fingerprint = fate.url, project.rules.fingerprint(fate.url, how)
            here = await project.records.attempts(fingerprint, job.id)
            attempts += here
            if not is_redirect(fate.reason):
                break
            to, status = fate.reason.rpartition(" ")[2], here[-1].status if here else None
            for method in (method_after(status or 0, how.method), "GET"):  # after a cookie redirect it may be GET
                onward = how_after(how, url, to, method)
                if (fate := await self._fate(job, to, onward)) is not None:
                    how = onward
                    break
        state, reason, message = (fate.state, fate.reason, fate.message) if fate is not None else (None, "", "")
        fingerprint = project.rules.fingerprint(url, how)
        cost = sum(one.cost for one in attempts)
        last = attempts[-1] if attempts else None
        meta = PageMeta(
            job_id=job.id,
            route=last.route if last is not None else None,
            latency=round(last.latency, 4) if last is not None else None,
            attempts=len(attempts),
            from_cache=False,
            fetched_at=iso_time(last.at) if last is not None else None,
        )
        data, error = None, _error_of(state, reason, message, job)
        status = last.status if last is not None else None
        if error is None or state is UrlState.DEAD:  # a page with an error status is returned, too
            try:
                async with self._children.turn(job.owner) as child:
                    snapshot = await self._snapshot(job, fingerprint, earlier=error is None)
                    status = snapshot.status  # not 304, if the earlier copy is still good
                    meta = msgspec.structs.replace(meta, content_type=snapshot.headers.get("content-type") or None)
                    data = await self._data(child, snapshot, page, job)
                    if CHANGES in page.formats:
                        data[CHANGES] = await self._changes(child, fingerprint, snapshot, page, job)
            except _NotExtracted as failure:
                data, error = failure.data, error or PageError(code="extract", message=str(failure))
            except (BackendUnavailable, KeyBusy, ServerBusy):
                raise
            except GossamerError as failure:
                error = error or PageError(code=failure.reason, message=str(failure))
        return PageOutcome(
            success=error is None,
            id=page.id,
            url=url,
            status_code=status,
            data=data,
            meta=meta,
            tokens_used=round(cost, 9),
            error=error,
        )

    async def _fate(self, job: Job, url: str, how: FetchOptions) -> UrlFate | None:
        return await self._project.state.queue.fate(job.id, site_of(url), self._project.rules.fingerprint(url, how))

    async def links(self, job: Job, url: str, wanted: WantedLinks) -> PageLinks:
        """The addresses in the raw page that an ended job fetched for this address, after redirects. Raises KeyBusy,
        ServerBusy."""
        fate = await self._fate(job, url, PLAIN)
        for _ in range(MOST_REDIRECTS):
            if fate is None or not is_redirect(fate.reason):
                break
            fate = await self._fate(job, fate.reason.rpartition(" ")[2], PLAIN)
        state, reason, message = (fate.state, fate.reason, fate.message) if fate is not None else (None, "", "")
        if (error := _error_of(state, reason, message, job)) is not None:
            return PageLinks(trouble=error.message)
        fingerprint = self._project.rules.fingerprint(fate.url if fate is not None else url)
        try:
            async with self._children.turn(job.owner) as child:
                snapshot = await self._snapshot(job, fingerprint, earlier=True)
                answer = await child.ask(ListLinks(wanted), snapshot, self._seconds)
        except Permanent as failure:
            return PageLinks(trouble=str(failure))
        if answer is None or answer.failure:
            return PageLinks(trouble=answer.failure if answer is not None else self._too_slow(url))
        return msgspec.convert(answer.content, PageLinks)

    @property
    def _seconds(self) -> float:
        return self._project.settings.crawl.parse_timeout.total_seconds()

    def _too_slow(self, url: str) -> str:
        return f"{url} takes longer to read than {self._seconds:g} s, or too much memory."

    async def _snapshot(self, job: Job, fingerprint: bytes, *, earlier: bool) -> Snapshot:
        """The raw page that the job fetched; with `earlier`, otherwise the previous copy that the server confirmed by
        304."""
        records = self._project.records
        found = [one for one in await records.visits(fingerprint, job.id) if one.archive_ref]
        if not found and earlier:
            found = [one for one in await records.visits(fingerprint) if one.archive_ref]
        if not found:
            raise Permanent("The raw page is not stored yet, or was pruned. Request the job again, or the page.")
        return await read_visit(self._project.archive, found[-1])

    async def _data(
        self, child: PageChild, snapshot: Snapshot, wanted: RequestedPage | WantedPage, job: Job | None
    ) -> dict[str, Any]:
        formats, rules = wanted.formats, wanted.extract
        data: dict[str, Any] = {}
        if any(name not in _NOT_READ for name in formats):
            work = FormatPage(WantedFormats(formats=formats, content=wanted.content, schema=wanted.schema))
            answer = await child.ask(work, snapshot, self._seconds)
            if answer is None or answer.failure:
                raise Permanent(answer.failure if answer is not None else self._too_slow(snapshot.url))
            data = answer.content
        if "screenshot" in formats:
            data["screenshot"] = b64encode(snapshot.screenshot).decode() if snapshot.screenshot else None
        if "records" in formats and job is not None:
            data["records"] = await self._records(RecordQuery(job=job.id, url=snapshot.url))
        if rules is not None:
            try:
                data["extract"] = await self.extraction.extract(rules, snapshot, child)
            except (Misconfigured, ParseFailed) as error:
                data["extract"] = None
                raise _NotExtracted(data, str(error)) from error
        if api_views.weight_of(data) > MOST_OF_A_PAGE:
            raise Permanent(
                f"{snapshot.url} has more than {MOST_OF_A_PAGE >> 20} MiB in these formats. Request fewer of them."
            )
        return data

    async def _changes(
        self, child: PageChild, fingerprint: bytes, snapshot: Snapshot, page: WantedPage, job: Job
    ) -> Any:  # Any: plain JSON
        found = await changes_of(
            self._project, child, fingerprint, snapshot, job, content=page.content, schema=page.schema,
            seconds=self._seconds,
        )  # fmt: skip
        return msgspec.to_builtins(found)

    async def _records(self, query: RecordQuery) -> list[dict[str, Any]]:
        """The first records of a page."""
        found: list[dict[str, Any]] = []
        weight = 0
        async for record in self._project.records.records(query):
            if len(found) >= MOST_RECORDS or weight >= api_views.MOST_BYTES:
                break
            found.append(record.data)
            weight += api_views.weight_of(record.data)
        return found


class _NotExtracted(Exception):
    """The client's rules do not fit the page. `data` holds the other formats."""

    def __init__(self, data: dict[str, Any], message: str) -> None:
        super().__init__(message)
        self.data = data


def _is_plain(wanted: RequestedPage) -> bool:
    """Whether it has no payload and no options about how to fetch the page."""
    asked = (
        wanted.use_js_render
        or wanted.wait_for
        or wanted.wait
        or wanted.use_residential
        or wanted.route
        or wanted.country
    )
    return not (wanted.carries or asked)


def _error_of(state: UrlState | None, reason: str, message: str, job: Job) -> PageError | None:
    """None for a page that was fetched."""
    match state:
        case UrlState.DONE | UrlState.UNCHANGED if not is_redirect(reason):
            return None
        case UrlState.DEAD:
            return PageError(code=reason, message=message.partition("\n")[0] or reason)
        case UrlState.DROPPED:
            return PageError(code=reason, message=f"The page was left out: {DROPPED.get(reason, reason)}.")
        case None if is_ended(job) and job.state is not JobState.CANCELLED:
            return PageError(code="not-queued", message="The page never entered the queue of its job.")
        case None if is_ended(job):
            return PageError(code="cancelled", message="The job was cancelled before the page was fetched.")
        case _:
            return PageError(code="pending", message="The page is not fetched yet. Request the job again later.")
