"""What `gossamer schedule add` warns of: it may be meant, so nothing is refused. Workers may be on other machines, with
files and programs that this one has not."""

from __future__ import annotations

import os
import shutil
from itertools import islice, takewhile

from ..model.schedule import Schedule, ScheduleProgress
from ..schedule.sources import CommandSource, FeedSource, FileSource, SitemapSource, UrlsSource, source_of
from ..schedule.sources.kinds import program
from ..schedule.sources.url_patterns import parse_pattern
from ..schedule.triggers import Every
from ..settings import FILE_NAME, Settings
from ..settings.effective import local_hosts
from .timetable import ticks_of, trigger_of

_DAY = 86_400.0


def cautions(settings: Settings, standing: ScheduleProgress, starts: list[str], now: float) -> list[str]:
    """Sentences, for a schedule whose spider starts at `starts`."""
    schedule = standing.schedule
    return [
        *(
            f"{host} is a private address. If workers may visit it, add it to fetch.allow_hosts in {FILE_NAME}."
            for host in refused_hosts(settings, schedule, starts)
        ),
        *_missing(settings, schedule),
        *_thin_budget(standing, now),
    ]


def refused_hosts(settings: Settings, schedule: Schedule, starts: list[str]) -> list[str]:
    """Private hosts that the schedule names and that workers will not visit: nobody types an address at a worker.
    Those at which the spider `starts` they do visit."""
    urls = [schedule.spider] if "://" in schedule.spider else []
    if schedule.source:
        match source_of(schedule.source):
            case UrlsSource(urls=texts):
                urls += [parse_pattern(text).at(0) for text in texts]
            case SitemapSource(url=url) | FeedSource(url=url):
                urls.append(url)
    if settings.fetch.allow_private:
        return []
    allowed = {*settings.fetch.allow_hosts, *local_hosts(starts)}
    return [host for host in local_hosts(urls) if host not in allowed]


def _missing(settings: Settings, schedule: Schedule) -> list[str]:
    match source_of(schedule.source):
        case FileSource(path=path) if not (settings.root / path).is_file():
            return [
                f"There is no file {settings.root / path} on this machine. The worker that begins a run reads its own."
            ]
        case CommandSource(argv=argv):
            # As the program will be looked for: by its place from the project's folder, or by its name in PATH.
            place = str(settings.root / argv[0]) if os.sep in argv[0] else argv[0]
            if shutil.which(place) is None:
                return [
                    f"There is no program {program(argv)} on this machine. The worker that begins a run starts its own."
                ]
    return []


def _thin_budget(standing: ScheduleProgress, now: float) -> list[str]:
    budget = standing.schedule.budget
    runs = 0 if budget is None else _runs_a_day(standing, now)
    if budget is None or runs <= budget:
        return []
    return [
        f"A budget of {budget:,} a day is {budget / runs:.2g} fetches for each of {runs:,} runs a day: most runs fetch "
        "nothing. Raise the budget, or run it less often."
    ]


def _runs_a_day(standing: ScheduleProgress, now: float) -> int:
    trigger = trigger_of(standing.schedule)
    if isinstance(trigger, Every):
        return int(_DAY / trigger.seconds)
    # From the second tick on, because the first may be overdue. A cron is due each minute at most.
    ticks = islice(ticks_of(standing, now), 1, None)
    first = next(ticks, None)
    return 0 if first is None else 1 + sum(1 for _ in takewhile(lambda tick: tick.at < first.at + _DAY, ticks))
