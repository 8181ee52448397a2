"""A budget of fetches, spent where it finds the most changes: which pages of a source are fetched in this run.

The source is read once to learn what is known of its pages, and once more to take the chosen ones: in between little
is kept of each page, and not its address (schedule/recrawl.py). Who reads again after a crash counts what the job has
fetched already. That no run fetches more than its budget is seen to by the queue: it is the job's limit as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from ..crawl.observing import rhythm_of
from ..frontier.admission import Judged
from ..frontier.contract import JobTerms
from ..schedule.recrawl import PageChoice, RecrawlBounds
from ..schedule.sources import only_changed, source_of
from .open import Project

SHORTEST = 60.0  # seconds between two fetches of a page, where the schedule says nothing

Listed = Callable[[], AsyncGenerator[Judged, None]]


async def chosen(project: Project, job: str, terms: JobTerms, listed: Listed) -> AsyncGenerator[Judged, None]:
    """Those of the listed pages that the budget of this run is best spent on, in the order of the list. What may not
    enter at all comes along, to be counted."""
    assert terms.budget is not None
    choice = PageChoice(only_changed=only_changed(source_of(terms.source)))
    left = terms.budget
    async with aclosing(listed()) as batches:
        async for judged in batches:
            asked = [one for one in judged.candidates if one.dropped is None]
            known = await project.records.facts([one.fingerprint for one in asked])
            for candidate in asked:
                facts = known.get(candidate.fingerprint)
                if facts is None:
                    choice.note(candidate.fingerprint, None, None)
                elif facts.job == job:
                    left -= 1
                else:
                    lastmod = None if facts.failure else candidate.wishes().lastmod
                    choice.note(candidate.fingerprint, rhythm_of(facts), facts.fetched_at, lastmod)
    # In a thread: a million pages take some seconds.
    wanted = await asyncio.to_thread(choice.choose, project.clock.now(), bounds_of(terms), max(left, 0))
    async with aclosing(listed()) as batches:
        async for judged in batches:
            candidates = tuple(one for one in judged.candidates if one.dropped is not None or one.fingerprint in wanted)
            if candidates:
                yield msgspec.structs.replace(judged, candidates=candidates)


def bounds_of(terms: JobTerms) -> RecrawlBounds:
    """The shortest and the longest interval between two fetches of a page. `min_age` is a shortest one, too."""
    shortest = max(
        terms.min_interval.total_seconds() if terms.min_interval is not None else SHORTEST,
        terms.min_age.total_seconds() if terms.min_age is not None else 0.0,
    )
    longest = terms.max_interval.total_seconds() if terms.max_interval is not None else float("inf")
    return RecrawlBounds(shortest, max(shortest, longest))
