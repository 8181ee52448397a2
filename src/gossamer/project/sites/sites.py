"""The queue by site: how many pages wait for each, and why; everything about one site; slow it down, let it rest,
resume it.

What it does: combines the queues of all running jobs by site. To slow a site down or let it rest is to override its
settings (overrides.py).
How it fails: Misconfigured for an invalid domain, rate or duration; BackendUnavailable.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import msgspec

from ...clock import iso_time
from ...errors import BackendUnavailable, InvalidUrl, Misconfigured
from ...frontier.contract import DeadFilter, SiteFacts, SiteLoad
from ...frontier.learned_pace import longest
from ...frontier.limits import NO_LIMITS, SiteCondition, SiteLimits, condition_of, limits_of
from ...model.job import Job
from ...model.task import NO_ROOM_FROM
from ...model.url import origin_of, site_of, typed_url
from ...model.windows import is_open, opens_at, parse_windows
from ...settings.overrides import PACE
from ...store.contract import AttemptQuery
from ...terms import routing_of, site_terms
from ...units import Rate, distance, moment, parse_rate, visible
from ..access.keys import Caller
from ..dead_letters.story import ANOTHER_JOB
from ..dead_letters.story_text import learned_words
from ..jobs.forecast import WAITED_FOR
from ..open import Project
from ..overrides import (
    NewOverride,
    OverrideKey,
    OverrideView,
    remove_override,
    rest_of,
    rest_words,
    set_override,
    site_overrides,
)
from .routes import BudgetView, SiteRoute, route_report

JOBS_AT_ONCE = 8  # jobs whose queues are read at the same time
ROBOTS_SHOWN = 64 * 1024  # characters
ATTEMPTS_LOOKED_AT = 200  # to find the hosts of a site

# Why a site waits, as one word each. The first that applies is shown.
PAUSED, WINDOW, ORDERED, AWAY, RESTING, RATE, TURN, WORKER, IN_PROGRESS, NOT_DUE = (
    "paused", "window", "ordered", "away", "resting", "rate", "turn", "worker", "in progress", "not due",
)  # fmt: skip
CAUSES = (PAUSED, WINDOW, ORDERED, AWAY, RESTING, RATE, TURN, WORKER, IN_PROGRESS, NOT_DUE)
SORTS: dict[str, Callable[[SiteQueue], tuple[object, ...]]] = {
    "open": lambda one: (-one.open, one.site),
    "queued": lambda one: (-one.queued, one.site),
    "waiting": lambda one: (-one.waiting, one.site),
    "leased": lambda one: (-one.leased, one.site),
    "site": lambda one: (one.site,),
    "next": lambda one: (one.next_at or "", -one.open, one.site),
}


class SiteQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The open pages of a site, of all jobs, and why they wait."""

    site: str
    open: int
    queued: int  # ready to be handed out
    waiting: int  # until a certain time: a retry, a window, a budget
    leased: int  # in the hands of workers
    jobs: list[str]  # that have pages of it, the largest first
    cause: str  # one of CAUSES
    why: str  # the same in words
    next_at: str | None  # when the next request may leave, by rate, rests and windows

    @property
    def is_held(self) -> bool:
        """Without `next_at`: nobody knows when, instead of at any time."""
        return self.cause in (PAUSED, WINDOW, ORDERED)


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the sites with open pages; the counts are those of all that match."""

    sites: list[SiteQueue]
    total: int  # sites
    open: int
    queued: int
    waiting: int
    leased: int
    by_cause: dict[str, int]  # sites
    next: int | None  # how many to skip for the next page


class JobAtSite(msgspec.Struct, frozen=True, kw_only=True):
    """The open pages of one job at a site."""

    job: str
    queued: int
    waiting: int
    leased: int
    cause: str
    why: str


class RobotsView(msgspec.Struct, frozen=True, kw_only=True):
    """A robots.txt as it was last read."""

    origin: str
    status: int
    text: str
    fetched_at: str
    expires_at: str


class SiteView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about a site now."""

    site: str
    known: bool  # a job has fetched a page of it
    rate: str  # from the settings
    burst: int
    concurrency: int | None
    crawl_delay: float | None  # seconds, as its robots.txt or its responses asked for
    learned: float | None  # seconds between two requests, learned from its refusals (429); shrinks again with time
    learned_in_words: str | None
    refused_at: str | None  # when it last answered that requests are too frequent
    spacing: float | None  # seconds between two requests as now in force; None: no limit
    in_flight: int
    held_by: str | None  # the worker that paces its requests
    answered_at: str | None
    away_since: str | None
    away_reason: str | None
    rests_until: str | None  # by its own request
    windows: str | None
    obeys_robots: bool
    overrides: list[OverrideView]  # what an admin has set by hand for it
    ladder: list[str]  # the routes that its pages may take, in order
    left_out: list[str]  # routes that are not taken, by the settings or by hand
    rests: str | None  # why no request is sent to it, by the settings or by hand
    jobs: list[JobAtSite]
    routes: list[SiteRoute]
    budgets: list[BudgetView]
    dead_reasons: dict[str, int]
    robots: list[RobotsView]

    @property
    def rate_in_words(self) -> str:
        """The rate with its bursts, and whether a job may have its own."""
        bursts = f", in bursts of {self.burst}" if self.burst > 1 else ""
        by_hand = any(one.key == f"domains.{self.site}.rate" for one in self.overrides)
        return f"{self.rate}{bursts}{', set by hand: no job is faster' if by_hand else ', unless a job has its own'}"


# -- the queue -----------------------------------------------------------------------------------------------------


async def queue_by_site(
    project: Project,
    *,
    job: str | None = None,
    cause: str | None = None,
    search: str = "",
    sort: str = "open",
    reverse: bool = False,
    limit: int = 50,
    skip: int = 0,
    sees: Callable[[Job], bool] = lambda job: True,
) -> QueuePage:
    """Sites with open pages of running jobs; those with the most, or with the soonest request, first, unless `reverse`.
    Raises Misconfigured for an unknown cause or sort order."""
    if cause is not None and cause not in CAUSES:
        raise Misconfigured(f"{visible(cause)} is not a cause; there is {', '.join(CAUSES)}.")
    if sort not in SORTS:
        raise Misconfigured(f"Sites cannot be sorted by {visible(sort)}; there is {', '.join(SORTS)}.")
    every = [one for one in await project.state.jobs.running_jobs() if sees(one)]
    jobs, seen = [one for one in every if job in (None, one.id)], {one.id for one in every}
    loads = await _loads(project, jobs)
    by_site: dict[str, list[tuple[Job, SiteLoad]]] = {}
    for one, found in zip(jobs, loads, strict=True):
        for load in found:
            if not search or search.lower() in load.site:
                by_site.setdefault(load.site, []).append((one, _masked(load, seen)))
    now = project.clock.now()
    sites = [_site_queue(project, parts, now) for parts in by_site.values()]
    causes = Counter(one.cause for one in sites)
    sites = sorted((one for one in sites if cause in (None, one.cause)), key=SORTS[sort], reverse=reverse)
    return QueuePage(
        sites=sites[skip : skip + limit],
        total=len(sites),
        **{name: sum(getattr(one, name) for one in sites) for name in ("open", "queued", "waiting", "leased")},
        by_cause={name: causes[name] for name in CAUSES if causes[name]},
        next=skip + limit if skip + limit < len(sites) else None,
    )


async def _loads(project: Project, jobs: Sequence[Job], site: str | None = None) -> list[list[SiteLoad]]:
    room = asyncio.Semaphore(JOBS_AT_ONCE)

    async def ask(job: Job) -> list[SiteLoad]:
        async with room:
            return await project.state.queue.sites(job.id, None, site=site)

    return list(await asyncio.gather(*map(ask, jobs)))


def _masked(load: SiteLoad, seen: Collection[str]) -> SiteLoad:
    """The load without the id of a job that the caller may not see."""
    if load.taken_by is None or load.taken_by in seen:
        return load
    return msgspec.structs.replace(load, taken_by=ANOTHER_JOB)


def _site_queue(project: Project, parts: list[tuple[Job, SiteLoad]], now: float) -> SiteQueue:
    parts = sorted(parts, key=lambda part: _open(part[1]), reverse=True)
    windows = project.settings.domain(parts[0][1].site).windows or ""
    job, load = parts[0]
    limits = limits_of(load.site, site_terms(project.settings)(load.site), job.politeness, condition_of(load, now))
    cause, why = why_it_waits(load, job, rest_words(project, load.site), windows, now, limits)
    queued = sum([load.queued for _, load in parts])
    waiting = sum([load.waiting for _, load in parts])
    leased = sum([load.leased for _, load in parts])
    next_at = _next_at(project, job, load, cause, windows)
    return SiteQueue(
        site=parts[0][1].site,
        open=queued + waiting + leased,
        queued=queued,
        waiting=waiting,
        leased=leased,
        jobs=[job.id for job, _ in parts],
        cause=cause,
        why=why,
        next_at=iso_time(next_at) if next_at is not None and next_at > now else None,
    )


def _next_at(project: Project, job: Job, load: SiteLoad, cause: str, windows: str) -> float | None:
    """When what keeps its pages back ends; None if nobody knows, or nothing does."""
    if cause == ORDERED:
        rest = rest_of(project, load.site)
        return rest.until if rest is not None else None
    if cause == WINDOW:
        now = project.clock.now()
        closed = [found for text in (job.windows, windows) if text and not is_open(found := parse_windows(text), now)]
        return max((at for found in closed if (at := opens_at(found, now)) is not None), default=None)
    if cause == PAUSED:
        return None
    if cause == NOT_DUE and load.due_at is not None and load.due_at < NO_ROOM_FROM:
        return max(load.due_at, load.next_at or 0.0)
    return load.next_at


def _open(load: SiteLoad) -> int:
    return load.queued + load.waiting + load.leased


def why_it_waits(
    load: SiteLoad, job: Job, rests: str, windows: str, now: float, limits: SiteLimits = NO_LIMITS
) -> tuple[str, str]:
    """Why the pages of a job at a site are not all being fetched: a word of CAUSES, and a sentence that names the limit
    that binds. `rests` says why no request is sent to it, "" if that is not so."""
    if job.paused:
        return PAUSED, f"{job.id} is paused"
    for whose, text in ((f"of {job.id}", job.windows), ("of the site", windows)):
        found = parse_windows(text) if text else ()
        if found and not is_open(found, now):
            opens = opens_at(found, now)
            return WINDOW, f"the window {whose} opens {distance(opens, now) if opens is not None else 'never'}"
    if rests:
        return ORDERED, rests
    if load.away_since is not None:
        again = distance(load.next_at, now) if load.next_at is not None and load.next_at > now else "now"
        return AWAY, f"cannot be reached since {moment(load.away_since, now)}; tried again {again}"
    if load.rest_until > now:
        return RESTING, f"it asked to be left alone, until {moment(load.rest_until, now)}"
    if not load.queued:
        if load.leased:
            return IN_PROGRESS, "workers have all that is due"
        what = WAITED_FOR.get(load.reason)
        return NOT_DUE, f"waits for {what}" if what else f"waits for its next try, after {load.reason or 'a failure'}"
    if load.next_at is not None and load.next_at > now:
        by = f" ({limits.rate.words})" if limits.rate is not None else ""
        return RATE, f"its rate allows the next request {distance(load.next_at, now)}{by}"
    if load.taken_by is not None:
        return TURN, f"{load.taken_by} has the site, and jobs take turns there"
    at_once = limits.at_once
    if (full := limits.at_full(load.leased)) is not None:
        return RATE, full.words
    if load.leased or (limits.rate is not None and limits.rate.is_own):
        by = " and ".join(one.words for one in (limits.rate, at_once) if one is not None)
        return RATE, f"workers fetch as fast as its limits allow{f': {by}' if by else ''}"
    return WORKER, "it may be asked at any time: it waits for a worker that is free"


# -- one site ------------------------------------------------------------------------------------------------------


async def site_view(project: Project, domain: str, *, sees: Callable[[Job], bool] = lambda job: True) -> SiteView:
    """Everything known about the site of a domain or URL. Raises Misconfigured if it is neither."""
    site = site_named(domain)
    state, now = project.state, project.clock.now()
    facts = await state.queue.site(site)
    settings, own = project.settings, project.settings.domain(site)
    terms = site_terms(settings)(site)
    asked = facts.asked_interval if facts is not None else None
    learned = facts.learned.now(now) if facts is not None else None
    spacing = terms.spacing(longest(asked, learned))
    condition, rests = _condition(facts, now), rest_words(project, site)
    jobs = [one for one in await state.jobs.running_jobs() if sees(one)]
    parts = [(job, load) for job, loads in zip(jobs, await _loads(project, jobs, site), strict=True) for load in loads]
    report = await route_report(project, site, limit=100)
    return SiteView(
        site=site,
        known=facts is not None,
        rate=str(Rate(terms.interval)),
        burst=terms.burst,
        concurrency=terms.concurrency,
        crawl_delay=asked,
        learned=learned,
        learned_in_words=learned_words(learned) if learned is not None else None,
        refused_at=iso_time(facts.learned.refused_at) if facts is not None and facts.learned.refused_at else None,
        spacing=spacing,
        in_flight=facts.in_flight if facts is not None else 0,
        held_by=(facts.holder or None) if facts is not None else None,
        answered_at=iso_time(facts.answered_at) if facts is not None and facts.answered_at else None,
        away_since=iso_time(facts.away_since) if facts is not None and facts.away_since is not None else None,
        away_reason=(facts.away_reason or None) if facts is not None else None,
        rests_until=iso_time(facts.rest_until) if facts is not None and facts.rest_until > now else None,
        windows=own.windows or None,
        obeys_robots=settings.politeness.robots if own.robots is None else own.robots,
        overrides=site_overrides(project, site),
        ladder=[route.name for route in routing_of(settings).terms_for(site).ladder],
        left_out=list(own.skip),
        rests=rests or None,
        jobs=[
            _at_site(job, load, rests, own.windows or "", now, limits_of(site, terms, job.politeness, condition))
            for job, load in parts
        ],
        routes=report.learned,
        budgets=report.budgets,
        dead_reasons=await state.queue.dead_reasons(DeadFilter(site=site)),
        robots=await _robots(project, site),
    )


def _condition(facts: SiteFacts | None, now: float) -> SiteCondition:
    return SiteCondition(
        asked=facts.asked_interval if facts is not None else None,
        learned=facts.learned.now(now) if facts is not None else None,
        away=facts is not None and facts.away_since is not None,
    )


def _at_site(job: Job, load: SiteLoad, rests: str, windows: str, now: float, limits: SiteLimits) -> JobAtSite:
    cause, why = why_it_waits(load, job, rests, windows, now, limits)
    return JobAtSite(job=job.id, queued=load.queued, waiting=load.waiting, leased=load.leased, cause=cause, why=why)


async def _robots(project: Project, site: str) -> list[RobotsView]:
    """The robots.txt of the site's own host, of its www, and of recently requested hosts, if they have been read."""
    found = []
    usual = [f"{scheme}://{host}" for scheme in ("https", "http") for host in (site, f"www.{site}")]
    for origin in dict.fromkeys((*usual, *await _asked_of_late(project, site))):
        entry = await project.state.robots.get(origin)
        if entry is not None:
            found.append(
                RobotsView(
                    origin=origin,
                    status=entry.status,
                    text=entry.text[:ROBOTS_SHOWN],
                    fetched_at=iso_time(entry.fetched_at),
                    expires_at=iso_time(entry.expires_at),
                )
            )
    return found


async def _asked_of_late(project: Project, site: str) -> list[str]:
    """Origins of the newest attempts at a site; empty while the record store is away."""
    try:
        found = await project.records.attempt_log(AttemptQuery(site=site), limit=ATTEMPTS_LOOKED_AT)
    except BackendUnavailable:
        return []
    return list(dict.fromkeys(origin_of(one.url) for one in found.attempts))


def site_named(domain: str) -> str:
    """The site that a person means by a domain or a URL. Raises Misconfigured."""
    try:
        if domain.startswith((".", "/", "\\")):  # a file path, which a browser would turn into a host
            raise InvalidUrl(domain)
        return site_of(typed_url(domain if "://" in domain else f"http://{domain}/"))
    except InvalidUrl as error:
        raise Misconfigured(f"{visible(domain)} is neither a domain nor a URL.") from error


# -- by hand -------------------------------------------------------------------------------------------------------


async def slow_site(project: Project, caller: Caller, domain: str, rate: str) -> OverrideView:
    """Visit the site at `rate` (6/m) on all workers, whatever jobs and settings say; its own crawl-delay holds. A rest
    stays. Raises Misconfigured."""
    site = site_named(domain)
    try:
        interval = parse_rate(rate).interval
    except ValueError as error:
        raise Misconfigured(f"{error}.") from error
    if interval is None:
        raise Misconfigured("This only slows a site down. `gossamer site resume` lets it go on as the settings say.")
    return await set_override(project, caller, NewOverride(key=f"domains.{site}.rate", value=rate))


async def rest_site(project: Project, caller: Caller, domain: str, duration: str) -> OverrideView:
    """No request to the site for that time (2h). A slower rate stays. Raises Misconfigured."""
    new = NewOverride(key=f"domains.{site_named(domain)}.rest", value="yes", lasts=duration)
    return await set_override(project, caller, new)


async def resume_site(project: Project, caller: Caller, domain: str) -> bool:
    """Remove what was set by hand for the site's pace, and forget its learned pace: the settings and the site itself
    decide again. False if there was neither."""
    site = site_named(domain)
    known = {one.key for one in site_overrides(project, site)}
    found = sorted(known & {f"domains.{site}.{field}" for field in PACE})
    for key in found:
        await remove_override(project, caller, OverrideKey(key=key))
    return await project.state.waiting.forget_pace(site) or bool(found)
