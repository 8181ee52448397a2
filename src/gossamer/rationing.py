"""A budget of fetches, spent where it finds the most changes: which pages of a source are fetched in this run.

The source is read once to learn what is known of its pages, and once more to take the chosen ones: in between little
is kept of each page, and not its address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from .assembly import System
from .crawl.observing import rhythm_of
from .frontier.contract import JobTerms
from .model.task import Request
from .schedule.allotting import NEVER, Bounds, Known, due
from .schedule.rhythm import Rhythm, prior_of, rate, sums_of

SHORTEST = 60.0  # seconds between two fetches of a page, where the schedule says nothing
AT_ONCE = 500

Listed = Callable[[], AsyncIterator[Request]]


async def chosen(system: System, terms: JobTerms, listed: Listed) -> AsyncIterator[Request]:
    """Those of the listed pages that the budget of this run is best spent on, in the order of the list."""
    assert terms.budget is not None
    bounds = Bounds(
        terms.min_interval.total_seconds() if terms.min_interval is not None else SHORTEST,
        terms.max_interval.total_seconds() if terms.max_interval is not None else float("inf"),
    )
    rhythms: list[Rhythm | None] = []
    fetched: list[float] = []
    async for chunk in chunks(listed()):
        fingerprints = [system.rules.fingerprint(request.url) for request in chunk]
        known = await system.records.facts(fingerprints)
        for fingerprint in fingerprints:
            facts = known.get(fingerprint)
            rhythms.append(rhythm_of(facts))
            fetched.append(facts.fetched_at if facts is not None else NEVER)
    usual = prior_of(sums_of(()))
    prior = prior_of(sums_of(rate(one, usual) for one in rhythms if one is not None and one.checks))
    pages = (
        Known(place, rate(rhythm, prior), at) for place, (rhythm, at) in enumerate(zip(rhythms, fetched, strict=True))
    )
    # No price: the best ones are taken until the budget of the run is spent.
    wanted = set(due(pages, system.clock.now(), 0.0, bounds, terms.budget))
    place = 0
    async for request in listed():
        if place in wanted:
            yield request
        place += 1


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
