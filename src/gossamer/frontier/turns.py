"""Jobs at a site that only one of them can have at a time. Pure: no clock is read.

A site that answers more slowly than its pace asks, or that takes few requests at once, stays with the job that has it:
whenever a slot comes free, that job's worker is there first. So it is noted that somebody was refused, and which of
those that were was served longest ago. After TURN the others leave the site alone until that job was served. They do
so in vain when the site was free for GIVE_WAY and nobody came, or when a slow page keeps it from being free for
LONGEST: then it goes on as before, and whoever is still there and refused again is noted again.
"""

from __future__ import annotations

import msgspec

from .politeness import GIVE_WAY, TURN

LONGEST = 3 * TURN  # that a site stands idle until the last page of its job is there


class Want(msgspec.Struct, frozen=True):
    """A job that wants a site, and when it was served there last. Somebody is kept waiting `since` then; since
    `offered` the job could have the site."""

    job: int
    served_at: float
    since: float
    offered: float | None = None


def after_refusal(want: Want | None, *, job: int, served_at: float, latest: int | None, now: float) -> Want | None:
    """What is noted after a job was refused that was served at that time. `latest` is the job that was served last:
    other workers of that one do not count."""
    if latest is None or latest == job:
        return want
    if served_at > now:  # by a clock that was put back since
        served_at = 0.0
    if want is None:
        return Want(job, served_at, now)
    if want.job != job and served_at < want.served_at:
        return Want(job, served_at, want.since)
    return want


def makes_way(want: Want | None, *, job: int, is_free: bool, now: float) -> tuple[bool, Want | None]:
    """Whether a job that could be served leaves the site alone, and what is noted from now on. `is_free`: the other
    one would not be refused."""
    if want is None or want.job == job:
        return False, want
    if want.since > now:  # the clock was put back
        return False, Want(want.job, want.served_at, now)
    if now - want.since < TURN.total_seconds():
        return False, want
    if not is_free:
        if now - want.since >= (TURN + LONGEST).total_seconds():
            return False, None
        return True, Want(want.job, want.served_at, want.since)
    if want.offered is None or want.offered > now:
        return True, Want(want.job, want.served_at, want.since, now)
    if now - want.offered < GIVE_WAY.total_seconds():
        return True, want
    return False, None  # nobody waits for it any more
