"""What is stored for a page that was parsed again, and what its parsing needs to know beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...model.record import Attempt, PageResult, day_of
from ...model.url import site_of
from ...pipeline.inspection import USUAL
from ...store.record_rules import REPARSED, REPEAT, UNPARSED
from ..open import Project
from ..pipelines import HABITS_OF
from ..spiders.rules import all_rules
from .archive_job import FAILED
from .messages import Learned, ReparsedPage

ROUTE = "archive"
LONGEST_ERROR = 2000


async def learned_of(project: Project) -> Learned:
    """What spiders nearly always found in the last days, and the healed rules of recipes."""
    since = day_of(project.clock.now() - HABITS_OF.total_seconds())
    usual = tuple(one for one in await project.records.scores(since=since) if one.rule == USUAL)
    return Learned(usual=usual, rules=await all_rules(project))


def patience_of(project: Project) -> timedelta:
    """How long a page may take: the time limits of parser and pipeline stop it earlier, unless it hangs in foreign
    code."""
    return 2 * project.settings.crawl.parse_timeout + timedelta(seconds=60)


def leaves_something(outcome: ReparsedPage) -> bool:
    """A page that killed its parser leaves only its error. One without a raw copy leaves nothing, nor does an error
    page that no spider wants."""
    return outcome.facts is not None or outcome.failure in FAILED


def result_of(outcome: ReparsedPage, *, at: float, worker: str, repeat: bool = False) -> PageResult:
    """`repeat`: a worker that lost its lease may have stored it before."""
    wanted, facts = outcome.wanted, outcome.facts
    attempt = Attempt(
        at=at,
        job=wanted.run,
        url=wanted.url,
        fingerprint=wanted.fingerprint,
        site=site_of(wanted.url),
        worker=worker,
        attempt=0,
        outcome=UNPARSED if outcome.failure else REPARSED,
        route=ROUTE,
        status=facts.status if facts is not None else None,
        reason=outcome.failure or (REPEAT if repeat else ""),
        error=(outcome.message or outcome.remarks)[:LONGEST_ERROR],
    )
    # Scores cover what was crawled: a page that is parsed again was counted on its day.
    return PageResult(
        attempt=attempt, page=facts, records=outcome.records, schemas=outcome.schemas, items=outcome.items
    )


async def store(project: Project, outcomes: Sequence[ReparsedPage]) -> list[int]:
    """Save the results of the pages; return how many records of each were new or changed."""
    counts = await project.records.save(
        [
            result_of(outcome, at=project.clock.now(), worker=project.worker)
            for outcome in outcomes
            if leaves_something(outcome)
        ]
    )
    return [max(0, count) for count in counts]  # one that was erased meanwhile has no copy any more
