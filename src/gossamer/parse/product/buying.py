"""Signs that a visitor can buy here: buttons, forms, and what the page says about its stock."""

from __future__ import annotations

import re

from turbohtml import Document, Element

from .claims import Claims
from .outline import Outline, Place, names_of, text_of
from .stock import spoken
from .values import Availability, Source
from .words import BUY_WORDS

_BUY = frozenset(BUY_WORDS)
_CART = re.compile(
    r"cart|basket|buy|bag(?![a-z])|koszyk|kosik|panier|warenkorb|carrello|carrito|trolley|purchase|(?<!b)order|checkout|korzin|bask|acheter|kaufen",
    re.IGNORECASE,
)
_FORMS = (
    'form[action*="cart" i], form[action*="basket" i], form[action*="checkout" i], form[id*="addtocart" i], '
    'form[id*="add-to-cart" i], button[id*="cart" i], button[name*="cart" i], button[class*="cart" i], '
    'button[class*="buy" i], button[class*="basket" i], input[id*="add-to-cart" i], input[name*="add-to-cart" i], '
    '[id*="buybox" i] input[type="submit"], a[class*="add-to-cart" i], a[class*="addtocart" i]'
)
_STOCK = '[class*="stock" i], [id*="stock" i], [class*="availab" i], [id*="availab" i], [itemprop="availability"]'
_MOST = 120


def buy_buttons(outline: Outline) -> list[int]:
    """The runs that are the text of a buy button and do not belong to another product."""
    found: list[int] = []
    for at, run in enumerate(outline.runs):
        text = run.text
        if len(text) > 30 or text.casefold().rstrip("!. ") not in _BUY:
            continue
        if _pressable(run.element) and not outline.place(run.element) & Place.OTHERS:
            found.append(at)
            if len(found) >= _MOST:
                break
    return found


def has_buy_form(tree: Document) -> bool:
    """True when there is a form or a button made for putting something into a cart."""
    for element in tree.select(_FORMS)[:_MOST]:
        if not re.search(r"mini|header|nav|search|view", names_of(element), re.IGNORECASE):
            return True
    return False


def claim_stock(claims: Claims, outline: Outline, *, button: bool, form: bool, has_price: bool) -> bool:
    """Note whether the product can be had, as the visible page says it. True when the page says anything.

    A button that can be seen says more than a form, which some shops leave in the page when all is sold.
    """
    said = _from_stock_elements(outline) or _from_texts(outline)
    gone = said is not None and said[0] is Availability.OUT_OF_STOCK
    if said is not None:
        claims.add("availability", said[0], Source.PAGE, said[1] * (0.75 if gone and button else 1.0))
    if button or form:
        claims.add("availability", Availability.IN_STOCK, Source.PAGE, 0.5 if button else 0.2 if gone else 0.4)
    elif has_price and not gone:
        claims.add("availability", Availability.IN_STOCK, Source.PAGE, 0.3)
    return said is not None


def _from_stock_elements(outline: Outline) -> tuple[Availability, float] | None:
    found: Availability | None = None
    for element in outline.tree.select(_STOCK)[:_MOST]:
        place = outline.place(element)
        if place & Place.OTHERS or place & Place.HIDDEN or element.tag in ("body", "html", "script", "option", "label"):
            continue
        text = text_of(element, 200)
        if not 2 < len(text) <= 160:
            continue
        value = spoken(text)
        if value is Availability.OUT_OF_STOCK:
            # A size that is gone is an element among its like; the product's own notice stands alone.
            if place & Place.LIST or element.tag in ("li", "button", "input"):
                continue
            return value, 0.6
        found = found or value
    return (found, 0.6) if found is not None else None


def _from_texts(outline: Outline) -> tuple[Availability, float] | None:
    for at, run in enumerate(outline.runs):
        distance = outline.distance(at)
        if distance is None or distance < -20 or distance > 160 or len(run.text) > 60:
            continue
        value = spoken(run.text)
        if value is None:
            continue
        place = outline.place(run.element)
        if place & Place.OTHERS or place & Place.HIDDEN or place & Place.LIST or place & Place.LINK:
            continue
        return value, 0.5 if distance <= 60 else 0.4
    return None


def _pressable(element: Element) -> bool:
    for _ in range(4):
        if element.tag in ("button", "a", "input", "label") or _CART.search(names_of(element)):
            return True
        parent = element.parent
        if not isinstance(parent, Element):
            return False
        element = parent
    return False
