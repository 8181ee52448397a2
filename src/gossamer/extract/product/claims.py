"""`Claims`: the values that a page's sources give for the product, and the choice among them.

Every source adds claims with its own confidence. Claims for the same value from different sources support each other;
the value with the most support wins. A source gains nothing by repetition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ...model.money import Money

_MOST = 50  # values kept per source and field; only pages that list many things have more
_SUREST = 0.99
_MARKS = re.compile(r"[\W_]+")


class ClaimSource(StrEnum):
    """The part of the page in which a value was found."""

    JSON_LD = "json-ld"
    MICRODATA = "microdata"
    OPEN_GRAPH = "opengraph"
    META = "meta"
    SCRIPT = "page script"
    PAGE = "page"
    ADDRESS = "url"


class FoundValue(msgspec.Struct, frozen=True):
    """One value, its most confident source, and the confidence (0 to 1), which grows with agreeing sources."""

    value: Any  # of the type of the product's field
    source: str
    confidence: float


class Claim(NamedTuple):
    value: Any  # of the type of the product's field
    source: ClaimSource
    confidence: float


class Claims:
    """The claims about one product, by field."""

    __slots__ = ("_by_field",)

    def __init__(self) -> None:
        self._by_field: dict[str, dict[tuple[ClaimSource, object], Claim]] = {}

    def add(self, field: str, value: object, source: ClaimSource, confidence: float) -> None:
        """Add a claim. None, an empty text and an empty tuple are ignored."""
        if value is None or value == "" or value == ():
            return
        claims = self._by_field.setdefault(field, {})
        key = (source, _sameness(value))
        known = claims.get(key)
        if known is None:
            if sum(each is source for each, _ in claims) < _MOST:
                claims[key] = Claim(value, source, confidence)
        elif confidence > known.confidence:
            claims[key] = Claim(value, source, confidence)

    def of(self, field: str) -> list[Claim]:
        return list(self._by_field.get(field, {}).values())

    def revise(self, field: str, change: Callable[[Claim], Claim | None]) -> None:
        """Replace each claim of a field by the result of `change`; None removes the claim."""
        claims = self.of(field)
        self._by_field.pop(field, None)
        for claim in claims:
            changed = change(claim)
            if changed is not None:
                self.add(field, *changed)

    def surest(self, field: str) -> float:
        """The confidence of a field's winning value; 0 without a claim."""
        found = self.settle(field)
        return found.confidence if found is not None else 0.0

    def settle(self, field: str) -> FoundValue | None:
        """The value with the most support, the first claimed on a tie; None without a claim."""
        support: dict[object, list[Claim]] = {}
        for (_, same), claim in self._by_field.get(field, {}).items():
            support.setdefault(same, []).append(claim)
        best: FoundValue | None = None
        for voices in support.values():
            doubt = 1.0
            for claim in voices:
                doubt *= 1 - claim.confidence
            sure = min(1 - doubt, _SUREST)
            if best is None or sure > best.confidence + 1e-9:
                strongest = max(voices, key=lambda claim: claim.confidence)
                best = FoundValue(_fullest(strongest, voices), strongest.source.value, round(sure, 3))
        return best


def _fullest(strongest: Claim, voices: list[Claim]) -> Any:
    """The longest spelling of a text, which keeps the separators: "466/7999" rather than "4667999"."""
    if not isinstance(strongest.value, str):
        return strongest.value
    return max((strongest, *voices), key=lambda claim: len(str(claim.value))).value


def _sameness(value: object) -> object:
    """Claims for the same value share this key: "466/7999" and "4667999" are one value, "9 EUR" and "9.00" too."""
    if isinstance(value, Money):
        return value.amount.normalize()
    if isinstance(value, Decimal | float | int):
        return float(value)
    if isinstance(value, str):
        return _MARKS.sub("", value).casefold() or value
    return value
