"""What to do after a failure: retry (when?) or give up. Pure; the caller acts on it."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..clock import Backoff
from ..errors import (
    ClientError,
    ConnectFailed,
    ConnectionDropped,
    ConnectTimedOut,
    DnsFailed,
    FetchFailed,
    GossamerError,
    RateLimited,
    RobotsUnreachable,
    ServerFailed,
    TimedOut,
    Transient,
)
from ..model.task import RETRY_STATUSES
from .away import AwayTerms

MINUTE = timedelta(minutes=1)
PROBES = 2  # for a host that never answered, in addition to the attempts of a page
GATEWAY = frozenset({502, 503, 504, 521, 522, 523})  # what a gateway answers when it cannot reach its server


class RetryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for one site. Delays double from `base` up to `cap`; `rate_limited_cap` is for 429 and Retry-After."""

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = MINUTE
    rate_limited_cap: timedelta = 5 * MINUTE
    statuses: frozenset[int] = frozenset(RETRY_STATUSES)
    max_attempts: int | None = None  # None: as the task says
    unsafe: bool = False  # may a POST be repeated when it is unknown whether it arrived?
    site_away: timedelta = 10 * MINUTE  # how long to wait for an unreachable site that answered before

    def away(self, max_attempts: int) -> AwayTerms:
        """How long pages with this many attempts wait for a site."""
        return AwayTerms(base=self.base, cap=self.cap, patience=self.site_away, probes=max_attempts + PROBES)


class TryAgain(msgspec.Struct, frozen=True):
    """Retry after `delay`. `rest` is how long the whole site should be left alone, because it asked for that."""

    delay: timedelta
    rest: timedelta = timedelta(0)


class GiveUp(msgspec.Struct, frozen=True):
    reason: str
    rest: timedelta = timedelta(0)  # as in TryAgain


def failure_of(status: int, terms: RetryTerms, retry_after: timedelta | None, url: str) -> GossamerError | None:
    """The error that an HTTP status means; None if the page can be parsed."""
    if status == 429 or (status == 503 and retry_after is not None):
        return RateLimited(f"{url} answered {status}: too many requests.", status=status, retry_after=retry_after)
    if status in terms.statuses:
        return ServerFailed(f"{url} answered {status}.", status=status, retry_after=retry_after)
    if status >= 400 or status < 200:
        return ClientError(f"{url} answered {status}.", status=status)
    if status == 304:  # to an unconditional request: there is no page, and the stored copy must stay
        return ClientError(f"{url} answered 304 (not modified) to a request for the whole page.", status=status)
    return None


def decide(
    failure: GossamerError, *, attempt: int, max_attempts: int, terms: RetryTerms, jitter: float
) -> TryAgain | GiveUp:
    """`attempt` counts this one (the first is 1); `jitter` is a random number in [0, 1)."""
    if not isinstance(failure, Transient):
        return GiveUp(failure.reason)
    again = _again(failure, attempt, terms, jitter)
    return again if attempt < max_attempts else GiveUp(failure.reason, again.rest)


def _again(failure: Transient, attempt: int, terms: RetryTerms, jitter: float) -> TryAgain:
    cap = terms.rate_limited_cap if isinstance(failure, RateLimited) else terms.cap
    delay = Backoff(terms.base, cap).pause(attempt, jitter=jitter)
    wanted = failure.retry_after if isinstance(failure, FetchFailed) else None
    if wanted is not None:
        rest = min(max(wanted, timedelta(0)), terms.rate_limited_cap)
        return TryAgain(max(delay, rest), rest)
    asks_for_less = isinstance(failure, RateLimited) or getattr(failure, "status", None) in (429, 503)
    return TryAgain(delay, delay if asks_for_less else timedelta(0))


def is_unreachable(failure: FetchFailed, *, was_away: bool) -> bool:
    """Does the failure mean that the site is unreachable? For a site that `was_away`, a gateway error, a dropped
    connection and silence mean that it still is."""
    if failure.is_not_the_sites_fault:
        return False
    if isinstance(failure, ConnectFailed | DnsFailed | ConnectTimedOut):
        return True
    if not was_away:
        return False
    kept_away = isinstance(failure, ConnectionDropped | TimedOut | RobotsUnreachable)
    return kept_away or (isinstance(failure, ServerFailed) and failure.status in GATEWAY)
