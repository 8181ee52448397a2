"""Keys and the audit log, for admins; callbacks and the secret that signs them, of which each key sees its own."""

from __future__ import annotations

from datetime import timedelta
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
from ..project.access.keys import (
    ADMIN,
    JOBS,
    SCRAPE,
    AuditView,
    KeyView,
    NewKey,
    add_key,
    audit_lines,
    list_keys,
    revoke_key,
)
from .answers import ApiError
from .endpoint import Call, Endpoint, Reply


class KeyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The key to create."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: list[str] = []
    role: Annotated[str, Meta(max_length=20)] = ""  # viewer, operator or admin, instead of scopes
    expires_in: Annotated[float, Meta(gt=0, le=100 * 366 * 86400)] | None = None  # seconds
    rate: Annotated[float, Meta(gt=0, le=10_000)] | None = None  # requests per second
    open_jobs: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str | None = None  # its id
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


async def add(call: Call) -> NewKey:
    wanted = call.of(KeyRequest)
    return await add_key(
        call.project,
        wanted.name,
        wanted.scopes,
        expires=None if wanted.expires_in is None else timedelta(seconds=wanted.expires_in),
        rate=wanted.rate,
        open_jobs=wanted.open_jobs,
        role=wanted.role,
    )


async def audit(call: Call) -> list[AuditView]:
    query = call.of(AuditQuery)
    return await audit_lines(call.project, key=query.key, limit=query.limit)


# -- callbacks ---------------------------------------------------------------------------------------------------------


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
    Endpoint("POST", "/api/v1/keys", ADMIN, "Create a key; its text is shown only once",
             add, for_admins=True, body=KeyRequest, gives=NewKey, status=201, answers_secret=True,
             example={"name": "laptop", "scopes": ["scrape", "jobs", "records"]}),
    Endpoint("GET", "/api/v1/keys", ADMIN, "List the keys, without their secrets",
             lambda call: list_keys(call.project), gives=list[KeyView]),
    Endpoint("DELETE", "/api/v1/keys/{key}", ADMIN, "Revoke a key",
             lambda call: revoke_key(call.project, call.path["key"]), for_admins=True, gives=KeyView),
    Endpoint("GET", "/api/v1/audit", ADMIN, "The audit log of writes, newest first",
             audit, query=AuditQuery, gives=list[AuditView]),
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
