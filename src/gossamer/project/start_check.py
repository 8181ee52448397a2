"""Refuses, before a crawl starts, what can never work.

Routes and budgets that lead nowhere, a spider's wish that no route fulfils or no budget can pay for, a proxy at a
forbidden address, settings for a site that does not exist. Problems that may pass (a proxy that does not answer,
today's budget) are left to the crawl.
How it fails: Misconfigured, with what to change. Settings are read when a command starts: fix them and start it again.
"""

from __future__ import annotations

import os

from ..errors import AddressRefused, Misconfigured
from ..fetch.addresses import AddressGuard
from ..fetch.profiles import OWN_HEADERS
from ..model.route import Proxy, Route
from ..model.url import is_literal
from ..parse.spider import Spider
from ..routing.ladder import wished
from ..routing.proxies.gateway import open_gateway
from ..routing.proxies.sources import listed_proxies
from ..settings import Settings
from ..terms import Routing, header_defaults, routing_of
from .sites.domain_names import domain_fault


def check_start(settings: Settings, spider: Spider) -> None:
    """Raises Misconfigured if a crawl of this spider could never get a page, or not as the settings want it."""
    for name in settings.domains:
        if fault := domain_fault(name):
            raise Misconfigured(fault)
    routing = routing_of(settings)
    rungs = _wished(settings, spider, routing) or routing.ladder
    ladders = [rungs, *(routing.terms_for(site).ladder for site in settings.domains)]
    pools = {route.pool: None for ladder in ladders for route in ladder if route.pool is not None}
    for pool in pools:
        _check_pool(settings, pool)


def disguise_warnings(settings: Settings, spider: Spider) -> list[str]:
    """One sentence for each header that overrides a route's profile."""
    headers = header_defaults(settings, spider)
    own = {site: [name for name, _ in headers(site) if name.lower() in OWN_HEADERS] for site in ("", *settings.domains)}
    if not any(own.values()):
        return []
    routing = routing_of(settings)
    told: dict[str, None] = {}
    for site, names in own.items():
        rungs = _wished(settings, spider, routing) or (routing.terms_for(site).ladder if site else routing.ladder)
        for route in rungs:
            for name in names if route.profile else ():
                words = f"The header {name} of {f'[domains.{site!r}]' if site else 'the settings or the spider'}"
                told[
                    f"{words} overrides that of the profile {route.profile!r} (route {route.name}), and may give it"
                    f" away. Leave it out, or choose a profile that says the same."
                ] = None
    return list(told)


def _wished(settings: Settings, spider: Spider, routing: Routing) -> tuple[Route, ...]:
    """The rungs that the spider asks for; empty if it leaves them to the router."""
    if spider.fetcher is None and spider.proxy_pool is None:
        return ()
    if spider.proxy_pool is not None and spider.proxy_pool not in settings.proxies:
        known = f"There is {', '.join(settings.proxies)}." if settings.proxies else "There is none yet."
        raise Misconfigured(f"Spider {spider.name}: there is no pool [proxies.{spider.proxy_pool}]. {known}")
    try:
        rungs = wished(routing.ladder, routing.routes, fetcher=spider.fetcher, pool=spider.proxy_pool)
    except Misconfigured as error:
        raise Misconfigured(f"Spider {spider.name}: {error}") from error
    max_body, router = settings.fetch.max_body.bytes, settings.router
    for name in ("budget_job", "budget_day"):
        budget = getattr(router, name)
        if budget is not None and all(route.cost(max_body) > budget for route in rungs):
            raise Misconfigured(
                f"Setting router.{name}: {budget:g} credits do not pay for one page by route {rungs[0].name}, which"
                f" spider {spider.name} asks for and which may cost {rungs[0].cost(max_body):g}. Raise it."
            )
    return rungs


def _check_pool(settings: Settings, pool: str) -> None:
    """A proxy at a private address is dialled only if its pool, or the settings, allow it."""
    terms = settings.proxies[pool]
    if terms.allow_private:
        return
    if terms.gateway:
        proxies: tuple[Proxy, ...] = (open_gateway(pool, terms, settings.root, os.environ).door,)
    else:
        proxies = listed_proxies(pool, terms, settings.root, os.environ)
    fetch = settings.fetch
    guard = AddressGuard(fetch.allow_private, frozenset(fetch.allow_hosts), fetch.deny)
    for proxy in proxies:
        own = proxy.host == "localhost" or proxy.host.endswith(".localhost")
        if not own and not is_literal(proxy.host):
            continue  # host names are checked when they are dialled
        try:
            guard.check(proxy.host, "127.0.0.1" if own else proxy.host)
        except AddressRefused as error:
            raise Misconfigured(
                f"Pool {pool}: its proxy {proxy.address} is at a private address, and would never be dialled. If that "
                f"is meant, write allow_private = true into [proxies.{pool}]."
            ) from error
