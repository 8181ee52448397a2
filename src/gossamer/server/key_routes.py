"""Keys and the audit log. For admins."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import msgspec
from msgspec import Meta

from ..project.access.keys import ADMIN, AuditView, KeyView, NewKey, add_key, audit_lines, list_keys, revoke_key
from .endpoint import Call, Endpoint


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
)  # fmt: skip
