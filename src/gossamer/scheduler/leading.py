"""`Scheduler`: begins the runs of schedules when they are due. It never scrapes, and reads no source.

What it does: of any number of schedulers one leads. It brings the schedules of gossamer.toml into the book, looks about
every second what is due, and decides about each tick in one step of the book, together with the job that it begins.
How it fails: a spider that cannot be had is the trouble of its schedule alone, which is told, and tried again with
growing pauses. A state that does not answer is waited for. A leader that stood still for too long leads no more.
How it recovers: when the leader dies, another one leads within TERM and a second, and finds every schedule where it was
left; a tick that was missed runs once.

The code of a spider's file runs in this process. A file that takes longer than TERM to load costs the lead, not a tick.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache

from ..assembly import System
from ..errors import GossamerError, LeaseLost, Misconfigured, Transient
from ..model.events import (
    EventSink,
    Leading,
    ScheduleFailed,
    ScheduleFired,
    ScheduleQueued,
    ScheduleSkipped,
    Trouble,
)
from ..model.job import JobTerms
from ..model.schedule import Schedule, Settled, Standing, Term
from ..schedule.spelling import parse_trigger
from ..schedule.triggers import next_due
from .deciding import Begin, Due, Outcome, Rest, Step, budget_of, failed, judge, look, skipped
from .defining import schedules_of
from .opening import Spiders, opening_of

TERM = timedelta(seconds=6)  # by the backend's clock; whoever is silent for so long leads no more
RENEW = timedelta(seconds=2)
LOOK = timedelta(seconds=1)  # between two looks, unless something is due before
SOON = timedelta(milliseconds=10)  # after a look that changed something
AT_ONCE = 100  # steps under way at a time; between them the lead is kept
FROM_FILE = "file"

_read_trigger = lru_cache(maxsize=10_000)(parse_trigger)


class Scheduler:
    """Leads, or waits for its turn to, until it is drained.

    `name` must be another one for each scheduler; the process's own name by default. Raises Misconfigured when a
    schedule of gossamer.toml is none.
    """

    def __init__(self, system: System, events: EventSink, *, name: str = "") -> None:
        self._system = system
        self._clock = system.clock
        self._events = events
        self._name = name or system.worker
        self._wanted = schedules_of(system.settings.schedules)
        self._term: Term | None = None
        self._renewed_at = -math.inf  # on this machine's clock
        self._rests: dict[str, tuple[int, float]] = {}  # by schedule: at this version, nothing before this moment
        self._looked_at = -math.inf
        self._told: dict[str, str] = {}  # what was said last about a schedule, or ("") about the backend
        self._draining = asyncio.Event()

    @property
    def leads(self) -> bool:
        """As far as it knows."""
        return self._term is not None

    def drain(self) -> None:
        """Begin nothing more; `run` returns when the look that is under way is over."""
        self._draining.set()

    async def run(self) -> None:
        """Until it is drained. Then the next one may lead at once."""
        try:
            while not self._draining.is_set():
                pause = await self.turn()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause.total_seconds()):
                        await self._draining.wait()
        finally:
            await self.resign()

    async def turn(self) -> timedelta:
        """One look: lead if nobody else does, and do what is due. Returns how long nothing will be due.

        A state that does not answer is told, once; nothing is raised for it.
        """
        try:
            pause = await self._decide_all() if await self._keep_lead() else LOOK
        except LeaseLost as error:
            self._step_down()
            self._tell("", str(error))
            return LOOK
        except Transient as error:
            self._tell("", str(error))
            return LOOK
        self._told.pop("", None)
        return pause

    async def resign(self) -> None:
        """Let the next one lead. Does nothing when this one does not."""
        term = self._term
        if term is not None:
            self._step_down()
            with suppress(Transient):  # then the term ends by itself
                await self._system.ticks.resign(term)

    # -- who leads ---------------------------------------------------------------------------------------------

    async def _keep_lead(self) -> bool:
        """Become the leader, or go on being it. False while another one is."""
        asked_at = self._clock.monotonic()
        if self._term is not None and asked_at - self._renewed_at < RENEW.total_seconds():
            return True
        term = await self._system.ticks.lead(self._name, TERM)
        if term is None:
            self._step_down()
            return False
        if self._term is None or self._term.token != term.token:
            self._step_down()
            self._events.emit(Leading(at=self._clock.now(), leader=self._name, leads=True, term=term.token))
        self._term, self._renewed_at = term, asked_at
        return True

    def _step_down(self) -> None:
        """What was known about schedules may be old by the time that this one leads again."""
        term, self._term = self._term, None
        self._rests.clear()
        if term is not None:
            self._events.emit(Leading(at=self._clock.now(), leader=self._name, leads=False, term=term.token))

    # -- one look ----------------------------------------------------------------------------------------------

    async def _decide_all(self) -> timedelta:
        standings = await self._with_file(await self._system.schedules.schedules())
        now = self._clock.now()
        self._forget_all_but({standing.schedule.name for standing in standings}, now)
        steps: list[tuple[Standing, Step | Begin]] = []
        due: list[tuple[Standing, Due]] = []
        for standing in standings:
            found = self._look(standing, now)
            if isinstance(found, Step):
                steps.append((standing, found))
            elif isinstance(found, Due):
                due.append((standing, found))
        steps += await self._judged(due, now)
        await self._take(steps, now)
        if steps:
            return SOON
        coming = min((until for _, until in self._rests.values()), default=math.inf)
        return max(SOON, min(LOOK, timedelta(seconds=min(coming - now, LOOK.total_seconds()))))

    def _look(self, standing: Standing, now: float) -> Step | Due | None:
        """None while there is nothing to do; when that will be over is remembered, for looking costs time."""
        name = standing.schedule.name
        version, until = self._rests.get(name, (-1, 0.0))
        if version == standing.version and now < until:
            return None
        found: Rest | Step | Due
        try:
            found = look(standing, _read_trigger(standing.schedule.trigger, standing.schedule.zone), now)
        except Misconfigured as error:  # it was written by another version of Gossamer, say
            self._tell(name, f"Schedule {name} is left alone. {error}")
            found = Rest(None)
        if not isinstance(found, Rest):
            return found
        self._rest(standing, found)
        return None

    def _rest(self, standing: Standing, rest: Rest) -> None:
        until = math.inf if rest.until is None else rest.until
        self._rests[standing.schedule.name] = (standing.version, until)

    async def _judged(self, due: Iterable[tuple[Standing, Due]], now: float) -> list[tuple[Standing, Step | Begin]]:
        """What becomes of all that is due. Which jobs run is asked once for all of it."""
        judged: list[tuple[Standing, Step | Begin]] = []
        going: set[str] | None = None
        for standing, found in due:
            if going is None:
                # By name, and not by id alone: a job that somebody else began under this name is in the way as well.
                going = {job.name for job in await self._system.jobs.running_jobs()}
            verdict = judge(standing, found, now, running=standing.schedule.name in going)
            if isinstance(verdict, Rest):
                self._rest(standing, verdict)
            else:
                judged.append((standing, verdict))
        return judged

    # -- acting ------------------------------------------------------------------------------------------------

    async def _take(self, steps: list[tuple[Standing, Step | Begin]], now: float) -> None:
        """Enter all steps in the book. Raises LeaseLost and Transient when one was refused; the others are entered."""
        spiders = Spiders(self._system.settings)
        for start in range(0, len(steps), AT_ONCE):
            if not await self._keep_lead():
                return
            answers = await asyncio.gather(
                *(self._settle(standing, step, now, spiders) for standing, step in steps[start : start + AT_ONCE]),
                return_exceptions=True,
            )
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer

    async def _settle(self, standing: Standing, step: Step | Begin, now: float, spiders: Spiders) -> None:
        opening: tuple[str, JobTerms] | None = None
        if isinstance(step, Begin):
            step, opening = await self._opened(standing, step, now, spiders)
        term = self._term
        if term is None:
            raise LeaseLost(f"{self._name} does not lead the schedulers any more; nothing was changed.")
        settled = await self._system.ticks.settle(term, standing, step.after, opening)
        if settled is not None:  # else somebody has changed the schedule; the next look sees it as it is now
            self._report(step, settled, now)

    async def _opened(
        self, standing: Standing, begin: Begin, now: float, spiders: Spiders
    ) -> tuple[Step | Begin, tuple[str, JobTerms] | None]:
        """The job to begin, or the step that is taken instead. Raises Transient."""
        schedule = standing.schedule
        budget = None if schedule.budget is None else await self._budget(standing, schedule.budget, begin.due)
        if budget == 0:
            return skipped(standing, begin.due, "budget"), None
        try:
            return begin, opening_of(self._system.settings, schedule, begin.due, budget=budget, spiders=spiders)
        except (Exception, SystemExit) as error:  # a spider's own code may raise anything
            words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
            return failed(standing, begin.due, now, " ".join(words.split())), None

    async def _budget(self, standing: Standing, per_day: int, due: float) -> int:
        last = await self._system.jobs.job(standing.last_job) if standing.last_job else None
        schedule = standing.schedule
        following = next_due(_read_trigger(schedule.trigger, schedule.zone), due, first=standing.created_at)
        return budget_of(per_day, due=due, since=None if last is None else last.due, following=following)

    def _report(self, step: Step | Begin, settled: Settled, now: float) -> None:
        name, standing = settled.standing.schedule.name, settled.standing
        match step:
            case Begin(due=due):
                job = "" if settled.job is None else settled.job.id
                self._events.emit(ScheduleFired(at=now, job=job, schedule=name, due=due))
            case Step(outcome=Outcome.QUEUED, due=float() as due):
                self._events.emit(ScheduleQueued(at=now, schedule=name, due=due))
            case Step(outcome=Outcome.SKIPPED, due=float() as due):
                self._events.emit(ScheduleSkipped(at=now, schedule=name, due=due, reason=step.why))
            case Step(outcome=Outcome.FAILED, due=float() as due):
                delay = (standing.retry_at or now) - now
                self._events.emit(
                    ScheduleFailed(
                        at=now, schedule=name, due=due, attempt=standing.failures, delay=delay, message=step.why
                    )
                )

    # -- gossamer.toml -----------------------------------------------------------------------------------------

    async def _with_file(self, standings: list[Standing]) -> list[Standing]:
        """Make the book agree with gossamer.toml; return it as it is then. What was added at run time stays."""
        known = {standing.schedule.name: standing for standing in standings}
        new: list[Schedule] = []
        for name, schedule in self._wanted.items():
            there = known.get(name)
            if there is None or (there.origin == FROM_FILE and there.schedule != schedule):
                new.append(schedule)
            elif there.origin != FROM_FILE:
                self._tell(
                    name,
                    f"Schedule {name} of gossamer.toml is not used, because one of that name was added at run time. "
                    f"Remove that one (gossamer schedule remove {name}), or rename yours.",
                )
        gone = [name for name, there in known.items() if there.origin == FROM_FILE and name not in self._wanted]
        if not new and not gone:
            return standings
        book = self._system.schedules
        for start in range(0, len(new), AT_ONCE):
            await asyncio.gather(
                *(
                    book.put(schedule, origin=FROM_FILE, replace=schedule.name in known)
                    for schedule in new[start : start + AT_ONCE]
                )
            )
        for name in gone:
            await book.remove(name)
        return await book.schedules()

    # -- small things ------------------------------------------------------------------------------------------

    def _tell(self, matter: str, words: str) -> None:
        """The same words about the same thing are said once."""
        if self._told.get(matter) != words:
            self._told[matter] = words
            self._events.emit(Trouble(at=self._clock.now(), stage="schedules", message=words))

    def _forget_all_but(self, names: set[str], now: float) -> None:
        """Memory goes with the schedules that are there. After a clock that was put back, all are looked at anew."""
        if now < self._looked_at:
            self._rests.clear()
        self._looked_at = now
        for name in self._rests.keys() - names:
            del self._rests[name]
        for name in self._told.keys() - names - {""}:
            del self._told[name]
