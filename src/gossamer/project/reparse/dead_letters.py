"""Parses dead letters whose pages are in the archive again, instead of fetching them again.

Once the spider is fixed, records are stored, links are queued, and the letter is settled, without a request. A page
that fails again stays a dead letter, and its new error is an attempt in its log. Letters whose spider is missing, or
whose start() fails, are left out and reported. A crash in between repeats work: records are stored before the letter is
settled.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import redirect_stdout
from datetime import timedelta

import msgspec

from ...errors import Misconfigured, ParseFailed
from ...frontier.admission import Admission
from ...frontier.contract import DeadFilter, DeadLetter
from ...model.job import Job
from ...model.url import origin_of, site_of
from ...parse.seeds import seeds, start_addresses
from ...parse.spider import Spider, session_names
from ...parse.timelimit import TimeLimit
from ...process.signals import is_cancellation
from ...terms import scope_of
from ..dead_letters.sent_requests import allow_sending
from ..jobs.outcome import settle_again
from ..open import Project
from .archive_job import FAILED
from .messages import ParseOrder, ReparsedPage
from .parser_pool import ParserPool, cores
from .results import learned_of, patience_of, store
from .spider_refs import SITE, Finder, error_words, load

MOST_SEEDS = 10_000  # read from start() to learn the sites of a crawl
LONGEST_START = timedelta(seconds=10)
MOST_FAILURES = 20  # kept for the report
OR_FETCH = "or have the pages fetched again with --fetch."


class Revival(msgspec.Struct, kw_only=True):
    """The result for these letters. Mutable: it grows while the work proceeds."""

    resolved: int = 0
    records: int = 0
    changed: int = 0
    links: int = 0
    failed: int = 0
    failures: list[ReparsedPage] = []
    lost: int = 0  # their raw pages are no longer in the archive
    taken: int = 0  # settled by another process meanwhile
    requeued: int = 0  # never had a raw page: they are fetched again
    jobs: set[str] = set()  # names of jobs that have work again
    left_out: Counter[str] = msgspec.field(default_factory=Counter)  # why -> how many
    unread: set[str] = set()  # spiders whose start() was not read to its end


async def revive(
    project: Project,
    which: DeadFilter,
    *,
    spider: str | None = None,
    crawled_as: str | None = None,
) -> Revival:
    """Parse these letters again, and settle the outcome of their jobs by what came of it. `spider` is the file of a
    spider outside the project's folder, `crawled_as` its name at the time of the crawl.

    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    revival = Revival()
    desk = _Desk(project, {job.id: job for job in await project.state.jobs.jobs()}, revival)
    pool = ParserPool(
        project.clock.now(), size=cores(), patience=patience_of(project), learned=await learned_of(project)
    )
    waiting: dict[int, DeadLetter] = {}
    pages = _pages(project, which, Finder(project.settings, spider, crawled_as), desk, waiting)
    async for outcomes in pool.parse(pages):
        good = []
        for outcome in outcomes:
            letter = waiting.pop(outcome.wanted.number)
            if outcome.failure == "lost":
                revival.lost += 1
            elif outcome.failure:
                revival.failed += 1
                if len(revival.failures) < MOST_FAILURES:
                    revival.failures.append(outcome)
            else:
                good.append((letter, outcome))
        # Stored before the letter is settled.
        revival.changed += sum(await store(project, outcomes))
        revival.records += sum(len(outcome.records) for _, outcome in good)
        await asyncio.gather(*(desk.settle(letter, outcome) for letter, outcome in good))
    for job in sorted(desk.touched):
        await settle_again(project, job, "parsed again")
    return revival


async def _pages(
    project: Project, which: DeadFilter, finder: Finder, desk: _Desk, waiting: dict[int, DeadLetter]
) -> AsyncIterator[ParseOrder]:
    number = 0
    async for letter in project.state.queue.letters(which):
        job = desk.jobs.get(letter.job)
        if letter.reason not in FAILED or job is None:
            continue
        visits = await project.records.visits(letter.fingerprint, letter.job)
        if not visits or not visits[-1].archive_ref:
            await allow_sending(project, _only(letter))
            desk.revival.requeued += await project.state.queue.replay(_only(letter))
            desk.revival.jobs.add(job.name)
            continue
        ref, start = SITE, job.spider_name
        if "://" not in job.spider_name:
            name = visits[-1].spider or job.spider_name
            found, start = finder.ref(name), origin_of(letter.url)
            if found is None:
                advice = f"Name its file with --spider FILE (renamed: --spider FILE --as {name})"
                desk.revival.left_out[f"{finder.why(name)} {advice}, {OR_FETCH}"] += 1
                continue
            ref = found
        if not await desk.is_ready(letter, ref, start):
            continue
        number += 1
        waiting[number] = letter
        yield ParseOrder(
            run=letter.job,  # its results belong to the job that fetched the page
            ref=visits[-1].archive_ref,
            fingerprint=letter.fingerprint,
            body_hash=visits[-1].body_hash,
            url=letter.url,
            job=letter.job,
            spider=ref,
            arguments=job.arguments,
            start=start if ref == SITE else "",
            number=number,
            failure=letter.reason,
            depth=letter.depth,
        )


def _only(letter: DeadLetter) -> DeadFilter:
    return DeadFilter(job=letter.job, site=letter.site, fingerprint=letter.fingerprint)


class _Door(msgspec.Struct, frozen=True):
    """How links enter a job; `sites` may grow. `closed` says why they cannot."""

    sites: set[str]
    admission: Admission | None = None
    closed: str = ""


class _Desk:
    """Settles letters: judges the links of a page as the crawl itself would."""

    def __init__(self, project: Project, jobs: dict[str, Job], revival: Revival) -> None:
        self.jobs = jobs
        self.touched = set[str]()  # jobs of which a letter was settled
        self.revival = revival
        self._project = project
        self._doors: dict[str, _Door] = {}

    async def is_ready(self, letter: DeadLetter, ref: str, start: str) -> bool:
        """Whether links of this letter's page can be judged. If not, it is counted as left out."""
        door = self._doors.get(letter.job)
        if door is None:
            door = self._doors[letter.job] = await self._open(self.jobs[letter.job], ref, start)
        if door.closed:
            self.revival.left_out[door.closed] += 1
        door.sites.add(letter.site)  # it was admitted before, so its site belongs to the crawl
        return not door.closed

    async def settle(self, letter: DeadLetter, outcome: ReparsedPage) -> None:
        admission = self._doors[letter.job].admission
        assert admission is not None  # `is_ready` was called first
        judged = admission.judge(outcome.requests, depth=letter.depth + 1, priority=letter.priority, site=letter.site)
        added = await self._project.state.queue.resolve(
            letter, judged.candidates, duplicates=judged.duplicates, reason="parsed again from the archive"
        )
        if added is None:
            self.revival.taken += 1
            return
        self.touched.add(letter.job)
        self.revival.resolved += 1
        self.revival.links += added.queued
        if added.queued:
            self.revival.jobs.add(self.jobs[letter.job].name)

    async def _open(self, job: Job, ref: str, start: str) -> _Door:
        project, sites = self._project, set[str]()
        try:
            spider = load(ref, project.settings, start=start, arguments=job.arguments)
            sites.update(site_of(url) for url in start_addresses(spider))
            if not sites and spider.allowed_domains is None and not await _read_sites(spider, sites):
                self.revival.unread.add(spider.name)
        except Misconfigured as error:
            return _Door(sites, closed=f"{error} Fix it, {OR_FETCH}")
        admission = Admission(
            scope_of(project.settings, job, spider, sites),
            project.rules,
            remember_known=False,
            fetcher=spider.fetcher,
            proxy_pool=spider.proxy_pool,
            sessions=session_names(spider),
        )
        return _Door(sites, admission)


async def _read_sites(spider: Spider, sites: set[str]) -> bool:
    """Add the sites that start() names; False if there are more seeds than are read. Raises Misconfigured."""
    count = 0

    async def read() -> None:
        nonlocal count
        async for request in seeds(spider):
            sites.add(site_of(request.url))
            count += 1
            if count >= MOST_SEEDS:
                break

    try:
        with redirect_stdout(sys.stderr):
            await TimeLimit(LONGEST_START).run(read(), f"start() of {spider.name}")
    except ParseFailed:  # it took too long: keep what was read
        return False
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit in a spider must not end the replay
        if is_cancellation(error):
            raise
        raise Misconfigured(f"start() of spider {spider.name!r} failed: {error_words(error)}.") from error
    return count < MOST_SEEDS
