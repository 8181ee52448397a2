"""Dead letters, with their attempts and raw pages; their replay and removal, with a dry run that counts."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from ..errors import Misconfigured
from ..project.access.keys import JOBS
from ..project.dead_letters.dead_letters import (
    DeadLetterChoice,
    DeadLetterDetail,
    DeadLetterPage,
    Replayed,
    count_letters,
    list_letters,
    purge_letters,
    raw_page,
    replay_letters,
)
from ..project.jobs.api_jobs import job_for
from ..project.jobs.api_views import seen_letters
from .answers import ApiError, not_found
from .endpoint import Call, Endpoint, Reply

Target = Annotated[str, Meta(min_length=1, max_length=2083)]


class LettersQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None does not filter. Keys without the scope `admin` must name a job."""

    job: str | None = None
    reason: str | None = None
    domain: str | None = None
    group: Annotated[str, Meta(max_length=100)] | None = None  # `key` of a group of `failures`
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: Annotated[str, Meta(max_length=500)] | None = None  # `next` of the page before


class LetterQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The id of a letter, or a URL. With a job, the letter of that job."""

    target: Target
    job: str | None = None


class LettersRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects letters; `all` must be set if nothing else selects any. `dry_run` only counts them."""

    target: Target | None = None
    job: str | None = None
    reason: str | None = None
    domain: str | None = None
    group: Annotated[str, Meta(max_length=100)] | None = None
    all: bool = False
    dry_run: bool = False


class ReplayRequest(LettersRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fetch`: fetch again even the letters whose archived pages would only have to be parsed again."""

    fetch: bool = False


class LettersDone(msgspec.Struct, frozen=True, kw_only=True):
    """How many letters were selected and, unless it was a dry run, how many were replayed or purged."""

    dead_letters: int
    dry_run: bool
    replayed: Replayed | None = None


async def list_some(call: Call) -> DeadLetterPage:
    query = call.of(LettersQuery)
    await _check_job(call, query.job, to_change=False)
    choice = DeadLetterChoice(job=query.job, reason=query.reason, domain=query.domain, group=query.group)
    return await list_letters(call.project, choice, limit=query.limit, after=query.after)


async def raw(call: Call) -> Response:
    """The raw page as a download: a browser never renders it as a page of this server."""
    letter = (await show(call))[0]
    headers = {
        "content-disposition": f'attachment; filename="dead-letter-{letter.id}"',
        "x-content-type-options": "nosniff",
    }
    return Response(await raw_page(call.project, letter), media_type="application/octet-stream", headers=headers)


async def show(call: Call) -> list[DeadLetterDetail]:
    query = call.of(LetterQuery)
    try:
        found = await seen_letters(call.project, call.caller, query.target)
    except Misconfigured as error:
        raise not_found("dead letter of that id or URL") from error
    found = [letter for letter in found if query.job in (None, letter.job)]
    if not found:
        raise not_found("dead letter of that id or URL")
    return found


async def replay(call: Call) -> Reply:
    wanted = call.of(ReplayRequest)
    choice, count = await _chosen(call, wanted)
    done = None if wanted.dry_run else await replay_letters(call.project, choice, fetch=wanted.fetch)
    value = LettersDone(dead_letters=count, dry_run=wanted.dry_run, replayed=done)
    return Reply(value=value, target=wanted.job or wanted.target or "")


async def purge(call: Call) -> Reply:
    wanted = call.of(LettersRequest)
    choice, count = await _chosen(call, wanted)
    if not wanted.dry_run:
        count = await purge_letters(call.project, choice)
    return Reply(
        value=LettersDone(dead_letters=count, dry_run=wanted.dry_run), target=wanted.job or wanted.target or ""
    )


async def _chosen(call: Call, wanted: LettersRequest) -> tuple[DeadLetterChoice, int]:
    """The filter, and how many letters it selects. Raises ApiError."""
    await _check_job(call, wanted.job, to_change=True)
    choice = DeadLetterChoice(
        target=wanted.target, job=wanted.job, reason=wanted.reason, domain=wanted.domain, group=wanted.group
    )
    if choice == DeadLetterChoice() and not wanted.all:
        raise ApiError(422, "invalid", "Say which dead letters: target, job, reason, domain, group, or all.")
    return choice, await count_letters(call.project, choice)


async def _check_job(call: Call, job: str | None, *, to_change: bool) -> None:
    if job is not None:
        if await job_for(call.project, call.caller, job, to_change=to_change) is None:
            raise not_found("job of that id")
    elif not call.caller.is_admin:
        raise ApiError(403, "scope", "Name one of your jobs: the dead letters of all jobs need the scope admin.")


ENDPOINTS = (
    Endpoint("GET", "/api/v1/dead-letters", JOBS, "List dead letters, newest first",
             list_some, query=LettersQuery, gives=DeadLetterPage),
    Endpoint("GET", "/api/v1/dead-letters/show", JOBS, "A dead letter with every attempt",
             show, query=LetterQuery, gives=list[DeadLetterDetail]),
    Endpoint("GET", "/api/v1/dead-letters/raw", JOBS, "The raw page of a dead letter, as a file",
             raw, query=LetterQuery, media="application/octet-stream"),
    Endpoint("POST", "/api/v1/dead-letters/replay", JOBS, "Try dead letters again",
             replay, body=ReplayRequest, gives=LettersDone,
             example={"job": "books-3", "reason": "timeout", "dry_run": True}),
    Endpoint("POST", "/api/v1/dead-letters/purge", JOBS, "Delete dead letters for good",
             purge, body=LettersRequest, gives=LettersDone,
             example={"job": "books-3", "reason": "http-404", "dry_run": True}),
)  # fmt: skip
