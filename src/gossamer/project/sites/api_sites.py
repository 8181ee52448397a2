"""Crawls of a part of a site, started over HTTP, and the pages that any job over HTTP has fetched so far.

How it fails: BadRequest, TooMuchAtOnce, BackendUnavailable; then no job was opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import blake2b
from typing import Any

import msgspec

from ...frontier.queue_values import DeadFilter, DeadLetter
from ...model.job import SITE_PART, Job
from ...model.site_part import BadPattern, SitePart
from ...model.task import DropReason, UrlState
from ...parse.arguments import stored_arguments
from ...schedule.sources import SiteSource, WantedPage
from ...store.contract import RecordQuery
from ...terms import coverage_of, job_terms, tightened
from ..jobs.api_jobs import ASKED_FOR, Asked, check_pages_kept, checked_page, crawl_limit, open_owned, wanted_pages
from ..jobs.api_requests import BadRequest, RequestedPage
from ..jobs.api_views import weight_of
from ..jobs.site_crawl import SiteCrawl, is_site_crawl, site_crawl_of
from ..open import Project
from ..pages.results import PageOutcome, PageReader

AT_ONCE = 4  # pages read at once for one answer
MOST_ERRORS = 1000  # listed per job, of each kind
LONGEST_TERMS = 20_000  # characters of the terms that a job stores


class SiteCrawlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of a site: which, how many, how far from the first one; `page` says what the client wants from each."""

    page: RequestedPage
    part: SitePart
    limit: int | None = None
    depth: int | None = None  # links from the first page, and from the pages that sitemaps list
    links: bool = True  # follow them
    sitemaps: bool = True  # read them
    rate: str | None = None  # requests per site, as in the settings; a site's own rate is never exceeded
    site_concurrency: int | None = None  # requests at once at one site, if fewer


class DocumentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Pages that a job has fetched. `next` is set if there are more, and is where to continue."""

    documents: list[PageOutcome]
    next: int | None


async def begin_site_crawl(asked: Asked, wanted: SiteCrawlRequest) -> Job:
    """Open the job; while it runs, the same crawl of the same key is the same job. Raises BadRequest, TooMuchAtOnce."""
    settings = asked.project.settings
    check_pages_kept(settings)
    if wanted.page.carries:
        raise BadRequest(
            "A crawl sends no headers, cookies or bodies of yours and does no actions: what it fetches is recorded. "
            "Ask for single pages, or a batch."
        )
    page = await checked_page(asked, wanted.page)
    page = msgspec.structs.replace(page, request=msgspec.structs.replace(page.request, priority=None))
    part = msgspec.structs.replace(wanted.part, url=page.request.url)
    try:
        part.check()
    except BadPattern as error:
        raise BadRequest(str(error)) from error
    crawl = SiteCrawl(part=part, page=page, follows=wanted.links)
    arguments: dict[str, Any] = msgspec.to_builtins(crawl)
    stored = stored_arguments(arguments)
    if len(stored) > LONGEST_TERMS:
        raise BadRequest(f"The terms of the crawl are longer than {LONGEST_TERMS:,} characters. Use fewer patterns.")
    source = msgspec.json.encode(SiteSource(url=part.url, page=wanted.links, sitemaps=wanted.sitemaps)).decode()
    spider = crawl.spider()
    usual = job_terms(settings, spider)
    terms = msgspec.structs.replace(
        usual,
        limit=crawl_limit(settings, wanted.limit),
        depth=usual.depth if wanted.depth is None else wanted.depth,
        owner=asked.caller.id,
        spider=SITE_PART,
        source=source,
        coverage=coverage_of(spider, f"{source}{stored}"),
        arguments=stored,
        priority=ASKED_FOR,
        politeness=tightened(settings, usual.politeness, wanted.rate, wanted.site_concurrency),
    )
    pace = f"{terms.politeness.rate or ''} {wanted.site_concurrency or ''}".rstrip()
    content = "\0".join((asked.caller.id, stored, source, str(terms.limit), str(terms.depth), pace))
    name = f"site-{blake2b(content.encode(), digest_size=6).hexdigest()}"
    return await open_owned(asked.project, asked.caller, name, terms)


async def listed_pages(project: Project, job: Job, skip: int = 0) -> AsyncGenerator[WantedPage, None]:
    """The pages of a batch, or those that a site crawl has recorded so far, without the first `skip`. Pages keep their
    order, except pages of a running crawl that an earlier job has also recorded."""
    if not is_site_crawl(job):
        for page in (await wanted_pages(project, job))[skip:]:
            yield page
        return
    crawl = site_crawl_of(job)
    place = 0
    async for record in project.records.records(RecordQuery(job=job.id)):
        if place >= skip:
            yield crawl.page_at(record.key)
        place += 1


async def fetched_pages(
    project: Project, pages: PageReader, job: Job, *, skip: int = 0, limit: int, most: int
) -> DocumentPage:
    """Up to `limit` fetched pages, fewer if they exceed `most` bytes; at least one."""
    found: list[PageOutcome] = []
    place, weight = skip, 0
    chunk: list[WantedPage] = []
    async with aclosing(listed_pages(project, job, skip)) as listed:
        more = True
        while more:
            page = await anext(listed, None)
            more = page is not None
            if page is not None:
                chunk.append(page)
                if len(chunk) < AT_ONCE:
                    continue
            for outcome in await asyncio.gather(*(pages.outcome(job, one) for one in chunk)):
                size = weight_of(outcome.data)
                if outcome.data is not None and found and (len(found) >= limit or weight + size > most):
                    return DocumentPage(documents=found, next=place)
                if outcome.data is not None:
                    found.append(outcome)
                    weight += size
                place += 1
            chunk = []
    return DocumentPage(documents=found, next=None)


class JobErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of a job that could not be fetched, latest first, and those that robots.txt forbids."""

    letters: list[DeadLetter]
    robots: list[str]


async def job_errors(project: Project, job: Job) -> JobErrors:
    """The first ones of each kind."""
    letters = await project.state.queue.dead(DeadFilter(job=job.id), MOST_ERRORS)
    robots: list[str] = []
    async for url, _, reason in project.state.queue.urls(job.id, UrlState.DROPPED):
        if reason == DropReason.ROBOTS.value:
            robots.append(url)
        if len(robots) >= MOST_ERRORS:
            break
    return JobErrors(letters=letters, robots=robots)
