"""What all workers share about proxies: their health, which rest, which a page has used, which sessions were renewed.

How it fails: BackendUnavailable; on Redis it is then unknown whether the call took effect. None of this can cost a
page: a report that is sent twice makes a figure slightly wrong, a lost one lets a proxy be tried once more. Every verb
is atomic. Times are those of the backend's shared clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ...model.route import ProxyOutcome


class ProxyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive uses of one proxy with the same outcome. `seconds` is their mean. `site` is set if the outcome counts
    for that site alone: bans, refusals, and successes at a site that refused the proxy before. `times` is 0 for a ban
    that was found out afterwards, whose use was reported as a refusal."""

    proxy: str
    outcome: ProxyOutcome
    site: str = ""
    times: int = 1
    seconds: float = 0.0
    bytes: int = 0
    credits: float = 0.0
    words: str = ""  # what went wrong, in short


class RestTerms(msgspec.Struct, frozen=True, kw_only=True):
    """When a proxy rests, and for how long (seconds)."""

    cooldown: float = 60.0  # the first rest; doubles with each further one
    max_cooldown: float = 3600.0
    patience: int = 3  # failures in a row after which it rests as well, or refusals in a row by one site
    bans_rest: bool = True  # False for a gateway, which has other proxies behind it


class ProxyHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a proxy. health.py says how each figure changes.

    `run` counts successes in a row, or failures in a row as a negative number. `strikes` counts rests that successes
    have not made up for yet. `score` is the decayed share of successes, between 0 and 1; `latency` the decayed mean of
    seconds, None before the first success.
    """

    name: str
    tries: int = 0
    successes: int = 0
    failures: int = 0
    bans: int = 0
    bytes: int = 0
    credits: float = 0.0
    latency: float | None = None
    score: float = 1.0
    run: int = 0
    strikes: int = 0
    rest_until: float = 0.0
    changed_at: float = 0.0
    last_error: str = ""


class ProxyAtSite(msgspec.Struct, frozen=True, kw_only=True):
    """How a proxy fares at a site that has refused it. `run` counts successes in a row, or refusals in a row as a
    negative number; `strikes` as in ProxyHealth. `rest_until` is 0 if it never had to rest for this site."""

    name: str
    site: str
    run: int = 0
    strikes: int = 0
    rest_until: float = 0.0
    changed_at: float = 0.0


class Renewal(msgspec.Struct, frozen=True, kw_only=True):
    """A banned lasting session of a gateway: the generation of its id that is in use now."""

    session: str
    generation: int
    changed_at: float


class ProxyBook(Protocol):
    """Bounded by the proxies used within a month, and by recent bans and failures."""

    async def report(self, pool: str, reports: Sequence[ProxyReport], terms: RestTerms) -> None:
        """Count the reports, in this order. Proxies of the pool that were not used for a month are deleted, and what is
        known of a proxy at a site a day after the last report about it."""

    async def at_sites(self, pool: str, since: float = 0.0) -> list[ProxyAtSite]:
        """Proxies of a pool at the sites that refused them, by site and name: all that are known, or those that changed
        at `since` or later."""

    async def health(self, pool: str, since: float = 0.0) -> list[ProxyHealth]:
        """Proxies of a pool by name: all that are known, or those that changed at `since` or later."""

    async def remember(self, uses: Sequence[tuple[bytes, str]]) -> None:
        """These pages (by fingerprint) have tried these proxies in vain. Kept for an hour."""

    async def used(self, fingerprint: bytes) -> tuple[str, ...]:
        """The proxies that a page has tried in vain, by name."""

    async def renew(self, pool: str, session: str, seen: int) -> int:
        """Generation `seen` of a session was banned. Return the one to use now: the next, or a later one made by
        others."""

    async def renewals(self, pool: str, since: float = 0.0) -> list[Renewal]:
        """Sessions of a pool by name with a generation above 0: all, or those renewed at `since` or later. One last
        renewed a month ago is deleted, and begins again at 0."""

    async def reset(self, pool: str | None = None) -> int:
        """Clear the health of the proxies of one pool, or of all: none rests any more. Return how many there were.
        Renewed sessions stay renewed."""
