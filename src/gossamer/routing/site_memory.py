"""What one process remembers of sites and routes while it fetches their pages. Bounded, and lost with the process.

What every worker should know of a site (the route of its pages, by pattern) is in the shared `RouteBook`, which is
cached here for a few seconds. The rest is hints that each process gathers itself: which routes let pages through, how
large pages of a kind usually are, which page of a pattern is climbing the ladder.
How it fails: BackendUnavailable if nothing is known of a site yet. Otherwise it goes on with what was known last.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from math import exp, log

import msgspec

from ..clock import Clock
from ..errors import BackendUnavailable
from ..model.route import Route
from .contract import LearnedRoute, RouteBook

# -- patterns: which pages of a site are alike for routing -------------------------------------------------------
#
# That scripts fill product pages says nothing about the site's images and feeds: routes are learned by pattern. It is
# the host, the first folder and the file type; names and numbers below that are wildcards.

AGREED = 3  # patterns that must need a dearer route before unseen ones begin there too
LONGEST = 200  # characters of a pattern
PAGES = frozenset(
    {"", "html", "htm", "xhtml", "shtml", "php", "php5", "asp", "aspx", "jsp", "jspx", "do", "cfm", "cgi"}
)
OF_SCRIPTS = ("shell", "shrunk")  # blocks that depend on how a page is made, not on the visitor

_NUMBERS = re.compile(r"\d+")
_ENDING = re.compile(r"\.([a-z0-9]{1,5})$")


def pattern_of(url: str) -> str:
    """`shop.example/p/*` for http://shop.example/p/red-lamp-17, `shop.example/img/*.png?w` for a picture of it."""
    host, slash, rest = url.partition("://")[2].partition("#")[0].partition("/")
    path, _, query = rest.partition("?")
    folder, inner, last = path.rpartition("/")
    ending = _ENDING.search(last.lower())
    first = _NUMBERS.sub("0", folder.partition("/")[0])
    deeper = "/*" * folder.count("/")
    name = f"*{ending[0] if ending else ''}" if last else ""
    names = "&".join(sorted({_NUMBERS.sub("0", part.partition("=")[0]) for part in query.split("&") if part})[:3])
    return f"{host.lower()}{slash}{first}{deeper}{inner}{name}{'?' + names if names else ''}"[:LONGEST]


def kind_of(pattern: str) -> str:
    """The file extension of a pattern; "" for pages without one."""
    name = pattern.partition("?")[0].rpartition("/")[2]
    return name.rpartition(".")[2] if "." in name else ""


def known_for(rows: Sequence[LearnedRoute], pattern: str) -> LearnedRoute | None:
    """What is known of a page of that pattern: its own row, else that of the whole site if it applies to such a
    file."""
    whole = None
    for row in rows:
        if row.pattern == pattern:
            return row
        if not row.pattern:
            whole = row
    if whole is not None and whole.reason in OF_SCRIPTS and kind_of(pattern) not in PAGES:
        return None
    return whole


def agree(rows: Sequence[LearnedRoute], route: str) -> bool:
    """Do enough patterns of a site need this route to conclude that the whole site does?"""
    return not any(not row.pattern for row in rows) and sum(row.route == route for row in rows) >= AGREED


FRESH = timedelta(seconds=3)  # how long rows read from the book are cached
CLIMB_WITHIN = timedelta(seconds=60)  # how long pages wait for the climbing page of their pattern
MEMORY = 20_000  # sites and pages remembered at most, each
ROUTE_FAULTS = 3  # failures of a route for one page before the page is to blame
REFUSED_DECAY = 0.15  # the weight of the newest page in the share of refusals: a site that closes is noticed soon
SUCCESS_DECAY = 0.05  # and in the share that got through: routes are compared over some twenty pages and more
COMPARED_AFTER = 20  # pages by a dear route before it is compared with the cheaper one
FEW = 5  # pages by the cheaper route that are too few to compare
BETTER_BY = 0.1  # a dear route must let this much more of the pages through
DOUBTFUL = 0.85  # a share of pages below which it is worth knowing how they fare by the cheaper route
USUAL_AFTER = 20  # pages of a kind before their usual size is known


class RouteShares(msgspec.Struct, frozen=True):
    """How the last pages of a pattern fared by a route: decayed shares of those that got through, and of those that
    were refused. Errors and silence are neither."""

    tries: int = 0
    success: float = 0.0
    judged: int = 0  # pages that came or were refused
    refused: float = 0.0

    def after(self, success: float, refused: float | None) -> RouteShares:
        tries, judged = self.tries + 1, self.judged + (refused is not None)
        return RouteShares(
            tries,
            self.success + (success - self.success) * max(SUCCESS_DECAY, 1 / tries),
            judged,
            self.refused
            if refused is None
            else self.refused + (refused - self.refused) * max(REFUSED_DECAY, 1 / judged),
        )


class SiteMemory:
    """One per router. Without a `book` nothing is learned."""

    def __init__(self, book: RouteBook | None, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._learned: OrderedDict[str, tuple[float, list[LearnedRoute]]] = OrderedDict()  # by site
        self._shares: OrderedDict[tuple[str, str], RouteShares] = OrderedDict()  # (pattern, route)
        self._passed: OrderedDict[tuple[str, str], bool] = OrderedDict()  # (site, route) by which a page got through
        self._climbing: dict[str, tuple[object, asyncio.Event]] = {}  # pattern -> the page that climbs, and its end
        self._passed_at: dict[str, float] = {}  # route -> when a page last got through
        self._faults: OrderedDict[bytes, tuple[int, float]] = OrderedDict()  # page -> failed routes, since when
        self._sizes: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    # -- which route pages need --------------------------------------------------------------------------------

    async def learned(self, site: str, pattern: str) -> LearnedRoute | None:
        """What was learned about pages of that pattern; at most a few seconds old, older only while the state does not
        answer."""
        return known_for(await self._rows(site), pattern)

    async def _rows(self, site: str) -> list[LearnedRoute]:
        if self._book is None:
            return []
        known = self._learned.get(site)
        now = self._clock.monotonic()
        if known is not None and now - known[0] < FRESH.total_seconds():
            return known[1]
        try:
            found = await self._book.learned(site)
        except BackendUnavailable:
            if known is None:
                raise
            return known[1]
        remember(self._learned, site, (now, found))
        return found

    async def learn(self, learned: LearnedRoute, *, instead_of: LearnedRoute | None) -> bool:
        """Write it into the book; False if another worker was faster."""
        if self._book is None:
            return False
        won = await self._book.learn(learned, instead_of=instead_of)
        self._learned.pop(learned.site, None)  # it is read again
        return won

    async def generalise(self, learned: LearnedRoute, cheaper: Sequence[Route]) -> None:
        """Let unseen pages begin where several patterns of their site do, unless a page of the site got through by a
        cheaper route."""
        if any(self.was_let_through(learned.site, route) for route in cheaper):
            return
        if agree(await self._rows(learned.site), learned.route):
            await self.learn(msgspec.structs.replace(learned, pattern=""), instead_of=None)

    # -- one page of a pattern climbs for all --------------------------------------------------------------------

    async def wait_for_climb(self, pattern: str, but: object = None) -> bool:
        """If another page of the pattern is climbing the ladder, wait for its result. False if none is."""
        climbing = self._climbing.get(pattern)
        if climbing is None or climbing[0] is but:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(CLIMB_WITHIN.total_seconds()):
                await climbing[1].wait()
        return True

    def begin_climb(self, pattern: str, page: object) -> None:
        if pattern not in self._climbing:
            self._climbing[pattern] = (page, asyncio.Event())

    def end_climb(self, pattern: str, page: object) -> None:
        climbing = self._climbing.get(pattern)
        if climbing is not None and climbing[0] is page:
            del self._climbing[pattern]
            climbing[1].set()

    # -- how pages fared ---------------------------------------------------------------------------------------------

    def note_pass(self, site: str, pattern: str, route: Route) -> None:
        self._passed_at[route.name] = self._clock.monotonic()
        remember(self._passed, (site, route.name), True)
        self._note(pattern, route, success=1.0, refused=0.0)

    def note_refusal(self, pattern: str, route: Route) -> None:
        self._note(pattern, route, success=0.0, refused=1.0)

    def note_failure(self, pattern: str, route: Route) -> None:
        """An error or silence. It counts when routes are compared, and says nothing about who is welcome."""
        self._note(pattern, route, success=0.0, refused=None)

    def _note(self, pattern: str, route: Route, *, success: float, refused: float | None) -> None:
        if not pattern:
            return  # one rung: there is nothing to compare
        known = self._shares.get((pattern, route.name), RouteShares())
        remember(self._shares, (pattern, route.name), known.after(success, refused))

    def was_let_through(self, site: str, route: Route) -> bool:
        """Did a page of the site get through by that route, as far as this process remembers?"""
        return (site, route.name) in self._passed

    def is_proven(self, pattern: str, route: Route) -> bool:
        """A page climbed past `route`: is that enough to conclude that pages of its pattern need a dearer one? Only if
        most of the last pages were refused there: single ones may be exceptions."""
        known = self._shares.get((pattern, route.name))
        return known is None or known.refused > 0.5

    def does_no_better(self, pattern: str, dear: Route, cheap: Route) -> bool:
        """Did about as many of the last pages fail by the dear route, for whatever reason, as by the cheap one? False
        until enough came by the dear one. Where few came by the cheap one, it is taken for closed."""
        known, below = self._shares.get((pattern, dear.name)), self._shares.get((pattern, cheap.name), RouteShares())
        share = below.success if below.tries >= FEW else 0.0
        return known is not None and known.tries >= COMPARED_AFTER and known.success <= share + BETTER_BY

    def is_doubtful(self, pattern: str, dear: Route, cheap: Route) -> bool:
        """Do many pages fail by the dear route, while this process hardly saw how they fare by the cheap one?"""
        known, below = self._shares.get((pattern, dear.name)), self._shares.get((pattern, cheap.name), RouteShares())
        if known is None or known.tries < COMPARED_AFTER or below.tries >= FEW:
            return False
        return known.success < DOUBTFUL

    def page_is_at_fault(self, fingerprint: bytes, route: Route) -> bool:
        """The route failed for this page again. True if it works for other pages: then the page is to blame, and the
        attempt counts."""
        count, since = self._faults.get(fingerprint, (0, self._clock.monotonic()))
        remember(self._faults, fingerprint, (count + 1, since))
        return count + 1 >= ROUTE_FAULTS and self._passed_at.get(route.name, float("-inf")) >= since

    def usual_size(self, site: str, kind: str) -> int | None:
        """Bytes of a usual page of that kind; None until enough of them came."""
        count, mean = self._sizes.get((site, kind), (0, 0.0))
        return int(exp(mean)) if count >= USUAL_AFTER else None

    def note_size(self, site: str, kind: str, size: int) -> None:
        count, mean = self._sizes.get((site, kind), (0, 0.0))
        count += 1
        # The mean of logarithms: one page of 10 MB must not make all others look small.
        remember(self._sizes, (site, kind), (count, mean + (log(max(size, 1)) - mean) / min(count, 50)))


def remember(memory: OrderedDict, key: object, value: object) -> None:  # type: ignore[type-arg]  # any kind of memory
    """Put it into a cache of at most MEMORY entries; the least recently used one is dropped."""
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > MEMORY:
        memory.popitem(last=False)
