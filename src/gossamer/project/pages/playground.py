"""Tries a selector on a page: shows what a field of a recipe would find there.

What it does: takes the newest copy in the archive that the caller may see, also of a page that failed, or the one that
is chosen; if there is none, the page is requested like any page over HTTP: a worker fetches it politely
in a job. A child process applies the selector (extraction.py).
How it fails: BadRequest for an invalid address or selector; TooMuchAtOnce; BackendUnavailable.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec

from ...model.record import PageFacts
from ..access.keys import Caller
from ..jobs.api_jobs import Asked, begin_scrape, is_served, public_url
from ..jobs.api_requests import BadRequest, ScrapeRequest
from ..open import Project
from .results import PageOutcome, PageReader

Kind = Literal["css", "xpath", "jsonpath", "regex"]
KINDS: tuple[Kind, ...] = ("css", "xpath", "jsonpath", "regex")
FRESH = timedelta(days=1)  # how old a copy may be
WAIT = timedelta(seconds=10)  # for the page, before the answer says that it takes longer
MOST_SHOWN = 200


class TriedSelector(msgspec.Struct, frozen=True, kw_only=True):
    """What a selector found. `trouble` says what is wrong with the selector, if anything."""

    url: str
    status: int | None
    html: str
    found: list[Any]  # texts, mostly
    more: int  # not in `found`
    trouble: str | None


async def fetch_to_try(project: Project, pages: PageReader, caller: Caller, url: str) -> str | None:
    """Make sure that the page is in the archive: None if it is, otherwise the id of the job that still fetches it."""
    wanted = ScrapeRequest(url=public_url(project.settings, url))
    if await _fresh_copies(project, pages, caller, wanted.url):
        return None
    if not await is_served(project):
        raise BadRequest("No worker is running, and this page is not in the archive. Start one with `gossamer up`.")
    job = await begin_scrape(Asked(project=project, caller=caller, extraction=pages.extraction), wanted, waits=True)
    return None if await pages.wait(job.id, WAIT.total_seconds()) else job.id


async def _fresh_copies(project: Project, pages: PageReader, caller: Caller, href: str) -> list[PageFacts]:
    """The newer copies, failed ones too: those are what a selector is mended on."""
    oldest = project.clock.now() - FRESH.total_seconds()
    return [one for one in await pages.copies(caller, href) if one.fetched_at >= oldest]


async def try_selector(
    project: Project, pages: PageReader, caller: Caller, url: str, kind: Kind, selector: str, copy: str = ""
) -> TriedSelector | None:
    """On the newest fresh copy, or on the one with that id (versions.py); None if there is none in the archive."""
    href = public_url(project.settings, url)
    rules = {"found": {kind: selector, "type": "list"}} if selector else None
    wanted = ScrapeRequest(url=href, formats=("html",), extract=rules)
    if copy:
        chosen = [one for one in await pages.copies(caller, href) if copy_id(one) == copy]
    else:
        chosen = await _fresh_copies(project, pages, caller, href)
    outcome = await pages.of_copy(caller, chosen[-1], wanted) if chosen else None
    return None if outcome is None else _tried(outcome)


def copy_id(copy: PageFacts) -> str:
    """What names a copy among those of its page: the moment at which it was fetched."""
    return f"{copy.fetched_at:.6f}"


def _tried(outcome: PageOutcome) -> TriedSelector:
    data = outcome.data or {}
    found = (data.get("extract") or {}).get("found") or []
    return TriedSelector(
        url=outcome.url,
        status=outcome.status_code,
        html=str(data.get("html") or ""),
        found=found[:MOST_SHOWN],
        more=max(0, len(found) - MOST_SHOWN),
        trouble=outcome.error.message if outcome.error is not None else None,
    )
