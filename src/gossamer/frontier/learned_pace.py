"""The pace that a site has taught: slower each time it says that it is asked too often, faster again with time. Pure.

A refusal (429, or 503 with Retry-After) always lets the site rest. One that comes again soon after the rest says that
the pace itself is too high: the interval is doubled. That holds for HOLD, for all workers and jobs. Then the rate grows
by a fixed amount with time: after GROWTH it is twice what was learned. A day without a refusal forgets it.
The settings, the site's own crawl-delay and an operator's order are never undercut: the longest interval counts.

Refusals of requests that were under way when the rest began are one refusal. One among a hundred requests teaches
nothing: the rest that follows is answer enough.
"""

from __future__ import annotations

import msgspec

HOLD = 300.0  # seconds in which nothing changes after a refusal
GROWTH = 1800.0  # seconds after that until the rate is twice the learned one, and again the same on top, and so on
FORGET = 86_400.0  # seconds without a refusal, after which nothing is known
SLOWEST = 60.0  # seconds between two requests: nothing slower is learned
UNPACED = 0.05  # the interval that is doubled first where there was none
SAME = 1.0  # seconds in which refusals are one, also where no rest was asked for
SOON = 100  # requests that could have been made since the rest before, and a refusal still counts as one more


class LearnedPace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a site has taught. `interval` is as of `refused_at`; None: nothing was concluded yet."""

    interval: float | None = None
    refused_at: float = 0.0

    def now(self, now: float) -> float | None:
        """Seconds between two requests as far as this counts; None when it does not."""
        quiet = now - self.refused_at
        if self.interval is None or quiet >= FORGET:
            return None
        return self.interval / (1 + max(0.0, quiet - HOLD) / GROWTH)


def after_refusal(known: LearnedPace, *, kept: float | None, now: float, rest_until: float) -> LearnedPace:
    """What is known after a refusal. `kept` is the interval between requests until now, all in all, None for none;
    `rest_until` is the end of the last rest, before this one."""
    if rest_until > now or now - known.refused_at < SAME:
        return known
    base = kept or UNPACED
    again = now - max(rest_until, known.refused_at) <= SOON * max(base, UNPACED)
    if not known.refused_at or not again:
        return LearnedPace(interval=known.now(now), refused_at=now)
    return LearnedPace(interval=max(base, min(2 * base, SLOWEST)), refused_at=now)


def longest(*intervals: float | None) -> float | None:
    """The longest of those that there are."""
    return max((one for one in intervals if one is not None), default=None)
