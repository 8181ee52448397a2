"""One page through the spider's code: its callback, then the pipeline. An error there is an outcome."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import msgspec

from ..errors import GossamerError, ParseFailed
from ..model.item import safe_text
from ..model.item_account import ItemCounts
from ..model.page import Snapshot
from ..model.task import Task
from ..parse.callbacks import ParsedPage, run_callback
from ..parse.document import read_ahead
from ..parse.page import Page
from ..parse.spider import Spider
from ..parse.timelimit import TimeLimit
from ..pipeline.steps import Piped, Pipeline

LONGEST_TRACEBACK = 20_000
GUARD = "the quality guard"  # the reason of items that are held back

Describe: TypeAlias = Callable[[Snapshot], Awaitable[object]]
AroundParse: TypeAlias = Callable[[Page, Callable[[Page], Awaitable[ParsedPage]]], Coroutine[Any, Any, ParsedPage]]


async def parse_page(
    snapshot: Snapshot,
    task: Task,
    spider: Spider,
    pipeline: Pipeline,
    limit: TimeLimit,
    *,
    new: bool = False,
    around: AroundParse | None = None,
    describe: Describe | None = None,
) -> tuple[ParsedPage, Piped] | ParseFailed:
    """Parse a page and pass its items through the pipeline. A `new` page was never fetched before. `describe` reads the
    page in another process before the spider's code gets it; the time limit does not count what that waits for.

    The page's tree is many times the size of its body, and is freed here: storing may have to wait, and the trees of
    all waiting pages would fill the memory. So would an exception that keeps its frames alive.
    """
    description = None
    if describe is not None:
        try:
            description = await describe(snapshot)
        except ParseFailed as failure:
            return failure.with_traceback(None)
    html = await read_ahead(snapshot, limit.seconds) if description is None else None
    page = Page(snapshot, depth=task.depth, spider=spider, description=description, html=html)
    callback = partial(run_callback, spider, task.kind)
    code = callback(page) if around is None else around(page, callback)
    return await parse_and_pipe(page, code, task, spider, pipeline, limit, new=new)


async def parse_and_pipe(
    page: Page,
    code: Coroutine[Any, Any, ParsedPage],
    task: Task,
    spider: Spider,
    pipeline: Pipeline,
    limit: TimeLimit,
    *,
    new: bool = False,
) -> tuple[ParsedPage, Piped] | ParseFailed:
    """Run the spider's `code` for the page and pass its items through the pipeline."""
    parsed: ParsedPage | None = None
    try:
        parsed = await limit.run(code, task.url)
        piping = pipeline.run(
            parsed.items,
            page,
            spider=spider.name,
            job=task.job,
            now=page.fetched_at,
            new=new,
            request=(task.url, task.fingerprint) if task.how else None,
        )
        return parsed, await (limit.run(piping, task.url, waits=False) if pipeline.has_user_code else piping)
    except ParseFailed as failure:
        failure.__cause__ = failure.__context__ = None  # their text is in the detail
        if parsed is not None:
            failure.items = len(parsed.items)
        return failure.with_traceback(None)
    except GossamerError:
        raise
    except Exception as error:  # an item that the pipeline did not expect: the page is kept, with the reason
        brief = "".join(traceback.format_exception_only(error)).strip()
        detail = "".join(traceback.format_exception(error))[-LONGEST_TRACEBACK:]
        refused = ParseFailed(f"{task.url} could not be turned into records: {brief[:500]}", detail=safe_text(detail))
        refused.items = len(parsed.items) if parsed is not None else 0
        return refused


def lost_items(failure: ParseFailed) -> ItemCounts:
    """The account of the items of a page that could not be parsed: the faulty ones, and those that go with them."""
    return ItemCounts(yielded=failure.items, faulty=failure.faulty, lost=failure.items - failure.faulty)


def held_items(piped: Piped) -> ItemCounts:
    """The account of the items of a page that the quality guard holds back."""
    held = len(piped.records)
    reasons = {**piped.items.reasons, GUARD: held} if held else piped.items.reasons
    return msgspec.structs.replace(piped.items, held=held, reasons=reasons)
