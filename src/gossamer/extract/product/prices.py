"""Finds the visible price: near the title, near the button, not struck through, not that of another product.

Every number with a currency near the title is a candidate. It scores points for its position, its class names and the
text beside it; the candidate with the most points is the price.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from turbohtml import Element

from ...model.currencies import CODES, SIGNS, SMALL_CODES
from ...model.money import Money, PriceInText, first_price, prices_in
from .claims import Claims, ClaimSource
from .visible_page import Place, VisiblePage, names_of, with_parents

_BEFORE, _AFTER = 40, 160  # runs before and after a title searched for prices
_MOST = 150  # candidates
_NEAR = 12  # runs between an old price and the new one
_LONGEST = 120  # characters of a text that may be a price
_PRICE = re.compile(r"pric|preis|prix|precio|prezzo|pre[cç]o|cena|hinta|pris(?![a-z])|amount|цена|fiyat", re.IGNORECASE)
_GOOD = re.compile(
    r"(?<![a-z])(?:our|sale|current|final|now|special|actual|buy|offer|main|big|large|new|today|deal|primary|selling)",
    re.IGNORECASE,
)
_OLD = re.compile(
    r"(?<![a-z])(?:old|was|before|rrp|msrp|uvp|stary)(?![a-z])|old-?price|was-?price|list-?price|price-?old|regular|strike|struck"
    r"|crossed|original|compare|previous|retail|line-?through|basis-?price|barre",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"sav(?:e|ing)|discount(?!ed)|(?<![a-z])ship|deliver|instal|(?<![a-z])unit|per-|perunit|excl|no-?tax|without|points"
    r"|coupon|swatch|twister|option|variant|bonus|credit|financ|month|badge|filter|price-tax|tax-",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"\W{0,3}(?:price|preis|prix|precio|prezzo|preço|prijs|pris|cena|ár|цена|ціна|fiyat|価格|售價|售价|價格|特價|優惠價|网价|網路價|現在價格|가격|hinta|preț|τιμή|السعر|מחיר)",
    re.IGNORECASE,
)
# Symbols and codes that are also words or parts of model names ("R5", "TOP 10"): not enough for a price.
_WEAK_SIGNS = frozenset("R NT DA DT LE MT KD BD JD Bs Ar Dh ALL TOP TRY MAD PEN CUP GEL BAM SOS MOP".split())  # noqa: SIM905
_SYMBOLS = re.compile(f"[{''.join(re.escape(sign) for sign in SIGNS if len(sign) == 1 and not sign.isalpha())}]")
_WORDS = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)*\.?")
_WORD_SIGNS = frozenset(part for sign in (*SIGNS, *CODES, *SMALL_CODES) for part in _WORDS.findall(sign))
_SINGLE = frozenset(sign for sign in SIGNS if (len(sign) == 1 and not sign.isascii()) or sign == "$")
_DIGIT = re.compile(r"\d")
_NUMBERS = re.compile(r"\d[\d.,' ]*")
# After an amount: it is a discount or a monthly payment.
_NO_WHOLE = re.compile(
    r"\W{0,3}(?:[^\W\d_]{1,3}\W{0,2})?"
    r"(?:off|less|saved?|weniger|gespart|per|a month|monthly|mo|mtl|pro|par|al|por|im monat|/)(?!\w)",
    re.IGNORECASE,
)
_SPLIT = re.compile(r"(?<![\d.,])(\d{1,6}) ([0-9]{2})(?!\d)(?=\D*$)")
_MARK = re.compile(r"(?<=\d)\s{0,3}([.,])\s{0,3}(?=\d)")
# Texts beside a number that is not the current price of this product.
_NOT_THE_PRICE = re.compile(
    # shipping
    r"shipping|delivery|postage|versand|liefer|livraison|frais de port|spedizion|envío|envio|portes\s{0,2}:|verzend|"
    r"frakt|toimitus|doprav|dostaw|wysyłk|доставк|szállít|livrare|kargo|運費|送料|배송|운송|"
    # extra charges
    r"pfand|consigne|statiegeld|kaucja|gift wrap|geschenkverpackung|protection plan|warranty|insurance|versicherung|"
    r"assurance|assembly|installation|montage|trade.in|"
    # instalments
    r"per month|/month|/mo\b|monthly|monat|par mois|al mes|al mese|/ ?mes\b|měsíčně|mesačne|miesięcznie|в месяц|мес\.|"
    r"installment|instalment|rate[n ]|mensualit|cuotas|splátk|рассрочк|кредит|分期|每期|期|juros|parcelas|"
    r"(?<![\d.,])\d{1,2} ?[x×] ?(?:(?:de|of|à|a|von|di|за|po) )?(?=[^\W\d_]{0,3}[$€£¥]|\d+[.,]\d\d)|"
    r"payments? of|pay in \d|interest.free|sans frais|senza interessi|sin intereses|"
    # savings
    r"save|you save|sparen|sparst|ersparnis|économi|risparmi|ahorra|poupa|oszczęd|ušetř|ušetrí|экономия|скидка|現省|"
    # the old price, or the recommended one
    r"rrp|uvp|msrp|was |list price|statt|instead of|prezzo consigliato|precio recomendado|listenpreis|prix conseillé|"
    r"old price|regular price|původní|pôvodn|stara cena|redna cena|старая цена|原價|定價|市價|建議售價|"
    # the lowest recent price, which the law requires beside a sale price
    r"lowest price|niedrigster? preis|najniższa cena|prix le plus bas|prezzo più basso|precio más bajo|"
    r"preço mais baixo|laagste prijs|lägsta pris|laveste pris|nejnižší cena|najnižšia cena|"
    # the price of one unit
    r"unit price|grundpreis|prix (?:au|à la|unitaire)|precio (?:por|unitario)|prezzo (?:al|unitario)|jednostkow|"
    r"jämförpris|jmf.?pris|"
    # rewards, conditions, quantity prices
    r"(?<![\d.,])\d{1,2} (?:for|für|pour|por|voor|för) \D{0,4}\d|club.?pri|members?\b|mitglieder|adhérent|"
    r"cashback|voucher|gift card|bonus|bonn?i|points|over |from orders|minimum|off\b|deposit|"
    # without tax
    r"ohne mwst|zzgl\.? (?:\d+ ?% )?(?:mwst|ust)|bez dph|brez ddv|bez pdv|bez vat|excl|exkl|ekskl|ex\.? vat|\+ ?vat|"
    r"without (?:vat|tax)|ex\.? (?:tax|btw)|netto|hors t(?:axe|va)|\bht\b|iva esclusa|sin iva|alv 0|kdv hariç|без ндс|"
    r"税抜|税別|不含税",
    re.IGNORECASE,
)
# Words before the old price, and before the new one.
_OLD_PRICE = re.compile(
    r"(?<!\w)(?:was|were|rrp|r\.r\.p|msrp|uvp|list price|regular price|old price|original price|retail price|before|"
    r"instead of|statt|bisher|früher|vorher|war|ehemals|au lieu de|ancien prix|avant|prix conseillé|prezzo di listino|"
    r"anziché|invece di|prima|era|antes|precio anterior|en lugar de|em vez de|van|normaal|ordinarie pris|"
    r"ord\. pris|før|förr|tidigare|norm\. ?pris|cena regularna|zamiast|było|poprzednia cena|najniższa cena|"
    r"původní cena|původně|pôvodná cena|pôvodne|místo|eredeti ár|helyett|preț vechi|în loc de|redna cena|stara cena|"
    r"старая цена|было|вместо|стара ціна|замість|стара цена|αρχική τιμή|eski fiyat|yerine)(?!\w)"
    r"|定価|通常価格|原價|原价|定價|市價|市价|建議售價|정가",
    re.IGNORECASE,
)
_NEW_PRICE = re.compile(
    r"(?<!\w)(?:now|only|our price|sale price|special price|your price|today|nur|jetzt|nun|aktuell|unser preis|"
    r"maintenant|désormais|seulement|ora|adesso|solo|oggi|ahora|hoy|sólo|agora|apenas|por|voor|nu|endast|kun|nyt|teraz|"
    r"tylko|nyní|teď|teraz|jen|most|csak|acum|doar|sedaj|samo|sada|сейчас|теперь|только|зараз|тепер|лише|сега|само|"
    r"τώρα|μόνο|şimdi|sadece)(?!\w)|特價|特价|優惠價|現在價格|セール価格|今なら|할인가",
    re.IGNORECASE,
)
_UNIT = (
    r"(?:kg|g|mg|l|ml|cl|dl|m|m²|m2|m³|cm|mm|100|units?|each|pieces?|pcs?|stück|stk|st|szt|ks|pz|pezzo|uds?|unidad|"
    r"unité|pièce|litre|liter|litro|kilo|кг|г|л|мл|шт|fl oz|oz|lbs?|pound|sheet|count|ct|wash|dose|tab|tablet|"
    r"capsule)(?!\w)"
)
# After an amount: it is a unit price ("/ 100 g", "pro Liter"). Before one: "1 kg =", "100 g:".
_UNIT_PRICE = re.compile(
    rf"[^\w/]{{0,3}}(?:/|(?:per|pro|je|par|al|au|le|la|por|za)\s)\s{{0,3}}(?:\d{{1,4}}\s{{0,2}})?{_UNIT}|[^\w/]{{0,3}}each(?!\w)",
    re.IGNORECASE,
)
_PRICE_OF_UNIT = re.compile(rf"\W{{0,2}}\d{{1,4}}(?:[.,]\d{{1,3}})?\s?{_UNIT}\s{{0,2}}[=:]", re.IGNORECASE)
_CENTS = re.compile(r"cent|decimal|fraction", re.IGNORECASE)


class _Candidate(NamedTuple):
    at: int
    money: Money
    points: float
    struck: bool
    old: bool  # a word or class name marks it as the old price; a struck-through one always is


def claim_prices(
    claims: Claims, visible: VisiblePage, buttons: list[int], currency: str | None, home: tuple[str, ...]
) -> bool:
    """Claim the visible price and the old one. True if a price is near the title.

    `currency` is the currency in the page's data, `home` are the currencies of the shop's country.
    """
    candidates = _candidates(visible, buttons, currency, home)
    prices = [each for each in candidates if not each.struck]
    if not prices:
        return False
    said: dict[object, int] = {}
    for each in prices:
        if each.points >= 1:
            said[each.money.amount] = said.get(each.money.amount, 0) + 1
    best = max(prices, key=lambda each: (_worth(each, prices, said.get(each.money.amount, 1)), -each.at))
    if best.points < 1:
        return False
    sure = 0.75 if best.points >= 6 else 0.65 if best.points >= 4.5 else 0.5 if best.points >= 3 else 0.35
    claims.add("price", best.money, ClaimSource.PAGE, sure)
    claims.add("currency", best.money.currency, ClaimSource.PAGE, sure * 0.9)
    old = [
        each
        for each in candidates
        if (each.struck or each.old) and abs(each.at - best.at) <= _NEAR and each.money.amount > best.money.amount
    ]
    if old:
        claims.add(
            "regular_price", min(old, key=lambda each: abs(each.at - best.at)).money, ClaimSource.PAGE, sure * 0.8
        )
    return best.points >= 2.5


def _worth(candidate: _Candidate, prices: list[_Candidate], times: int) -> float:
    """The points of a candidate among the others: a repeated price gains, and one called old loses if a lower price is
    near."""
    near = (each for each in prices if not each.old and abs(each.at - candidate.at) <= _NEAR)
    beaten = candidate.old and any(each.points >= 1 and each.money.amount < candidate.money.amount for each in near)
    return candidate.points + min(0.5 * (times - 1), 1.0) - (3.0 if beaten else 0.0)


def _candidates(
    visible: VisiblePage, buttons: list[int], currency: str | None, home: tuple[str, ...]
) -> list[_Candidate]:
    found: list[_Candidate] = []
    seen: set[Element] = set()
    for at, (text, element) in visible.near(_BEFORE, _AFTER):
        if len(text) > _LONGEST or not _DIGIT.search(text):
            continue
        signed = _SYMBOLS.search(text) is not None or any(word in _WORD_SIGNS for word in _WORDS.findall(text))
        if not signed and len(text) > 16:
            continue
        read = first_price(text, currency, home) if signed else None
        whole, holder = text, element
        old = _old_beside(text, currency, home) if read is not None and read[2] else None
        if old is not None:
            whole, read = old.new_text, (old.new.amount, old.new.currency, old.new.sign)
        elif read is None or not read[2]:
            # A bare number: a price only if its neighbours or its class names say so.
            if not _hinted(visible, at):
                continue
            whole, holder = _whole_price(visible, at)
            if holder is element:
                whole = _with_neighbour(visible, at) or whole
            read = first_price(whole, currency, home)
        elif text[-1].isdecimal():
            whole, holder = _with_cents(visible, at)
            read = first_price(whole, currency, home)
        if read is None or read[0] <= 0 or holder in seen:
            continue
        if holder is not element:
            seen.add(holder)
        points = _points(visible, buttons, at, whole, holder, signed=read[2] != "" and read[2] not in _WEAK_SIGNS)
        if points is not None:
            struck = bool(visible.place(element) & Place.STRUCK)
            found.append(_Candidate(at, Money(read[0], read[1]), points, struck, _is_old(visible, at, whole)))
            if old is not None:
                money = Money(old.old.amount, old.old.currency)
                found.append(_Candidate(at, money, points, struck=True, old=True))
        if len(found) >= _MOST:
            break
    return found


class _Pair(NamedTuple):
    """The old and the new price in one text, and the part of the text that is about the new one."""

    old: PriceInText
    new: PriceInText
    new_text: str


def _old_beside(text: str, currency: str | None, home: tuple[str, ...]) -> _Pair | None:
    """The two prices of "Was £49.99 Now £39.99" or "79 € statt 99 €"; None if no word distinguishes them."""
    if len(_NUMBERS.findall(text)) < 2:
        return None
    signed = list(islice((each for each in prices_in(text, currency, home) if each.sign), 2))
    if len(signed) < 2 or signed[0].currency != signed[1].currency:
        return None
    first, second = signed
    lead, between, tail = text[: first.start], text[first.end : second.start], text[second.end :]
    if second.amount < first.amount and (_OLD_PRICE.search(lead) or _NEW_PRICE.search(between)):
        partial = _NOT_THE_PRICE.search(between) or _NO_WHOLE.match(tail)
        return None if partial else _Pair(first, second, text[first.end : second.end])
    if second.amount > first.amount and _OLD_PRICE.search(between):
        partial = _NOT_THE_PRICE.search(lead) or _NO_WHOLE.match(between)
        return None if partial else _Pair(second, first, text[: first.end])
    return None


def _is_old(visible: VisiblePage, at: int, text: str) -> bool:
    """True if the word before the price, or the class name of its element, marks it as the old one."""
    before = visible.runs[at - 1].text if at else ""
    lead = _DIGIT.split(text, maxsplit=1)[0]
    label = f"{before} {lead}" if len(before) <= 30 and not _DIGIT.search(before) else lead
    if _OLD_PRICE.search(label) and not _NEW_PRICE.search(label):
        return True
    return _OLD.search(names_of(visible.runs[at].element)) is not None


def _hinted(visible: VisiblePage, at: int) -> bool:
    """True if a currency symbol, label or class name nearby makes a bare number a price."""
    runs = visible.runs
    for neighbour in (*runs[max(0, at - 2) : at], *runs[at + 1 : at + 4]):
        short = neighbour.text.strip(" .,-")
        if (len(short) <= 4 and short in SIGNS) or short in CODES or short[-1:] in _SINGLE or short[:1] in _SINGLE:
            return True
    if at and len(runs[at - 1].text) <= 30 and _LABEL.match(runs[at - 1].text):
        return True
    return _points_for_names(_near_names(visible, runs[at].element))[0]


def _whole_price(visible: VisiblePage, at: int) -> tuple[str, Element]:
    """The text of the smallest element with both number and currency: a price may be split over several elements."""
    text, element = visible.runs[at]
    best, holder = text, element
    own = first_price(text)
    for here, joined in _around(visible, element):
        read = first_price(joined)
        if read is None or len(_NUMBERS.findall(joined)) != 1:
            continue
        if read[2]:
            return joined, here
        if own is None or read[0] != own[0]:  # more of the number, if not its currency symbol
            best, holder = joined, here
    return best, holder


def _with_cents(visible: VisiblePage, at: int) -> tuple[str, Element]:
    """A price completed by the cents in the next element: "$12" and "50"."""
    text, element = visible.runs[at]
    after = visible.runs[at + 1] if at + 1 < len(visible.runs) else None
    if after is not None and len(after.text) == 2 and after.text.isdecimal() and _is_for_cents(after.element):
        return f"{text}.{after.text}", element
    own = first_price(text)
    for here, joined in _around(visible, element):
        read = first_price(joined)
        if read is None or own is None or read[2] != own[2] or len(_NUMBERS.findall(joined)) != 1:
            break
        if own[0] < read[0] < own[0] + 1:
            return joined, here
    return text, element


def _is_for_cents(element: Element) -> bool:
    return element.tag == "sup" or _CENTS.search(names_of(element)) is not None


def _around(visible: VisiblePage, element: Element) -> Iterator[tuple[Element, str]]:
    """The element and its two nearest parents below the title, each with its texts joined, if these are short."""
    for each in with_parents(element, 3):
        if visible.holds_title(each):
            return
        parts: list[str] = []
        size = 0
        for part in each.strings:
            size += len(part)
            if size > 200:
                break
            if not part.isspace():
                parts.append(" ".join(part.split()))
        if size > 200 or sum(map(len, parts)) > 60:
            return
        if len(parts) > 1:
            yield each, _SPLIT.sub(r"\1.\2", _MARK.sub(r"\1", " ".join(parts)))


def _with_neighbour(visible: VisiblePage, at: int) -> str | None:
    """A bare number with the currency symbol at the end of the previous text or the start of the next."""
    runs = visible.runs
    before = " ".join(runs[at - 1].text.split()[-2:]) if at else ""
    after = " ".join(runs[at + 1].text.split()[:2]) if at + 1 < len(runs) else ""
    for joined in (f"{before} {runs[at].text}", f"{runs[at].text} {after}"):
        read = first_price(joined) if len(joined) <= _LONGEST else None
        if read is not None and read[2] and len(_NUMBERS.findall(joined)) == 1:
            return joined
    return None


def _points(
    visible: VisiblePage, buttons: list[int], at: int, text: str, element: Element, *, signed: bool
) -> float | None:
    """The points of a candidate; None if it cannot be a price."""
    priced, named = _points_for_names(_near_names(visible, element))
    before = visible.runs[at - 1].text if at else ""
    labelled = (len(before) <= 30 and _LABEL.match(before) is not None) or _LABEL.match(text) is not None
    if not (signed or priced or labelled):
        return None
    points = 0.0
    distance = visible.distance(at)
    if distance is None:
        points += 0.5
    elif distance >= 0:
        points += 3.0 * 40 / (40 + distance)
    else:
        points += 1.0 if distance > -25 else -0.5
    points += named
    points += 1 if labelled else 0
    points += 1 if signed else -0.5
    another = visible.of_another(element)
    points += 1.5 if not another and any(-14 <= button - at <= 30 for button in buttons) else 0
    place = visible.place(element)
    points -= 3 if place & Place.OTHERS else 0
    points -= 2 if place & Place.HIDDEN else 0
    points -= 2 if place & Place.LINK else 0
    points -= 0.7 if place & Place.LIST else 0
    points -= 2 if place & Place.CHOICE else 0
    points -= 3.5 if another else 0
    around = f"{before} {text}" if len(text) <= 12 and len(before) <= 40 and _is_label(before) else text
    after = visible.runs[at + 1].text if at + 1 < len(visible.runs) else ""
    # A text with its own number is about that number: "Shipping: 4.90".
    beside = len(after) < 30 and after[-1:] not in ":：" and not _DIGIT.search(after)
    points -= 3 if _NOT_THE_PRICE.search(around) or (beside and _NOT_THE_PRICE.match(after)) else 0
    points -= 2.5 if _UNIT_PRICE.match(after[:30]) or _is_of_unit(text) else 0
    points -= 1 if len(text) > 24 else 0
    points -= 2 if text[:1] in "+-−(" and len(text) < 20 else 0
    return points


def _is_label(text: str) -> bool:
    """True for a text that may label the number after it: it has no number, or ends with a colon."""
    return not _DIGIT.search(text) or text[-1:] in ":："


def _is_of_unit(text: str) -> bool:
    """True for a unit price: "2,50 € / 100 g", "1 kg = 2,50 €"."""
    if _PRICE_OF_UNIT.match(text):
        return True
    price = next((each for each in prices_in(text) if each.sign), None)
    # The currency symbol may follow the number: "2,50 €/kg", "2,50 zł za kg".
    return price is not None and any(_UNIT_PRICE.match(text, start) for start in range(price.end, price.end + 6))


@lru_cache(maxsize=4096)
def _points_for_names(names: str) -> tuple[bool, float]:
    """Whether the class names mean a price, and their points."""
    priced = _PRICE.search(names) is not None
    points = 2.0 if priced else 0.0
    points += 0.7 if _GOOD.search(names) else 0
    points -= 3 if _OLD.search(names) else 0
    points -= 2.5 if _ASIDE.search(names) else 0
    return priced, points


def _near_names(visible: VisiblePage, element: Element) -> str:
    """The names of the element and its two nearest parents, below the elements around the title."""
    names = [names_of(element)]
    for parent in islice(with_parents(element, 3), 1, None):
        if visible.holds_title(parent):
            break
        names.append(names_of(parent))
    return " ".join(names)
