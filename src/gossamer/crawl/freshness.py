"""Drops pages that need no fetch, so that no URL is fetched more often than necessary.

A schedule may set how old a copy must be before its page is fetched again (`min_age`), and may trust the dates in a
sitemap (`only_changed`). A page that need not be fetched is dropped when it is offered to the queue, with the reason
"fresh" or "unmodified": the site gets no request and uses up no turn. The links of such a page are not followed.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..clock import Clock
from ..errors import Transient
from ..frontier.admission import Judged
from ..frontier.contract import JobTerms
from ..model.record import PageFacts
from ..model.task import Candidate, DropReason
from ..schedule.change_rate import current_after
from ..schedule.sources import only_changed, source_of
from ..store.contract import RecordStore


class Freshness:
    """Drops candidates whose page was fetched less than `min_age` ago and parsed by this `parser`, and with
    `only_changed` those that have not changed since. A page of which not everything is in the records is never
    fresh."""

    def __init__(
        self,
        records: RecordStore,
        clock: Clock,
        min_age: timedelta | None,
        *,
        only_changed: bool = False,
        parser: str,
    ) -> None:
        self._parser = parser
        self._records = records
        self._clock = clock
        self._min_age = min_age
        self._only_changed = only_changed

    async def mark(self, judged: Judged) -> Judged:
        """Return the same candidates, some of them marked as dropped. None are while the record store does not
        answer."""
        asked = [one.fingerprint for one in judged.candidates if one.dropped is None and not one.force]
        if not asked:
            return judged
        try:
            known = await self._records.facts(asked)
        except Transient:
            return judged
        if not known:
            return judged
        now = self._clock.now()
        candidates = tuple(self._marked(one, known.get(one.fingerprint), now) for one in judged.candidates)
        return msgspec.structs.replace(judged, candidates=candidates)

    def _marked(self, candidate: Candidate, facts: PageFacts | None, now: float) -> Candidate:
        if facts is None or facts.failure or candidate.dropped is not None or candidate.force:
            return candidate
        if facts.parser != self._parser or facts.fetched_at > now:  # a clock was ahead: nobody knows when it was
            return candidate
        if self._min_age is not None and facts.fetched_at > now - self._min_age.total_seconds():
            return msgspec.structs.replace(candidate, dropped=DropReason.FRESH)
        if self._only_changed and unmodified(candidate.options().lastmod, facts.fetched_at):
            return msgspec.structs.replace(candidate, dropped=DropReason.UNMODIFIED)
        return candidate


def unmodified(lastmod: float | None, fetched_at: float) -> bool:
    """Is a page with this `lastmod` certainly unchanged since `fetched_at`?"""
    return lastmod is not None and fetched_at >= current_after(lastmod)


def freshness_of(terms: JobTerms | None, records: RecordStore, clock: Clock, parser: str) -> Freshness | None:
    """The filter for this job; None if its schedule asks for none. `parser` is the version of its spider."""
    if terms is None:
        return None
    # With a budget, the choice of pages has applied `only_changed` already (schedule/recrawl.py).
    dates = terms.budget is None and only_changed(source_of(terms.source))
    if terms.min_age is None and not dates:
        return None
    return Freshness(records, clock, terms.min_age, only_changed=dates, parser=parser)
