"""Which route a page should take, and what is learned from the result. Pure: the router acts on it.

A ladder is a list of routes from cheap to dear. A page begins at the rung that was learned for pages like it
(patterns.py), at first the cheapest. If it is blocked there, it climbs at once, rung by rung; the rung on which it gets
through is where the next pages of that pattern begin. After a while one page tries a rung lower: if that is enough
again, the pattern comes down; if not, the next such attempt comes after twice the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

import msgspec

from ..errors import Misconfigured
from ..model.route import BROWSER, DIRECT, MANAGED, PROFILE, TRANSPORTS, Route
from ..settings import ProxyPool, RouteTable
from .contract import LearnedRoute

EASY, HARD = "easy", "hard"
BUILT_IN = (DIRECT, Route(name=BROWSER, transport=BROWSER, price=5.0))


class RouteTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The routing terms of one site. `ladder` is never empty; `learns` is False if a person has decided."""

    ladder: tuple[Route, ...] = (DIRECT,)
    learns: bool = True
    max_proxies: int = 5  # of a pool that may refuse a page in one visit
    recheck: float = 1800.0  # seconds
    max_recheck: float = 86_400.0

    def place_of(self, route: str) -> int | None:
        return next((place for place, rung in enumerate(self.ladder) if rung.name == route), None)


def first_rung(terms: RouteTerms) -> RouteTerms:
    """The terms for what may use only the first rung."""
    return msgspec.structs.replace(terms, ladder=terms.ladder[:1], learns=False)


class RoutePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The rungs that one page may take, in that order. `probes`: the first is a cheaper one that is tried again."""

    rungs: tuple[Route, ...]
    probes: bool = False


# -- from settings to ladders ------------------------------------------------------------------------------------


def routes_of(
    tables: Mapping[str, RouteTable],
    pools: Mapping[str, ProxyPool],
    vendors: Sequence[str],
    own_transports: Sequence[str] = (),
) -> dict[str, Route]:
    """Every route by name, including the built-in ones. Raises Misconfigured for an invalid table."""
    routes = {route.name: route for route in BUILT_IN}
    for name, table in tables.items():
        _check_table(name, table, pools, vendors, (*TRANSPORTS, *own_transports))
        routes[name] = Route(
            name=name,
            transport=table.transport,
            pool=table.pool or None,
            profile=table.profile or None,
            vendor=table.vendor or None,
            price=table.price,
            price_per_gb=table.price_per_gb,
        )
    return routes


def _check_table(
    name: str,
    table: RouteTable,
    pools: Mapping[str, ProxyPool],
    vendors: Sequence[str],
    transports: Sequence[str],
) -> None:
    def refuse(words: str) -> Misconfigured:
        return Misconfigured(f"Route {name!r} ([routes.{name}]): {words}")

    if name in (EASY, HARD) or (name in TRANSPORTS and name != table.transport):
        raise refuse("that name is reserved; choose another.")
    if table.transport not in transports:
        raise refuse(f"transport = {table.transport!r} must be one of {', '.join(transports)}.")
    if table.pool and table.pool not in pools:
        raise refuse(f"there is no pool [proxies.{table.pool}]. {_known(pools)}")
    if table.transport == MANAGED:
        if table.vendor not in vendors:
            raise refuse(f"vendor = {table.vendor!r} is not a [managed] table. {_known(vendors)}")
        if table.pool:
            raise refuse("a managed API chooses its own proxies; leave out pool.")
    elif table.vendor:
        raise refuse('vendor is for transport = "managed".')
    if table.profile and table.transport != PROFILE:
        raise refuse('profile is for transport = "profile".')
    if table.transport == PROFILE and not table.profile:
        raise refuse('say which: profile = "chrome".')
    if not (isfinite(table.price) and isfinite(table.price_per_gb) and table.price >= 0 and table.price_per_gb >= 0):
        raise refuse("prices are 0 or more.")


def _known(names: Mapping[str, object] | Sequence[str]) -> str:
    return f"Known: {', '.join(names)}." if names else "There is none yet."


def ladder_of(
    names: Sequence[str], routes: Mapping[str, Route], written: Sequence[str], where: str
) -> tuple[Route, ...]:
    """The named rungs; without names, `direct` and the routes `written` in the settings, cheapest first.

    Raises Misconfigured for an unknown route."""
    if not names:
        rungs = [DIRECT, *(routes[name] for name in written if name != DIRECT.name)]
        if DIRECT.name in written:
            rungs[0] = routes[DIRECT.name]
        return tuple(sorted(rungs, key=lambda rung: (rung.price, rung.price_per_gb)))
    for name in names:
        if name not in routes:
            raise Misconfigured(f"{where}: there is no route {name!r}. Known: {', '.join(routes)}.")
    return tuple(routes[name] for name in dict.fromkeys(names))


def chosen_by_hand(
    rule: str, ladder: tuple[Route, ...], routes: Mapping[str, Route], pools: Mapping[str, ProxyPool]
) -> tuple[Route, ...]:
    """The rungs that `route = ...` of a domain leaves: easy, hard, or one route that is always taken.

    Raises Misconfigured."""
    if rule == EASY:
        return ladder[:1]
    if rule == HARD:
        first = next((place for place, rung in enumerate(ladder) if _is_hard(rung, pools)), len(ladder) - 1)
        return ladder[first:]
    if rule not in routes:
        raise Misconfigured(f"route = {rule!r} is neither easy nor hard nor a route. Known: {', '.join(routes)}.")
    return (routes[rule],)


def _is_hard(rung: Route, pools: Mapping[str, ProxyPool]) -> bool:
    return rung.renders or (rung.pool is not None and pools[rung.pool].kind == "residential")


def wished(
    ladder: tuple[Route, ...], routes: Mapping[str, Route], *, fetcher: str | None, pool: str | None
) -> tuple[Route, ...]:
    """The rungs that are left if the spider names a fetcher (a route, or a kind of transport) or a pool.

    Raises Misconfigured if there is no such route or pool."""
    rungs = ladder
    if fetcher is not None:
        rungs = tuple(rung for rung in ladder if rung.transport == fetcher)
        if not rungs and fetcher not in routes:
            raise Misconfigured(f"There is no route {fetcher!r}. Known: {', '.join(routes)}.")
        if not rungs or fetcher not in TRANSPORTS:
            rungs = (routes[fetcher],)
            if rungs[0] in BUILT_IN and all(rung.pool is not None for rung in ladder if rung.transport != MANAGED):
                # If every rung leaves through a pool, rendering a page must not leave directly.
                pooled = next((rung.pool for rung in ladder if rung.pool is not None), None)
                rungs = rungs if pooled is None else (_through(rungs[0], pooled),)
    if pool is not None:
        own = tuple(rung for rung in rungs if rung.pool == pool)
        rungs = own or tuple(_through(rung, pool) for rung in rungs if rung.transport != MANAGED)[:1]
        if not rungs:
            raise Misconfigured(f"proxy_pool = {pool!r} cannot be used with a managed API, which has its own proxies.")
    return rungs


def _through(rung: Route, pool: str) -> Route:
    return msgspec.structs.replace(rung, name=f"{rung.name}+{pool}" if rung.name != DIRECT.name else pool, pool=pool)


# -- one page ------------------------------------------------------------------------------------------------------


def plan(terms: RouteTerms, learned: LearnedRoute | None, *, may_probe: bool = False) -> RoutePlan:
    """Where a page begins, and how it may go on. `may_probe`: this worker has won the right to try a cheaper rung."""
    begin = terms.place_of(learned.route) if learned is not None and terms.learns else None
    if begin is None:
        return RoutePlan(rungs=terms.ladder)
    if may_probe and begin > 0:
        return RoutePlan(rungs=terms.ladder[begin - 1 :], probes=True)
    return RoutePlan(rungs=terms.ladder[begin:])


def wants_probe(terms: RouteTerms, learned: LearnedRoute | None, now: float) -> bool:
    """Is it time to check whether a cheaper rung is enough again?"""
    if learned is None or not terms.learns or now < learned.recheck_at:
        return False
    return (terms.place_of(learned.route) or 0) > 0


def claim(terms: RouteTerms, learned: LearnedRoute, now: float) -> LearnedRoute:
    """The row while one page tries a cheaper rung, and afterwards if that fails: the next such attempt comes after
    twice the time."""
    patience = min(max(learned.patience, terms.recheck) * 2, terms.max_recheck)
    return msgspec.structs.replace(learned, recheck_at=now + patience, patience=patience)


def handed_over(terms: RouteTerms, chosen: RoutePlan, route: str) -> RoutePlan:
    """The plan of a page that had climbed to `route` when it was handed over, or had to wait: it continues there."""
    place = terms.place_of(route)
    if place is None or terms.ladder[place] not in chosen.rungs:
        return chosen  # the ladder has changed, or the site is known to need more by now
    return RoutePlan(rungs=terms.ladder[place:])


def next_rung(rungs: Sequence[Route], blocked: int, reason: str) -> int | None:
    """The rung to climb to from the one that was blocked; None if no rung could help.

    Scripts fill a shell: only a route that runs them can help. A site that shows a challenge may let other visitors
    pass.
    """
    for place in range(blocked + 1, len(rungs)):
        if reason != "shell" or rungs[place].renders:
            return place
    return None


def after_climb(
    terms: RouteTerms,
    learned: LearnedRoute | None,
    *,
    site: str,
    route: Route,
    reason: str,
    now: float,
    pattern: str = "",
) -> LearnedRoute | None:
    """The row for a pattern after a page got through on `route` and was blocked below. None: nothing new."""
    place = terms.place_of(route.name)
    if not terms.learns or place is None:
        return None
    held = terms.place_of(learned.route) if learned is not None else 0
    if held is not None and place <= held:
        return None
    return LearnedRoute(
        site=site,
        route=route.name,
        since=now,
        pattern=pattern,
        reason=reason,
        blocks=(learned.blocks if learned is not None else 0) + 1,
        recheck_at=now + terms.recheck,
        patience=terms.recheck,
    )


def after_probe(terms: RouteTerms, learned: LearnedRoute, route: Route, now: float) -> LearnedRoute:
    """The cheaper rung was enough: the pattern comes down, and may come down further."""
    return LearnedRoute(
        site=learned.site,
        pattern=learned.pattern,
        route=route.name,
        since=now,
        reason="a cheaper route is enough again",
        blocks=learned.blocks,
        recheck_at=now + terms.recheck,
        patience=terms.recheck,
    )


def after_comparison(
    terms: RouteTerms, learned: LearnedRoute, cheaper: Route, now: float, pattern: str
) -> LearnedRoute:
    """The dear route did no better than the cheaper one: pages of the pattern begin there again."""
    row = after_probe(terms, learned, cheaper, now)
    return msgspec.structs.replace(row, pattern=pattern, reason=f"{learned.route} did no better")
