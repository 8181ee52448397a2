"""A child process of a reparse: reads orders from its standard input, parses the pages, writes the results.

It only reads the archive: no requests, no record store. Whatever a spider prints goes to standard error, and a spider
that asks for input gets none.
How it fails: a page that the spider cannot parse is an outcome; a page that kills this process is identified by the
run, which starts another child. It ends when its input ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...backends.open import open_archive
from ...crawl.parse_page import AroundParse, held_items, lost_items
from ...errors import GossamerError, ParseFailed, Permanent, Transient
from ...model.page import Snapshot
from ...model.record import PageFacts, Record, Tally
from ...model.task import DEFAULT_KIND
from ...parse.callbacks import ParsedPage, run_callback, run_hook
from ...parse.page import Page
from ...parse.spider import Spider, parser_version
from ...parse.timelimit import TimeLimit
from ...pipeline.steps import Pipeline
from ...recipe.spider import RecipeSpider, likely_kind
from ...settings import Settings
from ...settings import load as load_settings
from ...store.contract import Archive
from ...store.page_format import require_same
from ...terms import minimum_quality
from ..extensions import around_parse_of
from ..pipelines import pipeline_of
from ..spiders.rules import healed
from .messages import HEAD, Order, ParseOrder, ParserAnswer, ReparsedPage, frame, read_order
from .spider_refs import BadArguments, load

READ_AT_ONCE = 8  # raw pages; as many again are being read ahead
STEPS_TO_SEND = 2  # turns of the event loop until the reads are sent: a callback occupies the thread


QUALITY = "quality"


class SpiderParts(msgspec.Struct, frozen=True):
    """Everything that pages of one spider need."""

    spider: Spider
    pipeline: Pipeline
    strict: Pipeline  # for pages that were held back
    minimum: float | None
    version: str
    around: AroundParse | None


class ArchiveParser:
    """Parses orders with the spiders of the project. Each spider is loaded once."""

    def __init__(self, settings: Settings, archive: Archive) -> None:
        self._settings = settings
        self._archive = archive
        self._limit = TimeLimit(settings.crawl.parse_timeout)
        self._parts: dict[tuple[str, str, str], SpiderParts | str] = {}  # a text says why these pages cannot be parsed

    async def work(self, order: Order) -> AsyncIterator[ParserAnswer]:
        """The result of each page, one after the other."""
        try:
            async with aclosing(self._read(order.pages)) as pages:
                async for wanted, snapshot in pages:
                    yield ParserAnswer(outcome=await self._parse(order, wanted, snapshot))
        except GossamerError as error:  # a spider that does not load, an archive that does not answer
            yield ParserAnswer(refusal=str(error), passes=isinstance(error, Transient))

    async def _read(self, pages: Sequence[ParseOrder]) -> AsyncGenerator[tuple[ParseOrder, Snapshot | Permanent], None]:
        """The pages with their raw copies. The next few are read ahead while these are parsed."""
        ahead = self._begin_to_read(pages[:READ_AT_ONCE])
        try:
            for start in range(0, len(pages), READ_AT_ONCE):
                end = start + READ_AT_ONCE
                snapshots = await ahead
                ahead = self._begin_to_read(pages[end : end + READ_AT_ONCE])
                for _ in range(STEPS_TO_SEND):
                    await asyncio.sleep(0)
                for wanted, snapshot in zip(pages[start:end], snapshots, strict=True):
                    yield wanted, snapshot
        finally:
            ahead.cancel()

    def _begin_to_read(self, pages: Sequence[ParseOrder]) -> asyncio.Task[list[Snapshot | Permanent]]:
        return asyncio.create_task(self._archive.get_many([page.ref for page in pages]), name="read ahead")

    async def _parse(self, order: Order, wanted: ParseOrder, snapshot: Snapshot | Permanent) -> ReparsedPage:
        try:
            if isinstance(snapshot, Permanent):
                raise snapshot
            require_same(snapshot, wanted.ref, wanted.url, wanted.body_hash)
        except Permanent as lost:
            return ReparsedPage(wanted=wanted, failure="lost", message=str(lost))
        parts = await self._parts_of(wanted, order)
        if isinstance(parts, str):
            return ReparsedPage(wanted=wanted, failure=ParseFailed.reason, message=parts)
        handled = wanted.failure in ("", ParseFailed.reason, QUALITY)  # parsed by a callback, at its request
        if snapshot.status >= 400 and not handled and snapshot.status not in parts.spider.handle_statuses:
            return ReparsedPage(wanted=wanted, failure=f"http-{snapshot.status}", message="An error page; not parsed.")
        facts = _facts(wanted, snapshot, parts)
        if not snapshot.kind and not isinstance(parts.spider, RecipeSpider):  # imported, not fetched
            snapshot = msgspec.structs.replace(snapshot, kind=DEFAULT_KIND)
        parsed: ParsedPage | None = None
        try:
            page = Page(snapshot, depth=wanted.depth or snapshot.depth, spider=parts.spider)
            callback = partial(_called, parts.spider)
            code = callback(page) if parts.around is None else parts.around(page, callback)
            parsed = await self._limit.run(code, snapshot.url)
            held_back = wanted.failure == QUALITY and parts.minimum is not None
            piping = (parts.strict if held_back else parts.pipeline).run(
                parsed.items,
                page,
                spider=parts.spider.name,
                job=wanted.run,
                now=snapshot.fetched_at,
                request=(snapshot.requested_url, wanted.fingerprint),
            )
            piped = await self._limit.run(piping, snapshot.url)
        except ParseFailed as failure:
            if parsed is not None:
                failure.items = len(parsed.items)
            return ReparsedPage(
                items=lost_items(failure),
                wanted=wanted,
                facts=msgspec.structs.replace(facts, parser="", failure=failure.reason),
                page_url=snapshot.url,
                failure=failure.reason,
                message=str(failure),
                detail=failure.detail,
            )
        found = piped.inspection
        if held_back and found.fine < (parts.minimum or 0) * (found.fine + found.faulty):
            return ReparsedPage(
                wanted=wanted,
                facts=msgspec.structs.replace(facts, parser="", failure=QUALITY),
                page_url=snapshot.url,
                failure=QUALITY,
                items=held_items(piped),
                message=f"{snapshot.url} is as faulty as before: {piped.remarks()}",
            )
        links = msgspec.json.encode(parsed.requests) if parsed.requests and (facts.etag or facts.last_modified) else b""
        return ReparsedPage(
            wanted=wanted,
            facts=msgspec.structs.replace(facts, links=links),
            records=tuple(_reparsed(record, order.reparsed_at) for record in piped.records),
            schemas=piped.schemas,
            requests=tuple(parsed.requests) if wanted.number else (),
            page_url=snapshot.url,
            remarks=piped.remarks(),
            items=piped.items,
        )

    async def leave(self) -> None:
        """All pages are parsed."""
        for parts in self._parts.values():
            if isinstance(parts, SpiderParts):
                await run_hook(parts.spider, "_left", "")

    async def _parts_of(self, wanted: ParseOrder, order: Order) -> SpiderParts | str:
        which = (wanted.spider, wanted.start, wanted.arguments)
        known = self._parts.get(which)
        if known is None:
            try:
                spider = load(wanted.spider, self._settings, start=wanted.start, arguments=wanted.arguments)
                if order.stores:
                    await run_hook(spider, "_entered", wanted.run)
                spider = self._healed(spider, order)
                usual = [one for one in order.learned.usual if one.spider == spider.name]
                known = self._parts_for(spider, usual, wanted.arguments)
            except BadArguments as error:
                known = str(error)
            self._parts[which] = known
        return known

    def _healed(self, spider: Spider, order: Order) -> Spider:
        """A recipe with its healed rules. Raises Misconfigured."""
        rules = next((one for one in order.learned.rules if one.spider == spider.name), None)
        return healed(self._settings, spider, rules) if rules and isinstance(spider, RecipeSpider) else spider

    def _parts_for(self, spider: Spider, counted: Sequence[Tally], arguments: str) -> SpiderParts:
        return SpiderParts(
            spider,
            pipeline_of(self._settings, spider, counted=counted),
            pipeline_of(self._settings, spider, counted=counted, strict=True),
            minimum_quality(self._settings, spider),
            parser_version(spider, arguments),
            around_parse_of(self._settings, spider),
        )


async def _called(spider: Spider, page: Page) -> ParsedPage:
    """The result of the callback for which the page was fetched. If there is none, a recipe decides by its rules which
    kind of page it is. Raises ParseFailed."""
    if page.kind or not isinstance(spider, RecipeSpider):
        return await run_callback(spider, page.kind, page)
    try:
        kind = likely_kind(spider, page)
    except Exception as error:  # as in a callback: it fails the page, never the run
        raise ParseFailed(
            f"{spider.recipe.file}: which kind of page {page.url} is cannot be told ({error})."
        ) from error
    return await run_callback(spider, kind, page)


def _facts(wanted: ParseOrder, snapshot: Snapshot, parts: SpiderParts) -> PageFacts:
    return PageFacts(
        fingerprint=wanted.fingerprint,
        url=wanted.url,
        job=wanted.job,
        fetched_at=snapshot.fetched_at,
        status=snapshot.status,
        etag=snapshot.headers.get("etag"),
        last_modified=snapshot.headers.get("last-modified"),
        archive_ref=wanted.ref,
        body_hash=wanted.body_hash,
        parser=parts.version,
        spider=parts.spider.name,
    )


def _reparsed(record: Record, at: float) -> Record:
    return msgspec.structs.replace(record, reparsed_at=at)


async def _serve(settings: Settings, orders: BinaryIO, answers: BinaryIO) -> None:
    async with open_archive(settings, f"reparse-{os.getpid()}") as archive:
        child = ArchiveParser(settings, archive)
        while head := orders.read(HEAD.size):  # blocking is fine: there is nothing else to do
            order = read_order(orders.read(HEAD.unpack(head)[0]))
            async for answer in child.work(order):
                answers.write(frame(answer))
                answers.flush()
        await child.leave()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then closes our input
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    settings = load_settings(start=Path.cwd())
    asyncio.run(_serve(settings, orders, answers))


if __name__ == "__main__":
    main()
