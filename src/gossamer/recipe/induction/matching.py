"""Which record a page or a block of one shows whose address is not that of any record: the one whose key stands on it,
and most of whose other values; without a key that can be read, the one whose own texts stand there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model import FieldType
from .goal import Goal, Sample, plain
from .readings import Wanted
from .spots import Spot, spots_of

_LONGEST = 200  # characters of a text whose words may be a key
_SHORTEST = 5  # characters of a text that may tell records apart
_MOST = 8  # records whose other values are compared


class RecordIndex:
    """Records by their keys and by the texts that only one of them has. `records` are their values by key."""

    def __init__(self, records: Mapping[str, Mapping[str, Any]], goals: Sequence[Goal]) -> None:
        self._records = records
        self._goals = list(goals)
        self._by_text: dict[str, str] = {}  # "" for a text of several records
        for key, values in records.items():
            for goal in goals:
                value = values.get(goal.name)
                if goal.type in (FieldType.TEXT, FieldType.URL) and isinstance(value, str):
                    text = plain(value)
                    if _SHORTEST <= len(text) <= _LONGEST:
                        self._by_text[text] = "" if self._by_text.get(text, key) != key else key

    def __len__(self) -> int:
        return len(self._records)

    def match(self, sample: Sample) -> str | None:
        """The key of the record, or None if none or several fit."""
        spots = spots_of(sample)
        words = {word for spot in spots for word in _words(spot, sample)}
        if sample.part.element is None:
            words |= set(plain(sample.part.view.page.url).replace("/", " ").replace("-", " ").split())
        found = [key for key in words if key in self._records][: _MOST + 1]
        if not found:
            votes = Counter(key for word in words if (key := self._by_text.get(word)))
            (first, most), (_, less), *_ = [*votes.most_common(2), ("", 0), ("", 0)]
            return first if most > less else None
        if len(found) == 1 or len(found) > _MOST:
            return found[0] if len(found) == 1 else None
        counted = sorted(((self._held(spots, key), key) for key in found), reverse=True)
        return counted[0][1] if counted[0][0] > counted[1][0] else None

    def named_in(self, spot: Spot, sample: Sample) -> str:
        """The key of the record that this spot alone names; "" if it names none."""
        for word in _words(spot, sample):
            key = word if word in self._records else self._by_text.get(word)
            if key:
                return key
        return ""

    def _held(self, spots: Sequence[Spot], key: str) -> int:
        """How many values of the record stand on the page."""
        wanted = Wanted(self._goals, dict(self._records[key]))
        return len({at for spot in spots for at, reading in wanted.readings(spot, "") if not reading})


def _words(spot: Spot, sample: Sample) -> Iterator[str]:
    if len(spot.text) <= _LONGEST:
        yield spot.text
        yield from spot.text.split()
        if spot.take == "::attr(href)":
            yield sample.part.view.page.urljoin(spot.text)
