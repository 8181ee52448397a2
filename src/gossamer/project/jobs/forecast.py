"""When a running job may be done, and what it waits for meanwhile.

The rate of a job is what its workers report in their heartbeats (WorkerCard.paces), so that every process that asks
gets the same answer. How it fails: BackendUnavailable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from ...frontier.contract import SiteLoad, WorkerCard
from ...model.job import Job, JobCounts, JobPace
from ...model.task import NO_ROOM_FROM, UrlState
from ...monitor.progress import is_discovering, time_left
from ...settings import Settings
from ...terms import site_terms
from ...units import many, moment
from ..open import Project
from ..overrides import rest_of

SITES_LOOKED_AT = 20  # of a job, the most loaded ones
WAITING_LOOKED_AT = 200
WAITED_FOR = {
    "budget": "credits: a budget is spent (gossamer routes shows which; gossamer override set raises it)",
    "proxies-rest": "a proxy: all proxies of its pool rest",
    "proxy": "a proxy that answers (gossamer proxies)",
    "browser": "a browser that can be started (gossamer doctor)",
    "managed-api": "the managed API, which does not answer or refuses the key",
    "site away": "a site that cannot be reached",
    "window": "the window of its site",
}


class JobWait(msgspec.Struct, frozen=True):
    """What all open pages of a job wait for, in words, and when the first of them is tried again."""

    words: str
    until: float | None

    def in_words(self, now: float) -> str:
        return f"{self.words}; next try {moment(self.until, now)}" if self.until is not None else self.words


class JobForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of a running job's end. At most one of the three is set."""

    seconds: float | None = None  # until it is done
    found: JobPace | None = None  # it still discovers about as many pages as it settles
    wait: JobWait | None = None


async def forecast_job(
    project: Project, job: Job, counts: JobCounts, cards: Iterable[WorkerCard], *, sealed: bool, now: float
) -> JobForecast:
    """The forecast for a running job with these counts. `cards` are those of living workers."""
    pace = _sum_of(card.paces.get(job.id) for card in cards)
    if not counts.open or (counts.leased and not pace.settled):
        return JobForecast()
    loads = await project.state.queue.sites(job.id, SITES_LOOKED_AT)
    if (wait := await _wait(project, job.id, counts, loads, now)) is not None:
        return JobForecast(wait=wait)
    remaining = counts.open if job.limit is None else max(0, min(counts.open, job.limit - counts.towards_limit))
    limited = remaining < counts.open
    if not sealed:
        return JobForecast()
    if is_discovering(pace, limited=limited):
        return JobForecast(found=pace)
    least = 0.0 if limited else least_seconds(project.settings, job, loads)
    return JobForecast(seconds=time_left(remaining, pace, limited=limited, at_least=least))


async def wait_of_job(project: Project, job: str) -> str:
    """What all open pages of a job wait for, in words; "" if one of them is in progress or may be handed out."""
    counts, now = await project.state.jobs.counts(job), project.clock.now()
    wait = await _wait(project, job, counts, await project.state.queue.sites(job, SITES_LOOKED_AT), now)
    return wait.in_words(now) if wait is not None else ""


async def _wait(project: Project, job: str, counts: JobCounts, loads: Sequence[SiteLoad], now: float) -> JobWait | None:
    """What all open pages of a job wait for; None if one is in progress, may be handed out, or is due. `loads` are its
    most loaded sites: of a job with more sites nothing is said while pages are queued."""
    if counts.leased or not counts.open or (len(loads) >= SITES_LOOKED_AT and counts.queued):
        return None
    found: Counter[str] = Counter()
    times = []
    for load in loads:
        rest = rest_of(project, load.site)
        if rest is not None:
            found[f"{load.site}, which {rest.lasting}"] += load.queued + load.waiting
            times += [rest.until] if rest.until is not None else []
        elif load.rest_until > now:
            rests = "which cannot be reached" if load.away_since is not None else "which rests"
            found[f"{load.site}, {rests}"] += load.queued + load.waiting
            times.append(load.rest_until)
        elif load.queued or load.leased or load.due_at is None or not now < load.due_at < NO_ROOM_FROM:
            return None
        else:
            times.append(load.due_at)
    if not found:
        async for _, _, reason in project.state.queue.urls(job, UrlState.WAITING):
            found[WAITED_FOR.get(reason) or f"the next try, after {reason or 'a failure'}"] += 1
            if found.total() >= WAITING_LOOKED_AT:
                break
    words = "; ".join(f"{many(count, 'page waits', 'pages wait')} for {what}" for what, count in found.most_common(3))
    return JobWait(words, min(times, default=None)) if words else None


async def least_seconds_of(project: Project, job: Job) -> float:
    """How long the rates of its most loaded sites make the job take at the least."""
    return least_seconds(project.settings, job, await project.state.queue.sites(job.id, SITES_LOOKED_AT))


def least_seconds(settings: Settings, job: Job, loads: Iterable[SiteLoad]) -> float:
    """How long the rates of its sites make the job take at the least."""
    terms_for = site_terms(settings, job.politeness)
    return max(
        ((load.queued + load.waiting) * (terms_for(load.site).own_spacing(None) or 0.0) for load in loads), default=0.0
    )


def _sum_of(paces: Iterable[JobPace | None]) -> JobPace:
    """The pace of all workers of a job together. Each is measured over its own time."""
    known = [pace for pace in paces if pace is not None and pace.seconds > 0]
    longest = max((pace.seconds for pace in known), default=0.0)
    settled = sum(pace.settled * longest / pace.seconds for pace in known)
    found = sum(pace.found * longest / pace.seconds for pace in known)
    return JobPace(round(settled), round(found), longest)
