"""`gossamer routes`: the routes learned for each site, and what is left of the budgets. `gossamer proxies`: the health
of the proxies of every pool, and a test of each. Both can be reset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from ..clock import SystemClock
from ..errors import InvalidUrl, Misconfigured
from ..model.url import site_of, typed_url
from ..project.sites.proxies import (
    PoolView,
    ProxyTrial,
    ProxyView,
    proxy_pools,
    reset_proxies,
    try_proxies,
    untouched_pools,
)
from ..project.sites.routes import (
    BudgetView,
    RouteReport,
    SiteRoute,
    only_route,
    reset_routes,
    route_report,
    untouched_routes,
)
from ..settings import Settings
from ..units import distance, many, moment, seconds_of, setting_text, size, span, visible
from .app import allow_local, app, ask, ask_at, err, out, run_async, settings_with
from .layout import Column, advise, answer_program, heading, number, print_facts, print_json, print_table, section, warn
from .options import JsonOption

SITES_SHOWN = 50
BUDGETS_SHOWN = 20  # jobs and sites each, on a terminal
PROXIES_SHOWN = 50


class ShowsByDefault(TyperGroup):
    """A group of verbs in which `show` is the default: `gossamer routes` is `gossamer routes show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: the class depends on the version of typer
        if not args or (args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx)):
            args = ["show", *args]
        return super().parse_args(ctx, args)


routes_app = typer.Typer(help="The routes learned for each site, and the budgets.", cls=ShowsByDefault)
app.add_typer(routes_app, name="routes")
proxies_app = typer.Typer(help="The proxies of proxy pools: show, check, reset.", cls=ShowsByDefault)
app.add_typer(proxies_app, name="proxies")

SiteArgument = Annotated[str | None, typer.Argument(help="Only this site: shop.example.")]
PoolArgument = Annotated[str | None, typer.Argument(help="Only this pool.")]


# -- routes ------------------------------------------------------------------------------------------------------


@routes_app.command("show")
def show_routes_verb(
    site: SiteArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many sites, latest first.")] = SITES_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """Show the route that each site's pages start with and why, and how much of the budgets is spent."""
    wanted = _typed_site(site) if site is not None else None
    found, now = ask_at(
        lambda project: route_report(project, wanted, limit=limit),
        empty=lambda settings: untouched_routes(settings, wanted, now=SystemClock().now()),
    )
    answer_program(found, as_json)
    if wanted is not None:
        _show_site(settings_with(), wanted, found, now)
    else:
        _show_sites(found, now)
    _show_budgets(found)
    if found.learned:
        target = wanted or "SITE"
        advise((f"gossamer routes reset {target}", "forget this, and start at the cheapest route again"))


@routes_app.command("reset")
def reset_routes_verb(
    site: SiteArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All sites.")] = False,
) -> None:
    """Forget learned routes: the next pages start at the cheapest route again. Budgets are not changed."""
    if (site is None) != everything:
        raise Misconfigured("Name the site: gossamer routes reset SITE, or --all for every site.")
    wanted = _typed_site(site) if site is not None else None

    count = ask(lambda project: reset_routes(project, wanted))
    if not count:
        which = wanted or "any site"
        err.print(f"Nothing was learned about {which}. See `gossamer routes`.", markup=False)
        raise typer.Exit(1)
    which = wanted or many(count, "site")
    out.print(f"{which} forgotten: the next pages start at the cheapest route again.", markup=False)


def _typed_site(text: str) -> str:
    try:
        return site_of(typed_url(text if "://" in text else f"http://{text}/"))
    except InvalidUrl:
        raise Misconfigured(f"{visible(text)!r} is not a site. Write it like shop.example.") from None


def _show_sites(found: RouteReport, now: float) -> None:
    if not found.learned:
        out.print("No dearer route was learned for any site: every page starts at its cheapest route.")
        if name := only_route(settings_with()):
            out.print(f"There is one route, {name}. docs/routes.md says how to add others.", markup=False)
        return
    print_table(
        (Column("SITE", "bold"), Column("PAGES"), Column("ROUTE", "cyan"), Column("SINCE", spare=True),
         Column("BECAUSE", fold=True), Column("BLOCKS", right=True, spare=True), Column("CHEAPER AGAIN")),
        [
            (one.site, one.pattern or "all others", one.route,
             distance(one.since, now) if out.is_terminal else one.since, one.reason, number(one.blocks),
             _again(one, now))
            for one in found.learned
        ],
    )  # fmt: skip
    if found.more and out.is_terminal:
        out.print(Text("... and more sites; --limit shows them.", "dim"))
    if not found.learn:
        out.print("router.learn is off: these routes were learned earlier and are not used.")


def _again(learned: SiteRoute, now: float) -> str:
    """When a cheaper route is tried again."""
    if learned.recheck_at is None:
        return ""
    if not out.is_terminal:
        return learned.recheck_at
    return distance(learned.recheck_at, now) if seconds_of(learned.recheck_at) > now else "next page"


def _show_site(settings: Settings, site: str, found: RouteReport, now: float) -> None:
    rule = _rule(settings, site)
    if not found.learned:
        where = "" if rule else ": its pages start at the cheapest route"
        out.print(f"Nothing was learned about {visible(site)}{where}.", markup=False)
        print_facts([("by the settings", rule)])
        return
    for one in found.learned:
        heading(one.site, one.pattern or "")
        later = f"; if that fails, once more after {span(one.patience)}" if one.patience else ""
        again = f"from {moment(one.recheck_at, now)}{later}" if one.recheck_at is not None else ""
        print_facts(
            [
                ("route", one.route),
                ("since", moment(one.since, now)),
                ("because", one.reason),
                ("blocks", number(one.blocks)),
                ("cheaper again", again),
                ("by the settings", rule),
            ]
        )


def _rule(settings: Settings, site: str) -> str:
    """What gossamer.toml says about the routes of a site, in its notation."""
    own = settings.domain(site)
    rules = [f"route = {own.route}"] if own.route is not None else []
    return ", ".join([*rules, f"ladder = {setting_text(own.ladder)}"] if own.ladder is not None else rules)


def _show_budgets(found: RouteReport) -> None:
    if not found.budgets:
        return
    out.print()
    deed = "tasks are buried" if found.when_spent == "bury" else "tasks wait"
    heading("Budgets", f"in credits; when one is spent, {deed}")
    shown, hidden = found.budgets, 0
    if out.is_terminal:
        kinds: dict[str, list[BudgetView]] = {}
        for one in found.budgets:
            kinds.setdefault(one.budget.partition("/")[0], []).append(one)
        shown = [one for kind in kinds.values() for one in kind[:BUDGETS_SHOWN]]
        hidden = len(found.budgets) - len(shown)
    print_table(
        (Column("FOR"), Column("SPENT", right=True), Column("LIMIT", right=True), Column("REMAINING", right=True)),
        [
            (one.meaning, _credits(one.spent), "none" if one.limit is None else _credits(one.limit),
             "" if one.left is None else _credits(one.left))
            for one in shown
        ],
        indent=2,
    )  # fmt: skip
    if hidden:
        out.print(Text(f"  ... and {hidden:,} more; --json has all of them.", "dim"))


# -- proxies -----------------------------------------------------------------------------------------------------


@proxies_app.command("show")
def show_proxies_verb(
    pool: PoolArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many proxies of each pool.")] = PROXIES_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """Show the health of every proxy: whether it rests, its success rate, its traffic and cost."""
    pools, now = ask_at(
        lambda project: proxy_pools(project, pool), empty=lambda settings: untouched_pools(settings, pool)
    )
    answer_program(pools, as_json)
    if not pools:
        out.print("There are no proxy pools. Add a table [proxies.NAME] to gossamer.toml.", markup=False)
        return
    _show_pools(pools)
    for one in pools:
        _show_proxies(one, now, limit)
    if any(one.state in ("resting", "failing") for pool in pools for one in pool.proxies):
        advise(
            ("gossamer proxies check", "try every proxy now"),
            ("gossamer proxies reset", "end all rests, and forget these figures"),
        )


@proxies_app.command("check")
def check_proxies_verb(
    pool: PoolArgument = None,
    url: Annotated[str | None, typer.Option(help="Fetch this page through each proxy.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Test every proxy: can it be reached, does it accept us, and does it deliver the page of --url? Exit code 1 if
    none works.

    This does not change the health of proxies: resting ones keep resting.
    """
    settings = settings_with()
    page = typed_url(url) if url is not None else None
    if page is not None:
        settings = allow_local(settings, [page], {})
    tried = run_async(try_proxies(settings, pool, page))
    if as_json:
        print_json(tried)
    else:
        _show_tried(tried)
    if not any(one.ok for one in tried):
        raise typer.Exit(1)


@proxies_app.command("reset")
def reset_proxies_verb(pool: PoolArgument = None) -> None:
    """End the rest of all proxies and forget their health; running workers notice within seconds."""
    count = ask(lambda project: reset_proxies(project, pool))
    out.print(f"{many(count, 'proxy', 'proxies')} forgotten: all proxies count as new.", markup=False)


def _show_pools(pools: Sequence[PoolView]) -> None:
    print_table(
        (Column("POOL", "bold"), Column("KIND"), Column("PROXIES", right=True), Column("RESTING", right=True),
         Column("TRIES", right=True), Column("SUCCESS", "green", right=True), Column("BANS", "red", right=True),
         Column("LATENCY", right=True, spare=True), Column("RECEIVED", right=True), Column("COST", right=True)),
        [
            (one.pool, one.kind, number(one.listed), one.resting_in_words, number(one.tries),
             _share(one.successes, one.tries), number(one.bans), _latency(one.latency), _received(one.bytes),
             _credits(one.cost))
            for one in pools
        ],
    )  # fmt: skip
    for one in pools:
        if one.trouble is not None:
            warn(one.trouble)


def _show_proxies(pool: PoolView, now: float, limit: int) -> None:
    if not pool.proxies:
        return
    section(pool.pool)
    print_table(
        (Column("PROXY", "bold"), Column("STATE"), Column("TRIES", right=True), Column("SUCCESS", "green", right=True),
         Column("BANS", "red", right=True), Column("LATENCY", right=True, spare=True),
         Column("RECEIVED", right=True), Column("COST", right=True, spare=True), Column("LAST TROUBLE", fold=True)),
        [_proxy_row(one, now) for one in pool.proxies[:limit]],
        indent=2,
    )  # fmt: skip
    if len(pool.proxies) > limit:
        out.print(f"  ... and {many(len(pool.proxies) - limit, 'proxy')} more; --limit shows them.", markup=False)


def _proxy_row(one: ProxyView, now: float) -> tuple[str | None, ...]:
    state = one.state
    if state == "new":
        return one.proxy, state, number(0), "", number(0), "", "", "", ""
    if state == "resting" and one.resting_until is not None:
        awake = distance(one.resting_until, now) if out.is_terminal else one.resting_until
        state = f"resting, awake {awake}" if out.is_terminal else f"resting until {awake}"
    elif one.resting_for:
        state = f"{state}, rests for {', '.join(one.resting_for)}"
    return (
        one.proxy,
        state,
        number(one.tries),
        _share(one.successes, one.tries),
        number(one.bans),
        _latency(one.latency),
        _received(one.bytes),
        _credits(one.cost),
        one.last_error,
    )


def _show_tried(tried: Sequence[ProxyTrial]) -> None:
    print_table(
        (Column("POOL", "bold"), Column("PROXY"), Column("WORKS"), Column("TIME", right=True),
         Column("ANSWER", fold=True)),
        [(one.pool, one.proxy, "yes" if one.ok else "no", _latency(one.seconds), one.words) for one in tried],
    )  # fmt: skip
    works = sum(one.ok for one in tried)
    words = f"{works} of {many(len(tried), 'proxy', 'proxies')} {'works' if works == 1 else 'work'}."
    err.print(Text(words, style="green" if works == len(tried) else "yellow" if works else "red"))


# -- figures -----------------------------------------------------------------------------------------------------


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _latency(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms" if seconds < 1 else span(seconds)


def _received(count: int) -> str:
    return size(count) if out.is_terminal else str(count)


def _credits(amount: float) -> str:
    """`12.5`, `1,234`, `0.0003`; in a pipe without commas and in full."""
    if not out.is_terminal:
        return f"{amount:.9f}".rstrip("0").rstrip(".")
    if 0 < amount < 0.001:
        return f"{amount:.9f}".rstrip("0")
    return f"{amount:,.3f}".rstrip("0").rstrip(".")
