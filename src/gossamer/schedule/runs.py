"""The job that a run of a schedule becomes: its spider is found, its terms are written down. Nothing is opened here.

How it fails: Misconfigured when there is no such spider, its file does not load, or it has no such callback. Whatever a
spider's own code raises comes through. How it recovers: files are read anew each time, once they have changed.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import Misconfigured
from ..frontier.contract import JobBook
from ..model.job import JobTerms
from ..model.schedule import Schedule, Standing
from ..parse.discovery import Catalogue, is_file_ref, list_spiders, load_spider, spider_named
from ..parse.site import SiteSpider
from ..parse.spider import Spider, callback_names
from ..settings import Settings
from ..settings.effective import job_terms
from .decisions import budget_of
from .spelling import parse_trigger
from .triggers import next_due


class Spiders:
    """The spiders of a project as they are now: the folder is read once, however many are asked for.

    `refuse` is asked before code of the project runs: with the file that is to be loaded, or the name of the spider
    that is to be made. Where it says why that must not be, it does not run.
    """

    def __init__(self, settings: Settings, refuse: Callable[[Path | str], str] = lambda code: "") -> None:
        self._settings = settings
        self._refuse = refuse
        self._catalogue: Catalogue | None = None

    def find(self, ref: str) -> Spider:
        """The spider, recipe or site of that name. Raises Misconfigured, and what its constructor raises."""
        if "://" in ref:
            return SiteSpider([ref])
        spider = self._from_file(ref) if is_file_ref(ref) else self._from_folder(ref)
        self._demand(ref)
        return spider()

    def _from_file(self, ref: str) -> type[Spider]:
        file, colon, _ = ref.partition(".py:")
        self._demand(self._settings.root / (f"{file}.py" if colon else ref))
        return load_spider(ref, self._settings.root, self._settings.spiders)

    def _from_folder(self, name: str) -> type[Spider]:
        root, folder = self._settings.root, self._settings.spiders
        if self._catalogue is None:
            self._catalogue = list_spiders(root, folder, refuse=self._refuse)
        return spider_named(name, self._catalogue, root / folder)

    def _demand(self, code: Path | str) -> None:
        if why := self._refuse(code):
            raise Misconfigured(f"{code}: {why}.")


def opening_of(
    settings: Settings, schedule: Schedule, due: float, *, budget: int | None = None, spiders: Spiders | None = None
) -> tuple[str, JobTerms]:
    """The name and the terms of the job for the tick `due`, as `TickBook.settle` and `ScheduleBook.begin` take them.

    `budget` is what this run may spend. Raises Misconfigured, and what the spider's own code raises.
    """
    spider = (spiders or Spiders(settings)).find(schedule.spider)
    return opening_with(spider, settings, schedule, due, budget=budget)


def opening_with(
    spider: Spider, settings: Settings, schedule: Schedule, due: float, *, budget: int | None = None
) -> tuple[str, JobTerms]:
    """As `opening_of`, with the spider at hand. Raises Misconfigured when it has no such callback."""
    _check_kind(spider, schedule.kind)
    usual = job_terms(settings, spider)
    # A budget is a limit as well: what pages link to counts, and so does what is chosen again after a crash.
    own = usual.limit if schedule.limit is None else schedule.limit
    limits = [limit for limit in (own, budget) if limit is not None]
    return schedule.name, msgspec.structs.replace(
        usual,
        limit=min(limits) if limits else None,
        schedule=schedule.name,
        due=due,
        spider=schedule.spider,
        source=schedule.source,
        kind=schedule.kind,
        priority=schedule.priority,
        min_age=schedule.min_age,
        windows=schedule.windows,
        budget=budget,
        min_interval=schedule.min_interval,
        max_interval=schedule.max_interval,
    )


async def share_of(jobs: JobBook, standing: Standing, due: float, now: float, *, by_hand: bool = False) -> int | None:
    """What a run for the moment `due` may spend of its schedule's budget; None when it has none. Raises Transient.

    The first run, when it is begun `by_hand`, gets the share of a usual time between two ticks, however near one is.
    """
    schedule = standing.schedule
    if schedule.budget is None:
        return None
    last = await jobs.job(standing.last_job) if standing.last_job else None
    trigger, first = parse_trigger(schedule.trigger, schedule.zone), standing.created_at
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
