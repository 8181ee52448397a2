"""The reports of a worker pool about its jobs, each made once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...clock import Clock
from ...model.events import EventSink, JobBegun, JobLeft, JobPaused, JobWaits, Trouble
from ...model.job import Job

GIVEN_UP = ("cancelled", "replaced")  # endings that a person caused
MOST_REPORTS = 20  # different reports per job that are remembered


class WorkerReports:
    """Reports that a pool works on a job, why it leaves one alone, and what an operator did to one.

    Each report is made once, however often a job is tried, and remembered while the job runs.
    """

    def __init__(self, events: EventSink, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._begun: set[str] = set()
        self._told: dict[str, dict[str, bool]] = {}  # texts by job; True: the trouble may pass

    def begun(self, job: Job, code: tuple[str, str]) -> None:
        """The job is open: a passing trouble is reported again if it returns. `code` is the version of its spider, and
        its commit."""
        self._told[job.id] = {words: passes for words, passes in self._told.get(job.id, {}).items() if not passes}
        if job.id not in self._begun:
            self._begun.add(job.id)
            version, commit = code
            self._events.emit(
                JobBegun(
                    at=self._clock.now(), job=job.id, name=job.name, since=job.created_at, code=version, commit=commit
                )
            )

    def waits(self, job: str, words: str) -> None:
        self._events.emit(JobWaits(at=self._clock.now(), job=job, message=words))

    def trouble(self, job: str, stage: str, words: str, *, passes: bool = False) -> None:
        told = self._told.setdefault(job, {})
        if words not in told:
            told[words] = passes
            if len(told) > MOST_REPORTS:
                del told[next(iter(told))]
            self._events.emit(Trouble(at=self._clock.now(), job=job, stage=stage, message=words))

    def pauses(self, before: Mapping[str, Job], now: Iterable[Job], served: Collection[str]) -> None:
        """Report the served jobs that were paused or resumed."""
        for job in now:
            known = before.get(job.id)
            if job.id in served and known is not None and known.paused != job.paused:
                self._events.emit(JobPaused(at=self._clock.now(), job=job.id, paused=job.paused))

    def ended(self, job: Job | None) -> None:
        """Report that another process ended a job that was served here."""
        if job is not None and job.ending in GIVEN_UP:
            self._events.emit(JobLeft(at=self._clock.now(), job=job.id, ending=job.ending))

    def forget_all_but(self, running: Collection[str]) -> None:
        for job in [job for job in self._told if job not in running]:
            del self._told[job]
        self._begun.intersection_update(running)
