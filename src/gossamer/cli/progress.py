"""What a crawl prints while it runs: the progress line, warnings, and why it makes no progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import IO, Protocol

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..clock import Clock
from ..model import events
from ..model.job import JobCounts
from ..monitor.progress import JobProgress, RateEstimator, describe
from ..units import span, visible, visible_lines

STOPPING = "Stopping: the pages in flight are finished first. Ctrl-C again stops at once."
REFRESH = timedelta(milliseconds=250)
PLAIN_EVERY = timedelta(seconds=10)
BAR = 24  # characters
NARROW = 72  # columns; on a narrower terminal the bar leaves no room for the text
WAYS = ("proxy", "browser", "managed-api", "proxies-rest")  # stages that report a different page on every line
LONG_WAIT = timedelta(seconds=10)  # a shorter wait is not worth a line
WAIT_TOLD_EVERY = timedelta(minutes=1)
LOOK_EVERY = timedelta(seconds=5)  # at what the job waits for and what its sites allow, which costs queries
MOST_LINES = 50  # per job; `gossamer status` and the logs have the rest
MOST_JOBS = 1000  # jobs whose warnings are remembered


class CountedJobs(Protocol):
    async def counts(self, job: str) -> JobCounts: ...


class ProgressLine:
    """Shows the progress of a job until the task is cancelled. `storing` returns how many of its results wait to be
    stored; `waits` returns why the job makes no progress, printed every minute; `least` returns the seconds that the
    limits of its sites demand; `draining` returns whether it is being stopped, printed once."""

    def __init__(
        self,
        jobs: CountedJobs,
        storing: Callable[[], Awaitable[int]],
        clock: Clock,
        console: Console,
        *,
        job: str,
        limit: int | None,
        waits: Callable[[], Awaitable[str]] | None = None,
        least: Callable[[], Awaitable[float]] | None = None,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._waits = waits
        self._least = least
        self._wait_words, self._least_seconds, self._looked_at = "", 0.0, clock.monotonic()
        self._draining = draining
        self._told_stop = False
        self._told_at = clock.monotonic()
        self._jobs = jobs
        self._storing = storing
        self._clock = clock
        self._console = console
        self._job = job
        self._limit = limit
        self._speed = RateEstimator()

    async def show(self) -> None:
        if self._console.is_terminal:
            await self._live()
        else:
            await self._plain(self._console.file)

    async def _live(self) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            try:
                while True:
                    live.update(self._picture(await self._progress()), refresh=True)
                    await asyncio.sleep(REFRESH.total_seconds())
            finally:
                live.update(Text(""), refresh=True)

    async def _plain(self, stream: IO[str]) -> None:
        await self._progress()  # a rate needs two samples
        while True:
            await asyncio.sleep(PLAIN_EVERY.total_seconds())
            stream.write(f"{self._job}: {describe(await self._progress())}\n")
            stream.flush()

    async def _look(self, counts: JobCounts) -> None:
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_EVERY.total_seconds():
            self._looked_at = now
            idle = counts.open and not counts.leased
            self._wait_words = await self._waits() if self._waits is not None and idle else ""
            self._least_seconds = await self._least() if self._least is not None else 0.0
        if self._wait_words and now - self._told_at >= WAIT_TOLD_EVERY.total_seconds():
            self._told_at = now
            self._console.print(Text(f"Waiting: {visible(self._wait_words)}", style="yellow"))

    def _tell_stop(self) -> None:
        if not self._told_stop and self._draining():
            self._told_stop = True
            self._console.print(Text(STOPPING, style="yellow"))

    async def _progress(self) -> JobProgress:
        self._tell_stop()
        counts = await self._jobs.counts(self._job)
        await self._look(counts)
        # Results on disks matter once the pages are done.
        storing = 0 if counts.open else await self._storing()
        progress = self._speed.progress(
            counts, self._clock.monotonic(), self._limit, storing=storing, at_least=self._least_seconds
        )
        return msgspec.structs.replace(progress, eta=None) if self._wait_words else progress

    def _picture(self, progress: JobProgress) -> Table:
        line = Table.grid(padding=(0, 1))
        if progress.found:  # a share of what is known so far would say nothing
            line.add_row(Text(describe(progress), no_wrap=True, overflow="ellipsis"))
            return line
        share = (progress.done + progress.dead) / progress.total if progress.total else 0.0
        filled = int(share * BAR)
        bar = Text("━" * filled, style="cyan") + Text("━" * (BAR - filled), style="bright_black")
        share_and_words = (
            Text(f"{share:4.0%}", style="bold"),
            Text(describe(progress), no_wrap=True, overflow="ellipsis"),
        )
        if self._console.width < NARROW:
            line.add_row(*share_and_words)
        else:
            line.add_row(bar, *share_and_words)
        return line


class Warnings:
    """An EventSink that prints each problem once per job, and each resting site once.

    With `names_jobs` every line names its job, for processes that work on several.
    """

    def __init__(self, console: Console, *, before: str = "", names_jobs: bool = False) -> None:
        self._console = console
        self._before = before  # prefix of every line: the process, if there are several
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
                self._tell(event.job, event.budget, event.message)
            case events.Spooled():
                self._console.print(Text(f"{self._before}{event.message}", style="yellow"))
            case events.SiteAway() if event.delay >= LONG_WAIT.total_seconds():
                again = f"next try in {span(event.delay)}, then less often"
                self._tell(event.job, event.site, f"{event.site} cannot be reached, {again}: {event.message}")
            case events.Retried() if event.delay >= LONG_WAIT.total_seconds():
                self._tell(event.job, event.site, f"{event.site} has to wait {span(event.delay)}: {event.message}")

    def _tell(self, job: str, matter: str, line: str) -> None:
        told = self._told.setdefault(job, set())
        if len(self._told) > MOST_JOBS:
            del self._told[next(iter(self._told))]
        if matter not in told and len(told) < MOST_LINES:
            told.add(matter)
            self._console.print(Text(f"{self._before}{line}", style="yellow"))


class Tracebacks:
    """An EventSink that prints every page that is given up as it comes, with the traceback: `crawl --verbose`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.Buried):
            words = event.message if event.url in event.message else f"{event.url}: {event.message or event.reason}"
            self._console.print(Text(visible(words), style="red"), soft_wrap=True)
            for line in visible_lines(event.detail).split("\n"):
                if line.strip() and line.strip() not in words:
                    self._console.print(Text(f"    {line}", style="dim"), soft_wrap=True)


class Alarms:
    """An EventSink that prints only critical messages, for commands with --quiet."""

    hears = (events.QualityChanged, events.Spooled)

    def __init__(self, console: Console) -> None:
        self._console = console

    def emit(self, event: events.Event) -> None:
        if isinstance(event, events.QualityChanged) and event.closed:
            self._console.print(Text(event.message, style="red"))
        elif isinstance(event, events.Spooled) and event.left:
            self._console.print(Text(event.message, style="yellow"))
