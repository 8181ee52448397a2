"""Responses of the API: values as JSON, errors in one shape, and the HTTP status of each of our errors."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from ..errors import BackendUnavailable, GossamerError, InvalidUrl, Misconfigured, NotThere, Permanent, Transient
from ..project.access.key_turns import KeyBusy
from ..project.jobs.api_requests import BadRequest, TooMuchAtOnce
from ..project.jobs.api_views import encode as encode

JSON = "application/json"


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """`message` names the next step; `details` depend on the code."""

    code: str
    message: str
    details: dict[str, Any] = {}  # what the code needs


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of every error response."""

    success: bool = False
    error: ErrorBody


class ApiError(Exception):
    """Raised by handlers: ends the request with a status and one message for people."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: dict[str, str] | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.details = details or {}

    def answer(self) -> Response:
        body = ErrorAnswer(error=ErrorBody(code=self.code, message=str(self), details=self.details))
        return Response(encode(body), self.status, self.headers, JSON)


class AnswerCut(Exception):
    """Raised while a response is being streamed: the client sees that it is incomplete."""


def not_found(what: str) -> ApiError:
    """The error for what does not exist, and for what belongs to another key."""
    return ApiError(404, "not_found", f"There is no {what} here. See the list, or ask with the key that made it.")


def answer_of(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, JSON)


def error_of(error: GossamerError) -> ApiError:
    """The response to one of our errors. For a fault on our side it says no more than the client needs to know."""
    match error:
        case KeyBusy():
            return ApiError(429, "at_once", str(error), headers={"retry-after": "1"})
        case TooMuchAtOnce():
            return ApiError(429, "too_many_jobs", str(error), headers={"retry-after": "5"})
        case NotThere():
            return ApiError(404, "not_found", str(error))
        case BadRequest() | InvalidUrl():
            return ApiError(422, "invalid", str(error))
        case BackendUnavailable():
            return ApiError(
                503, "unavailable", "A store of the project does not answer. Try again.", headers={"retry-after": "5"}
            )
        case Transient():
            return ApiError(503, error.reason.replace("-", "_"), str(error), headers={"retry-after": "5"})
        case Misconfigured() | Permanent():
            return ApiError(422, error.reason.replace("-", "_"), str(error))
        case _:
            return ApiError(500, "error", "The server could not do this. Its log says why.")
