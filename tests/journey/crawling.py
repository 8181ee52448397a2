"""A whole crawl in this process, and what became of every URL of it: for the tests of this folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from gossamer import Spider, settings
from gossamer.frontier.contract import DeadFilter, DeadLetter
from gossamer.model.events import Event
from gossamer.model.job import Job
from gossamer.model.record import StoredRecord
from gossamer.project.jobs.crawl import Attend, CrawlReport, crawl
from gossamer.project.open import Project, open_project
from gossamer.settings import Settings
from gossamer.store.contract import RecordQuery

# No pauses between requests, short ones before a retry. A server has a minute to answer, because a busy machine may
# need that; a test whose server never answers sets a shorter limit for it.
QUICK: dict[str, Any] = {
    "politeness.rate": "unlimited",
    "politeness.concurrency": 64,
    "crawl.concurrency": 64,
    "crawl.parse_timeout": "100s",
    "fetch.connect_timeout": "60s",
    "fetch.read_timeout": "60s",
    "fetch.total_timeout": "100s",
    "fetch.max_body": "1MB",
    "retry.max_attempts": 2,
    "retry.base": "20ms",
    "retry.cap": "100ms",
    "retry.rate_limited_cap": "100ms",
}


class Heard:
    """An event sink that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def of(self, *kinds: type[Event]) -> list[Any]:  # Any: the fields differ by event
        return [event for event in self.events if isinstance(event, kinds)]


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """What a crawl left behind. `fates` holds state and reason of every URL of the job, in order of discovery."""

    report: CrawlReport
    fates: list[tuple[str, str, str]]
    records: list[StoredRecord]
    letters: dict[str, DeadLetter]
    heard: Heard

    def fate(self, url: str) -> tuple[str, str]:
        """State and reason of a URL, which stands in the queue exactly once."""
        found = [(state, reason) for known, state, reason in self.fates if known == url]
        assert len(found) == 1, f"{url}: {found}"
        return found[0]

    def record(self, url: str) -> dict[str, Any]:
        (found,) = [record for record in self.records if record.url == url]
        return found.data

    def assert_adds_up(self) -> None:
        """Every discovered URL is in one state, and the counters say the same as the rows."""
        counts = self.report.counts
        in_states = counts.done + counts.unchanged + counts.dropped + counts.dead + counts.open
        assert counts.discovered == in_states + counts.duplicates
        assert in_states == len(self.fates)
        for state in ("done", "unchanged", "dropped", "dead", "queued", "waiting", "leased"):
            assert getattr(counts, state) == sum(1 for _, known, _ in self.fates if known == state), state


def settings_for(folder: Path, **flags: Any) -> Settings:
    """Quick settings of a project in `folder`; `flags` have their dots written as double underscores."""
    dotted = {name.replace("__", "."): value for name, value in flags.items()}
    return settings.load(start=folder, environ={}, flags={**QUICK, **dotted})


async def crawled(
    spider: Spider,
    read: Settings,
    *,
    attend: Attend | None = None,
    fresh: bool = False,
    name: str | None = None,
    arguments: dict[str, Any] | None = None,
    heard: Heard | None = None,
) -> Aftermath:
    """Crawl to the end and look at everything that is left. Items add up, whatever the crawl was."""
    heard = heard or Heard()
    left: dict[str, Any] = {}

    async def after(system: Project, job: Job) -> None:
        left["fates"] = [(url, state.value, reason) async for url, state, reason in system.state.queue.urls(job.id)]
        left["records"] = [record async for record in system.records.records(RecordQuery(job=job.id))]
        letters = await system.state.queue.dead(DeadFilter(job=job.id), limit=1000)
        left["letters"] = {letter.url: letter for letter in letters}

    report = await crawl(
        spider, read, name=name, arguments=arguments, events=heard, attend=attend, after=after, fresh=fresh
    )
    assert report.account is not None
    assert report.account.yielded == sum(report.account.states().values())
    return Aftermath(report=report, heard=heard, **left)


async def look(read: Settings, question: Callable[[Project], Awaitable[Any]]) -> Any:
    """Ask the closed project something."""
    async with open_project(read) as system:
        return await question(system)
