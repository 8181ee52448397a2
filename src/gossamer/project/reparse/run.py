"""A run over the archive: which pages are parsed again, what is stored of it, or what would change.

Of every page the newest copy of each spider is taken. What comes out is stored under the time at which the page was
fetched and wins over what an older parser made of the same copy; a newer visit of another page that gives the same
record stays. What a page gave before and gives no more is marked as gone. A run can be repeated at any time.

Each spider's part has an id of its own: that one spider has parsed a page says nothing about the records of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from secrets import token_hex

import msgspec

from ...model.record import Attempt, PageResult, Tally, day_of
from ...model.url import origin_of, site_of
from ...pipeline.inspection import USUAL
from ...store.contract import VisitQuery
from ..open import Project
from ..pipelines import HABITS_OF
from .messages import Outcome, PageOrder
from .parser_pool import ParserPool, cores
from .preview import Preview, TellChange
from .spider_refs import SITE, Finder

FAILED = ("parse", "quality")
MOST_FAILURES = 20  # that are remembered for the report
ROUTE = "archive"


class Report(msgspec.Struct, kw_only=True):
    """What a run did. Mutable: it grows while the run goes on."""

    runs: dict[str, str] = {}  # the name under which pages were crawled -> the id of what is stored of them
    pages: int = 0
    records: int = 0
    changed: int = 0
    gone: int = 0
    failed: int = 0
    lost: int = 0  # raw pages that are not in the archive any more
    mended: int = 0  # pages that had failed before; their dead letters are not touched
    unknown: Counter[str] = msgspec.field(default_factory=Counter)  # pages of spiders that are not here
    why: dict[str, str] = {}  # such a spider -> why it is not here
    failures: list[Outcome] = []
    spiders: set[tuple[str, str]] = set()  # an id of a run, and a spider whose records it speaks for


Tell = Callable[[Report], None]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which pages. `spider` is a name or a file; None: all spiders of the project. `crawled_as` is what it was called
    when the pages were crawled."""

    spider: str | None = None
    crawled_as: str | None = None
    job: str | None = None
    since: float | None = None
    failed: bool = False


async def reparse(
    project: Project,
    choice: Choice,
    *,
    processes: int | None = None,
    tell: Tell = lambda report: None,
    would_change: TellChange | None = None,
) -> Report:
    """Parse the chosen pages again and store what comes of it; with `would_change` store nothing and tell the changes.

    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    now = project.clock.now()
    report = Report()
    pool = ParserPool(
        now,
        size=processes or cores(),
        patience=patience_of(project),
        usual=await usual_of(project),
        stores=would_change is None,
    )
    preview = None
    if would_change is not None:
        preview = Preview(project, may_be_stale=choice.job is not None or choice.failed)
    try:
        async for outcomes in pool.parse(_pages(project, choice, report, now)):
            for outcome in outcomes:
                _count(report, outcome)
            if preview is not None:
                await preview.take(outcomes)
            else:
                report.changed += sum(await store(project, outcomes))
            tell(report)
        if preview is not None and would_change is not None:
            report.changed, report.gone = await preview.tell(sorted(report.spiders), now, would_change)
    finally:
        if preview is not None:
            preview.close()
    if preview is None:
        for run, spider in sorted(report.spiders):
            report.gone += await project.records.retire(run, spider=spider, at=project.clock.now())
    return report


async def usual_of(project: Project) -> tuple[Tally, ...]:
    """What spiders nearly always found, as the last days have shown."""
    since = day_of(project.clock.now() - HABITS_OF.total_seconds())
    return tuple(one for one in await project.records.scores(since=since) if one.rule == USUAL)


def patience_of(project: Project) -> timedelta:
    """How long a page may take: the time limits of the parser and of the pipeline end it before, unless it hangs in
    foreign code."""
    return 2 * project.settings.crawl.parse_timeout + timedelta(seconds=60)


async def store(project: Project, outcomes: Sequence[Outcome]) -> list[int]:
    """Save what came of the pages; return how many records of each were new or changed.

    A page that has killed its parser leaves no more than its error.
    """
    results = [
        _result(project, outcome) for outcome in outcomes if outcome.facts is not None or outcome.failure in FAILED
    ]
    return await project.records.save(results)


def _result(project: Project, outcome: Outcome) -> PageResult:
    wanted, facts = outcome.wanted, outcome.facts
    attempt = Attempt(
        at=project.clock.now(),
        job=wanted.run,
        url=wanted.url,
        fingerprint=wanted.fingerprint,
        site=site_of(wanted.url),
        worker=project.worker,
        attempt=0,
        outcome="unparsed" if outcome.failure else "reparsed",
        route=ROUTE,
        status=facts.status if facts is not None else None,
        reason=outcome.failure,
        error=(outcome.message or outcome.remarks)[:2000],
    )
    # Scores are of what was crawled: a page that is parsed again was counted on its day.
    return PageResult(attempt=attempt, page=facts, records=outcome.records, schemas=outcome.schemas)


def _count(report: Report, outcome: Outcome) -> None:
    report.pages += 1
    report.records += len(outcome.records)
    if outcome.facts is not None:
        report.spiders.add((outcome.wanted.run, outcome.facts.spider))
    if not outcome.failure:
        report.mended += outcome.wanted.failure in FAILED
    elif outcome.failure == "lost":
        report.lost += 1
    elif outcome.failure in FAILED:
        report.failed += 1
        if len(report.failures) < MOST_FAILURES:
            report.failures.append(outcome)


async def _pages(project: Project, choice: Choice, report: Report, now: float) -> AsyncIterator[PageOrder]:
    """The chosen pages, each with the spider that can parse it."""
    finder = Finder(project.settings, choice.spider, choice.crawled_as)
    # The pages of a mere URL, whatever spiders the project has.
    jobs = {job.id: job for job in await project.state.jobs.jobs()}
    bare = {id for id, job in jobs.items() if "://" in job.spider_name}
    base = f"reparse-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}-{token_hex(3)}"
    query = VisitQuery(
        spider=finder.named or None,
        job=choice.job,
        since=choice.since,
        failures=FAILED if choice.failed else ("", *FAILED),
    )
    async for facts in project.records.archived(query):
        ref = SITE if facts.job in bare else finder.ref(facts.spider)
        if ref is None:
            report.unknown[facts.spider] += 1
            report.why.setdefault(facts.spider, finder.why(facts.spider))
            continue
        if facts.spider not in report.runs:
            report.runs[facts.spider] = f"{base}-{len(report.runs) + 1}" if report.runs else base
        run = report.runs[facts.spider]
        report.spiders.add((run, facts.spider))
        yield PageOrder(
            run=run,
            ref=facts.archive_ref,
            fingerprint=facts.fingerprint,
            body_hash=facts.body_hash,
            url=facts.url,
            job=facts.job,
            spider=ref,
            arguments=jobs[facts.job].arguments if facts.job in jobs else "",
            start=origin_of(facts.url) if ref == SITE else "",
            failure=facts.failure,
        )
