"""`Claims`: what the sources of a page say about the product, and which of them is believed.

Every source puts its claims here with a confidence of its own. Claims for the same value from different sources
support each other; the value with the most support is believed. A source that repeats itself gains nothing.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NamedTuple

from ...model.money import Money
from .values import Found, Source

_MOST = 50  # values of one source kept for one field: more come only from a page that lists many things
_SUREST = 0.99
_MARKS = re.compile(r"[\W_]+")


class Claim(NamedTuple):
    value: Any  # whatever the field holds
    source: Source
    confidence: float


class Claims:
    """The claims about one product, by field."""

    __slots__ = ("_by_field",)

    def __init__(self) -> None:
        self._by_field: dict[str, dict[tuple[Source, object], Claim]] = {}

    def add(self, field: str, value: object, source: Source, confidence: float) -> None:
        """Note a claim. None, empty texts and empty lists say nothing and are not kept."""
        if value is None or value == "" or value == ():
            return
        claims = self._by_field.setdefault(field, {})
        key = (source, sameness(value))
        known = claims.get(key)
        if known is None:
            if sum(each is source for each, _ in claims) < _MOST:
                claims[key] = Claim(value, source, confidence)
        elif confidence > known.confidence:
            claims[key] = Claim(value, source, confidence)

    def of(self, field: str) -> list[Claim]:
        return list(self._by_field.get(field, {}).values())

    def surest(self, field: str) -> float:
        """How sure the believed value is; 0 when nothing is claimed."""
        found = self.settle(field)
        return found.confidence if found is not None else 0.0

    def settle(self, field: str) -> Found | None:
        """The value with the most support, or None. Of equal ones the first that was claimed."""
        support: dict[object, list[Claim]] = {}
        for (_, same), claim in self._by_field.get(field, {}).items():
            support.setdefault(same, []).append(claim)
        best: Found | None = None
        for voices in support.values():
            doubt = 1.0
            for claim in voices:
                doubt *= 1 - claim.confidence
            sure = min(1 - doubt, _SUREST)
            if best is None or sure > best.confidence + 1e-9:
                strongest = max(voices, key=lambda claim: claim.confidence)
                best = Found(_fullest(strongest, voices), strongest.source.value, round(sure, 3))
        return best


def _fullest(strongest: Claim, voices: list[Claim]) -> Any:
    """Of several writings of one text the longest, which has the marks: "466/7999" and not "4667999"."""
    if not isinstance(strongest.value, str):
        return strongest.value
    return max((strongest, *voices), key=lambda claim: len(str(claim.value))).value


def sameness(value: object) -> object:
    """What two claims must share to be for the same value: "466/7999" and "4667999" are one, "9 EUR" and "9.00" too."""
    if isinstance(value, Money):
        return value.amount.normalize()
    if isinstance(value, Decimal | float | int):
        return float(value)
    if isinstance(value, str):
        return _MARKS.sub("", value).casefold() or value
    return value
