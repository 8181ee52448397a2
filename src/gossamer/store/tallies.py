"""Adding up what the quality checks counted, before it is written: many pages, few rows."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.record import Tally

TallyKey = tuple[str, str, str, str, str]  # day, spider, type, field, rule: the order in which rows are written


def added_up(tallies: Iterable[Tally]) -> list[tuple[TallyKey, tuple[int, int, int]]]:
    """The sums of checked, filled and faulty for each key, in the order of keys: every writer takes the same way."""
    sums: dict[TallyKey, list[int]] = {}
    for tally in tallies:
        key = (tally.day, tally.spider, tally.type, tally.field, tally.rule)
        one = sums.get(key)
        if one is None:
            one = sums[key] = [0, 0, 0]
        one[0] += tally.checked
        one[1] += tally.filled
        one[2] += tally.faulty
    return [(key, (one[0], one[1], one[2])) for key, one in sorted(sums.items())]
