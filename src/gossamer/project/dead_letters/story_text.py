"""Where a URL stands and why, in words: for `gossamer why`, the dashboard and the HTTP API."""

from __future__ import annotations

import msgspec

from ...crawl.windows import WINDOW
from ...errors import FetchFailed, RouteFailed
from ...frontier.contract import SiteFacts, UrlStory
from ...frontier.limits import NO_LIMITS, SiteCondition, SiteLimits, limits_of
from ...frontier.politeness import SiteTerms
from ...model.job import Job, JobPoliteness, JobState
from ...model.task import LANE_ONLY, NO_ROOM, SITE_AWAY, DropReason, UrlState
from ...model.windows import is_open, parse_windows
from ...schedule.change_rate import Rhythm, prior_of, rate, sums_of
from ...units import distance, many, moment, span
from ..jobs.jobs import opening

DROPPED = {
    DropReason.DUPLICATE: "another URL of the same page is in the queue",
    DropReason.ROBOTS: "robots.txt forbids it",
    DropReason.SCOPE: "outside the scope of the crawl: its site is not one of the allowed domains",
    DropReason.DEPTH: "deeper than the crawl goes (crawl.depth)",
    DropReason.TRAP: "it looks like a trap: too long, or a path that repeats itself",
    DropReason.PATTERN_LIMIT: "too many URLs of its pattern were found before (crawl.max_urls_per_pattern)",
    DropReason.SITE_LIMIT: "too many URLs of its site were found before (crawl.max_urls_per_site)",
    DropReason.FRESH: "it was fetched less than the schedule's min_age ago",
    DropReason.UNMODIFIED: "its sitemap or feed says that it has not changed since it was fetched (only_changed)",
    DropReason.INVALID: "not a URL that can be crawled",
    "replaced": "its job was replaced by a fresh one before its turn came",
    "cancelled": "its job was cancelled before its turn came",
}

FEW_CHANGES = 3  # with fewer, nobody can say how often a page changes


class SiteNow(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to the site of a URL: its windows, why it rests by the settings or by hand, the interval (seconds)
    that its refusals have taught."""

    windows: str = ""
    rests: str = ""
    learned: float | None = None
    terms: SiteTerms | None = None  # of the settings
    facts: SiteFacts | None = None

    def limits(self, site: str, job: Job | None, now: float) -> SiteLimits:
        """The limits of the job there."""
        if self.terms is None:
            return NO_LIMITS
        condition = SiteCondition(
            asked=self.facts.asked_interval if self.facts is not None else None,
            learned=self.learned,
        )
        return limits_of(site, self.terms, job.politeness if job is not None else JobPoliteness(), condition)


def in_words(story: UrlStory, job: Job | None, site: SiteNow, now: float) -> str:
    """Where the URL stands in one job, and why, in one sentence."""
    match story.state:
        case UrlState.QUEUED:
            return f"queued: {_queued(story, job, site, now)}"
        case UrlState.WAITING:
            return f"waiting: {_waiting(story, site.windows, now)}"
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
    """A page that kills its workers has no answered try, only deliveries, and a limited number of those."""
    return many(attempts, "try", "tries") if attempts else many(deliveries, "delivery", "deliveries")


def _queued(story: UrlStory, job: Job | None, site: SiteNow, now: float) -> str:
    if job is not None and job.state is not JobState.RUNNING:
        if job.stopped:
            return f"the spider ended its job ({job.stopped}) before its turn came"
        if job.ending == "limit" and job.limit is not None:
            return f"the job ended at its limit of {job.limit:,} pages before its turn came"
        return f"the job ended ({job.ending or job.state.value}) before its turn came"
    if job is not None and job.paused:
        return f"its job is paused (gossamer job resume {job.id})"
    own = job.windows if job is not None else ""
    of_site = (site.windows, f"it waits for the window of {story.site}")
    for text, words in ((own, "its job waits for its window"), of_site):
        if text and not is_open(parse_windows(text), now):
            return f"{words}, {opening(text, now)}"
    ahead = story.ahead_of_it or 0
    place = f"it is the next of {story.site}"
    if ahead:
        place = f"{many(ahead, 'task')} of {story.site} {'goes' if ahead == 1 else 'go'} first"
    if site.rests:
        return f"{place}; the site {site.rests}"
    if story.site_away_since is not None:
        return f"{place}; {_away(story, now)}"
    limits = site.limits(story.site, job, now)
    slowed = f"; it {learned_words(site.learned)}" if site.learned is not None else ""
    if story.site_next_at is not None and story.site_next_at > now:
        by = f" ({limits.rate.words})" if limits.rate is not None else ""
        return f"{place}; the site's rate allows the next request {distance(story.site_next_at, now)}{by}{slowed}"
    if story.site_taken_by is not None:
        return f"{place}; {story.site_taken_by} has the site, and jobs take turns there"
    in_flight = site.facts.in_flight if site.facts is not None else 0
    if (full := limits.at_full(in_flight)) is not None:
        return f"{place}; {many(in_flight, 'request is', 'requests are')} in flight, and the limit is {full.words}"
    if limits.rate is not None and limits.rate.is_own:
        return f"{place}; the limit is {limits.rate.words}{slowed}"
    serving = f" and serves {story.lane.removeprefix(LANE_ONLY)}" if story.lane else ""
    return f"{place}; the site may be asked at any time, so it waits for a worker that is free{serving}{slowed}"


def _waiting(story: UrlStory, windows: str, now: float) -> str:
    if story.reason == WINDOW:
        if not windows or is_open(parse_windows(windows), now):
            again = f" at {moment(story.ready_at, now)}" if story.ready_at is not None else ""
            return f"waits for its window, which is open by the settings here: it is looked at again{again}"
        return f"waits for its window, {opening(windows, now)}"
    if story.reason == NO_ROOM:
        return "the queue is full (crawl.max_queued): it enters when there is room, and its job is not over before"
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
    """Says that the site cannot be reached, and when it is tried again."""
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
    """The reasons of failures that use up a try; no other reason does."""
    kinds: list[type[FetchFailed]] = [FetchFailed]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each is not RouteFailed]
    return frozenset(kind.reason for kind in kinds)


def learned_words(interval: float) -> str:
    """Says that a site was slowed down because of its own answers."""
    return f"was slowed down to a request every {span(interval)}, because it kept answering: too many requests"


def change_words(rhythm: Rhythm) -> str:
    """How often a page changes, as learned by the schedules that fetch it."""
    if not rhythm.checks:
        return "fetched once by a schedule: how often it changes is not known yet"
    counted = f"{many(rhythm.checks, 'check')}, {many(rhythm.changes, 'change')}"
    if rhythm.changes < FEW_CHANGES:
        return f"{counted}: too few changes to say how often"
    return (
        f"about every {span(1 / rate(rhythm, prior_of(sums_of(()))))} ({counted}); schedules with a budget go by that"
    )
