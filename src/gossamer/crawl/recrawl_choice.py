"""Chooses which pages of a source a run with a budget fetches. schedule/recrawl.py decides; this file supplies the
facts of each page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from ..frontier.admission import Judged
from ..frontier.contract import JobTerms
from ..schedule import sources
from ..schedule.recrawl import PageChoice, RecrawlBounds
from .page_facts import rhythm_of
from .seed_context import SeedContext

SHORTEST = 60.0  # seconds between two fetches of a page, if the schedule sets no minimum


async def chosen_pages(
    context: SeedContext, job: str, terms: JobTerms, listed: Callable[[], AsyncGenerator[Judged, None]], parser: str
) -> AsyncGenerator[Judged, None]:
    """Yield the listed pages on which the budget of this run is best spent, in the order of the list. Candidates that
    may not enter at all are passed on, to be counted.

    The source is read twice: once to look up the facts of its pages, once more to take the chosen ones. In between
    little is kept per page, and not its URL (schedule/recrawl.py). A worker that reads it again after a crash counts
    what the job has fetched already. The budget is also the job's limit, so the queue never hands out more. A page that
    other code than `parser` has read, or of which not everything is in the records, counts as new.
    """
    assert terms.budget is not None
    choice = PageChoice(only_changed=sources.only_changed(sources.source_of(terms.source)))
    left = terms.budget
    async with aclosing(listed()) as batches:
        async for judged in batches:
            asked = [one for one in judged.candidates if one.dropped is None]
            known = await context.records.facts([one.fingerprint for one in asked])
            for candidate in asked:
                facts = known.get(candidate.fingerprint)
                if facts is not None and facts.job == job:
                    left -= 1
                elif facts is None or (facts.parser != parser and not facts.failure):
                    choice.note(candidate.fingerprint, None, None)
                else:
                    lastmod = None if facts.failure else candidate.options().lastmod
                    fetched_at = min(facts.fetched_at, context.clock.now())
                    choice.note(candidate.fingerprint, rhythm_of(facts), fetched_at, lastmod)
    # In a thread: a million pages take several seconds.
    wanted = await asyncio.to_thread(choice.choose, context.clock.now(), _bounds_of(terms), max(left, 0))
    async with aclosing(listed()) as batches:
        async for judged in batches:
            candidates = tuple(one for one in judged.candidates if one.dropped is not None or one.fingerprint in wanted)
            if candidates:
                yield msgspec.structs.replace(judged, candidates=candidates)


def _bounds_of(terms: JobTerms) -> RecrawlBounds:
    """The shortest and the longest interval between two fetches of a page. `min_age` is a lower bound as well."""
    shortest = max(
        terms.min_interval.total_seconds() if terms.min_interval is not None else SHORTEST,
        terms.min_age.total_seconds() if terms.min_age is not None else 0.0,
    )
    longest = terms.max_interval.total_seconds() if terms.max_interval is not None else float("inf")
    return RecrawlBounds(shortest, max(shortest, longest))
