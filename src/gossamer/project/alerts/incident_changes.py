"""What happened around an incident: what changed before it began, and what people did since.

Read when somebody looks, from attempts, archived pages, quality tallies, notes and the audit log; each part is bounded,
and one that cannot be read says so in place of what it would say.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from urllib.parse import quote

import msgspec

from ...access.contract import AuditLine
from ...clock import iso_time
from ...errors import Transient
from ...model.incident import Incident, SubjectKind
from ...model.record import day_of
from ...pipeline.inspection import WHOLE
from ...store.contract import AttemptQuery, VisitQuery
from ...units import seconds_of
from ..access.keys import ADMIN, Caller
from ..jobs.notes import NoteQuery, list_notes
from ..open import Project

BEFORE = 24 * 3600.0  # seconds before its beginning in which something may have changed
ATTEMPTS_LOOKED_AT = 1_000
PAGES_LOOKED_AT = 2_000
LINES_LOOKED_AT = 500
MOST_SHOWN = 20
WEEK = 7 * 86_400.0
LEAST_DROP = 0.1  # of the share of items with a field
# Coming and going, and what has a line of its own that says more.
NOT_SHOWN = ("/ui/sign-in", "/ui/sign-out", "/api/v1/overrides", "/ui/overrides/set", "/ui/overrides/remove")
REFUSALS = ("blocked", "retry", "dead")
Part = Callable[[], Awaitable[list["Happened"]]]


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at a time, ISO 8601 in UTC, and the page of the dashboard with more of it."""

    at: str
    words: str
    page: str = ""


async def what_changed(project: Project, caller: Caller, one: Incident, jobs: list[str]) -> list[Happened]:
    """What changed around its beginning, the earliest first."""
    parts: list[Part] = []
    if one.about.kind is SubjectKind.SITE:
        parts.append(partial(_first_refusal, project, one))
    if one.about.kind is SubjectKind.SPIDER:
        parts += [partial(_versions, project, one), partial(_fields, project, one)]
    found = await _read(project, [*parts, *_by_people(project, caller, one, one.since - BEFORE, one.since)])
    return sorted(found, key=lambda each: each.at)[-MOST_SHOWN:]


async def what_was_done(project: Project, caller: Caller, one: Incident) -> list[Happened]:
    """What people did since it began: writes over the API and in the dashboard, and notes; the latest first."""
    until = one.ended_at if one.ended_at is not None else project.clock.now()
    found = await _read(project, _by_people(project, caller, one, one.since, until))
    return sorted(found, key=lambda each: each.at, reverse=True)[:MOST_SHOWN]


def _by_people(project: Project, caller: Caller, one: Incident, since: float, until: float) -> list[Part]:
    """What people did in that time, as far as the caller may see it."""
    parts: list[Part] = [partial(_notes, project, caller, one, since, until)]
    if caller.may(ADMIN):
        parts.append(partial(_changes_by_people, project, one, since, until))
    return parts


async def _read(project: Project, parts: list[Part]) -> list[Happened]:
    """All parts, one after the other: one that cannot be read says so, and if the reader leaves, none is begun in
    vain."""
    found: list[Happened] = []
    for part in parts:
        try:
            found += await part()
        except Transient as error:
            found.append(Happened(at=iso_time(project.clock.now()), words=f"Not known: {error}"))
    return found


async def _first_refusal(project: Project, one: Incident) -> list[Happened]:
    """The first of the requests that failed since a success, and the last success before it."""
    site, since = one.about.name, one.since - BEFORE
    query = AttemptQuery(site=site, since=since, until=one.opened_at + 1.0)
    page = await project.records.attempt_log(query, limit=ATTEMPTS_LOOKED_AT)
    first = good = None
    for attempt in page.attempts:  # the latest first
        if attempt.outcome in REFUSALS:
            first = attempt
        elif attempt.outcome in ("done", "unchanged") and first is not None:
            good = attempt
            break
    if first is None:
        return []
    status = f" with status {first.status}" if first.status else ""
    word = "The first failure" if good is not None else "It has failed since then at least"
    found = [Happened(at=iso_time(first.at), words=f"{word}: {first.reason or first.outcome}{status}, {first.url}")]
    if good is not None:
        found.append(Happened(at=iso_time(good.at), words=f"The last page that came before it: {good.url}"))
    return found


async def _versions(project: Project, one: Incident) -> list[Happened]:
    """When the code of the spider changed."""
    first: dict[str, float] = {}
    looked = 0
    async for facts in project.records.archived(VisitQuery(spider=one.about.name, since=one.since - WEEK)):
        if facts.parser:
            first[facts.parser] = min(facts.fetched_at, first.get(facts.parser, facts.fetched_at))
        looked += 1
        if looked == PAGES_LOOKED_AT:
            break
    order = sorted(first, key=lambda version: first[version])
    return [
        Happened(
            at=iso_time(first[version]),
            words=f"Version {version[:12]} of the spider parses pages; before it was {before[:12]}",
        )
        for before, version in pairwise(order)
    ]


async def _fields(project: Project, one: Incident) -> list[Happened]:
    """Fields that have been empty more often since the day on which it began: how a changed layout shows."""
    day = day_of(one.since)
    filled: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for tally in await project.records.scores(spider=one.about.name, since=day_of(one.since - WEEK)):
        if not tally.rule and tally.field != WHOLE and tally.type != WHOLE:
            when = "now" if tally.day >= day else "before"
            filled[tally.type, tally.field].update({f"{when} all": tally.checked, f"{when} filled": tally.filled})
    found = []
    for (type, field), counts in sorted(filled.items()):
        if counts["now all"] and counts["before all"]:
            now, before = counts["now filled"] / counts["now all"], counts["before filled"] / counts["before all"]
            if before - now >= LEAST_DROP:
                words = f"{type}.{field} is filled in {now:.0%} of the items, before in {before:.0%}"
                page = f"/ui/quality?spider={quote(one.about.name, safe='')}"
                layout = f"The layout may have changed: {words}"
                found.append(Happened(at=iso_time(one.since), words=layout, page=page))
    return found


async def _changes_by_people(project: Project, one: Incident, since: float, until: float) -> list[Happened]:
    def is_of_another_site(target: str) -> bool:
        site = f"domains.{one.about.name}."
        return one.about.kind is SubjectKind.SITE and target.startswith("domains.") and not target.startswith(site)

    lines = await project.state.audit.lines(LINES_LOOKED_AT)
    return [
        _by_person(line)
        for line in lines
        if since <= line.at <= until
        and line.status < 400
        and not line.action.endswith(NOT_SHOWN)
        and not is_of_another_site(line.target)
    ]


BEGINS = ("/api/v1/crawls", "/api/v1/scrape", "/again", "/run")  # addresses whose targets are jobs


def _by_person(line: AuditLine) -> Happened:
    """In words where there are any, with the page of what it was about."""
    method, _, address = line.action.partition(" ")
    words, page = f"{line.name}: {line.action} {line.target}".strip(), "/ui/keys"
    if method == "POST" and line.target and address.endswith(BEGINS):
        words, page = f"{line.name} began {line.target}", f"/ui/jobs/{quote(line.target, safe='')}"
    elif line.action in ("set by hand:", "taken back:"):
        words, page = f"{line.name} {line.action.removesuffix(':')}: {line.target}", "/ui/overrides"
    return Happened(at=iso_time(line.at), words=words, page=page)


async def _notes(project: Project, caller: Caller, one: Incident, since: float, until: float) -> list[Happened]:
    """Notes on it, on its site or job, or on everything, of that time."""
    found = []
    for note in await list_notes(project, caller, NoteQuery(limit=1000)):
        on_it = note.incident == one.id
        named = note.site or note.job
        relevant = on_it or (not note.incident and named in ("", one.about.name))
        if relevant and since <= seconds_of(note.at) <= until:
            found.append(Happened(at=note.at, words=f"{note.by} noted: {note.text}", page="/ui/notes"))
    return found
