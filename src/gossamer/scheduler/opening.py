"""The job that a run of a schedule becomes: its spider is found, its terms are written down. Nothing is opened here.

How it fails: Misconfigured when there is no such spider, its file does not load, or it has no such callback. Whatever a
spider's own code raises comes through. How it recovers: files are read anew each time, once they have changed.
"""

from __future__ import annotations

import difflib

import msgspec

from ..errors import Misconfigured
from ..model.job import JobTerms
from ..model.schedule import Schedule
from ..parse.discovery import is_file_ref, list_spiders, load_spider
from ..parse.site import SiteSpider
from ..parse.spider import Spider, callback_names
from ..settings import Settings
from ..terms import job_terms


class Spiders:
    """The spiders of a project as they are now: the folder is read once, however many are asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named: dict[str, list[type[Spider]]] | None = None

    def find(self, ref: str) -> Spider:
        """The spider, recipe or site of that name. Raises Misconfigured, and what its constructor raises."""
        if "://" in ref:
            return SiteSpider([ref])
        settings = self._settings
        if not is_file_ref(ref):
            found = self._read().get(ref, ())
            if len(found) == 1:
                return found[0]()
        return load_spider(ref, settings.root, settings.spiders)()  # or an error that says what there is

    def _read(self) -> dict[str, list[type[Spider]]]:
        if self._named is None:
            self._named = {}
            for spec in list_spiders(self._settings.root, self._settings.spiders).spiders:
                self._named.setdefault(spec.name, []).append(spec.spider)
        return self._named


def opening_of(
    settings: Settings, schedule: Schedule, due: float, *, budget: int | None = None, spiders: Spiders | None = None
) -> tuple[str, JobTerms]:
    """The name and the terms of the job for the tick `due`, as `TickBook.settle` and `JobBook.open_job` take them.

    `budget` is what this run may spend. Raises Misconfigured, and what the spider's own code raises.
    """
    spider = (spiders or Spiders(settings)).find(schedule.spider)
    _check_kind(spider, schedule.kind)
    usual = job_terms(settings, spider)
    return schedule.name, msgspec.structs.replace(
        usual,
        limit=usual.limit if schedule.limit is None else schedule.limit,
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


def _check_kind(spider: Spider, kind: str) -> None:
    names = callback_names(spider)
    if kind and kind not in names:
        near = difflib.get_close_matches(kind, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise Misconfigured(f"Spider {spider.name} has no callback {kind!r}; it has {', '.join(names)}.{hint}")
