"""What has changed on a page since the same key had it before: the format `changes`.

The earlier copy is what the newest earlier job of the same key had: a page that it fetched, or one in the archive that
the site confirmed to it. Both are read by the same rules, in a child.
How it fails: an earlier copy that was pruned, or whose job was forgotten, counts as none; a comparison that takes too
long has no `diff`.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from ...clock import iso_time
from ...errors import Permanent
from ...model.job import Job
from ...model.page import Snapshot
from ...model.page_content import PageContent
from ...store.page_format import read_visit
from ..open import Project
from .formats import WantedFormats
from .page_child import CompareTexts, FormatPage, PageAnswer, Work

CHANGES = "changes"
NEW, SAME, CHANGED, REMOVED = "new", "same", "changed", "removed"
_GONE = (404, 410)
_MOST_LOOKED_AT = 100  # earlier attempts


class AsksChild(Protocol):
    async def ask(self, work: Work, page: Snapshot | None, seconds: float) -> PageAnswer | None: ...


class PageChanges(msgspec.Struct, frozen=True, kw_only=True):
    """`diff` is unified, over the Markdown; `fields` are those of the schema whose values differ."""

    status: str
    previous_at: str | None = None
    diff: str | None = None
    fields: dict[str, dict[str, Any]] | None = None


async def changes_of(
    project: Project,
    child: AsksChild,
    fingerprint: bytes,
    snapshot: Snapshot,
    job: Job,
    *,
    content: PageContent | None,
    schema: dict[str, Any] | None,
    seconds: float,
) -> PageChanges:
    """Compare `snapshot`, which the job has fetched or the site has confirmed, with what there was before."""
    earlier = await _earlier(project, fingerprint, job)
    if earlier is None:
        return PageChanges(status=NEW)
    before, at = earlier
    if (before.job, before.fetched_at) == (snapshot.job, snapshot.fetched_at):  # the site said: not modified
        return PageChanges(status=SAME, previous_at=at)
    if snapshot.status in _GONE and before.status not in _GONE:
        return PageChanges(status=REMOVED, previous_at=at)
    names = ("markdown", "json") if schema else ("markdown",)
    wanted = FormatPage(WantedFormats(formats=names, content=content, schema=schema))
    read = [await child.ask(wanted, one, seconds) for one in (before, snapshot)]
    old, new = [one.content if one is not None and not one.failure else {} for one in read]
    was, is_now = old.get("markdown") or "", new.get("markdown") or ""
    fields = _differing(old.get("json") or {}, new.get("json") or {}) if schema else None
    if was == is_now and (was or before.body == snapshot.body):
        return PageChanges(status=CHANGED if fields else SAME, previous_at=at, fields=fields)
    compared = await child.ask(CompareTexts(before=was, after=is_now), None, seconds)
    diff = compared.content if compared is not None and not compared.failure else None
    return PageChanges(status=CHANGED, previous_at=at, diff=diff, fields=fields)


async def _earlier(project: Project, fingerprint: bytes, job: Job) -> tuple[Snapshot, str] | None:
    """What the newest earlier job of the same key had, and when."""
    visits = [one for one in await project.records.visits(fingerprint) if one.archive_ref]
    attempts = [one for one in await project.records.attempts(fingerprint) if one.job != job.id]
    for attempt in attempts[: -_MOST_LOOKED_AT - 1 : -1]:
        confirmed = attempt.outcome == "unchanged"
        had = [one for one in visits if one.job == attempt.job or (confirmed and one.fetched_at <= attempt.at)]
        known = await project.state.jobs.job(attempt.job) if had else None
        if known is None or known.owner != job.owner or known.created_at > job.created_at:
            continue
        try:
            return await read_visit(project.archive, had[-1]), iso_time(attempt.at)
        except Permanent:  # pruned
            continue
    return None


def _differing(old: dict[str, Any], new: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names = dict.fromkeys((*old, *new))
    return {
        name: {"previous": old.get(name), "current": new.get(name)} for name in names if old.get(name) != new.get(name)
    }
