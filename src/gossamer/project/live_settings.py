"""The settings of a process with the overrides of admins in force, and what keeps them up to date.

What it does: every process of a project reads the overrides from the state every two seconds. Whatever asks for
`LiveSettings.now`, or follows it, has the changed ones from then on. Afterwards one process wakes what had waited:
pages whose budget was spent or whose proxies rested, and the sites that were changed.
How it fails: while the state does not answer, the overrides that were read last stay in force. One that does not fit
the settings of a machine (a route that it does not have) is left out there; `faults` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import blake2b
from typing import TypeVar

import msgspec

from ..backends.state import State
from ..clock import iso_time
from ..crawl.pacer import AddressBusy, TooEarly
from ..errors import AllProxiesRest, BudgetSpent, Misconfigured, Transient
from ..model.override import OVERRIDE, Override
from ..model.shelf import ABSENT, Put, ShelfKind
from ..settings import BY_HAND, Settings, overridden
from ..settings.overrides import place_of
from ..terms import routing_of, site_terms

T = TypeVar("T")
MOST = 1000  # overrides
EVERY = timedelta(seconds=2)  # between two looks
SETTLED = EVERY + timedelta(seconds=1)  # after a change, by which every process has seen it
ONE_WAKES = timedelta(seconds=10)  # processes that see the same change within this time wake the pages once
WOKEN = "woken"  # on the shelf: which changes and settings pages were woken for
WAITS_FOR = frozenset((BudgetSpent.reason, AllProxiesRest.reason, TooEarly.reason, AddressBusy.reason))


class Overrides:
    """The overrides that this process knows. One for all of its jobs."""

    def __init__(self) -> None:
        self.rows: tuple[Override, ...] = ()
        self.generation = 0

    def learn(self, rows: Sequence[Override]) -> list[str]:
        """Take them over; return the keys whose value has changed."""
        before = {one.key: one for one in self.rows}
        after = {one.key: one for one in rows}
        changed = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
        if changed:
            self.rows = tuple(after[key] for key in sorted(after))
            self.generation += 1
        return sorted(changed)

    @property
    def digest(self) -> str:
        return blake2b(msgspec.json.encode(self.rows), digest_size=12).hexdigest()

    def of_site(self, site: str) -> list[Override]:
        return [one for one in self.rows if one.key.startswith(f"domains.{site}.") and place_of(one.key).name == site]


class LiveSettings:
    """The settings of the project or of one job, `own`, with the overrides in force as `now`."""

    def __init__(self, own: Settings, overrides: Overrides) -> None:
        self.own = own
        self.overrides = overrides
        self._faults: dict[str, str] = {}
        self._now = own
        self._generation = 0

    @property
    def now(self) -> Settings:
        if self._generation != self.overrides.generation:
            self._generation = self.overrides.generation
            self._now, self._faults = with_overrides(self.own, self.overrides.rows)
        return self._now

    @property
    def faults(self) -> dict[str, str]:
        """By key, why an override does not count here."""
        assert self.now is self._now  # it has looked at the newest overrides
        return self._faults

    def follow(self, derive: Callable[[Settings], Callable[[str], T]]) -> Callable[[str], T]:
        """A function of sites that is derived from the settings, and derived again when they change."""
        made = self.now
        function = derive(made)

        def current(site: str) -> T:
            nonlocal made, function
            if self.now is not made:
                function, made = derive(self._now), self._now
            return function(site)

        return current


def with_overrides(settings: Settings, rows: Sequence[Override]) -> tuple[Settings, dict[str, str]]:
    """The settings with these overrides, and by key why one was left out."""
    faults = {}
    for one in rows:
        try:
            changed = overridden(settings, one.key, one.value, origin_of(one))
            routing_of(changed)
            settings = changed
        except Misconfigured as error:
            faults[one.key] = str(error)
    return settings, faults


def origin_of(one: Override) -> str:
    return f"{BY_HAND} by {one.by}, {iso_time(one.at)}"


def kind_of(state: State) -> ShelfKind[Override]:
    return ShelfKind(state.shelf, OVERRIDE, Override)


async def read_overrides(state: State, overrides: Overrides) -> list[str]:
    """Learn the overrides in the state; return the keys that have changed. Raises BackendUnavailable."""
    return overrides.learn(await kind_of(state).timed(limit=MOST))


async def watch_overrides(state: State, live: LiveSettings) -> None:
    """Keep them up to date until cancelled, and wake what waits for a changed one."""
    changed: set[str] = set()
    due = 0.0
    while True:
        await state.clock.sleep(EVERY.total_seconds())
        with suppress(Transient):  # whoever works with the state reports that it is away
            if new := await read_overrides(state, live.overrides):
                changed |= set(new)
                due = state.clock.monotonic() + SETTLED.total_seconds()
            if changed and state.clock.monotonic() >= due:
                if await _is_first(state, live.overrides.digest):
                    await wake_for(state, live.now, changed)
                changed.clear()


async def wake_for(state: State, settings: Settings, keys: set[str]) -> None:
    """Wake what may have waited for these settings. Raises BackendUnavailable."""
    places, terms = [place_of(key) for key in keys], site_terms(settings)
    for site in sorted({place.name for place in places if place.family == "domains"}):
        await state.waiting.wake_site(site, terms(site).interval)
    if any(place.family != "alerts" and not place.field.startswith("log.") for place in places):
        await state.waiting.wake(WAITS_FOR)


async def wake_if_budgets_changed(state: State, settings: Settings) -> None:
    """Wake the pages that wait for credits, when a process starts whose settings have other budgets than that of the
    process that started before. Raises BackendUnavailable."""
    budgets = (settings.router, sorted((name, domain.budget) for name, domain in settings.domains.items()))
    digest = blake2b(msgspec.json.encode(budgets, enc_hook=str), digest_size=12).hexdigest().encode()
    row = await state.shelf.get(WOKEN, "budgets")
    if row is None or row.value != msgspec.json.encode(digest.decode()):
        await state.shelf.commit([Put(kind=WOKEN, key="budgets", value=msgspec.json.encode(digest.decode()))])
        if row is not None:
            await state.waiting.wake(WAITS_FOR)


async def _is_first(state: State, digest: str) -> bool:
    """Whether no other process has woken the pages for this change."""
    until = state.clock.now() + ONE_WAKES.total_seconds()
    return await state.shelf.commit([Put(kind=WOKEN, key=digest, value=b"{}", until=until, expects=ABSENT)])
