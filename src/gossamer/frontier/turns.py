"""Jobs share a site that cannot serve all of them at once. Pure: no clock is read.

Turns. A site that answers more slowly than its pace allows, or that takes few requests at once, tends to stay with one
job: whenever a slot becomes free, that job's worker is the first to ask. So the site records that a job was refused,
and which of the refused jobs was served longest ago. After TURN the other jobs leave the site alone until that job was
served. They stop waiting when the site was free for GIVE_WAY and no worker of that job came, or when a slow page keeps
it busy for LONGEST. A job that is refused after that is recorded again.

Priority. A job that comes back to the site for more notes its claim: around the moment at which it can be served next,
jobs of lower priority leave the site to it. They get every tenth request (ONE_IN) if they ask for it, so that none of
them starves: then the job with the claim makes way for them, as above. Jobs of equal priority only take turns.
"""

from __future__ import annotations

import msgspec

from .politeness import GIVE_WAY, HEAD_START, TURN

LONGEST = 3 * TURN  # how long other jobs may stay off a site whose last page is still in flight
ONE_IN = 10  # of that many requests to a site, at least one is for a waiting job of lower priority
CLAIM = 2 * GIVE_WAY  # how long jobs of lower priority wait for the job with the claim
LOOK = GIVE_WAY / 5  # how often they look then, and the other one while it makes way for them
_NOTED = 1.0  # seconds after which the note of a waiting job of lower priority is renewed


class Want(msgspec.Struct, frozen=True):
    """A job that wants a site, and when it was last served there. It has been waiting since `since`; since `offered` it
    could have had the site."""

    job: int
    served_at: float
    since: float
    offered: float | None = None
    priority: int = 0


class TurnClaim(msgspec.Struct, frozen=True):
    """The job that comes back to a site, shortly before `until` at the latest. `run` counts the requests of its
    priority since a job of lower priority was served."""

    job: int
    priority: int
    until: float
    run: int = 0

    def binds(self, now: float) -> bool:
        """Is this about the moment at which the job comes back?"""
        return self.until - (CLAIM + HEAD_START).total_seconds() <= now < self.until

    @property
    def shares(self) -> bool:
        """Is the next request for a job of lower priority, if one waits?"""
        return self.run >= ONE_IN - 1


def is_left_to(claim: TurnClaim | None, *, job: int, priority: int, now: float) -> bool:
    """Whether a job that could be served leaves the site to the one with the claim."""
    if claim is None or claim.job == job or claim.priority <= priority:
        return False
    return claim.binds(now) and not claim.shares


def after_asking(
    claim: TurnClaim | None, *, job: int, priority: int, back_at: float | None, served: int, now: float
) -> TurnClaim | None:
    """The claim after a job asked for the site and got `served` requests. It can be served again at `back_at`; None: it
    has no more to do there, or the site has room for others too."""
    if claim is not None and claim.until <= now and claim.job != job:
        claim = None
    if claim is not None and claim.priority > priority:
        return TurnClaim(claim.job, claim.priority, claim.until) if served else claim
    if back_at is None:
        return None if claim is None or claim.job == job else claim
    run = claim.run if claim is not None and claim.priority == priority else 0
    return TurnClaim(job, priority, back_at + CLAIM.total_seconds(), run + served)


def after_refusal(
    want: Want | None, *, job: int, priority: int, served_at: float, latest: int | None, now: float
) -> Want | None:
    """The note after `job`, last served at `served_at`, was refused. `latest` is the job that was last served at the
    site: other workers of that job do not count as refused."""
    if latest is None or latest == job:
        return want
    if served_at > now:  # by a clock that was put back since
        served_at = 0.0
    if want is None:
        return Want(job, served_at, now, None, priority)
    if want.job != job and served_at < want.served_at:
        return Want(job, served_at, want.since, None, priority)
    return want


def makes_way(
    want: Want | None, claim: TurnClaim | None, *, job: int, priority: int, is_free: bool, now: float
) -> tuple[bool, Want | None]:
    """Whether a job that could be served must leave the site alone, and the updated note. `is_free`: the job that wants
    the site would not be refused now."""
    if want is None or want.job == job:
        return False, want
    if want.since > now:  # the clock was put back
        return False, Want(want.job, want.served_at, now, None, want.priority)
    is_its_share = claim is not None and claim.shares and want.priority < claim.priority
    if is_its_share:
        pass
    elif want.priority < priority:  # its waiting counts from the moment at which it is its turn
        late = now - want.since >= _NOTED
        return False, Want(want.job, want.served_at, now, None, want.priority) if late else want
    elif want.priority == priority and now - want.since < TURN.total_seconds():
        return False, want
    if not is_free:
        if now - want.since >= (TURN + LONGEST).total_seconds():
            return False, None
        return True, Want(want.job, want.served_at, want.since, None, want.priority)
    if want.offered is None or want.offered > now:
        return True, Want(want.job, want.served_at, want.since, now, want.priority)
    if now - want.offered < GIVE_WAY.total_seconds():
        return True, want
    return False, None  # no worker is waiting for it any more
