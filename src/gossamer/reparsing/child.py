"""A child of a reparse: reads orders from its standard input, parses the pages, writes what came of them.

It reads the archive and nothing else: no request, no record store. Whatever a spider prints goes to standard error.
How it fails: a page that the spider cannot parse is an outcome; one that kills this process is found out by the run,
which starts another child. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..backends.opening import open_archive
from ..errors import GossamerError, ParseFailed, Permanent
from ..model.page import Snapshot
from ..model.record import PageFacts, Record
from ..parse.callbacks import run_callback
from ..parse.page import Page
from ..parse.spider import Spider, spider_version
from ..parse.timelimit import TimeLimit
from ..pipeline.steps import Pipeline
from ..refining import pipeline_of
from ..settings import Settings
from ..settings import load as load_settings
from ..store.contract import Archive
from .orders import HEAD, Answer, Order, Outcome, Wanted, frame, read_order
from .spiders import load


class Desk(msgspec.Struct, frozen=True):
    """All that pages of one spider need."""

    spider: Spider
    pipeline: Pipeline
    version: str


class Child:
    """Parses orders with the spiders of the project. Each spider is loaded once."""

    def __init__(self, settings: Settings, archive: Archive) -> None:
        self._settings = settings
        self._archive = archive
        self._limit = TimeLimit(settings.crawl.parse_timeout)
        self._desks: dict[tuple[str, str], Desk] = {}

    async def work(self, order: Order) -> Answer:
        try:
            snapshots = await self._archive.get_many([page.ref for page in order.pages])
            return Answer(
                outcomes=tuple(
                    [
                        await self._parse(order, wanted, snapshot)
                        for wanted, snapshot in zip(order.pages, snapshots, strict=True)
                    ]
                )
            )
        except GossamerError as error:  # a spider that does not load, an archive that does not answer
            return Answer(refusal=str(error))

    async def _parse(self, order: Order, wanted: Wanted, snapshot: Snapshot | Permanent) -> Outcome:
        if isinstance(snapshot, Permanent):
            return Outcome(wanted=wanted, failure="lost", message=str(snapshot))
        desk = self._desk(wanted)
        if snapshot.status >= 400 and snapshot.status not in desk.spider.handle_statuses:
            return Outcome(wanted=wanted, failure=f"http-{snapshot.status}", message="An error page; not parsed.")
        facts = _facts(wanted, snapshot, desk)
        try:
            page = Page(snapshot, spider=desk.spider)
            parsed = await self._limit.run(run_callback(desk.spider, snapshot.kind, page), snapshot.url)
            piping = desk.pipeline.run(
                parsed.items,
                page,
                spider=desk.spider.name,
                job=order.run,
                now=snapshot.fetched_at,
                counted_at=order.reparsed_at,
            )
            piped = await self._limit.run(piping, snapshot.url)
        except ParseFailed as failure:
            return Outcome(
                wanted=wanted,
                facts=msgspec.structs.replace(facts, parser="", failure=failure.reason),
                quality=desk.pipeline.refused(failure, order.reparsed_at),
                page_url=snapshot.url,
                failure=failure.reason,
                message=str(failure),
                detail=failure.detail,
            )
        links = msgspec.json.encode(parsed.requests) if parsed.requests and (facts.etag or facts.last_modified) else b""
        return Outcome(
            wanted=wanted,
            facts=msgspec.structs.replace(facts, links=links),
            records=tuple(_reparsed(record, order.reparsed_at) for record in piped.records),
            schemas=piped.schemas,
            quality=piped.inspection.tallies,
            requests=tuple(parsed.requests) if wanted.number else (),
            page_url=snapshot.url,
            remarks=piped.remarks(),
        )

    def _desk(self, wanted: Wanted) -> Desk:
        known = self._desks.get((wanted.spider, wanted.start))
        if known is None:
            spider = load(wanted.spider, self._settings, start=wanted.start)
            known = Desk(spider, pipeline_of(self._settings, spider), spider_version(type(spider)))
            self._desks[wanted.spider, wanted.start] = known
        return known


def _facts(wanted: Wanted, snapshot: Snapshot, desk: Desk) -> PageFacts:
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
        parser=desk.version,
        spider=desk.spider.name,
    )


def _reparsed(record: Record, at: float) -> Record:
    return msgspec.structs.replace(record, reparsed_at=at)


async def _serve(settings: Settings, orders: BinaryIO, answers: BinaryIO) -> None:
    async with open_archive(settings, f"reparse-{os.getpid()}") as archive:
        child = Child(settings, archive)
        while head := orders.read(HEAD.size):  # nothing else is to be done while it waits
            order = read_order(orders.read(HEAD.unpack(head)[0]))
            answers.write(frame(await child.work(order)))
            answers.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then closes our input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    settings = load_settings(start=Path.cwd())
    asyncio.run(_serve(settings, sys.stdin.buffer, answers))


if __name__ == "__main__":
    main()
