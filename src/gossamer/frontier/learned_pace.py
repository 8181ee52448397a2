"""The learned pace of a site: slower each time the site refuses requests as too frequent, faster again with time. Pure.

After a refusal (429, or 503 with Retry-After) the site always rests. Another one soon after the rest means that the
pace itself is too high: the interval is doubled. That holds for HOLD, for all workers and jobs. Then the rate grows by
a fixed amount with time: after GROWTH it is twice what was learned. A day without a refusal clears it. The settings,
the site's own crawl-delay and an operator's order are never undercut: the longest interval counts.

Refusals of requests that were in flight when the rest began count as one. One refusal among a hundred requests teaches
nothing: the rest that follows is enough.

Some sites refuse a share of all requests, however slow they are. So the pace falls only as far as refusals are
frequent: where every tenth request is refused to a sixth of what it is without them, where every fiftieth is to half.
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
SPARSE = 50.0  # one refusal in this many requests halves the pace, at most; so many are assumed at first
NEWEST = 0.25  # weight of the newest number of requests between two refusals


class LearnedPace(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a site has taught. `interval` is as of `refused_at`; None: nothing has been concluded yet. `between` is how
    many requests there are between two refusals, smoothed; 0: unknown."""

    interval: float | None = None
    refused_at: float = 0.0
    between: float = 0.0

    def now(self, now: float) -> float | None:
        """The learned seconds between two requests at this time; None if nothing is in force."""
        quiet = now - self.refused_at
        if self.interval is None or quiet >= FORGET:
            return None
        return self.interval / (1 + max(0.0, quiet - HOLD) / GROWTH)


def after_refusal(known: LearnedPace, *, own: float | None, now: float, rest_until: float) -> LearnedPace:
    """The learned pace after a refusal. `own` is the interval that counts without a learned one, None for none;
    `rest_until` is the end of the rest before this one."""
    if rest_until > now or now - known.refused_at < SAME:
        return known
    least = max(own or 0.0, UNPACED)
    base = max(own or UNPACED, known.now(now) or 0.0)
    requests = (now - max(rest_until, known.refused_at)) / max(base, UNPACED)
    if not known.refused_at or requests > SOON:
        return LearnedPace(interval=known.now(now), refused_at=now, between=SPARSE)
    between = known.between or SPARSE
    between += NEWEST * (requests - between)
    most = min(least * (1 + SPARSE / max(between, 1.0)), SLOWEST)
    return LearnedPace(interval=max(base, min(2 * base, most)), refused_at=now, between=between)


def longest(*intervals: float | None) -> float | None:
    """The longest interval that is not None."""
    return max((one for one in intervals if one is not None), default=None)
