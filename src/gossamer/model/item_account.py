"""The account of items: what became of every item that the spiders' code yielded. Values without I/O.

A page has one account per job, that of its last settlement: storing the page again replaces it, so a retry, a crash
between storing and settling, or a replay of a dead letter counts each item once. The record store writes it in the
commit that stores the records, because only there is it known whether a record is new (store/record_rules.py).

    new, changed, unchanged  what the item did to the stored record
    back                     its record had been marked as gone, and was found again
    equal                    another item of this run has the same key and content
    conflict                 another item of this run has the same key and other content; of the two, the newer is kept
    held                     not stored: the quality guard, store.min_rewrite_age, or a newer scrape
    dropped                  by a step of the pipeline
    faulty                   dropped, or failed with its page, because its type says so (`on_fault`) or it is not as
                             declared
    lost                     with its page: the callback, or the pipeline, failed later
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, get_args

import msgspec

OnFault: TypeAlias = Literal["store", "drop", "fail"]  # what becomes of an item that a quality rule finds faulty
ON_FAULT: tuple[OnFault, ...] = get_args(OnFault)
ON_FAULT_WORDS = '"store", "drop" or "fail"'

NEW, CHANGED, BACK, UNCHANGED, EQUAL, CONFLICT = "new", "changed", "back", "unchanged", "equal", "conflict"
HELD, DROPPED, FAULTY, LOST = "held", "dropped", "faulty", "lost"
STATES = (NEW, CHANGED, BACK, UNCHANGED, EQUAL, CONFLICT, HELD, DROPPED, FAULTY, LOST)
STATE_WORDS = {
    EQUAL: "equal to another of this run",
    CONFLICT: "in conflict",
    HELD: "held back",
    DROPPED: "dropped by a step",
    LOST: "lost with their page",
}  # as people read them; the others are their own word
MOST_REASONS = 50  # names per job; all others are added up under one for each step
OTHER_REASONS = "other reasons"
REASON_OF_STEP = ": "  # between a step of the pipeline and its reason
LONGEST_EXAMPLE = 300  # characters of a key or URL


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """An example of two different items with one key."""

    type: str
    key: str
    url: str  # the page of the second one


class ItemCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How many items ended in which state. Always: yielded == the sum of the states.

    `reasons` says by what items were held back or dropped. `fine` and `flawed` are what the quality checks found, and
    `shared` counts items whose record another spider writes as well; they are not states.
    """

    yielded: int = 0
    new: int = 0
    changed: int = 0
    back: int = 0
    unchanged: int = 0
    equal: int = 0
    conflict: int = 0
    held: int = 0
    dropped: int = 0
    faulty: int = 0
    lost: int = 0
    fine: int = 0
    flawed: int = 0
    shared: int = 0
    reasons: dict[str, int] = {}
    example: Conflict | None = None  # of a conflict
    shared_with: str = ""  # a spider that writes the shared records
    parser: str = ""  # the version of the code that yielded them, in the account of one page

    def states(self) -> dict[str, int]:
        """The states that items are in, with their numbers."""
        return {name: count for name in STATES if (count := getattr(self, name))}

    @property
    def says_nothing(self) -> bool:
        return not self.yielded and not self.flawed


COUNT_FIELDS = ItemCounts.__struct_fields__[:14]  # from yielded to shared
NO_ITEMS = ItemCounts()


def summed_items(counts: Iterable[ItemCounts]) -> ItemCounts:
    """The account of several pages, or jobs."""
    sums = dict.fromkeys(COUNT_FIELDS, 0)
    reasons: dict[str, int] = {}
    example, shared_with = None, ""
    for one in counts:
        for name in COUNT_FIELDS:
            sums[name] += getattr(one, name)
        add_reasons(reasons, one.reasons)
        example, shared_with = example or one.example, shared_with or one.shared_with
    return msgspec.structs.replace(ItemCounts(reasons=reasons, example=example, shared_with=shared_with), **sums)


def add_reasons(sums: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        step, says, _ = name.partition(REASON_OF_STEP)
        other = f"{step}{REASON_OF_STEP}{OTHER_REASONS}" if says else OTHER_REASONS
        known = name if name in sums or len(sums) < MOST_REASONS else other
        sums[known] = sums.get(known, 0) + count
