"""Callbacks and the secret that signs them. Each key sees its own."""

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
from .answers import ApiError
from .endpoint import Call, Endpoint, Reply


class CallbacksQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: CallbackState | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


async def list_own(call: Call) -> list[CallbackView]:
    query = call.of(CallbacksQuery)
    return await list_callbacks(call.project, owner=_owner(call), state=query.state, limit=query.limit)


async def show(call: Call) -> CallbackDetail:
    return await show_callback(call.project, call.path["callback"], owner=_owner(call))


async def replay(call: Call) -> CallbackView:
    found = await show(call)
    if found.state is CallbackState.WAITING:
        raise ApiError(409, "waiting", "Its job has not ended yet: the callback is sent when it does.")
    return await replay_callback(call.project, found.id)


async def rotate(call: Call) -> Reply:
    return Reply(value=await rotate_secret(call.project, call.caller.id), target=call.caller.id)


def _owner(call: Call) -> str | None:
    return None if call.caller.is_admin else call.caller.id


ENDPOINTS = (
    Endpoint("GET", "/api/v1/callbacks", JOBS, "List callbacks: open ones first, then the newest finished ones",
             list_own, or_scope=SCRAPE, query=CallbacksQuery, gives=list[CallbackView]),
    Endpoint("GET", "/api/v1/callbacks/{callback}", JOBS, "A callback, and what is sent",
             show, or_scope=SCRAPE, gives=CallbackDetail),
    Endpoint("POST", "/api/v1/callbacks/{callback}/replay", JOBS, "Send a callback again",
             replay, or_scope=SCRAPE, gives=CallbackView),
    Endpoint("GET", "/api/v1/callback-secret", JOBS, "The secret that signs the callbacks of this key",
             lambda call: secret_view(call.project, call.caller.id),
             or_scope=SCRAPE, gives=SecretView, answers_secret=True),
    Endpoint("POST", "/api/v1/callback-secret/rotate", JOBS,
             "Make a new secret; the previous one signs too, for a day",
             rotate, or_scope=SCRAPE, gives=SecretView, answers_secret=True),
)  # fmt: skip
