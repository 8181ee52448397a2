"""The rows of a state in a form independent of the backend: a move copies them, a backup file holds them
(model/stream.py).

Dumped in the order job, rows of the shelf, schedule, seeds, site, order, robots, route, spending, budget, shape, URL.
Queued URLs of a lane come in the order in which they would be leased. A leased task is dumped as queued: in
the copy it has no worker. The leading scheduler and the health of proxies are left out: both
are learned again within minutes. So are kinds of the shelf that SHELF_LEFT names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..access.contract import ApiKey, Callback, CallbackSecret
from ..model.alert import Notice, Silence, Standing
from ..model.erasure import ENDED_ORDER, OPEN_ORDER, ORDER_PART, ForgetOrder, ForgetPart
from ..model.healing import LAYOUT, RULES, HealedRules, LayoutChange
from ..model.incident import CLOSING, ENDED_INCIDENT, INCIDENT, Closing, Incident
from ..model.job import JobTerms
from ..model.note import NOTE, Note
from ..model.output import DEAD_ROW, ERASURE, OUTPUT, DeadRow, Erasure, OutputProgress
from ..model.override import OVERRIDE, Override
from ..model.run import SITE_RUNS, SPIDER_RUNS, RunLines
from ..model.schedule import ScheduleProgress
from ..model.session import SESSION, KeptSession, without_lock
from ..model.shelf import ABSENT, Put, Shelf
from ..model.stream import RowStream
from ..model.task import UrlState
from .contract import SeedFindings

STATES = tuple(state.value for state in UrlState)
COUNTERS = ("discovered", "duplicates", "retries", "redirected")  # of a job, besides its URLs by state
BATCH = 500  # rows in memory

# The kinds of rows on the shelf that are moved: the type of their values, and the name under which they are counted.
SHELF: dict[str, tuple[Any, str]] = {  # Any: a type
    "key": (ApiKey, "keys"),
    "callback": (Callback, "callbacks"),
    "callback-ended": (Callback, "callbacks"),
    "callback-secret": (tuple[CallbackSecret, ...], "callback secrets"),
    "alert": (Standing, "alerts"),
    "alert-notice": (Notice, "messages about alerts"),
    "alert-notice-ended": (Notice, "messages about alerts"),
    "silence": (Silence, "silences"),
    SESSION: (KeptSession, "sessions"),
    NOTE: (Note, "notes"),
    OVERRIDE: (Override, "overrides"),
    OUTPUT: (OutputProgress, "outputs"),
    DEAD_ROW: (DeadRow, "rows that outputs refused"),
    ERASURE: (Erasure, "records to erase"),
    OPEN_ORDER: (ForgetOrder, "orders to erase"),
    ENDED_ORDER: (ForgetOrder, "orders to erase"),
    ORDER_PART: (ForgetPart, "records to erase"),
    INCIDENT: (Incident, "incidents of the project"),
    ENDED_INCIDENT: (Incident, "incidents of the project"),
    CLOSING: (Closing, "incidents to be closed"),
    SPIDER_RUNS: (RunLines, "rows of the boards"),
    SITE_RUNS: (RunLines, "rows of the boards"),
    RULES: (HealedRules, "healed rules"),
    LAYOUT: (LayoutChange, "changed layouts"),
}
CALLBACK_KINDS = ("callback", "callback-ended")
# Those that stay: each is about what this state's own processes have done, or is learned again.
SHELF_LEFT = (
    "answer",
    "audit",
    "alert-change",
    "alert-memory",
    "spool",
    "learner",
    "woken",
    "run-log",
    "disk",
    "upkeep",
)


class DumpedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and the counters that do not follow from its URLs. `forgotten` counts URLs without a row, by state: a job
    that deduplicates with a Bloom filter keeps no rows of settled URLs."""

    number: int
    id: str
    name: str
    state: str
    sealed: bool
    ending: str
    created_at: float
    finished_at: float | None
    terms: JobTerms
    discovered: int
    duplicates: int
    retries: int
    redirected: int
    forgotten: dict[str, int] = {}
    paused: bool = False
    outcome: str = ""  # as model/job.py writes it
    start: str = ""
    stats: dict[str, int] = {}
    drops: dict[str, int] = {}  # dropped URLs by reason


class DumpedRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of the shelf. A kind or a value that this version cannot read is an error."""

    kind: str
    key: str
    value: bytes
    at: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in SHELF:
            raise ValueError(f"nothing is kept under the name {self.kind!r} in this version")
        self.read()

    def read(self) -> Any:  # Any: the type of its kind
        return msgspec.json.decode(self.value, type=SHELF[self.kind][0])

    def put(self) -> Put:
        """The change that enters it where it is missing."""
        return Put(kind=self.kind, key=self.key, value=self.value, at=self.at, until=self.until, expects=ABSENT)


async def dump_shelf(shelf: Shelf, kinds: Iterable[str] = SHELF) -> AsyncIterator[Sequence[DumpedRow]]:
    """Every row of these kinds. A login in progress counts as aborted."""
    for kind in kinds:
        some: list[DumpedRow] = []
        async for row in shelf.rows(kind):
            dumped = DumpedRow(kind=kind, key=row.key, value=row.value, at=row.at, until=row.until)
            if kind == SESSION:
                free = msgspec.json.encode(without_lock(dumped.read()))
                dumped = msgspec.structs.replace(dumped, value=free)
            some.append(dumped)
            if len(some) == BATCH:
                yield some
                some = []
        yield some


async def count_shelf(shelf: Shelf) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for kind, (_, name) in SHELF.items():
        counts[name] += await shelf.count(kind)
    return dict(counts)


class DumpedSchedule(msgspec.Struct, frozen=True):
    """A schedule and its progress. Its times are calendar times and do not depend on the clock of a server."""

    progress: ScheduleProgress


class DumpedSeeds(msgspec.Struct, frozen=True):
    """The sites and the failure that the reader of a job's source has noted so far."""

    job: str
    sown: SeedFindings


class DumpedSite(msgspec.Struct, frozen=True, kw_only=True):
    """A site's politeness. `in_progress` of its tasks were leased, so requests may have been sent up to now."""

    name: str
    next_at: float
    rest_until: float
    asked_interval: float | None
    in_progress: int = 0
    learned_interval: float | None = None  # see learned_pace.py
    refused_at: float = 0.0
    between_refusals: float = 0.0


class DumpedRobots(msgspec.Struct, frozen=True, kw_only=True):
    """A robots.txt that was fetched, and until when it holds."""

    origin: str
    status: int
    text: str
    fetched_at: float
    expires_at: float


class DumpedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route that was learned for a pattern of a site (routing/contract.py)."""

    site: str
    route: str
    since: float
    reason: str
    blocks: int
    recheck_at: float
    patience: float
    pattern: str = ""


class DumpedSpending(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a budget is spent, in billionths of a token."""

    name: str
    spent: int


class DumpedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs of a site a job has ever taken."""

    job: int
    site: str
    taken: int


class DumpedShape(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs of one path shape a job has taken."""

    job: int
    site: str
    shape: str
    taken: int


class DumpedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL of a job. `due_at` is set while it waits; `parent` is the fingerprint of the page that linked to it."""

    job: int
    site: str
    fingerprint: bytes
    url: str
    state: UrlState
    reason: str
    message: str
    priority: int
    depth: int
    attempts: int
    deliveries: int
    max_attempts: int
    due_at: float | None
    created_at: float
    changed_at: float
    kind: str
    data: str
    redirects: tuple[str, ...]
    fetcher: str | None
    proxy_pool: str | None
    country: str | None
    parent: bytes | None
    parent_site: str | None
    how: str = ""
    incidents: tuple[tuple[float, str], ...] = ()


StateRow = (
    DumpedJob
    | DumpedRow
    | DumpedSchedule
    | DumpedSeeds
    | DumpedSite
    | DumpedRobots
    | DumpedRoute
    | DumpedSpending
    | DumpedBudget
    | DumpedShape
    | DumpedUrl
)


class StateStream(RowStream[StateRow], Protocol):
    """A state as a stream of rows."""

    async def holders(self) -> list[str]:
        """The workers with leases that have not expired by the state's own clock, and the leading scheduler."""
        ...

    async def time(self) -> float:
        """The time by the clock of this state."""
        ...


class StateCounts:
    """The `counts` of a state that holds the rows that were offered."""

    def __init__(self) -> None:
        self._jobs: dict[int, DumpedJob] = {}
        self._urls: dict[int, Counter[str]] = {}
        self._kinds: Counter[str] = Counter()

    def offer(self, batch: Sequence[StateRow]) -> None:
        for row in batch:
            match row:
                case DumpedUrl():
                    self._urls.setdefault(row.job, Counter())[row.state.value] += 1
                    self._kinds["incidents"] += len(row.incidents)
                case DumpedJob():
                    self._jobs[row.number] = row
                case DumpedRow():
                    self._kinds[SHELF[row.kind][1]] += 1
                case _ if (name := _COUNTED.get(type(row))) is not None:
                    self._kinds[name] += 1

    def counts(self) -> dict[str, int]:
        found = {"jobs": len(self._jobs), **self._kinds}
        for number, job in self._jobs.items():
            counters = {name: getattr(job, name) for name in COUNTERS} | stats_counted(job.stats, job.drops)
            forgotten = {f"{state} without a row": count for state, count in job.forgotten.items()}
            found |= job_counts(job.id, self._urls.get(number, {}), {**counters, **forgotten})
        return {name: count for name, count in found.items() if count}


_COUNTED: dict[type, str] = {
    DumpedSite: "sites", DumpedShape: "path shapes", DumpedRoute: "learned routes", DumpedSpending: "budgets",
    DumpedSchedule: "schedules",
}  # fmt: skip


def stats_counted(stats: dict[str, int], drops: dict[str, int]) -> dict[str, int]:
    """A spider's own stats and the dropped URLs by reason, as counters of their job."""
    named = {f"stats {name}": count for name, count in stats.items()}
    return named | {f"dropped: {reason}": count for reason, count in drops.items()}


def job_counts(job: str, states: Mapping[str, int], counters: dict[str, int]) -> dict[str, int]:
    """One job's part of `counts`: its URLs by state (leased counts as queued), and its other counters."""
    rows = {state: count for state, count in states.items() if state != UrlState.LEASED}
    rows[UrlState.QUEUED.value] = rows.get(UrlState.QUEUED.value, 0) + states.get(UrlState.LEASED.value, 0)
    named = {f"{job} {state}": count for state, count in sorted(rows.items()) if count}
    return {**named, **{f"{job} {name}": count for name, count in counters.items() if count}}
