"""What failed, as the rules of alerts judge it: the last run of each name, dead letters by site, callbacks by receiver.

All of it is read from the queue and the jobs as they are now, so that what a replay has mended does not count any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from urllib.parse import urlsplit

from ...access.contract import Callback, CallbackState
from ...frontier.contract import DeadFilter, DeadLetter, LetterPlace
from ...model.failure_groups import group_failures
from ...model.incident import Subject, SubjectKind
from ...model.job import Job, JobState
from ...model.outcome import HELD_BACK_REASON, NOT_FOUND, Outcome
from ...model.situation import ALL_SITES, LettersReading, ReceiverReading, RunReading
from ..open import Project

RUNS_ASKED = 200  # the newest jobs of keys, and as many that no key began
LETTERS_AT_ONCE = 1_000
MOST_LETTERS = 10_000  # the newest dead letters that are looked at
JUDGED = 100  # the newest dead letters of a site, which say what is wrong with it now
CALLBACKS_ASKED = 1_000
NOTHING = (Outcome.FAILED, Outcome.EMPTY, Outcome.HELD_BACK)  # runs that came to nothing
SPIDER_AT_FAULT = ("parse", HELD_BACK_REASON, "poison")  # reasons of dead letters whose pages came


async def newest_runs(project: Project) -> list[Job]:
    """The newest jobs that are runs, of keys and of nobody, the latest first."""
    history = project.state.history
    newest = [*await history.page(RUNS_ASKED, owners=("",)), *await history.page(RUNS_ASKED)]
    runs = [job for job in {job.id: job for job in newest}.values() if not (job.takes_single_pages or job.parses_again)]
    return sorted(runs, key=lambda job: -job.created_at)


async def last_runs(project: Project, since: float, causes: dict[str, Subject]) -> tuple[RunReading, ...]:
    """The last run of each name that ended since then, with what is wrong if it came to nothing. `causes` are those
    found before, by job."""
    by_name: dict[str, list[Job]] = {}
    for job in await newest_runs(project):
        by_name.setdefault(job.name, []).append(job)
    found = []
    for name, jobs in by_name.items():
        last = next((one for one in jobs if _is_judged(one)), None)
        if last is None or last.finished_at is None or last.outcome is None or last.finished_at < since:
            continue
        failed = last.outcome.outcome in NOTHING
        if failed and last.id not in causes:
            causes[last.id] = await cause_of(project, last)
        found.append(
            RunReading(
                name=name,
                job=last.id,
                ended_at=last.finished_at,
                failed=failed,
                words=last.outcome.in_words,
                cause=causes[last.id] if failed else _spider(last),
                again=jobs[0].state is JobState.RUNNING,
            )
        )
    return tuple(found)


def _is_judged(job: Job) -> bool:
    """Has it ended by itself? One that was cancelled or replaced says nothing about its spider or its site."""
    return job.state is JobState.FINISHED and job.outcome is not None and job.ending != "replaced"


def _spider(job: Job) -> Subject:
    return Subject(SubjectKind.SPIDER, job.spider_name)


async def cause_of(project: Project, job: Job) -> Subject:
    """The site, if most of the pages of the job that were given up did not come; otherwise its spider."""
    which = DeadFilter(job=job.id)
    reasons = await project.state.queue.dead_reasons(which)
    sites = await project.state.queue.dead_sites(which, 1)
    faults = sum(count for reason, count in reasons.items() if reason in SPIDER_AT_FAULT)
    if not sites or 2 * faults >= sum(reasons.values()):
        return _spider(job)
    return Subject(SubjectKind.SITE, next(iter(sites)))


async def letters_by_site(
    project: Project, since: float, fired: Mapping[str, float], window: float
) -> tuple[LettersReading, ...]:
    """Dead letters by site, and all together under ALL_SITES. `fired`: when the alert began, where it holds."""
    oldest = min([since, *(at - window for at in fired.values())])
    letters = [one async for one in _newest(project, oldest)]
    by_site: dict[str, list[DeadLetter]] = {ALL_SITES: letters}
    for one in letters:
        by_site.setdefault(one.site, []).append(one)
    names: dict[str, str] = {}
    found = []
    for site, some in by_site.items():
        recent = [one for one in some if one.died_at >= since]
        began = min(since, fired[site] - window) if site in fired else since
        words, cause = "", None
        if recent and site != ALL_SITES:
            words = f"{group_failures(recent).largest_in_words}."
            cause = await _spider_at_fault(project, recent[:JUDGED], names)
        found.append(
            LettersReading(
                site=site,
                recent=len(recent),
                unmended=sum(one.died_at >= began for one in some),
                words=words,
                cause=cause,
            )
        )
    return tuple(found)


async def _spider_at_fault(project: Project, letters: list[DeadLetter], names: dict[str, str]) -> Subject | None:
    """The spider that most of these pages failed in, if they came; None: the site is what it is about."""
    jobs = Counter(one.job for one in letters if one.reason in SPIDER_AT_FAULT)
    if 2 * sum(jobs.values()) < len(letters):
        return None
    job = jobs.most_common(1)[0][0]
    if job not in names:
        known = await project.state.jobs.job(job)
        names[job] = known.spider_name if known is not None else job
    return Subject(SubjectKind.SPIDER, names[job])


async def _newest(project: Project, since: float) -> AsyncIterator[DeadLetter]:
    """Dead letters that died since then, the latest first, without pages that do not exist; of many, the newest."""
    place: LetterPlace | None = None
    for _ in range(MOST_LETTERS // LETTERS_AT_ONCE):
        some = await project.state.queue.dead(DeadFilter(), LETTERS_AT_ONCE, before=place)
        for one in some:
            if one.died_at < since:
                return
            if one.reason not in NOT_FOUND:
                yield one
        if len(some) < LETTERS_AT_ONCE:
            return
        place = LetterPlace(some[-1].died_at, some[-1].id, some[-1].job)


def receivers(callbacks: Iterable[Callback], since: float) -> tuple[ReceiverReading, ...]:
    """What became of the callbacks to each host; they come the latest first."""
    failed: Counter[str] = Counter()
    delivered: dict[str, bool] = {}
    for one in callbacks:
        host = urlsplit(one.url).hostname or ""
        delivered.setdefault(host, one.state is CallbackState.DELIVERED)
        if one.state is CallbackState.FAILED and (one.ended_at or 0.0) >= since:
            failed[host] += 1
    return tuple(ReceiverReading(host=host, failed=failed[host], delivered=last) for host, last in delivered.items())
