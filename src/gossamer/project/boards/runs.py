"""Writes the lines of the boards: when a run ends, one for its spider and one for each site that it visited.

Lines are kept on the shelf, so that a board of thousands of rows is one read. How it fails: Transient, and the run is
missing on the boards. How it recovers: the next run of the same name writes the lines that are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ...frontier.contract import DeadFilter
from ...model.job import Job, JobCounts, JobState
from ...model.outcome import NOT_FOUND, Outcome, later_in_words
from ...model.run import MOST_SITES, ROWS_KEPT, RUNS_SHOWN, SITE_RUNS, SPIDER_RUNS, RunLine, RunLines
from ...model.shelf import ABSENT, ShelfKind, Trim
from ...store.contract import RecordQuery, SiteCounts
from ..open import Project

CLOCKS_DIFFER = 60.0  # seconds by which attempts may lie outside of their job
SOME_FAILED = 0.2  # of the requests at a site; from this share on its line is a warning


async def note_run(project: Project, id: str) -> None:
    """Write the lines of an ended run, and of earlier runs of that name that have none or were settled again. Raises
    Transient."""
    job = await project.state.jobs.job(id)
    if job is None or job.takes_single_pages or job.parses_again:
        return  # nobody follows single pages, or work without requests, as runs of a spider
    spiders = ShelfKind(project.state.shelf, SPIDER_RUNS, RunLines)
    known = (await spiders.get(job.spider_name) or RunLines(name="")).runs
    newest = await project.state.history.newest_jobs(job.name, RUNS_SHOWN)
    ended = [one for one in {one.id: one for one in (job, *newest)}.values() if one.state is not JobState.RUNNING]
    seen = {one.job: (one.finished, one.settled_at) for one in known}
    missing = [one for one in ended if seen.get(one.id) != _ends(one)]
    counts = await project.state.jobs.counts_of([one.id for one in missing])
    lines: list[RunLine] = []
    of_sites: dict[str, list[RunLine]] = {}
    for one in missing:
        sites = await _sites_of(project, one)
        records = await project.records.count(RecordQuery(job=one.id))
        lines.append(_line(one, counts.get(one.id, (JobCounts(), True))[0], sites, records))
        left = await _dead_letters(project, one)
        for site in sites:
            of_sites.setdefault(site.site, []).append(_site_line(one, site, left.get(site.site, 0)))
    await _write(project, SPIDER_RUNS, {job.spider_name: lines} if lines else {})
    await _write(project, SITE_RUNS, of_sites)


async def _dead_letters(project: Project, job: Job) -> dict[str, int]:
    """How many of its dead letters are left at each site, without those of pages that do not exist: they are no fault
    of a site, every one links to some."""
    left = Counter(await project.state.queue.dead_sites(DeadFilter(job=job.id), MOST_SITES))
    for reason in NOT_FOUND if left else ():
        left -= Counter(await project.state.queue.dead_sites(DeadFilter(job=job.id, reason=reason), MOST_SITES))
    return left


class RunCost(NamedTuple):
    """What a run has received and paid so far, and at how many sites."""

    bytes: int
    credits: float
    sites: int


async def cost_of_run(project: Project, job: Job) -> RunCost:
    sites = await _sites_of(project, job)
    return RunCost(sum(one.bytes for one in sites), sum(one.credits for one in sites), len(sites))


async def _sites_of(project: Project, job: Job) -> list[SiteCounts]:
    last = max(_ends(job)) if job.finished_at is not None else project.clock.now()
    since, until = job.created_at - CLOCKS_DIFFER, last + CLOCKS_DIFFER
    return await project.records.site_counts(job.id, since, until, MOST_SITES)


async def _write(project: Project, kind: str, new: dict[str, list[RunLine]]) -> None:
    shelf = project.state.shelf
    rows = ShelfKind(shelf, kind, RunLines)
    for name, lines in new.items():
        while True:
            row = await shelf.get(kind, name)
            joined = (RunLines(name=name) if row is None else rows.read(row)).joined(lines)
            stamp = ABSENT if row is None else row.stamp
            if await shelf.commit([rows.put(name, joined, at=joined.runs[-1].started, expects=stamp)]):
                break
    if new:
        await shelf.commit([Trim(kind=kind, keep=ROWS_KEPT)])


async def recount_lines(project: Project, jobs: Collection[str], changes: Mapping[str, str]) -> None:
    """Write how many records these runs have now, and by `changes` what they did to records. What they fetched and paid
    stays as it was. Raises Transient."""
    for kind in (SPIDER_RUNS, SITE_RUNS) if jobs else ():
        rows = ShelfKind(project.state.shelf, kind, RunLines)
        new: dict[str, list[RunLine]] = {}
        for row in await rows.all():
            site = row.name if kind == SITE_RUNS else None
            for line in row.runs:
                if line.job in jobs:
                    records = await project.records.count(RecordQuery(job=line.job, site=site))
                    did = changes.get(line.job, line.changes) if site is None else line.changes
                    new.setdefault(row.name, []).append(msgspec.structs.replace(line, records=records, changes=did))
        await _write(project, kind, new)


def _line(job: Job, counts: JobCounts, sites: Sequence[SiteCounts], records: int) -> RunLine:
    line = _of(
        job, outcome=job.word, pages=counts.pages, dead=counts.dead, settled=counts.settled,
        records=records, good=sum(one.good for one in sites), bad=sum(one.bad for one in sites),
        bytes=sum(one.bytes for one in sites), credits=sum(one.credits for one in sites),
    )  # fmt: skip
    known = job.outcome
    if known is None:
        return line
    did = known.records.changes if known.records is not None else ""
    return msgspec.structs.replace(line, changes=did, later=later_in_words(known.later, known.first))


def _site_line(job: Job, site: SiteCounts, letters: int) -> RunLine:
    tried, failed = site.good + site.bad, site.bad - site.missing - site.mended
    if not site.good and site.bad:
        outcome = Outcome.FAILED.value
    elif letters or (tried and failed / tried >= SOME_FAILED):
        outcome = Outcome.WARNINGS.value
    else:
        outcome = Outcome.DONE.value
    return _of(
        job, outcome=outcome, pages=site.pages, dead=site.dead, settled=site.pages + site.dead, records=site.records,
        good=site.good, bad=site.bad, bytes=site.bytes, credits=site.credits,
    )  # fmt: skip


def _of(
    job: Job, *, outcome: str, pages: int, dead: int, settled: int, good: int, bad: int, records: int, bytes: int,
    credits: float,
) -> RunLine:  # fmt: skip
    finished, settled_at = _ends(job)
    return RunLine(
        job=job.id, spider=job.spider_name, owner=job.owner, started=job.created_at, finished=finished,
        outcome=outcome, pages=pages, dead=dead, good=good, bad=bad, records=records, bytes=bytes,
        credits=round(credits, 6), settled_at=settled_at, settled=settled,
    )  # fmt: skip


def _ends(job: Job) -> tuple[float, float]:
    """When it ended, and when its outcome was settled again; 0 if it was not."""
    return job.finished_at or job.created_at, (job.outcome.settled_at if job.outcome is not None else None) or 0.0
