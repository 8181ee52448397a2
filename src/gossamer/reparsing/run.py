"""A run over the archive: which pages are parsed again, what is stored of it, or what would change.

Of every page the newest copy is taken. What comes out is stored under the time at which the page was fetched and wins
over what an older parser made of the same copy; a newer visit of another page that gives the same record stays. What
a page gave before and gives no more is marked as gone. A run can be repeated at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from ..assembly import System
from ..errors import Misconfigured
from ..model.record import Attempt, PageResult
from ..model.url import origin_of, site_of
from ..parse.site import SiteSpider
from ..store.contract import Difference, Identity, RecordQuery, VisitQuery
from .crew import Crew, cores
from .orders import Outcome, Wanted
from .spiders import Finder

FAILED = ("parse", "quality")
MOST_FAILURES = 20  # that are remembered for the report
ROUTE = "archive"


class Report(msgspec.Struct, kw_only=True):
    """What a run did. Mutable: it grows while the run goes on."""

    run: str
    pages: int = 0
    records: int = 0
    changed: int = 0
    gone: int = 0
    failed: int = 0
    lost: int = 0  # raw pages that are not in the archive any more
    unknown: Counter[str] = msgspec.field(default_factory=Counter)  # pages of spiders that are not here
    failures: list[Outcome] = []
    spiders: set[str] = set()


Tell = Callable[[Report], None]
TellChange = Callable[[Difference], None]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which pages. `spider` is a name or a file; None: all spiders of the project."""

    spider: str | None = None
    job: str | None = None
    since: float | None = None
    failed: bool = False


async def reparse(
    system: System,
    choice: Choice,
    *,
    processes: int | None = None,
    tell: Tell = lambda report: None,
    would_change: TellChange | None = None,
) -> Report:
    """Parse the chosen pages again and store what comes of it; with `would_change` store nothing and tell the changes.

    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    now = system.clock.now()
    report = Report(run=f"reparse-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}")
    pages = _pages(system, choice, report)
    crew = Crew(report.run, now, size=processes or cores(), patience=patience_of(system))
    preview = _Preview(system, would_change) if would_change is not None else None
    async for outcomes in crew.parse(pages):
        for outcome in outcomes:
            _count(report, outcome)
        if preview is not None:
            report.changed += await preview.take(outcomes)
        else:
            report.changed += sum(await store(system, outcomes, report.run))
        tell(report)
    for spider in sorted(report.spiders):
        if preview is not None:
            report.gone += await preview.tell_gone(spider)
        else:
            report.gone += await system.records.retire(report.run, spider=spider, at=system.clock.now())
    return report


def patience_of(system: System) -> timedelta:
    """How long a page may take: the time limit of the parser ends it before, unless it hangs in foreign code."""
    return system.settings.crawl.parse_timeout + timedelta(seconds=30)


async def store(system: System, outcomes: Sequence[Outcome], run: str | None = None) -> list[int]:
    """Save what came of the pages, under the id of the run or else of the jobs that fetched them; return how many
    records of each were new or changed."""
    results = [_result(system, run or outcome.wanted.job, outcome) for outcome in outcomes if outcome.facts is not None]
    return await system.records.save(results)


def _result(system: System, run: str, outcome: Outcome) -> PageResult:
    wanted, facts = outcome.wanted, outcome.facts
    assert facts is not None
    attempt = Attempt(
        at=system.clock.now(),
        job=run,
        url=wanted.url,
        fingerprint=wanted.fingerprint,
        site=site_of(wanted.url),
        worker=system.worker,
        attempt=0,
        outcome="unparsed" if outcome.failure else "reparsed",
        route=ROUTE,
        status=facts.status,
        reason=outcome.failure,
        error=(outcome.message or outcome.remarks)[:2000],
    )
    return PageResult(
        attempt=attempt, page=facts, records=outcome.records, quality=outcome.quality, schemas=outcome.schemas
    )


def _count(report: Report, outcome: Outcome) -> None:
    report.pages += 1
    report.records += len(outcome.records)
    if outcome.facts is not None:
        report.spiders.add(outcome.facts.spider)
    if outcome.failure == "lost":
        report.lost += 1
    elif outcome.failure in FAILED:
        report.failed += 1
        if len(report.failures) < MOST_FAILURES:
            report.failures.append(outcome)


async def _pages(system: System, choice: Choice, report: Report) -> AsyncIterator[Wanted]:
    """The chosen pages, each with the spider that can parse it."""
    finder = Finder(system.settings, choice.spider)
    query = VisitQuery(
        spider=finder.named or None,
        job=choice.job,
        since=choice.since,
        failures=FAILED if choice.failed else ("", *FAILED),
    )
    async for facts in system.records.archived(query):
        ref = finder.ref(facts.spider)
        if ref is None:
            report.unknown[facts.spider or "(not known)"] += 1
            continue
        yield Wanted(
            ref=facts.archive_ref,
            fingerprint=facts.fingerprint,
            body_hash=facts.body_hash,
            url=facts.url,
            job=facts.job,
            spider=ref,
            start=origin_of(facts.url) if ref == SiteSpider.name else "",
        )


class _Preview:
    """Compares what comes out with what is stored. Remembers a short hash of every record and page it saw."""

    def __init__(self, system: System, tell: TellChange) -> None:
        self._system = system
        self._tell = tell
        self._made: set[bytes] = set()
        self._pages: set[bytes] = set()

    async def take(self, outcomes: Sequence[Outcome]) -> int:
        """Tell what is new or changed in these; return how many."""
        made = {(one.type, one.site, one.key): one for outcome in outcomes for one in outcome.records}
        held = await self._system.records.latest(list(made)) if made else {}
        count = 0
        for outcome in outcomes:
            if not outcome.failure:
                self._pages.add(_short(outcome.page_url))
        for identity, record in made.items():
            self._made.add(_short(*identity))
            before = held.get(identity)
            if before is not None and _same(before, record.data):
                continue
            count += 1
            self._tell(_difference("added" if before is None else "changed", identity, record.url, before, record.data))
        return count

    async def tell_gone(self, spider: str) -> int:
        """Tell what these pages gave before and would not give any more; return how many."""
        count = 0
        async for record in self._system.records.records(RecordQuery(spider=spider, gone=False)):
            identity = (record.type, record.site, record.key)
            if _short(record.url) in self._pages and _short(*identity) not in self._made:
                count += 1
                self._tell(_difference("gone", identity, record.url, msgspec.json.encode(record.data).decode(), None))
        return count


def _difference(kind: Any, identity: Identity, url: str, before: str | None, after: str | None) -> Difference:
    type_, site, key = identity
    return Difference(kind=kind, type=type_, site=site, key=key, url=url, before=before, after=after)


def _same(one: str, other: str) -> bool:
    try:
        return one == other or bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except msgspec.DecodeError as error:
        raise Misconfigured(f"A stored record is not JSON ({error}). Correct its row first.") from error


def _short(*parts: str) -> bytes:
    return blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).digest()
