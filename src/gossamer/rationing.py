"""A budget of fetches, spent where it finds the most changes: which pages of a source are fetched in this run.

The source is read once to learn what is known of its pages, and once more to take the chosen ones: in between little
is kept of each page, and not its address (schedule/choosing.py). Sources that have changed in between give other
places than were meant, never more pages than the budget allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from .assembly import System
from .crawl.observing import rhythm_of
from .frontier.contract import JobTerms
from .model.task import Request
from .schedule.allotting import Bounds
from .schedule.choosing import Ledger
from .schedule.sources import only_changed, source_of

SHORTEST = 60.0  # seconds between two fetches of a page, where the schedule says nothing
AT_ONCE = 500

Listed = Callable[[], AsyncIterator[Request]]


async def chosen(system: System, terms: JobTerms, listed: Listed) -> AsyncIterator[Request]:
    """Those of the listed pages that the budget of this run is best spent on, in the order of the list."""
    assert terms.budget is not None
    ledger = Ledger(only_changed=only_changed(source_of(terms.source)))
    async for chunk in chunks(listed()):
        fingerprints = [system.rules.fingerprint(request.url) for request in chunk]
        known = await system.records.facts(fingerprints)
        for request, fingerprint in zip(chunk, fingerprints, strict=True):
            facts = known.get(fingerprint)
            ledger.note(rhythm_of(facts), None if facts is None else facts.fetched_at, request.lastmod)
    # In a thread: a million pages take some seconds.
    wanted = await asyncio.to_thread(ledger.choose, system.clock.now(), bounds_of(terms), terms.budget)
    place = 0
    async for request in listed():
        if place in wanted:
            yield request
        place += 1


def bounds_of(terms: JobTerms) -> Bounds:
    """The shortest and the longest interval between two fetches of a page. `min_age` is a shortest one, too."""
    shortest = max(
        terms.min_interval.total_seconds() if terms.min_interval is not None else SHORTEST,
        terms.min_age.total_seconds() if terms.min_age is not None else 0.0,
    )
    longest = terms.max_interval.total_seconds() if terms.max_interval is not None else float("inf")
    return Bounds(shortest, max(shortest, longest))


async def chunks(requests: AsyncIterator[Request], size: int = AT_ONCE) -> AsyncIterator[list[Request]]:
    """So many at a time."""
    chunk: list[Request] = []
    async with aclosing(requests):  # type: ignore[type-var]  # a generator, whatever its type says
        async for request in requests:
            chunk.append(request)
            if len(chunk) >= size:
                yield chunk
                chunk = []
    if chunk:
        yield chunk
