"""Incidents as people and programs work on them: listed, shown with all that is known, closed.

An incident is written by the leading scheduler alone (monitor/incidents.py decides). What is shown beside it is read
when it is looked at: what changed around its beginning, the failures in groups, who was told, what was done, and the
repairs that fit. How it fails: NotThere for an incident that does not exist, BackendUnavailable. The commands and the
endpoints are made of OPERATIONS.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...clock import iso_time
from ...errors import NotThere
from ...frontier.contract import DeadFilter
from ...model.failure_groups import Failures
from ...model.incident import Closing, Incident, IncidentState, Subject, SubjectKind
from ...monitor.alerts import title_of
from ...settings import Settings
from ...terms import routing_of
from ...units import visible
from ..access.keys import ADMIN, METRICS, Caller
from ..jobs.failures import failures_of
from ..jobs.forecast import wait_of_job
from ..open import Project
from ..operation import Operation
from ..sites.proxies import proxy_pools
from ..sites.routes import probe_of, route_report
from ..spiders.layout_change import layout_change_of
from ..view_fields import view_of
from ..workers.workers import list_workers
from .failed_work import SPIDER_AT_FAULT, newest_runs
from .incident_changes import Happened, what_changed, what_was_done
from .repairs import Repair, RepairFacts, repairs_for

MOST_TOLD = 20
NOTICES_LOOKED_AT = 500
GROUPS_SHOWN = 10
RUNS_LOOKED_AT = 10  # of a spider, for one with dead letters
NEARLY = 0.5  # the share of a budget with which more is offered
Name = Annotated[str, Meta(max_length=300)]
Words = Annotated[str, Meta(max_length=500)]
Id = Annotated[str, Meta(max_length=100, description="As `gossamer incident list` shows it.")]


class IncidentAlertView(msgspec.Struct, frozen=True, kw_only=True):
    """An alert of an incident. Times are ISO 8601 in UTC."""

    alert: str
    subject: str
    message: str
    severity: str
    since: str
    no_data_since: str | None
    ended_at: str | None


class IncidentView(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one subject, and since when. `url` is its address in the dashboard, if server.public_url is
    set."""

    id: str
    kind: SubjectKind
    subject: str
    state: str  # open, closing (a person has closed it, and no scheduler has carried it out), ended
    severity: str
    message: str  # of the alert that fired last and holds
    since: str
    opened_at: str
    ended_at: str | None
    ended_by: str  # "" if it was good again
    reason: str
    reopened: int  # times
    alerts: list[IncidentAlertView]
    url: str

    @property
    def title(self) -> str:
        return Subject(self.kind, self.subject).in_words


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A message about it."""

    at: str
    channel: str
    title: str
    state: str


class IncidentDetail(IncidentView, frozen=True, kw_only=True):
    """`failures` None: it has no dead letters, or the caller may not see them. `selects` chooses its dead letters: the
    site or the job."""

    changes: list[Happened]
    selects: dict[str, str]
    failures: Failures | None
    told: list[Told]
    done: list[Happened]
    repairs: list[Repair]


class IncidentQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[IncidentState | None, Meta(description="open or ended; default: both.")] = None
    kind: Annotated[SubjectKind | None, Meta(description="Only about a site, spider, job, pool ...")] = None
    subject: Annotated[Name | None, Meta(description="Only about this one.")] = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most this many.")] = 100


class IncidentId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Id


class IncidentEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Id
    reason: Annotated[Words | None, Meta(description="Why it is over; others will ask.")] = None


async def list_incidents(project: Project, caller: Caller, query: IncidentQuery) -> list[IncidentView]:
    """Open ones first, the latest first."""
    book = project.state.alerts
    found: list[Incident] = []
    if query.state is not IncidentState.ENDED:
        found += await book.open_incidents()
    if query.state is not IncidentState.OPEN:
        found += await book.ended_incidents(1000)
    closing = {one.incident for one in await book.closings()}
    wanted = [one for one in found if query.kind in (None, one.about.kind) and query.subject in (None, one.about.name)]
    return [_view(project.settings, one, closing) for one in wanted[: query.limit]]


async def show_incident(project: Project, caller: Caller, asked: IncidentId) -> IncidentDetail:
    """Raises NotThere."""
    one = await _incident(project, asked.id)
    book = project.state.alerts
    closing = {each.incident for each in await book.closings()}
    which, jobs = await _dead_letters_of(project, one)
    reasons = await project.state.queue.dead_reasons(which) if which is not None else {}
    failures = None
    if which is not None and caller.is_admin:
        failures = await failures_of(project, which, sum(reasons.values()), largest=GROUPS_SHOWN)
    notices = [
        notice
        for notice in await book.notices(NOTICES_LOOKED_AT)
        if any(subject.incident == one.id for subject in notice.subjects)
    ]
    view = _view(project.settings, one, closing)
    return IncidentDetail(
        **msgspec.structs.asdict(view),
        changes=await what_changed(project, caller, one, jobs),
        failures=failures,
        selects=_selects(which),
        told=[
            Told(
                at=iso_time(notice.made_at),
                channel=notice.channel,
                title=title_of(notice, project.settings.project),
                state=notice.state.value,
            )
            for notice in notices[:MOST_TOLD]
        ],
        done=await what_was_done(project, caller, one),
        repairs=repairs_for(await _facts(project, caller, one, which, reasons, jobs)),
    )


async def close_incident(project: Project, caller: Caller, asked: IncidentEnd) -> IncidentView:
    """Say that it is over: its alerts are closed, and fire again only if they come back. Raises NotThere."""
    one = await _incident(project, asked.id)
    closing = set()
    if one.ended_at is None:
        reason = visible((asked.reason or "").strip())
        await project.state.alerts.close_incident(
            Closing(incident=one.id, by=caller.name, at=project.clock.now(), reason=reason)
        )
        closing = {one.id}
    return _view(project.settings, one, closing)


async def open_incident_of(project: Project, *abouts: Subject) -> IncidentView | None:
    """The open incident about one of these, for pages that show the subject."""
    found = {one.about: one for one in await project.state.alerts.open_incidents()}
    one = next((found[about] for about in abouts if about in found), None)
    return _view(project.settings, one, set()) if one is not None else None


def incident_address(settings: Settings, id: str) -> str:
    """Where the incident is in the dashboard; "" if nobody said under which address the dashboard is reached."""
    public = settings.server.public_url.rstrip("/")
    return f"{public}/ui/incidents/{id}" if public and id else ""


# -- what is known of one --------------------------------------------------------------------------------------------


async def _incident(project: Project, id: str) -> Incident:
    one = await project.state.alerts.incident(id)
    if one is None:
        raise NotThere(f"There is no incident {visible(id)}. `gossamer incident list` lists them.")
    return one


async def _dead_letters_of(project: Project, one: Incident) -> tuple[DeadFilter | None, list[str]]:
    """Which dead letters it is about, and the jobs, the latest first."""
    marks = [alert.mark for alert in one.alerts if alert.mark]
    match one.about.kind:
        case SubjectKind.PROJECT:
            return DeadFilter(), marks
        case SubjectKind.SITE:
            return DeadFilter(site=one.about.name), marks
        case SubjectKind.JOB:
            return DeadFilter(job=one.about.name), [one.about.name]
        case SubjectKind.SPIDER:
            runs = [job.id for job in await newest_runs(project) if job.spider_name == one.about.name]
            jobs = list(dict.fromkeys([*marks[::-1], *runs[:RUNS_LOOKED_AT]]))
            for job in jobs:
                if (await project.state.jobs.counts(job)).dead:
                    return DeadFilter(job=job), [job, *(other for other in jobs if other != job)]
            return (DeadFilter(job=jobs[0]) if jobs else None), jobs
    return None, marks


def _selects(which: DeadFilter | None) -> dict[str, str]:
    chosen = {} if which is None else {"domain": which.site, "job": which.job}
    return {name: value for name, value in chosen.items() if value is not None}


async def _facts(
    project: Project,
    caller: Caller,
    one: Incident,
    which: DeadFilter | None,
    reasons: dict[str, int],
    jobs: list[str],
) -> RepairFacts:
    running = {job.id for job in await project.state.jobs.running_jobs()}
    parsed, reason = max(((count, name) for name, count in reasons.items() if name in SPIDER_AT_FAULT), default=(0, ""))
    example = ""
    if which is not None and one.about.kind is SubjectKind.SPIDER:
        likeliest = msgspec.structs.replace(which, reason=reason or None)
        for letter in await project.state.queue.dead(likeliest, 1):
            example = f"/ui/dead/{letter.job}/{letter.id}"
    workers = await list_workers(project) if one.about.kind in (SubjectKind.WORKERS, SubjectKind.JOB) else []
    of_site = one.about.kind is SubjectKind.SITE
    change = None
    if one.about.kind is SubjectKind.SPIDER:
        change = await layout_change_of(project, one.about.name)
    routes = _routes(project, one.about.name) if of_site else ()
    return RepairFacts(
        about=one.about,
        dead_letters=sum(reasons.values()),
        parsed=parsed,
        reason=reason,
        example=example,
        jobs=tuple(jobs),
        running=tuple(job for job in jobs if job in running),
        overridden=_overridden(project, one.about),
        routes=routes,
        probe=await _probe(project, which) if len(routes) == 1 else "",
        learned=of_site and bool(await project.state.routes.learned(one.about.name)),
        budgets=await _budgets(project, one.about),
        proxies=await _bad_proxies(project, one.about.name) if one.about.kind is SubjectKind.POOL else (),
        page=f"/ui/incidents/{one.id}",
        missing=tuple(worker.name for worker in workers if worker.missing and worker.fate != "frozen"),
        frozen=tuple(worker.name for worker in workers if worker.fate == "frozen"),
        busy=tuple(
            worker.name for worker in workers if not worker.missing and one.about.name in worker.job.split(", ")
        ),
        waits=await wait_of_job(project, one.about.name) if one.about.kind is SubjectKind.JOB else "",
        layout=change.state if change is not None and change.is_open else None,
        healed=change is not None and change.healed > 0,
    )


OVERRIDES = {
    SubjectKind.BUDGET: "router.budget_{0}",
    SubjectKind.JOB: "router.budget_job",
    SubjectKind.POOL: "proxies.{0}.",
}


def _overridden(project: Project, about: Subject) -> tuple[str, ...]:
    """The settings of the subject that are set by hand."""
    if about.kind is SubjectKind.SITE:
        return tuple(one.key for one in project.live.overrides.of_site(about.name))
    if about.kind not in OVERRIDES:
        return ()
    begins = OVERRIDES[about.kind].format(about.name)
    return tuple(one.key for one in project.live.overrides.rows if one.key.startswith(begins))


def _routes(project: Project, site: str) -> tuple[str, ...]:
    """Those that it takes, the cheapest first, and others that the settings name."""
    taken = [route.name for route in routing_of(project.settings).terms_for(site).ladder]
    return tuple(dict.fromkeys([*taken, *project.settings.routes]))


async def _probe(project: Project, which: DeadFilter | None) -> str:
    """For the latest of these dead letters, if its site refused it and no other route leads there."""
    for letter in await project.state.queue.dead(which, 1) if which is not None else ():
        return probe_of(project.settings, letter.url, letter.reason) or ""
    return ""


async def _budgets(project: Project, about: Subject) -> tuple[tuple[str, float], ...]:
    """The settings of budgets of the subject that have next to nothing left, and what they allow."""
    keys = {
        SubjectKind.BUDGET: ("day/", "router.budget_day"),
        SubjectKind.JOB: (f"job/{about.name}", "router.budget_job"),
        SubjectKind.SITE: ("domain/", f"domains.{about.name}.budget"),
    }
    if about.kind not in keys:
        return ()
    begins, key = keys[about.kind]
    site = about.name if about.kind is SubjectKind.SITE else None
    found = (await route_report(project, site, limit=1)).budgets
    mine = [one for one in found if one.budget.startswith(begins) or one.meaning == f"job {about.name}"]
    return tuple(
        (key, one.limit)
        for one in mine[:1]
        if one.limit is not None and one.left is not None and one.left <= NEARLY * one.limit
    )


async def _bad_proxies(project: Project, pool: str) -> tuple[str, ...]:
    if pool not in project.settings.proxies:
        return ()
    (found,) = await proxy_pools(project, pool)
    return tuple(one.proxy for one in found.proxies if one.state in ("resting", "failing"))


def _view(settings: Settings, one: Incident, closing: set[str]) -> IncidentView:
    holding = [alert for alert in one.alerts if alert.ended_at is None]
    shown = (holding or one.alerts)[-1] if one.alerts else None
    order = ("info", "warning", "critical")
    return view_of(
        IncidentView,
        one,
        "since",
        "opened_at",
        "ended_at",
        kind=one.about.kind,
        subject=one.about.name,
        state="closing" if one.ended_at is None and one.id in closing else one.state.value,
        severity=max((alert.severity for alert in one.alerts), key=order.index, default="warning"),
        message=shown.words if shown is not None else "",
        reopened=len(one.reopened),
        alerts=[
            view_of(IncidentAlertView, alert, "since", "no_data_since", "ended_at", message=alert.words)
            for alert in one.alerts
        ],
        url=incident_address(settings, one.id),
    )


def in_words(one: IncidentDetail) -> str:
    """An incident for a terminal."""
    lines = [f"{one.id}: {one.title}, {one.state}; it began {one.since}"]
    if one.ended_at is not None:
        lines.append(
            f"ended {one.ended_at}" + (f" by {one.ended_by}: {one.reason}" if one.ended_by else ": good again")
        )
    if one.url:
        lines.append(one.url)
    for alert in one.alerts:
        stands = (
            "over" if alert.ended_at else f"no data since {alert.no_data_since}" if alert.no_data_since else "firing"
        )
        lines.append(f"  {alert.alert} ({stands}): {alert.message}")
    for heading, happened in (("What changed", one.changes), ("What was done", one.done)):
        if happened:
            lines += [f"{heading}:", *(f"  {each.at}  {each.words}" for each in happened)]
    if one.failures is not None:
        lines.append("What failed:")
        lines += [f"  {group.count:,} {one.failures.of_all}: {group.in_words}" for group in one.failures.groups]
    if one.told:
        lines += ["Who was told:", *(f"  {told.at}  {told.channel}: {told.title} ({told.state})" for told in one.told)]
    elif one.ended_at is None:
        lines.append("Nobody was told: add a table [channels.NAME] to gossamer.toml.")
    commands = [repair for repair in one.repairs if repair.command]
    if commands:
        lines += ["What you can do:", *(f"  {repair.command}    {repair.words}" for repair in commands)]
    return "\n".join(lines)


_Any = Operation[Any, Any]  # Any: each has its own types
OPERATIONS: tuple[_Any, ...] = (
    Operation(
        verb="incident list", summary="List incidents: open ones first, then those that have ended",
        columns=("id", "kind", "subject", "state", "since", "message"),
        method="GET", path="/api/v1/incidents", scope=METRICS, ask=IncidentQuery, gives=list[IncidentView],
        run=list_incidents, nothing="No incidents. Alerts that fire open them: gossamer alerts list.",
    ),
    Operation(
        verb="incident show", summary="Show an incident: what changed, what failed, who was told, what can be done",
        arguments=("id",),
        method="GET", path="/api/v1/incidents/{id}", scope=METRICS, ask=IncidentId, gives=IncidentDetail,
        run=show_incident, words=in_words,
    ),
    Operation(
        verb="incident close", summary="Close an incident: its alerts fire again only if they come back",
        arguments=("id",),
        method="POST", path="/api/v1/incidents/{id}/close", scope=ADMIN, ask=IncidentEnd, gives=IncidentView,
        run=close_incident, words=lambda one: f"{one.id} is closed.", example={"reason": "the shop was redesigned"},
    ),
)  # fmt: skip
