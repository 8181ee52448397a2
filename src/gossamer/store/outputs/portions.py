"""The next changes of the records for one output: as many as its target takes at once, by rows and by bytes. Nothing is
kept between two reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ...model.output import OutputProgress
from ...model.record import StoredRecord
from ..contract import RecordQuery, Records, Version
from .contract import Change, Output
from .plan import Plan

HISTORIES_AT_ONCE = 16


class Portions:
    """What an output is to write, in the order of records."""

    def __init__(self, source: Records, plan: Plan, *, keeps_history: bool) -> None:
        self._source = source
        self._plan = plan
        self._keeps_history = keeps_history

    async def read(
        self, progress: OutputProgress, output: Output, halvings: int
    ) -> tuple[list[Change], int, int, bool]:
        """The next changes of the round, the number of the last record, how many records these are, and whether the
        round ends."""
        types = self._plan.types
        query = RecordQuery(
            type=next(iter(types)) if len(types) == 1 else None,
            after=progress.after,
            upto=progress.upto,
            beyond=progress.beyond or None,
        )
        most, room = max(1, output.rows_at_once >> halvings), output.bytes_at_once >> halvings
        changes: list[Change] = []
        beyond, count = progress.beyond, 0
        async for record, change in self._changes(query, output, progress):
            if change is not None:
                room -= change.size
                if changes and (room < 0 or len(changes) >= most):
                    return changes, beyond, count, False
                changes.append(change)
            beyond, count = record.number, count + 1
        return changes, beyond, count, True

    async def _changes(
        self, query: RecordQuery, output: Output, progress: OutputProgress
    ) -> AsyncIterator[tuple[StoredRecord, Change | None]]:
        async for some in _in_groups(self._source.records(query), HISTORIES_AT_ONCE):
            pasts = await asyncio.gather(*(self._versions(record) for record in some))
            for record, versions in zip(some, pasts, strict=True):
                deletes = output.mirrors and (record.version > 1 or progress.epoch > 0)
                yield record, self._plan.change(record, deletes=deletes, versions=versions)

    async def _versions(self, record: StoredRecord) -> list[Version]:
        if not self._keeps_history or record.version == 1 or not self._plan.wants(record.type):
            return []
        return await self._source.history(record.type, record.site, record.key)


async def _in_groups(records: AsyncIterator[StoredRecord], most: int) -> AsyncIterator[list[StoredRecord]]:
    held: list[StoredRecord] = []
    async for record in records:
        held.append(record)
        if len(held) == most:
            yield held
            held = []
    if held:
        yield held
