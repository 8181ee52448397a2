"""Tries a selector on a page: shows what a field of a recipe would find there.

What it does: takes the newest copy in the archive that the caller may see; if there is none, the page is requested like
any page over HTTP: a worker fetches it politely in a job. A child process applies the selector (extraction.py).
How it fails: BadRequest for an invalid address or selector; TooMuchAtOnce; BackendUnavailable.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import msgspec

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


class Tried(msgspec.Struct, frozen=True, kw_only=True):
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
    if await pages.cached(caller, wanted, wanted.url, FRESH.total_seconds()) is not None:
        return None
    if not await is_served(project):
        raise BadRequest("No worker is running, and this page is not in the archive. Start one with `gossamer up`.")
    job = await begin_scrape(Asked(project=project, caller=caller, extraction=pages.extraction), wanted, waits=True)
    return None if await pages.wait(job.id, WAIT.total_seconds()) else job.id


async def try_selector(
    project: Project, pages: PageReader, caller: Caller, url: str, kind: Kind, selector: str
) -> Tried | None:
    """None if the page is not in the archive."""
    href = public_url(project.settings, url)
    rules = {"found": {kind: selector, "type": "list"}} if selector else None
    wanted = ScrapeRequest(url=href, formats=("html",), extract=rules)
    outcome = await pages.cached(caller, wanted, href, FRESH.total_seconds())
    return None if outcome is None else _tried(outcome)


def _tried(outcome: PageOutcome) -> Tried:
    data = outcome.data or {}
    found = (data.get("extract") or {}).get("found") or []
    return Tried(
        url=outcome.url,
        status=outcome.status_code,
        html=str(data.get("html") or ""),
        found=found[:MOST_SHOWN],
        more=max(0, len(found) - MOST_SHOWN),
        trouble=outcome.error.message if outcome.error is not None else None,
    )
