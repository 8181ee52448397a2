"""Callbacks: listed, shown, sent again; and the secret that they are signed with. Each key sees its own."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..project.access.callbacks import (
    CallbackDetail,
    CallbackState,
    CallbackView,
    SecretView,
    list_callbacks,
    replay_callback,
    rotate_secret,
    secret_view,
    show_callback,
)
from ..project.access.keys import JOBS, SCRAPE
from .answers import ApiError, not_found
from .endpoint import Call, Endpoint, Reply


class CallbacksQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: CallbackState | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


async def listed(call: Call) -> Reply:
    query = call.of(CallbacksQuery)
    found = await list_callbacks(call.project, owner=_owner(call), state=query.state, limit=query.limit)
    return Reply(value=found)


async def show(call: Call) -> Reply:
    return Reply(value=await _callback(call))


async def replay(call: Call) -> Reply:
    found = await _callback(call)
    if found.state is CallbackState.WAITING:
        raise ApiError(409, "waiting", "Its job has not ended yet: the callback is sent when it does.")
    return Reply(value=await replay_callback(call.project, found.id), target=found.id)


async def secret(call: Call) -> Reply:
    return Reply(value=await secret_view(call.project, call.caller.id))


async def rotate(call: Call) -> Reply:
    return Reply(value=await rotate_secret(call.project, call.caller.id), target=call.caller.id)


def _owner(call: Call) -> str | None:
    return None if call.caller.is_admin else call.caller.id


async def _callback(call: Call) -> CallbackDetail:
    found = await show_callback(call.project, call.path["callback"], owner=_owner(call))
    if found is None:
        raise not_found("callback of that id")
    return found


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/api/v1/callbacks",
        scope=JOBS,
        or_scope=SCRAPE,
        summary="List callbacks: open ones first, then the newest finished ones",
        handler=listed,
        query=CallbacksQuery,
        gives=list[CallbackView],
    ),
    Endpoint(
        method="GET",
        path="/api/v1/callbacks/{callback}",
        scope=JOBS,
        or_scope=SCRAPE,
        summary="A callback, and what is sent",
        handler=show,
        gives=CallbackDetail,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/callbacks/{callback}/replay",
        scope=JOBS,
        or_scope=SCRAPE,
        summary="Send a callback again",
        handler=replay,
        gives=CallbackView,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/callback-secret",
        scope=JOBS,
        or_scope=SCRAPE,
        summary="The secret that signs the callbacks of this key",
        handler=secret,
        gives=SecretView,
        answers_secret=True,
    ),
    Endpoint(
        method="POST",
        path="/api/v1/callback-secret/rotate",
        scope=JOBS,
        or_scope=SCRAPE,
        summary="Make a new secret; the previous one signs too, for a day",
        handler=rotate,
        gives=SecretView,
        answers_secret=True,
    ),
)
