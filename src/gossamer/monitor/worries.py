"""Why a crawl stands still, in a line, as soon as it does: a backend in trouble, a site that wants to be left alone."""

from __future__ import annotations

from datetime import timedelta

from rich.console import Console
from rich.text import Text

from ..model import events
from .progress import spell

WAYS = ("proxy", "browser", "managed-api", "exits-rest")  # stages whose every line names another page
LONG = timedelta(seconds=10)  # a shorter wait needs no words
MOST_LINES = 50  # in all; after that `gossamer status` and the logs know more


class Worries:
    """Listens, and tells each trouble once and each resting site once."""

    def __init__(self, console: Console, *, before: str = "") -> None:
        self._console = console
        self._before = before  # of every line: who speaks, where several do
        self._told: set[str] = set()

    def emit(self, event: events.Event) -> None:
        match event:
            case events.Trouble():
                matter = event.stage if event.stage in WAYS else event.message
                self._tell(matter, f"Trouble: {event.message}")
            case events.QualityChanged():
                self._console.print(Text(f"{self._before}{event.message}", style="red" if event.closed else "green"))
            case events.BudgetReached():
                self._tell(event.purse, event.message)
            case events.Spooled():
                self._console.print(Text(f"{self._before}{event.message}", style="yellow"))
            case events.Retried() if event.delay >= LONG.total_seconds():
                wait = spell(timedelta(seconds=event.delay))
                self._tell(event.site, f"{event.site} has to wait for {wait} min: {event.message}")

    def _tell(self, matter: str, line: str) -> None:
        if matter not in self._told and len(self._told) < MOST_LINES:
            self._told.add(matter)
            self._console.print(Text(f"{self._before}{line}", style="yellow"))


class Alarms:
    """Listens, and tells only what must not be missed, also by those who want silence."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.QualityChanged) and event.closed:
            self._console.print(Text(event.message, style="red"))
