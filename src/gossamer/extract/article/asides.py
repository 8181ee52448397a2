"""The parts of a page that are not what it is about, whatever they look like.

On the page of a product: what buyers wrote, other products, who sells it, how it is delivered and paid, the form that
puts it into the cart, promises, small print. On any other page: dialogs, footers, choices of country and currency,
announcements, teasers of other pages, and what forums put around and into posts (signatures, avatars, previews).

They are told by the names of their elements ("related-products", "shipping-info"), those of a product also by their
heading ("Customer reviews", "You may also like"). Both are words of pages everywhere; no name of any one site is known
here. The two lists differ: on a list of products the other products are what the page is there for, and the details of
a product are often in a dialog.

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
_BESIDE_A_PRODUCT = re.compile(
    r"related|recommend|cross-?sell|up-?sell|also-?(?:like|bought|viewed)|recently-?viewed|similar|complementary|frequently"
    r"|shipping(?!-tax)|delivery|fulfil|payment|financ|klarna|afterpay|affirm"
    r"|buy-?box|quantity|variant|swatch|product-?form|option-?selector|cart(?![eo])"
    r"|carousel|promo|footnote|disclaimer|legal|navigat|accessor|feedback|seller"
    r"|incentive|assurance|guarantee|trust-?badge|buyer-?protection|(?:^|[\s_-])(?:reviews|ratings)(?:$|[\s_-])",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"pop-?up|modal|dialog|lightbox|footer|copyright|disclaimer|announcement|(?:usp|promo|notification)-?bar|dropdown"
    r"|country|currency|locali[sz]ation|locale|language-?(?:sel|sw|pick)"
    r"|related|recommend|also-?(?:like|bought|viewed)|recently-?viewed|similar|you-?may"
    r"|signature|avatar|onebox|unfurl|link-?preview",
    re.IGNORECASE,
)
_DIALOGS = frozenset(("alertdialog", "dialog"))  # roles
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
        if outline.tags[element] in _WHOLE or self._letters[element] > _MOST * self._letters[0]:
            return False
        attr = outline.elements[element].attr
        if not self._of_product and attr("role") in _DIALOGS:
            return True
        names = " ".join([value for name in ("class", "id", "data-testid") if (value := attr(name))])
        return bool(names) and _is_apart(names[:LONGEST_NAMES], self._of_product)


@lru_cache(maxsize=16_384)
def _is_apart(names: str, of_product: bool) -> bool:
    return (_BESIDE_A_PRODUCT if of_product else _BESIDE).search(names) is not None


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
