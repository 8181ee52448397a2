"""What a project has learned about the routes to each site, and what it has spent of its budgets.

Every value has the shape that `--json` prints; times are ISO 8601.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from ...clock import iso_time
from ...model.job import Job
from ...model.record import day_of
from ...model.route import BROWSER
from ...model.url import site_of
from ...routing.contract import LearnedRoute
from ...settings import Settings
from ...terms import routing_of
from ..open import Project


class SiteRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route at which the pages of a site start, because the site blocked cheaper ones."""

    site: str
    pattern: str | None  # of their addresses; None: all pages of the site without a row for their pattern
    route: str
    since: str
    reason: str  # the block that led here
    blocks: int
    recheck_at: str | None  # when a cheaper route is tried again
    patience: float  # seconds to wait after that, if it fails again


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """A budget in credits: what was spent, and how much may be spent in total. None means no limit."""

    budget: str  # day/2027-01-31, job/books-1, domain/2027-01-31/shop.example
    meaning: str = msgspec.field(name="for")  # the same, in words
    spent: float
    limit: float | None
    left: float | None
    setting: str  # that says how much


class RouteReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about routes. Pages start at a learned route only if the setting `learn` is on."""

    learn: bool
    learned: list[SiteRoute]  # most recently learned first
    budgets: list[BudgetView]  # of today, of jobs, of sites
    when_spent: str  # wait or bury: what happens to tasks when their budget is spent
    more: bool = False  # whether there are sites beyond the limit


async def route_report(project: Project, site: str | None = None, *, limit: int) -> RouteReport:
    """What was learned about up to `limit` sites, or about one, and the budgets that concern them."""
    if site is None:
        learned = await project.state.routes.learned_routes(limit + 1)
    else:
        learned = await project.state.routes.learned(site)
    budgets = _budgets(
        project.settings,
        await project.state.budgets.spent(),
        await project.state.jobs.jobs(),
        today=day_of(project.clock.now()),
        site=site,
    )
    return _report(project.settings, learned[:limit], budgets, more=len(learned) > limit)


def untouched_routes(settings: Settings, site: str | None = None, *, now: float) -> RouteReport:
    """The report of a project in which nothing has been crawled yet."""
    return _report(settings, (), _budgets(settings, {}, (), today=day_of(now), site=site))


REFUSALS = frozenset({"http-403", "blocked-challenge", "blocked-captcha", "blocked-shell"})
BY_BROWSER = "try it in a browser; if that works, add it as a route"


def only_route(settings: Settings, site: str = "") -> str:
    """The route to a site, or to any that the settings do not name, if there is one only; else ""."""
    ladder = routing_of(settings).terms_for(site).ladder
    return ladder[0].name if len(ladder) == 1 else ""


def probe_of(settings: Settings, url: str, reason: str) -> str | None:
    """The command that tries a page by a browser, if it was refused for this reason and there is no second route to its
    site: a replay would be refused again."""
    if reason not in REFUSALS or only_route(settings, site_of(url)) in ("", BROWSER):
        return None
    return f"gossamer fetch {shlex.quote(url)} --route {BROWSER}"  # URLs are written by strangers


async def reset_routes(project: Project, site: str | None = None) -> int:
    """Delete what was learned about one site, or about all; return about how many. Budgets stay as they are."""
    return await project.state.routes.forget(site)


def _report(
    settings: Settings, learned: Sequence[LearnedRoute], budgets: list[BudgetView], *, more: bool = False
) -> RouteReport:
    return RouteReport(
        learn=settings.router.learn,
        learned=[
            SiteRoute(
                site=one.site,
                pattern=one.pattern or None,
                route=one.route,
                since=iso_time(one.since),
                reason=one.reason,
                blocks=one.blocks,
                recheck_at=iso_time(one.recheck_at) if one.recheck_at else None,
                patience=one.patience,
            )
            for one in learned
        ],
        budgets=budgets,
        when_spent=settings.router.when_spent,
        more=more,
    )


def _budgets(
    settings: Settings, spent: Mapping[str, float], jobs: Sequence[Job], *, today: str, site: str | None
) -> list[BudgetView]:
    """Today's budgets and those of jobs, most interesting first; only those of `site`, if given."""
    router, day = settings.router, f"day/{today}"
    budgets = []
    if router.budget_day is not None or day in spent:
        budgets.append(_budget(day, "all of today", spent.get(day, 0.0), router.budget_day, "router.budget_day"))
    if site is None:
        of_jobs = [budget for budget in spent if budget.startswith("job/")]
        places = {budget: _job_of(budget, jobs) for budget in of_jobs}
        for budget in sorted(of_jobs, key=lambda budget: (places[budget][0], budget)):
            budgets.append(
                _budget(budget, f"job {places[budget][1]}", spent[budget], router.budget_job, "router.budget_job")
            )
    begin = f"domain/{today}/"
    sites = {budget.removeprefix(begin): amount for budget, amount in spent.items() if budget.startswith(begin)}
    if site is not None:
        sites = {site: sites.get(site, 0.0)} if site in sites or _domain_limit(settings, site) is not None else {}
    for name, amount in sorted(sites.items(), key=lambda pair: (-pair[1], pair[0])):
        budgets.append(
            _budget(begin + name, f"{name}, today", amount, _domain_limit(settings, name), f"domains.{name}.budget")
        )
    return budgets


def _budget(name: str, meaning: str, spent: float, limit: float | None, setting: str) -> BudgetView:
    left = None if limit is None else max(0.0, round(limit - spent, 9))
    return BudgetView(budget=name, meaning=meaning, spent=spent, limit=limit, left=left, setting=setting)


def _domain_limit(settings: Settings, site: str) -> float | None:
    own = settings.domain(site).budget
    return settings.router.budget_domain if own is None else own


def _job_of(budget: str, jobs: Sequence[Job]) -> tuple[int, str]:
    """The position of a budget's job among all, and its id; the budget holds the id, or only the number in it."""
    wanted = budget.removeprefix("job/")
    for place, job in enumerate(jobs):
        if wanted in (job.id, job.id.rpartition("-")[2]):
            return place, job.id
    return len(jobs), wanted
