"""Carries out the retention of the settings, in the process of the leading scheduler, and measures the disks.

What it does: every `retention.every` it deletes what is older or more than the settings allow, with the function behind
`gossamer prune`; then it writes SQLite files anew, which shrink, at most every `retention.shrink` and only if something
was deleted. How it fails: a store that is away is tried again a minute later. How it recovers: what was deleted stays
deleted, and the rest goes the next time.
"""

from __future__ import annotations

import logging

import msgspec

from ...errors import GossamerError
from ...model.disk import UPKEEP, Upkeep
from ...model.shelf import ShelfKind
from ...schedule.leadership import Lead
from ...settings import Settings
from ...units import many, size
from ..open import Project
from .disk import measure
from .retention import PruneAges, Pruned, prune

log = logging.getLogger("gossamer.upkeep")
LOOK = 60.0  # seconds


class RetentionWatch:
    """Carries it out while `run` runs and its scheduler leads."""

    def __init__(self, project: Project, lead: Lead) -> None:
        self._project = project
        self._lead = lead

    async def run(self) -> None:
        while True:
            await self._project.clock.sleep(LOOK)
            if self._lead.held:
                try:
                    await keep_retention(self._project)
                except (GossamerError, OSError) as error:
                    log.warning("The retention of the settings waits: %s", error)


def ages_of(settings: Settings) -> PruneAges:
    names = PruneAges.__struct_fields__
    return PruneAges(**{name: getattr(settings.retention, name) for name in names})


async def keep_retention(project: Project) -> Pruned | None:
    """Carry it out if it is time. None if it is not. Raises BackendUnavailable."""
    terms, now = project.settings.retention, project.clock.now()
    kind = ShelfKind(project.state.shelf, UPKEEP, Upkeep)
    known = await kind.get("last") or Upkeep()
    if 0 <= now - known.kept_at < terms.every.total_seconds():
        return None
    pruned = await prune(project, ages_of(project.settings))
    words, shrunk_at = in_words(pruned), known.shrunk_at
    if terms.shrink is not None and words and not 0 <= now - shrunk_at < terms.shrink.total_seconds():
        left = [await project.records.compact(rewrite=False), await project.state.erasure.compact()]
        shrunk_at = now
        for trouble in filter(None, left):
            log.warning("%s", trouble)
    await measure(project)
    new = msgspec.structs.replace(known, kept_at=now, shrunk_at=shrunk_at, words=words)
    await project.state.shelf.commit([kind.put("last", new, at=now)])
    if words:
        log.info("Deleted by the retention of the settings: %s.", words)
    return pruned


def in_words(pruned: Pruned) -> str:
    """What was deleted; "" if nothing was."""
    found = [
        many(pruned.attempts, "attempt or visit", "attempts and visits") if pruned.attempts else "",
        f"{size(pruned.page_bytes)} of raw pages" if pruned.page_bytes else "",
        f"{many(pruned.copies, 'raw copy', 'raw copies')} ({size(pruned.copy_bytes or 0)})" if pruned.copies else "",
        many(pruned.jobs.jobs, "job") if pruned.jobs is not None and pruned.jobs.jobs else "",
        many(pruned.audit, "line of the audit log", "lines of the audit log") if pruned.audit else "",
    ]
    return ", ".join(filter(None, found))
