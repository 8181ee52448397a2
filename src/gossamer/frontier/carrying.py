"""What a state is made of when it is carried from one backend to another (model/carrying.py has the contract).

Poured in the order job, schedule, site, robots, standing, purse, budget, shape, URL; queued URLs of a lane come in the
order in which they would be handed out. A task in somebody's hands is poured as queued: whoever had it is gone, or the
move would not have begun. So is the scheduler that led. How the exits of proxy pools fare is left behind: it is learned
again within minutes.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from ..model.carrying import Carrier
from ..model.job import JobTerms
from ..model.schedule import ScheduleProgress
from ..model.task import UrlState
from .contract import SeedFindings


class CarriedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with the counters that its URLs do not tell. `forgotten` counts those that have no row any more
    (a job that deduplicates by a filter keeps none of what is done)."""

    number: int
    id: str
    name: str
    state: str
    sealed: bool
    ending: str
    created_at: float
    finished_at: float | None
    terms: JobTerms
    discovered: int
    duplicates: int
    retries: int
    redirected: int
    forgotten: dict[str, int] = {}
    paused: bool = False


class CarriedSchedule(msgspec.Struct, frozen=True):
    """A schedule and how far it has come. Its times are those of the calendar, whatever the clocks say."""

    standing: ScheduleProgress


class CarriedSown(msgspec.Struct, frozen=True):
    """What the reading of a job's source has found. Who reads is not carried: nobody does while a project moves."""

    job: str
    sown: SeedFindings


class CarriedSite(msgspec.Struct, frozen=True, kw_only=True):
    """A site's politeness. `in_hand` tasks were leased, and may have been requested until now."""

    name: str
    next_at: float
    rest_until: float
    asked_interval: float | None
    in_hand: int = 0


class CarriedRobots(msgspec.Struct, frozen=True, kw_only=True):
    origin: str
    status: int
    text: str
    fetched_at: float
    expires_at: float


class CarriedStanding(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned about the ways to a site (routing/contract.py)."""

    site: str
    route: str
    since: float
    reason: str
    blocks: int
    recheck_at: float
    patience: float


class CarriedPurse(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent, in billionths of a token."""

    name: str
    spent: int


class CarriedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs of a site a job has ever taken."""

    job: int
    site: str
    taken: int


class CarriedShape(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs of one path shape a job has taken."""

    job: int
    site: str
    shape: str
    taken: int


class CarriedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL of a job. `due_at` is set when it waits; `parent` is the fingerprint of the page that linked to it."""

    job: int
    site: str
    fingerprint: bytes
    url: str
    state: UrlState
    reason: str
    message: str
    priority: int
    depth: int
    attempts: int
    deliveries: int
    max_attempts: int
    due_at: float | None
    created_at: float
    changed_at: float
    kind: str
    data: str
    redirects: tuple[str, ...]
    fetcher: str | None
    proxy_pool: str | None
    country: str | None
    parent: bytes | None
    parent_site: str | None
    how: str = ""
    incidents: tuple[tuple[float, str], ...] = ()


StateItem = (
    CarriedJob
    | CarriedSchedule
    | CarriedSown
    | CarriedSite
    | CarriedRobots
    | CarriedStanding
    | CarriedPurse
    | CarriedBudget
    | CarriedShape
    | CarriedUrl
)


class StateCarrier(Carrier[StateItem], Protocol):
    """A state that can be carried."""

    async def holders(self) -> list[str]:
        """Workers whose leases have not ended, by the state's own clock; and the scheduler that leads."""
        ...

    async def time(self) -> float:
        """What the clock of this state says."""
        ...


def job_tally(job: str, states: dict[str, int], counters: dict[str, int]) -> dict[str, int]:
    """One job's part of a tally: its URLs by state (in hand counts as queued), and what else was counted."""
    rows = {state: count for state, count in states.items() if state != UrlState.LEASED}
    rows[UrlState.QUEUED.value] = rows.get(UrlState.QUEUED.value, 0) + states.get(UrlState.LEASED.value, 0)
    named = {f"{job} {state}": count for state, count in sorted(rows.items()) if count}
    return {**named, **{f"{job} {name}": count for name, count in counters.items() if count}}
