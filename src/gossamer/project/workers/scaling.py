"""How many workers a project needs: by what may be fetched now, not by the length of its queue.

A million URLs of one polite site need one worker; two hundred sites that allow two pages a second need several. The
demand is what rates, crawl-delays, windows, budgets and the sites' own rests allow at this moment, divided by the
measured capacity of a worker.
How it fails: BackendUnavailable. This module only computes; `gossamer up --autoscale`, or another caller, acts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import ceil, inf

import msgspec

from ...clock import iso_time
from ...crawl.windows import job_windows
from ...errors import Misconfigured
from ...frontier.contract import QueueLoad, WorkerCard
from ...frontier.limits import FASTEST, Limit, SiteCondition, limits_of
from ...frontier.politeness import SiteTerms
from ...frontier.queue_values import MOST_COUNTED
from ...model.job import Job, JobPoliteness
from ...model.record import day_of
from ...model.route import BROWSER, MANAGED, TRANSPORTS, Route
from ...model.task import LANE_ONLY
from ...routing.budget import bounds_for
from ...terms import Routing, routing_of, site_terms
from ..open import Project
from .workers import MISSING_SECONDS

HORIZON = timedelta(seconds=20)  # work that is done within this time needs no further worker
TARGET = 0.75  # the share of its capacity that a worker is meant to use
SPARE = 0.6  # the share that the remaining workers may use when one leaves: measurements are never exact
ASSUMED = 10.0  # pages a second per worker, if none has been measured
ASSUMED_OF = {BROWSER: 0.5, MANAGED: 5.0}
LEAST_BUSY = 0.02  # a worker that did less says nothing about its capacity
LATENCY = (0.05, 30.0)  # seconds per page: measurements outside are not believed
MOST_JOBS = 1000  # running jobs that are examined
MOST_WORKERS = 1000


class LaneScaling(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of route, for workers that serve it alone (`gossamer worker --routes browser`)."""

    ready: int  # tasks that are due now; at most 200 of each site are counted
    leased: int
    runnable_per_second: float  # pages that all sites together allow now
    pages_per_second_per_worker: float  # capacity of one worker
    measured: bool  # False: assumed
    workers: int  # alive, and serving it
    workers_wanted: int


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """What a project needs now. `workers_wanted` is for workers that serve every lane."""

    at: str
    workers: int
    workers_wanted: int
    load: float  # the work, as a number of fully busy workers
    chores: int  # jobs without a ready page that still need a worker: to read a source, or to end
    lanes: dict[str, LaneScaling]
    limit: str = ""  # that binds at the site with the most work, in words


async def scaling(project: Project) -> Scaling:
    """What can be fetched now, and how many workers that takes. The cost grows with jobs and sites, not with URLs."""
    now = project.clock.now()
    routing = routing_of(project.settings)
    cards = [card for card in await project.state.workers.workers() if now - card.seen_at <= MISSING_SECONDS]
    latency = seconds_per_page(cards)
    work, chores, binding = await _work(project, routing, latency, now)
    lanes = {}
    demand = 0.0
    for lane in dict.fromkeys((*TRANSPORTS, *(one.lane for one in work))):
        own = [one for one in work if one.lane == lane]
        serving = [card for card in cards if _serves(card, lane, routing)]
        alone = [card for card in serving if card.serves or lane == routing.ladder[0].transport]
        seen = strength(alone)
        each = seen if seen is not None else ASSUMED_OF.get(lane, ASSUMED)
        leased = sum(one.leased for one in own)
        runnable = sum(one.pace for one in own)
        first = lane == routing.ladder[0].transport
        lanes[lane] = LaneScaling(
            ready=sum(one.ready for one in own),
            leased=leased,
            runnable_per_second=round(runnable, 3),
            pages_per_second_per_worker=round(each, 3),
            measured=seen is not None,
            workers=len(serving),
            workers_wanted=workers_wanted(runnable / each, any_work=bool(leased or runnable or (first and chores))),
        )
        demand += runnable / each
    busy = bool(chores) or any(lane.leased or lane.runnable_per_second for lane in lanes.values())
    return Scaling(
        at=iso_time(now),
        workers=len(cards),
        workers_wanted=workers_wanted(demand, any_work=busy),
        load=round(demand, 3),
        chores=chores,
        lanes=lanes,
        limit=binding,
    )


class SiteWork(msgspec.Struct, frozen=True, kw_only=True):
    """What one job has to do at one site in one lane, and its share of the site's pace."""

    lane: str
    ready: int
    leased: int
    pace: float


async def _work(project: Project, routing: Routing, latency: float, now: float) -> tuple[list[SiteWork], int, str]:
    """The work at each site, how many jobs need a worker for something other than pages, and the limit that binds at
    the site with the most work."""
    state, settings = project.state, project.settings
    spent = await state.budgets.spent() if settings.router.when_spent == "wait" else {}
    sites: defaultdict[str, list[tuple[str, QueueLoad, float, float]]] = defaultdict(list)
    chores, most, binding = 0, 0, ""
    for job in (await state.jobs.running_jobs())[:MOST_JOBS]:
        windows = job_windows(settings, job, project.clock)
        if job.paused or windows.job.wait():
            continue
        loads = await state.queue.loads(job.id, now)
        left = await _pages_left(project, job)
        if not loads or left < 1:
            chores += await _needs_a_hand(project, job, left)
        terms_for = site_terms(settings)
        for load in loads:
            lane, route = lane_of(load, routing)
            terms = terms_for(load.site)
            closed = terms.rests or load.rest_until > now or bool(windows.wait_for(load.site))
            limit = limit_at(load, terms, job.politeness, latency)
            pace = 0.0 if closed else limit.per_second(latency) if limit is not None else FASTEST
            bounds = bounds_for(routing.budgets_for(load.site), job=job.id, site=load.site, day=day_of(now))
            paid = [(bound.limit - spent.get(bound.budget, 0.0)) / route.price for bound in bounds if route.price]
            pages = min([left, *(paid if settings.router.when_spent == "wait" else ())])
            sites[load.site].append((lane, load, pace, max(0.0, pages)))
            if not closed and limit is not None and load.ready + load.leased > most:
                most, binding = load.ready + load.leased, f"{load.site}: {limit.words}"
    return [one for loads in sites.values() for one in shared(loads)], chores, binding


async def _pages_left(project: Project, job: Job) -> float:
    if job.limit is None:
        return inf
    counts = await project.state.jobs.counts(job.id)
    return max(0, job.limit - counts.settled - counts.leased)


async def _needs_a_hand(project: Project, job: Job, left: float) -> bool:
    """Whether the job needs a worker for something other than a page: to read a source, or to end."""
    if left < 1 or not await project.state.jobs.is_sealed(job.id):
        return True
    return (await project.state.jobs.counts(job.id)).open == 0


# -- pure ----------------------------------------------------------------------------------------------------------


def lane_of(load: QueueLoad, routing: Routing) -> tuple[str, Route]:
    """The kind of route that the tasks wait for, and the route. Tasks without a route of their own start at the first
    rung of their site's ladder."""
    name = load.lane.removeprefix(LANE_ONLY)
    first = routing.terms_for(load.site).ladder[0]
    if not name:
        return first.transport, first
    route = routing.routes.get(name)
    if route is not None:
        return route.transport, route
    return name, next((one for one in routing.routes.values() if one.transport == name), first)


def limit_at(load: QueueLoad, terms: SiteTerms, job: JobPoliteness, latency: float) -> Limit | None:
    """The limit that binds the job at the site, if a page takes `latency` seconds. `terms` are those of the
    settings."""
    return limits_of(
        load.site, terms, job, SiteCondition(asked=load.asked, learned=load.learned, away=load.away)
    ).binding(latency)


def shared(queues: Sequence[tuple[str, QueueLoad, float, float]]) -> list[SiteWork]:
    """Split one site's pace between several jobs and lanes by their work. A queue is (lane, load, pace of the site for
    that job, pages that limits and budgets leave); it needs no more than its work within HORIZON."""
    pace = max((pace for _, _, pace, _ in queues), default=0.0)
    total = sum(load.ready + load.leased for _, load, _, _ in queues)
    work = []
    for lane, load, own, pages in queues:
        todo = load.ready + load.leased
        many = load.ready >= MOST_COUNTED
        enough = min(inf if many else todo, pages) / HORIZON.total_seconds()
        part = min(own, pace * todo / total) if total else 0.0
        work.append(SiteWork(lane=lane, ready=load.ready, leased=load.leased, pace=min(part, enough)))
    return work


def _serves(card: WorkerCard, lane: str, routing: Routing) -> bool:
    names = [name for name in card.serves.split(",") if name]
    kinds = {routing.routes[name].transport for name in names if name in routing.routes}
    return not names or lane in names or lane in kinds


def seconds_per_page(cards: Iterable[WorkerCard]) -> float:
    """How long a page takes, by Little's law: pages in flight divided by pages finished per second."""
    working = [card for card in cards if card.pace > 0]
    pace = sum(card.pace for card in working)
    if not pace:
        return 1.0
    return min(max(sum(card.in_flight for card in working) / pace, LATENCY[0]), LATENCY[1])


def strength(cards: Iterable[WorkerCard]) -> float | None:
    """Pages a second that one worker can do: the total throughput, divided by the share of capacity that it took. A
    worker that has just started has little weight. None if no worker is at work."""
    seen = [(card.pace, min(1.0, card.busy)) for card in cards if card.pace > 0 and card.busy >= LEAST_BUSY]
    return min(FASTEST, sum(pace for pace, _ in seen) / sum(busy for _, busy in seen)) if seen else None


def workers_wanted(full_workers: float, *, any_work: bool, share: float = TARGET) -> int:
    """How many workers do the work of `full_workers` fully busy ones, if each is busy for `share` of its time; 0 if
    there is no work."""
    return min(MOST_WORKERS, max(1, ceil(round(full_workers / share, 6)))) if any_work else 0


# -- deciding --------------------------------------------------------------------------------------------------------


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    least: int
    most: int

    def of(self, wanted: int) -> int:
        return min(self.most, max(self.least, wanted))


def bounds_of(text: str) -> Bounds:
    """Read `1..8`. Raises Misconfigured."""
    match = re.fullmatch(r"(\d{1,4})\.\.(\d{1,4})", text.strip())
    if match is None or not 1 <= int(match[2]) <= MOST_WORKERS or int(match[1]) > int(match[2]):
        raise Misconfigured(f"{text!a:.40} is not a range of workers; write minimum and maximum: --autoscale 1..8")
    return Bounds(least=int(match[1]), most=int(match[2]))


class Look(msgspec.Struct, frozen=True):
    at: float  # seconds, on a monotonic clock
    wanted: int
    enough: int  # this many workers would have capacity to spare


def look_at(found: Scaling, at: float, bounds: Bounds) -> Look:
    enough = workers_wanted(found.load, any_work=found.workers_wanted > 0, share=SPARE)
    return Look(at, bounds.of(found.workers_wanted), bounds.of(enough))


def decide(looks: Sequence[Look], current: int, *, calm: timedelta) -> int:
    """How many workers there should be after these looks, the last of which was just now.

    Scale up as soon as two looks in a row want more; start the first worker at once. Scale down when fewer have been
    enough, with capacity to spare, for as long as `calm`. So a demand that fluctuates within that time changes nothing,
    nor does one on the edge between two numbers.
    """
    now = looks[-1].at
    rising = min(look.wanted for look in looks[-2:])
    if rising > current and (len(looks) > 1 or current == 0):
        return rising
    if current == 0 and looks[-1].wanted:
        return 1
    watched = [look.enough for look in looks if now - look.at <= calm.total_seconds()]
    if now - looks[0].at >= calm.total_seconds():
        return min(current, max(watched))
    return current


def kept(looks: Sequence[Look], *, calm: timedelta) -> list[Look]:
    """The looks that later decisions need: those within `calm`, and the one before."""
    edge = looks[-1].at - calm.total_seconds()
    older = [look for look in looks if look.at < edge]
    return [*older[-1:], *(look for look in looks if look.at >= edge)]


def in_words(found: Scaling) -> str:
    """One line for people."""
    pace = sum(lane.runnable_per_second for lane in found.lanes.values())
    return f"{pace:.3g} pages/s can be fetched now" + (f" ({found.limit})" if found.limit else "")
