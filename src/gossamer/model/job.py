"""A job: one run of one spider. Its identity, the terms that all its workers share, its counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

import msgspec

from ..errors import Permanent
from .outcome import Expectations, JobOutcome, implied

# Names that stand for the spider of a job; no spider or recipe can have one of them.
PAGES = "gossamer:pages"  # parse/site.py: PageSpider
RAW_PAGES = "gossamer:raw-pages"  # RawPageSpider
SITE_PART = "gossamer:site-part"  # SitePartSpider
URL_LIST = "gossamer:urls"  # UrlListSpider
REPARSE = "gossamer:reparse"  # project/reparse/archive_job.py


class JobState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class JobPoliteness(msgspec.Struct, frozen=True, kw_only=True):
    """How a job wants sites to be visited: by its command, its schedule, a call of the API or its spider. None leaves
    it to the settings. The backends apply it to every lease (`SiteTerms.under`), whichever process asks for it."""

    rate: str | None = None
    burst: int | None = None
    concurrency: int | None = None  # requests at once at one site
    given: tuple[str, ...] = ()  # fields that were given for this job: they go before the table of a domain
    tightens: bool = False  # given over the API: they count only where they are slower than the settings


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is what the user typed (spider or URL); `id` is unique per run: `books-3`."""

    id: str
    name: str
    state: JobState
    created_at: float
    finished_at: float | None = None
    limit: int | None = None  # maximum number of pages to hand out; None is unlimited
    depth: int | None = None  # how many links to follow from the seeds; None is unlimited
    ending: str = ""  # why it finished: "done", "limit", "replaced", "cancelled", "source failed: <why>"
    outcome: JobOutcome | None = None  # None while it runs, and for jobs older than outcomes
    paused: bool = False
    schedule: str = ""  # the schedule that began it
    due: float | None = None
    spider: str = ""  # if it differs from the name
    windows: str = ""  # when its pages may be fetched; "": always
    priority: int = 0  # jobs with a higher one go first
    owner: str = ""  # the key that began it over HTTP
    coverage: str = ""  # the records it stands for: spider, arguments and source
    start: str = ""  # a digest of the spider's own seeds
    arguments: str = ""  # of its spider, as JSON
    politeness: JobPoliteness = JobPoliteness()
    stopped: str = ""  # why its spider ended it early
    first_ended: float | None = None  # when it ended for the first time, if it ran again for its dead letters

    @classmethod
    def under(
        cls,
        terms: JobTerms,
        *,
        id: str,
        name: str,
        state: JobState,
        created_at: float,
        finished_at: float | None = None,
        ending: str = "",
        outcome: str = "",
        paused: bool = False,
        start: str = "",
    ) -> Job:
        """A job that was opened under these terms, which supply the fields of the same name. `outcome` is the text of
        `outcome_text`."""
        agreed = {field: getattr(terms, field) for field in _OF_TERMS}
        known = msgspec.json.decode(outcome, type=JobOutcome) if outcome else implied(ending)
        return cls(
            id=id, name=name, state=state, created_at=created_at, finished_at=finished_at, ending=ending,
            outcome=known, paused=paused, start=start, **agreed,
        )  # fmt: skip

    def stands_for_same(self, other: Job) -> bool:
        """Do both jobs stand for the same records: same spider, arguments and start? Unknown (False) for old jobs."""
        return bool(self.coverage) and (self.coverage, self.start) == (other.coverage, other.start)

    @property
    def word(self) -> str:
        """Its state in one word, without its counts: running, paused, cancelled, or its outcome."""
        if self.state is JobState.RUNNING:
            return "paused" if self.paused else "running"
        if self.state is JobState.CANCELLED:
            return "cancelled"
        return self.outcome.outcome.value if self.outcome is not None else self.ending.partition(":")[0] or "done"

    @property
    def spider_name(self) -> str:
        """The spider, recipe or URL that it is a run of."""
        return self.spider or self.name

    @property
    def takes_single_pages(self) -> bool:
        """Whether its pages were requested one by one: such jobs are no runs of a spider."""
        return self.spider_name in (PAGES, RAW_PAGES)

    @property
    def parses_again(self) -> bool:
        """Whether it reads archived pages and requests none."""
        return self.spider_name == REPARSE


class JobTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms that all workers of a job share; stored when the job is opened."""

    max_attempts: int = 4
    max_deliveries: int = 5
    max_queued: int | None = 5_000_000
    max_urls_per_site: int | None = None
    max_urls_per_pattern: int | None = None
    dedup_window: timedelta | None = None  # None: for ever
    dedup: str = "exact"  # or "bloom": a filter instead of a row for every settled URL
    dedup_expected: int = 10_000_000  # URLs that the filter is sized for
    dedup_error: float = 0.001  # the share of new URLs it may take for known
    dedup_check: bool = False  # ask the record store before trusting the filter
    limit: int | None = None
    depth: int | None = None  # links are followed this many steps from the seeds
    owner: str = ""  # the key that began the job over HTTP
    # For a job that a schedule or a key began:
    schedule: str = ""
    due: float | None = None  # the tick it is for
    spider: str = ""  # if it differs from the job's name
    arguments: str = ""  # of the spider, as JSON (parse/arguments.py)
    source: str = ""  # where its seeds come from, as JSON; "": the spider's own start
    kind: str = ""  # the callback for these seeds
    priority: int = 0  # of the job among others; the priorities of pages order its own
    min_age: timedelta | None = None  # a page fetched less than this ago is left out
    windows: str = ""  # when its pages may be fetched
    budget: int | None = None  # fetches of this run, spent where pages change most
    min_interval: timedelta | None = None
    max_interval: timedelta | None = None
    seal: str = ""  # signature with the project's key over what a worker would run (schedule/authority.py)
    expected: Expectations = Expectations()  # what it must reach for its outcome to be `done`
    coverage: str = ""  # the records it stands for: spider, arguments, source; "": begun by an older version
    politeness: JobPoliteness = JobPoliteness()
    replayed: bool = False  # it had ended, and runs again for its dead letters
    first_ended: float | None = None  # when it had ended for the first time
    stopped: str = ""  # why its spider ended it; `limit` is what had been handed out

    def resumed(self, begun: JobTerms) -> JobTerms:
        """These terms, adapted for an unfinished job that was begun under others and is resumed.

        The current command decides how far to go. Deduplication, the owner, the coverage, and the terms of a schedule
        or a key stay as the job began. The limits of a replayed job stay too. A job that its spider ended stays ended.
        Its pace and its priority: see `as_begun`.
        """
        kept = (
            *DEDUP,
            *(REPLAYED if begun.replayed else ()),
            *(STOPPED if begun.stopped else ()),
            "owner",
            "coverage",
            *(SCHEDULED if begun.schedule or begun.source else ()),
        )
        return msgspec.structs.replace(self, **{name: getattr(begun, name) for name in kept})

    def as_begun(self, begun: Job) -> JobTerms:
        """These terms for a job that was begun with a pace or a priority of its own: what was given for it then holds,
        unless it is given anew. Before they are sealed, since the seal covers them."""
        old, new = begun.politeness, self.politeness
        kept = [name for name in old.given if name not in new.given]
        politeness = {name: getattr(old, name) for name in kept if name != PRIORITY}
        if "rate" in kept and "concurrency" not in (*old.given, *new.given):
            politeness["concurrency"] = old.concurrency  # it followed the rate
        return msgspec.structs.replace(
            self,
            politeness=msgspec.structs.replace(new, given=(*new.given, *kept), **politeness),
            priority=begun.priority if PRIORITY in kept else self.priority,
        )


PRIORITY = "priority"
_OF_TERMS = tuple(field for field in Job.__struct_fields__ if field in JobTerms.__struct_fields__)
REPLAYED = ("limit", "depth", "replayed", "first_ended")
STOPPED = ("limit", "stopped")
LONGEST_REASON = 300  # characters
DEDUP = ("dedup", "dedup_window", "dedup_expected", "dedup_error")
SCHEDULED = (
    "schedule", "due", "spider", "source", "kind", "priority", "min_age", "windows", "budget", "min_interval",
    "max_interval", "owner", "seal", "expected", "arguments", "politeness", "limit", "depth",
)  # fmt: skip


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs of a job are in each state. `discovered` counts every link ever offered, duplicates included.
    `postponed` of those that wait are links for which the queue has no room yet. `drops` are the dropped ones by
    reason. `stats` are the spider's own counts. Always: discovered == queued + waiting + leased + done + unchanged +
    dropped + dead + duplicates."""

    discovered: int = 0
    duplicates: int = 0
    queued: int = 0
    waiting: int = 0
    leased: int = 0
    done: int = 0
    unchanged: int = 0
    dropped: int = 0
    dead: int = 0
    retries: int = 0
    postponed: int = 0
    redirected: int = 0
    stats: dict[str, int] = {}
    drops: dict[str, int] = {}

    @property
    def open(self) -> int:
        return self.queued + self.waiting + self.leased

    @property
    def settled(self) -> int:
        return self.done + self.unchanged + self.dead

    @property
    def pages(self) -> int:
        """Pages that came, changed or not. A redirect is not a page: its target is."""
        return self.done + self.unchanged - self.redirected

    @property
    def towards_limit(self) -> int:
        """How many of the pages that the job's limit allows are used."""
        return self.pages + self.dead


class JobPace(msgspec.Struct, frozen=True, array_like=True):
    """What became of a job in the last `seconds`: how many pages were settled, and how many entered its queue."""

    settled: int = 0
    found: int = 0
    seconds: float = 0.0


def stopped_terms(terms: JobTerms, used: int, reason: str) -> JobTerms:
    """The terms of a job that may hand out nothing beyond the `used` pages. The first reason is kept."""
    limit = used if terms.limit is None else min(terms.limit, used)
    words = terms.stopped or reason[:LONGEST_REASON] or "no reason given"
    return msgspec.structs.replace(terms, limit=limit, stopped=words)


def outcome_text(outcome: JobOutcome | None) -> str:
    """The outcome as backends store it beside the ending; "" if the ending says it all."""
    return "" if outcome is None else msgspec.json.encode(outcome).decode()


COUNTERS = tuple(name for name in JobCounts.__struct_fields__ if name not in ("stats", "drops"))
MOST_STATS = 100  # names that a spider may count under, per job
UNFINISHED = "unfinished pages"  # counted by workers: rendered pages that were read before they had finished loading
OTHER_STATS = "(others)"  # the sum of all names beyond these


def summed_stats(*parts: Mapping[str, int]) -> dict[str, int]:
    """The sums by name. The last names beyond MOST_STATS are added up under one name."""
    sums: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            known = name in sums or len(sums.keys() - {OTHER_STATS}) < MOST_STATS
            name = name if known else OTHER_STATS
            sums[name] = sums.get(name, 0) + count
    return sums


def number_of(id: str) -> int:
    """The number of a job, from its id. Raises Permanent if the text is not a job id."""
    digits = id.rpartition("-")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        raise Permanent(f"{id[:60]!r} is not a job id, which ends with a number.")
    return int(digits)


def slug(name: str) -> str:
    """A name that is safe in job ids and file names."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("https://").removeprefix("http://"))
    return plain.strip("-")[:40].strip("-") or "job"


def read_arguments(stored: str) -> dict[str, Any]:  # Any: any JSON
    """The arguments of a spider as a job stores them, by name."""
    return msgspec.json.decode(stored, type=dict[str, Any]) if stored else {}
