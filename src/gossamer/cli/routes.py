"""`gossamer routes`: what was learned about the ways to each site, and what the budgets have left. `gossamer proxies`:
how healthy the exits of every pool are, and a try of each of them. Both can be made to forget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from ..clock import SystemClock
from ..errors import InvalidUrl, Misconfigured
from ..model.url import site_of, typed_url
from ..project.proxies import ExitTrial, ExitView, PoolView, proxy_pools, reset_exits, try_exits, untouched_pools
from ..project.routes import BudgetView, RouteReport, SiteRoute, reset_routes, route_report, untouched_routes
from ..settings import Settings
from ..units import distance, many, moment, seconds_of, setting_text, size, span, visible
from .app import allow_local, app, ask, ask_at, err, out, run_async, settings_with
from .layout import Column, advise, heading, number, print_facts, print_json, print_table
from .options import JsonOption

SITES_SHOWN = 50
BUDGETS_SHOWN = 20  # on a terminal, of jobs and of sites each
EXITS_SHOWN = 50


class ShowsByDefault(TyperGroup):
    """A group of verbs of which `show` may be left out: `gossamer routes` is `gossamer routes show`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: the class depends on the version of typer
        if not args or (args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx)):
            args = ["show", *args]
        return super().parse_args(ctx, args)


routes_app = typer.Typer(help="The ways to each site that were learned, and the budgets.", cls=ShowsByDefault)
app.add_typer(routes_app, name="routes")
proxies_app = typer.Typer(help="The exits of proxy pools: their health, and whether they work.", cls=ShowsByDefault)
app.add_typer(proxies_app, name="proxies")

SiteArgument = Annotated[str | None, typer.Argument(help="Only this site: shop.example.")]
PoolArgument = Annotated[str | None, typer.Argument(help="Only this pool.")]


# -- routes ------------------------------------------------------------------------------------------------------


@routes_app.command("show")
def show_routes_verb(
    site: SiteArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many sites, the latest first.")] = SITES_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """The route that the pages of each site begin with and why, and what was spent of the budgets."""
    wanted = _typed_site(site) if site is not None else None
    found, now = ask_at(
        lambda project: route_report(project, wanted, limit=limit),
        empty=lambda settings: untouched_routes(settings, wanted, now=SystemClock().now()),
    )
    if as_json:
        print_json(found)
        return
    if wanted is not None:
        _show_site(settings_with(), wanted, found, now)
    else:
        _show_sites(found, now)
    _show_budgets(found)
    if found.standings:
        target = wanted or "SITE"
        advise((f"gossamer routes reset {target}", "forget what was learned, and begin at the cheapest again"))


@routes_app.command("reset")
def reset_routes_verb(
    site: SiteArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All sites.")] = False,
) -> None:
    """Forget what was learned: the next pages begin at the cheapest route again. Budgets stay as they are."""
    if (site is None) != everything:
        raise Misconfigured("Say which: gossamer routes reset SITE, or --all for every site.")
    wanted = _typed_site(site) if site is not None else None

    count = ask(lambda project: reset_routes(project, wanted))
    if not count:
        which = wanted or "any site"
        err.print(f"Nothing was learned about {which}. `gossamer routes` shows what there is.", markup=False)
        raise typer.Exit(1)
    which = wanted or many(count, "site")
    out.print(f"{which} forgotten: the next pages begin at the cheapest route again.", markup=False)


def _typed_site(text: str) -> str:
    try:
        return site_of(typed_url(text if "://" in text else f"http://{text}/"))
    except InvalidUrl:
        raise Misconfigured(f"{visible(text)!r} is no site. Write it like shop.example.") from None


def _show_sites(found: RouteReport, now: float) -> None:
    if not found.standings:
        out.print("No site has blocked so far: every page begins at its cheapest route.")
        return
    print_table(
        (Column("SITE", "bold"), Column("PAGES"), Column("ROUTE", "cyan"), Column("SINCE", spare=True),
         Column("BECAUSE", fold=True), Column("BLOCKS", right=True, spare=True), Column("CHEAPER AGAIN")),
        [
            (one.site, one.pattern or "all others", one.route,
             distance(one.since, now) if out.is_terminal else one.since, one.reason, number(one.blocks),
             _again(one, now))
            for one in found.standings
        ],
    )  # fmt: skip
    if found.more and out.is_terminal:
        out.print("[dim]... and more sites; --limit shows them.[/]")
    if not found.learn:
        out.print("router.learn is off: this was learned before, and pages do not begin there now.")


def _again(learned: SiteRoute, now: float) -> str:
    """When a cheaper route is tried again."""
    if learned.recheck_at is None:
        return ""
    if not out.is_terminal:
        return learned.recheck_at
    return distance(learned.recheck_at, now) if seconds_of(learned.recheck_at) > now else "next page"


def _show_site(settings: Settings, site: str, found: RouteReport, now: float) -> None:
    rule = _rule(settings, site)
    if not found.standings:
        where = "" if rule else ": its pages begin at the cheapest route"
        out.print(f"Nothing was learned about {visible(site)}{where}.", markup=False)
        print_facts([("by the settings", rule)])
        return
    for one in found.standings:
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
    """What gossamer.toml says about the ways to a site, in its own notation."""
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
        (Column("FOR"), Column("SPENT", right=True), Column("LIMIT", right=True), Column("LEFT", right=True)),
        [
            (one.meaning, _credits(one.spent), "none" if one.limit is None else _credits(one.limit),
             "" if one.left is None else _credits(one.left))
            for one in shown
        ],
        indent=2,
    )  # fmt: skip
    if hidden:
        out.print(f"[dim]  ... and {hidden:,} more; --json has all of them.[/]")


# -- proxies -----------------------------------------------------------------------------------------------------


@proxies_app.command("show")
def show_proxies_verb(
    pool: PoolArgument = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many exits of each pool.")] = EXITS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """The health of every exit: does it rest, how often did it succeed, what did it carry, and what did that cost?"""
    pools, now = ask_at(
        lambda project: proxy_pools(project, pool), empty=lambda settings: untouched_pools(settings, pool)
    )
    if as_json:
        print_json(pools)
        return
    if not pools:
        out.print("There are no proxy pools. Write a table [proxies.NAME] in gossamer.toml.", markup=False)
        return
    _show_pools(pools)
    for one in pools:
        _show_exits(one, now, limit)
    if any(one.state in ("resting", "failing") for pool in pools for one in pool.exits):
        advise(
            ("gossamer proxies check", "try every exit now"),
            ("gossamer proxies reset", "end all rests, and forget these figures"),
        )


@proxies_app.command("check")
def check_proxies_verb(
    pool: PoolArgument = None,
    url: Annotated[str | None, typer.Option(help="Fetch this page through each exit.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Try every exit: is it there, does it let us in, and with --url, does the page come? Exit code 1 when none works.

    Nothing of it counts as health: exits that rest go on resting.
    """
    settings = settings_with()
    page = typed_url(url) if url is not None else None
    if page is not None:
        settings = allow_local(settings, [page], {})
    tried = run_async(try_exits(settings, pool, page))
    if as_json:
        print_json(tried)
    else:
        _show_tried(tried)
    if not any(one.ok for one in tried):
        raise typer.Exit(1)


@proxies_app.command("reset")
def reset_proxies_verb(pool: PoolArgument = None) -> None:
    """End the rests of all exits and forget their health; workers that run notice it within seconds."""
    count = ask(lambda project: reset_exits(project, pool))
    out.print(f"{many(count, 'exit')} forgotten: all are as good as new.", markup=False)


def _show_pools(pools: Sequence[PoolView]) -> None:
    print_table(
        (Column("POOL", "bold"), Column("KIND"), Column("EXITS", right=True), Column("RESTING", right=True),
         Column("TRIES", right=True), Column("SUCCESS", "green", right=True), Column("BANS", "red", right=True),
         Column("LATENCY", right=True, spare=True), Column("RECEIVED", right=True), Column("COST", right=True)),
        [
            (one.pool, one.kind, number(one.listed), number(one.resting), number(one.tries),
             _share(one.successes, one.tries), number(one.bans), _latency(one.latency), _received(one.bytes),
             _credits(one.cost))
            for one in pools
        ],
    )  # fmt: skip
    for one in pools:
        if one.trouble is not None:
            err.print(Text(visible(one.trouble), style="yellow"))


def _show_exits(pool: PoolView, now: float, limit: int) -> None:
    if not pool.exits:
        return
    out.print()
    heading(pool.pool)
    print_table(
        (Column("EXIT", "bold"), Column("STATE"), Column("TRIES", right=True), Column("SUCCESS", "green", right=True),
         Column("BANS", "red", right=True), Column("LATENCY", right=True, spare=True),
         Column("RECEIVED", right=True), Column("COST", right=True, spare=True), Column("LAST TROUBLE", fold=True)),
        [_exit_row(one, now) for one in pool.exits[:limit]],
        indent=2,
    )  # fmt: skip
    if len(pool.exits) > limit:
        out.print(f"  ... and {many(len(pool.exits) - limit, 'exit')} more; --limit shows them.", markup=False)


def _exit_row(one: ExitView, now: float) -> tuple[str | None, ...]:
    state = one.state
    if state == "new":
        return one.exit, state, number(0), "", number(0), "", "", "", ""
    if state == "resting" and one.resting_until is not None:
        awake = distance(one.resting_until, now) if out.is_terminal else one.resting_until
        state = f"resting, awake {awake}" if out.is_terminal else f"resting until {awake}"
    return (
        one.exit,
        state,
        number(one.tries),
        _share(one.successes, one.tries),
        number(one.bans),
        _latency(one.latency),
        _received(one.bytes),
        _credits(one.cost),
        one.last_error,
    )


def _show_tried(tried: Sequence[ExitTrial]) -> None:
    print_table(
        (Column("POOL", "bold"), Column("EXIT"), Column("WORKS"), Column("TIME", right=True),
         Column("ANSWER", fold=True)),
        [(one.pool, one.exit, "yes" if one.ok else "no", _latency(one.seconds), one.words) for one in tried],
    )  # fmt: skip
    works = sum(one.ok for one in tried)
    words = f"{works} of {many(len(tried), 'exit')} {'works' if works == 1 else 'work'}."
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
