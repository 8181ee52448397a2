"""`KindOfPage`: what a page is for, told from its address, its structured data and the look of its text.

What a page says and shows are traits (page_traits.py), and every kind has a weight for each of them, learned from pages
of known kind (`python -m quality.fit`). The confidence is the share of pages with such traits that are of that kind.

How it fails: a page without text has the kind "other" and no confidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import TYPE_CHECKING

import msgspec

from .page_traits import NAMES, page_traits
from .traits import Survey
from .weights import KINDS

if TYPE_CHECKING:
    from ..markup import Markup

OTHER = "other"


class KindOfPage(msgspec.Struct, frozen=True):
    """`name` is article, collection (products), documentation, forum, listing (anything else), product, service or
    other; `confidence` runs from 0 to 1. `all` has the confidence of every kind.
    """

    name: str = OTHER
    confidence: float = 0.0
    all: Mapping[str, float] = {}

    def to_dict(self) -> dict[str, object]:
        """Name and confidence, to be part of an item."""
        return {"kind": self.name, "confidence": self.confidence}


def kind_of(page: Markup, survey: Survey) -> KindOfPage:
    """The kind of a page that has been surveyed."""
    if page.tree is None or not survey.lines:
        return KindOfPage()
    traits = page_traits(page, page.tree, survey)
    sums = {kind: weights.bias + sum(weights.of[NAMES[trait]] for trait in traits) for kind, weights in KINDS.items()}
    most = max(sums.values())
    shares = {kind: exp(total - most) for kind, total in sums.items()}
    whole = sum(shares.values())
    confidences = {kind: round(share / whole, 3) for kind, share in shares.items()}
    name = max(confidences, key=confidences.__getitem__)
    return KindOfPage(name, confidences[name], confidences)
