"""Jobs that clients start over HTTP: single pages, batches of pages, crawls.

What it does: checks what a client may ask for (public addresses, spiders and recipes of the catalogue, routes of the
settings, the limit of concurrent jobs), and opens a job that any worker can serve. The pages of a job are stored in its
terms, so that a server that dies after this step loses nothing. The name of a job encodes its owner and content: the
same plain request, made twice at once by the same key, is one job. A request with a payload (another method, headers,
cookies, a body) is a new job each time, unless it is repeated with the same Idempotency-Key. Its results are kept
apart: no other request is answered with them, and none of them becomes a record.
How it fails: BadRequest for an invalid request, TooMuchAtOnce, BackendUnavailable; then no job was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b
from ipaddress import ip_address
from uuid import uuid4

import msgspec

from ...crawl.heartbeat import MISSING_AFTER
from ...crawl.page_request import archive_long_bodies
from ...crawl.seeding import admission_of
from ...errors import AddressRefused, GossamerError, InvalidUrl, Misconfigured
from ...fetch.addresses import AddressGuard
from ...model.job import PAGES, RAW_PAGES, Job, JobState, JobTerms
from ...model.payload import MAX_QUEUED_BODY
from ...model.route import BROWSER, Render
from ...model.task import Candidate, Request, fault_of
from ...model.url import authority_of, host_of, parse_url, site_of
from ...parse.arguments import checked_arguments, job_name, stored_arguments, with_arguments
from ...parse.discovery import is_file_ref
from ...parse.site import HAND_ON, PageSpider, RawPageSpider, SiteSpider
from ...parse.spider import Spider
from ...routing.ladder import wished
from ...schedule.authority import sealed_terms
from ...schedule.sources import PagesSource, WantedPage, source_of
from ...schedule.spider_loader import Spiders
from ...settings import Settings
from ...terms import coverage_of, job_terms, link_scope, routing_of, tightened
from ..access.idempotency import KEPT
from ..access.keys import Caller
from ..open import Project
from ..pages.extraction import Extraction
from .api_requests import (
    BadRequest,
    BatchRequest,
    CrawlRequest,
    PageOptions,
    RequestedPage,
    ScrapeRequest,
    TooMuchAtOnce,
)

MOST_PAGES = 100  # of one batch
_NO_OPTIONS = PageOptions()
LONGEST_SCHEMA = 64 * 1024  # bytes of JSON
LONGEST_SELECTOR, LONGEST_TYPED = 500, 5000  # characters of an action's selector and text
NO_WORKER = "No worker is running: start one with `gossamer up`, or `gossamer worker`."
NAMES = "GET /api/v1/spiders lists the names of spiders and recipes."
WAITED_FOR, ASKED_FOR = 1_000_000, 1_000  # priorities of a page whose client waits, and of one whose client does not


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The project, the caller, and the Idempotency-Key of the request (`repeat_name`), if it has one."""

    project: Project
    caller: Caller
    extraction: Extraction
    repeat_name: str | None = None


# -- starting --------------------------------------------------------------------------------------------------------


async def begin_scrape(asked: Asked, wanted: ScrapeRequest, *, waits: bool) -> Job:
    """Open the job for one page. Raises BadRequest, TooMuchAtOnce."""
    priority, name = WAITED_FOR if waits else ASKED_FOR, _one_of(wanted.spider, wanted.recipe)
    return await _begin_pages(asked, [wanted], name, kind="scrape", priority=priority)


async def check_scrape(asked: Asked, wanted: ScrapeRequest) -> None:
    """Raise the BadRequest that `begin_scrape` would raise."""
    await checked_page(asked, wanted, _one_of(wanted.spider, wanted.recipe))


async def begin_batch(
    asked: Asked, wanted: BatchRequest, *, most: int = MOST_PAGES, site_concurrency: int | None = None
) -> Job:
    """Open the job for 1 to `most` pages, with fewer requests at once at one site if that is given. Raises BadRequest,
    TooMuchAtOnce."""
    if wanted.urls and wanted.requests:
        raise BadRequest("Give urls or requests, not both.")
    shared = {name: getattr(wanted, name) for name in PageOptions.__struct_fields__}
    if wanted.requests and (own := [name for name, value in shared.items() if value != getattr(_NO_OPTIONS, name)]):
        raise BadRequest(
            f"Give each of the requests its own {own[0]}: beside requests it would count for none of them."
        )
    pages = wanted.requests or [RequestedPage(url=url, **shared) for url in wanted.urls]
    if not 1 <= len(pages) <= most:
        raise BadRequest(f"A batch has 1 to {most:,} pages, not {len(pages):,}. Split it, or begin a crawl.")
    name = _one_of(wanted.spider, wanted.recipe)
    return await _begin_pages(asked, pages, name, kind="batch", priority=ASKED_FOR, site_concurrency=site_concurrency)


async def _begin_pages(
    asked: Asked,
    requested: Sequence[RequestedPage],
    name: str | None,
    *,
    kind: str,
    priority: int,
    site_concurrency: int | None = None,
) -> Job:
    project, caller, repeat_name = asked.project, asked.caller, asked.repeat_name
    settings = project.settings
    check_pages_kept(settings)
    pages = tuple([await checked_page(asked, wanted, name, priority) for wanted in requested])
    recorded = any("records" in wanted.formats for wanted in requested)
    maker: Spider = PageSpider() if recorded else RawPageSpider()
    if name is not None:
        maker = await _spider_named(settings, name)
    source = msgspec.json.encode(PagesSource(pages=pages))
    carries = any(wanted.carries for wanted in requested)
    once = (repeat_name or uuid4().hex) if carries else ""
    own = [] if site_concurrency is None else [str(site_concurrency)]
    content = "\0".join((caller.id, name or "", msgspec.json.encode(list(requested)).decode(), once, *own))
    called = f"{kind}-{blake2b(content.encode(), digest_size=6 if not carries else 12).hexdigest()}"
    if carries and repeat_name is not None and (known := await _begun_before(project, caller, called)) is not None:
        return known
    usual = job_terms(settings, maker)
    terms = msgspec.structs.replace(
        usual,
        limit=None,
        depth=0,
        politeness=tightened(settings, usual.politeness, None, site_concurrency),
        owner=caller.id,
        spider=name or (PAGES if recorded else RAW_PAGES),
        source=source.decode(),
        coverage=coverage_of(maker, source.decode()),
        priority=priority,
    )
    # Of a spider of the project, a worker reads the seeds: the spider's code and settings are there.
    seeds = partial(_seeds_of, project, maker, terms, pages) if name is None else None
    return await open_owned(project, caller, called, terms, seeds)


async def _seeds_of(
    project: Project, maker: Spider, terms: JobTerms, pages: Sequence[WantedPage]
) -> Sequence[Candidate]:
    """The pages as seeds of their job; none if the bound of its queue is so low that they must enter by and by."""
    if terms.max_queued is not None and len(pages) > terms.max_queued:
        return ()
    admission = admission_of(project.rules, maker, link_scope(project.settings, None, terms.depth), named=True)
    judged = admission.judge([page.request for page in pages])
    return await archive_long_bodies(judged.candidates, project.archive, project.clock)


async def checked_page(
    asked: Asked, wanted: RequestedPage, name: str | None = None, priority: int = ASKED_FOR
) -> WantedPage:
    """The page as a job stores it; `name` is that of the spider. Raises BadRequest."""
    await _check(asked, wanted, name)
    return _wanted(asked.project.settings, asked.caller, wanted, priority)


async def _begun_before(project: Project, caller: Caller, name: str) -> Job | None:
    """The job of a request that is repeated because its answer was lost, even if it has ended: its payload is not sent
    again."""
    earliest = project.clock.now() - KEPT.total_seconds()
    known = await project.state.history.newest_jobs(name, 1)
    return next((job for job in known if job.owner == caller.id and job.created_at >= earliest), None)


async def begin_crawl(project: Project, caller: Caller, wanted: CrawlRequest, *, apart: str = "") -> Job:
    """Open the job for a crawl; while it runs, the same crawl is the same job, unless its name ends with another
    `apart`. Raises BadRequest, TooMuchAtOnce."""
    settings = project.settings
    given = [text for text in (wanted.spider, wanted.recipe, wanted.url) if text is not None]
    if len(given) != 1:
        raise BadRequest("Give one of spider, recipe and url.")
    target = given[0]
    spider: Spider
    if wanted.url is not None:
        target = public_url(settings, wanted.url)
        spider = SiteSpider([target])
    else:
        spider = await _spider_named(settings, target)
    try:
        arguments = checked_arguments(type(spider), wanted.arguments or {})
    except Misconfigured as error:
        raise BadRequest(str(error)) from error
    usual = job_terms(settings, with_arguments(spider, arguments))
    try:
        politeness = tightened(settings, usual.politeness, wanted.rate, wanted.site_concurrency)
    except ValueError as error:
        raise BadRequest(f"rate: {error}.") from error
    terms = msgspec.structs.replace(
        usual,
        limit=crawl_limit(settings, usual.limit if wanted.limit is None else wanted.limit),
        depth=usual.depth if wanted.depth is None else wanted.depth,
        owner=caller.id,
        spider=target,
        arguments=stored_arguments(arguments),
        politeness=politeness,
        priority=usual.priority if wanted.priority is None else min(wanted.priority, usual.priority),
    )
    return await open_owned(project, caller, f"{job_name(target, arguments)}@{caller.id}{apart}", terms)


def crawl_limit(settings: Settings, wanted: int | None) -> int | None:
    """How many pages a crawl over HTTP may fetch; None: unlimited."""
    return min((one for one in (wanted, settings.server.crawl_limit) if one is not None), default=None)


async def open_owned(
    project: Project,
    caller: Caller,
    name: str,
    terms: JobTerms,
    seeds: Callable[[], Awaitable[Sequence[Candidate]]] | None = None,
) -> Job:
    """Open the job, if the key may have one more; only then are its `seeds` made. Raises TooMuchAtOnce."""
    most = caller.open_jobs or project.settings.server.open_jobs
    own = [job for job in await project.state.jobs.running_jobs() if job.owner == caller.id]
    if len(own) >= most and all(job.name != name for job in own):
        raise TooMuchAtOnce(
            f"Your key has {len(own):,} jobs open, and may have {most:,}. Wait for one to end, or cancel one."
        )
    sealed = sealed_terms(project.settings, name, terms)
    made = await seeds() if seeds is not None else ()
    job, _ = await project.state.jobs.open_job(name, sealed, fresh=False, seeds=made)
    return job


# -- checking ------------------------------------------------------------------------------------------------------


def check_pages_kept(settings: Settings) -> None:
    if not settings.store.keep_pages:
        raise BadRequest("This project keeps no raw pages (store.keep_pages is off), so there is nothing to return.")


async def _check(asked: Asked, wanted: RequestedPage, spider: str | None) -> None:
    """Raises BadRequest for options that conflict, and for invalid extraction rules."""
    if not wanted.formats and wanted.extract is None:
        raise BadRequest("Say what you want from the page: formats, or extract.")
    if wanted.carries and (spider is not None or "records" in wanted.formats):
        raise BadRequest(
            "A request with a method, headers, cookies or a body is yours alone, and nothing of it is recorded: leave "
            "out the spider, the recipe and the format records. To have values of the page, use extract."
        )
    if (wanted.schema is None and "json" in wanted.formats) or (wanted.schema and not _reads_schema(wanted.formats)):
        raise BadRequest("The format json needs a schema, and a schema needs the format json or changes.")
    if wanted.schema is not None and len(msgspec.json.encode(wanted.schema)) > LONGEST_SCHEMA:
        raise BadRequest(f"A schema may have {LONGEST_SCHEMA:,} bytes of JSON. Ask for fewer properties.")
    if any(len(one.selector) > LONGEST_SELECTOR or len(one.text) > LONGEST_TYPED for one in wanted.actions):
        raise BadRequest(
            f"The selector of an action may have {LONGEST_SELECTOR:,} characters, its text {LONGEST_TYPED:,}."
        )
    if wanted.content is not None and (fault := wanted.content.fault()):
        raise BadRequest(fault)
    if wanted.extract is not None:
        try:
            await asked.extraction.check(wanted.extract, asked.caller.id)
        except Misconfigured as error:
            raise BadRequest(str(error)) from error


def _reads_schema(formats: Sequence[str]) -> bool:
    return "json" in formats or "changes" in formats


def _one_of(spider: str | None, recipe: str | None) -> str | None:
    if spider is not None and recipe is not None:
        raise BadRequest("Give a spider or a recipe, not both.")
    return spider if spider is not None else recipe


async def _spider_named(settings: Settings, name: str) -> Spider:
    """A spider or recipe by its name in the catalogue. Its file is read in a thread."""
    check_catalogue_name(name)
    try:
        return await asyncio.to_thread(Spiders(settings).find, name)
    except GossamerError as error:
        raise BadRequest(f"There is no spider or recipe {name!r} that loads. {NAMES}") from error
    except Exception as error:  # a spider's own code may raise anything
        raise BadRequest(f"The spider {name!r} does not load.") from error


def check_catalogue_name(name: str) -> None:
    """Raises BadRequest for a path, or any other text that is not a name."""
    if is_file_ref(name) or any(sign in name for sign in "/\\:"):
        raise BadRequest(f"{name!r} is not a name. {NAMES}")


def public_url(settings: Settings, url: str) -> str:
    """The parsed URL. Raises BadRequest if it is private, holds a password or is not a URL."""
    try:
        href = parse_url(url)
        host = host_of(href)
        if "@" in href.partition("://")[2].partition("/")[0] or not authority_of(href):
            raise BadRequest("The address holds a user name or password, and would be shown and stored. Leave it out.")
        _refuse_private(settings, host)
    except InvalidUrl as error:
        raise BadRequest(str(error)) from error
    return href


def _refuse_private(settings: Settings, host: str) -> None:
    """Refuse a literal private address. Host names are checked when they are dialled."""
    allowed = frozenset(settings.fetch.allow_hosts)
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        local = host == "localhost" or host.endswith(".localhost")
        if local and host not in allowed:
            raise _private(host) from None
        return
    try:
        AddressGuard(False, allowed).check(host, host)
    except AddressRefused as error:
        raise _private(host) from error


def _private(host: str) -> BadRequest:
    return BadRequest(
        f"{host} is a private or reserved address. The owner of this project can allow it: fetch.allow_hosts."
    )


def _wanted(settings: Settings, caller: Caller, wanted: RequestedPage, priority: int) -> WantedPage:
    url = public_url(settings, wanted.url)
    fetcher = wanted.route or (BROWSER if wanted.renders else None)
    pool = _residential(settings) if wanted.use_residential else None
    if fetcher is not None or pool is not None:
        routing = routing_of(settings)
        try:
            wished(routing.terms_for(site_of(url)).ladder, routing.routes, fetcher=fetcher, pool=pool)
        except Misconfigured as error:
            raise BadRequest(str(error)) from error
    request = Request(
        url=url,
        priority=priority,
        fetcher=fetcher,
        proxy_pool=pool,
        country=wanted.country.lower() if wanted.country is not None else None,
        render=_render(wanted) if wanted.renders else None,
    )
    if wanted.carries:
        request = _with_payload(request, caller, wanted)
    if fault := fault_of(request):
        raise BadRequest(f"The request for {url} {fault}.")
    return WantedPage(
        request=request,
        id=wanted.id,
        formats=wanted.formats,
        extract=wanted.extract,
        content=wanted.content,
        schema=wanted.schema,
    )


def _render(wanted: RequestedPage) -> Render:
    return Render(
        wait_for=wanted.wait_for or "",
        wait=wanted.wait,
        actions=wanted.actions,
        screenshot="screenshot" in wanted.formats,
    )


def _with_payload(request: Request, caller: Caller, wanted: RequestedPage) -> Request:
    """The request with its payload, as it is stored: kept apart from every other, and without secrets of the project.
    Raises BadRequest."""
    made = msgspec.structs.replace(
        request,
        kind=HAND_ON,
        method=wanted.method,
        headers=wanted.headers or None,
        cookies=wanted.cookies or None,
        body=wanted.body,
        json=wanted.json,
        form=wanted.form,
    )
    if fault := fault_of(made):
        raise BadRequest(f"The request for {request.url} {fault}.")
    how = made.options()
    if how.names_secrets:  # only spiders may use secrets; a mark in a client's text was copied from somewhere
        raise BadRequest("A text of the request has the form of a secret of this project. Send the value itself.")
    if how.body is not None and how.body.size > MAX_QUEUED_BODY:
        raise BadRequest(f"The body has {how.body.size:,} bytes; over HTTP at most {MAX_QUEUED_BODY:,} are allowed.")
    whose = blake2b(msgspec.json.encode((caller.id, how.headers, how.cookies)), digest_size=16).hexdigest()
    return msgspec.structs.replace(request, kind=HAND_ON, stored=msgspec.structs.replace(how, apart=whose), render=None)


def _residential(settings: Settings) -> str:
    for name, pool in settings.proxies.items():
        if pool.kind == "residential":
            return name
    raise BadRequest("This project has no residential proxy pool. Leave use_residential out.")


# -- looking -------------------------------------------------------------------------------------------------------


async def job_for(project: Project, caller: Caller, id: str, *, to_change: bool = False) -> Job | None:
    """The job with that id, if the caller may see it (or change it); otherwise None, as if it did not exist."""
    job = await project.state.jobs.job(id)
    if job is None or not caller.sees(job) or (to_change and not caller.may_change(job)):
        return None
    return job


async def wanted_pages(project: Project, job: Job) -> tuple[WantedPage, ...]:
    """The pages that a job was started for; none for a crawl."""
    source = source_of((await project.state.jobs.terms(job.id)).source) if job.owner else None
    return source.pages if isinstance(source, PagesSource) else ()


async def is_served(project: Project) -> bool:
    """Whether a worker is alive."""
    now = project.clock.now()
    cards = await project.state.workers.workers()
    return any(now - card.seen_at <= MISSING_AFTER.total_seconds() for card in cards)


def is_ended(job: Job) -> bool:
    return job.state is not JobState.RUNNING
