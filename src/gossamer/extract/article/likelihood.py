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
from .traits import GROUP_BITS, NAMES, Survey, traits_of
from .weights import CONTENT

MOST_LINES = 20_000
_WEIGHTS = [CONTENT.of[name] for name in NAMES]
_VERY, _QUITE, _RATHER = 0.9, 0.8, 0.6
_ENOUGH = 0.25  # how likely a paragraph must be content to stay
_MOST = 0.7  # of the very likely content; an element that has less of it is not the text
_SURELY = 0.7  # confidence that a page is an article
_FIRM = 80  # letters that make a paragraph surely text
_OF_MARGINS = 0.1  # what text in margins counts beside other text
_BESIDE = 2.0  # times what an element keeps; with more likely content outside, it is one part of many
_LISTS = frozenset(("dl", "ol", "table", "tbody", "tr", "ul"))
_LONG = 45  # letters from which on a copy is one, wherever the other stands; a short one may be the same price again
_CELLS = frozenset(("dd", "dt", "pre", "td", "th"))


def likelihoods(survey: Survey) -> list[float]:
    """For every paragraph of the survey how likely it is content, from 0 to 1."""
    weights = _WEIGHTS
    start = CONTENT.bias + sum(weights[trait] for trait in survey.common_traits())
    return [1 / (1 + exp(-max(-30.0, start + sum([weights[t] for t in traits])))) for traits in traits_of(survey)]


def holds_the_text(survey: Survey, likely: list[float], kind: KindOfPage, top: int) -> bool:
    """True when the element `top`, without what is struck out in it, is all of the text: it has most of the very likely
    content, and not much more is likely content outside. A list is a part of a text, and so is one of "the ten best".

    Beside what is surely an article there are teasers that look like text: less counts as content there, as it does in
    what looks like a margin. The comments below such a text do not count at all, they may be longer than it is.
    """
    outline, article = survey.outline, kind.name == "article"
    if outline.tags[top] in _LISTS:
        return False
    comments = GROUP_BITS["reply"] if article and kind.confidence >= _SURELY else 0
    whole, kept, inside, outside = 1, 1, 0.0, 0.0
    for one, likelihood in zip(survey.lines, likely, strict=True):
        in_margin = survey.margins[one.block]
        if in_margin and survey.places.below[one.block] & comments:
            continue
        is_kept = outline.within(one.block, top) and not outline.struck[one.block] and not one.gone
        if likelihood >= (_VERY if article else _QUITE if in_margin else _RATHER):
            whole += one.letters
            kept += one.letters if is_kept else 0
        if is_kept:
            inside += one.letters
        elif likelihood >= _RATHER and one.letters >= _FIRM:
            outside += one.letters * (_OF_MARGINS if in_margin else 1.0)
    return kept >= _MOST * whole and outside <= _BESIDE * inside


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
