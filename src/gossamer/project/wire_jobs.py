"""Jobs that are begun over HTTP: single pages, batches of pages, crawls.

What it does: checks what a client may ask for (public addresses, spiders and recipes of the catalogue, routes of the
settings, few enough jobs at once), and opens a job that any worker can serve. The pages of a job stand in its terms, so
that a server that dies after this step loses nothing. The name of a job tells its owner and its content: the same
request, made twice at once by the same key, is one job.
How it fails: BadWish for what cannot be asked for, TooMuchAtOnce, BackendUnavailable; then no job was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from ipaddress import ip_address
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..crawl.heartbeat import MISSING_AFTER
from ..errors import AddressRefused, GossamerError, InvalidUrl, Misconfigured, Permanent, Transient
from ..fetch.addresses import AddressGuard
from ..model.job import Job, JobState, JobTerms
from ..model.route import BROWSER, Render
from ..model.task import Request, fault_of
from ..model.url import authority_of, host_of, parse_url, site_of
from ..parse.arguments import checked_arguments, job_name, stored_arguments, with_arguments
from ..parse.discovery import is_file_ref
from ..parse.site import PAGES, PageSpider, SiteSpider
from ..parse.spider import Spider
from ..routing.ladder import wished
from ..schedule.authority import sealed_terms
from ..schedule.sources import PagesSource, WantedPage, source_of
from ..schedule.spider_loader import Spiders
from ..settings import Settings
from ..settings.effective import coverage_of, job_terms, routing_of
from .keys import Caller
from .open import Project

MOST_PAGES = 100  # of one batch
NAMES = "GET /api/v1/spiders lists the names of spiders and recipes."
WAITED_FOR, ASKED_FOR = 1_000_000, 1_000  # priorities: of a page that somebody waits for, of one that is asked for

Format = Literal["html", "text", "markdown", "links", "metadata", "product", "article", "screenshot", "records"]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
Address = Annotated[str, Meta(min_length=1, max_length=2083)]


class BadWish(Permanent):
    """What the client asks for cannot be had. The message says what to change."""

    reason = "bad-request"


class TooMuchAtOnce(Transient):
    """The key has as many jobs open as it may."""

    reason = "open-jobs"


class PageWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A page, and what is wanted of it."""

    url: Address
    id: Annotated[str, Meta(max_length=200)] = ""  # the client's own name for it
    formats: Annotated[tuple[Format, ...], Meta(min_length=1, max_length=9)] = ("html",)
    use_js_render: bool = False  # show it in a browser
    use_residential: bool = False  # leave through a residential proxy pool
    route: Name | None = None  # a route of the settings, or a kind of transport
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$", max_length=2)] | None = None
    wait_for: Annotated[str, Meta(min_length=1, max_length=500)] | None = None  # CSS; the page is shown in a browser


class ScrapeWish(PageWish, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One page, and how long the client waits for it."""

    spider: Name | None = None  # of the catalogue
    recipe: Name | None = None
    callback_url: Address | None = None  # is told when the job has ended
    max_age: Annotated[float, Meta(ge=0, le=366 * 86400)] = 0.0  # seconds: an archived copy may be that old
    timeout: Annotated[float, Meta(ge=0, le=600)] = 60.0  # seconds


class BatchWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """1 to 100 pages: addresses, for which `formats` hold, or requests with wishes of their own."""

    urls: list[Address] = []
    requests: list[PageWish] = []
    formats: Annotated[tuple[Format, ...], Meta(min_length=1, max_length=9)] = ("html",)
    spider: Name | None = None
    recipe: Name | None = None
    callback_url: Address | None = None


class CrawlWish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A spider or recipe of the catalogue, or the address of a site."""

    spider: Name | None = None
    recipe: Name | None = None
    url: Address | None = None
    arguments: dict[str, Any] | None = None  # of the spider
    limit: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None  # pages
    depth: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None  # steps from the first pages
    callback_url: Address | None = None


# -- beginning -----------------------------------------------------------------------------------------------------


async def begin_scrape(project: Project, caller: Caller, wish: ScrapeWish, *, waits: bool) -> Job:
    """Open the job for one page. Raises BadWish, TooMuchAtOnce."""
    priority = WAITED_FOR if waits else ASKED_FOR
    return await _begin_pages(project, caller, [wish], wish.spider, wish.recipe, kind="scrape", priority=priority)


async def begin_batch(project: Project, caller: Caller, wish: BatchWish) -> Job:
    """Open the job for 1 to MOST_PAGES pages. Raises BadWish, TooMuchAtOnce."""
    if wish.urls and wish.requests:
        raise BadWish("Give urls or requests, not both.")
    pages = wish.requests or [PageWish(url=url, formats=wish.formats) for url in wish.urls]
    if not 1 <= len(pages) <= MOST_PAGES:
        raise BadWish(f"A batch has 1 to {MOST_PAGES} pages, not {len(pages):,}. Split it, or begin a crawl.")
    return await _begin_pages(project, caller, pages, wish.spider, wish.recipe, kind="batch", priority=ASKED_FOR)


async def _begin_pages(
    project: Project,
    caller: Caller,
    wishes: Sequence[PageWish],
    spider: str | None,
    recipe: str | None,
    *,
    kind: str,
    priority: int,
) -> Job:
    settings = project.settings
    _check_pages_kept(settings)
    name = _one_of(spider, recipe)
    pages = tuple(_wanted(settings, wish, priority) for wish in wishes)
    maker: Spider = PageSpider() if name is None else await _spider_named(settings, name)
    source = msgspec.json.encode(PagesSource(pages=pages))
    content = b"\0".join((caller.id.encode(), (name or "").encode(), msgspec.json.encode(list(wishes))))
    terms = msgspec.structs.replace(
        job_terms(settings, maker),
        limit=None,
        depth=0,
        owner=caller.id,
        spider=name or PAGES,
        source=source.decode(),
        coverage=coverage_of(maker, source.decode()),
        priority=priority,
    )
    return await _open(project, caller, f"{kind}-{blake2b(content, digest_size=6).hexdigest()}", terms)


async def begin_crawl(project: Project, caller: Caller, wish: CrawlWish) -> Job:
    """Open the job for a crawl; the same crawl, while it runs, is one job. Raises BadWish, TooMuchAtOnce."""
    settings = project.settings
    given = [text for text in (wish.spider, wish.recipe, wish.url) if text is not None]
    if len(given) != 1:
        raise BadWish("Give one of spider, recipe and url.")
    target = given[0]
    spider: Spider
    if wish.url is not None:
        target = public_url(settings, wish.url)
        spider = SiteSpider([target])
    else:
        spider = await _spider_named(settings, target)
    try:
        arguments = checked_arguments(type(spider), wish.arguments or {})
    except Misconfigured as error:
        raise BadWish(str(error)) from error
    usual = job_terms(settings, with_arguments(spider, arguments))
    limits = (usual.limit if wish.limit is None else wish.limit, settings.server.crawl_limit)
    terms = msgspec.structs.replace(
        usual,
        limit=min((one for one in limits if one is not None), default=None),
        depth=usual.depth if wish.depth is None else wish.depth,
        owner=caller.id,
        spider=target,
        arguments=stored_arguments(arguments),
    )
    return await _open(project, caller, f"{job_name(target, arguments)}@{caller.id}", terms)


async def _open(project: Project, caller: Caller, name: str, terms: JobTerms) -> Job:
    most = caller.open_jobs or project.settings.server.open_jobs
    own = [job for job in await project.state.jobs.running_jobs() if job.owner == caller.id]
    if len(own) >= most and all(job.name != name for job in own):
        raise TooMuchAtOnce(
            f"Your key has {len(own):,} jobs open, and may have {most:,}. Wait for one to end, or cancel one."
        )
    sealed = sealed_terms(project.settings, name, terms)
    job, _ = await project.state.jobs.open_job(name, sealed, fresh=False)
    return job


# -- checking ------------------------------------------------------------------------------------------------------


def _check_pages_kept(settings: Settings) -> None:
    if not settings.store.keep_pages:
        raise BadWish("This project keeps no raw pages (store.keep_pages is off), so there is nothing to give back.")


def _one_of(spider: str | None, recipe: str | None) -> str | None:
    if spider is not None and recipe is not None:
        raise BadWish("Give a spider or a recipe, not both.")
    return spider if spider is not None else recipe


async def _spider_named(settings: Settings, name: str) -> Spider:
    """A spider or recipe by its name in the catalogue. Its file is read in a thread."""
    check_catalogue_name(name)
    try:
        return await asyncio.to_thread(Spiders(settings).find, name)
    except GossamerError as error:
        raise BadWish(f"There is no spider or recipe {name!r} that loads. {NAMES}") from error
    except Exception as error:  # a spider's own code may raise anything
        raise BadWish(f"The spider {name!r} does not load.") from error


def check_catalogue_name(name: str) -> None:
    """Raises BadWish for a path, or any other text that is no name."""
    if is_file_ref(name) or any(sign in name for sign in "/\\:"):
        raise BadWish(f"{name!r} is no name. {NAMES}")


def public_url(settings: Settings, url: str) -> str:
    """The address, parsed. Raises BadWish for one that is private, holds a password or is none."""
    try:
        href = parse_url(url)
        host = host_of(href)
        if "@" in href.partition("://")[2].partition("/")[0] or not authority_of(href):
            raise BadWish("The address holds a user name or password, and would be shown and stored. Leave it out.")
        _refuse_private(settings, host)
    except InvalidUrl as error:
        raise BadWish(str(error)) from error
    return href


def _refuse_private(settings: Settings, host: str) -> None:
    """Of an address that is written as such. Where a name leads is looked at when it is dialled."""
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


def _private(host: str) -> BadWish:
    return BadWish(
        f"{host} is a private or reserved address. The owner of this project can allow it: fetch.allow_hosts."
    )


def _wanted(settings: Settings, wish: PageWish, priority: int) -> WantedPage:
    url = public_url(settings, wish.url)
    wants_picture = "screenshot" in wish.formats
    renders = wish.use_js_render or wish.wait_for is not None or wants_picture
    fetcher = wish.route or (BROWSER if renders else None)
    pool = _residential(settings) if wish.use_residential else None
    if fetcher is not None or pool is not None:
        routing = routing_of(settings)
        try:
            wished(routing.terms_for(site_of(url)).ladder, routing.routes, fetcher=fetcher, pool=pool)
        except Misconfigured as error:
            raise BadWish(str(error)) from error
    request = Request(
        url=url,
        priority=priority,
        fetcher=fetcher,
        proxy_pool=pool,
        country=wish.country.lower() if wish.country is not None else None,
        render=Render(wait_for=wish.wait_for or "", screenshot=wants_picture) if renders else None,
    )
    if fault := fault_of(request):
        raise BadWish(f"The request for {url} {fault}.")
    return WantedPage(request=request, id=wish.id, formats=wish.formats)


def _residential(settings: Settings) -> str:
    for name, pool in settings.proxies.items():
        if pool.kind == "residential":
            return name
    raise BadWish("This project has no residential proxy pool. Leave use_residential out.")


# -- looking -------------------------------------------------------------------------------------------------------


async def job_for(project: Project, caller: Caller, id: str, *, to_change: bool = False) -> Job | None:
    """The job with that id, if the caller may see it (or change it); None as if it did not exist."""
    job = await project.state.jobs.job(id)
    if job is None or not caller.sees(job) or (to_change and not caller.may_change(job)):
        return None
    return job


async def wanted_pages(project: Project, job: Job) -> tuple[WantedPage, ...]:
    """The pages that a job was begun for; none for a crawl."""
    source = source_of((await project.state.jobs.terms(job.id)).source) if job.owner else None
    return source.pages if isinstance(source, PagesSource) else ()


async def is_served(project: Project) -> bool:
    """Is a worker alive?"""
    now = project.clock.now()
    cards = await project.state.workers.workers()
    return any(now - card.seen_at <= MISSING_AFTER.total_seconds() for card in cards)


def is_ended(job: Job) -> bool:
    return job.state is not JobState.RUNNING
