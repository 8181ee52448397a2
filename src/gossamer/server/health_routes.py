"""Liveness, readiness and version of the server."""

from __future__ import annotations

import msgspec

from .. import __version__
from ..errors import GossamerError
from ..project.jobs.api_views import ask_stores
from .answers import ApiError
from .endpoint import ANY, PUBLIC, Call, Endpoint


class HealthAnswer(msgspec.Struct, frozen=True):
    status: str


class VersionAnswer(msgspec.Struct, frozen=True):
    version: str


async def healthz(call: Call) -> HealthAnswer:
    return HealthAnswer("ok")


async def readyz(call: Call) -> HealthAnswer:
    try:
        await ask_stores(call.project)
    except GossamerError as error:
        raise ApiError(503, "not_ready", "A store of the project does not answer.") from error
    return HealthAnswer("ready")


async def version(call: Call) -> VersionAnswer:
    return VersionAnswer(__version__)


ENDPOINTS = (
    Endpoint("GET", "/healthz", PUBLIC, "The server is there", healthz, gives=HealthAnswer),
    Endpoint("GET", "/readyz", PUBLIC, "The stores answer", readyz, gives=HealthAnswer),
    Endpoint("GET", "/api/v1/version", ANY, "Its version", version, gives=VersionAnswer),
)
