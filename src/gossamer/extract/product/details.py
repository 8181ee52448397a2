"""Other visible facts: title, breadcrumbs, stars, images.

Stars are read from texts and from accessibility attributes of star icons. Those near the title count; those of other
products and of single reviews do not. Ratings out of ten or in percent are scaled to five.
"""

from __future__ import annotations

import re
from itertools import islice

from turbohtml import Document, Element

from ..numbers import count_of
from ..structured.things import plain_text
from .claims import Claims, ClaimSource
from .identity import PageIdentity
from .visible_page import Place, TextRun, VisiblePage, names_of, text_of, with_parents

_BREADCRUMBS = '[aria-label*="breadcrumb" i], [class*="breadcrumb" i], [id*="breadcrumb" i], [class*="crumbs" i]'
_MARKS = " \t\n/›»>|→·•\u00a0\\-–"
_LONGEST_STEP = 80
_BEFORE, _AFTER = 40, 120  # runs before and after a title searched for stars
_LONGEST = 80  # characters of a text or an attribute with stars
_MOST = 1000  # elements with such an attribute that are read
_NODES_AFTER, _NODES_BEFORE = 1500, 200  # nodes after and before the title that are visited
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
_FRACTION = re.compile(r"\d[.,]\d{1,2}")  # a whole number may be a review count
_NAMED = re.compile(
    r"(?:^|[^a-z]|star|review|product|user|average)rating"
    r"|(?<![a-z])(?:stars?|score|note|avis|bewertung(?:en)?|sterne?|ocena|рейтинг)(?![a-z])|valoraci|hodnocen"
)
# "4 of 5" may also be a step or a page: without a fraction, a class name or one of these words must mark it as a
# rating.
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


def claim_details(claims: Claims, visible: VisiblePage, identity: PageIdentity) -> None:
    """Claim the visible title, breadcrumbs, stars and images."""
    if visible.starts:
        start = visible.runs[visible.starts[0]]
        heading = start.element.closest("h1, h2, h3")
        text = text_of(heading, 400) if heading is not None else start.text
        claims.add("title", plain_text(text if len(text) <= 300 else start.text, 400), ClaimSource.PAGE, 0.6)
    elif identity.headings:
        claims.add("title", identity.headings[0], ClaimSource.PAGE, 0.4)
    claims.add("title", identity.page_title, ClaimSource.META, 0.2)
    if not claims.of("breadcrumbs"):
        claims.add("breadcrumbs", _breadcrumbs(visible.tree, claims), ClaimSource.PAGE, 0.6)
    if not claims.of("rating"):
        _claim_stars(claims, visible)
    if not claims.of("images"):
        claims.add("images", _pictures(visible.tree, identity), ClaimSource.PAGE, 0.4)


def _breadcrumbs(tree: Document, claims: Claims) -> tuple[str, ...]:
    title = claims.settle("title")
    for element in tree.select(_BREADCRUMBS)[:8]:
        if element.tag in ("script", "body", "html", "style"):
            continue
        steps: list[str] = []
        for link in element.select("a, li, [itemprop=name]")[:40]:
            if link.select_one("a, li") is not None:
                continue
            text = text_of(link, 100).strip(_MARKS)
            if text and len(text) <= _LONGEST_STEP and text not in steps:
                steps.append(text)
        if len(steps) >= 2:
            if title is not None and steps[-1].casefold() == str(title.value).casefold():
                steps.pop()
            return tuple(steps[:15])
    return ()


def _pictures(tree: Document, identity: PageIdentity) -> tuple[str, ...]:
    """The images whose description resembles the title."""
    found: list[str] = []
    for picture in tree.select("img[alt]")[:200]:
        alt = picture.attr("alt") or ""
        source = picture.attr("data-zoom-image") or picture.attr("data-src") or picture.attr("src") or ""
        if len(alt) >= 6 and source and not source.startswith("data:") and identity.likeness(alt) >= 0.8:
            found.append(source)
    return tuple(dict.fromkeys(found))[:10]


def _claim_stars(claims: Claims, visible: VisiblePage) -> None:
    """Claim the first stars near the title, and the number of reviews beside them."""
    window = visible.near(_BEFORE, _AFTER)
    told = _stars_in_texts(visible, window)
    shown = _stars_in_attributes(visible, window)
    if told is None or (shown is not None and shown[0] < told[0]):
        told = shown
    if told is None:
        return
    at, stars, text = told
    claims.add("rating", stars, ClaimSource.PAGE, 0.6)
    for near in (text, *(run.text for run in visible.runs[at : at + 6])):
        found = _COUNT.search(near) if len(near) <= _LONGEST else None
        count = count_of(found[1]) if found is not None else None
        if count is not None:
            claims.add("review_count", count, ClaimSource.PAGE, 0.55)
            return


def _stars_in_texts(visible: VisiblePage, window: list[tuple[int, TextRun]]) -> tuple[int, float, str] | None:
    """The first text with stars: the index of its run, the stars, the text."""
    runs = visible.runs
    for at, run in window:
        if len(run.text) > _LONGEST or not any(char.isdecimal() for char in run.text[:_LONGEST]):
            continue
        text = run.text
        if _ALONE.fullmatch(text):
            # The parts may be in separate elements: "4.6", "out of 5 stars".
            text = " ".join([text, *(near.text[:30] for near in runs[at + 1 : at + 4])])[:_LONGEST]
            text = text.replace(" / ", "/")
        named = _is_named(run.element)
        stars = _stars_in_text(text, named=named)
        if stars is None and named and _FRACTION.fullmatch(run.text):
            stars = _stars_alone(run.text)
        if stars is not None and _is_own(visible, run.element):
            return at, stars, text
    return None


def _stars_in_attributes(visible: VisiblePage, window: list[tuple[int, TextRun]]) -> tuple[int, float, str] | None:
    """The same for attributes. An element's index is that of the last text before it."""
    labelled = set(visible.tree.select(_LABELLED)[:_MOST])
    if not labelled or not visible.runs:
        return None
    at = title = visible.starts[0] if visible.starts else 0
    texts = {run.element: at for at, run in window}
    start = visible.runs[title].element
    for node in (*islice(start.following, _NODES_AFTER), *islice(start.preceding, _NODES_BEFORE)):
        if not isinstance(node, Element):
            continue
        at = texts.get(node, at)
        stars = _stars_in_element(node) if node in labelled else None
        if stars is not None and _is_own(visible, node):
            return at, *stars
    return None


def _stars_in_element(element: Element) -> tuple[float, str] | None:
    """The stars in an attribute of the element, and the text of the attribute."""
    named = _is_named(element)
    for name in _ATTRIBUTES:
        text = element.attr(name)
        if not text or len(text) > _LONGEST:
            continue
        text = " ".join(text.split())
        stars = _stars_in_text(text, named=named)
        if stars is None and named and name != "alt":
            stars = _stars_alone(text)
        if stars is not None:
            return stars, text
    return None


def _stars_in_text(text: str, *, named: bool) -> float | None:
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
    """The stars of a bare number in an element whose name means rating."""
    if not _ALONE.fullmatch(text):
        return None
    value = float(text.rstrip("%").replace(",", "."))
    value = round(value / 20, 2) if text.endswith("%") else value
    return value if 0 < value <= 5 else None


def _is_named(element: Element) -> bool:
    parent = element.parent
    names = f"{names_of(element)} {names_of(parent) if isinstance(parent, Element) else ''}"
    return _NAMED.search(names.lower()) is not None


def _is_own(visible: VisiblePage, element: Element) -> bool:
    """True if the stars are the product's own, not those of another product or a single review."""
    place = visible.place(element)
    # Texts for screen readers are hidden under many class names, so being hidden does not disqualify them.
    if place & Place.ELSEWHERE or visible.of_another(element):
        return False
    return not place & Place.REVIEWS or not _is_one_review(visible, element)


def _is_one_review(visible: VisiblePage, element: Element) -> bool:
    for each in with_parents(element, 8):
        if visible.holds_title(each):
            return False
        if each.tag in ("li", "article") or any(map(_ONE_REVIEW.fullmatch, names_of(each).lower().split())):
            return True
    return False
