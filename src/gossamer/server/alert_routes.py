"""Alerts, their history and messages; silences; tests of channels."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from ..model.alert import AlertState
from ..model.alert_table import ALERTS
from ..project.access.keys import ADMIN, METRICS
from ..project.alerts.alerts import (
    AlertChangeView,
    AlertDetail,
    AlertList,
    ChannelTest,
    NoticeView,
    SilenceView,
    alert_history,
    list_alerts,
    list_notices,
    show_alert,
    silence,
    try_channels,
    unsilence,
)
from .answers import not_found
from .endpoint import Call, Endpoint, Reply

Limit = Annotated[int, Meta(ge=1, le=1000)]
Pattern = Annotated[str, Meta(min_length=1, max_length=300)]


class AlertsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: AlertState | None = None


class AlertHistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    alert: Annotated[str, Meta(max_length=100)] | None = None
    limit: Limit = 100


class NoticesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Limit = 100


class SilenceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`alert` and `subject` may be patterns; `seconds` is how long it holds, from now."""

    alert: Pattern
    subject: Pattern = "*"
    seconds: Annotated[float, Meta(gt=0, le=365 * 86_400)]
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class ChannelTestRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel of gossamer.toml; None tests all of them."""

    channel: Annotated[str, Meta(max_length=100)] | None = None


async def show(call: Call) -> AlertDetail:
    if call.path["alert"] not in ALERTS:
        raise not_found("alert of that name")
    return await show_alert(call.project, call.path["alert"])


async def history(call: Call) -> list[AlertChangeView]:
    query = call.of(AlertHistoryQuery)
    return await alert_history(call.project, query.alert, limit=query.limit)


async def add_silence(call: Call) -> SilenceView:
    wanted = call.of(SilenceRequest)
    return await silence(
        call.project,
        wanted.alert,
        subject=wanted.subject,
        lasting=timedelta(seconds=wanted.seconds),
        reason=wanted.reason,
        by=call.caller.name,
    )


async def end_silence(call: Call) -> SilenceView:
    id = call.path["silence"]
    if id not in [one.id for one in (await list_alerts(call.project)).silences]:
        raise not_found("silence of that id")
    return await unsilence(call.project, id)


async def try_channel(call: Call) -> Reply:
    wanted = call.body if isinstance(call.body, ChannelTestRequest) else ChannelTestRequest()
    return Reply(value=await try_channels(call.project, wanted.channel), target=wanted.channel or "all channels")


ENDPOINTS = (
    Endpoint("GET", "/api/v1/alerts", METRICS, "The alerts that fire, are pending or were resolved, and the silences",
             lambda call: list_alerts(call.project, call.of(AlertsQuery).state), query=AlertsQuery, gives=AlertList),
    Endpoint("GET", "/api/v1/alerts/{alert}", METRICS,
             "An alert: what it means, its terms, its state, and the messages sent", show, gives=AlertDetail),
    Endpoint("GET", "/api/v1/alert-history", METRICS, "Alerts that fired and were resolved, newest first",
             history, query=AlertHistoryQuery, gives=list[AlertChangeView]),
    Endpoint("GET", "/api/v1/alert-messages", METRICS,
             "Messages about alerts: those still to be sent, then the finished ones",
             lambda call: list_notices(call.project, limit=call.of(NoticesQuery).limit),
             query=NoticesQuery, gives=list[NoticeView]),
    Endpoint("POST", "/api/v1/silences", ADMIN, "Silence an alert for some time",
             add_silence, body=SilenceRequest, gives=SilenceView, status=201,
             example={"alert": "success", "subject": "shop.example", "seconds": 7200,
                      "reason": "they move to a new host"}),
    Endpoint("DELETE", "/api/v1/silences/{silence}", ADMIN, "End a silence", end_silence, gives=SilenceView),
    Endpoint("POST", "/api/v1/alert-test", ADMIN, "Send a test message to one channel, or to all",
             try_channel, body=ChannelTestRequest, body_optional=True, example={"channel": "team"},
             gives=list[ChannelTest]),
)  # fmt: skip
