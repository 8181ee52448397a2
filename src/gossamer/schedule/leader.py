"""`Scheduler`: begins the runs of schedules when they are due. It never scrapes, and reads no source.

What it does: of any number of schedulers one leads (leadership.py). It stores the schedules of gossamer.toml
(definition.py), checks about every second what is due (decisions.py), and settles each tick in one step, together with
the job that it begins.
How it fails: a spider that cannot be loaded, an unreadable schedule, even a bug of ours that one schedule triggers is
the trouble of that schedule alone. It is reported, and retried with pauses. While the state does not answer, the
scheduler waits. What a leader writes after its term is refused.
How it recovers: the next leader finds every schedule where it was left; a tick that was missed runs once.

Spiders' code runs in threads of this process (spider_loader.py): a slow spider delays its own run and no other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache

from ..clock import Clock
from ..errors import GossamerError, LeaseLost, Misconfigured, Transient
from ..model.events import EventSink, ScheduleFailed, ScheduleFired, ScheduleQueued, ScheduleSkipped, Trouble
from ..model.job import JobTerms
from ..model.schedule import ScheduleProgress, Settled, UnreadableSchedule
from ..settings import Settings
from .contract import ScheduleBook, SchedulerState, TickBook
from .decisions import Begin, Due, Rest, Step, TickOutcome, failed, judge, look, skipped
from .definition import BookChange, changes_of, schedules_of, unused
from .leadership import Lead
from .runs import opening_with, share_of
from .spider_loader import Loaded, SpiderLoader
from .triggers import is_past, parse_trigger

LOOK = timedelta(seconds=1)  # between two checks, unless a tick is due earlier
SOON = timedelta(milliseconds=10)  # after a check that changed something
TROUBLED = timedelta(seconds=5)  # after a check that raised an unexpected error
LEFT_ALONE = timedelta(minutes=5)  # how long a schedule rests after an unexpected error
CLOCK_BACK = timedelta(minutes=1)  # if the clock is put back by more, all schedules are checked anew
AT_ONCE = 100  # concurrent steps

_read_trigger = lru_cache(maxsize=10_000)(parse_trigger)


class Scheduler:
    """Leads, or waits for its turn to lead, until it is drained.

    `name` must be unique among schedulers. `forget_old_runs` is called with the name of a schedule after one of its
    runs was replaced. Raises Misconfigured if a schedule of gossamer.toml cannot be read.
    """

    def __init__(
        self,
        state: SchedulerState,
        settings: Settings,
        clock: Clock,
        events: EventSink,
        *,
        name: str,
        forget_old_runs: Callable[[str], Awaitable[object]],
        loader: SpiderLoader | None = None,
    ) -> None:
        self._jobs = state.jobs
        self._ticks = state.ticks
        self._settings = settings
        self._clock = clock
        self._began = clock.now()
        self._events = events
        self._forget_old_runs = forget_old_runs
        self._wanted = schedules_of(settings.schedules)
        self._lead = Lead(state.ticks, clock, events, name)
        self._known = KnownSchedules(state.schedules, state.ticks)
        self._loader = loader or SpiderLoader(settings)
        self._rests: dict[str, tuple[int, float]] = {}  # by schedule: version, and nothing is due before this time
        self._latest = -math.inf  # the latest time the clock has shown
        self._told: dict[str, set[str]] = {}  # messages already sent about a schedule, or ("") about the backend
        self._draining = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Does it lead, as far as it knows?"""
        return self._lead.held

    @property
    def is_loading(self) -> bool:
        """Is a due run waiting for its spider to be loaded?"""
        return self._loader.busy

    @property
    def lead(self) -> Lead:
        """The lead, for the other duties of a leader."""
        return self._lead

    def drain(self) -> None:
        """Begin nothing more; `run` returns after the current check."""
        self._draining.set()

    async def run(self) -> None:
        """Run until drained. Then the next scheduler may lead at once."""
        staying = asyncio.create_task(self._lead.stay(self._draining, self._tell_of))
        try:
            while not self._draining.is_set():
                pause = await self.turn()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await self._draining.wait()
        finally:
            self._draining.set()
            await staying  # not cancelled: a request in flight could take the lead after we have resigned
            await self.resign()

    async def turn(self) -> timedelta:
        """One check: lead if no other scheduler does, and do what is due. Returns how long nothing will be due.

        Problems are reported, once; nothing is raised for them.
        """
        try:
            pause = await self._decide_all() if await self._lead.keep() else LOOK
        except LeaseLost as error:
            self._lead.lose()
            self._tell_of(error)
            return LOOK
        except Transient as error:
            self._tell_of(error)
            return LOOK
        except Exception as error:  # a bug of ours: the next check may still serve the other schedules
            self._known.doubt()
            self._tell_of(error)
            return TROUBLED
        self._told.pop("", None)
        return pause

    async def resign(self) -> None:
        """Let the next scheduler lead. Does nothing if this one does not lead."""
        await self._lead.resign()

    # -- one check ---------------------------------------------------------------------------------------------

    async def _decide_all(self) -> timedelta:
        await self._known.refresh()
        await self._follow_file()
        now = self._clock.now()
        self._forget_what_is_gone(now)
        for broken in self._known.unreadable:
            self._tell(broken.name, broken.words)
        steps: list[tuple[ScheduleProgress, Step | Begin]] = []
        due: list[tuple[ScheduleProgress, Due]] = []
        for progress in self._known.schedules.values():
            found = self._look(progress, now)
            if isinstance(found, Step):
                steps.append((progress, found))
            elif isinstance(found, Due):
                due.append((progress, found))
        steps += await self._judged(due, now)
        taken = await self._take(steps, now)
        if taken:
            return SOON
        coming = min((until for _, until in self._rests.values()), default=math.inf)
        return max(SOON, min(LOOK, timedelta(seconds=min(coming - now, LOOK.total_seconds()))))

    def _look(self, progress: ScheduleProgress, now: float) -> Step | Due | None:
        """What is due; None if nothing is. Caches until when, because checking costs time."""
        name = progress.schedule.name
        version, until = self._rests.get(name, (-1, 0.0))
        if version == progress.version and now < until:
            return None
        found: Rest | Step | Due
        try:
            trigger = _read_trigger(progress.schedule.trigger, progress.schedule.zone)
            found = look(progress, trigger, now)
            if found == Rest(None) and self._is_news(progress, is_past(trigger, last_due=progress.last_due, now=now)):
                self._tell_past(progress)
        except Misconfigured as error:  # another version of Gossamer wrote it, say
            self._tell(name, f"Schedule {name} is left alone. {error}")
            found = Rest(None)
        except Exception as error:
            self._leave_alone(progress, error, now)
            return None
        if not isinstance(found, Rest):
            return found
        self._rest(progress, found.until)
        return None

    def _rest(self, progress: ScheduleProgress, until: float | None) -> None:
        self._rests[progress.schedule.name] = (progress.version, math.inf if until is None else until)

    def _leave_alone(self, progress: ScheduleProgress, error: Exception, now: float) -> None:
        """A check of this schedule failed unexpectedly. The others go on."""
        name = progress.schedule.name
        self._tell(name, f"Schedule {name} is left alone for {_minutes(LEFT_ALONE)}: {_words(error)}")
        self._rest(progress, now + LEFT_ALONE.total_seconds())

    async def _judged(
        self, due: Iterable[tuple[ScheduleProgress, Due]], now: float
    ) -> list[tuple[ScheduleProgress, Step | Begin]]:
        """Judge all that is due. The running jobs are read once for all."""
        judged: list[tuple[ScheduleProgress, Step | Begin]] = []
        going: dict[str, str] | None = None
        for progress, found in due:
            if going is None:
                # By name: a job that was started by other means under this name is in the way as well.
                going = {job.name: job.id for job in await self._jobs.running_jobs()}
            verdict = judge(progress, found, now, running=going.get(progress.schedule.name, ""))
            if isinstance(verdict, Rest):
                self._rest(progress, verdict.until)
            else:
                judged.append((progress, verdict))
        return judged

    # -- acting ------------------------------------------------------------------------------------------------

    async def _take(self, steps: list[tuple[ScheduleProgress, Step | Begin]], now: float) -> int:
        """Settle all steps; return how many were stored. Raises LeaseLost and Transient if one was refused; the others
        are stored."""
        loaded = await self._loader.load(
            progress.schedule.spider for progress, step in steps if isinstance(step, Begin)
        )
        taken = 0
        for start in range(0, len(steps), AT_ONCE):
            batch = steps[start : start + AT_ONCE]
            answers = await asyncio.gather(
                *(self._settle(progress, step, now, loaded) for progress, step in batch), return_exceptions=True
            )
            for (progress, _), answer in zip(batch, answers, strict=True):
                if isinstance(answer, GossamerError) or not isinstance(answer, Exception | bool):
                    raise answer
                if isinstance(answer, Exception):
                    self._leave_alone(progress, answer, now)
                else:
                    taken += answer
        return taken

    async def _settle(
        self, progress: ScheduleProgress, step: Step | Begin, now: float, loaded: dict[str, Loaded]
    ) -> bool:
        """False if it was not stored: then the next check sees why."""
        opening: tuple[str, JobTerms] | None = None
        replaces = ""
        if isinstance(step, Begin):
            if progress.schedule.spider not in loaded:
                self._rest(progress, now + LOOK.total_seconds())  # its spider is still being loaded
                return False
            replaces = step.replaces
            step, opening = await self._opened(progress, step, now, loaded[progress.schedule.spider])
        settled = await self._ticks.settle(self._lead.term, progress, step.after, opening, replaces=replaces)
        if settled is None:  # the schedule was changed, or a run was begun, meanwhile
            self._known.doubt()
            self._rest(progress, now + LOOK.total_seconds())
            return False
        self._known.enter(settled.progress)
        self._report(step, settled, now)
        if replaces and settled.job is not None:  # if each run replaces the previous one, no run ever ends by itself
            await self._forget_old_runs(settled.job.name)
        return True

    async def _opened(
        self, progress: ScheduleProgress, begin: Begin, now: float, loaded: Loaded
    ) -> tuple[Step | Begin, tuple[str, JobTerms] | None]:
        """The job to begin, or the step to take instead. Raises Transient."""
        share = await share_of(self._jobs, progress, begin.due, now)
        if share == 0:
            return skipped(progress, begin.due, "budget"), None
        try:
            if isinstance(loaded, BaseException):
                raise loaded
            return begin, opening_with(loaded, self._settings, progress.schedule, begin.due, budget=share)
        except (Exception, SystemExit) as error:  # a spider's code may raise anything
            return failed(progress, begin.due, now, _words(error)), None

    def _report(self, step: Step | Begin, settled: Settled, now: float) -> None:
        name, progress = settled.progress.schedule.name, settled.progress
        match step:
            case Begin(due=due, missed=missed):
                job = "" if settled.job is None else settled.job.id
                self._events.emit(ScheduleFired(at=now, job=job, schedule=name, due=due, missed=missed))
            case Step(outcome=TickOutcome.QUEUED, due=float() as due):
                self._events.emit(ScheduleQueued(at=now, schedule=name, due=due))
            case Step(outcome=TickOutcome.SKIPPED, due=float() as due):
                self._events.emit(ScheduleSkipped(at=now, schedule=name, due=due, reason=step.why))
            case Step(outcome=TickOutcome.FAILED, due=float() as due):
                delay = (progress.retry_at or now) - now
                self._events.emit(
                    ScheduleFailed(
                        at=now, schedule=name, due=due, attempt=progress.failures, delay=delay, message=step.why
                    )
                )

    # -- gossamer.toml -----------------------------------------------------------------------------------------

    async def _follow_file(self) -> None:
        """Make the stored schedules agree with gossamer.toml. A write that is refused, because another process was
        faster, is retried at the next check. Raises LeaseLost and Transient."""
        known = self._known
        for name in unused(self._wanted, known.schedules):
            self._tell(
                name,
                f"Schedule {name} of gossamer.toml is not used, because one of that name was added at run time. "
                f"Remove that one (gossamer schedule remove {name}), or rename yours.",
            )
        unreadable = {broken.name for broken in known.unreadable}
        entries = changes_of(self._wanted, known.schedules, unreadable, self._clock.now())
        for start in range(0, len(entries), AT_ONCE):
            answers = await asyncio.gather(
                *(self._enter(entry) for entry in entries[start : start + AT_ONCE]), return_exceptions=True
            )
            for answer in answers:
                if answer is not None:
                    raise answer

    async def _enter(self, entry: BookChange) -> None:
        ticks, before, after = self._ticks, entry.before, entry.after
        if after is not None:
            settled = await ticks.settle(self._lead.term, before, after)
            if settled is not None:
                self._known.enter(settled.progress)
                return
        elif before is not None and await ticks.forget(self._lead.term, before):
            self._known.forget(before.schedule.name)
            return
        self._known.doubt()

    # -- reports and caches ------------------------------------------------------------------------------------

    def _tell(self, matter: str, words: str) -> None:
        """Report the same message about the same subject only once."""
        said = self._told.setdefault(matter, set())
        if words not in said:
            said.add(words)
            self._events.emit(Trouble(at=self._clock.now(), stage="schedules", message=words))

    def _is_news(self, progress: ScheduleProgress, past: bool) -> bool:
        """Was its moment already past when this scheduler read it, and was it never run by hand?"""
        return past and not progress.runs and progress.created_at >= self._began

    def _tell_past(self, progress: ScheduleProgress) -> None:
        name = progress.schedule.name
        if progress.withdrawn_at is None:
            self._tell(
                name,
                f"Schedule {name} does not run: its moment was past when it was read. Write another one, or start a "
                f"run now: gossamer schedule run {name}",
            )

    def _tell_of(self, error: Exception) -> None:
        self._tell("", _words(error))

    def _forget_what_is_gone(self, now: float) -> None:
        """Forget schedules that no longer exist. If the clock was put back, all schedules are checked anew."""
        if now < self._latest - CLOCK_BACK.total_seconds():
            self._rests.clear()
            self._latest = now
        self._latest = max(self._latest, now)
        names = {*self._known.schedules, *(broken.name for broken in self._known.unreadable)}
        for name in self._rests.keys() - names:
            del self._rests[name]
        for name in self._told.keys() - names - {""}:
            del self._told[name]


class KnownSchedules:
    """The leader's cache of the stored schedules: read again when another process has changed them, and updated with
    the leader's own writes. So a check of a thousand schedules of which none is due costs one small request."""

    def __init__(self, book: ScheduleBook, ticks: TickBook) -> None:
        self._book = book
        self._ticks = ticks
        self._changes = -1  # how many changes are included here
        self.schedules: dict[str, ScheduleProgress] = {}
        self.unreadable: list[UnreadableSchedule] = []

    async def refresh(self) -> None:
        """Read the schedules if they have changed. Raises Transient."""
        changes = await self._ticks.changes()
        if changes == self._changes:
            return
        found = await self._book.everything()  # after the count: a change in between is seen the next time
        self.schedules = {one.schedule.name: one for one in found if isinstance(one, ScheduleProgress)}
        self.unreadable = [one for one in found if isinstance(one, UnreadableSchedule)]
        self._changes = changes

    def enter(self, progress: ScheduleProgress) -> None:
        """Note what the leader has written."""
        self.schedules[progress.schedule.name] = progress
        self._changes += 1

    def forget(self, name: str) -> None:
        """Note what the leader has removed."""
        self.schedules.pop(name, None)
        self._changes += 1

    def doubt(self) -> None:
        """Something did not match the cache: read everything the next time."""
        self._changes = -1


def _words(error: BaseException) -> str:
    words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
    return " ".join(words.split())


def _minutes(span: timedelta) -> str:
    return f"{span.total_seconds() / 60:.0f} minutes"
