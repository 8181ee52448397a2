"""The outcome of a job, for programs and people: one of six, with its reasons. Pure: facts in, outcome out.

    done                nothing to complain about
    done with warnings  it finished, but something is wrong: dead letters, an expectation that is not met
    empty               pages came, but no record, from a spider that yields records
    held back           the quality guard has held pages back: what is stored is incomplete
    incomplete          it ended before its work did, or left links out: a limit of URLs, a budget, cancelled, replaced
    failed              not one page could be fetched, or its source could not be read

`ending` says who ended a job; the outcome says what it is worth. project/jobs/outcome.py gathers the facts; left_out.py
says what links that were left out mean. A limit of pages that a person named is no fault: such a run is `done`, and
says where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from ..units import many
from .run_records import RunRecords

NOT_FOUND = frozenset({"http-404", "http-410"})  # pages that do not exist: every site links to some
HELD_BACK_REASON = "quality"  # the reason of a dead letter that the quality guard has held back
BUDGET_REASON = "budget"
CONFLICT_REASON = "conflict"
LOGGED_OUT_REASONS = frozenset({"blocked-login", "http-401", "logged-out"})
REFUSED = frozenset({"http-403", "http-429", "http-451", "http-503"})
MOST_NAMED = 3  # reasons of dead letters


class Outcome(StrEnum):
    DONE = "done"
    WARNINGS = "done with warnings"
    EMPTY = "empty"
    HELD_BACK = "held back"
    INCOMPLETE = "incomplete"
    FAILED = "failed"


EXIT_CODES = {
    Outcome.DONE: 0,
    Outcome.FAILED: 1,
    Outcome.WARNINGS: 3,
    Outcome.EMPTY: 4,
    Outcome.HELD_BACK: 5,
    Outcome.INCOMPLETE: 6,
}  # of `gossamer crawl`; 2 is a usage error, 130 a crawl that was stopped and can go on


class Reason(msgspec.Struct, frozen=True):
    """Why an outcome is not `done`: a stable word for programs, and a sentence for people."""

    code: str
    message: str


class JobOutcome(msgspec.Struct, frozen=True):
    """What a job was worth, and what it did to the records. Stored with the job when it ends, and settled again when
    its dead letters were resolved or purged since: then `settled_at` is when, `first` is the outcome with which it
    ended, and `later` says how many letters were settled since, by how that was done."""

    outcome: Outcome
    reasons: tuple[Reason, ...] = ()
    settled_at: float | None = None
    records: RunRecords | None = None  # None: it ended without coming to its end, or records were not counted
    dead: int = 0  # dead letters that it has
    first: Outcome | None = None
    later: dict[str, int] = {}

    @property
    def in_words(self) -> str:
        """`empty: no record came from 12 pages`"""
        return f"{self.outcome.value}: {self.reasons[0].message}" if self.reasons else self.outcome.value


class Expectations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run must reach for its outcome to be `done`. None expects nothing."""

    min_records: int | None = None  # 0: the spider need not yield any
    min_pages: int | None = None
    max_dead_share: float | None = None  # of the pages that were tried, 0 to 1
    max_change: float | None = None  # of the number of records since the last run, 0 to 1; 0.5: halved, or half more

    def or_else(self, others: Expectations) -> Expectations:
        """These expectations, with the others filling in those that are None."""
        chosen = {
            name: getattr(others if getattr(self, name) is None else self, name) for name in self.__struct_fields__
        }
        return Expectations(**chosen)

    def fault(self) -> str:
        """What is not a valid expectation, like `min_records = -1 must be 0 or more`; "" if all are."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is None:
                continue
            is_share = name.startswith("max_")
            if isinstance(value, bool) or not isinstance(value, int | float if is_share else int) or not value >= 0:
                return f"{name} = {value!r} must be {'a share, like 0.2' if is_share else 'a number, 0 or more'}"
            if name == "max_dead_share" and value > 1:
                return f"{name} = {value!r} must be a share between 0 and 1, like 0.05"
        return ""


class LastRun(msgspec.Struct, frozen=True):
    """The previous run that stood for the same records, and how many it saw."""

    job: str
    records: int


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job when it ends."""

    ending: str
    pages: int  # that came, changed or not
    records: int  # that it saw
    dead: Mapping[str, int] = {}  # pages that were given up, by reason
    failing: str = ""  # what most of them say
    limit: int | None = None  # of pages, that a person named
    cut: tuple[Reason, ...] = ()  # links that a limit of URLs left out
    guessed: tuple[Reason, ...] = ()  # links that were left out because of a guess
    stopped: str = ""  # why its spider has ended it early
    failure: str = ""  # why not one page could be fetched
    gives_records: bool = False  # its spider declares items, or yielded some before
    expected: Expectations = Expectations()
    last: LastRun | None = None
    lost: int = 0  # results that an operator has given up
    trouble: str = ""  # with a source that could be read only in part
    doubt: str = ""  # why no record was marked as gone
    conflicts: str = ""  # items that share a key with a different item, in words
    items: str = ""  # what became of those that were yielded, in words: `20 yielded = 20 faulty`


def implied(ending: str) -> JobOutcome | None:
    """The outcome that follows from the ending alone; None if more must be known."""
    word, _, why = ending.partition(": ")
    match word:
        case "source failed":
            return JobOutcome(Outcome.FAILED, (Reason("source-failed", why or "its source could not be read"),))
        case "cancelled":
            return JobOutcome(Outcome.INCOMPLETE, (Reason("cancelled", "it was cancelled"),))
        case "replaced":
            return JobOutcome(Outcome.INCOMPLETE, (Reason("replaced", "a newer job of the same name replaced it"),))
        case "limit":
            return JobOutcome(
                Outcome.INCOMPLETE, (Reason("limit", "its limit of pages is reached; others were not fetched"),)
            )
    return None


def later_in_words(later: Mapping[str, int], first: Outcome | None) -> str:
    """`1 dead letter: fetched by books-10; it had ended as done with warnings`; "" if none was settled later."""
    if not later:
        return ""
    ways = ", ".join(how if len(later) == 1 else f"{count:,} {how}" for how, count in later.items())
    ended = f"; it had ended as {first.value}" if first is not None else ""
    return f"{many(sum(later.values()), 'dead letter')}: {ways}{ended}"


FEWER_RECORDS = "fewer-records"
LASTING = frozenset({"lost-results", FEWER_RECORDS})  # reasons that do not follow from what is known later


def settled_again(before: JobOutcome, facts: JobFacts, records: RunRecords | None, now: float, how: str) -> JobOutcome:
    """The outcome of a job that ended with the outcome `before`, by what is known of it and its records now. `how` its
    dead letters were settled: `fetched by books-10`."""
    found = outcome_of(facts)
    if found.outcome is Outcome.EMPTY and before.outcome is not Outcome.EMPTY:
        # Its pages came in another run, or its letters were purged: that says nothing about its spider.
        found = before
    all_seen = records is not None and records.unseen == 0  # then nothing is in doubt any more
    kept = tuple(
        one
        for one in before.reasons
        if one.code in LASTING and one not in found.reasons and not (all_seen and one.code == FEWER_RECORDS)
    )
    word = Outcome.WARNINGS if kept and found.outcome is Outcome.DONE else found.outcome
    dead = sum(facts.dead.values())
    later = dict(before.later)
    if dead < before.dead:
        later[how] = later.get(how, 0) + before.dead - dead
    return JobOutcome(
        word, (*found.reasons, *kept), now, records, dead=dead, first=before.first or before.outcome, later=later
    )


def at_limit(facts: JobFacts) -> bool:
    """Did the run stop at the limit of pages that a person named?"""
    return facts.ending == "limit" and not facts.stopped and facts.limit is not None


def outcome_of(facts: JobFacts) -> JobOutcome:
    """The outcome of a job that has ended. The worst finding gives the word; the reasons list all."""
    found = [*_failures(facts), *_held_back(facts), *_incomplete(facts), *_empty(facts), *_warnings(facts)]
    if at_limit(facts):
        found.append((Outcome.DONE, Reason("limit", f"stopped at your limit of {many(facts.limit or 0, 'page')}")))
    return JobOutcome(found[0][0] if found else Outcome.DONE, tuple(reason for _, reason in found))


Found = list[tuple[Outcome, Reason]]


def _failures(facts: JobFacts) -> Found:
    known = implied(facts.ending)
    if known is not None and known.outcome is Outcome.FAILED:
        return [(known.outcome, reason) for reason in known.reasons]
    if facts.failure and not facts.dead.get(BUDGET_REASON) and not facts.dead.get(HELD_BACK_REASON):
        return [(Outcome.FAILED, Reason("nothing-came", facts.failure))]
    return []


def _held_back(facts: JobFacts) -> Found:
    held = facts.dead.get(HELD_BACK_REASON, 0)
    if not held:
        return []
    words = f"the quality guard holds {many(held, 'page')} back (gossamer dead list --reason quality)"
    return [(Outcome.HELD_BACK, Reason("quality", words))]


def _incomplete(facts: JobFacts) -> Found:
    known, found = implied(facts.ending), Found()
    if facts.stopped:
        found.append((Outcome.INCOMPLETE, Reason("stopped", f"its spider ended it: {facts.stopped}")))
    elif known is not None and known.outcome is Outcome.INCOMPLETE and not at_limit(facts):
        found += [(known.outcome, reason) for reason in known.reasons]
    found += [(Outcome.INCOMPLETE, reason) for reason in facts.cut]
    if unpaid := facts.dead.get(BUDGET_REASON, 0):
        words = f"no credits were left for {many(unpaid, 'page')} (router.budget_...)"
        found.append((Outcome.INCOMPLETE, Reason("budget", words)))
    return found


def _empty(facts: JobFacts) -> Found:
    """No record from a spider that yields records, and the visible causes."""
    if facts.records or facts.failure or facts.expected.min_records == 0:
        return []
    if not facts.pages + sum(facts.dead.values()):  # nothing was due
        return []
    if not facts.gives_records and not facts.expected.min_records:
        return []
    causes = _causes(facts)
    words = f"no record came from {many(facts.pages, 'page')}"
    return [(Outcome.EMPTY, Reason("no-records", words)), *((Outcome.EMPTY, cause) for cause in causes)]


def _causes(facts: JobFacts) -> list[Reason]:
    causes = []
    if walled := sum(facts.dead.get(reason, 0) for reason in LOGGED_OUT_REASONS):
        causes.append(Reason("logged-out", f"{many(walled, 'page')} wanted a login"))
    blocked = {
        reason: count
        for reason, count in facts.dead.items()
        if reason not in LOGGED_OUT_REASONS and (reason.startswith("blocked") or reason in REFUSED)
    }
    if blocked:
        causes.append(Reason("blocked", f"{many(sum(blocked.values()), 'page')} were blocked ({', '.join(blocked)})"))
    if unread := facts.dead.get("parse", 0):
        causes.append(Reason("not-understood", f"the spider failed on {many(unread, 'page')}"))
    if facts.items:
        causes.append(Reason("not-stored", f"items were found, and none is stored: {facts.items}"))
    elif facts.pages:
        causes.append(Reason("nothing-found", "its spider yielded no item"))
    return causes


def _warnings(facts: JobFacts) -> Found:
    reasons, expected = [], facts.expected
    if expected.min_records and 0 < facts.records < expected.min_records:
        words = f"{many(facts.records, 'record')} where {expected.min_records:,} or more are expected"
        reasons.append(Reason("min-records", words))
    if expected.min_pages and facts.pages < expected.min_pages:
        words = f"{many(facts.pages, 'page')} where {expected.min_pages:,} or more are expected"
        reasons.append(Reason("min-pages", words))
    if facts.conflicts:
        reasons.append(Reason(CONFLICT_REASON, facts.conflicts))
    reasons += _dead(facts)
    reasons += _change(facts)
    if facts.lost:
        reasons.append(Reason("lost-results", f"{many(facts.lost, 'result')} were given up (gossamer spool forget)"))
    reasons += facts.guessed
    if facts.trouble:
        reasons.append(Reason("source", f"part of its source could not be read: {facts.trouble}"))
    return [(Outcome.WARNINGS, reason) for reason in reasons]


def _dead(facts: JobFacts) -> list[Reason]:
    """Too many dead letters. Without an expectation, pages that do not exist cause no warning, and all others do."""
    most = facts.expected.max_dead_share
    apart = {HELD_BACK_REASON, BUDGET_REASON} if most is not None else {HELD_BACK_REASON, BUDGET_REASON, *NOT_FOUND}
    dead = {reason: count for reason, count in facts.dead.items() if reason not in apart and count}
    count, tried = sum(dead.values()), facts.pages + sum(facts.dead.values())
    if not count or facts.failure or (most is not None and count <= most * tried):
        return []
    by_count = sorted(dead.items(), key=lambda one: -one[1])
    others = sum(n for _, n in by_count[MOST_NAMED:])
    names = [f"{n:,} {reason}" for reason, n in by_count[:MOST_NAMED]]
    named = ", ".join([*names, f"{others:,} for other reasons"] if others else names)
    missing = sum(facts.dead.get(reason, 0) for reason in NOT_FOUND)
    if most is not None:
        note = f", where a share of {most:.3g} is allowed"
    else:
        note = f", beside {many(missing, 'dead link')}" if missing else ""
    said = f"; {facts.failing}" if facts.failing else ""
    return [Reason("dead-letters", f"{count:,} of {many(tried, 'page')} ended as dead letters ({named}){note}{said}")]


def _change(facts: JobFacts) -> list[Reason]:
    last, most = facts.last, facts.expected.max_change
    if (
        last is not None
        and not at_limit(facts)
        and most is not None
        and last.records
        and abs(facts.records - last.records) > most * last.records
    ):
        words = (
            f"{many(facts.records, 'record')} where {last.job} saw {last.records:,}, more than {most:.3g} of it apart"
        )
        return [Reason("max-change", words)]
    return [Reason(FEWER_RECORDS, facts.doubt.rstrip("."))] if facts.doubt else []
