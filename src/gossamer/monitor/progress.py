"""The progress of a job for a person: one live line on a terminal, a plain line now and then in a pipe.

Totals come from the shared state, so that they are right with any number of workers; the rate is the job's, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import IO

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..clock import Clock
from ..frontier.contract import JobBook
from ..model.job import JobCounts

REFRESH = timedelta(milliseconds=250)
PLAIN_EVERY = timedelta(seconds=10)
RATE_SPAN = 8.0  # seconds
BAR = 24  # characters


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands. `eta` is for what is known to be open; links still to be found come on top."""

    total: int
    done: int
    dead: int
    queued: int
    waiting: int
    in_flight: int
    rate: float  # pages per second
    eta: timedelta | None


class Speedometer:
    """Turns counts seen over time into a rate and an estimate. Pure but for its memory of the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def standing(self, counts: JobCounts, now: float, limit: int | None = None) -> Standing:
        settled = counts.settled
        self._seen.append((now, settled))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SPAN:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (settled - before) / (now - since) if now > since else 0.0
        still_open = counts.open
        if limit is not None:
            still_open = min(still_open, max(0, limit - settled))
        return Standing(
            total=settled + still_open,
            done=counts.done + counts.unchanged,
            dead=counts.dead,
            queued=counts.queued,
            waiting=counts.waiting,
            in_flight=counts.leased,
            rate=rate,
            eta=timedelta(seconds=still_open / rate) if rate > 0 else None,
        )


class ProgressLine:
    """Shows a job until it is cancelled."""

    def __init__(self, jobs: JobBook, clock: Clock, console: Console, *, job: str, limit: int | None) -> None:
        self._jobs = jobs
        self._clock = clock
        self._console = console
        self._job = job
        self._limit = limit
        self._speed = Speedometer()

    async def show(self) -> None:
        if self._console.is_terminal:
            await self._live()
        else:
            await self._plain(self._console.file)

    async def _live(self) -> None:
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            try:
                while True:
                    live.update(self._picture(await self._standing()), refresh=True)
                    await asyncio.sleep(REFRESH.total_seconds())
            finally:
                live.update(Text(""), refresh=True)

    async def _plain(self, stream: IO[str]) -> None:
        await self._standing()  # a rate needs two looks
        while True:
            await asyncio.sleep(PLAIN_EVERY.total_seconds())
            stream.write(f"{self._job}: {describe(await self._standing())}\n")
            stream.flush()

    async def _standing(self) -> Standing:
        return self._speed.standing(await self._jobs.counts(self._job), self._clock.monotonic(), self._limit)

    def _picture(self, standing: Standing) -> Table:
        share = (standing.done + standing.dead) / standing.total if standing.total else 0.0
        filled = int(share * BAR)
        bar = Text("━" * filled, style="cyan") + Text("━" * (BAR - filled), style="bright_black")
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, Text(f"{share:4.0%}", style="bold"), Text(describe(standing)))
        return line


def describe(standing: Standing) -> str:
    """`212/340 pages, 48.3/s, 2 dead, queue 128, eta 0:03`"""
    parts = [f"{standing.done + standing.dead:,}/{standing.total:,} pages", f"{standing.rate:.1f}/s"]
    parts.append(f"{standing.dead:,} dead")
    parts.append(f"queue {standing.queued:,}")
    if standing.waiting:
        parts.append(f"waiting {standing.waiting:,}")
    parts.append(f"eta {spell(standing.eta)}")
    return "  ".join(parts)


def spell(duration: timedelta | None) -> str:
    """`0:42`, `12:05`, `3:10:00`, `2 days`; a dash when nobody can tell."""
    if duration is None:
        return "-"
    seconds = int(duration.total_seconds() + 0.5)
    if seconds >= 2 * 86_400:
        return f"{seconds // 86_400} days"
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
