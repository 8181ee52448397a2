"""`gossamer routes`: what was learned about the ways to each site, what the budgets have left; and how to forget it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

from ..clock import SystemClock, iso_time
from ..errors import InvalidUrl, Misconfigured
from ..model.job import Job
from ..model.url import site_of
from ..project.open import is_crawled
from ..routing.contract import LearnedRoute
from ..settings import Settings
from ..text import distance, many, moment, setting_text, span, visible
from .app import app, err, open_crawled, out, run_async, settings_with
from .groups import ShowsByDefault
from .layout import Column, advise, heading, jsonable, number, print_facts, print_json, print_table
from .typed import typed_url

SITES_SHOWN = 50
BUDGETS_SHOWN = 20  # on a terminal, of jobs and of sites each

routes_app = typer.Typer(help="The ways to each site that were learned, and the budgets.", cls=ShowsByDefault)
app.add_typer(routes_app, name="routes")

SiteArgument = Annotated[str | None, typer.Argument(help="Only this site: shop.example.")]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A purse, what it is for in words, and what may be taken from it in all."""

    purse: str
    meaning: str
    spent: float
    limit: float | None

    @property
    def left(self) -> float | None:
        return None if self.limit is None else max(0.0, round(self.limit - self.spent, 9))


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What the shared state says. `more` tells that there are sites beyond the limit."""

    standings: Sequence[LearnedRoute] = ()
    more: bool = False
    spent: Mapping[str, float] = {}
    jobs: Sequence[Job] = ()
    now: float


@routes_app.command("show")
def show_verb(
    site: SiteArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many sites, the latest first.")] = SITES_SHOWN,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """The route that the pages of each site begin with and why, and what was spent of the budgets."""
    settings = settings_with()
    wanted = _typed_site(site) if site is not None else None
    found = run_async(_find(settings, wanted, limit))
    budgets = budgets_of(settings, found, wanted)
    if as_json:
        _print_json(settings, found, budgets)
        return
    if wanted is not None:
        _show_one(settings, wanted, found)
    else:
        _show_all(settings, found)
    _show_budgets(settings, budgets)
    if found.standings:
        target = wanted or "SITE"
        advise((f"gossamer routes reset {target}", "forget what was learned, and begin at the cheapest again"))


@routes_app.command("reset")
def reset_verb(
    site: SiteArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All sites.")] = False,
) -> None:
    """Forget what was learned: the next pages begin at the cheapest route again. Budgets stay as they are."""
    if (site is None) != everything:
        raise Misconfigured("Say which: gossamer routes reset SITE, or --all for every site.")
    settings = settings_with()
    wanted = _typed_site(site) if site is not None else None

    async def reset() -> int:
        async with open_crawled(settings) as project:
            return await project.state.routes.forget(wanted)

    count = run_async(reset())
    if not count:
        which = wanted or "any site"
        err.print(f"Nothing was learned about {which}. `gossamer routes` shows what there is.", markup=False)
        raise typer.Exit(1)
    which = wanted or many(count, "site")
    out.print(f"{which} forgotten: the next pages begin at the cheapest route again.", markup=False)


def budgets_of(settings: Settings, found: Findings, site: str | None = None) -> list[Budget]:
    """The budgets of today and those of jobs, in the order in which people ask for them; of one site, if named."""
    router, today = settings.router, day_of(found.now)
    day = f"day/{today}"
    budgets = []
    if router.budget_day is not None or day in found.spent:
        spent = found.spent.get(day, 0.0)
        budgets.append(Budget(purse=day, meaning="all of today", spent=spent, limit=router.budget_day))
    if site is None:
        of_jobs = [purse for purse in found.spent if purse.startswith("job/")]
        places = {purse: _job_of(purse, found.jobs) for purse in of_jobs}
        for purse in sorted(of_jobs, key=lambda purse: (places[purse][0], purse)):
            meaning = f"job {places[purse][1]}"
            budgets.append(Budget(purse=purse, meaning=meaning, spent=found.spent[purse], limit=router.budget_job))
    begin = f"domain/{today}/"
    sites = {purse.removeprefix(begin): spent for purse, spent in found.spent.items() if purse.startswith(begin)}
    if site is not None:
        sites = {site: sites.get(site, 0.0)} if site in sites or domain_limit(settings, site) is not None else {}
    for name, spent in sorted(sites.items(), key=lambda pair: (-pair[1], pair[0])):
        limit = domain_limit(settings, name)
        budgets.append(Budget(purse=begin + name, meaning=f"{name}, today", spent=spent, limit=limit))
    return budgets


def day_of(now: float) -> str:
    """The day that a purse is named by, in UTC: 2027-01-31."""
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def domain_limit(settings: Settings, site: str) -> float | None:
    own = settings.domain(site).budget
    return settings.router.budget_domain if own is None else own


def _job_of(purse: str, jobs: Sequence[Job]) -> tuple[int, str]:
    """Where a purse's job stands among all, and its id; the purse names the id, or only the number in it."""
    wanted = purse.removeprefix("job/")
    for place, job in enumerate(jobs):
        if wanted in (job.id, job.id.rpartition("-")[2]):
            return place, job.id
    return len(jobs), wanted


def _typed_site(text: str) -> str:
    try:
        return site_of(typed_url(text if "://" in text else f"http://{text}/"))
    except InvalidUrl:
        raise Misconfigured(f"{visible(text)!r} is no site. Write it like shop.example.") from None


async def _find(settings: Settings, site: str | None, limit: int) -> Findings:
    if not is_crawled(settings):
        return Findings(now=SystemClock().now())
    async with open_crawled(settings) as project:
        if site is None:
            standings = await project.state.routes.learned_routes(limit + 1)
        else:
            known = await project.state.routes.learned(site)
            standings = [known] if known is not None else []
        return Findings(
            standings=standings[:limit],
            more=len(standings) > limit,
            spent=await project.state.purse.spent(),
            jobs=await project.state.jobs.jobs(),
            now=project.clock.now(),
        )


def _show_all(settings: Settings, found: Findings) -> None:
    if not found.standings:
        out.print("No site has blocked so far: every page begins at its cheapest route.")
        return
    now = found.now
    print_table(
        (Column("SITE", "bold"), Column("ROUTE", "cyan"), Column("SINCE", spare=True), Column("BECAUSE", fold=True),
         Column("BLOCKS", right=True, spare=True), Column("CHEAPER AGAIN")),
        [
            (one.site, one.route, distance(one.since, now) if out.is_terminal else iso_time(one.since), one.reason,
             number(one.blocks), _again(one, now))
            for one in found.standings
        ],
    )  # fmt: skip
    if found.more and out.is_terminal:
        out.print("[dim]... and more sites; --limit shows them.[/]")
    if not settings.router.learn:
        out.print("router.learn is off: this was learned before, and pages do not begin there now.")


def _again(standing: LearnedRoute, now: float) -> str:
    """When a cheaper route is tried again."""
    if not standing.recheck_at:
        return ""
    if not out.is_terminal:
        return iso_time(standing.recheck_at)
    return distance(standing.recheck_at, now) if standing.recheck_at > now else "next page"


def _show_one(settings: Settings, site: str, found: Findings) -> None:
    rule = _rule(settings, site)
    if not found.standings:
        where = "" if rule else ": its pages begin at the cheapest route"
        out.print(f"Nothing was learned about {visible(site)}{where}.", markup=False)
        print_facts([("by the settings", rule)])
        return
    (one,) = found.standings
    heading(one.site)
    later = f"; if that fails, once more after {span(one.patience)}" if one.patience else ""
    again = f"from {moment(one.recheck_at, found.now)}{later}" if one.recheck_at else ""
    print_facts(
        [
            ("route", one.route),
            ("since", moment(one.since, found.now)),
            ("because", one.reason),
            ("blocks", number(one.blocks)),
            ("cheaper again", again),
            ("by the settings", rule),
        ]
    )


def _rule(settings: Settings, site: str) -> str:
    """What gossamer.toml says about the ways to a site, in its own notation."""
    own = settings.domain(site)
    rules = [f"route = {own.route}"] if own.route is not None else []
    return ", ".join([*rules, f"ladder = {setting_text(own.ladder)}"] if own.ladder is not None else rules)


def _show_budgets(settings: Settings, budgets: list[Budget]) -> None:
    if not budgets:
        return
    out.print()
    deed = "tasks are buried" if settings.router.when_spent == "bury" else "tasks wait"
    heading("Budgets", f"in tokens; when one is spent, {deed}")
    shown, hidden = budgets, 0
    if out.is_terminal:
        kinds: dict[str, list[Budget]] = {}
        for one in budgets:
            kinds.setdefault(one.purse.partition("/")[0], []).append(one)
        shown = [one for kind in kinds.values() for one in kind[:BUDGETS_SHOWN]]
        hidden = len(budgets) - len(shown)
    print_table(
        (Column("FOR"), Column("SPENT", right=True), Column("LIMIT", right=True), Column("LEFT", right=True)),
        [
            (one.meaning, _tokens(one.spent), "none" if one.limit is None else _tokens(one.limit),
             "" if one.left is None else _tokens(one.left))
            for one in shown
        ],
        indent=2,
    )  # fmt: skip
    if hidden:
        out.print(f"[dim]  ... and {hidden:,} more; --json has all of them.[/]")


def _tokens(amount: float) -> str:
    """`12.5`, `1,234`, `0.0003`; in a pipe without commas and in full."""
    if not out.is_terminal:
        return f"{amount:.9f}".rstrip("0").rstrip(".")
    if 0 < amount < 0.001:
        return f"{amount:.9f}".rstrip("0")
    return f"{amount:,.3f}".rstrip("0").rstrip(".")


def _print_json(settings: Settings, found: Findings, budgets: list[Budget]) -> None:
    standings: list[dict[str, Any]] = []
    for one in found.standings:
        fields = jsonable(one, times=("since", "recheck_at"))
        standings.append({**fields, "recheck_at": fields["recheck_at"] if one.recheck_at else None})
    print_json(
        {
            "learn": settings.router.learn,
            "standings": standings,
            "budgets": [
                {"purse": one.purse, "for": one.meaning, "spent": one.spent, "limit": one.limit, "left": one.left}
                for one in budgets
            ],
            "when_spent": settings.router.when_spent,
        }
    )
