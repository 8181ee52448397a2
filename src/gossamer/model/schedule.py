"""A schedule: what is scraped, and when; and where it stands. Values without I/O; decisions are in schedule/."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import msgspec

from .job import Job


class Overlap(StrEnum):
    """What becomes of a run that is due while the one before still goes on."""

    SKIP = "skip"
    QUEUE = "queue"  # it begins when the other has ended; one at most waits
    REPLACE = "replace"  # the other one is ended


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """As the user wrote it. `spider` is the name of a spider or a recipe, or a URL: a whole site.

    `source` is where the addresses come from, as JSON (schedule/sources); "" is the spider's own start.
    """

    name: str
    spider: str
    trigger: str  # "every 6h", "0 3 * * *", "at 2027-01-31T12:00"
    zone: str = "UTC"  # of cron expressions
    source: str = ""
    kind: str = ""  # the callback for addresses of the source; "": parse
    priority: int = 0
    min_age: timedelta | None = None  # a page that was fetched less than this ago is left out
    windows: str = ""  # when it may run, "22:00-06:00 Europe/Berlin"; "": always
    overlap: Overlap = Overlap.SKIP
    limit: int | None = None  # pages for each run
    budget: int | None = None  # fetches a day, spent where pages change most
    min_interval: timedelta | None = None  # of re-crawling one page, with a budget
    max_interval: timedelta | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and how far it has come. `last_due` is the newest tick that was decided about, fired or skipped."""

    schedule: Schedule
    origin: str  # "file": from gossamer.toml; "added": at run time
    created_at: float
    paused: bool = False
    last_due: float | None = None
    last_job: str = ""
    runs: int = 0  # ticks that became jobs
    skipped: int = 0
    waiting_due: float | None = None  # a tick whose run waits for the one before to end
    failures: int = 0  # tries in a row to begin a run that failed
    retry_at: float | None = None
    trouble: str = ""  # why the last run could not be begun
    version: int = 0  # another one after every change; given by the book that keeps it

    def rewritten(self, schedule: Schedule, origin: str) -> Standing:
        """The same with another definition. What it has come to stays; the troubles were those of the old one."""
        return msgspec.structs.replace(self, schedule=schedule, origin=origin, failures=0, retry_at=None, trouble="")


class Term(msgspec.Struct, frozen=True):
    """The leadership of one scheduler. `token` grows with every change of leader: what an old one does is refused."""

    leader: str
    token: int
    until: float


class Settled(msgspec.Struct, frozen=True):
    """What came of deciding about a tick: where the schedule stands now, and the job that was begun, if one was."""

    standing: Standing
    job: Job | None = None
