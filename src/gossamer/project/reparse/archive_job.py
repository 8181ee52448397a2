"""A reparse as a job: its tasks are archived visits, and every worker of the project works on them, on any machine.

What it does: opens one job for each selected spider. The selection of pages is stored in the terms of the job, so that
any worker can enter them. All its tasks belong to one site that no host can have: neither the pace nor the rests and
windows of real sites delay them, and they cost real sites nothing. A worker of a version without such jobs finds no
spider of that name, and leaves them to others.
How it fails: Misconfigured for a missing spider, BackendUnavailable; then no job was opened, or some were, and the next
call continues with them. How it recovers: like any job, by leases; entering the pages starts over, and those already
entered are duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from ...frontier.admission import Judged
from ...model.job import REPARSE, Job, JobCounts, JobPoliteness, JobTerms, read_arguments
from ...model.outcome import CONFLICT_REASON, JobOutcome, Outcome, Reason
from ...model.record import PageFacts
from ...model.task import Candidate, Task
from ...model.url import origin_of
from ...parse.arguments import stored_arguments
from ...parse.discovery import file_of, is_file_ref
from ...parse.spider import Spider
from ...schedule.authority import demand_own_spider, sealed_terms
from ...settings import Settings
from ...store.contract import Retirement, VisitQuery
from ...units import many
from ..open import Project
from .messages import ParseOrder
from .spider_refs import OURS, SITE, Finder, load

ARCHIVE = "(archive)"  # the site of their tasks
FAILED = ("parse", "quality")
AT_ONCE = 500  # visits entered in one batch
UNBOUNDED = 1_000_000  # visits in progress at once, over all workers
# The counters of each page:
RECORDS, CHANGED, MENDED, NOT_PARSED, LOST = "records", "new or changed", "mended", "not parsed", "raw page lost"


class ReparseChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which pages to parse. `spider` is a name or a file; None: all spiders of the project. `crawled_as` is the
    spider's name at the time of the crawl."""

    spider: str | None = None
    crawled_as: str | None = None
    job: str | None = None
    since: float | None = None
    failed: bool = False

    def visits(self, spider: str | None) -> VisitQuery:
        failures = FAILED if self.failed else ("", *FAILED)
        return VisitQuery(spider=spider, job=self.job, since=self.since, failures=failures)


class ReparseTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job parses again, stored as its arguments. `spider` is a reference (spider_refs.py), "" if only pages from
    crawls of a plain URL can be parsed; `names` are the spiders whose records it covers."""

    crawled_as: str
    spider: str = ""
    names: tuple[str, ...] = ()
    job: str | None = None
    since: float | None = None
    failed: bool = False


class ArchivedVisit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts about a task's visit besides its URL, stored as user data."""

    ref: str
    body_hash: bytes
    job: str  # that fetched it
    arguments: str = ""  # of the spider in that job, as JSON
    start: str = ""  # the start URL, if it was a crawl of a plain URL
    failure: str = ""  # its failure, when it was last parsed


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that were started or continued. `unknown` counts pages of missing spiders, `why` says for each of these
    spiders why it is missing."""

    jobs: tuple[Job, ...]
    resumed: frozenset[str]  # ids of those that were continued
    unknown: dict[str, int]
    why: dict[str, str]


class ReparseSpider(Spider):
    """Stands in for the spiders of archived pages where a job needs a spider. It yields and fetches nothing."""

    name = "reparse"
    rate = "unlimited"
    concurrency = UNBOUNDED
    allowed_domains = "*"


def terms_of(settings: Settings, job: Job) -> ReparseTerms:
    """What the job parses again. Raises Misconfigured for a file that a shared state may not name."""
    terms = msgspec.convert(read_arguments(job.arguments), ReparseTerms)
    demand_own_spider(settings, terms.spider)
    return terms


async def begin(project: Project, choice: ReparseChoice, *, fresh: bool = False) -> Begun:
    """Open a job for each spider that has such pages. An unfinished one continues as it was started, unless `fresh`.

    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    finder = Finder(project.settings, choice.spider, choice.crawled_as)
    names: dict[str, None] = {}
    unknown: Counter[str] = Counter()
    async for facts, ref in chosen(project, choice, finder, bare_jobs(await project.state.jobs.jobs())):
        if ref is None:
            unknown[facts.spider] += 1
        else:
            names[facts.spider] = None
            if finder.named:
                break  # one is enough to know that some exist
    running = {job.name: job for job in await project.state.jobs.running_jobs()}
    jobs: list[Job] = []
    for name in names:
        title = f"reparse {name}"
        if title in running and not fresh:
            jobs.append(running[title])
            continue
        ref = finder.ref(name) or ""
        terms = ReparseTerms(
            crawled_as=name,
            spider=_from_root(project.settings, ref),
            names=tuple(dict.fromkeys((name, _name_now(project.settings, ref) or name))),
            job=choice.job,
            since=choice.since,
            failed=choice.failed,
        )
        opened = sealed_terms(project.settings, title, _job_terms(project.settings, terms))
        jobs.append((await project.state.jobs.open_job(title, opened, fresh=fresh))[0])
    return Begun(
        jobs=tuple(jobs),
        resumed=frozenset() if fresh else frozenset(job.id for job in running.values()),
        unknown=dict(unknown),
        why={name: finder.why(name) for name in unknown},
    )


async def chosen(
    project: Project, choice: ReparseChoice, finder: Finder, bare: frozenset[str]
) -> AsyncIterator[tuple[PageFacts, str | None]]:
    """The selected visits, each with the reference of the spider that can parse it; None: the spider is missing."""
    async for facts in project.records.archived(choice.visits(finder.named or None)):
        yield facts, SITE if facts.job in bare else finder.ref(facts.spider)


def bare_jobs(jobs: Sequence[Job]) -> frozenset[str]:
    """The jobs that crawled a plain URL: their pages are parsed as such, whatever spiders the project has."""
    return frozenset(job.id for job in jobs if "://" in job.spider_name)


def _name_now(settings: Settings, ref: str) -> str:
    """The name under which the spider now stores records. Raises Misconfigured if it cannot be loaded."""
    return ref.partition(":")[2] if ref.startswith(OURS) else load(ref, settings).name if ref else ""


def _from_root(settings: Settings, ref: str) -> str:
    """A file relative to the project's folder, which may be elsewhere on another machine. Raises Misconfigured for a
    file that a shared state may not name."""
    if not is_file_ref(ref):
        return ref
    demand_own_spider(settings, ref)
    file, root = Path(file_of(ref)).resolve(), settings.root.resolve()
    if not file.is_relative_to(root):
        return ref
    return ref.replace(file_of(ref), str(file.relative_to(root)), 1)


def _job_terms(settings: Settings, terms: ReparseTerms) -> JobTerms:
    return JobTerms(
        max_deliveries=settings.lease.max_deliveries,
        max_queued=settings.crawl.max_queued,
        spider=REPARSE,
        arguments=stored_arguments(msgspec.to_builtins(terms)),
        politeness=JobPoliteness(rate=ReparseSpider.rate, concurrency=UNBOUNDED),
    )


# -- its tasks -----------------------------------------------------------------------------------------------------


async def entering(project: Project, terms: ReparseTerms) -> AsyncIterator[Judged]:
    """The visits of a job as candidates for the queue, in batches."""
    jobs = {job.id: job for job in await project.state.jobs.jobs()}
    bare = bare_jobs(list(jobs.values()))
    choice = ReparseChoice(job=terms.job, since=terms.since, failed=terms.failed)
    some: list[Candidate] = []
    async for facts in project.records.archived(choice.visits(terms.crawled_as or None)):
        is_bare = facts.job in bare
        if facts.spider != terms.crawled_as or not (terms.spider or is_bare):
            continue
        visit = ArchivedVisit(
            ref=facts.archive_ref,
            body_hash=facts.body_hash,
            job=facts.job,
            arguments=jobs[facts.job].arguments if facts.job in jobs else "",
            start=origin_of(facts.url) if is_bare or terms.spider == SITE else "",
            failure=facts.failure,
        )
        data = msgspec.json.encode(visit).decode()
        some.append(Candidate(url=facts.url, fingerprint=facts.fingerprint, site=ARCHIVE, data=data))
        if len(some) >= AT_ONCE:
            yield Judged(candidates=tuple(some))
            some = []
    if some:
        yield Judged(candidates=tuple(some))


def order_of(task: Task, terms: ReparseTerms) -> ParseOrder:
    """The parsing order that a task stands for."""
    visit = msgspec.json.decode(task.data, type=ArchivedVisit)
    return ParseOrder(
        run=task.job,
        ref=visit.ref,
        fingerprint=task.fingerprint,
        body_hash=visit.body_hash,
        url=task.url,
        job=visit.job,
        spider=SITE if visit.start else terms.spider,
        arguments=visit.arguments,
        start=visit.start,
        failure=visit.failure,
    )


# -- its end -------------------------------------------------------------------------------------------------------


async def retire_unseen(project: Project, job: Job) -> int:
    """Mark records as gone that their pages no longer yield; return how many. Safe to repeat."""
    terms = terms_of(project.settings, job)
    now = project.clock.now()
    return sum([await project.records.retire(Retirement(job=job.id, spider=name, at=now)) for name in terms.names])


def outcome_of_reparse(counts: JobCounts, lost_results: int, conflicts: str = "") -> JobOutcome:
    """The outcome of the job, from the counters of its workers; `conflicts` are those of its items, in words."""
    parts = ((NOT_PARSED, "could not be parsed"), (LOST, "are not in the archive any more"))
    missed = [(counts.stats.get(name, 0), words) for name, words in parts]
    reasons = [
        Reason(name.replace(" ", "-"), f"{count:,} of {many(counts.done, 'page')} {words}")
        for (name, _), (count, words) in zip(parts, missed, strict=True)
        if count
    ]
    if conflicts:
        reasons.append(Reason(CONFLICT_REASON, conflicts))
    if counts.dead:
        reasons.append(Reason("dead-letters", f"{many(counts.dead, 'page')} took their workers with them"))
    if lost_results:
        reasons.append(Reason("lost-results", f"{many(lost_results, 'result')} were given up (gossamer spool forget)"))
    if not reasons:
        return JobOutcome(Outcome.DONE)
    all_failed = sum(count for count, _ in missed) >= counts.done
    return JobOutcome(Outcome.FAILED if all_failed else Outcome.WARNINGS, tuple(reasons))
