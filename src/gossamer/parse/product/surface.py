"""What else a reader sees: title, breadcrumbs, stars, pictures; and microdata that nobody put into a scope."""

from __future__ import annotations

from turbohtml import Document, Element

from ...model.money import Money, currency_code
from .claims import Claims
from .identity import PageIdentity
from .offers import claim_price, money_of
from .outline import Outline, text_of
from .schema import gtin_of
from .stars import claim_stars
from .stock import availability_of
from .things import plain_text
from .values import Source

_TRAIL = '[aria-label*="breadcrumb" i], [class*="breadcrumb" i], [id*="breadcrumb" i], [class*="crumbs" i]'
_MARKS = " \t\n/›»>|→·•\u00a0\\-–"
_LOOSE = {
    "price": ("price", 40),
    "priceCurrency": ("currency", 3),
    "sku": ("sku", 40),
    "productID": ("sku", 40),
    "brand": ("brand", 60),
    "availability": ("availability", 200),
    "gtin13": ("gtin", 20),
    "mpn": ("mpn", 40),
}
_MOST_LOOSE = 500
_LONGEST = 80


def claim_surface(claims: Claims, outline: Outline, identity: PageIdentity) -> None:
    """Note title, breadcrumbs, stars and pictures as the page shows them."""
    if outline.starts:
        start = outline.runs[outline.starts[0]]
        heading = start.element.closest("h1, h2, h3")
        text = text_of(heading, 400) if heading is not None else start.text
        claims.add("title", plain_text(text if len(text) <= 300 else start.text, 400), Source.PAGE, 0.6)
    elif identity.headings:
        claims.add("title", identity.headings[0], Source.PAGE, 0.4)
    claims.add("title", identity.page_title, Source.META, 0.2)
    if not claims.of("breadcrumbs"):
        claims.add("breadcrumbs", _trail(outline.tree, claims), Source.PAGE, 0.6)
    if not claims.of("rating"):
        claim_stars(claims, outline)
    if not claims.of("images"):
        claims.add("images", _pictures(outline.tree, identity), Source.PAGE, 0.4)


def claim_loose_microdata(claims: Claims, tree: Document, identity: PageIdentity) -> bool:
    """Note properties that stand in no scope, where the page has just one such; shops forget the scope.

    True when the price is among them.
    """
    loose: dict[str, set[tuple[str, bool]]] = {}
    for element in tree.select("[itemprop]")[:_MOST_LOOSE]:
        name = element.attr("itemprop") or ""
        if name in _LOOSE and element.closest("[itemscope]") is None:
            loose.setdefault(name, set()).add(_value(element))
    stated = {name: values.pop() for name, values in loose.items() if len(values) == 1}
    for name, (text, for_machines) in stated.items():
        field, longest = _LOOSE[name]
        value: object = text if len(text) <= longest else None
        if field == "price":
            currency = stated["priceCurrency"][0] if "priceCurrency" in stated else ""
            price = money_of(text, currency, identity.home) if for_machines else _shown(text, currency, identity.home)
            if price is not None:
                claim_price(claims, price, Source.MICRODATA, 0.6)
            continue
        if field == "availability":
            value = availability_of(text)
        elif field == "gtin":
            value = gtin_of(text)
        claims.add(field, value, Source.MICRODATA, 0.6)
    return "price" in stated


def _shown(text: str, currency: str, home: tuple[str, ...]) -> Money | None:
    return Money.parse(text, currency_code(currency, home) or None, home=home)


def _value(element: Element) -> tuple[str, bool]:
    """What a property says, and whether an attribute says it, which is for machines and not for readers."""
    stated = element.attr("content") or element.attr("href") or element.attr("value")
    return plain_text(stated if stated else text_of(element, 200), 200), bool(stated)


def _trail(tree: Document, claims: Claims) -> tuple[str, ...]:
    title = claims.settle("title")
    for element in tree.select(_TRAIL)[:8]:
        if element.tag in ("script", "body", "html", "style"):
            continue
        steps: list[str] = []
        for link in element.select("a, li, [itemprop=name]")[:40]:
            if link.select_one("a, li") is not None:
                continue
            text = text_of(link, 100).strip(_MARKS)
            if text and len(text) <= _LONGEST and text not in steps:
                steps.append(text)
        if len(steps) >= 2:
            if title is not None and steps[-1].casefold() == str(title.value).casefold():
                steps.pop()
            return tuple(steps[:15])
    return ()


def _pictures(tree: Document, identity: PageIdentity) -> tuple[str, ...]:
    """Pictures whose description is like the title."""
    found: list[str] = []
    for picture in tree.select("img[alt]")[:200]:
        alt = picture.attr("alt") or ""
        source = picture.attr("data-zoom-image") or picture.attr("data-src") or picture.attr("src") or ""
        if len(alt) >= 6 and source and not source.startswith("data:") and identity.likeness(alt) >= 0.8:
            found.append(source)
    return tuple(dict.fromkeys(found))[:10]
