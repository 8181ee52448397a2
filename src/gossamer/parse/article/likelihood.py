"""The main content of any page: every paragraph that is likely to be content is kept, wherever it stands.

Articles have one element that holds their text (main_content.py). Other pages do not: a forum has posts, a shop has a
description and reviews, a service has sections. There each paragraph is judged by its traits (traits.py), with weights
that were learned from pages whose content is known (`python -m quality.fit`). How likely is likely enough depends on
the kind of the page.

How it fails: of a page with more than MOST_LINES paragraphs none is judged. Nothing raises.
"""

from __future__ import annotations

from math import exp

from .kind import KindOfPage
from .main_content import strike_lines
from .traits import NAMES, Survey, traits_of
from .weights import CONTENT

MOST_LINES = 20_000
_WEIGHTS = [CONTENT.of[name] for name in NAMES]
_VERY, _RATHER = 0.9, 0.6
# How likely a paragraph must be content; where the best F1 was on pages of that kind.
_ENOUGH = {
    "article": 0.40, "collection": 0.25, "documentation": 0.27, "forum": 0.37, "listing": 0.28, "other": 0.30,
    "product": 0.37, "service": 0.25,
}  # fmt: skip


def likelihoods(survey: Survey) -> list[float]:
    """For every paragraph of the survey how likely it is content, from 0 to 1."""
    weights = _WEIGHTS
    start = CONTENT.bias + sum(weights[trait] for trait in survey.common_traits())
    return [1 / (1 + exp(-max(-30.0, start + sum([weights[t] for t in traits])))) for traits in traits_of(survey)]


def share_kept(survey: Survey, likely: list[float], kind: KindOfPage, top: int) -> float:
    """The share of the very likely content that is inside the element `top` and not struck out.

    Beside what is surely an article there are teasers that look like text: less counts as content there.
    """
    very = _VERY if kind.name == "article" else _RATHER
    outline, whole, kept = survey.outline, 1, 1
    for one, likelihood in zip(survey.lines, likely, strict=True):
        if likelihood >= very:
            whole += one.letters
            if outline.within(one.block, top) and not outline.struck[one.block] and not one.gone:
                kept += one.letters
    return kept / whole


def strike_unlikely(survey: Survey, likely: list[float], kind: KindOfPage) -> None:
    """Strike out every paragraph that is not likely to be content."""
    gone = [one for one, likelihood in zip(survey.lines, likely, strict=True) if likelihood < _ENOUGH[kind.name]]
    strike_lines(survey.outline, 0, survey.lines, gone)
