"""Which proxy is used next. No I/O, no clock: the same questions get the same answers.

Two ways. `Rotation` goes round: each proxy has its turn in proportion to its weight, in a smooth order. `keep` lets a
site keep one proxy for a while; all workers arrive at the same choice without asking each other.

Neither returns a resting proxy, nor one that rests for the site (`at_site`). One to be avoided is returned only if no
other is awake, and then the choice says so.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b

import msgspec

from .contract import ProxyAtSite

_NOWHERE: Mapping[str, ProxyAtSite] = {}
PROBES = 64  # random positions that are tried before all positions in order


class ProxyStanding(msgspec.Struct, frozen=True):
    """A proxy in the eyes of the choice. `strikes` are bans that successes have not made up for yet."""

    name: str
    weight: float = 1.0
    rest_until: float = 0.0
    strikes: int = 0


class Choice(msgspec.Struct, frozen=True):
    """A proxy to use. `again`: it should have been avoided, but no other is awake."""

    name: str
    again: bool = False


class AllRest(msgspec.Struct, frozen=True):
    """No proxy is awake. The first of them wakes at `until`. `refused`: some of them rest for this site alone, because
    it refused them."""

    until: float
    refused: bool = False


class SiteRest(msgspec.Struct, frozen=True):
    """Every proxy rests for a site that refused them. `strikes` is how often each had to, at least, without a page that
    made up for it."""

    until: float
    strikes: int


class Rotation:
    """Proxies in turn. Each has a mark that moves on by 1/weight whenever it is used; the lowest mark is next.

    So two proxies that stay awake never deviate by more than one turn each from their weights. A proxy that wakes up or
    joins begins as if it had just had its turn: it does not make up for its absence.
    """

    def __init__(self) -> None:
        self._standings: dict[str, ProxyStanding] = {}
        self._marks: dict[str, float] = {}
        self._order: dict[str, int] = {}
        self._awake: list[tuple[float, int, str]] = []
        self._resting: list[tuple[float, int, str]] = []
        self._mark = 0.0  # of the proxy that was used last

    def update(self, standings: Sequence[ProxyStanding], now: float) -> None:
        """Replace the proxies."""
        known = {one.name: one for one in standings}
        self._order = {name: place for place, name in enumerate(known)}
        self._standings = known
        self._marks = {name: max(self._marks.get(name, self._next_mark(name)), self._mark) for name in known}
        self._awake = [(self._marks[one.name], self._order[one.name], one.name) for one in known.values()
                       if one.rest_until <= now]  # fmt: skip
        self._resting = [(one.rest_until, self._order[one.name], one.name) for one in known.values()
                         if one.rest_until > now]  # fmt: skip
        heapq.heapify(self._awake)
        heapq.heapify(self._resting)

    def change(self, standing: ProxyStanding) -> None:
        """Change the weight or the rest of one proxy. It keeps its place in the order."""
        if standing.name in self._standings:
            self._standings[standing.name] = standing

    def next(
        self, now: float, avoid: Collection[str] = (), at_site: Mapping[str, ProxyAtSite] = _NOWHERE
    ) -> Choice | AllRest:
        """The proxy whose turn it is; counts it as used."""
        self._wake(now)
        unwelcome: list[tuple[float, int, str]] = []
        passed_over: list[tuple[float, int, str]] = []
        chosen: Choice | None = None
        while self._awake and chosen is None:
            entry = heapq.heappop(self._awake)
            rest_until = self._standings[entry[2]].rest_until
            if rest_until > now:
                heapq.heappush(self._resting, (rest_until, entry[1], entry[2]))
            elif entry[2] in at_site and at_site[entry[2]].rest_until > now:
                unwelcome.append(entry)
            elif entry[2] in avoid:
                passed_over.append(entry)
            else:
                chosen = self._take(entry)
        if chosen is None and passed_over:
            chosen = self._take(passed_over.pop(0), again=True)
        for entry in (*passed_over, *unwelcome):
            heapq.heappush(self._awake, entry)
        if chosen is not None:
            return chosen
        return all_rest(list(self._standings.values()), now, at_site)

    def _wake(self, now: float) -> None:
        while self._resting and self._resting[0][0] <= now:
            _, order, name = heapq.heappop(self._resting)
            until = self._standings[name].rest_until
            if until > now:
                heapq.heappush(self._resting, (until, order, name))
            else:
                self._marks[name] = max(self._marks[name], self._next_mark(name))
                heapq.heappush(self._awake, (self._marks[name], order, name))

    def _take(self, entry: tuple[float, int, str], *, again: bool = False) -> Choice:
        mark, order, name = entry
        self._mark = max(self._mark, mark)
        self._marks[name] = mark + self._step(name)
        heapq.heappush(self._awake, (self._marks[name], order, name))
        return Choice(name, again)

    def _next_mark(self, name: str) -> float:
        """As if it had been used just now."""
        return self._mark + self._step(name)

    def _step(self, name: str) -> float:
        return 1.0 / max(self._standings[name].weight, 1e-6)


def all_rest(standings: Sequence[ProxyStanding], now: float, at_site: Mapping[str, ProxyAtSite]) -> AllRest:
    """No proxy is awake: when does the first one wake?"""
    refused = {one.name: at_site[one.name].rest_until for one in standings if one.name in at_site}
    return AllRest(
        min((max(one.rest_until, refused.get(one.name, 0.0)) for one in standings), default=now),
        any(one.rest_until <= now < refused.get(one.name, 0.0) for one in standings),
    )


def keep(
    anchor: str,
    standings: Sequence[ProxyStanding],
    now: float,
    stay: float,
    avoid: Collection[str] = (),
    at_site: Mapping[str, ProxyAtSite] = _NOWHERE,
) -> Choice | AllRest:
    """The proxy of `anchor` (a site, or a key chosen by a spider) for this span of `stay` seconds.

    Drawn by a hash of the anchor's name and the number of the span, so that all workers draw the same. Sites change
    their proxies at different moments. If the proxy rests, the next draw counts, and sites on other proxies stay where
    they are. Recently banned proxies are drawn only if there are no others.
    """
    count = len(standings)
    if not count:
        return AllRest(now)
    # Draws differ by span; the moment at which a site's span ends differs by site.
    span = int((now + _number(anchor) % max(int(stay), 1)) // stay)
    struck: Choice | None = None
    avoided: Choice | None = None
    for place in _places(anchor, span, count):
        one = standings[place]
        there = at_site.get(one.name)
        if one.rest_until > now or (there is not None and there.rest_until > now):
            continue
        if one.name in avoid:
            avoided = avoided or Choice(one.name, again=True)
        elif one.strikes or (there is not None and there.strikes):
            struck = struck or Choice(one.name)
        else:
            return Choice(one.name)
    return struck or avoided or all_rest(standings, now, at_site)


def _places(anchor: str, span: int, count: int) -> Iterator[int]:
    """Some positions at random, then all of them."""
    for lot in range(min(PROBES, 4 * count)):
        yield _number(f"{span}/{lot}/{anchor}") % count
    start = _number(f"{span}/{anchor}") % count
    yield from range(start, count)
    yield from range(start)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
