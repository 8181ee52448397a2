"""The story of a URL: where it was found, what was tried, why it waits, how it ended.

What it does: `story_of` reads the queue, the audit log, the archive's index and the record store, and combines them
into one value in the shape of `gossamer why --json`. It writes nothing.
How it fails: InvalidUrl for an address that cannot be read, Misconfigured for a request, BackendUnavailable. While the
record store does not answer, the story contains only what the queue knows.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from ...clock import iso_time
from ...crawl.page_facts import rhythm_of
from ...errors import Misconfigured
from ...frontier.contract import UrlStory
from ...model.download import Download
from ...model.job import Job
from ...model.record import Attempt, PageFacts
from ...model.route import FetchOptions
from ...model.task import Request, UrlState, fault_of
from ...model.url import site_of, typed_url
from ...settings import Settings
from ...store.contract import RecordQuery
from ...terms import site_terms
from ..jobs.jobs import crawl_command
from ..open import Project
from ..overrides import rest_words
from ..sites.routes import probe_of
from ..view_fields import view_fields, view_of
from .story_text import SiteNow, change_words, in_words

RECORDS_SHOWN = 20
ANOTHER_JOB = "another job"  # shown instead of the id of a job that the reader may not see


class UrlIncident(msgspec.Struct, frozen=True):
    """Something unusual that happened to a URL: a lapsed lease, a dead letter that was replayed or resolved."""

    at: str
    what: str


class JobStory(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL stands in one job, and how it got there. Times are ISO 8601 in UTC."""

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
    site_away_since: str | None  # since when the site cannot be reached
    site_taken_by: str | None  # the job that held the site when a worker last tried to lease this URL
    lane: str  # only workers that serve this lane may lease it
    ahead_of_it: int | None  # queued tasks of the same site and lane that go first
    session: str | None  # the visitor that fetches it
    incidents: list[UrlIncident]
    in_words: str  # where it stands and why, in one sentence
    next_step: str | None  # the command to run next


class AttemptView(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt from the audit log. `latency` is in seconds, `cost` in credits, `fingerprint` in hex."""

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


class ArchivedCopy(msgspec.Struct, frozen=True, kw_only=True):
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
    data: dict[str, Any]  # the fields of the item
    first_seen: str
    last_changed: str
    last_checked: str
    version: int
    gone_since: str | None
    schema: str


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """What identified the request, if it was more than a GET. Never the values of headers or the content of the
    body."""

    method: str
    headers: list[str]  # their names
    body: int  # bytes, without the secrets in it


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known about a URL. `known` is False if it was never a seed and no spider has asked for it."""

    url: str
    canonical: str  # the form in which URLs are compared
    fingerprint: str  # of that form, in hex
    known: bool
    changes: str | None  # how often the page changes, in words, if a schedule has learned it
    jobs: list[JobStory]
    attempts: list[AttemptView]
    visits: list[ArchivedCopy]
    records: list[StoryRecord]
    more_records: bool  # whether there are more than these
    trouble: str | None = None  # why the record store did not answer: attempts, visits and records are missing
    request: RequestView | None = None  # None: a plain GET


def other_fingerprints(project: Project, href: str) -> list[bytes]:
    """The same URL may also be queued as a file, or as a start page of a framework whose start pages are apart."""
    return [
        project.rules.fingerprint(href, other) for other in (FetchOptions(file=Download()), FetchOptions(unlinked=True))
    ]


async def story_of(project: Project, url: str, request: Request | None = None) -> Story:
    """The whole story of a URL, given as a person would type it. With `request`, the story of the URL requested in that
    way: its method, its body and the headers of `urls.identity_headers` identify it. Raises InvalidUrl, and
    Misconfigured for a request that cannot be sent."""
    href, how = typed_url(url), None
    if request is not None and not request.is_plain:
        if fault := fault_of(request):
            raise Misconfigured(f"The request for {href} {fault}.")
        href, how = typed_url(request.address()), request.options()
    canonical, fingerprint = project.rules.canonical(href), project.rules.fingerprint(href, how)
    others = other_fingerprints(project, href) if how is None else []
    site = site_of(canonical)
    stories = await project.state.queue.story(site, fingerprint)
    for other in others:
        stories = [*stories, *await project.state.queue.story(site, other)]
    attempts: list[Attempt] = []
    visits: list[PageFacts] = []
    facts, records, more = None, list[StoryRecord](), False
    if not project.absent:
        attempts = list(await project.records.attempts(fingerprint))
        for other in others:
            attempts += await project.records.attempts(other)
        attempts.sort(key=lambda one: one.at)
        visits = await project.records.visits(fingerprint) or await project.records.visits(
            others[-1] if others else b""
        )
        known = await project.records.facts([fingerprint, *others[-1:]])
        facts = known.get(fingerprint) or known.get(others[-1] if others else b"")
        records, more = await _records(project, [href.partition("#")[0], canonical, *(story.url for story in stories)])
    jobs = {job.id: job for job in await project.state.jobs.jobs()}
    now = project.clock.now()
    queue = await project.state.queue.site(site)
    site_now = SiteNow(
        windows=project.settings.domain(site).windows or "",
        rests=rest_words(project, site),
        learned=queue.learned.now(now) if queue is not None else None,
        terms=site_terms(project.settings)(site),
        facts=queue,
    )
    rhythm = rhythm_of(facts)
    return Story(
        url=href,
        canonical=canonical,
        fingerprint=fingerprint.hex(),
        known=bool(stories or attempts),
        changes=change_words(rhythm) if rhythm is not None else None,
        jobs=[_job_story(project.settings, story, jobs.get(story.job), site_now, now) for story in stories],
        attempts=[attempt_view(attempt) for attempt in attempts],
        visits=[view_of(ArchivedCopy, visit, "fetched_at") for visit in visits],
        records=records,
        more_records=more,
        trouble=project.absent or None,
        request=_request_view(how) if how is not None else None,
    )


def _request_view(how: FetchOptions) -> RequestView:
    size = how.body.size if how.body is not None else 0
    return RequestView(method=how.method, headers=[name for name, _ in how.headers], body=size)


async def _records(project: Project, addresses: list[str]) -> tuple[list[StoryRecord], bool]:
    """The first records of these addresses, and whether there are more."""
    found: list[StoryRecord] = []
    for address in dict.fromkeys(addresses):
        async for record in project.records.records(RecordQuery(url=address)):
            if len(found) == RECORDS_SHOWN:
                return found, True
            found.append(view_of(StoryRecord, record, "first_seen", "last_changed", "last_checked", "gone_since"))
    return found, False


def attempt_view(attempt: Attempt) -> AttemptView:
    return view_of(AttemptView, attempt, "at")


def _job_story(settings: Settings, story: UrlStory, job: Job | None, site: SiteNow, now: float) -> JobStory:
    """A URL in one job, from the queue's data, for a reader."""
    times = ("created_at", "changed_at", "ready_at", "lease_until", "site_next_at", "site_away_since")
    fields = view_fields(story, *times)
    fields["incidents"] = [UrlIncident(iso_time(at), what) for at, what in story.incidents]
    next_step = _next_step(settings, story, job, bool(site.rests))
    return JobStory(**fields, in_words=in_words(story, job, site, now), next_step=next_step)


def _next_step(settings: Settings, story: UrlStory, job: Job | None, rests: bool) -> str | None:
    if story.state is UrlState.DEAD:
        if probe := probe_of(settings, story.url, story.reason):
            return probe
        return f"gossamer dead replay {shlex.quote(story.url)}"  # URLs are written by strangers and pasted into shells
    if story.state.open and job is not None and job.ending == "limit" and not (job.schedule or job.stopped):
        return f"{crawl_command(job.name)} --limit N"
    if story.state is UrlState.QUEUED and rests:
        return f"gossamer site resume {story.site}"
    return None
