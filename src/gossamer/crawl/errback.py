"""Pages that are given up, or that robots.txt forbids: calls the request's errback, or the spider's `failed`.

What the errback yields is stored and queued in the same two steps that settle any page. After a crash in between the
errback runs again; its results are stored and queued once. How it fails: the page becomes a dead letter all the same,
with both errors in its message.
"""

from __future__ import annotations

import msgspec

from ..errors import ParseFailed
from ..frontier.contract import Added
from ..model import events
from ..model.item_account import ItemCounts, summed_items
from ..model.job import summed_stats
from ..model.page import Headers, Snapshot
from ..model.record import ItemSchema, PageFacts, Record
from ..model.task import Request, Task, UrlState
from ..parse.callbacks import ParsedPage, run_errback
from ..parse.page import Page
from ..parse.page_context import Failure
from ..parse.spider import errback_of
from ..units import many
from .attempt_log import AttemptLog
from .context import JobContext
from .held_lease import HeldLease
from .parse_page import lost_items, parse_and_pipe

QUALITY = "quality"  # the reason of pages that wait for a fixed spider: the pages themselves are fine


class ErrbackResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an errback yielded, and the message of the dead letter; `text` is the full message, with tracebacks."""

    message: str
    text: str
    requests: list[Request] = []
    records: tuple[Record, ...] = ()
    schemas: tuple[ItemSchema, ...] = ()
    stats: dict[str, int] = {}
    items: ItemCounts | None = None


async def bury(
    context: JobContext,
    held: HeldLease,
    log: AttemptLog,
    facts: PageFacts | None,
    reason: str,
    message: str,
    detail: str,
    kept: ParsedPage | None = None,
) -> str:
    """Store and settle a page that is given up, with the results of its errback, or with what its callback gave before
    it failed and the spider's framework keeps; return the dead letter's message."""
    task = held.lease.task
    if kept is None or log.snapshot is None:
        heard = await _run_errback(context, task, log, reason, message, detail)
    else:
        heard = await _keep_before(context, task, log.snapshot, kept, message, detail)
    judged = await context.judge(heard.requests, depth=task.depth + 1, priority=task.priority, site=task.site)
    await _keep(context, log, task, heard, facts, reason, outcome="dead", with_raw_page=True)
    added = await held.settle(
        lambda: context.frontier.bury(
            held.lease,
            reason,
            heard.text,
            judged.candidates,
            duplicates=judged.duplicates,
            paced_ahead=context.pacer.ahead(task.site),
            stats=heard.stats,
        )
    )
    context.confirm(judged, added)
    return heard.message


async def leave_out(
    context: JobContext, held: HeldLease, log: AttemptLog, facts: PageFacts | None, reason: str, rule: str
) -> Added:
    """Store and settle a page that may not be fetched, with the results of its errback. It is no dead letter."""
    task = held.lease.task
    heard = await _run_errback(context, task, log, reason, rule, "", attempts=task.attempt)
    judged = await context.judge(heard.requests, depth=task.depth + 1, priority=task.priority, site=task.site)
    await _keep(context, log, task, heard, facts, reason, outcome="dropped")
    added = await held.settle(
        lambda: context.frontier.complete(
            held.lease,
            UrlState.DROPPED,
            reason,
            judged.candidates,
            duplicates=judged.duplicates,
            paced_ahead=context.pacer.ahead(task.site),
            stats=heard.stats,
        )
    )
    context.confirm(judged, added)
    return added


async def _keep(
    context: JobContext,
    log: AttemptLog,
    task: Task,
    heard: ErrbackResult,
    facts: PageFacts | None,
    reason: str,
    *,
    outcome: str,
    with_raw_page: bool = False,
) -> None:
    """Store the attempt with the records of the errback, which count in the summary like any others."""
    began = context.clock.monotonic()
    if heard.items is not None:
        log.items = summed_items(filter(None, (log.items, heard.items)))
    changed = await log.keep(
        outcome=outcome,
        reason=reason,
        error=heard.message,
        page=facts,
        records=heard.records,
        schemas=heard.schemas,
        with_raw_page=with_raw_page,
    )
    if heard.records:
        stored = events.Stored(
            at=context.clock.now(),
            job=task.job,
            url=task.url,
            site=task.site,
            items=len(heard.records),
            changed=changed,
            seconds=context.clock.monotonic() - began,
        )
        context.events.emit(stored)


async def _keep_before(
    context: JobContext, task: Task, snapshot: Snapshot, kept: ParsedPage, message: str, detail: str
) -> ErrbackResult:
    """Pass on what a callback gave before it failed. Raises only BackendUnavailable."""

    async def given() -> ParsedPage:
        return kept

    page = Page(snapshot, depth=task.depth, spider=context.spider)
    page._stats = dict(kept.stats)  # steps of the pipeline count, too
    result = await parse_and_pipe(page, given(), task, context.spider, context.pipeline, context.time_limit)
    if isinstance(result, ParseFailed):
        words = "\n\n".join(filter(None, (message, detail, str(result), result.detail)))
        return ErrbackResult(message=message, text=words, items=lost_items(result))
    parsed, piped = result
    counts = many(len(parsed.items), "item"), many(len(parsed.requests), "request")
    before = f" What it gave before is kept: {' and '.join(counts)}." if parsed.items or parsed.requests else ""
    said = f"{message}{before}"
    return ErrbackResult(
        message=said,
        text=f"{said}\n\n{detail}" if detail else said,
        requests=parsed.requests,
        records=tuple(piped.records),
        schemas=piped.schemas,
        stats=page._stats,
        items=piped.items,
    )


async def _run_errback(
    context: JobContext,
    task: Task,
    log: AttemptLog,
    reason: str,
    message: str,
    detail: str,
    attempts: int | None = None,
) -> ErrbackResult:
    """Call the errback for a page that is given up, if there is one. Raises only BackendUnavailable."""
    errback = errback_of(context.spider, task.options().errback if task.how else None)
    text = f"{message}\n\n{detail}" if detail else message
    if errback is None or reason == QUALITY:
        return ErrbackResult(message=message, text=text)
    page = Page(log.snapshot, depth=task.depth, spider=context.spider) if log.snapshot is not None else None
    failure = Failure(
        url=task.url,
        reason=reason,
        message=message,
        attempts=task.attempt + 1 if attempts is None else attempts,
        kind=task.kind,
        job=task.job,
        data=task.user_data(),
        status=log.status,
        page=page,
        detail=detail,
    )
    seen = page or Page(_nothing_came(task, context.clock.now()), depth=task.depth, spider=context.spider)
    code = run_errback(context.spider, errback, failure)
    result = await parse_and_pipe(seen, code, task, context.spider, context.pipeline, context.time_limit)
    if isinstance(result, ParseFailed):
        both = f"{message} Its errback failed too: {result}"
        words = "\n\n".join(filter(None, (both, detail, result.detail)))
        return ErrbackResult(message=both, text=words, items=lost_items(result))
    parsed, piped = result
    return ErrbackResult(
        message=message,
        text=text,
        requests=parsed.requests,
        records=tuple(piped.records),
        schemas=piped.schemas,
        stats=summed_stats(parsed.stats, seen._stats),  # those of the errback, and of steps of the pipeline
        items=piped.items,
    )


def _nothing_came(task: Task, now: float) -> Snapshot:
    """Stands in for a page that never came, because the pipeline's steps take a page."""
    return Snapshot(
        url=task.url,
        requested_url=task.url,
        status=0,
        headers=Headers([]),
        body=b"",
        fetched_at=now,
        kind=task.kind,
        job=task.job,
        data=task.data,
        depth=task.depth,
    )
