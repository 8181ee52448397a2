"""The audit log for people: attempts filtered, newest first; and the slow and failing pages of a job.

How it fails: Misconfigured for an invalid time or cursor; BackendUnavailable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ...clock import iso_time
from ...errors import Misconfigured
from ...model.job import Job
from ...model.record import Attempt
from ...store.contract import AttemptQuery
from ...units import past_moment, visible
from ..access.keys import Caller, Sight
from ..jobs.jobs import find_job
from ..open import Project
from ..sites.sites import site_named
from .story import AttemptView, attempt_view

HARD_LOOKED_AT = 20_000  # newest attempts of a job that are examined for its slowest and most failing pages
AT_ONCE = 5_000
MOST_REASONS = 20  # listed
FINE = ("done", "unchanged", "redirected", "reparsed", "imported", "dropped")  # other outcomes are failures


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts to list, in the words that a person types. Empty or None does not restrict."""

    job: str | None = None  # an id, or a name: then the newest of that name
    domain: str | None = None
    route: str | None = None
    outcome: str | None = None
    reason: str | None = None
    since: str | None = None  # ISO 8601, or how long ago: 2h
    until: str | None = None


class AttemptList(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts, newest first. Pass `next` as `after`: if it is set there may be more, even after a short page."""

    attempts: list[AttemptView]
    next: str | None


class HardPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page that failed, or was slow. `latency` is in seconds, of its slowest attempt."""

    url: str
    attempts: int
    failures: int
    latency: float
    reason: str  # of the newest failure
    at: str  # of the newest attempt


class HardPages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of a job that need attention. `reasons` counts failed attempts, most frequent first; `looked_at` is how
    many of its newest attempts were counted."""

    slowest: list[HardPage]
    failing: list[HardPage]
    reasons: dict[str, int]
    looked_at: int
    all: bool  # whether these were all attempts of the job


async def list_attempts(
    project: Project, wanted: AttemptFilter, *, limit: int, after: str | None = None, caller: Caller | None = None
) -> AttemptList:
    """The matching attempts that the caller may see. Raises Misconfigured."""
    query = await _query(project, wanted)
    found = await project.records.attempt_log(query, limit=limit, before=after)
    attempts: Sequence[Attempt] = found.attempts
    if caller is not None:
        sight = Sight(project, caller)
        attempts = [one for one in attempts if await sight.of(one.job)]
    return AttemptList(attempts=[attempt_view(one) for one in attempts], next=found.next)


async def hard_pages(project: Project, job: str, *, limit: int = 10) -> HardPages:
    """The slowest and the most failing pages of a job, among its newest attempts. Raises Misconfigured."""
    found = await find_job(project, job)
    until = None if found.finished_at is None else found.finished_at + 3600.0
    query = AttemptQuery(job=found.id, since=found.created_at - 60.0, until=until)
    pages: dict[bytes, list[Attempt]] = {}
    looked, cursor = 0, None
    while looked < HARD_LOOKED_AT:
        part = await project.records.attempt_log(query, limit=AT_ONCE, before=cursor)
        for one in part.attempts:
            pages.setdefault(one.fingerprint, []).append(one)
        looked, cursor = looked + len(part.attempts), part.next
        if cursor is None:
            break
    every = [_hard_page(tries) for tries in pages.values()]
    failed = (one for tries in pages.values() for one in tries if one.outcome not in FINE)
    reasons = Counter(one.reason or one.outcome for one in failed)
    return HardPages(
        slowest=sorted(every, key=lambda one: -one.latency)[:limit],
        failing=sorted((one for one in every if one.failures), key=lambda one: (-one.failures, -one.latency))[:limit],
        reasons=dict(reasons.most_common(MOST_REASONS)),
        looked_at=looked,
        all=cursor is None,
    )


async def job_cost(project: Project, job: Job) -> float:
    """What all attempts of a job cost, in credits: by every worker, with or without an answer."""
    query, cost, before = AttemptQuery(job=job.id, since=job.created_at - 60.0), 0.0, None
    while True:
        found = await project.records.attempt_log(query, limit=AT_ONCE, before=before)
        cost += sum(one.cost for one in found.attempts)
        before = found.next
        if before is None:
            return cost


def _hard_page(tries: list[Attempt]) -> HardPage:
    """`tries` are the attempts for one page, newest first."""
    failures = [one for one in tries if one.outcome not in FINE]
    return HardPage(
        url=tries[0].url,
        attempts=len(tries),
        failures=len(failures),
        latency=max(one.latency for one in tries),
        reason=failures[0].reason or failures[0].outcome if failures else "",
        at=iso_time(tries[0].at),
    )


async def _query(project: Project, wanted: AttemptFilter) -> AttemptQuery:
    now = project.clock.now()
    return AttemptQuery(
        job=(await find_job(project, wanted.job)).id if wanted.job else None,
        site=site_named(wanted.domain) if wanted.domain else None,
        route=wanted.route or None,
        outcome=wanted.outcome or None,
        reason=wanted.reason or None,
        since=_moment(wanted.since, now) if wanted.since else None,
        until=_moment(wanted.until, now) if wanted.until else None,
    )


def _moment(text: str, now: float) -> float:
    """`2h` is two hours ago. Raises Misconfigured."""
    try:
        return past_moment(text, now)
    except ValueError as error:
        raise Misconfigured(
            f"{visible(text)} is not a time. Write 2h for two hours ago, or 2027-01-31T12:00:00Z."
        ) from error
