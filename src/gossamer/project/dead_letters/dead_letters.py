"""Dead letters: pages that were given up. List them, show one, replay them, purge them.

What it does: `DeadLetterChoice` selects letters in the words that a person types. Letters whose pages could not be
parsed are parsed again from the archive, without a request; the others go back into the queue.
How it fails: Misconfigured for a choice that names no letter or job, SpiderNotFound, BackendUnavailable.
How it recovers: call again; letters that are settled by then are no longer in the list.
"""

from __future__ import annotations

import math
from collections import Counter

import msgspec

from ...errors import InvalidUrl, Misconfigured
from ...frontier.contract import DeadFilter, DeadLetter, LetterPlace
from ...model.failure_groups import Failures, group_failures, group_of
from ...model.job import Job
from ...model.task import UrlState
from ...model.url import site_of, typed_url
from ...units import visible
from ..jobs.failures import failures_of
from ..jobs.jobs import crawl_command, find_job
from ..open import Project
from ..view_fields import view_fields
from .sent_requests import allow_sending
from .story import AttemptView, attempt_view

LETTERS_AT_ONCE = 1_000
MOST_GROUPED = 10_000  # dead letters that are looked at for those of a group
GROUPS_SHOWN = 10  # with a list
JOBS_OF_A_LETTER = 10  # listed per address; an address with more jobs may appear twice


class DeadLetterChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters to select. None does not restrict."""

    target: str | None = None  # a URL, or the id of a letter
    job: str | None = None  # a job's id, or its name: then the newest job of that name
    reason: str | None = None  # parse, timeout, http-404; http for all error responses
    domain: str | None = None
    message: str | None = None  # a text in their messages
    group: str | None = None  # the key of a group of failures; of the newest MOST_GROUPED that the others select


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was given up. `id` is unique in its job, not among all jobs."""

    id: int
    job: str
    url: str
    site: str
    kind: str  # the callback that parses it
    reason: str
    message: str
    attempts: int
    deliveries: int
    died_at: str  # ISO 8601 in UTC
    found_on: str | None  # None: it is a seed
    fingerprint: str  # in hex
    depth: int
    priority: int
    jobs: list[str] = []  # in which the same address was given up, newest first


class DeadLetterDetail(DeadLetterView, frozen=True, kw_only=True):
    """A dead letter with every attempt that its job made, and where its raw page is."""

    attempts_log: list[AttemptView]
    archive_ref: str | None  # None: no response arrived, or raw pages are not kept


class DeadLetterPage(msgspec.Struct, frozen=True, kw_only=True):
    """The latest dead letters, each address once, with counts in total and by reason."""

    total: int
    by_reason: dict[str, int]
    dead_letters: list[DeadLetterView]
    next: str | None = None  # pass it as `after` to get the next page
    failures: Failures | None = None  # the largest groups among them


class FailedPage(msgspec.Struct, frozen=True):
    """A page that could not be parsed again, and why."""

    url: str
    message: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    resolved: int = 0  # parsed again from the archive
    records: int = 0  # from these pages
    changed: int = 0  # records that are new or changed
    links: int = 0  # queued
    failed: int = 0  # could not be parsed again
    failures: list[FailedPage] = []  # the first of them
    lost: int = 0  # their raw pages are no longer in the archive
    taken: int = 0  # settled by another process meanwhile
    requeued: int = 0  # without a raw page: back in the queue, to be fetched
    left_out: dict[str, int] = {}  # why -> how many
    unread: list[str] = []  # spiders whose start() was not read to its end
    parsed: bool = False  # some of the letters were meant to be parsed again
    queued: dict[str, int] = {}  # job -> letters back in its queue, to be fetched
    jobs: list[str] = []  # names of the jobs that have work again
    opened: list[str] = []  # ids of these jobs, which run again
    command: str | None = None  # the one command that finishes them; None: workers that are there pick them up

    @property
    def matched(self) -> bool:
        """Whether a letter matched the choice."""
        return self.parsed or bool(self.queued)

    @property
    def did_something(self) -> bool:
        """False if every letter failed again or had to be left out."""
        done = self.queued or self.resolved or self.requeued
        return bool(done) or not (self.failed or self.lost or self.left_out)


# -- looking -------------------------------------------------------------------------------------------------------


async def list_letters(
    project: Project, choice: DeadLetterChoice, *, limit: int, after: str | None = None
) -> DeadLetterPage:
    """The latest of these letters, at most `limit`; `after` is `next` of the previous page. An address that was given
    up in several jobs may appear again on a later page. Raises Misconfigured."""
    which, place = await _filter(project, choice), _place(after) if after else None
    most = limit * JOBS_OF_A_LETTER
    failures: Failures | None = None
    if choice.group is not None:
        grouped = await _in_group(project, which, choice.group)
        reasons = dict(Counter(one.reason for one in grouped))
        failures = group_failures(grouped) if grouped and place is None else None
        found = [one for one in grouped if place is None or LetterPlace(one.died_at, one.id, one.job) < place][:most]
    else:
        reasons = await project.state.queue.dead_reasons(which)
        if place is None:
            failures = await failures_of(project, which, sum(reasons.values()), largest=GROUPS_SHOWN)
        found = await project.state.queue.dead(which, most, before=place)
    by_address: dict[bytes, list[DeadLetter]] = {}
    last: DeadLetter | None = None  # of this page
    for letter in found:
        if letter.fingerprint not in by_address and len(by_address) < limit:
            last = letter
        by_address.setdefault(letter.fingerprint, []).append(letter)
    if len(by_address) <= limit:  # everything found fits on this page
        last = found[-1] if len(found) == most else None
    return DeadLetterPage(
        total=sum(reasons.values()),
        by_reason=reasons,
        dead_letters=[
            DeadLetterView(**{**view_fields(alike[0], "died_at"), "jobs": [one.job for one in alike]})
            for alike in [*by_address.values()][:limit]
        ],
        next=f"{last.died_at!r} {last.id} {last.job}" if last is not None else None,
        failures=failures,
    )


def _place(text: str) -> LetterPlace:
    """Raises Misconfigured."""
    try:
        died_at, id, job = text.split(" ", 2)
        place = LetterPlace(float(died_at), int(id), job)
    except ValueError as error:
        raise Misconfigured(f"{visible(text)} is not a place in the list: pass `next` unchanged.") from error
    if not (math.isfinite(place.died_at) and 0 <= place.id < 2**63):
        raise Misconfigured(f"{visible(text)} is not a place in the list: pass `next` unchanged.")
    return place


async def show_letters(project: Project, target: str) -> list[DeadLetterDetail]:
    """The letters with that id or URL, one per job, newest first. Raises Misconfigured."""
    return [await _detail(project, letter) for letter in await _letters(project, target)]


async def letter_of(project: Project, job: str, id: str) -> DeadLetterDetail:
    """The letter with that id in that job. Raises Misconfigured."""
    found = await project.state.queue.dead(DeadFilter(id=int(id[:18]), job=job), 1) if _is_id(id) else []
    if not found:
        raise Misconfigured(f"There is no dead letter {visible(id)} in {visible(job)}.")
    return await _detail(project, found[0])


async def raw_page(project: Project, letter: DeadLetterDetail) -> bytes:
    """The page as it was received. Raises Misconfigured if there is no raw copy."""
    if letter.archive_ref is None:
        raise Misconfigured(f"There is no raw page of {letter.url}: no response arrived, or store.keep_pages is off.")
    return (await project.archive.get(letter.archive_ref)).body


async def letters_by_site(project: Project, choice: DeadLetterChoice, *, limit: int) -> dict[str, int]:
    """How many of these letters each site has, for the sites with the most. Raises Misconfigured."""
    which = await _filter(project, choice)
    if choice.group is not None:
        return dict(Counter(one.site for one in await _in_group(project, which, choice.group)).most_common(limit))
    return await project.state.queue.dead_sites(which, limit)


async def count_letters(project: Project, choice: DeadLetterChoice) -> int:
    """How many letters `replay_letters` and `purge_letters` would process. Raises Misconfigured."""
    if choice.group is not None:
        return len(await _in_group(project, await _filter(project, choice), choice.group))
    return sum((await project.state.queue.dead_reasons(await _filter(project, choice))).values())


# -- replaying and purging ------------------------------------------------------------------------------------------


async def replay_letters(
    project: Project,
    choice: DeadLetterChoice,
    *,
    fetch: bool = False,
    spider: str | None = None,
    crawled_as: str | None = None,
) -> Replayed:
    """Replay these letters. With `fetch`, pages that would only be parsed again are fetched from the site as well.

    `spider` is the file of a spider outside the project's folder, `crawled_as` the name under which its pages were
    crawled. Raises Misconfigured, SpiderNotFound.
    """
    from ..jobs.api_jobs import is_served
    from ..reparse.archive_job import FAILED
    from ..reparse.dead_letters import Revival, revive  # loads parsing code

    filters = await _filters(project, choice)
    revivals: list[Revival] = []
    queued: Counter[str] = Counter()
    for which in filters:
        for reason in await project.state.queue.dead_reasons(which):
            alike = msgspec.structs.replace(which, reason=reason)
            if reason in FAILED and not fetch:
                revivals.append(await revive(project, alike, spider=spider, crawled_as=crawled_as))
            else:
                queued.update(await _per_job(project, alike))
                await allow_sending(project, alike)
                await project.state.queue.replay(alike)
    left_out: Counter[str] = Counter()
    for one in revivals:
        left_out.update(one.left_out)
    names = [job.name for job in await project.state.jobs.jobs() if job.id in queued]
    names += [name for one in revivals for name in sorted(one.jobs)]
    names = list(dict.fromkeys(names))
    opened = [job for job in await project.state.jobs.running_jobs() if job.id in queued or job.name in names]
    return Replayed(
        **{name: sum(getattr(one, name) for one in revivals) for name in _COUNTED},
        failures=[FailedPage(page.wanted.url, page.message) for one in revivals for page in one.failures],
        left_out=dict(left_out),
        unread=sorted({name for one in revivals for name in one.unread}),
        parsed=bool(revivals),
        queued=dict(queued),
        jobs=names,
        opened=[job.id for job in opened],
        command=_command(opened) if not await is_served(project) else None,
    )


def _command(opened: list[Job]) -> str | None:
    """The one command that finishes these jobs, with the terms they were started with."""
    if len(opened) == 1 and not opened[0].schedule:
        return crawl_command(opened[0].name)
    return "gossamer worker --until-idle" if opened else None


_COUNTED = ("resolved", "records", "changed", "links", "failed", "lost", "taken", "requeued")


async def purge_letters(project: Project, choice: DeadLetterChoice) -> int:
    """Delete these letters for good; return how many. Their raw pages and attempts stay. Raises Misconfigured."""
    from ..jobs.outcome import settle_again  # loads parsing code

    filters = await _filters(project, choice)
    touched = [job for which in filters for job in await _per_job(project, which)]
    purged = sum([await project.state.queue.purge(which) for which in filters])
    for job in touched:
        await settle_again(project, job, "purged")
    return purged


async def _per_job(project: Project, which: DeadFilter) -> dict[str, int]:
    """How many of the letters belong to each job."""
    found: dict[str, int] = {}
    for job in await project.state.jobs.jobs():
        if which.job in (None, job.id):
            reasons = await project.state.queue.dead_reasons(msgspec.structs.replace(which, job=job.id))
            if reasons:
                found[job.id] = sum(reasons.values())
    return found


async def _filters(project: Project, choice: DeadLetterChoice) -> list[DeadFilter]:
    """The choice as filters for the queue, which knows no groups: then there is one for each job."""
    which = await _filter(project, choice)
    if choice.group is None:
        return [which]
    by_job: dict[str, set[int]] = {}
    for one in await _in_group(project, which, choice.group):
        by_job.setdefault(one.job, set()).add(one.id)
    return [msgspec.structs.replace(which, job=job, among=frozenset(ids)) for job, ids in by_job.items()]


async def _in_group(project: Project, which: DeadFilter, group: str) -> list[DeadLetter]:
    """The dead letters of the group, the latest first."""
    found: list[DeadLetter] = []
    place: LetterPlace | None = None
    for _ in range(MOST_GROUPED // LETTERS_AT_ONCE):
        some = await project.state.queue.dead(which, LETTERS_AT_ONCE, before=place)
        found += [one for one in some if group_of(one) == group]
        if len(some) < LETTERS_AT_ONCE:
            break
        place = LetterPlace(some[-1].died_at, some[-1].id, some[-1].job)
    return found


# -- selecting -------------------------------------------------------------------------------------------------------


async def _filter(project: Project, choice: DeadLetterChoice) -> DeadFilter:
    """The person's choice as a filter for the queue."""
    job = (await find_job(project, choice.job)).id if choice.job is not None else None
    letter = (await _letters(project, choice.target, job))[0] if choice.target is not None else None
    by_id = letter if choice.target is not None and _is_id(choice.target) else None
    domain = choice.domain
    return DeadFilter(
        id=by_id.id if by_id is not None else None,
        url=letter.url if letter is not None else None,
        job=job if job is not None else by_id.job if by_id is not None else None,
        reason=choice.reason,
        message=choice.message,
        site=None if domain is None else site_of(typed_url(domain if "://" in domain else f"http://{domain}/")),
    )


def _is_id(target: str) -> bool:
    return target.isascii() and target.isdigit()


async def _letters(project: Project, target: str, job: str | None = None) -> list[DeadLetter]:
    """The dead letters with that id or URL, newest job first; with `job`, only those of that job, and messages mention
    no other. Raises Misconfigured."""
    queue = project.state.queue
    if _is_id(target):
        found = await queue.dead(DeadFilter(id=int(target[:18]), job=job), 1)
        if not found:
            raise Misconfigured(f"There is no dead letter {target}. `gossamer dead list` shows their ids.")
        return found
    try:
        href = typed_url(target)
    except InvalidUrl as error:
        raise Misconfigured(f"{error} Give a URL, or an id from `gossamer dead list`.") from error
    every = await queue.story(site_of(href), project.rules.fingerprint(href))
    stories = [one for one in every if job in (None, one.job)]
    letters: list[DeadLetter] = []
    for story in stories:
        if story.state is UrlState.DEAD:
            letters += await queue.dead(DeadFilter(job=story.job, url=story.url), 1)
    if not letters:
        known = f" It is {stories[0].state.value} in {stories[0].job}." if stories else ""
        raise Misconfigured(f"{visible(href)} is not among the dead letters.{known} See: gossamer why URL")
    return letters


async def _detail(project: Project, letter: DeadLetter) -> DeadLetterDetail:
    fingerprint = project.rules.fingerprint(letter.url)
    attempts = await project.records.attempts(fingerprint, letter.job)
    copies = [
        visit.archive_ref
        for visit in await project.records.visits(fingerprint)
        if visit.archive_ref and visit.job == letter.job
    ]
    return DeadLetterDetail(
        **view_fields(letter, "died_at"),
        attempts_log=[attempt_view(one) for one in attempts],
        archive_ref=copies[-1] if copies else None,
    )
