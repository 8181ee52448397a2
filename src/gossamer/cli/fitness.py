"""Can the schedules of a project run here? Their spiders, their callbacks, the files they read. For `gossamer doctor`.

Nothing is fetched, and no program is started. A spider or a file that is missing may be on other machines, where the
workers are: that is worth a word, and no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..errors import Misconfigured, SpiderNotFound
from ..model.schedule import ScheduleProgress
from ..project.schedule_changes import opening_for, schedule_warnings
from ..project.timetable import is_missed
from ..schedule.spider_loader import Spiders
from ..schedule.triggers import parse_trigger
from ..schedule.windows import parse_windows
from ..settings import Settings


class Unfit(msgspec.Struct, frozen=True):
    """What is wrong with a schedule. `grave`: its runs will fail wherever they are worked on."""

    why: str
    advice: str
    grave: bool


def unfit(settings: Settings, standings: Iterable[ScheduleProgress], now: float) -> Iterator[Unfit]:
    """What stands in the way of these schedules, and of the windows of sites."""
    for site, domain in settings.domains.items():
        try:
            parse_windows(domain.windows) if domain.windows else ()
        except Misconfigured as error:
            yield Unfit(f"domains.{site}.windows: {error}", "Mend it in gossamer.toml.", grave=True)
    spiders = Spiders(settings)  # the folder is read once
    for standing in standings:
        yield from _unfit(settings, standing, spiders, now)


def _unfit(settings: Settings, standing: ScheduleProgress, spiders: Spiders, now: float) -> Iterator[Unfit]:
    schedule = standing.schedule
    starts: list[str] = []
    try:
        parse_trigger(schedule.trigger, schedule.zone)
        opening_for(settings, schedule, 0.0, spiders=spiders)
        if "://" not in schedule.spider:
            starts += spiders.find(schedule.spider).start_urls
    except SpiderNotFound as error:
        advice = "It can run only where its spider is: with schedulers and workers of other machines."
        yield Unfit(f"{schedule.name}: {error}", advice, grave=False)
    except Misconfigured as error:
        yield Unfit(f"{schedule.name}: {error}", "Until that is mended, no run of it can begin.", grave=True)
        return
    if is_missed(standing, now):
        advice = f"Write another moment, or begin a run now: gossamer schedule run {schedule.name}"
        yield Unfit(f"{schedule.name}: its moment is past, and it did not run.", advice, grave=False)
    for words in schedule_warnings(settings, standing, starts, now):
        yield Unfit(f"{schedule.name}: {words}", "", grave=False)
