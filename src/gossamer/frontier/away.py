"""Sites that cannot be reached: how long all workers leave them alone, and when their pages are given up. Pure.

A site that cannot be reached rests as a whole, with growing pauses, and one page at a time finds out whether it is
back. The failure that begins this uses up a try of its page; those that follow do not, or an outage of seconds would
kill every page that is due in it. It ends with the first answer, or when the site is given up: after `patience`, or
after a few probes where the host has never answered. Then its pages are buried without a request, for GIVEN_UP. A site
that nobody has tried for longer than the longest pause, and a minute at least, begins anew.

A site may have several hosts, and only one of them may be gone. While others answer, the failures of that one are those
of single pages. If pages of several hosts fail in a row, none is buried that was not tried itself.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..clock import Backoff

QUIET = timedelta(seconds=2)  # a site that answered no longer ago than this, or than three of its intervals, is there
GIVEN_UP = timedelta(minutes=1)  # then it is tried again, if there are still pages


class AwayTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a site. `probes`: of a host that has never answered. Pauses double from `base` to `cap`."""

    base: timedelta
    cap: timedelta
    patience: timedelta
    probes: int


class SiteFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A page could not be had, because its host could not be reached. `never`: nothing was ever heard of that host."""

    host: str
    reason: str
    never: bool


class AwayNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the state knows of a site that may be away. `strikes` counts failures in a row, 0 for a site that is there;
    `host` is "" when hosts differ; `answered_at` is when a page of the site was settled last, 0 for never."""

    host: str = ""
    reason: str = ""
    since: float = 0.0
    strikes: int = 0
    given_up_until: float = 0.0
    answered_at: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the page that failed. It waits for `pause`; `counts`: the failure uses up a try. `over`: the site
    is given up, and so is the page."""

    counts: bool = True
    pause: timedelta = timedelta(0)
    over: bool = False
    since: float = 0.0


def after_failure(
    note: AwayNote, failure: SiteFailure, terms: AwayTerms, *, now: float, rest_until: float, interval: float
) -> tuple[AwayNote, Verdict]:
    """The note after a failure, and what becomes of the page. The site rests for the verdict's pause."""
    if now - note.answered_at < max(QUIET.total_seconds(), 3 * interval):
        return note, Verdict()
    if note.given_up_until > now:
        return note, Verdict(counts=False, over=True, since=note.since)
    # Nobody has tried it for long, as when the job stopped in the outage: that outage is not this one.
    forgotten = now - rest_until > max(terms.cap.total_seconds(), GIVEN_UP.total_seconds(), 3 * interval)
    if note.strikes == 0 or forgotten:
        begun = AwayNote(host=failure.host, reason=failure.reason, since=now, strikes=1, answered_at=note.answered_at)
        return begun, Verdict(pause=terms.base, since=now)
    host = note.host if note.host == failure.host else ""
    if rest_until > now:  # it was on its way when the rest began
        waiting = msgspec.structs.replace(note, host=host)
        return waiting, Verdict(counts=False, pause=timedelta(seconds=rest_until - now), since=note.since)
    strikes = note.strikes + 1
    never = failure.never or not note.answered_at
    over = (never and strikes >= terms.probes) or now - note.since >= terms.patience.total_seconds()
    known = msgspec.structs.replace(note, host=host, reason=failure.reason, strikes=strikes)
    if over:
        given_up = msgspec.structs.replace(known, strikes=0, given_up_until=now + GIVEN_UP.total_seconds())
        return given_up, Verdict(counts=False, over=True, since=note.since)
    pause = Backoff(terms.base, terms.cap).pause(strikes)
    return known, Verdict(counts=False, pause=pause, since=note.since)
