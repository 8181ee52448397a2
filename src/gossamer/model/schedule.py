"""A schedule: what is scraped, when, and its progress. Values without I/O; decisions are in schedule/."""

from __future__ import annotations

import math
from datetime import timedelta
from enum import StrEnum

import msgspec

from .job import Job
from .outcome import Expectations


class Overlap(StrEnum):
    """What happens to a run that is due while the previous one is still going."""

    SKIP = "skip"
    QUEUE = "queue"  # it begins when the other has ended; at most one waits
    REPLACE = "replace"  # the other one is ended


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as the user wrote it. `spider` is the name of a spider or a recipe, or a URL: a whole site.

    `source` is where the URLs come from, as JSON (schedule/sources); "" is the spider's own start.
    """

    name: str
    spider: str
    trigger: str  # "every 6h", "0 3 * * *", "at 2027-01-31T12:00"
    zone: str = "UTC"  # of cron expressions
    source: str = ""
    kind: str = ""  # the callback for URLs of the source; "": parse
    priority: int = 0
    min_age: timedelta | None = None  # a page fetched less than this ago is left out
    windows: str = ""  # when it may run, "22:00-06:00 Europe/Berlin"; "": always
    overlap: Overlap = Overlap.SKIP
    limit: int | None = None  # pages for each run
    budget: int | None = None  # fetches per day, spent where pages change most
    min_interval: timedelta | None = None  # between two fetches of one page, with a budget
    max_interval: timedelta | None = None
    seal: str = ""  # signature with the project's key, if there is one and the schedule was added at run time
    expected: Expectations = Expectations()  # what a run must reach for its outcome to be `done`
    arguments: tuple[str, ...] = ()  # of the spider: "category=lamps"
    rate: str = ""  # of its runs at a site, where that is slower than the usual rate
    site_concurrency: int | None = None  # requests at once at one site, where that is fewer than usual


class ScheduleProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule and its progress. `last_due` is the last tick that was decided, fired or skipped."""

    schedule: Schedule
    origin: str  # "file": from gossamer.toml; "added": at run time
    created_at: float  # or when its trigger was changed: intervals are counted from here
    paused: bool = False
    last_due: float | None = None
    newest_due: float | None = None  # the newest tick decided, if later than `last_due`: a clock was wrong
    since: float | None = None  # only ticks after this count: it was resumed or changed then, or a clock was wrong
    last_job: str = ""
    runs: int = 0  # jobs it began
    skipped: int = 0
    skip_reason: str = ""  # of the last skipped tick
    waiting_due: float | None = None  # a tick whose run waits for the previous one to end
    failures: int = 0  # failures in a row to begin a run
    retry_at: float | None = None
    trouble: str = ""  # why the last run could not begin
    withdrawn_at: float | None = None  # when it was found missing in gossamer.toml; it rests until it is back
    version: int = 0  # a new one after every change; set by the ScheduleBook

    def rewritten(self, schedule: Schedule, origin: str, now: float) -> ScheduleProgress:
        """The same with another definition. Its progress stays; the old definition's failures are cleared.

        With another trigger, ticks count from now: earlier ones are not made up for.
        """
        after = msgspec.structs.replace(
            self, schedule=schedule, origin=origin, failures=0, retry_at=None, trouble="", withdrawn_at=None
        )
        if (schedule.trigger, schedule.zone) == (self.schedule.trigger, self.schedule.zone):
            return after
        if self.last_due is None:  # nothing was due yet, so it is as good as new
            return msgspec.structs.replace(after, created_at=now, since=None)
        begin = math.ceil(now * 1000) / 1000  # an interval is not due at the moment of the change itself
        return msgspec.structs.replace(after, created_at=begin, since=begin)

    def rested(self, paused: bool, now: float) -> ScheduleProgress:
        """Pause or resume it. A resumed schedule goes on with the next tick; missed and waiting ones are dropped."""
        if paused:
            return msgspec.structs.replace(self, paused=True)
        after = msgspec.structs.replace(self, paused=False, since=now)
        if self.waiting_due is None:
            return after
        return msgspec.structs.replace(after, waiting_due=None, skipped=self.skipped + 1, skip_reason="paused")


class UnreadableSchedule(msgspec.Struct, frozen=True):
    """A stored schedule that this version of Gossamer cannot read, and why. It is left alone."""

    name: str
    why: str

    @property
    def words(self) -> str:
        return (
            f"Schedule {self.name} cannot be read, and is left alone ({self.why}). Was it written by a newer Gossamer? "
            f"Then upgrade this one; else remove it: gossamer schedule remove {self.name}"
        )


class Term(msgspec.Struct, frozen=True):
    """The leadership of one scheduler. `token` grows with every change of leader: actions of an old one are refused."""

    leader: str
    token: int
    until: float


class Settled(msgspec.Struct, frozen=True):
    """The result of deciding a tick: the schedule's new progress, and the job that was begun, if any."""

    progress: ScheduleProgress
    job: Job | None = None
