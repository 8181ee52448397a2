"""The turns of leases at their sites: which are owed, which have ended, and further ones. Runs inside a transaction.

A lease owes a turn from its grant until the worker reports that the request was written. Only then may another worker
be granted one: what a database grants at the right distance may meet on the wire.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import timedelta

from ...errors import LeaseLost
from ...frontier.contract import LeftTurn, NextTurn
from ...frontier.learned_pace import LearnedPace, longest
from ...frontier.politeness import HEAD_START, REST_LOOK, TURN_KEPT, TURN_LOOK, SiteTerms, after_start, earliest_start
from ...model.task import Lease, Pace
from .lease_recovery import TOO_FAR

_OWED = """
SELECT count(*) FROM leases CROSS JOIN urls ON urls.number = leases.url WHERE site = ? AND turn > 0"""
_LEFT = """
UPDATE leases SET turn = -turn WHERE url = ? AND token = ? AND until > ? AND turn = ?"""
_AHEAD = "UPDATE sites SET next_at = max(next_at, ?) WHERE number = (SELECT site FROM urls WHERE number = ?)"
_WAKE = """
UPDATE queues SET state = 'ready', held_for = NULL
WHERE site = (SELECT site FROM urls WHERE number = ?) AND state = 'held'"""
_SITE_OF_LEASE = """
SELECT sites.number, worker, holder, next_at, rest_until, asked_interval, learned_interval, refused_at
FROM leases JOIN urls ON urls.number = leases.url JOIN sites ON sites.number = urls.site
WHERE url = ? AND leases.token = ? AND until > ?"""
_KEEP = "UPDATE sites SET kept_until = max(kept_until, ?) WHERE number = ?"
_TAKE = "UPDATE sites SET next_at = ?, holder = ?, kept_until = 0 WHERE number = ?"


def owed_turns(connection: sqlite3.Connection, site: int) -> int:
    """How many leases of the site owe a turn. Reads every lease of the file: ask only where it matters."""
    return int(connection.execute(_OWED, (site,)).fetchone()[0])


def end_turns(connection: sqlite3.Connection, turns: Sequence[LeftTurn], now: float) -> None:
    for one in turns:
        url = one.lease.task.id
        if connection.execute(_LEFT, (url, one.lease.token, now, one.number)).rowcount:
            connection.execute(_AHEAD, (now + one.paced_ahead.total_seconds(), url))
            connection.execute(_WAKE, (url,))


def next_turn(connection: sqlite3.Connection, lease: Lease, number: int, terms: SiteTerms, now: float) -> NextTurn:
    """Raises LeaseLost."""
    row = connection.execute(_SITE_OF_LEASE, (lease.task.id, lease.token, now)).fetchone()
    if row is None:
        raise LeaseLost(f"The lease on {lease.task.url} has expired; its page gets no other turn.")
    site, worker, holder, next_at, rest_until, asked, learned, refused_at = row
    if learned is not None:
        asked = longest(asked, LearnedPace(interval=learned, refused_at=refused_at).now(now))
    if terms.rests:
        rest_until = max(rest_until, now + REST_LOOK.total_seconds())
    if rest_until > now:
        return NextTurn(wait=timedelta(seconds=rest_until - now))
    interval, burst, pace = terms.own_spacing(asked), terms.burst_under(asked), None
    if interval is not None:
        if holder != worker and owed_turns(connection, site):
            connection.execute(_KEEP, (now + TURN_KEPT.total_seconds(), site))
            return NextTurn(wait=TURN_LOOK)
        next_at = believable(next_at, interval * burst, now)
        turn = earliest_start(next_at, interval=interval, burst=burst) - HEAD_START.total_seconds()
        if turn > now:
            connection.execute(_KEEP, (turn + TURN_KEPT.total_seconds(), site))
            return NextTurn(wait=timedelta(seconds=turn - now))
        next_at = after_start(next_at, start=now, interval=interval)
        pace = Pace(interval, burst, next_at - now)
    connection.execute(_TAKE, (next_at, worker if interval is not None else holder, site))
    connection.execute("UPDATE leases SET turn = ? WHERE url = ?", (number, lease.task.id))
    return NextTurn(pace=pace)


def believable(next_at: float, full: float, now: float) -> float:
    """The bucket, unless it was written while the clock was ahead: no pacer is so far ahead."""
    return now if next_at > now + full + TOO_FAR.total_seconds() else next_at
