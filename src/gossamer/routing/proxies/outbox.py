"""Reports waiting to be written to the ProxyBook. Bounded, and safe to send again if the book did not answer.

Consecutive uses of one proxy with the same outcome wait as one report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator

import msgspec

from .contract import ProxyBook, ProxyReport, RestTerms

MAX_CHANGES = 64  # reports of one proxy; beyond that the oldest is merged with the next like it, or dropped
MAX_USES = 20_000  # pages and their proxies; beyond that the oldest are dropped
MAX_RENEWALS = 10_000  # sessions; beyond that the oldest are dropped
AT_ONCE = 500  # per call of the book


class Outbox:
    def __init__(self) -> None:
        self._reports: dict[tuple[str, str], deque[ProxyReport]] = {}
        self._uses: deque[tuple[bytes, str]] = deque(maxlen=MAX_USES)
        self._renewals: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._reports or self._uses or self._renewals)

    def report(self, pool: str, report: ProxyReport) -> None:
        waiting = self._reports.setdefault((pool, report.proxy), deque())
        if waiting and _alike(waiting[-1], report):
            waiting[-1] = _together(waiting[-1], report)
            return
        waiting.append(report)
        if len(waiting) > MAX_CHANGES:
            oldest = waiting.popleft()
            place = next((place for place, one in enumerate(waiting) if _alike(one, oldest)), None)
            if place is not None:
                waiting[place] = _together(oldest, waiting[place])

    def use(self, fingerprint: bytes, name: str) -> None:
        self._uses.append((fingerprint, name))

    def renew(self, pool: str, session: str, seen: int) -> None:
        self._renewals[pool, session] = max(seen, self._renewals.get((pool, session), 0))
        while len(self._renewals) > MAX_RENEWALS:
            del self._renewals[next(iter(self._renewals))]

    def waiting(self, pool: str, proxies: Collection[str] | None = None) -> Iterator[ProxyReport]:
        """Waiting reports about a pool: of these proxies, or of all."""
        for (own, name), reports in self._reports.items():
            if own == pool and (proxies is None or name in proxies):
                yield from reports

    async def send(self, book: ProxyBook, terms_of: Callable[[str], RestTerms]) -> list[tuple[str, str, int]]:
        """Send everything. Returns the sessions that were renewed: pool, session, the generation to use now.

        Raises BackendUnavailable. What was not sent then keeps waiting, before what came meanwhile. One call at a time.
        """
        await self._send_uses(book)
        await self._send_reports(book, terms_of)
        renewed = []
        for (pool, session), seen in list(self._renewals.items()):
            renewed.append((pool, session, await book.renew(pool, session, seen)))
            if self._renewals.get((pool, session)) == seen:
                del self._renewals[pool, session]
        return renewed

    async def _send_uses(self, book: ProxyBook) -> None:
        uses = list(self._uses)
        self._uses.clear()
        try:
            while uses:
                await book.remember(uses[:AT_ONCE])
                del uses[:AT_ONCE]
        finally:
            if uses:
                self._uses = deque([*uses, *self._uses], maxlen=MAX_USES)

    async def _send_reports(self, book: ProxyBook, terms_of: Callable[[str], RestTerms]) -> None:
        waiting, self._reports = self._reports, {}
        by_pool: dict[str, list[ProxyReport]] = {}
        for (pool, _), reports in waiting.items():
            by_pool.setdefault(pool, []).extend(reports)
        batches = deque(
            (pool, reports[at : at + AT_ONCE])
            for pool, reports in by_pool.items()
            for at in range(0, len(reports), AT_ONCE)
        )
        try:
            while batches:
                pool, batch = batches[0]
                await book.report(pool, batch, terms_of(pool))
                batches.popleft()
        finally:
            if batches:
                newer, self._reports = self._reports, {}
                for pool, batch in batches:
                    for report in batch:
                        self.report(pool, report)
                for (pool, _), reports in newer.items():
                    for report in reports:
                        self.report(pool, report)


def _alike(one: ProxyReport, other: ProxyReport) -> bool:
    return one.outcome is other.outcome and one.site == other.site


def _together(first: ProxyReport, then: ProxyReport) -> ProxyReport:
    times = first.times + then.times
    return msgspec.structs.replace(
        then,
        times=times,
        seconds=(first.seconds * first.times + then.seconds * then.times) / max(times, 1),
        bytes=first.bytes + then.bytes,
        credits=first.credits + then.credits,
        words=then.words or first.words,
    )
