"""The story of a URL: who found it, what was tried, why it waits, what became of it.

What it does: `story_of` asks the queue, the log of attempts, the archive's index and the record store, and puts the
answers into one value, which has the shape of `gossamer why --json`. Nothing is written.
How it fails: InvalidUrl for an address that cannot be read, Misconfigured for a request, BackendUnavailable. While the
record store does not answer, the story is what the queue knows.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from ..clock import iso_time
from ..crawl.page_facts import rhythm_of
from ..errors import Misconfigured
from ..frontier.contract import SiteOrder, UrlStory
from ..model.download import Download
from ..model.job import Job
from ..model.record import Attempt, PageFacts
from ..model.route import How
from ..model.task import Request, UrlState, fault_of
from ..model.url import site_of, typed_url
from ..store.contract import RecordQuery
from .jobs import crawl_command
from .open import Project
from .story_words import SiteNow, change_words, in_words
from .view_fields import view_fields

RECORDS_SHOWN = 20
ANOTHER_JOB = "another job"  # in the place of the id of one that the reader does not see


class Incident(msgspec.Struct, frozen=True):
    """Something unusual that happened to a URL: a lapsed lease, a dead letter that was replayed or resolved."""

    at: str
    what: str


class JobStory(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL stands in one job, and how it came there. Times are ISO 8601 in UTC."""

    job: str
    url: str
    state: UrlState
    reason: str
    message: str
    site: str
    kind: str  # the callback that parses it
    depth: int
    priority: int
    attempts: int
    max_attempts: int
    deliveries: int
    created_at: str
    changed_at: str
    found_on: str | None  # None: it is a seed
    ready_at: str | None  # when a waiting task is due
    worker: str | None
    lease_until: str | None
    site_next_at: str | None  # when the site's rate allows the next request
    site_away_since: str | None  # when the site could not be reached, and was not since
    site_taken_by: str | None  # the job that had the site when this URL was asked for last
    lane: str  # which workers may have it: those that serve this lane
    ahead_of_it: int | None  # queued tasks of the same site and lane that go first
    session: str | None  # the visitor as which it is fetched
    incidents: list[Incident]
    in_words: str  # where it stands and why, in one sentence
    next_step: str | None  # the command that goes on from here


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the log of attempts. `latency` is in seconds, `cost` in tokens, `fingerprint` in hex."""

    at: str
    job: str
    url: str
    fingerprint: str
    site: str
    worker: str
    attempt: int
    outcome: str
    route: str
    proxy: str | None
    status: int | None
    bytes: int
    latency: float
    cost: float
    reason: str
    error: str


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A raw copy in the archive. `gossamer shell REF` opens it."""

    fetched_at: str
    status: int
    job: str
    archive_ref: str


class StoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was made from the page."""

    type: str
    site: str
    key: str
    url: str
    job: str
    spider: str
    data: dict[str, Any]  # whatever the item held
    first_seen: str
    last_changed: str
    last_checked: str
    version: int
    gone_since: str | None
    schema: str


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked with, when it was more than a GET. Never what the headers and the body say."""

    method: str
    headers: list[str]  # their names
    body: int  # bytes, without the secrets in it


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a URL. Not `known`: it was never a seed, and no spider has asked for it."""

    url: str
    canonical: str  # the form in which URLs are compared
    fingerprint: str  # of that form, in hex
    known: bool
    changes: str | None  # how often the page changes, in words, where a schedule has learned that
    jobs: list[JobStory]
    attempts: list[AttemptView]
    visits: list[Visit]
    records: list[StoryRecord]
    more_records: bool  # there are more than these
    trouble: str | None = None  # why the record store could not be asked: attempts, visits and records are left out
    request: RequestView | None = None  # None: a plain GET


async def story_of(project: Project, url: str, request: Request | None = None) -> Story:
    """The whole story of a URL, as a person would type it. With `request`, that of the address asked for in this way:
    its method, its body, and the headers of `urls.identity_headers` tell it from others. Raises InvalidUrl, and
    Misconfigured for a request that cannot be sent."""
    href, how = typed_url(url), None
    if request is not None and not request.is_plain:
        if fault := fault_of(request):
            raise Misconfigured(f"The request for {href} {fault}.")
        href, how = typed_url(request.address()), request.wishes()
    canonical, fingerprint = project.rules.canonical(href), project.rules.fingerprint(href, how)
    as_file = project.rules.fingerprint(href, How(file=Download()))  # the address may be wanted as a file, too
    site = site_of(canonical)
    stories = await project.state.queue.story(site, fingerprint)
    if how is None:
        stories = [*stories, *await project.state.queue.story(site, as_file)]
    attempts: list[Attempt] = []
    visits: list[PageFacts] = []
    facts, records, more = None, list[StoryRecord](), False
    if not project.absent:
        attempts = list(await project.records.attempts(fingerprint))
        if how is None:
            attempts += await project.records.attempts(as_file)
        attempts.sort(key=lambda one: one.at)
        visits = await project.records.visits(fingerprint)
        facts = (await project.records.facts([fingerprint])).get(fingerprint)
        records, more = await _records(project, [href.partition("#")[0], canonical, *(story.url for story in stories)])
    jobs = {job.id: job for job in await project.state.jobs.jobs()}
    now = project.clock.now()
    queue = await project.state.queue.site(site)
    site_now = SiteNow(
        windows=project.settings.domain(site).windows or "",
        order=next((one for one in await project.state.orders.orders() if one.site == site and one.holds(now)), None),
        learned=queue.learned.now(now) if queue is not None else None,
    )
    rhythm = rhythm_of(facts)
    return Story(
        url=href,
        canonical=canonical,
        fingerprint=fingerprint.hex(),
        known=bool(stories or attempts),
        changes=change_words(rhythm) if rhythm is not None else None,
        jobs=[_job_story(story, jobs.get(story.job), site_now, now) for story in stories],
        attempts=[attempt_view(attempt) for attempt in attempts],
        visits=[
            Visit(
                fetched_at=iso_time(visit.fetched_at), status=visit.status, job=visit.job, archive_ref=visit.archive_ref
            )
            for visit in visits
        ],
        records=records,
        more_records=more,
        trouble=project.absent or None,
        request=_request_view(how) if how is not None else None,
    )


def _request_view(how: How) -> RequestView:
    size = how.body.size if how.body is not None else 0
    return RequestView(method=how.method, headers=[name for name, _ in how.headers], body=size)


async def _records(project: Project, addresses: list[str]) -> tuple[list[StoryRecord], bool]:
    """The first records of these addresses, and whether there are more."""
    found: list[StoryRecord] = []
    for address in dict.fromkeys(addresses):
        async for record in project.records.records(RecordQuery(url=address)):
            if len(found) == RECORDS_SHOWN:
                return found, True
            fields = view_fields(record, "first_seen", "last_changed", "last_checked", "gone_since")
            found.append(StoryRecord(**{name: fields[name] for name in StoryRecord.__struct_fields__}))
    return found, False


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(**view_fields(attempt, "at"))


def _job_story(story: UrlStory, job: Job | None, site: SiteNow, now: float) -> JobStory:
    """A URL in one job, as the queue tells it, for a reader."""
    times = ("created_at", "changed_at", "ready_at", "lease_until", "site_next_at", "site_away_since")
    fields = view_fields(story, *times)
    fields["incidents"] = [Incident(iso_time(at), what) for at, what in story.incidents]
    next_step = _next_step(story, job, site.order)
    return JobStory(**fields, in_words=in_words(story, job, site, now), next_step=next_step)


def _next_step(story: UrlStory, job: Job | None, order: SiteOrder | None) -> str | None:
    if story.state is UrlState.DEAD:
        return f"gossamer dead replay {shlex.quote(story.url)}"  # written by strangers, and pasted into shells
    if story.state.open and job is not None and job.ending == "limit" and not (job.schedule or job.stopped):
        return f"{crawl_command(job.name)} --limit N"
    if story.state is UrlState.QUEUED and order is not None:
        return f"gossamer site resume {story.site}"
    return None
