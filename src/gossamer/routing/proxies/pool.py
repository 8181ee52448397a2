"""One pool as this process knows it: its proxies, their last known health, and the choice among them. Calls no backend.

`ListedPool` lists its proxies by name, `GatewayPool` has one address with a session for each request. Reading their
sources may raise Misconfigured. A source that has changed is read again; while it cannot be read, the old proxies
count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec

from ...errors import Misconfigured
from ...model.route import Proxy, ProxyOutcome
from ...settings import ProxyPool
from .contract import ProxyAtSite, ProxyHealth, ProxyReport, Renewal, RestTerms
from .gateway import SITE, another_id, fresh_id, open_gateway
from .health import after, after_at_site, weight
from .rotation import AllRest, Choice, ProxyStanding, Rotation, SiteRest, all_rest, keep
from .sources import listed_proxies, watched_files

V = TypeVar("V")

DATACENTER, RESIDENTIAL = KINDS = ("datacenter", "residential")
USUAL_STAY = timedelta(minutes=10)
LISTED_PATIENCE = 3
# Behind a gateway are thousands of machines, some of which are always down: a few failures say nothing about the rest.
GATEWAY_PATIENCE = 20
AGREED = 3  # proxies that refused a page before it counts as forbidden to everybody; all of a smaller pool
# Sessions of a gateway that did: whether one that refused the page serves others since is not known.
SESSIONS_AGREED = 8
SKIPPED = 4e9  # the rest of a proxy that the settings, or an admin, leave out: until they name it no more
MAX_SESSIONS = 50_000  # lasting sessions in memory; the least recently used is forgotten first


class ProxyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a page needs. `tried` are proxies that it used in vain; `session` is a key chosen by its spider."""

    site: str
    country: str | None = None
    session: str | None = None
    tried: frozenset[str] = frozenset()
    avoid: frozenset[str] = frozenset()


class Found(msgspec.Struct, frozen=True):
    """`again`: the page has tried it before, but no other proxy is awake."""

    proxy: Proxy
    again: bool = False


class SiteMarks:
    """How the proxies of a pool fare at the sites that have refused them, as this process knows it."""

    def __init__(self, terms: RestTerms) -> None:
        self._terms = terms
        self._by_site: dict[str, dict[str, ProxyAtSite]] = {}

    def at(self, site: str) -> Mapping[str, ProxyAtSite]:
        """By name of the proxy."""
        return self._by_site.get(site, {})

    def learn(self, rows: Iterable[ProxyAtSite], *, whole: bool) -> None:
        """Take over what the book says: of some proxies, or (`whole`) of all."""
        if whole:
            self._by_site = {}
        for row in rows:
            self._by_site.setdefault(row.site, {})[row.name] = row

    def count(self, report: ProxyReport, now: float) -> None:
        known = self.at(report.site).get(report.proxy)
        if known is None and report.outcome is ProxyOutcome.OK:
            return
        known = known or ProxyAtSite(name=report.proxy, site=report.site)
        self._by_site.setdefault(report.site, {})[report.proxy] = after_at_site(known, report, self._terms, now)

    def serves(self, site: str, name: str) -> bool:
        """Has the proxy served the site since it last refused it, without a rest in between?"""
        known = self.at(site).get(name)
        return known is not None and known.run > 0 and not known.rest_until


class ListedPool:
    """Listed proxies."""

    def __init__(self, name: str, terms: ProxyPool, root: Path, environ: Mapping[str, str], now: float) -> None:
        self._name, self._settings, self._root, self._environ = name, terms, root, environ
        self._stay = stay_of(name, terms)
        self.terms = rest_terms(name, terms, patience=LISTED_PATIENCE)
        self.marks = SiteMarks(self.terms)
        self._signature = signature(watched_files(terms, root))
        self._health: dict[str, ProxyHealth] = {}
        self._rotation = Rotation()
        self._proxies: dict[str, Proxy] = {}
        self._standings: list[ProxyStanding] = []
        self._places: dict[str, int] = {}
        self._skipped: Collection[str] = ()
        self._list(now)

    @property
    def size(self) -> int:
        return len(self._proxies)

    @property
    def proxies(self) -> list[Proxy]:
        return list(self._proxies.values())

    def take(self, wanted: ProxyRequest, now: float) -> Found | AllRest:
        choice: Choice | AllRest
        at_site = self.marks.at(wanted.site)
        if wanted.session is not None:
            # One identity for all pages that name the key: only a rest, or the caller, changes it.
            stay = (self._stay or USUAL_STAY).total_seconds()
            choice = keep(f"key/{wanted.session}", self._standings, now, stay, wanted.avoid, at_site)
        elif self._stay is not None:
            avoid = wanted.avoid | wanted.tried
            choice = keep(f"site/{wanted.site}", self._standings, now, self._stay.total_seconds(), avoid, at_site)
        else:
            choice = self._rotation.next(now, wanted.avoid | wanted.tried, at_site)
        return choice if isinstance(choice, AllRest) else Found(self._proxies[choice.name], choice.again)

    def learn(self, rows: Iterable[ProxyHealth], now: float, *, whole: bool) -> None:
        """Take over health from the book: of some proxies, or (`whole`) of all that were ever used."""
        if whole:
            self._health = {row.name: row for row in rows}
            self._arrange(now)
            return
        for row in rows:
            self._put(row, now)

    def count(self, report: ProxyReport, now: float) -> None:
        """Count a report that the book does not have yet."""
        before = self._health.get(report.proxy) or ProxyHealth(name=report.proxy)
        self._put(after(before, report, self.terms, now), now)
        if report.site:
            self.marks.count(report, now)

    def has_others(self, site: str, avoid: Collection[str], now: float) -> bool:
        """Is a proxy awake, and welcome at the site, that is none of these?"""
        at_site = self.marks.at(site)
        return any(
            one.rest_until <= now
            and one.name not in avoid
            and (one.name not in at_site or at_site[one.name].rest_until <= now)
            for one in self._standings
        )

    def rest_at(self, site: str, now: float) -> SiteRest | None:
        """Until when no proxy may visit the site, which refused them; None if one may, or none is awake anywhere."""
        if self.has_others(site, (), now):
            return None
        at_site = self.marks.at(site)
        found = all_rest(self._standings, now, at_site)
        strikes = [at_site[one.name].strikes for one in self._standings if one.name in at_site]
        return SiteRest(found.until, min(strikes)) if found.refused else None

    def is_the_pages_fault(self, site: str, tried: Collection[str]) -> bool:
        """Is a page of the site forbidden to everybody, and not only to the proxies `tried`, which it refused?"""
        return len(tried) >= min(AGREED, self.size) and any(self.marks.serves(site, name) for name in tried)

    def health_name(self, proxy: Proxy) -> str:
        """The name under which the proxy's health is kept."""
        return proxy.name

    def has_changed(self) -> bool:
        """Has a source file changed since it was last read?"""
        return signature(watched_files(self._settings, self._root)) != self._signature

    def reread(self, now: float) -> None:
        """Read the sources again. Raises Misconfigured; then everything stays as it was until they change again."""
        self._signature = signature(watched_files(self._settings, self._root))
        self._list(now)

    def _list(self, now: float) -> None:
        found = listed_proxies(self._name, self._settings, self._root, self._environ)
        self._proxies = {one.name: one for one in found}
        self._arrange(now)

    def _arrange(self, now: float) -> None:
        self._standings = [self._standing(name) for name in self._proxies]
        self._places = {name: place for place, name in enumerate(self._proxies)}
        self._rotation.update(self._standings, now)

    def skip(self, names: Collection[str], now: float) -> None:
        """Use none of these from now on, and all others."""
        if names != self._skipped:
            self._skipped = names
            self._arrange(now)

    def _put(self, row: ProxyHealth, now: float) -> None:
        self._health[row.name] = row
        place = self._places.get(row.name)
        if place is None:
            return  # a proxy that is no longer listed
        before = self._standings[place]
        self._standings[place] = standing = self._standing(row.name)
        if standing.rest_until < before.rest_until and before.rest_until > now:
            self._rotation.update(self._standings, now)  # its rest was ended
        else:
            self._rotation.change(standing)

    def _standing(self, name: str) -> ProxyStanding:
        health = self._health.get(name)
        if name in self._skipped:
            return ProxyStanding(name, rest_until=SKIPPED)
        if health is None:
            return ProxyStanding(name)
        return ProxyStanding(name, weight(health), health.rest_until, health.strikes)


class GatewayPool:
    """Proxies behind a gateway, with the methods of `ListedPool`. A ban renews the session; the gateway itself goes
    on."""

    def __init__(self, name: str, terms: ProxyPool, root: Path, environ: Mapping[str, str], *, project: str) -> None:
        self._name, self._settings, self._root, self._environ = name, terms, root, environ
        self._project = project
        stay_of(name, terms)  # checks the kind
        self._span = terms.stay.total_seconds() if terms.stay else None
        self.terms = rest_terms(name, terms, patience=GATEWAY_PATIENCE, bans_rest=False)
        self.marks = SiteMarks(self.terms)
        self._signature = signature(watched_files(terms, root))
        self._gateway = open_gateway(name, terms, root, environ)
        self._health = ProxyHealth(name=self._gateway.door.name)
        self._skipped = False
        self._generations: OrderedDict[str, int] = OrderedDict()
        self._lasting: OrderedDict[str, tuple[str, int]] = OrderedDict()  # proxy -> its session and generation

    @property
    def size(self) -> int:
        return 1

    @property
    def door(self) -> Proxy:
        return self._gateway.door

    def sample(self) -> Proxy:
        """A proxy with a new session."""
        return self._gateway.proxy(fresh_id(), None)

    def skip(self, names: Collection[str], now: float) -> None:
        self._skipped = self._health.name in names

    def take(self, wanted: ProxyRequest, now: float) -> Found | AllRest:
        if self._skipped:
            return AllRest(SKIPPED)
        if self._health.rest_until > now:
            return AllRest(self._health.rest_until)
        if (rest := self.rest_at(wanted.site, now)) is not None:
            return AllRest(rest.until, refused=True)
        if wanted.session is not None:
            return Found(self._last(f"key/{wanted.session}", wanted, wanted.avoid, now))
        if self._gateway.session == SITE:
            return Found(self._last(f"site/{wanted.site}", wanted, wanted.avoid | wanted.tried, now))
        return Found(self._gateway.proxy(fresh_id(), wanted.country))

    def learn(self, rows: Iterable[ProxyHealth], now: float, *, whole: bool) -> None:
        own = next((row for row in rows if row.name == self._health.name), None)
        if own is not None or whole:
            self._health = own or ProxyHealth(name=self._health.name)

    def count(self, report: ProxyReport, now: float) -> None:
        self._health = after(self._health, report, self.terms, now)
        if report.site:
            self.marks.count(report, now)

    def has_others(self, site: str, avoid: Collection[str], now: float) -> bool:
        return self.rest_at(site, now) is None  # behind the gateway

    def rest_at(self, site: str, now: float) -> SiteRest | None:
        known = self.marks.at(site).get(self._health.name)
        return SiteRest(known.rest_until, known.strikes) if known is not None and known.rest_until > now else None

    def is_the_pages_fault(self, site: str, tried: Collection[str]) -> bool:
        return len(tried) >= SESSIONS_AGREED and self.marks.serves(site, self._health.name)

    def health_name(self, proxy: Proxy) -> str:
        return self._health.name

    def has_changed(self) -> bool:
        return signature(watched_files(self._settings, self._root)) != self._signature

    def reread(self, now: float) -> None:
        self._signature = signature(watched_files(self._settings, self._root))
        self._gateway = open_gateway(self._name, self._settings, self._root, self._environ)

    # -- lasting sessions ----------------------------------------------------------------------------------------

    def banned_session(self, proxy: Proxy) -> tuple[str, int] | None:
        """The lasting session behind a proxy and the generation that was banned; None if there is none, or if it has a
        newer one already. From now on this process uses the next."""
        known = self._lasting.pop(proxy.name, None)
        if known is None or self._generations.get(known[0], 0) > known[1]:
            return None
        self.renewed(known[0], known[1] + 1)
        return known

    def renewed(self, session: str, generation: int) -> None:
        self._generations[session] = max(generation, self._generations.get(session, 0))
        _use(self._generations, session)

    def learn_renewals(self, rows: Iterable[Renewal]) -> None:
        for row in rows:
            self.renewed(row.session, row.generation)

    def _last(self, session: str, wanted: ProxyRequest, avoid: Collection[str], now: float) -> Proxy:
        generation = self._generations.get(session, 0)
        span = int(now // self._span) if self._span else 0
        tried = [name.rpartition("#")[2] for name in avoid]
        found = self._gateway.proxy(
            another_id(self._project, self._name, session, generation, span, tried), wanted.country
        )
        self._lasting[found.name] = (session, generation)
        _use(self._lasting, found.name)
        return found


def open_pool(
    name: str, terms: ProxyPool, root: Path, environ: Mapping[str, str], now: float, project: str
) -> ListedPool | GatewayPool:
    """Read the pool's sources. Raises Misconfigured."""
    if terms.gateway:
        return GatewayPool(name, terms, root, environ, project=project)
    return ListedPool(name, terms, root, environ, now)


def stay_of(name: str, terms: ProxyPool) -> timedelta | None:
    """How long a site keeps its proxy; None: not at all. Raises Misconfigured."""
    if terms.kind not in KINDS:
        raise Misconfigured(f"proxies.{name}.kind must be 'datacenter' or 'residential'.")
    if terms.stay is None:
        return USUAL_STAY if terms.kind == RESIDENTIAL else None
    return terms.stay if terms.stay.total_seconds() >= 1 else None


def rest_terms(name: str, terms: ProxyPool, *, patience: int, bans_rest: bool = True) -> RestTerms:
    """Raises Misconfigured."""
    cooldown, longest = terms.cooldown.total_seconds(), terms.max_cooldown.total_seconds()
    if cooldown <= 0 or longest < cooldown:
        raise Misconfigured(f"proxies.{name}.cooldown must be more than 0s, and max_cooldown not less than it.")
    return RestTerms(cooldown=cooldown, max_cooldown=longest, patience=patience, bans_rest=bans_rest)


def signature(files: Iterable[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """A value that changes when one of the files does."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            facts = file.stat()
            found.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _use(memory: OrderedDict[str, V], key: str) -> None:
    memory.move_to_end(key)
    while len(memory) > MAX_SESSIONS:
        memory.popitem(last=False)
