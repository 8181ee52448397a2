"""Unreachable sites: how long all workers leave them alone, and when their pages are given up. Pure.

A site that cannot be reached rests as a whole, with growing pauses, and one page at a time probes whether it is back.
The failure that begins the outage uses up an attempt of its page; later ones do not, or an outage of seconds would kill
every page that is due in it. The outage ends with the first response, or when the site is given up: after `patience`,
or after a few probes if the host has never answered. For GIVEN_UP after that its pages are buried without a request. A
site that was not tried for longer than the longest pause, and at least a minute, begins anew.

A site may have several hosts, of which only one may be down. While others answer, failures of that host count as those
of single pages. If pages of several hosts fail in a row, no page is buried without having been tried itself.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..clock import Backoff

QUIET = timedelta(seconds=2)  # a site that answered within this time, or within three of its intervals, is reachable
GIVEN_UP = timedelta(minutes=1)  # after this the site is tried again, if it still has pages


class AwayTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a site. `probes` is for a host that never answered. Pauses double from `base` to `cap`."""

    base: timedelta
    cap: timedelta
    patience: timedelta
    probes: int


class SiteFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A page could not be fetched because its host is unreachable. `never`: that host has never answered."""

    host: str
    reason: str
    never: bool


class AwayNote(msgspec.Struct, frozen=True, kw_only=True):
    """What the state knows of a site that may be unreachable. `strikes` counts failures in a row, 0 for a reachable
    site; `host` is "" if they were of several hosts; `answered_at` is when a page of the site was last settled, 0 for
    never."""

    host: str = ""
    reason: str = ""
    since: float = 0.0
    strikes: int = 0
    given_up_until: float = 0.0
    answered_at: float = 0.0


class AwayVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the page that failed. It waits for `pause`; `counts`: the failure uses up an attempt. `over`: the
    site is given up, and so is the page."""

    counts: bool = True
    pause: timedelta = timedelta(0)
    over: bool = False
    since: float = 0.0


def after_failure(
    note: AwayNote, failure: SiteFailure, terms: AwayTerms, *, now: float, rest_until: float, interval: float
) -> tuple[AwayNote, AwayVerdict]:
    """Return the note after a failure, and what to do with the page. The site rests for the verdict's pause."""
    if now - note.answered_at < max(QUIET.total_seconds(), 3 * interval):
        return note, AwayVerdict()
    if note.given_up_until > now:
        return note, AwayVerdict(counts=False, over=True, since=note.since)
    # The site was not tried for long, for example because the job was stopped: this is a new outage.
    forgotten = now - rest_until > max(terms.cap.total_seconds(), GIVEN_UP.total_seconds(), 3 * interval)
    if note.strikes == 0 or forgotten:
        begun = AwayNote(host=failure.host, reason=failure.reason, since=now, strikes=1, answered_at=note.answered_at)
        return begun, AwayVerdict(pause=terms.base, since=now)
    host = note.host if note.host == failure.host else ""
    if rest_until > now:  # the request was in flight when the rest began
        waiting = msgspec.structs.replace(note, host=host)
        return waiting, AwayVerdict(counts=False, pause=timedelta(seconds=rest_until - now), since=note.since)
    strikes = note.strikes + 1
    never = failure.never or not note.answered_at
    over = (never and strikes >= terms.probes) or now - note.since >= terms.patience.total_seconds()
    known = msgspec.structs.replace(note, host=host, reason=failure.reason, strikes=strikes)
    if over:
        given_up = msgspec.structs.replace(known, strikes=0, given_up_until=now + GIVEN_UP.total_seconds())
        return given_up, AwayVerdict(counts=False, over=True, since=note.since)
    pause = Backoff(terms.base, terms.cap).pause(strikes)
    return known, AwayVerdict(counts=False, pause=pause, since=note.since)
