"""The proof of a move: both sides are counted, and a sample is read from both through the usual contracts.

Defines what must be equal, and what may differ (the times of a site's bucket, the worker that held a task).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from ....backends.state import State
from ....errors import Permanent
from ....frontier.contract import QueueView, UrlStory
from ....frontier.state_rows import DumpedUrl, StateRow
from ....model.record import StoredRecord
from ....model.task import UrlState
from ....store.contract import Archive, PageArchive, RecordQuery, Records, Segment
from ....store.record_rows import DumpedPage, DumpedRecord, RecordRow
from .stores import Stores

T = TypeVar("T")

SAMPLE = 100  # of each kind of thing
SEGMENTS_READ = 8  # files of an archive read on both sides; each has up to 64 MB
_LEAST, _MOST = -(2**31) + 1, 2**31 - 1  # the priorities that every queue supports


class RowSample(Generic[T]):
    """A uniform random sample of a stream of unknown length."""

    def __init__(self, size: int = SAMPLE) -> None:
        self.kept: list[T] = []
        self._size = size
        self._seen = 0
        self._chance = random.Random()

    def offer(self, thing: T) -> None:
        self._seen += 1
        if len(self.kept) < self._size:
            self.kept.append(thing)
        elif (place := self._chance.randrange(self._seen)) < self._size:
            self.kept[place] = thing


class StateSample:
    """A sample of the copied URLs. Jobs and schedules are few, and all of them are compared."""

    def __init__(self) -> None:
        self._open: RowSample[DumpedUrl] = RowSample()
        self._settled: RowSample[DumpedUrl] = RowSample()

    def offer(self, batch: Sequence[StateRow]) -> None:
        for row in batch:
            if isinstance(row, DumpedUrl):
                (self._open if row.state.open else self._settled).offer(row)

    async def compare(self, source: State, target: State) -> tuple[int, list[str]]:
        """Return how many things were compared, and the differences in words."""
        compared, problems = await self._compare_urls(source.queue, target.queue)
        jobs, schedules = await source.jobs.jobs(), await source.schedules.schedules()
        if jobs != await target.jobs.jobs():
            problems.append("state: the jobs are not the same there")
        if schedules != await target.schedules.schedules():
            problems.append("state: the schedules are not the same there")
        return compared + len(jobs) + len(schedules), problems

    async def _compare_urls(self, source: QueueView, target: QueueView) -> tuple[int, list[str]]:
        urls = self._open.kept + self._settled.kept
        problems = []
        for url in urls:
            here = [_settled(story) for story in await source.story(url.site, url.fingerprint)]
            there = [_settled(story) for story in await target.story(url.site, url.fingerprint)]
            if here != there:
                problems.append(f"state: {url.url} is not the same there{_first_difference(here, there)}")
        return len(urls), problems


class RecordSample:
    """A sample of the copied pages and records. Shapes and quality are few, and all of them are compared."""

    def __init__(self) -> None:
        self._pages: RowSample[DumpedPage] = RowSample()
        self._records: RowSample[DumpedRecord] = RowSample()

    @property
    def references(self) -> list[str]:
        """Where the raw copies of the sampled pages are."""
        return [visit.archive_ref for page in self._pages.kept for visit in page.visits[-1:] if visit.archive_ref]

    def offer(self, batch: Sequence[RecordRow]) -> None:
        for row in batch:
            if isinstance(row, DumpedPage):
                self._pages.offer(row)
            elif isinstance(row, DumpedRecord):
                self._records.offer(row)

    async def compare(self, source: Records, target: Records) -> tuple[int, list[str]]:
        """Return how many things were compared, and the differences in words."""
        problems = []
        for page in self._pages.kept:
            key = page.fingerprint
            here = (await source.facts([key]), await source.attempts(key), await source.visits(key))
            if here != (await target.facts([key]), await target.attempts(key), await target.visits(key)):
                problems.append(f"records: what is known of {page.url} is not the same there")
        for record in self._records.kept:
            identity = (record.type, record.site, record.key)
            if await source.history(*identity) != await target.history(*identity):
                problems.append(f"records: the history of {record.type} {record.key!r} is not the same there")
            elif await _record(source, record) != await _record(target, record):
                problems.append(f"records: what is known of {record.type} {record.key!r} is not the same there")
        if await source.schemas() != await target.schemas():
            problems.append("records: the shapes of items are not the same there")
        if await source.scores() != await target.scores():
            problems.append("records: what the quality checks counted is not the same there")
        return len(self._pages.kept) + len(self._records.kept), problems


async def compare_contents(
    source: Stores, target: Stores, urls: StateSample, results: RecordSample
) -> tuple[int, list[str]]:
    """Compare what was sampled; return how many things were compared, and the differences in words."""
    found = []
    if source.state is not None and target.state is not None:
        found.append(await urls.compare(source.state, target.state))
    if source.records is not None and target.records is not None:
        found.append(await results.compare(source.records, target.records))
    if source.archive is not None and target.archive is not None:
        found.append(await compare_segments(await source.segments(), source.archive, target.archive))
        found.append(await compare_pages(results.references, source.archive, target.archive))
    return sum(count for count, _ in found), [text for _, texts in found for text in texts]


async def compare_pages(references: Sequence[str], source: Archive, target: Archive) -> tuple[int, list[str]]:
    """Compare raw pages by their references. A page that was pruned on both sides is not a difference."""
    problems = []
    for reference in references:
        if await _page(source, reference) != await _page(target, reference):
            problems.append(f"archive: the page {reference} is not the same there")
    return len(references), problems


async def compare_segments(
    segments: Sequence[Segment], source: PageArchive, target: PageArchive
) -> tuple[int, list[str]]:
    """Compare some files of an archive, byte for byte."""
    chosen = random.sample(segments, min(SEGMENTS_READ, len(segments)))
    problems = []
    for one in chosen:
        if await source.read_segment(one.name) != await target.read_segment(one.name):
            problems.append(f"archive: the file {one.name} is not the same there")
    return len(chosen), problems


def differing_counts(role: str, here: dict[str, int], there: dict[str, int]) -> list[str]:
    """The counts that differ, in words."""
    return [
        f"{role}: {name}: {here.get(name, 0):,} here, {there.get(name, 0):,} there"
        for name in sorted({*here, *there})
        if here.get(name, 0) != there.get(name, 0)
    ]


async def _record(store: Records, record: DumpedRecord) -> list[StoredRecord] | str:
    try:
        query = RecordQuery(type=record.type, site=record.site, key=record.key)
        # Its place in the store does not belong to its content.
        return [msgspec.structs.replace(one, number=0) async for one in store.records(query)]
    except Permanent as failure:  # data that cannot be decoded is copied as it is
        return str(failure)


async def _page(archive: Archive, reference: str) -> Any:  # Any: a snapshot, or nothing
    try:
        return await archive.get(reference)
    except Permanent:
        return None


def _settled(story: UrlStory) -> UrlStory:
    """The story of a URL without the fields that a move may change."""
    return msgspec.structs.replace(
        story,
        state=UrlState.QUEUED if story.state is UrlState.LEASED else story.state,
        priority=min(max(story.priority, _LEAST), _MOST),
        ready_at=None,
        worker=None,
        lease_until=None,
        site_next_at=None,
        site_taken_by=None,
        ahead_of_it=None,
    )


def _first_difference(here: Sequence[UrlStory], there: Sequence[UrlStory]) -> str:
    if len(here) != len(there):
        return f" ({len(here)} jobs know it here, {len(there)} there)"
    for one, other in zip(here, there, strict=True):
        for name in UrlStory.__struct_fields__:
            if getattr(one, name) != getattr(other, name):
                return f" ({name})"
    return ""
