"""Dead letters whose pages are in the archive: parsed again from there instead of being asked for again.

After the spider is mended, records are stored, links are queued, and the letter is settled, without a request. A page
that fails again stays a dead letter. A crash in between repeats work: records are stored before the letter is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import msgspec

from ..assembly import System, scope_of
from ..errors import SpiderNotFound
from ..frontier.admission import Admission
from ..frontier.contract import DeadFilter, DeadLetter
from ..model.job import Job
from ..model.url import site_of
from ..parse.site import SiteSpider
from ..parse.spider import Spider, listed_seeds, seeds
from .crew import Crew, cores
from .orders import Outcome, Wanted
from .run import FAILED, MOST_FAILURES, patience_of, store
from .spiders import Finder, load


class Revival(msgspec.Struct, kw_only=True):
    """What became of the letters. Mutable: it grows while the work goes on."""

    resolved: int = 0
    records: int = 0
    changed: int = 0
    links: int = 0
    failed: int = 0
    failures: list[Outcome] = []
    requeued: int = 0  # nothing of them is in the archive: they are fetched again
    jobs: set[str] = set()  # names of jobs that have work again


async def revive(
    system: System,
    which: DeadFilter,
    *,
    spider: str | None = None,
    processes: int | None = None,
    tell: Callable[[Revival], None] = lambda revival: None,
) -> Revival:
    """Parse these letters again. `spider` is the file of one that is not in the project's folder.

    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    finder = Finder(system.settings, spider)
    revival = Revival()
    now = system.clock.now()
    jobs = {job.id: job for job in await system.jobs.jobs()}
    desk = _Desk(system, jobs, finder)
    crew = Crew(
        f"replay-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}",
        now,
        size=processes or cores(),
        patience=patience_of(system),
    )
    waiting: dict[int, DeadLetter] = {}
    pages = _pages(system, which, jobs, finder, waiting, revival)
    async for outcomes in crew.parse(pages):
        good = []
        for outcome in outcomes:
            letter = waiting.pop(outcome.wanted.number)
            if not outcome.failure:
                good.append((letter, outcome))
                continue
            revival.failed += 1
            if len(revival.failures) < MOST_FAILURES:
                revival.failures.append(outcome)
        # Stored under the job that fetched the page, and before the letter is settled.
        mine = [
            msgspec.structs.replace(
                outcome,
                records=tuple(msgspec.structs.replace(record, job=letter.job) for record in outcome.records),
            )
            for letter, outcome in good
        ]
        revival.changed += sum(await store(system, mine))
        revival.records += sum(len(outcome.records) for outcome in mine)
        await asyncio.gather(*(desk.settle(letter, outcome, revival) for letter, outcome in good))
        tell(revival)
    return revival


async def _pages(
    system: System,
    which: DeadFilter,
    jobs: dict[str, Job],
    finder: Finder,
    waiting: dict[int, DeadLetter],
    revival: Revival,
) -> AsyncIterator[Wanted]:
    number = 0
    async for letter in system.desk.letters(which):
        if letter.reason not in FAILED or letter.job not in jobs:
            continue
        visits = [one for one in await system.records.visits(letter.fingerprint) if one.job == letter.job]
        if not visits or not visits[-1].archive_ref:
            revival.requeued += await system.desk.replay(_only(letter))
            revival.jobs.add(jobs[letter.job].name)
            continue
        number += 1
        waiting[number] = letter
        ref, start = _source(finder, jobs[letter.job])
        yield Wanted(
            ref=visits[-1].archive_ref,
            fingerprint=letter.fingerprint,
            body_hash=visits[-1].body_hash,
            url=letter.url,
            job=letter.job,
            spider=ref,
            start=start,
            number=number,
        )


def _only(letter: DeadLetter) -> DeadFilter:
    return DeadFilter(job=letter.job, site=letter.site, fingerprint=letter.fingerprint)


def _source(finder: Finder, job: Job) -> tuple[str, str]:
    """The reference of a job's spider, and where it began if it has none of its own. Raises SpiderNotFound."""
    if "://" in job.name:
        return SiteSpider.name, job.name
    ref = finder.ref(job.name)
    if ref is None:
        raise SpiderNotFound(
            f"Job {job.id} cannot be parsed again: no spider {job.name!r} is in the project. Name its file with"
            f" --spider, or have the pages fetched again with --fetch."
        )
    return ref, ""


class _Desk:
    """Settles letters: the links of a page are judged as the crawl itself would judge them."""

    def __init__(self, system: System, jobs: dict[str, Job], finder: Finder) -> None:
        self._system = system
        self._finder = finder
        self._jobs = jobs
        self._admissions: dict[str, Admission] = {}

    async def settle(self, letter: DeadLetter, outcome: Outcome, revival: Revival) -> None:
        admission = await self._admission(self._jobs[letter.job])
        judged = admission.judge(outcome.requests, depth=letter.depth + 1, priority=letter.priority, site=letter.site)
        added = await self._system.desk.resolve(
            letter, judged.candidates, duplicates=judged.duplicates, reason="parsed again from the archive"
        )
        if added is None:  # somebody else has dealt with it meanwhile
            return
        revival.resolved += 1
        revival.links += added.queued
        if added.queued:
            revival.jobs.add(self._jobs[letter.job].name)

    def _spider(self, job: Job) -> Spider:
        ref, start = _source(self._finder, job)
        return load(ref, self._system.settings, start=start)

    async def _admission(self, job: Job) -> Admission:
        known = self._admissions.get(job.id)
        if known is None:
            system = self._system
            spider = self._spider(job)
            sites = {site_of(url) for url in listed_seeds(spider)}
            if not sites:
                sites = {site_of(request.url) async for request in seeds(spider)}
            known = self._admissions[job.id] = Admission(
                scope_of(system.settings, job, spider, sites),
                system.rules,
                remember_known=False,
                fetcher=spider.fetcher,
                proxy_pool=spider.proxy_pool,
            )
        return known
