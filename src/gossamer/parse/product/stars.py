"""Stars as the page shows them: in texts, and in the attributes that tell the blind what a picture of stars means.

Texts and attributes near the title count; those of other products, of single reviews and of hidden parts do not.
Stars of a scale to ten, or of hundred percent, are brought to five.
"""

from __future__ import annotations

import re
from itertools import islice

from turbohtml import Element

from ..numbers import count_of
from .claims import Claims
from .outline import Outline, Place, Run, names_of
from .values import Source

_BEFORE, _AFTER = 40, 120  # runs before and after a title that are looked at
_LONGEST = 80  # characters of a text or an attribute that may tell stars
_MOST = 1000  # elements with such an attribute
_NODES_AFTER, _NODES_BEFORE = 1500, 200  # nodes of the page after and before the title that are looked at
_OUT_OF = re.compile(
    r"(?<![\d.,/-])(\d{1,2}(?:[.,]\d{1,2})?) ?"
    r"(?:out of|von maximal|von|sur|su|de|van|av|af|z|/|из|із|з|από|üzerinden) ?"
    r"(5|10|five|ten)(?:[.,]0)?(?![\d.,/]|\w| ?(?:k?g|m?l|[cm]?m|[gt]b|[gm]hz|[kw]|[€$£%])(?!\w))",
    re.IGNORECASE,
)
_STARS = re.compile(
    r"(?<![\d.,/-])(\d(?:[.,]\d{1,2})?)(?:-| )?(?:stars?|★|⭐|sterne?n?|étoiles?|estrellas?|stelle|estrelas?|sterren|"
    r"gwiazd\w{0,4}|звезд\w{0,3}|zvezd\w{0,3}|hvězd\w{0,4}|stjärnor|stjerner|tähteä|yıldız|つ星)(?!\w)",
    re.IGNORECASE,
)
_ALONE = re.compile(r"\d{1,2}(?:[.,]\d{1,2})?|\d{1,3}(?:[.,]\d{1,2})?%")
_FRACTION = re.compile(r"\d[.,]\d{1,2}")  # a whole number may be their count
_NAMED = re.compile(
    r"(?:^|[^a-z]|star|review|product|user|average)rating"
    r"|(?<![a-z])(?:stars?|score|note|avis|bewertung(?:en)?|sterne?|ocena|рейтинг)(?![a-z])|valoraci|hodnocen"
)
# "4 of 5" is also a step or a page: where no scale of ten or half stars say so, a name or a word must.
_ABOUT = re.compile(
    r"star|stern|étoile|estrell|stell|estrela|sterren|gwiazd|звезд|★|⭐|rat(?:ed|ing)|review|bewert|avis|note(?!\w)|valora|"
    r"ocen|hodnoc|score|рейтинг|оцен|arvos|betyg|punkt|puan",
    re.IGNORECASE,
)
_ONE_REVIEW = re.compile(
    r"(?:[a-z]+[-_]{1,2}){0,3}(?:review|comment)(?:[-_]{1,2}(?:item|body|text|content|card|entry|\d+))?"
)
_COUNT = re.compile(
    r"(\d[\d.,'’ \u00a0\u202f]{0,12}(?:(?:k|m|tsd|тыс|万|만)(?![^\W\d_]))?)\+?\)? ?"
    r"(?:[^\W\d_]{1,12} )?(?:reviews?|ratings?|bewertung|avis|"
    r"évaluations?|rezension|sternebewertung|recension|valutazion|voti|opinion|reseñ|valoracion|calificacion|avaliaç|"
    r"opini|hodnocen|hodnoten|recenz|отзыв|оцен|beoordeling|omdömen|anmeldelse|arvostelu|レビュー|則評價|评价|評價|리뷰)",
    re.IGNORECASE,
)
_LABELLED = (
    '[aria-label*="5" i], [aria-label*="10" i], [aria-label*="star" i], [title*="5"], [title*="10"], '
    '[title*="star" i], [alt*="star" i], [alt*="5"], [class*="rating" i], [class*="star" i], '
    "[data-rating], [data-score]"
)
_ATTRIBUTES = ("aria-label", "title", "alt", "data-rating", "data-rating-value", "data-score")


def claim_stars(claims: Claims, outline: Outline) -> None:
    """Note the first stars near the title, and the count that stands beside them."""
    window = outline.near(_BEFORE, _AFTER)
    told = _in_texts(outline, window)
    shown = _in_attributes(outline, window)
    if told is None and shown is None:
        return
    if told is None or (shown is not None and shown[0] < told[0]):
        told = shown
    if told is None:
        return
    at, stars, text = told
    claims.add("rating", stars, Source.PAGE, 0.6)
    for near in (text, *(run.text for run in outline.runs[at : at + 6])):
        found = _COUNT.search(near) if len(near) <= _LONGEST else None
        count = count_of(found[1]) if found is not None else None
        if count is not None:
            claims.add("review_count", count, Source.PAGE, 0.55)
            return


def _in_texts(outline: Outline, window: list[tuple[int, Run]]) -> tuple[int, float, str] | None:
    """The first text that tells stars: the run where it begins, the stars and the text."""
    runs = outline.runs
    for at, run in window:
        if len(run.text) > _LONGEST or not any(char.isdecimal() for char in run.text[:_LONGEST]):
            continue
        text = run.text
        if _ALONE.fullmatch(text):
            # The parts may be in elements of their own: "4.6", "out of 5 stars".
            text = " ".join([text, *(near.text[:30] for near in runs[at + 1 : at + 4])])[:_LONGEST]
            text = text.replace(" / ", "/")
        named = _is_named(run.element)
        stars = _stars_in(text, named=named)
        if stars is None and named and _FRACTION.fullmatch(run.text):
            stars = _stars_alone(run.text)
        if stars is not None and _is_own(outline, run.element):
            return at, stars, text
    return None


def _in_attributes(outline: Outline, window: list[tuple[int, Run]]) -> tuple[int, float, str] | None:
    """The same for attributes. An element counts as standing at the last text before it."""
    labelled = set(outline.tree.select(_LABELLED)[:_MOST])
    if not labelled or not outline.runs:
        return None
    at = title = outline.starts[0] if outline.starts else 0
    texts = {run.element: at for at, run in window}
    start = outline.runs[title].element
    for node in (*islice(start.following, _NODES_AFTER), *islice(start.preceding, _NODES_BEFORE)):
        if not isinstance(node, Element):
            continue
        at = texts.get(node, at)
        stars = _in_element(node) if node in labelled else None
        if stars is not None and _is_own(outline, node):
            return at, *stars
    return None


def _in_element(element: Element) -> tuple[float, str] | None:
    """The stars that an attribute of the element tells, and its text."""
    named = _is_named(element)
    for name in _ATTRIBUTES:
        text = element.attr(name)
        if not text or len(text) > _LONGEST:
            continue
        text = " ".join(text.split())
        stars = _stars_in(text, named=named)
        if stars is None and named and name != "alt":
            stars = _stars_alone(text)
        if stars is not None:
            return stars, text
    return None


def _stars_in(text: str, *, named: bool) -> float | None:
    match = _OUT_OF.search(text)
    if match is not None:
        value = float(match[1].replace(",", "."))
        scale = 10 if match[2].lower() in ("10", "ten") else 5
        if 0 < value <= scale and (named or match[1] != str(int(value)) or _ABOUT.search(text)):
            return round(value * 5 / scale, 2)
        return None
    match = _STARS.search(text)
    value = float(match[1].replace(",", ".")) if match is not None else 0.0
    return value if 0 < value <= 5 and match is not None and (named or "." in match[1] or "," in match[1]) else None


def _stars_alone(text: str) -> float | None:
    """A bare number in an attribute of an element that is called a rating."""
    if not _ALONE.fullmatch(text):
        return None
    value = float(text.rstrip("%").replace(",", "."))
    value = round(value / 20, 2) if text.endswith("%") else value
    return value if 0 < value <= 5 else None


def _is_named(element: Element) -> bool:
    parent = element.parent
    names = f"{names_of(element)} {names_of(parent) if isinstance(parent, Element) else ''}"
    return _NAMED.search(names.lower()) is not None


def _is_own(outline: Outline, element: Element) -> bool:
    """True when the stars are the product's: not another one's, and not those of a single review."""
    place = outline.place(element)
    # Texts for the blind are hidden by many a name: that alone says nothing against them.
    if place & Place.ELSEWHERE or outline.of_another(element):
        return False
    return not place & Place.REVIEWS or not _is_one_review(outline, element)


def _is_one_review(outline: Outline, element: Element) -> bool:
    for _ in range(8):
        if outline.holds_title(element):
            return False
        if element.tag in ("li", "article") or any(map(_ONE_REVIEW.fullmatch, names_of(element).lower().split())):
            return True
        parent = element.parent
        if not isinstance(parent, Element):
            return False
        element = parent
    return False
