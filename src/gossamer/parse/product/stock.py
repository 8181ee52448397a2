"""Words that say whether a product can be had."""

from __future__ import annotations

import re

from .values import Availability
from .words import BACK_ORDER_WORDS, IN_STOCK_WORDS, OUT_OF_STOCK_WORDS, PRE_ORDER_WORDS

_SQUEEZED = {each.value.lower(): each for each in Availability} | {
    "oos": Availability.OUT_OF_STOCK,
    "outstock": Availability.OUT_OF_STOCK,
    "available": Availability.IN_STOCK,
    "instockonline": Availability.IN_STOCK,
    "availablefororder": Availability.BACK_ORDER,
    "limitedstock": Availability.LIMITED,
    "true": Availability.IN_STOCK,
    "backordered": Availability.BACK_ORDER,
    "onbackorder": Availability.BACK_ORDER,
    "pending": Availability.PRE_ORDER,
}
_LAST = re.compile(r"[^/#:]*$")
_MARKS = re.compile(r"[\W_]+")


def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(word) for word in sorted(words, key=len, reverse=True))})(?!\w)")


_OUT = _pattern(OUT_OF_STOCK_WORDS)
_IN = _pattern(IN_STOCK_WORDS)
_PRE = _pattern(PRE_ORDER_WORDS)
_BACK = _pattern(BACK_ORDER_WORDS)
# Words that turn the sentence round: "not in stock", "if available", "check availability".
_DOUBT = re.compile(
    r"(?<!\w)(?:not|no|nicht|non|pas|niet|ikke|inte|nie|není|ni|не|нет|when|if|once|notify|email|falls|sobald|wenn|"
    r"quando|lorsque|cuando|show|only show|filter|check|where|kein|keine|brak|nincs|nem|"
    r"nema|nije|ne|ei|ej|yok|нема|немає|нету|няма|відсутн\w{0,4}|отсутств\w{0,5}|δεν|μη|tidak|không|غير|ليس|לא|אין|נגמר|אזל|"
    r"חסר|pole|nėra|nav)(?!\w)"
)
# "This item isn't in stock" needs no list of its own.
_NOT_IN = re.compile(r"n['’]t (?:\w{1,10} )?(?:in stock|available)(?!\w)")


def availability_of(text: str) -> Availability | None:
    """What a stated availability means: an address of schema.org, a word of a feed, or words of a language."""
    text = text.strip()[:200]
    if not text:
        return None
    known = _SQUEEZED.get(_MARKS.sub("", (_LAST.search(text.rstrip("/")) or [""])[0]).lower())
    return known or spoken(text)


def spoken(text: str) -> Availability | None:
    """What the words of a short text say; None when they say nothing."""
    text = text.casefold()
    if _OUT.search(text) or _NOT_IN.search(text):
        return Availability.OUT_OF_STOCK
    if _BACK.search(text):
        return Availability.BACK_ORDER
    if _PRE.search(text):
        return Availability.PRE_ORDER
    if _IN.search(text) and not _DOUBT.search(text):
        return Availability.IN_STOCK
    return None
