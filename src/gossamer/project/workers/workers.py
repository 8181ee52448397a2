"""The processes that work on a project, on all machines: their heartbeats, and the scheduler that leads.

service.py runs such a process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from ...backends.worker_names import fate_of
from ...crawl.heartbeat import BEAT, CLOCK_OFF, MISSING_AFTER, frozen_ones, is_silent, replaced
from ...crawl.heartbeat import clock_in_words as clock_in_words  # re-exported for commands that show workers
from ...errors import Misconfigured
from ...frontier.contract import Fate
from ...units import visible
from ..open import Project
from ..view_fields import view_fields

ARCHIVE_FULL = (
    "The archive has reached store.archive_limit: nothing is fetched until there is room. Delete old pages with "
    "`gossamer prune --pages 30d`, or raise the limit."
)
ONE_PACE = "The rate of a site is one for all workers, and one of them may be enough for it."
SET_ASIDE = "gets no response from any site, while other machines do: it takes a page now and then, to try"
CLOCK_OFF_SECONDS = CLOCK_OFF  # the difference to the state's clock from which on a machine's clock is off
BEAT_SECONDS = BEAT.total_seconds()
MISSING_SECONDS = MISSING_AFTER.total_seconds()  # without a heartbeat for longer, a worker counts as missing


HIDDEN = ("paces", "frozen", "instead_of")  # fields of a card that the view leaves out
FATES = {
    "dead": "is dead: its process is gone.",
    "frozen": "is frozen: its process lives and does nothing. Kill it there (SIGKILL).",
    "silent": "sends no heartbeat, and nobody on its machine says whether it lives.",
}


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
    # of a missing one. dead: its process is gone; frozen: its process lives, and is stopped or hangs; silent: its
    # machine does not say. "" otherwise
    fate: str


class SchedulerView(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler that leads; `host` is None if there is none. `needed`: the project has schedules."""

    host: str | None
    pid: int | None
    needed: bool


async def list_workers(project: Project) -> list[WorkerView]:
    """Every worker that has not signed off, including missing ones, except those in whose place another started."""
    now, cards = project.clock.now(), await project.state.workers.workers()
    frozen, left_out = frozen_ones(cards), set(replaced(cards, now, fate_of))
    waiting = {note.worker: sum(note.results.values()) for note in await project.state.spools.notes()}
    return [
        WorkerView(
            **{name: value for name, value in view_fields(card, "started_at", "seen_at").items() if name not in HIDDEN},
            waiting=waiting.get(card.name, 0),
            missing=(missing := is_silent(card, now) or fate_of(card.name) is Fate.GONE),
            fate=_fate(card.name, frozen) if missing else "",
        )
        for card in cards
        if card.name not in left_out
    ]


def _fate(name: str, frozen: Collection[str]) -> str:
    match fate_of(name):
        case Fate.GONE:
            return "dead"
        case Fate.ALIVE:
            return "frozen"
    return "frozen" if name in frozen else "silent"


def without_pages(workers: Sequence[WorkerView]) -> list[WorkerView]:
    """Living workers to which others have left no page of their job for a minute."""
    busy = {job for one in workers if one.in_flight and not one.missing for job in one.job.split(", ")}
    return [
        one
        for one in workers
        if one.state == "working"
        and not (one.missing or one.in_flight or one.pace)
        and set(one.job.split(", ")) <= busy
    ]


async def drain_worker(project: Project, wanted: str, *, restart: bool = False) -> WorkerView:
    """Let a worker finish the pages in progress and exit, wherever it runs; with `restart` another one starts in its
    place. `wanted` is a name as in `gossamer workers`: the whole name, host and process (`host/123`), or the process
    number if it is unique. The worker learns of it with its next heartbeat. Raises Misconfigured if no worker matches,
    or several do."""
    workers = await list_workers(project)
    exact = [one for one in workers if one.name == wanted]
    found = exact or [one for one in workers if wanted in (f"{one.host}/{one.pid}", str(one.pid))]
    if len(found) != 1:
        names = ", ".join(one.name for one in (found or workers)[:10])
        what = f"means several workers: {names}." if found else f"is not a worker; there is {names or 'none'}."
        raise Misconfigured(f"{wanted} {what} `gossamer workers` lists them.")
    if found[0].missing:
        fate = FATES[found[0].fate]
        raise Misconfigured(f"{found[0].name} {fate} Its pages go back to the queue by themselves.")
    if not await project.state.workers.ask_to_drain(found[0].name, restart=restart):
        raise Misconfigured(f"{found[0].name} has ended meanwhile.")
    return found[0]


async def forget_worker(project: Project, wanted: str) -> WorkerView:
    """Take a worker off the list that is gone for good: it is not missed any more, and its pages go back to the queue
    by themselves. Raises Misconfigured if no worker has that name, or it is alive."""
    found = next((one for one in await list_workers(project) if one.name == wanted), None)
    if found is None:
        raise Misconfigured(f"There is no worker {visible(wanted)}. `gossamer workers` lists them.")
    if not found.missing:
        raise Misconfigured(f"{found.name} is alive. `gossamer workers drain {found.name}` lets it finish.")
    await project.state.workers.sign_off(found.name)
    return found


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
