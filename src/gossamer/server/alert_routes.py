"""Alerts: listed, explained, their history and messages; silenced; channels tried out."""

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


async def listed(call: Call) -> Reply:
    return Reply(value=await list_alerts(call.project, call.of(AlertsQuery).state))


async def show(call: Call) -> Reply:
    if call.path["alert"] not in ALERTS:
        raise not_found("alert of that name")
    return Reply(value=await show_alert(call.project, call.path["alert"]))


async def history(call: Call) -> Reply:
    query = call.of(AlertHistoryQuery)
    return Reply(value=await alert_history(call.project, query.alert, limit=query.limit))


async def notices(call: Call) -> Reply:
    return Reply(value=await list_notices(call.project, limit=call.of(NoticesQuery).limit))


async def silenced(call: Call) -> Reply:
    wanted = call.of(SilenceRequest)
    made = await silence(
        call.project,
        wanted.alert,
        subject=wanted.subject,
        lasting=timedelta(seconds=wanted.seconds),
        reason=wanted.reason,
        by=call.caller.name,
    )
    return Reply(value=made, status=201, target=made.id)


async def unsilenced(call: Call) -> Reply:
    id = call.path["silence"]
    if id not in [one.id for one in (await list_alerts(call.project)).silences]:
        raise not_found("silence of that id")
    return Reply(value=await unsilence(call.project, id), target=id)


async def tested(call: Call) -> Reply:
    wanted = call.body if isinstance(call.body, ChannelTestRequest) else ChannelTestRequest()
    return Reply(value=await try_channels(call.project, wanted.channel), target=wanted.channel or "all channels")


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/alerts",
        scope=METRICS,
        summary="The alerts that fire, are pending or were resolved, and the silences",
        handler=listed,
        query=AlertsQuery,
        gives=AlertList,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/alerts/{alert}",
        scope=METRICS,
        summary="An alert: what it means, its terms, its state, and the messages sent",
        handler=show,
        gives=AlertDetail,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/alert-history",
        scope=METRICS,
        summary="Alerts that fired and were resolved, newest first",
        handler=history,
        query=AlertHistoryQuery,
        gives=list[AlertChangeView],
    ),
    Endpoint(
        method="GET",
        path="/api/v1/alert-messages",
        scope=METRICS,
        summary="Messages about alerts: those still to be sent, then the finished ones",
        handler=notices,
        query=NoticesQuery,
        gives=list[NoticeView],
    ),
    Endpoint(
        method="POST",
        path="/api/v1/silences",
        scope=ADMIN,
        summary="Silence an alert for some time",
        handler=silenced,
        body=SilenceRequest,
        example={"alert": "success", "subject": "shop.example", "seconds": 7200, "reason": "they move to a new host"},
        gives=SilenceView,
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/silences/{silence}",
        scope=ADMIN,
        summary="End a silence",
        handler=unsilenced,
        gives=SilenceView,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/alert-test",
        scope=ADMIN,
        summary="Send a test message to one channel, or to all",
        handler=tested,
        body=ChannelTestRequest,
        body_optional=True,
        example={"channel": "team"},
        gives=list[ChannelTest],
    ),
)
