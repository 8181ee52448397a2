"""A step that leaves out near-duplicates: items whose text is almost the same as one seen before.

    class News(Spider):
        pipeline = [NearDuplicates("text")]

Texts are compared by a fingerprint of 64 bits made of their runs of three words (simhash): nearly the same words in
nearly the same order give nearly the same bits. A text of fewer than eight words is too short for that: it counts as
the same only if it is equal. An item is compared with others, never with itself: an item whose key was seen before
passes. The step remembers the last `remembers` items of its process and forgets the oldest; it does not ask other
workers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import blake2b

from ..errors import Misconfigured
from ..model.item import AnyItem, item_key
from .steps import Drop

_WORD = re.compile(r"\w+")
_BITS = 64
_BANDS = 4  # two fingerprints that differ in at most three bits agree in one of four parts
_LONGEST = 100_000  # characters of a text that are compared
_SHORTEST = 8  # words; shorter texts must be equal


class NearDuplicates:
    """A pipeline step. `field` names the text to compare; `distance` (0 to 3) is how many of the 64 bits may differ."""

    def __init__(self, field: str, *, distance: int = 3, remembers: int = 100_000) -> None:
        if not 0 <= distance < _BANDS:
            raise Misconfigured(f"NearDuplicates: distance = {distance} must be 0, 1, 2 or 3.")
        self.__name__ = "near-duplicate"
        self._field = field
        self._distance = distance
        self._remembers = remembers
        self._seen: OrderedDict[str, int] = OrderedDict()
        self._bands: dict[tuple[int, int], set[str]] = {}

    def __call__(self, item: AnyItem, page: object) -> AnyItem | Drop:
        text = item.get(self._field) if isinstance(item, dict) else getattr(item, self._field, None)
        if not isinstance(text, str) or not text:
            return item
        key, print_ = item_key(item), simhash(text)
        twin = self._twin(key, print_)
        if twin is not None:
            return Drop(f"nearly the same as {twin}")
        self._remember(key, print_)
        return item

    def _twin(self, key: str, print_: int) -> str | None:
        for band in _bands(print_):
            for other in self._bands.get(band, ()):
                if other != key and (self._seen[other] ^ print_).bit_count() <= self._distance:
                    return other
        return None

    def _remember(self, key: str, print_: int) -> None:
        self._forget(key)
        self._seen[key] = print_
        for band in _bands(print_):
            self._bands.setdefault(band, set()).add(key)
        while len(self._seen) > self._remembers:
            self._forget(next(iter(self._seen)))

    def _forget(self, key: str) -> None:
        old = self._seen.pop(key, None)
        if old is None:
            return
        for band in _bands(old):
            self._bands[band].discard(key)
            if not self._bands[band]:
                del self._bands[band]


def simhash(text: str) -> int:
    """A fingerprint of 64 bits: texts that are nearly the same share nearly all bits."""
    words = _WORD.findall(text[:_LONGEST].lower())
    if len(words) < _SHORTEST:
        return _hash(text)
    weights = [0] * _BITS
    for start in range(len(words) - 2):
        bits = _hash(" ".join(words[start : start + 3]))
        for bit in range(_BITS):
            weights[bit] += 1 if bits >> bit & 1 else -1
    return sum(1 << bit for bit, weight in enumerate(weights) if weight > 0)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _bands(print_: int) -> list[tuple[int, int]]:
    width = _BITS // _BANDS
    return [(band, print_ >> band * width & (1 << width) - 1) for band in range(_BANDS)]
