"""Keys and the audit log. For admins."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from ..project.access.keys import ADMIN, AuditView, KeyView, NewKey, add_key, audit_lines, list_keys, revoke_key
from .answers import not_found
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


async def add(call: Call) -> Reply:
    wanted = call.of(KeyRequest)
    expires = None if wanted.expires_in is None else timedelta(seconds=wanted.expires_in)
    key = await add_key(
        call.project,
        wanted.name,
        wanted.scopes,
        expires=expires,
        rate=wanted.rate,
        open_jobs=wanted.open_jobs,
        role=wanted.role,
    )
    return Reply(value=key, status=201, target=key.id)


async def listed(call: Call) -> Reply:
    return Reply(value=await list_keys(call.project))


async def revoke(call: Call) -> Reply:
    id = call.path["key"]
    if not any(key.id == id for key in await list_keys(call.project)):
        raise not_found("key of that id")
    return Reply(value=await revoke_key(call.project, id), target=id)


async def audit(call: Call) -> Reply:
    query = call.of(AuditQuery)
    return Reply(value=await audit_lines(call.project, key=query.key, limit=query.limit))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/api/v1/keys",
        scope=ADMIN,
        for_admins=True,
        summary="Create a key; its text is shown only once",
        handler=add,
        body=KeyRequest,
        gives=NewKey,
        example={"name": "laptop", "scopes": ["scrape", "jobs", "records"]},
        answers_secret=True,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/keys",
        scope=ADMIN,
        summary="List the keys, without their secrets",
        handler=listed,
        gives=list[KeyView],
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/keys/{key}",
        scope=ADMIN,
        for_admins=True,
        summary="Revoke a key",
        handler=revoke,
        gives=KeyView,
    ),
    Endpoint(
        method="GET",
        path="/api/v1/audit",
        scope=ADMIN,
        summary="The audit log of writes, newest first",
        handler=audit,
        query=AuditQuery,
        gives=list[AuditView],
    ),
)
