"""Changes to schedules: add one, pause and resume it, start a run now, remove it.

A schedule of gossamer.toml can be changed and removed only in that file. How it fails: Misconfigured for an invalid
change, BackendUnavailable; then nothing was changed.
"""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from hashlib import blake2b
from itertools import islice, takewhile

import msgspec

from ...errors import GossamerError, Misconfigured, SpiderNotFound, Transient
from ...model.job import Job, JobTerms
from ...model.schedule import Schedule, ScheduleProgress
from ...parse.seeds import named_addresses
from ...schedule.authority import demand_own_schedule, sealed_schedule
from ...schedule.bad_schedule import BadSchedule as BadSchedule  # reworded by the CLI and the API
from ...schedule.bad_schedule import Key as Key
from ...schedule.decisions import run_now
from ...schedule.definition import FROM_FILE, schedule_of
from ...schedule.runs import opening_of, share_of
from ...schedule.sources import CommandSource, FeedSource, FileSource, SitemapSource, UrlsSource, source_of
from ...schedule.sources.kinds import program
from ...schedule.sources.url_patterns import parse_pattern
from ...schedule.spider_loader import Spiders
from ...schedule.triggers import Every, Once, describe
from ...settings import FILE_NAME, ScheduleTable, Settings
from ...terms import local_hosts
from ...units import distance, many, span
from ..open import Project
from .schedules import ScheduleView, demand_readable, merged, named, read_book
from .timetable import in_zone, next_run, next_tick, ticks_of, trigger_of

ADDED = "added"  # the origin of a schedule that was added at run time
RUN_TRIES = 50
RUN_PAUSE = timedelta(milliseconds=100)  # between two tries
_DAY = 86_400.0


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule that may be added, and where its spider starts, if it is on this machine."""

    schedule: Schedule
    starts: list[str]


class ScheduleAdded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `add_schedule`. `going` are jobs of the schedule that continue with their old terms."""

    name: str
    when: str  # its trigger in words
    first_run: str  # when, in words
    going: list[str]
    warnings: list[str]  # possible mistakes


class WrittenTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """One of the three, as in gossamer.toml."""

    every: str | None = None
    at: str | None = None
    cron: str | None = None


class ScheduleEdit(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule runs and how much, in the words of gossamer.toml; None means no bound. `seen` is the `edit_mark`
    of what the person saw; "" if nobody looked."""

    trigger: str  # every 6h, 0 3 * * *, at 2027-01-31T12:00
    zone: str
    windows: str
    overlap: str
    limit: int | None
    budget: int | None
    seen: str = ""


EDITED = ("trigger", "zone", "windows", "overlap", "limit", "budget")


def edit_mark(schedule: Schedule | ScheduleView) -> str:
    """The same for the same values of what can be edited, so that nobody takes back in silence what another has
    changed meanwhile."""
    values = msgspec.json.encode([getattr(schedule, field) for field in EDITED])
    return blake2b(values, digest_size=8).hexdigest()


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did to a schedule. `changed` is False if it was in that state already. `running` are its jobs,
    which go on."""

    name: str
    changed: bool
    running: list[str] = []
    next_run: str = ""  # after resuming: when, in words


class ScheduleRun(msgspec.Struct, frozen=True):
    """A run that was started by hand."""

    name: str
    job: str
    note: str = ""  # why it will probably find nothing to do


# -- adding ------------------------------------------------------------------------------------------------------


def new_schedule(settings: Settings, name: str, table: ScheduleTable, *, force: bool = False) -> NewSchedule:
    """Check a definition, without opening or writing anything. `force` accepts a spider that is only on other machines.

    Raises BadSchedule for an invalid definition, SpiderNotFound, Misconfigured.
    """
    schedule = sealed_schedule(settings, schedule_of(name, table))
    if name in settings.schedules:
        raise Misconfigured(_in_file(settings, name, "change it"))
    return NewSchedule(schedule, _starts(settings, schedule, force=force))


async def add_schedule(project: Project, new: NewSchedule, *, replace: bool = False) -> ScheduleAdded:
    """Store a schedule in the state, for all schedulers and workers. Raises Misconfigured if the name is taken, unless
    `replace`."""
    schedule, name = new.schedule, new.schedule.name
    _demand_future(schedule, project.clock.now())
    known = ""
    for one in await project.state.schedules.schedules():
        if one.schedule.name == name:
            known = one.last_job or ""
        if one.schedule.name == name and one.origin == FROM_FILE and one.withdrawn_at is None:
            raise Misconfigured(_in_file(project.settings, name, "change it"))
    if not await project.state.schedules.put(schedule, origin=ADDED, replace=replace):
        raise Misconfigured(
            f"There is a schedule {name!r} already. Add --replace to change it, or choose another name."
        )
    going = await _running(project, name)
    leads = await project.state.schedules.leader() is not None
    progress = await _find(project, name)
    last = await project.state.jobs.job(progress.last_job) if progress.last_job else None
    now = project.clock.now()
    return ScheduleAdded(
        name=name,
        when=describe(trigger_of(schedule)),
        first_run=_first_run(progress, now, leads=leads, last=last, known=known),
        going=going,
        warnings=schedule_warnings(project.settings, progress, new.starts, now),
    )


def opening_for(
    settings: Settings,
    schedule: Schedule,
    due: float,
    *,
    budget: int | None = None,
    spiders: Spiders | None = None,
) -> tuple[str, JobTerms]:
    """Name and terms of the job for a run. Raises Misconfigured for any exception in the spider's code."""
    try:
        return opening_of(settings, schedule, due, budget=budget, spiders=spiders)
    except GossamerError:
        raise
    except Exception as error:  # a spider's constructor may raise anything
        raise Misconfigured(
            f"Spider {schedule.spider} cannot be created: {type(error).__name__}: {error}. Fix its file."
        ) from error


def _starts(settings: Settings, schedule: Schedule, *, force: bool) -> list[str]:
    """Where the spider starts; empty if it is not on this machine. Raises SpiderNotFound unless `force`, and
    Misconfigured for a spider that is faulty or lacks the callback."""
    spiders = Spiders(settings)
    try:
        opening_for(settings, schedule, 0.0, spiders=spiders)
    except SpiderNotFound as error:
        if force:
            return []
        raise SpiderNotFound(f"{error} If it is on other machines only, add --force.") from error
    return [] if "://" in schedule.spider else named_addresses(spiders.find(schedule.spider))


def _demand_future(schedule: Schedule, now: float) -> None:
    """Raises Misconfigured for a schedule whose only moment has passed."""
    trigger = trigger_of(schedule)
    if isinstance(trigger, Once) and trigger.at <= now:
        raise Misconfigured(
            f"{in_zone(trigger.at, trigger.zone)} is past by {span(now - trigger.at)}, so it would never run. Give a "
            "moment to come, or begin it now with `gossamer crawl`."
        )


def _first_run(progress: ScheduleProgress, now: float, *, leads: bool, last: Job | None, known: str) -> str:
    """When it will run. `last` is its last run, which a scheduler may have begun at once; `known` is the one before it
    was added."""
    if progress.paused:
        return f"it is paused, and runs when it is resumed: gossamer schedule resume {progress.schedule.name}"
    first, skipped = next_run(progress, now, None if last is None else last.due)
    if last is not None and last.id != known:
        then = f", the next {_at_its_place(progress, first, now)}" if first is not None else ""
        return f"its first run has begun ({last.id}){then}"
    early = f"{many(skipped, 'tick')} before it, too early for a single fetch of the budget, will be skipped"
    if first is None:
        return "no tick to come gets a single fetch of the budget" if skipped else "it is never due again"
    when = _at_its_place(progress, first, now)
    if first < now + 1.0:  # a clock may round
        when = "at once" if leads else "as soon as a scheduler runs"
    return f"next run {when}" + (f"; {early}" if skipped else "")


def _at_its_place(progress: ScheduleProgress, at: float, now: float) -> str:
    """In local time of its zone, and how far off: `2027-01-31 12:00:05 CET (in 2 h)`."""
    return f"{in_zone(at, progress.schedule.zone)} ({distance(at, now)})"


# -- warnings ----------------------------------------------------------------------------------------------------


def schedule_warnings(settings: Settings, progress: ScheduleProgress, starts: list[str], now: float) -> list[str]:
    """Possible mistakes in a schedule whose spider starts at `starts`. They may be intended: workers may run on other
    machines, with files and programs that this one lacks."""
    schedule = progress.schedule
    return [
        *(
            f"{host} is a private address. If workers may visit it, add it to fetch.allow_hosts in {FILE_NAME}."
            for host in _refused_hosts(settings, schedule, starts)
        ),
        *_missing(settings, schedule),
        *_thin_budget(progress, now),
    ]


def _refused_hosts(settings: Settings, schedule: Schedule, starts: list[str]) -> list[str]:
    """Private hosts that the schedule names and workers will not visit, because no person typed them. They do visit the
    hosts at which the spider `starts`."""
    if settings.fetch.allow_private:
        return []
    urls = [schedule.spider] if "://" in schedule.spider else []
    match source_of(schedule.source):
        case UrlsSource(urls=texts):
            urls += [parse_pattern(text).at(0) for text in texts]
        case SitemapSource(url=url) | FeedSource(url=url):
            urls.append(url)
    allowed = {*settings.fetch.allow_hosts, *local_hosts(starts)}
    return [host for host in local_hosts(urls) if host not in allowed]


def _missing(settings: Settings, schedule: Schedule) -> list[str]:
    match source_of(schedule.source):
        case FileSource(path=path) if not (settings.root / path).is_file():
            return [
                f"There is no file {settings.root / path} on this machine. The worker that begins a run reads its own."
            ]
        case CommandSource(argv=argv):
            # As the program will be found: by its path from the project's folder, or by its name in PATH.
            place = str(settings.root / argv[0]) if os.sep in argv[0] else argv[0]
            if shutil.which(place) is None:
                return [
                    f"There is no program {program(argv)} on this machine. The worker that begins a run starts its own."
                ]
    return []


def _thin_budget(progress: ScheduleProgress, now: float) -> list[str]:
    budget = progress.schedule.budget
    runs = 0 if budget is None else _runs_a_day(progress, now)
    if budget is None or runs <= budget:
        return []
    return [
        f"A budget of {budget:,} a day is {budget / runs:.2g} fetches for each of {runs:,} runs a day: most runs fetch "
        "nothing. Raise the budget, or run it less often."
    ]


def _runs_a_day(progress: ScheduleProgress, now: float) -> int:
    trigger = trigger_of(progress.schedule)
    if isinstance(trigger, Every):
        return int(_DAY / trigger.seconds)
    # From the second tick on, because the first may be overdue. A cron is due at most once a minute.
    ticks = islice(ticks_of(progress, now), 1, None)
    first = next(ticks, None)
    return 0 if first is None else 1 + sum(1 for _ in takewhile(lambda tick: tick.at < first.at + _DAY, ticks))


# -- changing ----------------------------------------------------------------------------------------------------


async def pause_schedule(project: Project, name: str) -> ScheduleChange:
    """Skip the ticks of a schedule from now on. A running job of it continues. Raises Misconfigured."""
    progress = await _find(project, name)
    if progress.paused:
        return ScheduleChange(name=name, changed=False)
    await _set_paused(project, progress, True)
    return ScheduleChange(name=name, changed=True, running=await _running(project, name))


async def resume_schedule(project: Project, name: str) -> ScheduleChange:
    """Let a paused schedule continue with its next tick. Raises Misconfigured."""
    progress = await _find(project, name)
    if not progress.paused:
        return ScheduleChange(name=name, changed=False)
    await _set_paused(project, progress, False)
    now = project.clock.now()
    due = next_tick(progress.rested(False, now), now)
    return ScheduleChange(
        name=name, changed=True, next_run="never" if due is None else _at_its_place(progress, due, now)
    )


def written_trigger(text: str) -> WrittenTrigger:
    """A trigger as people write it on one line: `every 6h`, `at 2027-01-31T12:00`, or a cron expression."""
    word, _, rest = text.strip().partition(" ")
    kind, said = (word, rest.strip()) if word in ("every", "at", "cron") else ("cron", text.strip())
    return WrittenTrigger(**{kind: said})


async def edit_schedule(project: Project, name: str, wanted: ScheduleEdit) -> ScheduleAdded:
    """Change when a schedule runs, not what it does. Raises Misconfigured for a schedule of gossamer.toml, for one
    without a valid seal, for an invalid definition, and if another has changed it since it was seen."""
    settings, progress = project.settings, await _find(project, name)
    if progress.origin == FROM_FILE:
        raise Misconfigured(_in_file(settings, name, "change it"))
    before = progress.schedule
    demand_own_schedule(settings, before)  # otherwise our seal would vouch for a stranger's definition
    if wanted.seen not in ("", edit_mark(before)):
        now = describe(trigger_of(before))
        raise Misconfigured(
            f"{name} was changed since you looked: it runs {now}. Look at it again, and change it then."
        )
    when = written_trigger(wanted.trigger)
    table = ScheduleTable(
        spider=before.spider,
        every=when.every,
        at=when.at,
        cron=when.cron,
        zone=wanted.zone,
        windows=wanted.windows,
        overlap=wanted.overlap,
        limit=wanted.limit,
        budget=wanted.budget,
    )
    checked = schedule_of(name, table)
    after = msgspec.structs.replace(before, **{field: getattr(checked, field) for field in EDITED})
    return await add_schedule(project, NewSchedule(sealed_schedule(settings, after), []), replace=True)


async def _set_paused(project: Project, progress: ScheduleProgress, paused: bool) -> None:
    schedules, name = project.state.schedules, progress.schedule.name
    if not await schedules.pause(name, paused):  # a schedule of the file that no scheduler has read yet
        await schedules.put(progress.schedule, origin=progress.origin)
        await schedules.pause(name, paused)


async def run_schedule(project: Project, name: str, *, replace: bool = False) -> ScheduleRun:
    """Start a run now, besides the ticks; no scheduler is needed. `replace` ends the running one.

    Raises Misconfigured, and Transient if other processes keep changing the schedule.
    """
    progress = await _find(project, name)
    for _ in range(RUN_TRIES):  # others may change the schedule, or start another run, at the same moment
        going = [job for job in await project.state.jobs.running_jobs() if job.name == name][-1:]
        if going and not replace:
            (job,) = going
            raise Misconfigured(
                f"{job.id} is still {'paused' if job.paused else 'running'}. Wait for it, end it with `gossamer "
                f"job cancel {job.id}`, or add --replace."
            )
        kept, now = await _kept(project, progress), project.clock.now()
        share = await share_of(project.state.jobs, kept, now, now, by_hand=True)
        budget = None if share is None else max(1, share)
        opening = opening_for(project.settings, progress.schedule, now, budget=budget)
        replaces = going[0].id if going else ""
        settled = await project.state.schedules.begin(kept, run_now(kept), opening, replaces=replaces)
        if settled is not None:
            return ScheduleRun(name, settled.progress.last_job, await _too_soon(project, kept, now))
        await project.clock.sleep(RUN_PAUSE.total_seconds())
    raise Transient(f"Other processes keep changing schedule {name}. No run was started; try again.")


async def _too_soon(project: Project, kept: ScheduleProgress, now: float) -> str:
    """Says that the pages of the last run are younger than the schedule's `min_age`; "" if they are not."""
    min_age = kept.schedule.min_age
    last = await project.state.jobs.job(kept.last_job) if kept.last_job else None
    if min_age is None or last is None or now - last.created_at >= min_age.total_seconds():
        return ""
    ago = span(now - last.created_at)
    return (
        f"Its last run began {ago} ago, and its min_age is {span(min_age.total_seconds())}: pages that were fetched"
        f" since are not due, and are left out."
    )


async def _kept(project: Project, progress: ScheduleProgress) -> ScheduleProgress:
    """The schedule as stored in the state. One of the file that no scheduler has read yet is entered."""
    name = progress.schedule.name
    while True:
        for one in await project.state.schedules.schedules():
            if one.schedule.name == name:
                return one
        await project.state.schedules.put(progress.schedule, origin=progress.origin)


async def remove_schedule(project: Project, name: str) -> ScheduleChange:
    """Remove a schedule, even one that cannot be read. Its jobs stay, and a running one continues.

    Raises Misconfigured.
    """
    book = await read_book(project)
    if name not in {one.name for one in book.unreadable}:
        progress = named(book.schedules, name)
        if progress.origin == FROM_FILE and name in project.settings.schedules:
            raise Misconfigured(_in_file(project.settings, name, "remove it"))
    await project.state.schedules.remove(name)
    return ScheduleChange(name=name, changed=True, running=await _running(project, name))


def demand_schedule(settings: Settings, name: str, now: float) -> None:
    """Raises Misconfigured if gossamer.toml has no such schedule: a project without state has no others."""
    named(merged(settings, {}, now), name)


async def _find(project: Project, name: str) -> ScheduleProgress:
    """The schedule as it would be if a scheduler read gossamer.toml now. Raises Misconfigured."""
    book = await read_book(project)
    demand_readable(book.unreadable, name)
    known = {one.schedule.name: one for one in await project.state.schedules.schedules()}
    return named(merged(project.settings, known, project.clock.now()), name)


async def _running(project: Project, name: str) -> list[str]:
    return [job.id for job in await project.state.jobs.running_jobs() if job.schedule == name]


def _in_file(settings: Settings, name: str, verb: str) -> str:
    return f"Schedule {name!r} is written in {settings.root / FILE_NAME}, as [schedules.{name}]: {verb} there."
