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
from ..crawl.journey import SITE_AWAY
from ..crawl.page_facts import rhythm_of
from ..crawl.windows import WINDOW
from ..errors import FetchFailed, Misconfigured, RouteFailed
from ..frontier.contract import SiteOrder, UrlStory
from ..model.download import Download
from ..model.job import Job, JobState
from ..model.record import Attempt, PageFacts
from ..model.route import How
from ..model.task import LANE_ONLY, DropReason, Request, UrlState, fault_of
from ..model.url import site_of, typed_url
from ..schedule.change_rate import Rhythm, prior_of, rate, sums_of
from ..schedule.windows import is_open, parse_windows
from ..store.contract import RecordQuery
from ..units import distance, many, moment, span
from .jobs import crawl_command, opening
from .open import Project

RECORDS_SHOWN = 20
ANOTHER_JOB = "another job"  # in the place of the id of one that the reader does not see

DROPPED = {
    DropReason.DUPLICATE: "another URL of the same page is in the queue",
    DropReason.ROBOTS: "robots.txt forbids it",
    DropReason.SCOPE: "outside the scope of the crawl: its site is none of the allowed domains",
    DropReason.DEPTH: "deeper than the crawl goes (crawl.depth)",
    DropReason.TRAP: "it looks like a trap: too long, a path that repeats itself, or too many URLs of its pattern",
    DropReason.FULL: "the queue was full (crawl.max_queued)",
    DropReason.FRESH: "it was fetched less than the schedule's min_age ago",
    DropReason.UNMODIFIED: "its sitemap or feed says that it has not changed since it was fetched (only_changed)",
    DropReason.INVALID: "not a URL that can be crawled",
    "replaced": "its job was replaced by a fresh one before its turn came",
    "cancelled": "its job was cancelled before its turn came",
}


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
    windows, now = project.settings.domain(site_of(canonical)).windows or "", project.clock.now()
    order = next((one for one in await project.state.orders.orders() if one.site == site and one.holds(now)), None)
    at_site = await project.state.queue.site(site)
    learned = at_site.learned.now(now) if at_site is not None else None
    rhythm = rhythm_of(facts)
    return Story(
        url=href,
        canonical=canonical,
        fingerprint=fingerprint.hex(),
        known=bool(stories or attempts),
        changes=change_words(rhythm) if rhythm is not None else None,
        jobs=[job_story(story, jobs.get(story.job), now, windows, order, learned) for story in stories],
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


def view_fields(value: msgspec.Struct, *times: str) -> dict[str, Any]:
    """The fields of a value as they are shown: those in `times` as ISO 8601, bytes as hex."""
    fields: dict[str, Any] = msgspec.structs.asdict(value)
    for name, field in fields.items():
        if isinstance(field, bytes):
            fields[name] = field.hex()
        elif name in times and field is not None:
            fields[name] = iso_time(field)
    return fields


def attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(**view_fields(attempt, "at"))


def job_story(
    story: UrlStory,
    job: Job | None,
    now: float,
    windows: str = "",
    order: SiteOrder | None = None,
    learned: float | None = None,
) -> JobStory:
    """A URL in one job, as the queue tells it, for a reader. `windows` are those of the URL's site, `order` is what an
    operator wants of it, `learned` the interval that its refusals have taught."""
    times = ("created_at", "changed_at", "ready_at", "lease_until", "site_next_at", "site_away_since")
    fields = view_fields(story, *times)
    fields["incidents"] = [Incident(iso_time(at), what) for at, what in story.incidents]
    return JobStory(
        **fields, in_words=in_words(story, job, now, windows, order, learned), next_step=_next_step(story, job, order)
    )


def _next_step(story: UrlStory, job: Job | None, order: SiteOrder | None = None) -> str | None:
    if story.state is UrlState.DEAD:
        return f"gossamer dead replay {shlex.quote(story.url)}"  # written by strangers, and pasted into shells
    if story.state.open and job is not None and job.ending == "limit" and not (job.schedule or job.stopped):
        return f"{crawl_command(job.name)} --limit N"
    if story.state is UrlState.QUEUED and order is not None:
        return f"gossamer site resume {story.site}"
    return None


# -- in words ------------------------------------------------------------------------------------------------------


def in_words(
    story: UrlStory,
    job: Job | None,
    now: float,
    windows: str = "",
    order: SiteOrder | None = None,
    learned: float | None = None,
) -> str:
    """Where the URL stands in one job, and why, in one sentence. `windows` are those of its site."""
    match story.state:
        case UrlState.QUEUED:
            return f"queued: {_queued(story, job, now, windows, order, learned)}"
        case UrlState.WAITING:
            return f"waiting: {_waiting(story, now, windows)}"
        case UrlState.LEASED:
            return f"leased: {_leased(story, now)}"
        case UrlState.DONE:
            return f"done: {story.reason}" if story.reason else "done: fetched, parsed and stored"
        case UrlState.UNCHANGED:
            return "unchanged: the server said that the copy we have is still good"
        case UrlState.DROPPED:
            return f"dropped: {DROPPED.get(story.reason, story.reason)}"
        case UrlState.DEAD:
            return f"dead: {story.reason}, after {tries(story.attempts, story.deliveries)}"


def tries(attempts: int, deliveries: int) -> str:
    """A page that kills its workers has no answered try, only deliveries, and of these a limited number."""
    return many(attempts, "try", "tries") if attempts else many(deliveries, "delivery", "deliveries")


def _queued(
    story: UrlStory, job: Job | None, now: float, windows: str, order: SiteOrder | None, learned: float | None
) -> str:
    if job is not None and job.state is not JobState.RUNNING:
        if job.stopped:
            return f"the spider ended its job ({job.stopped}) before its turn came"
        if job.ending == "limit" and job.limit is not None:
            return f"the job ended at its limit of {job.limit:,} pages before its turn came"
        return f"the job ended ({job.ending or job.state.value}) before its turn came"
    if job is not None and job.paused:
        return f"its job is paused (gossamer job resume {job.id})"
    own = job.windows if job is not None else ""
    for text, words in ((own, "its job waits for its window"), (windows, f"it waits for the window of {story.site}")):
        if text and not is_open(parse_windows(text), now):
            return f"{words}, {opening(text, now)}"
    ahead = story.ahead_of_it or 0
    place = f"it is the next of {story.site}"
    if ahead:
        place = f"{many(ahead, 'task')} of {story.site} {'goes' if ahead == 1 else 'go'} first"
    if order is not None and (order.rest_until or 0.0) > now:
        return f"{place}; the site {order_words(order, now)}"
    if story.site_away_since is not None:
        return f"{place}; {_away(story, now)}"
    slowed = f"; it {order_words(order, now)}" if order is not None else ""
    slowed += f"; it {learned_words(learned)}" if learned is not None else ""
    if story.site_next_at is not None and story.site_next_at > now:
        return f"{place}; the site's rate allows the next request {distance(story.site_next_at, now)}{slowed}"
    if story.site_taken_by is not None:
        return f"{place}; {story.site_taken_by} has the site, and jobs take turns there"
    serving = f" and serves {story.lane.removeprefix(LANE_ONLY)}" if story.lane else ""
    return f"{place}; the site may be asked at any time, so it waits for a worker that is free{serving}{slowed}"


def _waiting(story: UrlStory, now: float, windows: str) -> str:
    if story.reason == WINDOW:
        if not windows or is_open(parse_windows(windows), now):
            again = f" at {moment(story.ready_at, now)}" if story.ready_at is not None else ""
            return f"waits for its window, which is open by the settings here: it is looked at again{again}"
        return f"waits for its window, {opening(windows, now)}"
    if story.reason == SITE_AWAY and story.site_away_since is not None:
        return f"given back without using up a try: {_away(story, now)}"
    if story.reason in _fetch_reasons() or story.reason.startswith("blocked-"):
        cause = f"try {story.attempts} of {story.max_attempts} failed with {story.reason}"
        goal = "next try"
    else:
        cause = f"given back without using up a try ({story.reason})" if story.reason else "given back"
        goal = "back in the queue"
    if story.ready_at is None:
        return cause
    when = moment(story.ready_at, now) if story.ready_at > now else "now, as soon as a worker is free"
    return f"{cause}, {goal} {'at ' if story.ready_at > now else ''}{when}"


def _away(story: UrlStory, now: float) -> str:
    """That the site cannot be reached, and when it is tried again."""
    since, next_at = moment(story.site_away_since or now, now), story.site_next_at or 0.0
    again = f"at {moment(next_at, now)}" if next_at > now else "now"
    return f"{story.site} cannot be reached since {since}; one page tries it again {again}"


def _leased(story: UrlStory, now: float) -> str:
    worker = story.worker or "a worker"
    if story.lease_until is None:
        return f"{worker} has it"
    if story.lease_until <= now:
        return (
            f"{worker} had it until {moment(story.lease_until, now)}; the next worker that asks for work takes it back"
        )
    return f"{worker} has it until {moment(story.lease_until, now)}, and longer while it works"


def _fetch_reasons() -> frozenset[str]:
    """The reasons of failures that use up a try; everything else that makes a task wait does not."""
    kinds: list[type[FetchFailed]] = [FetchFailed]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each is not RouteFailed]
    return frozenset(kind.reason for kind in kinds)


def order_words(order: SiteOrder, now: float) -> str:
    """That a site rests or was slowed down by hand, and by whom."""
    said = []
    if order.rest_until is not None and order.rest_until > now:
        said.append(f"rests until {moment(order.rest_until, now)}")
    if order.interval is not None:
        said.append(f"was slowed down to a request every {span(order.interval)}")
    return f"{' and '.join(said)}, by order of {order.by or 'an operator'}"


def learned_words(interval: float) -> str:
    """That a site was slowed down because of its own answers."""
    return (
        f"was slowed down to a request every {span(interval)}, because it answered again and again: too many requests"
    )


def change_words(rhythm: Rhythm) -> str:
    """How often a page changes, as far as the schedules that fetch it have learned."""
    if not rhythm.checks:
        return "fetched once by a schedule: how often it changes is not known yet"
    counted = f"{many(rhythm.checks, 'check')}, {many(rhythm.changes, 'change')}"
    return (
        f"about every {span(1 / rate(rhythm, prior_of(sums_of(()))))} ({counted}); schedules with a budget go by that"
    )
