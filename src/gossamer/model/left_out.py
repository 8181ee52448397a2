"""What it means for a run that URLs were left out: the outcome at least, and whether the run is still evidence that a
record is gone. Pure. docs/concepts.md has the same table, "What can leave something out".

A rule of a person or of the site leaves a run whole: those pages were not wanted. A limit cuts it short. A guess of
ours (a trap) is stated as a warning.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..units import many
from .outcome import Outcome, Reason
from .task import DropReason


class LeftOut(msgspec.Struct, frozen=True):
    """One way in which URLs are left out. `words` follow their number, where the outcome is not `done`."""

    outcome: Outcome
    proves_gone: bool  # may a run with such URLs mark records that it did not see as gone?
    words: str = ""


PURGED, ERASED = "purged", "erased"
LEFT_OUT: Mapping[str, LeftOut] = {
    DropReason.DUPLICATE: LeftOut(Outcome.DONE, True),
    DropReason.ROBOTS: LeftOut(Outcome.DONE, True),
    DropReason.SCOPE: LeftOut(Outcome.DONE, True),
    DropReason.DEPTH: LeftOut(Outcome.DONE, True),
    DropReason.INVALID: LeftOut(Outcome.DONE, True),
    DropReason.FRESH: LeftOut(Outcome.DONE, False),
    DropReason.UNMODIFIED: LeftOut(Outcome.DONE, False),
    DropReason.TRAP: LeftOut(
        Outcome.WARNINGS, False, "left out as traps (crawl.max_url_length, crawl.max_path_segments, repeated paths)"
    ),
    DropReason.PATTERN_LIMIT: LeftOut(Outcome.INCOMPLETE, False, "left out beyond crawl.max_urls_per_pattern"),
    DropReason.SITE_LIMIT: LeftOut(Outcome.INCOMPLETE, False, "left out beyond crawl.max_urls_per_site"),
    PURGED: LeftOut(Outcome.DONE, False),
    ERASED: LeftOut(Outcome.DONE, False),
    "cancelled": LeftOut(Outcome.INCOMPLETE, False, "left out when the job was cancelled"),
    "replaced": LeftOut(Outcome.INCOMPLETE, False, "left out when the job was replaced"),
}
_UNKNOWN = LeftOut(Outcome.INCOMPLETE, False, "left out for a reason that this version does not know")


def left_out(reason: str) -> LeftOut:
    """The meaning of a reason in `JobCounts.drops`."""
    return LEFT_OUT.get(reason, _UNKNOWN)


def proves_gone(drops: Mapping[str, int]) -> bool:
    """Is a run that dropped these URLs evidence about pages that it did not see?"""
    return all(left_out(reason).proves_gone for reason, count in drops.items() if count)


def reasons_of(drops: Mapping[str, int], outcome: Outcome) -> list[Reason]:
    """The sentences for those drops that make a run `outcome`, the most frequent first."""
    by_count = sorted(drops.items(), key=lambda one: -one[1])
    return [
        Reason(reason, f"{many(count, 'link')} {left_out(reason).words} (gossamer status shows the counts)")
        for reason, count in by_count
        if count and left_out(reason).outcome is outcome
    ]
