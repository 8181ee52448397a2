"""The processes that work on a project, on all machines: their heartbeats, and the scheduler that leads.

service.py runs such a process.
"""

from __future__ import annotations

import msgspec

from ...backends.worker_names import is_gone
from ...crawl.heartbeat import BEAT, CLOCK_OFF, MISSING_AFTER
from ...crawl.heartbeat import clock_in_words as clock_in_words  # re-exported for commands that show workers
from ...errors import Misconfigured
from ..open import Project
from ..view_fields import view_fields

ARCHIVE_FULL = (
    "The archive has reached store.archive_limit: nothing is fetched until there is room. Delete old pages with "
    "`gossamer prune --pages 30d`, or raise the limit."
)
SET_ASIDE = "gets no response from any site, while other machines do: it takes a page now and then, to try"
CLOCK_OFF_SECONDS = CLOCK_OFF  # the difference to the state's clock from which on a machine's clock is off
BEAT_SECONDS = BEAT.total_seconds()
MISSING_SECONDS = MISSING_AFTER.total_seconds()  # without a heartbeat for longer, a worker counts as missing


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process, by its last heartbeat. Times are ISO 8601 in UTC."""

    name: str
    host: str
    pid: int
    version: str  # of Gossamer
    started_at: str
    seen_at: str
    job: str  # separated by commas if several
    # working, idle, draining, storing (no job, but results wait); spool full, archive full, clock wrong: no fetches;
    # set aside: few fetches, since none got a response while those of other machines did
    state: str
    in_flight: int  # pages
    done: int  # pages
    cpu: float  # share of one core since the previous heartbeat
    memory: int  # bytes
    pace: float  # pages a second in the last minute
    busy: float  # share of its capacity in use: cores, or pages in flight
    serves: str  # the routes or kinds that it serves, separated by commas; "": all
    clock_ahead: float  # seconds by which its machine's clock is ahead of the state's
    waiting: int  # results on its disk that are not stored yet
    missing: bool  # no heartbeat for MISSING_SECONDS, or known to be dead


class SchedulerView(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler that leads; `host` is None if there is none. `needed`: the project has schedules."""

    host: str | None
    pid: int | None
    needed: bool


async def list_workers(project: Project) -> list[WorkerView]:
    """Every worker that has not signed off, including missing ones."""
    now = project.clock.now()
    waiting = {note.worker: sum(note.results.values()) for note in await project.state.spools.notes()}
    return [
        WorkerView(
            **{name: value for name, value in view_fields(card, "started_at", "seen_at").items() if name != "paces"},
            waiting=waiting.get(card.name, 0),
            missing=now - card.seen_at > MISSING_SECONDS or is_gone(card.name),
        )
        for card in await project.state.workers.workers()
    ]


async def drain_worker(project: Project, wanted: str) -> WorkerView:
    """Let a worker finish the pages in hand and exit, wherever it runs. `wanted` is a name as in `gossamer workers`:
    the whole name, host and process (`host/123`), or the process number if it is unique. The worker learns of it with
    its next heartbeat. Raises Misconfigured if no worker matches, or several do."""
    workers = await list_workers(project)
    exact = [one for one in workers if one.name == wanted]
    found = exact or [one for one in workers if wanted in (f"{one.host}/{one.pid}", str(one.pid))]
    if len(found) != 1:
        names = ", ".join(one.name for one in (found or workers)[:10])
        what = f"means several workers: {names}." if found else f"is not a worker; there is {names or 'none'}."
        raise Misconfigured(f"{wanted} {what} `gossamer workers` lists them.")
    if found[0].missing:
        raise Misconfigured(f"{found[0].name} sends no heartbeat: its pages go back to the queue by themselves.")
    if not await project.state.workers.ask_to_drain(found[0].name):
        raise Misconfigured(f"{found[0].name} has ended meanwhile.")
    return found[0]


async def leading_scheduler(project: Project) -> SchedulerView:
    """Which scheduler starts the runs of schedules, and whether the project needs one."""
    leader = await project.state.schedules.leader()
    needed = bool(project.settings.schedules or await project.state.schedules.schedules())
    if leader is None:
        return SchedulerView(host=None, pid=None, needed=needed)
    host, _, rest = leader.leader.partition("/")
    pid = rest.partition("/")[0]
    return SchedulerView(host=host, pid=int(pid) if pid.isdecimal() else None, needed=needed)


async def lacks_scheduler(project: Project) -> bool:
    """Whether the project has schedules but no scheduler that starts their runs."""
    scheduler = await leading_scheduler(project)
    return scheduler.needed and scheduler.host is None
