"""Settings in, ways out: the routes of a project, what holds for each site, and the transports behind them.

Part of assembly.py's work, in a file of its own. Whatever is written wrongly about routes is found here, at start.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache, partial
from importlib.util import find_spec
from math import isfinite

import msgspec

from ..clock import Clock
from ..errors import Misconfigured, MissingExtra
from ..fetch.addresses import AddressGuard
from ..fetch.browser.chromium import is_there
from ..fetch.contract import Transport
from ..fetch.http import AiohttpTransport
from ..model.route import BROWSER, HTTP, MANAGED, PROFILE, TRANSPORTS, Route
from ..routing.budget import Budgets
from ..routing.ladder import Terms, chosen_by_hand, ladder_of, routes_of
from ..routing.transports import Opening, Transports
from ..settings import Settings

WHEN_SPENT = ("wait", "bury")


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings say about ways."""

    routes: Mapping[str, Route]
    ladder: tuple[Route, ...]
    terms_for: Callable[[str], Terms]
    budgets_for: Callable[[str], Budgets]
    detects_blocks: Callable[[str], bool]


def routing_of(settings: Settings) -> Routing:
    """Raises Misconfigured for whatever about routes leads nowhere."""
    router, pools = settings.router, settings.proxies
    if router.when_spent not in WHEN_SPENT:
        raise Misconfigured(f"Setting router.when_spent: {router.when_spent!r} is none of {', '.join(WHEN_SPENT)}.")
    routes = routes_of(settings.routes, pools, tuple(settings.managed))
    written = tuple(settings.routes)
    ladder = ladder_of(router.ladder, routes, written, "Setting router.ladder")

    def terms(site: str) -> Terms:
        domain = settings.domain(site)
        rungs = ladder
        if domain.ladder is not None:
            rungs = ladder_of(domain.ladder, routes, written, f"Domain {site}: ladder")
        if domain.route is not None:
            try:
                rungs = chosen_by_hand(domain.route, rungs, routes, pools)
            except Misconfigured as error:
                raise Misconfigured(f"Domain {site}: {error}") from error
        return Terms(
            ladder=rungs,
            learns=router.learn,
            recheck=router.recheck.total_seconds(),
            max_recheck=router.max_recheck.total_seconds(),
        )

    def budgets(site: str) -> Budgets:
        own = settings.domain(site).budget
        return Budgets(
            job=router.budget_job, day=router.budget_day, domain=router.budget_domain if own is None else own
        )

    def detects(site: str) -> bool:
        own = settings.domain(site).detect_blocks
        return settings.fetch.detect_blocks if own is None else own

    for domain in settings.domains:
        terms(domain)  # a wrong name is told now, not when the first page of that domain comes
    _check_budgets(settings, ladder)
    return Routing(
        routes=routes,
        ladder=ladder,
        terms_for=lru_cache(maxsize=20_000)(terms),
        budgets_for=lru_cache(maxsize=20_000)(budgets),
        detects_blocks=lru_cache(maxsize=20_000)(detects),
    )


def _check_budgets(settings: Settings, ladder: tuple[Route, ...]) -> None:
    """A budget that does not pay for one page would let everything wait for ever. Raises Misconfigured."""
    named = {f"router.{name}": getattr(settings.router, name) for name in ("budget_job", "budget_day", "budget_domain")}
    named |= {f"domains.{site}.budget": domain.budget for site, domain in settings.domains.items()}
    max_body = settings.fetch.max_body.bytes
    for name, budget in named.items():
        if budget is None:
            continue
        if not isfinite(budget) or budget <= 0:
            raise Misconfigured(f"Setting {name}: a budget is a number of tokens above 0; none means no bound.")
        for route in ladder:
            if route.cost(max_body) > budget:
                raise Misconfigured(
                    f"Setting {name}: {budget:g} tokens do not pay for one page by route {route.name}, which may cost "
                    f"{route.cost(max_body):g} (price_per_gb counts for fetch.max_body). Raise it, or drop the route."
                )


def check_installed(settings: Settings, routing: Routing, serves: frozenset[str] | None) -> None:
    """Is here what the rungs need that this worker serves? Raises MissingExtra or Misconfigured."""
    rungs = {route for site in ("", *settings.domains) for route in routing.terms_for(site).ladder}
    used = {route.transport for route in rungs if serves is None or route.name in serves or route.transport in serves}
    if PROFILE in used and find_spec("wreq") is None:
        raise MissingExtra("A route needs TLS profiles: pip install 'gossamer[profiles]'.")
    if BROWSER in used:
        missing = is_there(settings.browser.executable)
        if missing is not None:
            raise MissingExtra(f"A route needs a browser. {missing}")


def served(wanted: str, routing: Routing) -> frozenset[str]:
    """`browser,api` from the command line as a set of routes and kinds of transport. Raises Misconfigured."""
    names = frozenset(name.strip() for name in wanted.split(",") if name.strip())
    known = {*TRANSPORTS, *routing.routes}
    for name in sorted(names - known):
        raise Misconfigured(f"There is no route {name!r} to serve. There is {', '.join(sorted(known))}.")
    if not names:
        raise Misconfigured("Say which routes: --routes browser, or a list with commas.")
    return names


def guard_of(settings: Settings) -> AddressGuard:
    return AddressGuard(settings.fetch.allow_private, frozenset(settings.fetch.allow_hosts))


def transports_of(settings: Settings, clock: Clock) -> Transports:
    """Every transport that the settings allow, none of them open yet. Raises Misconfigured."""
    openings: dict[str, Opening] = {
        HTTP: lambda: AiohttpTransport(guard_of(settings)),
        PROFILE: partial(_open_profile, settings),
        BROWSER: partial(_open_browser, settings),
    }
    if settings.managed:
        from ..fetch.managed import ManagedTransport, describe  # few need it, and it takes a while to import
    for name, table in settings.managed.items():
        vendor = describe(name, table, root=settings.root)
        openings[f"{MANAGED}/{name}"] = partial(ManagedTransport, vendor, guard_of(settings), clock)
    return Transports(openings)


def _open_profile(settings: Settings) -> AbstractAsyncContextManager[Transport]:
    from ..fetch.profile import WreqTransport

    return WreqTransport(guard_of(settings))


@asynccontextmanager
async def _open_browser(settings: Settings) -> AsyncIterator[Transport]:
    from ..fetch.browser.transport import BrowserTransport

    async with BrowserTransport(guard_of(settings), settings.browser) as browser:
        yield browser
