"""The main content of any page: every paragraph that is likely to be content is kept, wherever it stands.

Articles have one element that holds their text (main_content.py). Other pages do not: a forum has posts, a shop has a
description and reviews, a service has sections. There each paragraph is judged by its traits (traits.py), with weights
that were learned from pages whose content is known (`python -m quality.fit`).

How it fails: of a page with more than MOST_LINES paragraphs none is judged. Nothing raises.
"""

from __future__ import annotations

from math import exp

from .kind import KindOfPage
from .main_content import strike_lines
from .outline import Paragraph
from .traits import NAMES, Survey, traits_of
from .weights import CONTENT

MOST_LINES = 20_000
_WEIGHTS = [CONTENT.of[name] for name in NAMES]
_VERY, _QUITE, _RATHER = 0.9, 0.8, 0.6
_ENOUGH = 0.25  # how likely a paragraph must be content to stay
_LONG = 45  # letters from which on a copy is one, wherever the other stands; a short one may be the same price again
_CELLS = frozenset(("dd", "dt", "pre", "td", "th"))


def likelihoods(survey: Survey) -> list[float]:
    """For every paragraph of the survey how likely it is content, from 0 to 1."""
    weights = _WEIGHTS
    start = CONTENT.bias + sum(weights[trait] for trait in survey.common_traits())
    return [1 / (1 + exp(-max(-30.0, start + sum([weights[t] for t in traits])))) for traits in traits_of(survey)]


def share_kept(survey: Survey, likely: list[float], kind: KindOfPage, top: int) -> float:
    """The share of the very likely content that is inside the element `top` and not struck out.

    Beside what is surely an article there are teasers that look like text: less counts as content there, as it does in
    what looks like a margin, such as the comments below a text.
    """
    article = kind.name == "article"
    outline, whole, kept = survey.outline, 1, 1
    for one, likelihood in zip(survey.lines, likely, strict=True):
        if likelihood >= (_VERY if article else _QUITE if survey.margins[one.block] else _RATHER):
            whole += one.letters
            if outline.within(one.block, top) and not outline.struck[one.block] and not one.gone:
                kept += one.letters
    return kept / whole


def strike_unlikely(survey: Survey, likely: list[float]) -> None:
    """Strike out every paragraph that is not likely to be content, and copies of others: posts quote each other, and
    pages show a name twice, for phones and for desks."""
    outline, nothing = survey.outline, bytes(len(survey.outline.elements))
    gone: list[Paragraph] = []
    last: dict[str, int] = {}
    for at, (one, likelihood) in enumerate(zip(survey.lines, likely, strict=True)):
        if likelihood < _ENOUGH:
            gone.append(one)
            continue
        text = one.text(nothing)
        copied = text in last and (one.letters >= _LONG or at == last[text] + 1)
        if copied and outline.tags[one.block] not in _CELLS:
            gone.append(one)
        last[text] = at
    strike_lines(outline, 0, survey.lines, gone)
