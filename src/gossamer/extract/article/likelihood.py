"""The main content of any page: every paragraph that is likely to be content is kept, wherever it stands.

Articles have one element that holds their text (main_content.py). Other pages do not: a forum has posts, a shop has a
description and reviews, a service has sections. There each paragraph is judged by its traits (traits.py), with weights
that were learned from pages whose content is known (`python -m quality.fit`).

How it fails: of a page with more than MOST_LINES paragraphs none is judged. Nothing raises.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import exp

from .kind import CONTENT, KindOfPage
from .main_content import strike_lines
from .outline import HEADINGS, LONGEST_NAMES, Outline, Paragraph
from .parts import CARDS_HEADING, REVIEWS_HEADING
from .traits import GROUP_BITS, NAMES, Survey, traits_of

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

_LIKELY = 0.25  # how likely the content is that counts as such
_MOST_ENTRIES = 0.5  # share of the likely content; what holds more is no part beside it
_LONGEST_HEADING = 80  # letters
_NEAR = 2  # elements around a line among which its heading is searched
_WHOLE = frozenset(("body", "html", "main"))
_BESIDE_A_PRODUCT = re.compile(
    r"related|recommend|cross-?sell|up-?sell|also-?(?:like|bought|viewed)|recently-?viewed|similar|complementary|frequently"
    r"|shipping(?!-tax)|delivery|fulfil|payment|financ|klarna|afterpay|affirm"
    r"|buy-?box|quantity|variant|swatch|product-?form|option-?selector|cart(?![eo])"
    r"|carousel|promo|footnote|disclaimer|legal|navigat|accessor|feedback|seller"
    r"|incentive|assurance|guarantee|trust-?badge|buyer-?protection|(?:^|[\s_-])(?:reviews|ratings)(?:$|[\s_-])",
    re.IGNORECASE,
)
_BESIDE_ENTRY = re.compile(
    r"pop-?up|modal|dialog|lightbox|footer|copyright|disclaimer|announcement|(?:usp|promo|notification)-?bar|dropdown"
    r"|country|currency|locali[sz]ation|locale|language-?(?:sel|sw|pick)"
    r"|related|recommend|also-?(?:like|bought|viewed)|recently-?viewed|similar|you-?may"
    r"|signature|avatar|onebox|unfurl|link-?preview",
    re.IGNORECASE,
)
_DIALOGS = frozenset(("alertdialog", "dialog"))  # roles


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


def without_asides(survey: Survey, likely: list[float], kind: KindOfPage) -> list[float]:
    """How likely each paragraph is content; those in such parts are not likely at all."""
    of_product = kind.name == "product"
    apart = _Apart(survey, likely, of_product)
    told = [0.0 if apart.holds(one) else found for one, found in zip(survey.lines, likely, strict=True)]
    return _without_sections(survey, told) if of_product else told


class _Apart:
    """Which elements are named after such a part. Each is asked once."""

    def __init__(self, survey: Survey, likely: list[float], of_product: bool) -> None:
        self._of_product = of_product
        self._outline = outline = survey.outline
        self._letters = [0] * len(outline.elements)
        for one, found in zip(survey.lines, likely, strict=True):
            if found >= _LIKELY:
                self._letters[one.block] += one.letters
        for element in range(len(self._letters) - 1, 0, -1):
            self._letters[outline.parents[element]] += self._letters[element]
        self._known: dict[int, bool] = {-1: False}

    def holds(self, line: Paragraph) -> bool:
        chain, at = [], line.block
        while at not in self._known:
            chain.append(at)
            at = self._outline.parents[at]
        inside = self._known[at]
        for element in reversed(chain):
            inside = self._known[element] = inside or self._is_one(element)
        return inside

    def _is_one(self, element: int) -> bool:
        outline = self._outline
        if outline.tags[element] in _WHOLE or self._letters[element] > _MOST_ENTRIES * self._letters[0]:
            return False
        attr = outline.elements[element].attr
        if not self._of_product and attr("role") in _DIALOGS:
            return True
        names = " ".join([value for name in ("class", "id", "data-testid") if (value := attr(name))])
        return bool(names) and _is_apart(names[:LONGEST_NAMES], self._of_product)


@lru_cache(maxsize=16_384)
def _is_apart(names: str, of_product: bool) -> bool:
    return (_BESIDE_A_PRODUCT if of_product else _BESIDE_ENTRY).search(names) is not None


def _without_sections(survey: Survey, likely: list[float]) -> list[float]:
    """Nothing is likely below a heading of such a part, up to the next one of the same rank or a higher one."""
    outline, nothing = survey.outline, bytes(len(survey.outline.elements))
    below: int | None = None
    told: list[float] = []
    for one, found in zip(survey.lines, likely, strict=True):
        rank = _rank(outline, one.block)
        if rank is not None:
            if rank > 1 and one.letters <= _LONGEST_HEADING and _is_not_its_own(one.text(nothing)):
                below = rank if below is None else min(rank, below)
            elif below is not None and rank <= below:
                below = None
        told.append(found if below is None else 0.0)
    return told


def _is_not_its_own(heading: str) -> bool:
    return (REVIEWS_HEADING.search(heading) or CARDS_HEADING.search(heading)) is not None


def _rank(outline: Outline, element: int) -> int | None:
    """The rank of the heading that a line stands in; None for a line in none."""
    for _ in range(_NEAR + 1):
        if element < 0:
            return None
        if outline.tags[element] in HEADINGS:
            return int(outline.tags[element][1])
        element = outline.parents[element]
    return None
