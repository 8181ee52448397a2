"""Which incident an alert belongs to, and when an incident opens, ends and comes back. Pure.

An alert that fires joins the open incident about the same subject; if there is none, the one that ended less than a day
ago opens again; otherwise a new one opens. So many alerts about one cause are one incident. An incident ends when none
of its alerts holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..model.alert import AlertState, Standing
from ..model.incident import MOST_ALERTS, REOPENS_WITHIN, Closing, Incident, IncidentAlert, Subject, incident_id

Key = tuple[str, str]  # alert and subject
BY_A_SETTING = "a setting"  # in place of the person who closed it


class Sorted(msgspec.Struct, frozen=True):
    """All standings, each with its incident; and the incidents that are new or have changed."""

    standings: tuple[Standing, ...]
    incidents: tuple[Incident, ...]


def sort_into_incidents(
    standings: Sequence[Standing],
    before: Sequence[Standing],
    known: Sequence[Incident],
    closings: Sequence[Closing],
    causes: Mapping[Key, Subject],
    now: float,
) -> Sorted:
    """Give each alert that fires its incident, and bring the incidents up to date. `known` are the open ones, and those
    that ended within REOPENS_WITHIN; `before` are the standings before this look; `causes` what each is about."""
    incidents = {one.id: one for one in known}
    was = {one.key: one for one in before}
    found: list[Standing] = []
    for one in standings:
        fires = one.state.holds and not (one.key in was and was[one.key].state.holds)
        if fires or (one.state.holds and one.incident not in incidents):
            incident = _incident_for(one, causes[one.key], incidents, now)
            incidents[incident.id] = incident
            one = msgspec.structs.replace(one, incident=incident.id)
        found.append(one)
    by_incident: dict[str, dict[Key, Standing]] = {}
    for one in found:
        by_incident.setdefault(one.incident, {})[one.key] = one
    closed = {one.incident: one for one in closings}
    for id, incident in incidents.items():
        if incident.ended_at is None:
            incidents[id] = _updated(incident, by_incident.get(id, {}), closed.get(id), now)
    old = {one.id: one for one in known}
    return Sorted(tuple(found), tuple(one for id, one in incidents.items() if old.get(id) != one))


def _incident_for(one: Standing, about: Subject, incidents: Mapping[str, Incident], now: float) -> Incident:
    same = [incident for incident in incidents.values() if incident.about == about]
    running = next((incident for incident in same if incident.ended_at is None), None)
    if running is not None:
        return running
    ended = max(same, key=lambda incident: incident.ended_at or 0.0, default=None)
    if ended is not None and ended.ended_at is not None and now - ended.ended_at < REOPENS_WITHIN:
        reopened = (*ended.reopened, now)
        return msgspec.structs.replace(ended, ended_at=None, ended_by="", reason="", reopened=reopened[-MOST_ALERTS:])
    return Incident(id=incident_id(about, now), about=about, since=one.began_at, opened_at=now, alerts=())


def _updated(incident: Incident, standings: Mapping[Key, Standing], closing: Closing | None, now: float) -> Incident:
    """The incident with its alerts as they stand. One that is not among the standings is over."""
    alerts = {one.key: one for one in incident.alerts}
    for key, one in standings.items():
        if one.state is not AlertState.PENDING and (key in alerts or len(alerts) < MOST_ALERTS):
            alerts[key] = _alert(one)
    for key, old in alerts.items():
        if key not in standings and old.ended_at is None:
            alerts[key] = msgspec.structs.replace(old, ended_at=now)
    holds = any(one.state.holds for one in standings.values())
    incident = msgspec.structs.replace(incident, alerts=tuple(sorted(alerts.values(), key=lambda one: one.since)))
    if closing is None and holds:
        return incident
    by, reason = (closing.by, closing.reason) if closing is not None else _switched_off(standings)
    return msgspec.structs.replace(incident, ended_at=now, ended_by=by, reason=reason)


def _switched_off(standings: Mapping[Key, Standing]) -> tuple[str, str]:
    """Who and what ended the incident, if the last of its alerts is over because it was switched off: that is no
    evidence."""
    last = max(standings.values(), key=lambda one: one.since, default=None)
    if last is None or last.closed_by != BY_A_SETTING:
        return "", ""
    return BY_A_SETTING, f"alerts.{last.alert}.enabled is false"


def _alert(one: Standing) -> IncidentAlert:
    return IncidentAlert(
        alert=one.alert,
        subject=one.subject,
        words=one.words,
        severity=one.severity.value,
        since=one.began_at,
        mark=one.mark,
        no_data_since=one.no_data_since if one.state is AlertState.NO_DATA else None,
        ended_at=one.since if one.state.over else None,
    )
