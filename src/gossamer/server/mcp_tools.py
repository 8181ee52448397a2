"""What an agent can do with a project over MCP: eleven tools, each a struct of arguments and a function.

Instructions hidden in a page cannot do more than the key of the session allows: no tool changes settings, spiders, keys
or routes; rules of a recipe only by what was learned from its own records, and with the scope admin. mcp_answers.py
cuts the answers, and frames everything in them that is not a number or `Words`.
How it fails: ToolFailed and the errors of project/, with messages that name the next step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..clock import iso_time
from ..model.job import Job
from ..model.page_content import PageContent
from ..project.access.keys import ADMIN, JOBS, RECORDS, SCRAPE, Caller
from ..project.jobs.api_jobs import (
    Asked,
    begin_crawl,
    begin_scrape,
    is_ended,
    is_served,
    job_for,
    public_url,
    wanted_pages,
)
from ..project.jobs.api_requests import Address, CrawlRequest, Name, ScrapeRequest
from ..project.jobs.api_views import (
    LAST_NUMBER,
    catalogue,
    encode,
    job_report,
    job_reports,
    record_page,
    seen_history,
    seen_story,
)
from ..project.jobs.jobs import cancel_job
from ..project.open import Project
from ..project.pages.results import PageOutcome, PageReader
from ..project.records.records import RecordFilter, query_of, schemas
from ..project.sites.site_map import map_site
from ..project.spiders import healing as rules
from ..project.workers.workers import list_workers
from .mcp_answers import FactName, Pieces, ToolAnswer, ToolFailed, Words, identifier, time_words, words_among

READ_AGAIN = 3600.0  # seconds: the next piece of a page may come from a copy that old
STARTING_LOOK = 0.1  # seconds between two checks for a worker that is starting
STORED = Words("stored records")
NO_WORKER = Words(
    "No worker is running, so nothing is fetched. Ask the operator to run `gossamer up` or `gossamer worker`; "
    "what is stored can be read meanwhile: query_records, why."
)

STATUSES = (
    Words("queued"), Words("running"), Words("paused"), Words("completed"), Words("failed"), Words("cancelled"),
)  # fmt: skip

JOB_FIELDS = ("job_id", "name", "status", "total", "done", "failed", "open", "started")  # of a list of jobs
Id = Annotated[str, Meta(min_length=1, max_length=100)]
Format = Literal["markdown", "text", "html", "links", "metadata", "product", "article"]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and the project."""

    project: Project
    pages: PageReader
    caller: Caller
    address: str = ""  # of the client, over HTTP
    worker_by: float = 0.0  # how long to wait for a worker that is starting, by the project's monotonic clock


class Scrape(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Address
    format: Format = "markdown"
    render: Annotated[bool, Meta(description="in a browser")] = False
    wait_for: Annotated[str, Meta(max_length=500, description="CSS to wait for; implies render")] | None = None
    screenshot: bool = False
    cards: Annotated[bool, Meta(description="of text: true has all, false none")] | None = None
    faq: bool | None = None
    comments: bool | None = None
    reviews: bool | None = None
    max_age: Annotated[float, Meta(ge=0, description="seconds a stored copy may be old")] = 0.0
    timeout: Annotated[float, Meta(ge=1, le=600)] = 60.0


class Map(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Address
    search: Annotated[str, Meta(max_length=200, description="text in the address")] = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


class CrawlStart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Address | None = None
    spider: Annotated[str, Meta(max_length=100, description="spider or recipe; see stats")] | None = None
    arguments: dict[str, Any] | None = None  # of the spider
    limit: Annotated[int, Meta(ge=1, description="pages")] = 100
    depth: Annotated[int, Meta(ge=0)] | None = None


class JobStatusQuery(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_id: Annotated[str, Meta(max_length=100, description="none: the newest jobs")] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: str | None = None


class JobResults(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_id: Id
    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    cursor: Annotated[int, Meta(ge=0, le=LAST_NUMBER)] = 0


class JobCancel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job_id: Id


class QueryRecords(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: Annotated[str, Meta(max_length=200)] | None = None
    spider: Name | None = None
    site: Annotated[str, Meta(max_length=253)] | None = None
    since: Annotated[float, Meta(description="changed since; epoch seconds")] | None = None
    gone: Annotated[bool, Meta(description="also records no longer found")] = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    cursor: Annotated[int, Meta(ge=0, le=LAST_NUMBER)] = 0


class RecordHistoryAsked(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Annotated[str, Meta(min_length=1, max_length=2083, description="record key, or its page's URL")]
    type: Annotated[str, Meta(max_length=200)] | None = None
    site: Annotated[str, Meta(max_length=253)] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class Why(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Address


class HealingAsked(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    spider: Annotated[str, Meta(max_length=100, description="a recipe; none: all new layouts")] | None = None
    action: Literal["show", "learn", "apply", "undo"] = "show"
    fields: Annotated[tuple[str, ...], Meta(max_length=100, description="apply: also these proposed ones")] = ()


class StatsAsked(Pieces, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


# -- pages ---------------------------------------------------------------------------------------------------------


async def scrape(agent: Agent, wanted: Scrape) -> ToolAnswer:
    formats = (wanted.format, *(("screenshot",) if wanted.screenshot else ()))
    content = PageContent(cards=wanted.cards, faq=wanted.faq, comments=wanted.comments, reviews=wanted.reviews)
    asked = ScrapeRequest(
        url=wanted.url,
        formats=formats,
        content=content if content.chooses else None,
        use_js_render=wanted.render,
        wait_for=wanted.wait_for,
        timeout=wanted.timeout,
    )
    age = max(wanted.max_age, READ_AGAIN if wanted.offset else 0.0)
    outcome: PageOutcome | ToolAnswer | None = None
    if age:
        href = public_url(agent.project.settings, wanted.url)
        plain = msgspec.structs.replace(asked, use_js_render=False, wait_for=None) if wanted.offset else asked
        outcome = await agent.pages.cached(agent.caller, plain, href, age)
    if outcome is None:
        outcome = await _fetched(agent, asked)
    if isinstance(outcome, ToolAnswer):
        return outcome
    if not outcome.success:
        said = outcome.error.message if outcome.error is not None else "no page came"
        raise ToolFailed(Words("The page could not be fetched; `why` has its whole story."), f"{outcome.url}: {said}")
    data = dict(outcome.data or {})
    picture = data.pop("screenshot", None) or ""
    text = data.get(wanted.format)
    return ToolAnswer(
        facts={
            "url": outcome.url,
            "status": outcome.status_code,
            "fetched_at": time_words(outcome.meta.fetched_at),
            "from_cache": outcome.meta.from_cache,
            "job_id": identifier(outcome.meta.job_id) if outcome.meta.job_id is not None else None,
        },
        words=Words("") if text else Words("The page has nothing in this format."),
        text=_text_of(text),
        picture=picture,
    )


async def _fetched(agent: Agent, asked: ScrapeRequest) -> PageOutcome | ToolAnswer:
    project = agent.project
    await _check_served(agent)
    who = Asked(project=project, caller=agent.caller, extraction=agent.pages.extraction)
    job = await begin_scrape(who, asked, waits=True)
    wait = min(asked.timeout, project.settings.server.max_wait.total_seconds())
    if not await agent.pages.wait(job.id, wait):
        words = Words("It is still being fetched after {} s. Ask job_results for this job later.").with_numbers(wait)
        return ToolAnswer(facts={"job_id": identifier(job.id), "status": Words("running")}, words=words)
    job = await job_for(project, agent.caller, job.id) or job
    (outcome,) = await agent.pages.outcomes(job, await wanted_pages(project, job))
    return outcome


async def map_tool(agent: Agent, wanted: Map) -> ToolAnswer:
    await _check_served(agent)
    found = await map_site(
        agent.project, agent.pages, agent.caller, wanted.url, search=wanted.search, limit=wanted.limit
    )
    facts: dict[FactName, str | float | None] = {
        "url": found.url,
        "links": len(found.links),
        "more": found.more,
        "missing": "\n".join(found.missing[:10]) or None,
    }
    return ToolAnswer(facts=facts, text="\n".join(found.links), source=Words("a web site"))


# -- jobs ----------------------------------------------------------------------------------------------------------


async def crawl_start(agent: Agent, wanted: CrawlStart) -> ToolAnswer:
    asked = CrawlRequest(
        spider=wanted.spider, url=wanted.url, arguments=wanted.arguments, limit=wanted.limit, depth=wanted.depth
    )
    job = await begin_crawl(agent.project, agent.caller, asked)
    words = Words("The crawl is queued. Ask job_status, then job_results, with this id.")
    if not await is_served(agent.project):
        words = NO_WORKER
    return ToolAnswer(facts={"job_id": identifier(job.id), "status": Words("queued")}, words=words)


async def job_status(agent: Agent, wanted: JobStatusQuery) -> ToolAnswer:
    if wanted.job_id is not None:
        report = await job_report(agent.project, await _job(agent, wanted.job_id))
        facts: dict[FactName, str | float | None] = {
            "job_id": identifier(report.id),
            "status": words_among(report.status, STATUSES),
        }
        return ToolAnswer(facts=facts, text=_lines([report]), source=Words("a report, which may quote web pages"))
    found = await job_reports(agent.project, agent.caller, limit=wanted.limit, after=wanted.cursor)
    short = [{name: getattr(job, name) for name in JOB_FIELDS} for job in found.jobs]
    return ToolAnswer(
        facts={"jobs": len(short), "next_cursor": identifier(found.next) if found.next is not None else None},
        words=Words("") if short else Words("There are no jobs."),
        text=_lines(short),
        source=Words("a list of jobs"),
    )


async def job_results(agent: Agent, wanted: JobResults) -> ToolAnswer:
    job = await _job(agent, wanted.job_id)
    facts: dict[FactName, str | float | None] = {"job_id": identifier(job.id), "ended": is_ended(job)}
    pages = await wanted_pages(agent.project, job)
    if pages:
        found = await agent.pages.outcomes(job, pages[wanted.cursor : wanted.cursor + wanted.limit])
        end = wanted.cursor + len(found)
        following, lines = end if end < len(pages) else None, _lines(found)
    elif not (agent.caller.may(RECORDS) or agent.caller.may(JOBS)):
        raise ToolFailed(Words("The job is a crawl. Its records are for keys with the scope records or jobs."))
    else:
        query = await query_of(agent.project, RecordFilter(job=job.id))
        page = await record_page(agent.project, agent.caller, query, limit=wanted.limit, after=wanted.cursor)
        following, lines = int(page.next) if page.next is not None else None, _lines(page.records)
    if not lines:
        nothing, yet = Words("The job has given nothing: see job_status."), Words("Nothing is stored yet.")
        return ToolAnswer(facts={**facts, "next_cursor": None}, words=nothing if is_ended(job) else yet)
    return ToolAnswer(facts={**facts, "next_cursor": following}, text=lines, source=Words("the pages of a job"))


async def job_cancel(agent: Agent, wanted: JobCancel) -> ToolAnswer:
    job = await _job(agent, wanted.job_id, to_change=True)
    if is_ended(job):
        raise ToolFailed(Words("The job has ended already: there is nothing to cancel."))
    await cancel_job(agent.project, job.id)
    words = Words("What it has stored stays.")
    return ToolAnswer(facts={"job_id": identifier(job.id), "status": Words("cancelled")}, words=words)


async def _job(agent: Agent, id: str, *, to_change: bool = False) -> Job:
    found = await job_for(agent.project, agent.caller, id, to_change=to_change)
    if found is None:
        raise ToolFailed(Words("There is no job of this id for your key: see job_status."))
    return found


# -- data ----------------------------------------------------------------------------------------------------------


async def query_records(agent: Agent, wanted: QueryRecords) -> ToolAnswer:
    chosen = RecordFilter(
        type=wanted.type, spider=wanted.spider, site=wanted.site, since=wanted.since, gone=wanted.gone
    )
    query = await query_of(agent.project, chosen)
    page = await record_page(agent.project, agent.caller, query, limit=wanted.limit, after=wanted.cursor)
    facts: dict[FactName, str | float | None] = {
        "records": len(page.records),
        "next_cursor": int(page.next) if page.next is not None else None,
    }
    if not page.records:
        return ToolAnswer(facts=facts, words=Words("No record fits. `stats` names the types that there are."))
    return ToolAnswer(facts=facts, text=_lines(page.records), source=STORED)


async def record_history(agent: Agent, wanted: RecordHistoryAsked) -> ToolAnswer:
    found = await seen_history(
        agent.project, agent.caller, wanted.key, type=wanted.type, site=wanted.site, limit=wanted.limit
    )
    if not found:
        raise ToolFailed(Words("There is no record with this key or address. query_records lists records."))
    return ToolAnswer(facts={"records": len(found)}, text=_lines(found), source=STORED)


async def why(agent: Agent, wanted: Why) -> ToolAnswer:
    story = await seen_story(agent.project, agent.caller, wanted.url)
    unknown = Words("Nobody has asked for this address: it was no seed, and no spider found it.")
    return ToolAnswer(
        facts={"url": story.url, "known": story.known},
        words=Words("") if story.known else unknown,
        text=_lines([story]),
        source=Words("the log of a URL, which quotes web pages"),
    )


async def healing(agent: Agent, wanted: HealingAsked) -> ToolAnswer:
    project, caller = agent.project, agent.caller
    source = Words("the evidence for rules, which quotes web pages")
    if wanted.spider is None:
        found: list[Any] = list(await rules.list_healings(project, caller, rules.HealingQuery()))
        return ToolAnswer(text=_lines(found), source=source, words=Words("") if found else Words("No new layout."))
    if wanted.action == "undo":
        value: Any = await rules.undo_healing(project, caller, rules.HealingUndo(spider=wanted.spider))
    elif wanted.action == "apply":
        value = await rules.apply_healing(
            project, caller, rules.HealingApply(spider=wanted.spider, fields=wanted.fields)
        )
    else:
        look = rules.learn_healing if wanted.action == "learn" else rules.show_healing
        value = await look(project, caller, rules.HealingOf(spider=wanted.spider))
    return ToolAnswer(text=_lines([value]), source=source)


async def stats(agent: Agent, wanted: StatsAsked) -> ToolAnswer:
    project = agent.project
    workers = await list_workers(project)
    spiders = await catalogue(project)
    found = await job_reports(project, agent.caller, limit=100)
    states = dict(Counter(job.status for job in found.jobs))
    value = {
        "at": iso_time(project.clock.now()),
        "workers": sum(not worker.missing for worker in workers),
        "jobs": states | ({"more": 1} if found.next is not None else {}),
        "record_types": sorted({shape.type for shape in await schemas(project)}),
        "spiders": [{"name": one.name, "summary": one.summary[:200]} for one in spiders],
    }
    return ToolAnswer(text=_lines([value]), source=Words("the project"))


async def _check_served(agent: Agent) -> None:
    clock = agent.project.clock
    while not await is_served(agent.project):
        if clock.monotonic() >= agent.worker_by:
            raise ToolFailed(NO_WORKER)
        await clock.sleep(STARTING_LOOK)


# -- the list ------------------------------------------------------------------------------------------------------


class Tool(msgspec.Struct, frozen=True):
    """A key needs one of `scopes`. Tools that write or send requests are noted in the audit log."""

    name: str
    words: str
    arguments: type[msgspec.Struct]
    run: Callable[[Agent, Any], Awaitable[ToolAnswer]]  # Any: the struct of `arguments`
    scopes: tuple[str, ...]
    writes: bool = False
    destroys: bool = False
    reaches_out: bool = False  # to web sites

    @property
    def is_noted(self) -> bool:
        return self.writes or self.reaches_out

    def is_open_to(self, caller: Caller) -> bool:
        return any(map(caller.may, self.scopes))

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        found: dict[str, Any] = msgspec.json.schema_components([self.arguments])[1][self.arguments.__name__]
        return {key: value for key, value in found.items() if key not in ("title", "description")}


TOOLS = (
    Tool("scrape", "Fetch one page politely and read it. A long page comes in pieces: ask again with next_offset.",
         Scrape, scrape, (SCRAPE,), reaches_out=True),
    Tool("map", "List the addresses of a site, from its sitemaps and the links of the page.",
         Map, map_tool, (SCRAPE,), reaches_out=True),
    Tool("crawl_start", "Start a crawl of a site (url) or of a spider. Returns at once with a job_id.",
         CrawlStart, crawl_start, (JOBS,), writes=True, reaches_out=True),
    Tool("job_status", "The status of a job: pages done, failed, open, rate, ETA. Without job_id: the newest jobs.",
         JobStatusQuery, job_status, (JOBS, SCRAPE)),
    Tool("job_results", "The results of a job as JSON lines: records of a crawl, pages of a scrape.",
         JobResults, job_results, (RECORDS, JOBS, SCRAPE)),
    Tool("job_cancel", "Cancel a job. What it has stored stays.",
         JobCancel, job_cancel, (JOBS,), writes=True, destroys=True),
    Tool("query_records", "Stored records by type, spider, site, time, as JSON lines.",
         QueryRecords, query_records, (RECORDS,)),
    Tool("record_history", "Every version of a record: what changed, and when.",
         RecordHistoryAsked, record_history, (RECORDS,)),
    Tool("why", "The story of a URL: who found it, what was tried, why it is missing.",
         Why, why, (RECORDS, JOBS)),
    Tool("healing", "New rules for recipes whose site has a new layout: evidence, apply, undo. No request is made.",
         HealingAsked, healing, (ADMIN,), writes=True),
    Tool("stats", "The project at a glance: workers, jobs, record types, spiders.",
         StatsAsked, stats, (RECORDS, JOBS)),
)  # fmt: skip


# -- texts ---------------------------------------------------------------------------------------------------------


def _text_of(value: Any) -> str:  # Any: what a format holds
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        return "\n".join(str(one) for one in value)
    return encode(value).decode()


def _lines(values: list[Any]) -> str:  # Any: whatever can be JSON
    return "\n".join(encode(value).decode() for value in values)


def arguments_of(tool: Tool, arguments: dict[str, Any] | None) -> Any:  # Any: the struct of the tool
    """The arguments as a struct. Raises ToolFailed, which names the wrong field."""
    try:
        return msgspec.convert(arguments or {}, tool.arguments, strict=True)
    except msgspec.ValidationError as error:
        names = ", ".join(tool.arguments.__struct_fields__)
        raise ToolFailed(Words("The arguments do not fit this tool."), f"{error}. Its fields: {names}.") from error
