"""Why a crawl stands still, in a line, as soon as it does: a backend in trouble, a site that wants to be left alone."""

from __future__ import annotations

from datetime import timedelta

from rich.console import Console
from rich.text import Text

from ..model import events
from .progress import spell

WAYS = ("proxy", "browser", "managed-api", "exits-rest")  # stages whose every line names another page
LONG = timedelta(seconds=10)  # a shorter wait needs no words
MOST_LINES = 50  # of each job; after that `gossamer status` and the logs know more
MOST_JOBS = 1000  # that are remembered, the last ones


class Worries:
    """Listens, and tells each trouble once for each job, and each resting site once. With `names_jobs` it says whose
    trouble it is: for a process that works on several."""

    def __init__(self, console: Console, *, before: str = "", names_jobs: bool = False) -> None:
        self._console = console
        self._before = before  # of every line: who speaks, where several do
        self._names_jobs = names_jobs
        self._told: dict[str, set[str]] = {}  # by job

    def emit(self, event: events.Event) -> None:
        match event:
            case events.Trouble():
                matter = event.stage if event.stage in WAYS else event.message
                whose = f"{event.job}: " if self._names_jobs and event.job and event.job not in event.message else ""
                self._tell(event.job, matter, f"Trouble: {whose}{event.message}")
            case events.QualityChanged():
                self._console.print(Text(f"{self._before}{event.message}", style="red" if event.closed else "green"))
            case events.BudgetReached():
                self._tell(event.job, event.purse, event.message)
            case events.Spooled():
                self._console.print(Text(f"{self._before}{event.message}", style="yellow"))
            case events.Retried() if event.delay >= LONG.total_seconds():
                wait = spell(timedelta(seconds=event.delay))
                self._tell(event.job, event.site, f"{event.site} has to wait for {wait} min: {event.message}")

    def _tell(self, job: str, matter: str, line: str) -> None:
        told = self._told.setdefault(job, set())
        if len(self._told) > MOST_JOBS:
            del self._told[next(iter(self._told))]
        if matter not in told and len(told) < MOST_LINES:
            told.add(matter)
            self._console.print(Text(f"{self._before}{line}", style="yellow"))


class Alarms:
    """Listens, and tells only what must not be missed, also by those who want silence."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.QualityChanged) and event.closed:
            self._console.print(Text(event.message, style="red"))
