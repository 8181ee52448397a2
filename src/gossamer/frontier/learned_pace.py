"""The learned pace of a site: slower each time the site refuses requests as too frequent, faster again with time. Pure.

After a refusal (429, or 503 with Retry-After) the site always rests. Another one soon after the rest means that the
pace itself is too high: the interval is doubled. That holds for HOLD, for all workers and jobs. Then the rate grows by
a fixed amount with time: after GROWTH it is twice what was learned. A day without a refusal clears it. The settings,
the site's own crawl-delay and an operator's order are never undercut: the longest interval counts.

Refusals of requests that were in flight when the rest began count as one. One refusal among a hundred requests teaches
nothing: the rest that follows is enough.
"""

from __future__ import annotations

import msgspec

HOLD = 300.0  # seconds after a refusal in which the pace stays the same
GROWTH = 1800.0  # seconds after that until the rate is twice the learned one, and so on, linearly
FORGET = 86_400.0  # seconds without a refusal after which the learned pace is cleared
SLOWEST = 60.0  # seconds between two requests: no slower pace is learned
UNPACED = 0.05  # the interval that is doubled first for a site that had none
SAME = 1.0  # seconds within which refusals count as one, even without a rest
SOON = 100  # a refusal within this many requests after the last rest counts as repeated


class LearnedPace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a site has taught. `interval` is as of `refused_at`; None: nothing has been concluded yet."""

    interval: float | None = None
    refused_at: float = 0.0

    def now(self, now: float) -> float | None:
        """The learned seconds between two requests at this time; None if nothing is in force."""
        quiet = now - self.refused_at
        if self.interval is None or quiet >= FORGET:
            return None
        return self.interval / (1 + max(0.0, quiet - HOLD) / GROWTH)


def after_refusal(known: LearnedPace, *, kept: float | None, now: float, rest_until: float) -> LearnedPace:
    """The learned pace after a refusal. `kept` is the interval that was in force, from all causes, None for none;
    `rest_until` is the end of the rest before this one."""
    if rest_until > now or now - known.refused_at < SAME:
        return known
    base = kept or UNPACED
    again = now - max(rest_until, known.refused_at) <= SOON * max(base, UNPACED)
    if not known.refused_at or not again:
        return LearnedPace(interval=known.now(now), refused_at=now)
    return LearnedPace(interval=max(base, min(2 * base, SLOWEST)), refused_at=now)


def longest(*intervals: float | None) -> float | None:
    """The longest interval that is not None."""
    return max((one for one in intervals if one is not None), default=None)
