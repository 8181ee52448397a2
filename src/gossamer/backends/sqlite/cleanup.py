"""Cleanup of jobs, in portions: drops the open pages of replaced and cancelled jobs, deletes all pages of deleted jobs.

Runs inside a transaction. Counters and rows agree after each portion. Pages of a replaced or cancelled job are never
handed out, whether they are dropped already or not: the job's state prevents it.
"""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from ...model.task import NO_ROOM_FROM, UrlState
from ..worker_names import is_gone
from .queue_rows import LETTERS, CountChanges

PORTION = 500  # rows
FIRST_PORTION = 50  # rows, in the step that ends a job: one transaction may have many such steps
PACER_DELAY = timedelta(seconds=5)  # the longest time that a pacer holds a request

REPLACED, CANCELLED = "replaced", "cancelled"  # endings that drop open pages

_DROPPING = """
SELECT number, ending, queued + waiting FROM jobs INDEXED BY jobs_dropping
WHERE ending IN ('replaced', 'cancelled') AND queued + waiting > 0 AND number >= ? ORDER BY number LIMIT 1"""

_DROP = {
    state: f"""
UPDATE urls SET state = 'o', reason = ?, due_at = NULL, changed_at = ? WHERE number IN
    (SELECT number FROM urls INDEXED BY urls_{state} WHERE job = ? AND state = '{LETTERS[state]}' LIMIT ?)"""  # noqa: S608
    for state in (UrlState.QUEUED, UrlState.WAITING)
}

# How many of those that the statement above is about to drop wait for room in the queue.
_POSTPONED = """
SELECT count(*) FROM (SELECT due_at FROM urls INDEXED BY urls_waiting WHERE job = ? AND state = 'w' LIMIT ?)
WHERE due_at >= ?"""

# The newest job of a name is kept, because its schedule and the next crawl of that name may look it up; jobs of keys
# are never looked up by name. The newest job of all is kept, because its number must not be reused.
_FORGET = """
DELETE FROM jobs WHERE id = ? AND state <> 'running' AND leased = 0
    AND NOT (ending IN ('replaced', 'cancelled') AND queued + waiting > 0)
    AND number < (SELECT max(number) FROM jobs AS others)
    AND (number < (SELECT max(number) FROM jobs AS namesakes WHERE namesakes.name = jobs.name)
        OR coalesce(json_extract(terms, '$.owner'), '') <> '')
RETURNING number"""

_OF_JOB = "SELECT number FROM urls INDEXED BY urls_identity WHERE job = ? LIMIT ?"
_DELETE_REST = (
    "DELETE FROM queues WHERE (job, site, lane) IN (SELECT job, site, lane FROM queues WHERE job = ? LIMIT ?)",
    "DELETE FROM job_paces WHERE (job, site) IN (SELECT job, site FROM job_paces WHERE job = ? LIMIT ?)",
    "DELETE FROM shapes WHERE (job, site, shape) IN (SELECT job, site, shape FROM shapes WHERE job = ? LIMIT ?)",
)


def drop_first(connection: sqlite3.Connection, job: int, reason: str, now: float) -> None:
    """In the step that replaces or cancels a job: drop its leased pages and a few of its other open pages."""
    _let_go(connection, job, reason, now)
    _drop(connection, job, reason, now, FIRST_PORTION)


def _let_go(connection: sqlite3.Connection, job: int, reason: str, now: float) -> None:
    """Drop the leased pages of a job, so that their workers can no longer settle them, and give the slots back.

    A living worker may still send the requests that its pacer holds: paced sites are left alone for that time.
    """
    held = connection.execute(
        "SELECT number, site, worker FROM leases CROSS JOIN urls ON urls.number = leases.url WHERE job = ?", (job,)
    ).fetchall()
    if not held:
        return
    slots: dict[int, int] = {}
    for _, site, _ in held:
        slots[site] = slots.get(site, 0) + 1
    alive = any(not is_gone(worker) for worker in {worker for _, _, worker in held})
    rest = now + PACER_DELAY.total_seconds() if alive else 0.0
    connection.executemany(
        "UPDATE sites SET in_flight = in_flight - ?1, holder = CASE WHEN in_flight <= ?1 THEN NULL ELSE holder END, "
        "rest_until = CASE WHEN holder IS NULL THEN rest_until ELSE max(rest_until, ?2) END WHERE number = ?3",
        [(count, rest, site) for site, count in slots.items()],
    )
    connection.executemany(
        "UPDATE queues SET state = 'ready', held_for = NULL WHERE site = ? AND state IN ('full', 'held')",
        [(site,) for site in slots],
    )
    connection.executemany(
        "UPDATE urls SET state = 'o', reason = ?, changed_at = ? WHERE number = ?",
        [(reason, now, number) for number, _, _ in held],
    )
    connection.executemany("DELETE FROM leases WHERE url = ?", [(number,) for number, _, _ in held])
    CountChanges({reason: len(held)}, dropped=len(held), leased=-len(held)).write(connection, job)


def remaining(connection: sqlite3.Connection) -> tuple[int, int] | None:
    """The remaining cleanup: the number of the next job and its progress. None if nothing is left."""
    dropping = connection.execute(_DROPPING, (0,)).fetchone()
    if dropping is not None:
        return dropping[0], dropping[2]
    forgotten = _forgotten(connection)
    if forgotten is None:
        return None
    url = connection.execute(_OF_JOB, (forgotten, 1)).fetchone()
    return forgotten, 0 if url is None else url[0]


def clear_some(connection: sqlite3.Connection, now: float) -> bool:
    """Clear one portion. False if there was nothing to clear."""
    dropping = connection.execute(_DROPPING, (0,)).fetchone()
    if dropping is not None:
        _drop(connection, dropping[0], dropping[1], now, PORTION)
        return True
    forgotten = _forgotten(connection)
    if forgotten is None:
        return False
    urls = connection.execute(_OF_JOB, (forgotten, PORTION)).fetchall()
    connection.executemany("DELETE FROM incidents WHERE url = ?", urls)
    connection.executemany("DELETE FROM urls WHERE number = ?", urls)
    if not urls and not sum(connection.execute(one, (forgotten, PORTION)).rowcount for one in _DELETE_REST):
        connection.execute("DELETE FROM forgetting WHERE job = ?", (forgotten,))
    return True


def drop_rest(connection: sqlite3.Connection, job: int, now: float) -> None:
    """Drop all remaining open pages of one job at once, before it runs again."""
    dropping = connection.execute(_DROPPING, (job,)).fetchone()
    if dropping is not None and dropping[0] == job:
        _drop(connection, job, dropping[1], now, -1)


def forget(connection: sqlite3.Connection, job: str) -> bool:
    """Delete a job that has ended, unless it is the newest of its name. Its pages are deleted later."""
    found = connection.execute(_FORGET, (job,)).fetchone()
    if found is None:
        return False
    connection.execute("INSERT INTO forgetting (job) VALUES (?)", found)
    connection.execute("DELETE FROM seed_leases WHERE job = ?", (job,))
    connection.execute("DELETE FROM seed_sites WHERE job = ?", (job,))
    return True


def _forgotten(connection: sqlite3.Connection) -> int | None:
    """The next job whose pages are to be deleted."""
    found: int | None = connection.execute("SELECT min(job) FROM forgetting").fetchone()[0]
    return found


def _drop(connection: sqlite3.Connection, job: int, reason: str, now: float, most: int) -> None:
    """Drop at most `most` of the job's open pages (-1: all)."""
    for state, sql in _DROP.items():
        waits = state is UrlState.WAITING
        postponed = connection.execute(_POSTPONED, (job, most, NO_ROOM_FROM)).fetchone()[0] if waits else 0
        dropped = connection.execute(sql, (reason, now, job, most)).rowcount
        changes = CountChanges({reason: dropped}, dropped=dropped, postponed=-postponed)
        changes[state.value] -= dropped
        changes.write(connection, job)
        if dropped == most:
            return
