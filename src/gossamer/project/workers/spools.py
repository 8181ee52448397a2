"""Results that wait on the disks of workers: where, how many, of which jobs; drained, or given up.

The shared state has a note for each process that holds some (store/spool_notes.py), so that every machine knows.
How it fails: BackendUnavailable, and Misconfigured for a spool that does not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ...crawl.heartbeat import MISSING_AFTER
from ...errors import Misconfigured
from ...settings import Settings
from ...store.contract import SpoolNote
from ...units import many
from ..open import Project
from ..view_fields import view_of


class Storing(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a job that has no open page and cannot end before they are stored.

    `alive`: the processes that hold them are alive, and store them as soon as they can.
    """

    results: int
    hosts: tuple[str, ...]
    alive: bool

    def in_words(self, job: str) -> str:
        how = "" if self.alive else " No worker is at work there: start one, or run `gossamer spool drain` there."
        return f"{job} ends when its results are stored that wait on {', '.join(self.hosts)}.{how}"


class SpoolView(msgspec.Struct, frozen=True, kw_only=True):
    """The waiting results of one process. Times are ISO 8601 in UTC."""

    name: str
    host: str
    folder: str
    worker: str
    results: int
    jobs: dict[str, int]
    bytes: int
    noted_at: str
    alive: bool  # its process is alive
    given_up: bool


class SpoolFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one process in the spool folder of this machine."""

    name: str
    files: int
    bytes: int
    noted: bool  # the shared state has a note of them


def waiting_by_job(notes: Iterable[SpoolNote]) -> Counter[str]:
    """How many results wait, by job. Results that were given up do not count."""
    total: Counter[str] = Counter()
    for note in notes:
        if not note.given_up:
            total.update(note.results)
    return total


async def results_waiting(project: Project, job: str) -> int:
    """How many results of the job wait."""
    return waiting_by_job(await project.state.spools.notes())[job]


async def storing_of(project: Project, notes: Iterable[SpoolNote], job: str) -> Storing | None:
    """Which results of the job wait; None if there are none."""
    waiting = [note for note in notes if note.results.get(job) and not note.given_up]
    if not waiting:
        return None
    alive = await _living(project)
    return Storing(
        results=sum(note.results[job] for note in waiting),
        hosts=tuple(sorted({note.host for note in waiting})),
        alive=all(note.worker in alive for note in waiting),
    )


async def list_spools(project: Project) -> list[SpoolView]:
    """The waiting results on every machine, by name."""
    alive = await _living(project)
    return [
        view_of(
            SpoolView,
            note,
            "noted_at",
            results=sum(note.results.values()),
            jobs=note.results,
            alive=note.worker in alive,
        )
        for note in await project.state.spools.notes()
    ]


def spool_files(settings: Settings, noted: Iterable[str] = ()) -> list[SpoolFiles]:
    """The contents of this machine's spool folder, by process; files set aside as damaged are under ""."""
    folder, names = settings.root / settings.store.spool, frozenset(noted)
    if not folder.is_dir():
        return []
    found = [(path.stem, [path.stat().st_size]) for path in sorted(folder.glob("*.spool"))]
    found.append(("", [path.stat().st_size for path in folder.glob("*.bad")]))
    return [
        SpoolFiles(name=name, files=len(sizes), bytes=sum(sizes), noted=name in names) for name, sizes in found if sizes
    ]


async def forget_spools(project: Project, wanted: str) -> list[SpoolView]:
    """Give up the results of a lost machine or worker: `wanted` is the host, the worker or the name.

    Then their jobs can end, and mark nothing as gone. Raises Misconfigured if nothing of that name waits, or its
    process is alive.
    """
    found = [
        view
        for view in await list_spools(project)
        if wanted in (view.name, view.host, view.worker) and not view.given_up
    ]
    if not found:
        raise Misconfigured(f"No results wait on a machine or worker {wanted!r}. `gossamer spool` lists where some do.")
    for view in found:
        if view.alive:
            raise Misconfigured(
                f"{view.worker} is alive and keeps {many(view.results, 'result')}: it stores them when it can. Nothing "
                f"was given up."
            )
    for view in found:
        await project.state.spools.give_up(view.name)
    return found


async def forget_lost(project: Project) -> None:
    """Delete notes of results that were given up, when all their jobs have ended."""
    running = {job.id for job in await project.state.jobs.running_jobs()}
    lost = [
        note.name for note in await project.state.spools.notes() if note.given_up and not running & note.results.keys()
    ]
    if lost:
        await project.state.spools.take_away(lost)


async def _living(project: Project) -> set[str]:
    """Names of processes with a recent heartbeat."""
    now = project.clock.now()
    cards = await project.state.workers.workers()
    return {card.name for card in cards if now - card.seen_at <= MISSING_AFTER.total_seconds()}
