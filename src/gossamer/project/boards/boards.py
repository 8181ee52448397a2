"""The boards of spiders and of sites: one row each, with the last runs, what they brought, what they cost, when the
next one is due, and the open incidents. For the dashboard, the HTTP API and the command line.

How it fails: BackendUnavailable; Misconfigured for an unknown column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ...clock import iso_time
from ...errors import Misconfigured
from ...model.figures import success_rate
from ...model.incident import Incident, Subject, SubjectKind
from ...model.outcome import Outcome
from ...model.run import SITE_RUNS, SPIDER_RUNS, RunLine, RunLines
from ...model.schedule import ScheduleProgress
from ...model.shelf import ShelfKind
from ...units import discreet, visible
from ..access.keys import JOBS, METRICS, Caller
from ..open import Project
from ..operation import Operation
from ..row_page import RowFilters, row_page
from ..schedules.schedules import next_of, read_book

GOOD = frozenset((Outcome.DONE.value, Outcome.WARNINGS.value, "limit"))
RUNNING, INCIDENT, FAILING, FINE = "running", "incident", "failing", "fine"
STATES = (INCIDENT, FAILING, RUNNING, FINE)
SIGNS = {Outcome.DONE.value: "+", Outcome.WARNINGS.value: "!", "limit": "+"}  # of a run, on the command line
OTHER_SIGN = "x"
Text = Annotated[str, Meta(max_length=500)]


class BoardQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    q: Annotated[Text | None, Meta(description="Only rows whose name has these words.")] = None
    state: Annotated[Text | None, Meta(description=f"Only those: {', '.join(STATES)}.")] = None
    sort: Annotated[Text | None, Meta(description="A column; -COLUMN descends. Default: what needs attention.")] = None
    limit: Annotated[int, Meta(ge=1, le=5000, description="At most this many.")] = 50
    after: Annotated[int, Meta(ge=0, le=1_000_000, description="Skip this many.")] = 0


class BoardRun(msgspec.Struct, frozen=True, kw_only=True):
    """One of the last runs. Times are ISO 8601 in UTC."""

    job: str
    outcome: str
    started: str
    seconds: float
    pages: int
    dead: int
    records: int
    changes: str  # what it did to records: `2 new, 1 gone`; "" for a site, or if that is not known
    later: str  # which of its dead letters were settled after the end, in words


class BoardRow(msgspec.Struct, frozen=True, kw_only=True):
    """A spider or a site. Figures are those of its last run; the rate of success is that of all `runs`. `fresh` is when
    a run ended well for the last time. `next_run` and `schedules` are empty for sites, and for callers who may not see
    them."""

    name: str
    state: str  # one of STATES
    outcome: str  # of the last run
    runs: list[BoardRun]  # the last ones, the oldest first
    running: list[str]  # jobs
    success_rate: float | None
    records: int
    fresh: str | None
    credits: float
    pages_per_second: float | None
    next_run: str | None
    due: bool  # its time has come: it runs as soon as a scheduler leads
    schedules: list[str]
    incidents: list[str]  # open ones

    @property
    def last_runs(self) -> str:
        return "".join(SIGNS.get(one.outcome, OTHER_SIGN) for one in self.runs)

    @property
    def changes(self) -> str:
        """What the last run did to records, in words."""
        return self.runs[-1].changes if self.runs else ""

    @property
    def success(self) -> str:
        return "" if self.success_rate is None else f"{self.success_rate:.1%}"

    @property
    def next(self) -> str:
        """When it runs next: a time, `due`, or "" if never or not known."""
        return "due" if self.due else self.next_run or ""

    @property
    def pages_a_second(self) -> str:
        return "" if self.pages_per_second is None else f"{self.pages_per_second:.2g}"


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a board. `total` counts all rows that match, `states` all rows; `next` is the `after` of the next
    page."""

    rows: list[BoardRow]
    total: int
    next: int | None
    states: dict[str, int]


class _BoardRow(NamedTuple):
    """What a row is made of. Only the rows that are shown are made: a board may have thousands."""

    name: str
    runs: Sequence[RunLine]
    now: float
    running: Sequence[str] = ()
    incidents: Sequence[Incident] = ()
    schedules: Sequence[ScheduleProgress] = ()
    next_run: float | None = None

    @property
    def last(self) -> RunLine | None:
        return self.runs[-1] if self.runs else None

    @property
    def state(self) -> str:
        if self.incidents:
            return INCIDENT
        if self.last is not None and self.last.outcome not in GOOD:
            return FAILING
        return RUNNING if self.running else FINE

    @property
    def success(self) -> float | None:
        return success_rate({"done": sum([one.good for one in self.runs]), "dead": sum([one.bad for one in self.runs])})

    @property
    def fresh(self) -> float | None:
        return next((one.finished for one in reversed(self.runs) if one.outcome in GOOD), None)

    @property
    def pace(self) -> float | None:
        last = self.last
        took = last.finished - last.started if last is not None else 0.0
        return round((last.settled or last.pages + last.dead) / took, 3) if last is not None and took > 0 else None

    def row(self) -> BoardRow:
        last, fresh, next_run = self.last, self.fresh, self.next_run
        return BoardRow(
            name=self.name,
            state=self.state,
            outcome=last.outcome if last is not None else "",
            runs=[_run(one) for one in self.runs],
            running=list(self.running),
            success_rate=self.success,
            records=last.records if last is not None else 0,
            fresh=iso_time(fresh) if fresh is not None else None,
            credits=last.credits if last is not None else 0.0,
            pages_per_second=self.pace,
            next_run=iso_time(next_run) if next_run is not None else None,
            due=next_run is not None and next_run <= self.now,
            schedules=[one.schedule.name for one in self.schedules],
            incidents=[one.id for one in self.incidents],
        )


def _worst(one: _BoardRow) -> tuple[int, int, str]:
    return STATES.index(one.state), -len(one.incidents), one.name


def _of_last(field: str) -> Callable[[_BoardRow], Any]:
    return lambda one: getattr(one.last, field) if one.last is not None else None


COLUMNS: dict[str, Callable[[_BoardRow], Any]] = {  # Any: a value that can be compared
    "name": lambda one: one.name.casefold(),
    "success": lambda one: one.success,
    "fresh": lambda one: one.fresh,
    "pace": lambda one: one.pace,
    "next": lambda one: one.next_run,
    "incidents": lambda one: len(one.incidents),
    **{field: _of_last(field) for field in ("outcome", "records", "credits")},
}


async def spider_board(project: Project, caller: Caller, query: BoardQuery) -> Board:
    """One row for each spider, recipe or URL that has run or has a schedule."""
    lines = {one.name: one.runs for one in await _rows(project, SPIDER_RUNS)}
    running: dict[str, list[str]] = {}
    for job in await project.state.jobs.running_jobs():
        if caller.sees(job):
            running.setdefault(job.spider_name, []).append(job.id)
    schedules: dict[str, list[ScheduleProgress]] = {}
    ticks: dict[str, list[float]] = {}
    if caller.may(JOBS):
        book = await read_book(project)
        for one in book.schedules:
            name = discreet(one.schedule.spider)
            schedules.setdefault(name, []).append(one)
            if (at := next_of(one, book)) is not None:
                ticks.setdefault(name, []).append(at)
    incidents = await _incidents(project, caller)
    entries = []
    for name in lines.keys() | running.keys() | schedules.keys():
        runs = [one for one in lines.get(name, ()) if caller.sees_those_of(one.owner)]
        now = running.get(name, [])
        about = [*incidents.get(Subject(SubjectKind.SPIDER, name), ())]
        if incidents:
            jobs = dict.fromkeys((*now, *(one.job for one in runs)))
            about += [found for job in jobs for found in incidents.get(Subject(SubjectKind.JOB, job), ())]
        if runs or now or name in schedules:
            next_run = min(ticks.get(name, ()), default=None)
            entries.append(_BoardRow(name, runs, project.clock.now(), now, about, schedules.get(name, ()), next_run))
    return _board(entries, query)


async def site_board(project: Project, caller: Caller, query: BoardQuery) -> Board:
    """One row for each site that runs have visited."""
    incidents, now = await _incidents(project, caller), project.clock.now()
    entries = []
    for row in await _rows(project, SITE_RUNS):
        if runs := [one for one in row.runs if caller.sees_those_of(one.owner)]:
            entries.append(
                _BoardRow(row.name, runs, now, incidents=incidents.get(Subject(SubjectKind.SITE, row.name), ()))
            )
    return _board(entries, query)


async def _rows(project: Project, kind: str) -> list[RunLines]:
    return await ShelfKind(project.state.shelf, kind, RunLines).all()


async def _incidents(project: Project, caller: Caller) -> dict[Subject, list[Incident]]:
    """The open incidents that the caller may see, by their subjects."""
    found: dict[Subject, list[Incident]] = {}
    for one in await project.state.alerts.open_incidents() if caller.may(METRICS) else ():
        found.setdefault(one.about, []).append(one)
    return found


def _run(one: RunLine) -> BoardRun:
    return BoardRun(
        job=one.job, outcome=one.outcome, started=iso_time(one.started), seconds=round(one.finished - one.started, 3),
        pages=one.pages, dead=one.dead, records=one.records, changes=one.changes, later=one.later,
    )  # fmt: skip


def _board(entries: list[_BoardRow], query: BoardQuery) -> Board:
    """Raises Misconfigured for an unknown column or state."""
    if query.sort and query.sort.removeprefix("-") not in COLUMNS:
        raise Misconfigured(f"A board cannot be sorted by {visible(query.sort)}; there is {', '.join(COLUMNS)}.")
    if query.state is not None and query.state not in STATES:
        raise Misconfigured(f"{visible(query.state)} is not a state; there is {', '.join(STATES)}.")
    states = Counter(one.state for one in entries)
    found = sorted((one for one in entries if query.state in (None, one.state)), key=_worst)
    wanted = RowFilters(q=query.q or "", sort=query.sort or "", after=query.after)
    page = row_page(found, wanted, text=lambda one: one.name, columns=COLUMNS, limit=query.limit)
    return Board(
        rows=[one.row() for one in page.rows],
        total=page.total,
        next=page.next,
        states={name: states[name] for name in STATES if states[name]},
    )


_SHOWN = ("name", "last_runs", "outcome", "success", "records", "fresh", "credits", "pages_a_second")
_NOTHING = "Nothing has run yet. `gossamer crawl` starts a run."
OPERATIONS: tuple[Operation[BoardQuery, Board], ...] = (
    Operation(
        verb="board spiders", summary="Spiders with their last runs", columns=(*_SHOWN, "changes", "next"),
        method="GET", path="/api/v1/boards/spiders", scope=JOBS, ask=BoardQuery, gives=Board, run=spider_board,
        rows=lambda board: board.rows, nothing=_NOTHING,
    ),
    Operation(
        verb="board sites", summary="Sites with the last runs that visited them", columns=_SHOWN,
        method="GET", path="/api/v1/boards/sites", scope=JOBS, ask=BoardQuery, gives=Board, run=site_board,
        rows=lambda board: board.rows, nothing=_NOTHING,
    ),
)  # fmt: skip
