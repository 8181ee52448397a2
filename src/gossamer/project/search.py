"""Finds anything of a project by a few characters of its name: spiders, sites, jobs, incidents, records, pages, dead
letters.

What it does: the first hits of each kind that the caller may see, those whose name begins with the words first. Pages,
records and dead letters are found by their whole address or key: a part of it would need a look at all of them.
How it fails: BackendUnavailable.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..clock import iso_time
from ..errors import InvalidUrl, Misconfigured
from ..frontier.contract import DeadFilter
from ..model.url import site_of, typed_url
from ..store.contract import RecordQuery
from .access.keys import JOBS, METRICS, RECORDS, Caller, Sight
from .boards.boards import BoardQuery, site_board, spider_board
from .dead_letters.story import other_fingerprints
from .open import Project
from .operation import Operation

EACH = 8  # hits of a kind
JOBS_LOOKED_AT = 2_000  # the newest
INCIDENTS_LOOKED_AT = 1_000  # that have ended, the latest


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    q: Annotated[str, Meta(min_length=1, max_length=2083, description="Part of a name, an address, or a key.")]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is spider, site, job, incident, page, record or dead letter. `note` says which, where names are alike.
    `site` and `type` identify a record, `job` and `id` a dead letter."""

    kind: str
    name: str
    note: str = ""
    type: str = ""
    site: str = ""
    job: str = ""
    id: int = 0


async def search(project: Project, caller: Caller, query: SearchQuery) -> list[Hit]:
    """Spiders and sites first, then jobs, incidents, pages, dead letters and records."""
    words = query.q.strip()
    found: list[Hit] = []
    if caller.may(JOBS):
        for kind, board in (("spider", spider_board), ("site", site_board)):
            rows = (await board(project, caller, BoardQuery(q=words, limit=100, sort="name"))).rows
            rows.sort(key=lambda row: not row.name.casefold().startswith(words.casefold()))
            found += [Hit(kind=kind, name=row.name, note=row.outcome) for row in rows[:EACH]]
    found += await _jobs(project, caller, words)
    if caller.may(METRICS):
        found += await _incidents(project, words)
    if "://" in words:
        found += await _pages(project, caller, words)
    if caller.may(RECORDS):
        async for record in project.records.records(RecordQuery(key=words)):
            found.append(Hit(kind="record", name=record.key, note=record.type, type=record.type, site=record.site))
            if len(found) >= 5 * EACH:
                break
    return found


async def _jobs(project: Project, caller: Caller, words: str) -> list[Hit]:
    owners = None if caller.is_admin else ("", caller.id)
    part = words.casefold()
    newest = await project.state.history.page(JOBS_LOOKED_AT, owners=owners)
    jobs = [job for job in newest if part in job.id.casefold() or part in job.name.casefold()]
    return [Hit(kind="job", name=job.id, note=f"{job.word}, {iso_time(job.created_at)[:16]}") for job in jobs[:EACH]]


async def _pages(project: Project, caller: Caller, url: str) -> list[Hit]:
    """The page of that address, however it is spelled, if it is known; and its dead letters."""
    try:
        href = typed_url(url)
        marks, site = [project.rules.fingerprint(href), *other_fingerprints(project, href)], site_of(href)
    except (InvalidUrl, Misconfigured):
        return []
    sight = Sight(project, caller)
    found: list[Hit] = []
    letters: list[Hit] = []
    for mark in marks:
        stories = [one for one in await project.state.queue.story(site, mark) if await sight.of(one.job)]
        found += [Hit(kind="page", name=one.url, note=one.state.value) for one in stories[: 0 if found else 1]]
        if stories and caller.may(JOBS):
            letters += [
                Hit(kind="dead letter", name=letter.url, note=letter.reason, job=letter.job, id=letter.id)
                for letter in await project.state.queue.dead(DeadFilter(site=site, fingerprint=mark), EACH)
                if await sight.of(letter.job)
            ]
    return [*found, *letters]


async def _incidents(project: Project, words: str) -> list[Hit]:
    """By their id, as every message has it, or by part of what they are about; open ones first."""
    part, book = words.casefold(), project.state.alerts
    known = [*await book.open_incidents(), *await book.ended_incidents(INCIDENTS_LOOKED_AT)]
    return [
        Hit(kind="incident", name=one.id, note=f"{one.about.in_words}, {one.state.value}")
        for one in known
        if part in one.id.casefold() or part in one.about.name.casefold()
    ][:EACH]


OPERATIONS = (
    Operation(
        verb="find",
        summary="Find spiders, sites, jobs, incidents, pages, records and dead letters by name, address or key",
        method="GET", path="/api/v1/search", scope=JOBS, ask=SearchQuery, gives=list[Hit], run=search,
        columns=("kind", "name", "note"), arguments=("q",), nothing="Nothing has that name, address or key.",
    ),
)  # fmt: skip
