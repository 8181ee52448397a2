"""Views of the queue: sites with open pages and why they wait; one site, which can be slowed down or paused."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...model.incident import Subject, SubjectKind
from ...project.access.keys import ADMIN, JOBS
from ...project.alerts.incidents import open_incident_of
from ...project.dead_letters.attempts import FINE
from ...project.jobs.overview import RANGES, Range
from ...project.overrides import rest_words
from ...project.records.figures import Point, history
from ...project.sites.sites import CAUSES, queue_by_site, rest_site, resume_site, site_named, site_view, slow_site
from .charts import Series, bars, lines
from .templates import segment
from .view import CHARTS_EVERY, Context, Done, FormAction, View, Visit

AT_ONCE = 50
BLOCKED = "blocked"
COUNTS = ("open", "queued", "waiting", "leased")  # columns that sort in descending order first
Text = Annotated[str, Meta(max_length=500)]


class SiteFilters(msgspec.Struct, frozen=True, kw_only=True):
    range: Range = "day"


class QueueFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text = ""
    job: Text | None = None
    cause: Text | None = None
    sort: Text = "-open"
    after: Annotated[int, Meta(ge=0, le=10_000_000)] = 0


class RateForm(msgspec.Struct, frozen=True, kw_only=True):
    rate: Annotated[str, Meta(max_length=50)]


class RestForm(msgspec.Struct, frozen=True, kw_only=True):
    duration: Annotated[str, Meta(max_length=50)]


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(QueueFilters)
    column = chosen.sort.removeprefix("-")
    page = await queue_by_site(
        visit.project,
        job=chosen.job,
        cause=chosen.cause,
        search=chosen.q,
        sort=column,
        reverse=chosen.sort.startswith("-") is not (column in COUNTS),
        limit=AT_ONCE,
        skip=chosen.after,
        sees=visit.caller.sees,
    )
    return {"queue": page, "causes": CAUSES, "filtered": bool(chosen.q or chosen.job or chosen.cause)}


async def one(visit: Visit) -> Context:
    found = await site_view(visit.project, visit.path["site"], sees=visit.caller.sees)
    return {"site": found, "incident": await open_incident_of(visit.project, Subject(SubjectKind.SITE, found.site))}


async def figures(visit: Visit) -> Context:
    project, site, chosen = visit.project, site_named(visit.path["site"]), visit.of(SiteFilters).range
    back, step = RANGES[chosen]
    found = await history(project, since=project.clock.now() - back.total_seconds(), step=step, domain=site)
    times = [point.at for point in found.points]
    took = [Series("on average", [point.seconds for point in found.points])]
    return {
        "chart_of": answers_chart(f"Attempts at {site} in the last {chosen}", found.points),
        "answers": lines("Time to answer", times, took, unit="seconds"),
        "whole": found.whole,
        "blocked": found.whole.pages.get(BLOCKED, 0),
        "failed": sum(count for outcome, count in found.whole.pages.items() if outcome not in (*FINE, BLOCKED)),
        "ranges": tuple(RANGES),
    }


def answers_chart(label: str, points: list[Point]) -> object:
    """Attempts over time: successful, blocked, and failed for other reasons."""
    fine = [float(sum(count for outcome, count in point.pages.items() if outcome in FINE)) for point in points]
    blocked = [float(point.pages.get(BLOCKED, 0)) for point in points]
    every = [float(sum(point.pages.values())) for point in points]
    failed = [total - good - no for total, good, no in zip(every, fine, blocked, strict=True)]
    series = [Series("failed", failed, "bad"), Series("blocked", blocked, "warn"), Series("fine", fine, "ok")]
    return bars(label, [point.at for point in points], series)


def page_of(site: str) -> str:
    return f"/ui/queue/{segment(site)}"


async def slow(visit: Visit) -> Done:
    site = site_named(visit.path["site"])
    one = await slow_site(visit.project, visit.caller, site, visit.of(RateForm).rate)
    return Done(words=f"{site} is asked at {one.value}.", to=page_of(site), target=one.key)


async def rest(visit: Visit) -> Done:
    site = site_named(visit.path["site"])
    one = await rest_site(visit.project, visit.caller, site, visit.of(RestForm).duration)
    return Done(words=f"{site} {rest_words(visit.project, site)}.", to=page_of(site), target=one.key)


async def resume(visit: Visit) -> Done:
    site = site_named(visit.path["site"])
    changed = await resume_site(visit.project, visit.caller, site)
    words = f"{site} goes on as the settings say." if changed else f"Nothing was set by hand for {site}."
    return Done(words=words, to=page_of(site), target=site)


VIEWS = (
    View("/ui/queue", "Queue", "queue.html", {"listed": list_region}, JOBS, query=QueueFilters, group="Work"),
    View("/ui/queue/{site}", "Site", "site.html", {"one": one, "figures": figures}, ADMIN, query=SiteFilters,
         slow={"figures": CHARTS_EVERY}),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/queue/{site}/slow", handler=slow, form=RateForm, scope=ADMIN),
    FormAction(path="/ui/queue/{site}/rest", handler=rest, form=RestForm, scope=ADMIN),
    FormAction(path="/ui/queue/{site}/resume", handler=resume, scope=ADMIN),
)
