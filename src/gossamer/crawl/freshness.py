"""Pages that were fetched lately are left alone: no URL more often than necessary.

A schedule may say how old a copy must be before its page is fetched again. What is younger is dropped when it is
offered to the queue, with the reason "fresh": it costs the site neither a request nor a turn. Its links are not
followed either.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..clock import Clock
from ..errors import Transient
from ..frontier.admission import Judged
from ..model.task import DropReason
from ..store.contract import RecordStore


class Freshness:
    """Marks candidates whose page was fetched, and understood, less than `min_age` ago."""

    def __init__(self, records: RecordStore, clock: Clock, min_age: timedelta) -> None:
        self._records = records
        self._clock = clock
        self._min_age = min_age

    async def mark(self, judged: Judged) -> Judged:
        """The same candidates, those that are fresh dropped. While the store is away nothing counts as fresh."""
        asked = [one.fingerprint for one in judged.candidates if one.dropped is None and not one.force]
        if not asked:
            return judged
        try:
            known = await self._records.facts(asked)
        except Transient:
            return judged
        since = self._clock.now() - self._min_age.total_seconds()
        fresh = {page for page, facts in known.items() if facts.fetched_at > since and not facts.failure}
        if not fresh:
            return judged
        candidates = tuple(
            msgspec.structs.replace(one, dropped=DropReason.FRESH)
            if one.dropped is None and not one.force and one.fingerprint in fresh
            else one
            for one in judged.candidates
        )
        return msgspec.structs.replace(judged, candidates=candidates)
