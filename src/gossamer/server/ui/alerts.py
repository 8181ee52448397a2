"""Views of alerts: firing, silenced and past ones; silence one, end a silence, send a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured
from ...model.alert import AlertState
from ...model.alert_table import ALERTS
from ...project.access.keys import ADMIN, METRICS
from ...project.alerts.alerts import (
    AlertChangeView,
    AlertView,
    alert_history,
    list_alerts,
    list_notices,
    show_alert,
    silence,
    try_channels,
    unsilence,
)
from ...project.row_page import RowFilters, row_page
from ...units import parse_duration
from .templates import segment
from .view import Context, Done, FormAction, IdForm, View, Visit, missing

SHOWN = 50  # messages
MOST_FIRING = 200  # alerts on a page
CHANGES_LOOKED_AT = 1000
Text = Annotated[str, Meta(max_length=300)]


class AlertFilters(RowFilters, frozen=True, kw_only=True):
    state: AlertState | None = None


class SilenceForm(msgspec.Struct, frozen=True, kw_only=True):
    alert: Text
    subject: Text = "*"
    duration: Annotated[str, Meta(max_length=50)] = "1h"
    reason: Text = ""


class ChannelForm(msgspec.Struct, frozen=True, kw_only=True):
    channel: Text


async def list_region(visit: Visit) -> Context:
    chosen = visit.of(AlertFilters)
    found = await list_alerts(visit.project, chosen.state)
    wanted = msgspec.structs.replace(chosen, after=0)
    return {
        "found": found,
        "alerts": row_page(found.alerts, wanted, text=_text, columns=COLUMNS, limit=MOST_FIRING),
        "states": [one.value for one in AlertState],
        "names": [("*", "every alert"), *ALERTS],
        "filtered": bool(chosen.q or chosen.state is not None),
    }


COLUMNS: dict[str, Callable[[AlertView], object]] = {
    "alert": lambda one: one.alert,
    "severity": lambda one: one.severity.value,
    "since": lambda one: one.since,
}


def _text(one: AlertView | AlertChangeView) -> str:
    return f"{one.alert} {one.subject} {one.message}"


async def past(visit: Visit) -> Context:
    chosen = visit.of(AlertFilters)
    wanted = msgspec.structs.replace(chosen, sort="")
    changes = await alert_history(visit.project, limit=CHANGES_LOOKED_AT)
    return {
        "page": row_page(changes, wanted, text=_text, columns={}),
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
    return Done(words=f"No messages about {made.alert} until {made.until}.", to="/ui/alerts", target=made.id)


async def end_silence(visit: Visit) -> Done:
    ended = await unsilence(visit.project, visit.of(IdForm).id)
    return Done(words=f"Messages about {ended.alert} are sent again.", to="/ui/alerts", target=ended.id)


async def send_test(visit: Visit) -> Done:
    channel = visit.of(ChannelForm).channel
    sent = await try_channels(visit.project, channel)
    failed = [one for one in sent if not one.ok]
    words = f"A test went to {channel}." if not failed else f"{failed[0].channel} did not take it: {failed[0].error}"
    return Done(words=words[:500], to="/ui/alerts", target=channel)


def page_of(alert: str) -> str:
    return f"/ui/alerts/{segment(alert)}"


VIEWS = (
    View("/ui/alerts", "Alerts", "alerts.html", {"listed": list_region, "past": past}, METRICS, query=AlertFilters,
         group="Inspect"),
    View("/ui/alerts/{alert}", "Alert", "alert.html", {"one": one}, METRICS),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/alerts/silence", handler=make_silence, form=SilenceForm, scope=ADMIN),
    FormAction(path="/ui/alerts/unsilence", handler=end_silence, form=IdForm, scope=ADMIN),
    FormAction(path="/ui/alerts/test", handler=send_test, form=ChannelForm, scope=ADMIN),
)
