"""The schedules of a project: those stored in the state, and those of gossamer.toml.

This module reads them, schedule_changes.py changes them. Every value has the shape that `--json` prints; times are ISO
8601. How it fails: BackendUnavailable, and Misconfigured for a schedule that does not exist.
"""

from __future__ import annotations

import asyncio
import difflib
from datetime import timedelta
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple

import msgspec

from ...clock import iso_time
from ...errors import Misconfigured, NotThere
from ...model.job import JobState
from ...model.outcome import Expectations, Outcome, Reason
from ...model.schedule import Overlap, Schedule, ScheduleProgress, UnreadableSchedule
from ...schedule.definition import FROM_FILE, schedules_of
from ...schedule.sources import PagesSource, StartSource, discreet, source_of, without_secrets
from ...schedule.sources import describe as describe_source
from ...schedule.sources.kinds import MOST_URLS
from ...schedule.triggers import describe
from ...settings import FILE_NAME, Settings
from ...units import setting_text
from ..jobs.jobs import JobView, job_in_full, views_of
from ..open import Project
from .timetable import coming, is_counted, is_missed, natural, next_tick, state_of, ticks_of, trigger_of

RUNS_ASKED_AT_ONCE = 50
RUNS_SHOWN = 5
TICKS_SHOWN = 5
CALENDAR_TICKS = 300  # of one schedule
CALENDAR_TICKS_IN_ALL = 1250  # fifty that run every hour of a day


class ScheduleNote(msgspec.Struct, frozen=True):
    """A note about a schedule for the reader.

    `about` is `file` (gossamer.toml differs from what is in force), `ignored` (its table in the file is not used),
    `withdrawn` (it is no longer in the file), `trouble` (a run could not start) or `last run` (something was wrong with
    it).
    """

    about: Literal["file", "ignored", "withdrawn", "trouble", "last run"]
    text: str


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of a schedule and its progress. Secrets in addresses and commands are hidden."""

    name: str
    spider: str  # the name of a spider or a recipe, or the URL of a site
    arguments: tuple[str, ...]  # of the spider
    trigger: str
    when: str  # the trigger in words
    zone: str
    source: dict[str, Any] | None  # of addresses; None: the spider's own start
    source_in_words: str
    max_urls: int | None  # at most this many addresses are taken from the source
    kind: str  # the callback for addresses of the source
    priority: int
    rate: str | None  # of a run at a site, if slower than usual
    site_concurrency: int | None  # requests of a run at once at one site, if fewer than usual
    min_age: str | None
    windows: str
    overlap: Overlap
    limit: int | None
    budget: int | None  # fetches a day
    min_interval: str | None
    max_interval: str | None
    expected: Expectations  # of each run
    origin: str  # file or added
    created_at: str
    paused: bool
    last_due: str | None  # the last tick with a decision
    newest_due: str | None
    since: str | None  # only ticks after this one count
    last_job: str
    runs: int
    skipped: int
    skip_reason: str
    waiting_due: str | None  # a tick whose run waits for the previous one
    failures: int  # failed tries in a row to start a run
    retry_at: str | None
    trouble: str
    withdrawn_at: str | None
    state: str  # new, active, paused, trouble, waiting, missed, over, unread or withdrawn, see timetable.state_of
    missed: bool  # its only moment passed without a run
    next: str | None  # the next tick
    due: bool  # that tick has come: it runs as soon as a scheduler leads
    last_phase: str | None  # of the last run: running, done, ...
    last_in_words: str | None
    last_ending: str | None
    last_outcome: Outcome | None
    last_reasons: tuple[Reason, ...]
    file_ignored: bool  # gossamer.toml has one of this name, but an added one is in force
    file_differs: bool  # gossamer.toml differs from what is in force
    notes: list[ScheduleNote]

    @property
    def is_counted(self) -> bool:
        """Whether its ticks depend on when a scheduler reads it."""
        return self.trigger.startswith("every ")


class ScheduleDetail(ScheduleView, frozen=True, kw_only=True):
    """A schedule with its coming ticks and its last runs."""

    next_ticks: list[str]
    last_runs: list[JobView]
    leads: bool  # whether a scheduler starts its runs


class BrokenSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that this version cannot read, and why. It is left alone."""

    name: str
    state: Literal["unreadable"] = "unreadable"
    trouble: str

    @property
    def words(self) -> str:
        return UnreadableSchedule(self.name, self.trouble).words


class TickView(msgspec.Struct, frozen=True):
    """A moment at which a schedule is due. A past tick runs as soon as a scheduler leads."""

    schedule: str
    at: str


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules by name, and the coming ticks of those that are not paused."""

    schedules: list[ScheduleView]
    broken: list[BrokenSchedule]
    ticks: list[TickView]
    leads: bool  # whether a scheduler starts their runs
    now: str

    @property
    def entries(self) -> list[ScheduleView | BrokenSchedule]:
        return [*self.schedules, *self.broken]


class Lane(NamedTuple):
    """The coming ticks of one schedule in a period, in order. `cut`: there are more until its end."""

    schedule: str
    times: list[float]
    cut: bool


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """What the state and the file say about schedules, before it is converted to values."""

    schedules: list[ScheduleProgress]
    now: float
    unreadable: list[UnreadableSchedule] = []
    leads: bool = False
    unread: frozenset[str] = frozenset()  # added to the file since a scheduler read it
    changed: frozenset[str] = frozenset()  # in the file since then
    removed: frozenset[str] = frozenset()  # from the file since then
    ignored: frozenset[str] = frozenset()  # in the file, but one of that name was added at run time

    def only(self, name: str | None) -> Book:
        """Only the schedule of that name. Raises Misconfigured."""
        if name is None:
            return self
        demand_readable(self.unreadable, name)
        return msgspec.structs.replace(self, schedules=[named(self.schedules, name)], unreadable=[])


# -- looking -----------------------------------------------------------------------------------------------------


async def list_schedules(project: Project, name: str | None = None, *, ticks: int = 0) -> ScheduleList:
    """All schedules, or one, with that number of coming ticks. Raises Misconfigured if it does not exist."""
    book = (await read_book(project)).only(name)
    return _schedule_list(book, await _last_runs(project, book.schedules), ticks)


def unstarted_schedules(settings: Settings, now: float, name: str | None = None, *, ticks: int = 0) -> ScheduleList:
    """The schedules of a project without state: those of gossamer.toml. Raises Misconfigured."""
    return _schedule_list(book_of_file(settings, now).only(name), {}, ticks)


async def calendar(project: Project, length: timedelta, most: int) -> tuple[list[Lane], int]:
    """When the schedules are due from now on, for that period: those that are due first, and how many there are.
    Paused ones are left out. They share a number of ticks: what the rare ones leave is for those that run often."""
    book = await read_book(project)
    end = book.now + length.total_seconds()
    first = {one.schedule.name: at for one in book.schedules if (at := next_of(one, book)) is not None and at <= end}
    chosen = sorted(
        (one for one in book.schedules if one.schedule.name in first), key=lambda one: first[one.schedule.name]
    )[:most]
    lanes: list[Lane] = []
    left = CALENDAR_TICKS_IN_ALL
    for progress in reversed(chosen):  # what runs rarely is seldom due first
        share = min(CALENDAR_TICKS, left // (len(chosen) - len(lanes)))
        ticks = islice(ticks_of(progress, book.now), share + 1)
        times = [max(tick.at, book.now) for tick in takewhile(lambda tick: tick.at <= end, ticks)]
        lanes.append(Lane(progress.schedule.name, times[:share], len(times) > share))
        left -= len(lanes[-1].times)
    return lanes[::-1], len(first)


async def show_schedule(project: Project, name: str) -> ScheduleDetail:
    """One schedule with its last runs and its next ticks. Raises Misconfigured."""
    jobs = [job for job in await project.state.jobs.jobs() if job.schedule == name]
    found = await list_schedules(project, name, ticks=TICKS_SHOWN)
    return _detail(found, await views_of(project, jobs[:RUNS_SHOWN]))


def unstarted_schedule(settings: Settings, now: float, name: str) -> ScheduleDetail:
    """As `show_schedule`, for a project without state."""
    return _detail(unstarted_schedules(settings, now, name, ticks=TICKS_SHOWN), [])


def next_of(progress: ScheduleProgress, book: Book) -> float | None:
    """When it runs next. Past: as soon as a scheduler leads. None: never, not while it is paused, or not known before
    a scheduler has read it."""
    unknown = progress.schedule.name in book.unread and is_counted(progress)
    return None if progress.paused or unknown else next_tick(progress, book.now)


async def read_book(project: Project) -> Book:
    """What the state and gossamer.toml say together. While a scheduler leads, what it has read is in force."""
    settings, now = project.settings, project.clock.now()
    wanted = schedules_of(settings.schedules)
    written = await project.state.schedules.everything()
    known = {one.schedule.name: one for one in written if isinstance(one, ScheduleProgress)}
    unreadable = [one for one in written if isinstance(one, UnreadableSchedule)]
    leads = await project.state.schedules.leader() is not None
    return Book(
        schedules=merged(settings, known, now, in_force=leads),
        now=now,
        unreadable=unreadable,
        leads=leads,
        unread=frozenset(wanted.keys() - known.keys() - {one.name for one in unreadable}),
        changed=frozenset(name for name, schedule in wanted.items() if _is_changed(known.get(name), schedule)),
        removed=frozenset(
            name
            for name, one in known.items()
            if name not in wanted and one.origin == FROM_FILE and one.withdrawn_at is None
        ),
        ignored=frozenset(name for name in wanted if name in known and known[name].origin != FROM_FILE),
    )


def book_of_file(settings: Settings, now: float) -> Book:
    """The schedules of gossamer.toml alone, in a project without state."""
    return Book(schedules=merged(settings, {}, now), now=now, unread=frozenset(schedules_of(settings.schedules)))


def merged(
    settings: Settings, known: dict[str, ScheduleProgress], now: float, *, in_force: bool = False
) -> list[ScheduleProgress]:
    """All schedules by name. Those of the file are as the file defines them, even before a scheduler has read it.

    `in_force`: a schedule that a scheduler has read is as that scheduler knows it, whatever the file says by now.
    """
    found = dict(known)
    for name, schedule in schedules_of(settings.schedules).items():
        there = found.get(name)
        if there is None:
            found[name] = ScheduleProgress(schedule=schedule, origin=FROM_FILE, created_at=now)
        elif not in_force and _is_changed(there, schedule):
            found[name] = there.rewritten(schedule, FROM_FILE, now)
    return [found[name] for name in sorted(found, key=natural)]


def _is_changed(known: ScheduleProgress | None, schedule: Schedule) -> bool:
    if known is None or known.origin != FROM_FILE:
        return False
    return known.schedule != schedule or known.withdrawn_at is not None


def named(schedules: list[ScheduleProgress], name: str) -> ScheduleProgress:
    """Raises Misconfigured with a suggestion."""
    for one in schedules:
        if one.schedule.name == name:
            return one
    near = difflib.get_close_matches(name, [one.schedule.name for one in schedules], n=1)
    hint = f"Did you mean {near[0]}?" if near else "`gossamer schedule list` shows what there is."
    raise NotThere(f"There is no schedule {name!r}. {hint}")


def demand_readable(unreadable: list[UnreadableSchedule], name: str) -> None:
    """Raises Misconfigured for a schedule in the state that this version cannot read."""
    for one in unreadable:
        if one.name == name:
            raise Misconfigured(one.words)


async def _last_runs(project: Project, schedules: list[ScheduleProgress]) -> dict[str, JobView]:
    async def last_run(progress: ScheduleProgress) -> JobView | None:
        job = await project.state.jobs.job(progress.last_job) if progress.last_job else None
        return None if job is None else await job_in_full(project, job)

    found: dict[str, JobView] = {}
    for start in range(0, len(schedules), RUNS_ASKED_AT_ONCE):
        some = schedules[start : start + RUNS_ASKED_AT_ONCE]
        runs = await asyncio.gather(*(last_run(one) for one in some))
        found |= {one.schedule.name: run for one, run in zip(some, runs, strict=True) if run is not None}
    return found


# -- values ------------------------------------------------------------------------------------------------------


def _schedule_list(book: Book, last_runs: dict[str, JobView], ticks: int) -> ScheduleList:
    at_work = [one for one in book.schedules if not one.paused]
    return ScheduleList(
        schedules=[ScheduleView(**_fields(one, book, last_runs.get(one.schedule.name))) for one in book.schedules],
        broken=[BrokenSchedule(name=one.name, trouble=one.why) for one in book.unreadable],
        ticks=[TickView(tick.schedule, iso_time(tick.at)) for tick in coming(at_work, book.now, ticks)],
        leads=book.leads,
        now=iso_time(book.now),
    )


def _detail(found: ScheduleList, last_runs: list[JobView]) -> ScheduleDetail:
    (view,) = found.schedules
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    ticks = [tick.at for tick in found.ticks]
    return ScheduleDetail(**fields, next_ticks=ticks, last_runs=last_runs, leads=found.leads)


def _fields(progress: ScheduleProgress, book: Book, run: JobView | None) -> dict[str, Any]:
    schedule, name = progress.schedule, progress.schedule.name
    unread = name in book.unread
    due = next_of(progress, book)
    fields: dict[str, Any] = {
        key: getattr(one, key)
        for one in (schedule, progress)
        for key in one.__struct_fields__
        if key in ScheduleView.__struct_fields__
    }
    fields["rate"] = schedule.rate or None
    for key in ("min_age", "min_interval", "max_interval"):
        fields[key] = setting_text(fields[key]) if fields[key] is not None else None
    for key in ("created_at", "last_due", "newest_due", "since", "waiting_due", "retry_at", "withdrawn_at"):
        fields[key] = iso_time(fields[key]) if fields[key] is not None else None
    return fields | {
        "spider": discreet(schedule.spider),
        "when": describe(trigger_of(schedule)),
        "source": msgspec.to_builtins(without_secrets(source_of(schedule.source))) if schedule.source else None,
        "source_in_words": describe_source(source_of(schedule.source)),
        "max_urls": _max_urls(schedule),
        "state": state_of(progress, book.now, unread=unread),
        "missed": is_missed(progress, book.now),
        "next": iso_time(due) if due is not None else None,
        "due": due is not None and due <= book.now,
        "last_phase": run.phase if run is not None else None,
        "last_in_words": run.in_words if run is not None else None,
        "last_ending": run.ending if run is not None else None,
        "last_outcome": run.outcome if run is not None else None,
        "last_reasons": run.reasons if run is not None else (),
        "file_ignored": name in book.ignored,
        "file_differs": name in book.unread | book.changed | book.removed,
        "notes": _notes(progress, book, run),
    }


def _max_urls(schedule: Schedule) -> int | None:
    source = source_of(schedule.source)
    own = None if isinstance(source, StartSource | PagesSource) else source.max_urls
    return None if own == MOST_URLS else own


def _notes(progress: ScheduleProgress, book: Book, run: JobView | None) -> list[ScheduleNote]:
    name, notes = progress.schedule.name, []
    if behind := _behind(progress, book):
        notes.append(ScheduleNote("file", behind))
    if name in book.ignored:
        notes.append(
            ScheduleNote(
                "ignored",
                f"the table [schedules.{name}] of {FILE_NAME} is ignored, because one of that name was added. "
                f"Remove that one (gossamer schedule remove {name}), or rename the table.",
            )
        )
    if progress.withdrawn_at is not None and not behind:
        notes.append(ScheduleNote("withdrawn", f"no longer in {FILE_NAME}, so it rests; it is deleted after a week."))
    if progress.trouble:
        notes.append(ScheduleNote("trouble", progress.trouble))
    if run is not None and (trouble := _trouble_of(run)):
        notes.append(ScheduleNote("last run", trouble))
    return notes


def _behind(progress: ScheduleProgress, book: Book) -> str:
    """How the file differs, and when that will take effect; "" if it does not differ."""
    name = progress.schedule.name
    when = "when the leading scheduler is restarted" if book.leads else "when a scheduler starts"
    if name in book.removed:
        return f"no longer in {FILE_NAME}; it rests {when}."
    if name in book.unread:
        return f"new in {FILE_NAME}; it is read {when}."
    if name in book.changed:
        return f"{'changed' if progress.withdrawn_at is None else 'back'} in {FILE_NAME}; that is read {when}."
    return ""


def _trouble_of(run: JobView) -> str:
    """What is wrong with a run, whatever its ending."""
    if run.fault:
        return f"{run.id} ended: {run.ending}"
    if run.dead and not run.done + run.unchanged and run.state is not JobState.RUNNING:
        return f"no page of {run.id} could be fetched; see: gossamer dead list --job {run.id}"
    if run.outcome not in (None, Outcome.DONE, Outcome.INCOMPLETE):
        return f"{run.id} is {run.in_words}"
    return f"{run.id}: {run.trouble}" if run.trouble else ""
