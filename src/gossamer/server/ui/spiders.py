"""Views of spiders and recipes: run one with arguments, crawl a site, try a selector on a page."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured
from ...project.access.keys import JOBS, SCRAPE
from ...project.jobs.api_jobs import begin_crawl
from ...project.jobs.api_requests import CrawlRequest
from ...project.pages.playground import KINDS, Kind, fetch_to_try, try_selector
from ...project.row_page import RowFilters, row_page
from ...project.spiders.spiders import spiders_of, written_arguments
from ..answers import ApiError
from .templates import link
from .view import Context, Done, FormAction, View, Visit

AT_ONCE = 20  # spiders
HTML_SHOWN = 20_000  # characters of a page
Address = Annotated[str, Meta(max_length=2083)]
Selector = Annotated[str, Meta(max_length=2000)]


class RunForm(msgspec.Struct, frozen=True, kw_only=True):
    spider: Annotated[str, Meta(max_length=100)] = ""
    url: Address = ""
    arguments: Annotated[str, Meta(max_length=10_000)] = ""  # name=value, one on each line
    limit: Annotated[str, Meta(max_length=12)] = ""
    depth: Annotated[str, Meta(max_length=7)] = ""


class TryFilters(msgspec.Struct, frozen=True, kw_only=True):
    url: Address = ""
    kind: Kind = "css"
    selector: Selector = ""
    job: Annotated[str, Meta(max_length=200)] = ""  # the job that fetches the page


async def list_region(visit: Visit) -> Context:
    found = await asyncio.to_thread(spiders_of, visit.project.settings)
    chosen = visit.of(RowFilters)
    page = row_page(found.spiders, chosen, text="{0.name} {0.summary} {0.file}".format, columns={}, limit=AT_ONCE)
    return {"found": found, "page": page, "filtered": bool(chosen.q)}


async def run(visit: Visit) -> Done:
    form = visit.of(RunForm)
    if not form.spider and not form.url:
        raise ApiError(422, "invalid", "Name a spider, or the address of a site.")
    words = [line.strip() for line in form.arguments.splitlines() if line.strip()]
    wanted = CrawlRequest(
        spider=form.spider or None,
        url=(form.url or None) if not form.spider else None,
        arguments=written_arguments(words) or None,
        limit=_number(form.limit, "limit", 1),
        depth=_number(form.depth, "depth", 0),
    )
    job = await begin_crawl(visit.project, visit.caller, wanted)
    return Done(words=f"{job.id} has begun.", to=f"/ui/jobs/{job.id}", target=job.id)


def _number(text: str, name: str, least: int) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal() or int(text) < least:
        raise Misconfigured(f"The {name} is a number, {least} or more; or leave it empty.")
    return int(text)


async def fetched(visit: Visit) -> Done:
    """Fetch the page if it is not in the archive, and show what the selector finds."""
    form = visit.of(TryFilters)
    if not form.url:
        raise ApiError(422, "invalid", "Name the address of a page.")
    job = await fetch_to_try(visit.project, visit.pages, visit.caller, form.url)
    words = "The page is there." if job is None else "The page is being fetched."
    address = link("/ui/try", url=form.url, kind=form.kind, selector=form.selector, job=job)
    return Done(words=words, to=address, target=job or "")


async def result(visit: Visit) -> Context:
    chosen = visit.of(TryFilters)
    if not chosen.url:
        return {"tried": None}
    tried = await try_selector(visit.project, visit.pages, visit.caller, chosen.url, chosen.kind, chosen.selector)
    return {"tried": tried, "most": HTML_SHOWN}


async def form(visit: Visit) -> Context:
    return {"kinds": KINDS}


def _is_fetched(visit: Visit) -> bool:
    return bool(visit.of(TryFilters).job)


VIEWS = (
    View("/ui/spiders", "Spiders", "spiders.html", {"listed": list_region}, JOBS, query=RowFilters, group="Work",
         live=False),
    View("/ui/try", "Try a selector", "try.html", {"form": form, "result": result}, SCRAPE, query=TryFilters,
         group="Inspect", live=_is_fetched),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/spiders/run", handler=run, form=RunForm, scope=JOBS),
    FormAction(path="/ui/try/fetch", handler=fetched, form=TryFilters, scope=SCRAPE),
)
