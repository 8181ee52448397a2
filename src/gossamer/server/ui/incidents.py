"""Views of incidents: the list, and one with its cause, its failures, who was told, what was done, and the repairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import NotThere
from ...model.incident import IncidentState, SubjectKind
from ...project.access.keys import ADMIN, JOBS, METRICS
from ...project.alerts.alerts import list_alerts
from ...project.alerts.incidents import (
    IncidentEnd,
    IncidentId,
    IncidentQuery,
    IncidentView,
    close_incident,
    list_incidents,
    show_incident,
)
from ...project.jobs.notes import NewNote, add_note
from ...project.row_page import RowFilters, row_page
from .templates import segment
from .view import Context, Done, FormAction, View, Visit, missing

MOST = 1000
Text = Annotated[str, Meta(max_length=1000)]


class IncidentFilters(RowFilters, frozen=True, kw_only=True):
    state: IncidentState | None = None
    kind: SubjectKind | None = None


class CloseForm(msgspec.Struct, frozen=True, kw_only=True):
    reason: Text = ""


class IncidentNoteForm(msgspec.Struct, frozen=True, kw_only=True):
    text: Text


COLUMNS: dict[str, Callable[[IncidentView], object]] = {
    "subject": lambda one: one.title,
    "severity": lambda one: ("info", "warning", "critical").index(one.severity),
    "since": lambda one: one.since,
    "ended": lambda one: one.ended_at,
}


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(IncidentFilters)
    query = IncidentQuery(state=chosen.state, kind=chosen.kind, limit=MOST)
    found = await list_incidents(visit.project, visit.caller, query)
    return {
        "page": row_page(found, chosen, text=lambda one: f"{one.title} {one.message} {one.id}", columns=COLUMNS),
        "open": sum(one.ended_at is None for one in found),
        "watched": (await list_alerts(visit.project)).watched,
        "states": [one.value for one in IncidentState],
        "kinds": [one.value for one in SubjectKind],
        "filtered": bool(chosen.q or chosen.state is not None or chosen.kind is not None),
    }


async def one(visit: Visit) -> Context:
    try:
        found = await show_incident(visit.project, visit.caller, IncidentId(id=visit.path["incident"]))
    except NotThere:
        raise missing("incident of that id") from None
    return {"one": found}


async def close(visit: Visit) -> Done:
    end = IncidentEnd(id=visit.path["incident"], reason=visit.of(CloseForm).reason[:500])
    closed = await close_incident(visit.project, visit.caller, end)
    return Done(words=f"{closed.id} is closed.", to=page_of(closed.id), target=closed.id)


async def note(visit: Visit) -> Done:
    id = visit.path["incident"]
    await show_incident(visit.project, visit.caller, IncidentId(id=id))
    await add_note(visit.project, visit.caller, NewNote(text=visit.of(IncidentNoteForm).text, incident=id))
    return Done(words="The note is written.", to=page_of(id), target=id)


def page_of(id: str) -> str:
    return f"/ui/incidents/{segment(id)}"


VIEWS = (
    View("/ui/incidents", "Incidents", "incidents.html", {"listed": list_region}, METRICS, query=IncidentFilters,
         group="Work"),
    View("/ui/incidents/{incident}", "Incident", "incident.html", {"one": one}, METRICS),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/incidents/{incident}/close", handler=close, form=CloseForm, scope=ADMIN),
    FormAction(path="/ui/incidents/{incident}/note", handler=note, form=IncidentNoteForm, scope=JOBS),
)
