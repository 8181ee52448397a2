"""Errors in the shape of Firecrawl's clients, and the options and endpoints that are not supported."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...server.answers import JSON, ApiError, encode

_CODES = {
    "invalid": "BAD_REQUEST",
    "bad_json": "BAD_REQUEST_INVALID_JSON",
    "too_deep": "BAD_REQUEST",
    "key": "UNAUTHORIZED",
    "rate": "RATE_LIMITED",
    "error": "UNKNOWN_ERROR",
}
NO_JOB = "Job not found"


def error_response(error: ApiError) -> Response:
    """The error as `{success: false, error, code, details}`. An invalid request is a 400; 502 is never used, because
    the clients repeat a request after it."""
    status = 400 if error.status == 422 else error.status
    value: dict[str, Any] = {
        "success": False,
        "error": str(error),
        "code": _CODES.get(error.code, error.code.upper()),
    }
    if error.details:
        value["details"] = [error.details] if status == 400 else error.details
    return Response(encode(value), status, error.headers, JSON)


def refused(what: str, hint: str) -> ApiError:
    return ApiError(422, "invalid", f"{what} is not supported here. {hint}")


def no_job() -> ApiError:
    return ApiError(404, "not_found", NO_JOB)


def not_done(what: str, hint: str) -> ApiError:
    return ApiError(501, "not_supported", f"{what} is not supported here. {hint}")
