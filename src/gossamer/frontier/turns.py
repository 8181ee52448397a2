"""Jobs take turns at a site that only one of them can have at a time. Pure: no clock is read.

A site that answers more slowly than its pace allows, or that takes few requests at once, tends to stay with one job:
whenever a slot becomes free, that job's worker is the first to ask. So the site records that a job was refused, and
which of the refused jobs was served longest ago. After TURN the other jobs leave the site alone until that job was
served. They stop waiting when the site was free for GIVE_WAY and no worker of that job came, or when a slow page keeps
it busy for LONGEST. A job that is refused after that is recorded again.
"""

from __future__ import annotations

import msgspec

from .politeness import GIVE_WAY, TURN

LONGEST = 3 * TURN  # how long other jobs may stay off a site whose last page is still in flight


class Want(msgspec.Struct, frozen=True):
    """A job that wants a site, and when it was last served there. It has been waiting since `since`; since `offered` it
    could have had the site."""

    job: int
    served_at: float
    since: float
    offered: float | None = None


def after_refusal(want: Want | None, *, job: int, served_at: float, latest: int | None, now: float) -> Want | None:
    """The note after `job`, last served at `served_at`, was refused. `latest` is the job that was last served at the
    site: other workers of that job do not count as refused."""
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
    """Whether a job that could be served must leave the site alone, and the updated note. `is_free`: the job that wants
    the site would not be refused now."""
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
    return False, None  # no worker is waiting for it any more
