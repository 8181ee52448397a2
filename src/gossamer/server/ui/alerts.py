"""Views of alerts: what fires, what is silenced, what has happened; silence one, end a silence, send a test."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured
from ...model.alert import AlertState
from ...project.alerts import (
    alert_history,
    list_alerts,
    list_notices,
    show_alert,
    silence,
    try_channels,
    unsilence,
)
from ...project.keys import ADMIN, METRICS
from ...units import parse_duration
from .templates import segment
from .view import Action, Context, Done, View, Visit, missing

SHOWN = 50
Text = Annotated[str, Meta(max_length=300)]


class AlertFilters(msgspec.Struct, frozen=True, kw_only=True):
    state: AlertState | None = None


class SilenceForm(msgspec.Struct, frozen=True, kw_only=True):
    alert: Text
    subject: Text = "*"
    duration: Annotated[str, Meta(max_length=50)] = "1h"
    reason: Text = ""


class IdForm(msgspec.Struct, frozen=True, kw_only=True):
    id: Text


class ChannelForm(msgspec.Struct, frozen=True, kw_only=True):
    channel: Text


async def listed(visit: Visit) -> Context:
    state = visit.of(AlertFilters).state
    found = await list_alerts(visit.project, state)
    return {"found": found, "states": [one.value for one in AlertState], "filtered": state is not None}


async def past(visit: Visit) -> Context:
    return {
        "history": await alert_history(visit.project, limit=SHOWN),
        "notices": await list_notices(visit.project, limit=SHOWN),
    }


async def one(visit: Visit) -> Context:
    try:
        return {"detail": await show_alert(visit.project, visit.path["alert"])}
    except Misconfigured:
        raise missing("alert of that name") from None


async def make_silence(visit: Visit) -> Done:
    form = visit.of(SilenceForm)
    try:
        lasting = parse_duration(form.duration)
    except ValueError as error:
        raise Misconfigured(f"{error}.") from error
    made = await silence(
        visit.project,
        form.alert,
        subject=form.subject or "*",
        lasting=lasting,
        reason=form.reason,
        by=visit.caller.name,
    )
    return Done(words=f"Nobody is told of {made.alert} until {made.until}.", to="/ui/alerts", target=made.id)


async def end_silence(visit: Visit) -> Done:
    ended = await unsilence(visit.project, visit.of(IdForm).id)
    return Done(words=f"{ended.alert} is told again.", to="/ui/alerts", target=ended.id)


async def send_test(visit: Visit) -> Done:
    channel = visit.of(ChannelForm).channel
    sent = await try_channels(visit.project, channel)
    failed = [one for one in sent if not one.ok]
    words = f"A test went to {channel}." if not failed else f"{failed[0].channel} did not take it: {failed[0].error}"
    return Done(words=words[:500], to="/ui/alerts", target=channel)


def page_of(alert: str) -> str:
    return f"/ui/alerts/{segment(alert)}"


VIEWS = (
    View(
        path="/ui/alerts",
        title="Alerts",
        template="alerts.html",
        regions={"listed": listed, "past": past},
        query=AlertFilters,
        scope=METRICS,
        group="Look",
    ),
    View(path="/ui/alerts/{alert}", title="Alert", template="alert.html", regions={"one": one}, scope=METRICS),
)
ACTIONS = (
    Action(path="/ui/alerts/silence", handler=make_silence, form=SilenceForm, scope=ADMIN),
    Action(path="/ui/alerts/unsilence", handler=end_silence, form=IdForm, scope=ADMIN),
    Action(path="/ui/alerts/test", handler=send_test, form=ChannelForm, scope=ADMIN),
)
