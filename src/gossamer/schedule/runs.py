"""The job of a run of a schedule: finds its spider and derives its terms. Nothing is opened here.

How it fails: Misconfigured if there is no such spider, its file does not load, or it has no such callback. Whatever the
spider's own code raises passes through. How it recovers: files are read again once they have changed.
"""

from __future__ import annotations

import difflib

import msgspec

from ..errors import Misconfigured
from ..frontier.contract import JobBook
from ..model.job import JobTerms
from ..model.schedule import Schedule, ScheduleProgress
from ..parse.arguments import checked_arguments, stored_arguments, with_arguments, written_arguments
from ..parse.spider import Spider, callback_names
from ..settings import Settings
from ..terms import coverage_of, job_terms, tightened
from .authority import demand_own_schedule, sealed_terms
from .decisions import budget_of
from .spider_loader import Spiders
from .triggers import next_due, parse_trigger


def opening_of(
    settings: Settings, schedule: Schedule, due: float, *, budget: int | None = None, spiders: Spiders | None = None
) -> tuple[str, JobTerms]:
    """The name and the terms of the job for the tick `due`, as `TickBook.settle` and `ScheduleBook.begin` take them.

    `budget` is what this run may spend. Raises Misconfigured, and whatever the spider's own code raises.
    """
    spider = (spiders or Spiders(settings)).find(schedule.spider)
    return opening_with(spider, settings, schedule, due, budget=budget)


def opening_with(
    spider: Spider, settings: Settings, schedule: Schedule, due: float, *, budget: int | None = None
) -> tuple[str, JobTerms]:
    """Like `opening_of`, for a loaded spider. Raises Misconfigured if it has no such callback, or if nothing vouches
    for the schedule."""
    demand_own_schedule(settings, schedule)
    _check_kind(spider, schedule.kind)
    arguments = checked_arguments(type(spider), written_arguments(schedule.arguments))
    usual = job_terms(settings, with_arguments(spider, arguments))
    # A budget is a limit as well: it covers pages found by links, and pages chosen again after a crash.
    own = usual.limit if schedule.limit is None else schedule.limit
    limits = [limit for limit in (own, budget) if limit is not None]
    terms = msgspec.structs.replace(
        usual,
        limit=min(limits) if limits else None,
        schedule=schedule.name,
        due=due,
        spider=schedule.spider,
        arguments=stored_arguments(arguments),
        source=schedule.source,
        kind=schedule.kind,
        priority=schedule.priority,
        politeness=tightened(settings, usual.politeness, schedule.rate or None, schedule.site_concurrency),
        min_age=schedule.min_age,
        windows=schedule.windows,
        budget=budget,
        min_interval=schedule.min_interval,
        max_interval=schedule.max_interval,
        expected=schedule.expected.or_else(usual.expected),
        coverage=coverage_of(spider, schedule.source),
    )
    return schedule.name, sealed_terms(settings, schedule.name, terms)


async def share_of(
    jobs: JobBook, progress: ScheduleProgress, due: float, now: float, *, by_hand: bool = False
) -> int | None:
    """What a run for the moment `due` may spend of its schedule's budget; None without a budget. Raises Transient.

    A first run started `by_hand` gets the share of a usual interval between two ticks, however near one is.
    """
    schedule = progress.schedule
    if schedule.budget is None:
        return None
    last = await jobs.job(progress.last_job) if progress.last_job else None
    trigger, first = parse_trigger(schedule.trigger, schedule.zone), progress.created_at
    following = next_due(trigger, due, first=first)
    if by_hand and following is not None:
        later = next_due(trigger, following, first=first)
        following = None if later is None else due + later - following
    return budget_of(schedule.budget, due=due, now=now, since=None if last is None else last.due, following=following)


def _check_kind(spider: Spider, kind: str) -> None:
    names = callback_names(spider)
    if kind and kind not in names:
        near = difflib.get_close_matches(kind, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise Misconfigured(f"Spider {spider.name} has no callback {kind!r}; it has {', '.join(names)}.{hint}")
