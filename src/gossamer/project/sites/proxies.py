"""The proxy pools of a project: the health of their proxies, trying them out, and ending their rests.

Every value has the shape that `--json` prints; times are ISO 8601.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ...clock import SystemClock, iso_time
from ...errors import GossamerError, Misconfigured
from ...model.route import Proxy
from ...routing.proxies.contract import ProxyAtSite, ProxyHealth
from ...routing.proxies.pool import GatewayPool, ListedPool, open_pool
from ...routing.proxies.pools import without_secrets
from ...settings import Settings
from ...terms import limits_of
from ...units import size
from ..open import Project
from ..view_fields import view_of

FAILING = 0.5  # a proxy with a lower recent success rate is failing
TRIES_AT_ONCE = 32
SITES_SHOWN = 5


class ProxyView(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy of a pool, and its health."""

    proxy: str
    state: (
        str  # new, ok, failing, resting; skipped: left out by hand or by the settings; not listed: not in the sources
    )
    resting_until: str | None
    resting_for: list[str]  # sites that refused it, for which it rests; SITES_SHOWN at most
    tries: int
    successes: int
    failures: int
    bans: int
    strikes: int  # rests that later successes have not made up for
    latency: float | None  # seconds
    bytes: int
    cost: float  # credits
    last_error: str | None
    last_used: str | None


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with the totals of its proxies."""

    pool: str
    kind: str
    trouble: str | None  # why its sources cannot be read
    resting: int
    tries: int
    successes: int
    bans: int
    latency: float | None  # the mean over its proxies, weighted by their successes
    bytes: int
    cost: float
    proxies: list[ProxyView]  # resting ones first, then by their tries

    @property
    def resting_in_words(self) -> str:
        """How many of its proxies rest; apart, those that rest for the sites that refused them."""
        apart = sum(bool(one.resting_for) and one.state != "resting" for one in self.proxies)
        return f"{self.resting:,}" + (f", {apart:,} for some sites" if apart else "")

    @property
    def listed(self) -> int:
        """How many proxies its sources have."""
        return sum(one.state != "not listed" for one in self.proxies)


class ProxyTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The result of trying a proxy. `words` are the answer, or why there was none."""

    pool: str
    proxy: str
    ok: bool
    words: str
    seconds: float


def chosen_pools(settings: Settings, pool: str | None) -> list[str]:
    """The names of all pools, or of one. Raises Misconfigured if there is no such pool."""
    if pool is None:
        return list(settings.proxies)
    if pool not in settings.proxies:
        known = ", ".join(settings.proxies) or "none yet"
        raise Misconfigured(f"There is no proxy pool {pool!r}; in gossamer.toml there is {known}.")
    return [pool]


# -- health ------------------------------------------------------------------------------------------------------


async def proxy_pools(project: Project, pool: str | None = None) -> list[PoolView]:
    """All pools, or one, as they are now. Raises Misconfigured if there is no such pool."""
    names = chosen_pools(project.settings, pool)
    proxies, now = project.state.proxies, project.clock.now()
    return [
        _pool_view(project.settings, name, await proxies.health(name), now, await proxies.at_sites(name))
        for name in names
    ]


def pool_members(settings: Settings, pool: str) -> list[str]:
    """The names of the proxies in the sources of a pool. Raises Misconfigured."""
    return _names_of(_open(settings, chosen_pools(settings, pool)[0]))


def untouched_pools(settings: Settings, pool: str | None = None) -> list[PoolView]:
    """The pools of a project in which nothing has been crawled yet."""
    return [_pool_view(settings, name, (), 0.0) for name in chosen_pools(settings, pool)]


async def reset_proxies(project: Project, pool: str | None = None) -> int:
    """End the rests of all proxies and delete their health; return how many. Raises Misconfigured for a pool that
    neither gossamer.toml nor the state knows."""
    count = await project.state.proxies.reset(pool)
    if not count:
        chosen_pools(project.settings, pool)
    return count


def _pool_view(
    settings: Settings, name: str, rows: Sequence[ProxyHealth], now: float, at_sites: Sequence[ProxyAtSite] = ()
) -> PoolView:
    known = {row.name: row for row in rows}
    refused: dict[str, list[str]] = {}
    for one in at_sites:
        if one.rest_until > now:
            refused.setdefault(one.name, []).append(one.site)
    trouble, listed = None, []
    try:
        listed = _names_of(_open(settings, name))
    except Misconfigured as error:
        trouble = str(error)
    skipped = settings.proxies[name].skip
    proxies = [
        _proxy_view(one, known.pop(one, None), now, refused.get(one, []), skipped=one in skipped) for one in listed
    ]
    proxies += [_proxy_view(row.name, row, now, listed=False) for row in known.values()]
    proxies.sort(key=lambda one: (one.state not in ("skipped", "resting"), -one.tries))
    successes = sum(row.successes for row in rows if row.latency is not None)
    total = sum((row.latency or 0.0) * row.successes for row in rows)
    return PoolView(
        pool=name,
        kind=settings.proxies[name].kind,
        trouble=trouble,
        resting=sum(one.state == "resting" for one in proxies),
        tries=sum(one.tries for one in proxies),
        successes=sum(one.successes for one in proxies),
        bans=sum(one.bans for one in proxies),
        latency=total / successes if successes else None,
        bytes=sum(one.bytes for one in proxies),
        cost=sum(one.cost for one in proxies),
        proxies=proxies,
    )


def _proxy_view(
    name: str,
    known: ProxyHealth | None,
    now: float,
    refused: Sequence[str] = (),
    *,
    listed: bool = True,
    skipped: bool = False,
) -> ProxyView:
    health = known or ProxyHealth(name=name)
    return view_of(
        ProxyView,
        health,
        proxy=name,
        state="not listed" if not listed else "skipped" if skipped else _state_of(known, now),
        resting_for=list(refused[:SITES_SHOWN]),
        resting_until=iso_time(health.rest_until) if health.rest_until > now else None,
        cost=health.credits,
        last_error=health.last_error or None,
        last_used=iso_time(health.changed_at) if health.changed_at else None,
    )


def _state_of(health: ProxyHealth | None, now: float) -> str:
    if health is None:
        return "new"
    if health.rest_until > now:
        return "resting"
    return "failing" if health.run <= -3 or health.score < FAILING else "ok"


def _open(settings: Settings, name: str) -> ListedPool | GatewayPool:
    return open_pool(name, settings.proxies[name], settings.root, os.environ, 0.0, settings.project)


def _names_of(pool: ListedPool | GatewayPool) -> list[str]:
    return [pool.door.name] if isinstance(pool, GatewayPool) else [one.name for one in pool.proxies]


# -- trying them -------------------------------------------------------------------------------------------------


async def try_proxies(
    settings: Settings, pool: str | None = None, url: str | None = None, only: str | None = None
) -> list[ProxyTrial]:
    """Try every proxy of all pools, of one, or `only` one: does it accept our credentials, and with `url`, does the
    page arrive?

    Nothing of this counts as health. Raises Misconfigured if there is no pool.
    """
    names = chosen_pools(settings, pool)
    if not names:
        raise Misconfigured("There are no proxy pools. Write a table [proxies.NAME] in gossamer.toml.")
    proxies: list[Proxy] = []
    for name in names:
        opened = _open(settings, name)
        proxies += [opened.sample()] if isinstance(opened, GatewayPool) else opened.proxies
    if only is not None:
        proxies = [one for one in proxies if only in (one.name, one.address)]
        if not proxies:
            raise Misconfigured(f"There is no proxy {only!r}. `gossamer proxies` lists them.")
    return await (_knock(settings, proxies) if url is None else _fetch(settings, proxies, url))


# Fetch code is imported here, so that read-only commands start quickly.


async def _knock(settings: Settings, proxies: Sequence[Proxy]) -> list[ProxyTrial]:
    from ...fetch.addresses import GuardedResolver
    from ...fetch.proxy_check import knock
    from ..transports import guard_of

    guard = guard_of(settings)
    resolver = GuardedResolver(guard)

    async def attempt(one: Proxy) -> tuple[bool, str]:
        await knock(one, guard, resolver, settings.fetch.connect_timeout)
        return True, "lets us in"

    try:
        return await _each(proxies, attempt)
    finally:
        await resolver.close()


async def _fetch(settings: Settings, proxies: Sequence[Proxy], url: str) -> list[ProxyTrial]:
    from ...fetch.contract import TransportRequest
    from ..transports import open_transport

    limits, headers = limits_of(settings), (("User-Agent", settings.fetch.user_agent),)
    async with open_transport(settings) as transport:

        async def attempt(one: Proxy) -> tuple[bool, str]:
            response = await transport.fetch(TransportRequest(url=url, headers=headers, limits=limits, proxy=one))
            return response.status < 400, f"{response.status}, {size(response.wire_bytes)}"

        return await _each(proxies, attempt)


async def _each(proxies: Sequence[Proxy], attempt: Callable[[Proxy], Awaitable[tuple[bool, str]]]) -> list[ProxyTrial]:
    """A few at a time; the answers are in the order of the proxies."""
    room, clock = asyncio.Semaphore(TRIES_AT_ONCE), SystemClock()

    async def one_try(one: Proxy) -> ProxyTrial:
        async with room:
            began = clock.monotonic()
            try:
                ok, words = await attempt(one)
            except GossamerError as error:
                ok, words = False, without_secrets(str(error), one)
            seconds = round(clock.monotonic() - began, 3)
            return ProxyTrial(pool=one.pool, proxy=one.name, ok=ok, words=words, seconds=seconds)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one_try(one)) for one in proxies]
    return [task.result() for task in tasks]
