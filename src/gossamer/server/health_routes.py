"""Liveness, readiness and version of the server."""

from __future__ import annotations

import msgspec

from .. import __version__
from ..errors import GossamerError
from ..project.jobs.api_views import ask_stores
from .answers import ApiError
from .endpoint import ANY, PUBLIC, Call, Endpoint, Reply


class HealthAnswer(msgspec.Struct, frozen=True):
    status: str


class VersionAnswer(msgspec.Struct, frozen=True):
    version: str


async def healthz(call: Call) -> Reply:
    return Reply(value=HealthAnswer("ok"))


async def readyz(call: Call) -> Reply:
    try:
        await ask_stores(call.project)
    except GossamerError as error:
        raise ApiError(503, "not_ready", "A store of the project does not answer.") from error
    return Reply(value=HealthAnswer("ready"))


async def version(call: Call) -> Reply:
    return Reply(value=VersionAnswer(__version__))


ENDPOINTS = (
    Endpoint(
        method="GET", path="/healthz", scope=PUBLIC, summary="The server is there", handler=healthz, gives=HealthAnswer
    ),
    Endpoint(
        method="GET", path="/readyz", scope=PUBLIC, summary="The stores answer", handler=readyz, gives=HealthAnswer
    ),
    Endpoint(
        method="GET", path="/api/v1/version", scope=ANY, summary="Its version", handler=version, gives=VersionAnswer
    ),
)
