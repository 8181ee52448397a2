"""The content of callbacks: the answer of an ended job, or the messages that Firecrawl would send about it and its
pages."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ...access.contract import Callback, CallbackState, FirecrawlShape
from ...clock import iso_time
from ...model.url import authority_of
from ...settings import Settings
from ..jobs.api_views import encode
from ..pages.page_events import PAGE
from ..pages.results import JobAnswer

MOST_BODY = 20_000  # bytes; a longer message contains a link to the results instead
STARTED, _, COMPLETED, FAILED = FIRECRAWL_EVENTS = ("started", PAGE, "completed", "failed")


def message_id(job: str, href: str, event: str = "") -> str:
    digest = blake2b(f"{job}\0{href}{event and chr(0)}{event}".encode("utf-8", "replace"), digest_size=12).hexdigest()
    host = blake2b(authority_of(href).encode(), digest_size=4).hexdigest()  # RECEIVER characters with the prefix
    return f"msg_{host}{digest}"


def message_about(
    callback: Callback, event: str, now: float, mark: str, data: Sequence[dict[str, Any]] = ()
) -> Callback:
    """A Firecrawl message about a job, besides the one about its end; `mark` distinguishes it from others of that
    job."""
    assert callback.shape is not None
    made = msgspec.structs.replace(callback, id=message_id(callback.job, callback.url, mark), made_at=now)
    body = _of_firecrawl(made, callback.shape, event, data=data).decode()
    return msgspec.structs.replace(made, body=body, state=CallbackState.DUE, next_at=now)


def message_of(one: Callback, answer: JobAnswer | None, settings: Settings, now: float) -> bytes:
    """The message about an ended job: its answer as in `GET /api/v1/jobs/ID`, or what Firecrawl would send."""
    if one.shape is not None:
        return _of_firecrawl(one, one.shape, event_of(answer), _error_of(answer))
    link = f"{settings.server.public_url.rstrip('/')}/api/v1/jobs/{one.job}"
    if answer is None:
        return _encoded("job.forgotten", now, {"job_id": one.job, "url": link})
    data = msgspec.to_builtins(answer)
    whole = _encoded(f"job.{answer.status}", now, {**data, "url": link})
    if len(whole) <= MOST_BODY:
        return whole
    short = {**data, "url": link, "result": None, "results": None, "results_url": f"{link}/results"}
    return _encoded(f"job.{answer.status}", now, short)


def event_of(answer: JobAnswer | None) -> str:
    return COMPLETED if answer is not None and answer.status == "completed" else FAILED


def _error_of(answer: JobAnswer | None) -> str:
    if answer is None:
        return "The job was deleted."
    return "The job was cancelled." if answer.status == "cancelled" else answer.error or ""


def _of_firecrawl(
    one: Callback, shape: FirecrawlShape, event: str, error: str = "", data: Sequence[dict[str, Any]] = ()
) -> bytes:
    """`data` are documents: one in a message about a page, otherwise none."""
    value = {
        "success": event != FAILED,
        "type": f"{shape.kind}.{event}",
        "id": one.job,
        "webhookId": one.id,
        "data": list(data),
        "metadata": shape.metadata,
    }
    return encode(value | ({"error": error} if error else {}))


def _encoded(event: str, now: float, data: dict[str, Any]) -> bytes:
    return encode({"type": event, "timestamp": iso_time(now), "data": data})
