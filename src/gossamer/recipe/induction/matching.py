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
_DISTINCT = 0.9  # of the values of a field that may tell records apart
_KEYED, _UNKEYED = 0.4, 0.5  # of the values of a record: a page about it has more, with its key and without
_MOST = 8  # records whose other values are compared


class RecordIndex:
    """Records by their keys and by the texts that only one of them has. `records` are their values by key."""

    def __init__(self, records: Mapping[str, Mapping[str, Any]], goals: Sequence[Goal]) -> None:
        self._records = records
        self._goals = list(goals)
        self._by_text: dict[str, str] = {}  # "" for a text of several records
        for goal in goals:
            if goal.type not in (FieldType.TEXT, FieldType.URL):
                continue
            texts = {key: plain(text) for key, one in records.items() if isinstance(text := one.get(goal.name), str)}
            if len(set(texts.values())) < _DISTINCT * len(texts):
                continue  # a brand that one known record has is also that of records that are not known
            for key, text in texts.items():
                if _SHORTEST <= len(text) <= _LONGEST:
                    self._by_text[text] = "" if self._by_text.get(text, key) != key else key

    def __len__(self) -> int:
        return len(self._records)

    def match(self, sample: Sample) -> str | None:
        """The key of the record, or None if none or several fit."""
        spots = spots_of(sample)
        words = {word for spot in spots for word in _words(spot, sample)}
        if sample.part.element is None:
            address = set(plain(sample.part.view.page.url).replace("/", " ").replace("-", " ").split())
            named = [key for key in address if key in self._records]
            if len(named) == 1:
                return named[0]
            words |= address
        found = [key for key in words if key in self._records][: _MOST + 1]
        if not found:
            votes = Counter(key for word in words if (key := self._by_text.get(word)))
            (first, most), (_, less), *_ = [*votes.most_common(2), ("", 0), ("", 0)]
            return first if most > less and self._is_about(spots, first, _UNKEYED) else None
        if len(found) == 1 or len(found) > _MOST:
            alone = len(found) == 1 and (sample.part.element is not None or self._is_about(spots, found[0], _KEYED))
            return found[0] if alone else None
        counted = sorted(((self._held(spots, key), key) for key in found), reverse=True)
        return counted[0][1] if counted[0][0] > counted[1][0] else None

    def named_in(self, spot: Spot, sample: Sample) -> str:
        """The key of the record that this spot alone names; "" if it names none."""
        for word in _words(spot, sample):
            key = word if word in self._records else self._by_text.get(word)
            if key:
                return key
        return ""

    def _is_about(self, spots: Sequence[Spot], key: str, share: float) -> bool:
        """Do enough values of the record stand there? A card of another thing has its name and its price."""
        readable = [value for value in self._records[key].values() if value is not None and not isinstance(value, bool)]
        return self._held(spots, key) > share * len(readable)

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
