"""Which limit binds at a site, and in which words: one function for `why`, `status`, `scaling` and the summary of a
crawl. Pure: from the terms that hold and what is known of the site.

    4 at a time at this site: politeness.concurrency
    1/s of this job at a site: its own rate
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..model.job import JobPoliteness
from ..units import Rate
from .politeness import SiteTerms
from .queue_values import SiteLoad

FASTEST = 1000.0  # pages a second, for a site without any limit
NEAR = 0.7  # a crawl at this share of what a limit allows is held back by it


class SiteCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What the site itself and its answers ask for: seconds between two requests. `away`: it cannot be
    reached, and one request at a time tries it."""

    asked: float | None = None  # its crawl-delay
    learned: float | None = None
    away: bool = False


def condition_of(load: SiteLoad, now: float) -> SiteCondition:
    return SiteCondition(asked=load.asked, learned=load.learned.now(now), away=load.away_since is not None)


class Limit(msgspec.Struct, frozen=True):
    """A limit in words. It allows `at_once` requests at the same time, or one every `interval` seconds."""

    words: str
    interval: float | None = None
    at_once: int | None = None
    is_own: bool = False  # it binds the requests of one job

    def per_second(self, latency: float) -> float:
        """Pages a second, if each takes `latency` seconds."""
        if self.at_once is not None:
            return self.at_once / latency if latency > 0 else FASTEST
        return 1 / self.interval if self.interval else FASTEST


class SiteLimits(msgspec.Struct, frozen=True):
    """The strictest rate and the strictest number at once; None: no such limit."""

    rate: Limit | None
    at_once: Limit | None

    def at_full(self, in_flight: int) -> Limit | None:
        """The limit on requests at once, if so many are in flight."""
        full = self.at_once is not None and in_flight and in_flight >= (self.at_once.at_once or 0)
        return self.at_once if full else None

    def binding(self, latency: float, in_process: Limit | None = None) -> Limit | None:
        """The limit that allows the fewest pages, if each takes `latency` seconds."""
        known = [one for one in (self.rate, self.at_once, in_process) if one is not None]
        return min(known, key=lambda one: one.per_second(latency), default=None)


NO_LIMITS = SiteLimits(None, None)


def limits_of(site: str, terms: SiteTerms, job: JobPoliteness, condition: SiteCondition | None = None) -> SiteLimits:
    """The limits of a job at a site. `terms` are those of the settings, for all jobs together."""
    now, held = condition or SiteCondition(), terms.under(job)

    def setting(field: str) -> str:
        if field not in terms.named:
            return f"politeness.{field}"
        return f'domains."{site}".{field}' + (", set by hand" if field in terms.by_hand else "")

    def source(field: str, own: str) -> str:
        return f"{own}, given for it" if field in job.given else f"{own} of its spider"

    rates: list[Limit] = []
    for interval, words in (
        (now.asked, "at this site: the crawl-delay of its robots.txt"),
        (now.learned, "at this site: learned from its refusals"),
        (_seconds(held.own_interval), f"of this job at a site: {source('rate', 'the rate')}"),
        (
            _seconds(held.interval),
            f"at this site: {setting('rate') if held.interval == terms.interval else source('rate', 'the rate')}",
        ),
    ):
        if interval:
            own = interval == _seconds(held.own_interval)
            rates.append(Limit(f"{Rate(timedelta(seconds=interval))} {words}", interval=interval, is_own=own))
    named = (
        setting("concurrency") if held.concurrency == terms.concurrency else source("concurrency", "site_concurrency")
    )
    numbers = [
        Limit(f"{count:,} at a time {words}", at_once=count)
        for count, words in (
            (1 if now.away else None, "at this site: it cannot be reached"),
            (held.own_concurrency, f"of this job at a site: {source('concurrency', 'site_concurrency')}"),
            (held.concurrency, f"at this site: {named}"),
        )
        if count is not None
    ]
    return SiteLimits(
        max(rates, key=lambda one: one.interval or 0.0, default=None),
        min(numbers, key=lambda one: one.at_once or 0, default=None),
    )


def of_process(concurrency: int) -> Limit:
    return Limit(f"{concurrency:,} at a time in this process: crawl.concurrency", at_once=concurrency)


def held_back(limits: SiteLimits, *, latency: float, pages_per_second: float, concurrency: int) -> Limit | None:
    """The limit that held back a crawl which made so many pages a second; None if it was something else."""
    found = limits.binding(latency, of_process(concurrency))
    return found if found is not None and pages_per_second >= NEAR * found.per_second(latency) else None


def _seconds(interval: timedelta | None) -> float | None:
    return interval.total_seconds() if interval is not None else None
