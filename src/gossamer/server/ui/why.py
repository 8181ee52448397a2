"""Views of attempts: the story of a URL as a timeline; the log of all attempts; those for one page as a waterfall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from markupsafe import Markup
from msgspec import Meta

from ...project.access.keys import JOBS, RECORDS
from ...project.dead_letters.attempts import FINE, AttemptFilter, list_attempts
from ...project.dead_letters.story import AttemptView, JobStory, Story
from ...project.jobs.api_views import seen_story
from ...units import seconds_of, span
from .charts import seconds
from .templates import link, segment
from .view import Context, View, Visit, check_seen

AT_ONCE = 100
MOST_BARS = 100
Text = Annotated[str, Meta(max_length=2083)]


class WhyFilters(msgspec.Struct, frozen=True, kw_only=True):
    url: Text = ""


class LogFilters(msgspec.Struct, frozen=True, kw_only=True):
    job: Text | None = None
    domain: Text | None = None
    route: Text | None = None
    outcome: Text | None = None
    reason: Text | None = None
    since: Text | None = None
    until: Text | None = None
    after: Annotated[str, Meta(max_length=100)] = ""


class OneFilters(msgspec.Struct, frozen=True, kw_only=True):
    url: Text = ""
    job: Text = ""


class StoryEvent(NamedTuple):
    """One event in the story of a URL. `kind` is a colour: good, bad, warn or quiet; `href` links to its details."""

    at: str
    title: str
    words: str
    kind: str
    href: str = ""


# -- why -------------------------------------------------------------------------------------------------------------


async def story(visit: Visit) -> Context:
    url = visit.of(WhyFilters).url.strip()
    if not url:
        return {"story": None, "events": []}
    found = await seen_story(visit.project, visit.caller, url)
    return {"story": found, "events": timeline(found)}


def timeline(story: Story) -> list[StoryEvent]:
    """All events of a URL, oldest first."""
    events = [event for job in story.jobs for event in _of_job(job)]
    events += [_of_attempt(one) for one in story.attempts]
    events += [
        StoryEvent(one.fetched_at, "archived", f"status {one.status}, {one.archive_ref}", "quiet")
        for one in story.visits
    ]
    for record in story.records:
        page = link("/ui/record", type=record.type, site=record.site, key=record.key)
        if record.gone_since is not None:
            words = f"{record.key} was marked as gone by {record.job}"
            events.append(StoryEvent(record.gone_since, f"record {record.type} gone", words, "warn", page))
            continue
        words = f"version {record.version} of {record.key}, by {record.spider}"
        events.append(StoryEvent(record.last_changed, f"record {record.type}", words, "good", page))
    return sorted(events, key=lambda event: event.at)


def _of_job(job: JobStory) -> list[StoryEvent]:
    found = f"on {job.found_on}" if job.found_on else "as a seed"
    words, page = f"{found}, by {job.job}, depth {job.depth}", f"/ui/jobs/{segment(job.job)}"
    events = [StoryEvent(job.created_at, "found", words, "quiet", page)]
    events += [StoryEvent(one.at, "incident", one.what, "warn") for one in job.incidents]
    return events


def _of_attempt(one: AttemptView) -> StoryEvent:
    parts = [f"status {one.status}" if one.status else "no answer", f"in {seconds(one.latency)}", f"by {one.route}"]
    parts += [f"through {one.proxy}"] if one.proxy else []
    parts += [one.error or one.reason] if one.error or one.reason else []
    kind = "good" if one.outcome in FINE else "bad" if one.outcome == "dead" else "warn"
    bars = link("/ui/attempts/page", url=one.url, job=one.job)
    return StoryEvent(one.at, one.outcome, f"try {one.attempt} of {one.job}: {', '.join(parts)}", kind, bars)


# -- attempts --------------------------------------------------------------------------------------------------------


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(LogFilters)
    await check_seen(visit, chosen.job)
    wanted = AttemptFilter(**{name: getattr(chosen, name) for name in AttemptFilter.__struct_fields__})
    page = await list_attempts(visit.project, wanted, limit=AT_ONCE, after=chosen.after or None, caller=visit.caller)
    return {"page": page, "filtered": wanted != AttemptFilter()}


async def bars(visit: Visit) -> Context:
    chosen = visit.of(OneFilters)
    found = await seen_story(visit.project, visit.caller, chosen.url)
    attempts = [one for one in found.attempts if chosen.job in ("", one.job)][-MOST_BARS:]
    known = next((one for one in found.jobs if one.job == chosen.job), None)
    return {"story": found, "attempts": attempts, "drawn": waterfall(attempts, known.created_at if known else None)}


def waterfall(attempts: Sequence[AttemptView], found_at: str | None) -> list[tuple[AttemptView, Markup, str]]:
    """A bar for each attempt on one time axis, and how long the page had waited before it."""
    if not attempts:
        return []
    starts = [seconds_of(one.at) for one in attempts]
    first = seconds_of(found_at) if found_at is not None else starts[0]
    last = max(start + one.latency for start, one in zip(starts, attempts, strict=True))
    whole = max(last - first, 1e-6)
    rows, before = [], first
    for start, one in zip(starts, attempts, strict=True):
        waited = max(0.0, start - before)
        left, wait = (before - first) / whole * 100, waited / whole * 100
        width = max(0.6, one.latency / whole * 100)
        kind = "ok" if one.outcome in FINE else "bad"
        words = f"waited {span(waited)}, answered in {span(one.latency)}"
        bar = Markup(
            '<svg class="meter" role="img" aria-label="{}">'
            '<rect class="bar quiet" x="{:.3f}%" width="{:.3f}%" height="100%"/>'
            '<rect class="bar {}" x="{:.3f}%" width="{:.3f}%" height="100%"/></svg>'
        ).format(words, left, wait, kind, min(left + wait, 99.4), width)
        rows.append((one, bar, span(waited)))
        before = start + one.latency
    return rows


VIEWS = (
    View("/ui/why", "Why", "why.html", {"story": story}, RECORDS, query=WhyFilters, or_scope=JOBS, group="Inspect"),
    View("/ui/attempts", "Attempts", "attempts.html", {"listed": list_region}, RECORDS, query=LogFilters, or_scope=JOBS,
         group="Inspect"),
    View("/ui/attempts/page", "Attempts for one page", "waterfall.html", {"bars": bars}, RECORDS, query=OneFilters,
         or_scope=JOBS),
)  # fmt: skip
