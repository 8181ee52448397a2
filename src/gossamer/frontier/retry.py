"""What to do with a failure: try again (when?) or give up. Pure; the caller does it."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..clock import Backoff
from ..errors import ClientError, FetchFailed, GossamerError, RateLimited, ServerFailed, Transient
from ..model.task import RETRY_STATUSES

MINUTE = timedelta(minutes=1)


class RetryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for one site. Delays double from `base` up to `cap`; `rate_limited_cap` is for 429 and Retry-After."""

    base: timedelta = timedelta(seconds=1)
    cap: timedelta = MINUTE
    rate_limited_cap: timedelta = 5 * MINUTE
    statuses: frozenset[int] = frozenset(RETRY_STATUSES)
    max_attempts: int | None = None  # None: as many as the task says


class TryAgain(msgspec.Struct, frozen=True):
    """Wait for `delay`. `rest` is how long the whole site should be left alone, because it asked for it."""

    delay: timedelta
    rest: timedelta = timedelta(0)


class GiveUp(msgspec.Struct, frozen=True):
    reason: str


def failure_of(status: int, terms: RetryTerms, retry_after: timedelta | None, url: str) -> GossamerError | None:
    """The error that an HTTP status means, or None when the page can be parsed."""
    if status == 429 or (status == 503 and retry_after is not None):
        return RateLimited(f"{url} answered {status}: too many requests.", status=status, retry_after=retry_after)
    if status in terms.statuses:
        return ServerFailed(f"{url} answered {status}.", status=status, retry_after=retry_after)
    if status >= 500:
        return ServerRefused(f"{url} answered {status}.", status=status)
    if status >= 400 or status < 200:
        return ClientError(f"{url} answered {status}.", status=status)
    return None


class ServerRefused(ClientError):
    """A 5xx that the settings do not list as worth another try."""

    reason = "server-error"


def decide(
    failure: GossamerError, *, attempt: int, max_attempts: int, terms: RetryTerms, jitter: float
) -> TryAgain | GiveUp:
    """`attempt` counts this try (the first is 1); `jitter` is a random number in [0, 1)."""
    if not isinstance(failure, Transient):
        return GiveUp(_reason(failure))
    if attempt >= max_attempts:
        return GiveUp(_reason(failure))
    cap = terms.rate_limited_cap if isinstance(failure, RateLimited) else terms.cap
    delay = Backoff(terms.base, cap).pause(attempt, jitter=jitter)
    wish = failure.retry_after if isinstance(failure, FetchFailed) else None
    if wish is not None:
        rest = min(max(wish, timedelta(0)), terms.rate_limited_cap)
        return TryAgain(max(delay, rest), rest)
    asks_for_less = isinstance(failure, RateLimited) or getattr(failure, "status", None) in (429, 503)
    return TryAgain(delay, delay if asks_for_less else timedelta(0))


def _reason(failure: GossamerError) -> str:
    status = getattr(failure, "status", None)
    if isinstance(failure, ClientError | ServerFailed | RateLimited) and status is not None:
        return f"http-{status}"
    return failure.reason
