"""Which features go together in which story: rows of a table in which every pair of features stands at least once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random

from .features import FEATURES, are_compatible, draft_story
from .teller import failing, tell

Row = tuple[str, ...]


def pairs_of(names: Iterable[str]) -> list[tuple[str, str]]:
    """The pairs that make sense, in the order of the table."""
    chosen = set(names)
    return [pair for pair in combinations([name for name in FEATURES if name in chosen], 2) if are_compatible(*pair)]


def rows(names: Sequence[str], size: int, seed: int) -> list[Row]:
    """Rows of at most `size` features in which every pair stands at least once: the next row is the best of a few that
    begin with a pair that is missing."""
    random, missing, found = Random(seed), set(pairs_of(names)), list[Row]()
    while missing:
        first = min(missing)
        row = list(first)
        while len(row) < size:
            gains = {
                name: sum(1 for one in row if _pair(one, name) in missing)
                for name in names
                if name not in row and all(are_compatible(one, name) for one in row)
            }
            best = max(gains.values(), default=0)
            if not best:
                break
            row.append(random.choice([name for name, gain in gains.items() if gain == best]))
        missing -= {_pair(one, other) for one, other in combinations(row, 2)}
        found.append(tuple(row))
    random.shuffle(found)
    return found


def _pair(one: str, other: str) -> tuple[str, str]:
    order = list(FEATURES)
    return (one, other) if order.index(one) < order.index(other) else (other, one)


def check(row: Row, seed: int, *, by_fork: bool = True) -> None:
    """Tell the story of these features; if it fails, fail with the shortest part of it that does."""

    def fails(names: Row) -> str | None:
        return failing(draft_story(names, seed), lambda story: tell(story, by_fork=by_fork))

    found = fails(row)
    if found is None:
        return
    for size in range(len(row)):
        for part in combinations(row, size):
            if (shorter := fails(part)) is not None:
                raise AssertionError(shorter)
    raise AssertionError(found)
