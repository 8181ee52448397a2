"""Records, their versions and differences; and the story of a URL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from ..errors import Misconfigured
from ..model.task import Request
from ..model.url import typed_url
from ..project.access.keys import JOBS, RECORDS, SCRAPE
from ..project.dead_letters.attempts import AttemptFilter, AttemptList, list_attempts
from ..project.dead_letters.story import Story
from ..project.jobs.api_jobs import job_for
from ..project.jobs.api_views import (
    LAST_NUMBER,
    MOST_BYTES,
    PIECE,
    RecordPage,
    RecordQuery,
    changes_query,
    record_lines,
    record_page,
    record_table,
    seen_history,
    seen_story,
    weight_of,
)
from ..project.open import Project
from ..project.pages.versions import MOST_COPIES, CopyChanges, CopyList, copy_changes, page_copies
from ..project.records.records import RecordDifference, RecordFilter, RecordVersions, differences, query_of
from .answers import AnswerCut, ErrorAnswer, ErrorBody, encode, not_found
from .endpoint import Call, Endpoint, Reply

CURSOR = "x-gossamer-cursor"
CUT = "x-gossamer-cut"  # set if there are more differences: how many are shown
LINES, TABLE = STREAMED = "application/x-ndjson", "text/csv"
MOST_DIFFERENCES = 10_000

Limit = Annotated[int, Meta(ge=1, le=1000)]


class RecordsForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of records as JSON, or all of them as a stream."""

    format: Literal["json", "jsonl", "csv"] = "json"
    limit: Limit = 100
    after: Annotated[int, Meta(ge=0, le=LAST_NUMBER)] = 0  # `next` of the page before


class RecordsQuery(RecordFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects records and their format. `since` and `until` are seconds since the epoch and compare the last change."""

    format: Literal["json", "jsonl", "csv"] = "json"
    limit: Limit = 100
    after: Annotated[int, Meta(ge=0, le=LAST_NUMBER)] = 0


class ChangesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`after` is the cursor of the previous response; without it all records are returned."""

    after: str | None = None
    spider: str | None = None
    type: str | None = None
    site: str | None = None


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str  # the key of a record, or the URL of its page
    type: str | None = None
    site: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class DiffQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two jobs, by their ids."""

    before: str
    after: str


class WhyQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most one of `body`, `json` (a text) and `form` (urlencoded) gives the body of the request."""

    url: Annotated[str, Meta(min_length=1, max_length=2083)]
    method: Annotated[str, Meta(max_length=20)] | None = None
    body: Annotated[str, Meta(max_length=8192)] | None = None
    json: Annotated[str, Meta(max_length=8192)] | None = None
    form: Annotated[str, Meta(max_length=8192)] | None = None


Address = Annotated[str, Meta(min_length=1, max_length=2083)]
CopyId = Annotated[str, Meta(max_length=40)]


class CopiesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: Address
    limit: Annotated[int, Meta(ge=1, le=MOST_COPIES)] = 50
    skip: Annotated[int, Meta(ge=0, le=LAST_NUMBER)] = 0  # newer ones


class CopyQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`copy` and `against` are ids of copies. Default: the newest, beside the last one before it that differs."""

    url: Address
    copy: CopyId = ""
    against: CopyId = ""


class AttemptsQuery(AttemptFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: Annotated[str, Meta(max_length=100)] | None = None


async def records_in_form(call: Call, query: RecordQuery, form: RecordsForm | RecordsQuery) -> RecordPage | Response:
    """The records of a query, in the requested format."""
    if form.format == "csv":
        most = call.project.settings.server.max_stream.bytes
        return await streamed(call.project, record_table(call.project, call.caller, query, most=most), TABLE)
    if form.format == "jsonl":
        return await streamed(call.project, as_lines(record_lines(call.project, call.caller, query)), LINES)
    return await record_page(call.project, call.caller, query, limit=form.limit, after=form.after)


async def records(call: Call) -> RecordPage | Response:
    wanted = call.of(RecordsQuery)
    if wanted.job is not None:
        await _seen_job(call, wanted.job)
    try:
        query = await query_of(call.project, wanted)
    except Misconfigured as error:
        raise not_found("job of that id") from error
    return await records_in_form(call, query, wanted)


async def changes(call: Call) -> Response:
    """JSON Lines of the records stored since the cursor. The next cursor is in a header."""
    wanted = call.of(ChangesQuery)
    chosen = RecordFilter(spider=wanted.spider, type=wanted.type, site=wanted.site)
    query, cursor = await changes_query(call.project, chosen, wanted.after)
    return await streamed(
        call.project, as_lines(record_lines(call.project, call.caller, query)), LINES, {CURSOR: cursor}
    )


async def history(call: Call) -> list[RecordVersions]:
    wanted = call.of(HistoryQuery)
    found = await seen_history(
        call.project, call.caller, wanted.key, type=wanted.type, site=wanted.site, limit=wanted.limit
    )
    if not found:
        raise not_found("record with that key, or of that address,")
    return found


async def diff(call: Call) -> list[RecordDifference] | Reply:
    wanted = call.of(DiffQuery)
    for job in (wanted.before, wanted.after):
        await _seen_job(call, job)
    found: list[RecordDifference] = []
    weight = 0
    async for difference in differences(call.project, wanted.before, wanted.after):
        if len(found) == MOST_DIFFERENCES or weight >= MOST_BYTES:
            return Reply(value=found, headers={CUT: str(len(found))})
        found.append(difference)
        weight += weight_of(msgspec.to_builtins(difference, enc_hook=str))
    return found


async def attempts(call: Call) -> AttemptList:
    query = call.of(AttemptsQuery)
    if query.job is not None:
        await _seen_job(call, query.job)
    wanted = AttemptFilter(**{name: getattr(query, name) for name in AttemptFilter.__struct_fields__})
    return await list_attempts(call.project, wanted, limit=query.limit, after=query.after, caller=call.caller)


async def why(call: Call) -> Story:
    asked = call.of(WhyQuery)
    return await seen_story(call.project, call.caller, asked.url, _request(asked))


async def copies(call: Call) -> CopyList:
    asked = call.of(CopiesQuery)
    return await page_copies(call.project, call.pages, call.caller, asked.url, limit=asked.limit, skip=asked.skip)


async def copy(call: Call) -> CopyChanges:
    asked = call.of(CopyQuery)
    found = await copy_changes(call.project, call.pages, call.caller, asked.url, asked.copy, asked.against)
    if found is None:
        raise not_found("copy of that page")
    return found


def _request(asked: WhyQuery) -> Request | None:
    sent = (asked.body, asked.json, asked.form)
    if asked.method is None and sent == (None, None, None):
        return None
    try:
        json = msgspec.json.decode(asked.json) if asked.json is not None else None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Misconfigured(f"The parameter json is no JSON: {error}.") from error
    return Request(
        url=typed_url(asked.url),
        method=asked.method or "POST",
        body=asked.body,
        json=json,
        form=parse_qsl(asked.form, keep_blank_values=True) if asked.form is not None else None,
    )


async def _seen_job(call: Call, id: str) -> None:
    """Records may belong to a job that the queue has forgotten: only an admin may ask for these."""
    if not call.caller.is_admin and await job_for(call.project, call.caller, id) is None:
        raise not_found("job of that id")


async def streamed(
    project: Project, pieces: AsyncIterator[bytes], media: str, headers: dict[str, str] | None = None
) -> Response:
    """A streamed response. The first piece is awaited before it begins, so that an error can still set the status.

    A response that grows beyond `server.max_stream` is aborted, so that no client takes it for complete; JSON Lines end
    with an error object before that.
    """
    most = project.settings.server.max_stream.bytes
    first = await anext(pieces, b"")

    async def all_pieces() -> AsyncIterator[bytes]:
        piece, size = first, 0
        while piece:
            size += len(piece)
            if size > most:
                break
            yield piece
            piece = await anext(pieces, b"")
        else:
            return
        if media == LINES:
            words = "The answer is longer than server.max_stream. Ask for fewer records: by site, type or time."
            yield encode(ErrorAnswer(error=ErrorBody(code="too_large", message=words))) + b"\n"
        raise AnswerCut(f"the answer was longer than server.max_stream, {most:,} bytes")

    return StreamingResponse(all_pieces(), media_type=media, headers=headers)


async def as_lines(found: AsyncIterator[object]) -> AsyncIterator[bytes]:
    held: list[bytes] = []
    size = 0
    async for one in found:
        held += (encode(one), b"\n")
        size += len(held[-2])
        if size >= PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


ENDPOINTS = (
    Endpoint("GET", "/api/v1/records", RECORDS,
             "Records by job, spider, type, site and time: a page of them, or all as JSON Lines or CSV",
             records, query=RecordsQuery, gives=RecordPage, other_media=STREAMED),
    Endpoint("GET", "/api/v1/records/changes", RECORDS,
             f"What was stored since a cursor, as JSON Lines; the next cursor is the header {CURSOR}",
             changes, query=ChangesQuery, media=LINES),
    Endpoint("GET", "/api/v1/records/history", RECORDS, "All versions of a record",
             history, query=HistoryQuery, gives=list[RecordVersions]),
    Endpoint("GET", "/api/v1/records/diff", RECORDS,
             "What one job saw differently from another; the first differences, with the header "
             f"{CUT} where there are more than {MOST_DIFFERENCES:,}, or more than {MOST_BYTES >> 20} MiB",
             diff, query=DiffQuery, gives=list[RecordDifference]),
    Endpoint("GET", "/api/v1/attempts", RECORDS, "What was tried, the newest first",
             attempts, or_scope=JOBS, query=AttemptsQuery, gives=AttemptList),
    Endpoint("GET", "/api/v1/why", RECORDS, "The story of a URL: who found it, what was tried, what became of it",
             why, or_scope=JOBS, query=WhyQuery, gives=Story),
    Endpoint("GET", "/api/v1/pages/copies", JOBS,
             "The archived copies of a page, the newest first, with the hash of each",
             copies, or_scope=SCRAPE, query=CopiesQuery, gives=CopyList),
    Endpoint("GET", "/api/v1/pages/copies/changes", JOBS,
             "What a copy of a page says, and how its text and the fields of its records differ from another",
             copy, or_scope=SCRAPE, query=CopyQuery, gives=CopyChanges),
)  # fmt: skip
