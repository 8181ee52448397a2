"""The parts of a shop's page that are not about what it sells there, whatever they look like: what buyers wrote, other
products, how it is delivered and paid, the form that puts it into the cart, small print.

They are told by their heading ("Customer reviews", "You may also like") and by the names of their elements
("related-products", "shipping-info"). Both are words of shops everywhere; no name of any one site is known here. Only
the page of a product is read so: on a list of products the other products are what the page is there for.

How it fails: it does not. A part that is named otherwise stays, and what holds most of the content is no such part.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .kind import KindOfPage
from .outline import HEADINGS, LONGEST_NAMES, Outline, Paragraph
from .traits import Survey

_LIKELY = 0.25  # how likely the content is that counts as such
_MOST = 0.5  # share of the likely content; what holds more is no part beside it
_LONGEST_HEADING = 80  # letters
_NEAR = 2  # elements around a line among which its heading is searched
_WHOLE = frozenset(("body", "html", "main"))
_APART = re.compile(
    r"related|recommend|cross-?sell|up-?sell|also-?(?:like|bought|viewed)|recently-?viewed|similar|complementary|frequently"
    r"|shipping(?!-tax)|delivery|fulfil|payment|financ|klarna|afterpay|affirm"
    r"|buy-?box|quantity|variant|swatch|product-?form|option-?selector|cart(?![eo])"
    r"|carousel|promo|footnote|disclaimer|legal",
    re.IGNORECASE,
)
# Headings of what buyers wrote, and of other products, in the languages of many shops.
_NOT_ITS_OWN = re.compile(
    r"^\W*(?:\d+ )?(?:(?:customer|product|user|verified|global|top) )*(?:reviews?|ratings?|testimonials)\b"
    r"|write a review|what (?:people|customers|our customers|others) (?:are saying|say|think)|\bavis\b|bewertungen"
    r"|rezensionen|opiniones|reseñas|recensioni|beoordelingen|avaliações|opinie o|recenze|отзывы"
    r"|レビュー|评价|評價|리뷰"
    r"|you (?:may|might|could) (?:also|like)|you.ll (?:also )?love|also (?:like|bought|viewed|love|purchased)"
    r"|related (?:products|items|articles|posts)|similar (?:items|products)|recommended|recommendations|customers who"
    r"|people also|frequently bought|bought together|more (?:from|like this|to consider|items|products)"
    r"|complete (?:the|your) (?:look|set)|pairs? (?:well )?with|recently viewed|shop (?:the|our|by|all)"
    r"|explore (?:more|our)|best ?sellers|featured products|trending|add-?ons|accessories$|sponsored"
    r"|produits (?:similaires|associés)|vous aimerez|ähnliche|kunden kauften|das könnte|productos relacionados"
    r"|prodotti correlati|gerelateerde|produtos relacionados|podobne produkty|с этим товаром|похожие|関連商品|相关商品",
    re.IGNORECASE,
)


def without_asides(survey: Survey, likely: list[float], kind: KindOfPage) -> list[float]:
    """How likely each paragraph is content; on the page of a product, those in such parts are not likely at all."""
    if kind.name != "product":
        return likely
    apart = _Apart(survey, likely)
    told = [0.0 if apart.holds(one) else found for one, found in zip(survey.lines, likely, strict=True)]
    return _without_sections(survey, told)


class _Apart:
    """Which elements are named after such a part. Each is asked once."""

    def __init__(self, survey: Survey, likely: list[float]) -> None:
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
        if outline.tags[element] in _WHOLE or self._letters[element] > _MOST * self._letters[0]:
            return False
        names = [outline.elements[element].attr(name) for name in ("class", "id", "data-testid")]
        return _is_apart(" ".join(filter(None, names))[:LONGEST_NAMES])


@lru_cache(maxsize=4096)
def _is_apart(names: str) -> bool:
    return _APART.search(names) is not None


def _without_sections(survey: Survey, likely: list[float]) -> list[float]:
    """Nothing is likely below a heading of such a part, up to the next one of the same rank or a higher one."""
    outline, nothing = survey.outline, bytes(len(survey.outline.elements))
    below: int | None = None
    told: list[float] = []
    for one, found in zip(survey.lines, likely, strict=True):
        rank = _rank(outline, one.block)
        if rank is not None:
            if rank > 1 and one.letters <= _LONGEST_HEADING and _NOT_ITS_OWN.search(one.text(nothing)):
                below = rank if below is None else min(rank, below)
            elif below is not None and rank <= below:
                below = None
        told.append(found if below is None else 0.0)
    return told


def _rank(outline: Outline, element: int) -> int | None:
    """The rank of the heading that a line stands in; None for a line in none."""
    for _ in range(_NEAR + 1):
        if element < 0:
            return None
        if outline.tags[element] in HEADINGS:
            return int(outline.tags[element][1])
        element = outline.parents[element]
    return None
