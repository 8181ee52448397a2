"""Numbers and brands that stand beside a label: "Artikelnummer: 123", "Brand | Acme", in many languages."""

from __future__ import annotations

import re
from functools import lru_cache

from .claims import Claims
from .identity import PageIdentity
from .outline import Outline, Place, names_of
from .schema import gtin_of
from .things import plain_text
from .values import Source
from .words import BRAND_LABELS, GTIN_LABELS, MPN_LABELS, SKU_LABELS

_NUMBER = re.compile(r"[#№]?\s{0,2}([0-9A-Za-z][\w./+-]{1,40}(?: [\w./-]{2,20}){0,2}?)(?=$|\s|[,;|)(])")
_MARKS = ":#：№.|•–-= \u200e\u200f\u00a0"
_FAR = 400  # runs from the title beyond which a label counts little

# How much a label by itself says. Short words that mean many things say little.
_WEAK = frozenset(
    """id code cod kod код ref réf style symbol model модель art арт by make jan indeks ident rif pn
    anzeige""".split()  # noqa: SIM905
)


def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for field, labels in (("brand", BRAND_LABELS), ("mpn", MPN_LABELS), ("gtin", GTIN_LABELS), ("sku", SKU_LABELS)):
        for label in labels:
            table.setdefault(label.casefold().rstrip("."), field)
    return table


_FIELDS = _table()
_HEAD = re.compile(r"[\W_]*([^\W_]+)")
_HEADS = frozenset(head[1] for head in map(_HEAD.match, _FIELDS) if head is not None)


def claim_labels(claims: Claims, outline: Outline, identity: PageIdentity) -> int:
    """Note what labels name. Gives how many numbers were found near the title."""
    runs = outline.runs
    near = 0
    for at, run in enumerate(runs):
        text = run.text
        if len(text) > 120:
            continue
        head = _HEAD.match(text[:60])
        if head is None or head[1].casefold() not in _HEADS:
            continue
        label, rest, clear = _label_of(text)
        if not label:
            continue
        if not rest:
            rest = next((each.text for each in runs[at + 1 : at + 4] if each.text.strip(_MARKS)), "")
        elif not clear and _FIELDS[label] == "brand":
            continue
        distance = outline.distance(at)
        share = 0.7 if distance is None else 1.0 if 0 <= distance <= 60 else 0.85 if -30 <= distance <= _FAR else 0.5
        place = outline.place(run.element)
        if place & Place.OTHERS or (place & Place.LINK and not clear):
            share *= 0.4
        share *= 0.7 if label in _WEAK else 1.0
        share *= 1.0 if clear else 0.7
        near += _claim(claims, _FIELDS[label], rest[:80], share, identity, clear=clear)
    return near


def _label_of(text: str) -> tuple[str, str, bool]:
    """The label a text begins with, what follows it, and whether a mark parts them. Empty texts: no label."""
    for mark in (":", "：", "#", "№"):
        head, found, rest = text.partition(mark)
        if found:
            label = head.strip(_MARKS + "()").casefold()
            if label in _FIELDS:
                return label, rest.lstrip(_MARKS).rstrip(), True
    if len(text) <= 40 and text.strip(_MARKS).casefold() in _FIELDS:
        return text.strip(_MARKS).casefold(), "", True
    words = text.split(None, 5)
    for count in range(min(4, len(words) - 1), 0, -1):
        label = " ".join(words[:count]).strip(_MARKS).casefold()
        if label in _FIELDS:
            return label, " ".join(words[count:]).strip(_MARKS), False
    return "", "", False


def _claim(claims: Claims, field: str, rest: str, share: float, identity: PageIdentity, *, clear: bool) -> int:
    if field == "brand":
        rest = rest.strip(_MARKS.replace(".", ""))
        if 2 <= len(rest) <= 40 and (clear or not rest[0].isdigit()) and rest.count(" ") <= 4:
            claims.add("brand", rest, Source.PAGE, 0.6 * share)
        return 0
    rest = rest.strip(_MARKS)
    match = _NUMBER.match(rest)
    number = match[1].rstrip(".-/") if match is not None else ""
    if not any(char.isdigit() for char in number) or len(number) < 3:
        return 0
    if field == "gtin":
        claims.add("gtin", gtin_of(rest), Source.PAGE, 0.75 * share)
        return 1 if gtin_of(rest) else 0
    named = identity.names_number(number)
    claims.add(field, number, Source.PAGE, 0.9 * max(share, 0.8) if named else 0.8 * share)
    return 1 if share > 0.4 else 0


_NUMBER_NAMES = re.compile(
    r"sku|product-?_?(?:code|number|no|ref|id)|cat-?number|(?:item|article|artikel|art)-?_?(?:number|nummer|nr|no|id|code)"
    r"|reference|adno|offer-?id",
    re.IGNORECASE,
)
_BRAND_NAMES = re.compile(r"(?<![a-z])(?<!navbar-)brand(?!ing|ed|s)|manufacturer|(?<![a-z])vendor", re.IGNORECASE)
_BARE_NUMBER = re.compile(r"(?:[^\W\d_]{1,20}[\s.:#°№-]{1,4}){0,3}((?=[^\s]*\d)[A-Za-z0-9][\w./-]{2,30})\W{0,2}")
_BEFORE, _AFTER = 40, 160


def claim_named(claims: Claims, outline: Outline, identity: PageIdentity) -> int:
    """Note what stands near the title in an element that is called what it holds: class="sku", class="brand".

    Gives how many numbers were found.
    """
    count = 0
    for at, run in outline.near(_BEFORE, _AFTER):
        text = run.text
        if not 2 <= len(text) <= 50:
            continue
        called = _called(names_of(run.element))
        if not called or outline.place(run.element) & Place.OTHERS or outline.of_another(run.element):
            continue
        if called == "brand":
            distance = outline.distance(at)
            close = distance is not None and -8 <= distance <= 30
            if close and len(text) <= 30 and text.casefold() not in _FIELDS and text.count(" ") <= 3:
                claims.add("brand", plain_text(text), Source.PAGE, 0.45)
            continue
        match = _BARE_NUMBER.fullmatch(text)
        if match is not None:
            claims.add("sku", match[1], Source.PAGE, 0.85 if identity.names_number(match[1]) else 0.7)
            count += 1
    return count


@lru_cache(maxsize=4096)
def _called(names: str) -> str:
    """Which field an element of these names holds; "" for none."""
    return "sku" if _NUMBER_NAMES.search(names) else "brand" if _BRAND_NAMES.search(names) else ""
