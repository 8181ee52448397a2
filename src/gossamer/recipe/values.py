"""Converts a found text to a value of the field's type. A text without such a value raises UnreadableValue; nothing is
guessed.

A number in JSON or in the recipe is taken as it is. Only texts are parsed as people write numbers and prices.

Booleans are read by words that the recipe lists. Only whole words match: `available` is not in "unavailable". The
longest matching word decides, so "not in stock" beats "in stock". A negated word ("not yet available") does not count.
If two words of the same length disagree, the value is undecided.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import turbohtml

from ..errors import InvalidUrl
from ..extract.dates import moment_of
from ..extract.links import make_absolute
from ..extract.numbers import nth_number
from ..model.currencies import SHARED
from ..model.money import Money, first_price, prices_in
from ..model.url import parse_url
from ..parse.page import Page
from ..parse.selectors import Selector
from .model import FieldType, TypeOptions

MAX_DIGITS = 18  # of an integer; every store holds these exactly
_MAX_EXPONENT = 5000  # JSON can hold numbers that fill the memory when written out
_TRUE = frozenset({"true", "yes", "y", "1", "on"})
_FALSE = frozenset({"false", "no", "n", "0", "off"})
_LINK_ATTRIBUTES = ("href", "src", "content", "data-src", "data-lazy-src", "data-original", "value")
_NO_ADDRESS = ("data:", "javascript:", "about:", "#")  # placeholders until a script sets the address


class UnreadableValue(Exception):
    """A found value that is not of the field's type; the text says why, worded to follow "found '...'"."""


def type_phrase(kind: FieldType) -> str:
    """`an int`, `a date`"""
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def value_of(raw: Any, options: TypeOptions, page: Page | None) -> Any:
    """The found value converted to the type; None if it has no text. Raises UnreadableValue."""
    kind = options.single
    if taken_as_is(raw, kind) and options.scale is None:
        return raw
    if isinstance(raw, int | float | Decimal) and not isinstance(raw, bool):
        number = _exact(raw)
        match kind:
            case FieldType.INT:
                return _whole(format(_scaled(number, options), "f"))
            case FieldType.DECIMAL:
                return _scaled(number, options)
            case FieldType.FLOAT:
                return _finite(_scaled(number, options))
            case FieldType.MONEY:
                return Money(_scaled(number, options), options.currency or "")
            case FieldType.BOOL if number in (0, 1):
                return number == 1
    text = text_of(raw, options, page).strip()
    return read(text, options, page) if text else None


def _exact(raw: int | float | Decimal) -> Decimal:
    """The number with exactly the written digits. Raises UnreadableValue for infinity and NaN."""
    number = raw if isinstance(raw, Decimal) else Decimal(str(raw))
    if not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
        raise UnreadableValue("which is not a number that can be stored")
    return Decimal(format(number, "f"))  # 1e21 with all its digits


def _finite(number: Decimal) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise UnreadableValue("which is too large; use text")
    return found


def text_of(raw: Any, options: TypeOptions, page: Page | None) -> str:
    """A found value as text, as the field's type needs it: addresses from links, HTML from elements. Raises
    UnreadableValue for an object or a list. `page` is the page of the elements."""
    kind = options.single
    if isinstance(raw, Selector):
        root = raw.root
        if isinstance(root, str):
            return raw.text if kind is FieldType.TEXT else root
        if kind is FieldType.HTML:
            return str(raw.get())
        if kind is FieldType.MARKDOWN and page is not None:
            return _markdown(root, page)
        if kind is FieldType.URL and isinstance(root, turbohtml.Element):
            return _address_in(root)
        return raw.text
    if isinstance(raw, str):
        return raw
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, int | float | Decimal | Money):
        return str(raw)
    if isinstance(raw, datetime | date):
        return raw.isoformat()
    if isinstance(raw, dict | list):
        raise UnreadableValue(f"which is {'an object' if isinstance(raw, dict) else 'a list'}, not {type_phrase(kind)}")
    return str(raw)


def _address_in(element: turbohtml.Element) -> str:
    """The address that the element links to or shows. A lazily loaded image has a placeholder first."""
    given = [value for name in _LINK_ATTRIBUTES if (value := element.attr(name))]
    real = (value for value in given if not value.lstrip()[:20].lower().startswith(_NO_ADDRESS))
    return next(real, given[0] if given else "")


def _markdown(root: turbohtml.Node, page: Page) -> str:
    # A copy, so that links become absolute in the text but not in the page.
    content = deepcopy(root)
    if isinstance(content, turbohtml.Element):
        make_absolute(content, page.urljoin(""))
        return str(content.to_markdown())
    return " ".join(root.text.split())


def read(text: str, options: TypeOptions, page: Page | None) -> Any:
    """The text as a value of the type. Relative addresses are resolved against the page. Raises UnreadableValue."""
    match options.single:
        case FieldType.TEXT if options.words:
            return _worded(text, options.words)
        case FieldType.TEXT:
            return " ".join(text.split()) if "\n" not in text.strip() else text.strip()
        case FieldType.HTML:
            return text.strip()
        case FieldType.MARKDOWN:
            return (_markdown_of(text) if "<" in text and ">" in text else text).strip()
        case FieldType.INT:
            return _whole(_number(text, options))
        case FieldType.DECIMAL:
            return Decimal(_number(text, options))
        case FieldType.FLOAT:
            return _finite(Decimal(_number(text, options)))
        case FieldType.MONEY:
            return _money(text, options)
        case FieldType.URL:
            return _url(text, page)
        case FieldType.BOOL:
            return _bool(text, options)
        case FieldType.DATE | FieldType.DAY:
            return _moment(text, options, page)
    raise UnreadableValue(f"which cannot be read as {options.single}")


def taken_as_is(raw: Any, kind: FieldType) -> bool:
    """Is the found value already of the type?"""
    if isinstance(raw, bool):
        return kind is FieldType.BOOL
    match kind:
        case FieldType.INT:
            return isinstance(raw, int) and abs(raw) < 10**MAX_DIGITS
        case FieldType.FLOAT:
            return isinstance(raw, float) and math.isfinite(raw)
        case FieldType.MONEY:
            return isinstance(raw, Money)
        case FieldType.DATE:
            return isinstance(raw, datetime) and raw.tzinfo is not None
        case FieldType.DAY:
            return isinstance(raw, date) and not isinstance(raw, datetime)
    return False


def _markdown_of(html: str) -> str:
    return str(turbohtml.parse(html).to_markdown())


def _number(text: str, options: TypeOptions) -> str:
    try:
        number = nth_number(text, options.nth, options.decimal)
    except ValueError as error:
        raise UnreadableValue(f"and {error}") from error
    if number is None:
        raise UnreadableValue(f"in which there is no {_ordinal(options)}{options.single}")
    return number if options.scale is None else format(_scaled(Decimal(number), options), "f")


def _ordinal(options: TypeOptions) -> str:
    return f"{options.nth}. " if options.nth > 1 else ""


def _scaled(number: Decimal, options: TypeOptions) -> Decimal:
    """The number in the unit of the field, without needless zeros."""
    if options.scale is None:
        return number
    scaled = number * options.scale
    return Decimal(format(scaled.normalize(), "f")) if options.single is not FieldType.MONEY else scaled


def _worded(text: str, words: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """The value whose words the text has: the whole text first, else the longest of them."""
    folded = fold(text[:_LONGEST_TEXT])
    for value, spellings in words:
        if any(fold(word) == folded for word in spellings):
            return value
    ranked = sorted(((_longest(folded, spellings), value) for value, spellings in words), reverse=True)
    if not ranked[0][0] or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
        raise UnreadableValue("which has none of the `words`, or several of them")
    return ranked[0][1]


def _whole(number: str) -> int:
    whole, _, part = number.partition(".")
    if part.strip("0"):
        raise UnreadableValue(f"and {number} is not a whole number; use float or decimal")
    if len(whole) > MAX_DIGITS:
        raise UnreadableValue(f"which has more than {MAX_DIGITS} digits; use text")
    return int(whole)


def _money(text: str, options: TypeOptions) -> Money:
    found = first_price(text, options.currency) if options.nth == 1 else _nth_price(text, options)
    if found is None:
        raise UnreadableValue(f"in which there is no {_ordinal(options)}price")
    amount, currency, sign = found
    if options.currency and sign in SHARED and currency != options.currency:
        raise UnreadableValue(f"whose sign {sign} is not one of {options.currency}, which the recipe declares")
    return Money(amount if options.scale is None else _scaled(amount, options), currency)


def _nth_price(text: str, options: TypeOptions) -> tuple[Decimal, str, str] | None:
    prices = islice(prices_in(text, options.currency), options.nth - 1, options.nth)
    return next(((one.amount, one.currency or options.currency or "", one.sign) for one in prices), None)


def _url(text: str, page: Page | None) -> str:
    try:
        return page.urljoin(text.strip()) if page is not None else parse_url(text.strip())
    except InvalidUrl as error:
        raise UnreadableValue("which is not a web address") from error


def _bool(text: str, options: TypeOptions) -> bool:
    if options.true or options.false:
        try:
            found = decided(text, options.true, options.false)
        except Undecided:
            raise UnreadableValue("which has words of both `true` and `false`") from None
        if found is None and options.true and options.false:
            raise UnreadableValue("which has none of the words of `true` and `false`")
        return found if found is not None else not options.true
    folded = fold(text)
    if folded in _TRUE or folded in _FALSE:
        return folded in _TRUE
    raise UnreadableValue("which is neither yes nor no; list the words with true = [...]")


def _moment(text: str, options: TypeOptions, page: Page | None) -> datetime | date:
    try:
        found = moment_of(
            text,
            zone=options.zone,
            formats=options.formats,
            languages=options.languages,
            now=page.fetched_at if page is not None else None,
        )
    except ValueError as error:
        raise UnreadableValue(f"which is not a date ({error})") from error
    return found if options.type is not FieldType.DAY and options.of is not FieldType.DAY else found.date()


def excerpt(raw: Any, room: int = 200) -> str:
    """A found value for a message: on one line, shortened."""
    if isinstance(raw, Selector):
        text = raw.text or str(raw.get())
    elif isinstance(raw, dict | list):
        text = json.dumps(raw, ensure_ascii=False, default=str)
    else:
        text = str(raw)
    text = " ".join(text[: room * 5].split())
    return text if len(text) <= room else f"{text[: room - 1]}…"


_NEGATIONS = frozenset((
    "not", "no", "never", "cannot", "non", "nicht", "kein", "keine", "keinen", "nie", "ne", "pas", "jamais",
    "aucun", "aucune", "sans", "sin", "nunca", "senza", "não", "nao", "sem", "niet", "geen", "nooit", "inte", "ej",
    "ingen", "inga", "ikke", "ei", "eivät", "brak", "není", "nejsou", "не", "нет", "без", "немає", "ні",
))  # fmt: skip
_CLAUSE_END = re.compile(r"[.,;:!?()|/•·–—\n]|\s-\s")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_LONGEST_TEXT = 100_000  # characters searched
_LOOK_BACK = 40  # characters before a word that are searched for a negation
_DENIAL_WORDS = 2  # words: "no longer available"


class Undecided(Exception):
    """The text has words of both sides, and the longest of each have the same length."""


def decided(text: str, true: tuple[str, ...], false: tuple[str, ...]) -> bool | None:
    """True or False, by the words in the text; None if it has none of them. Raises Undecided."""
    folded = fold(text[:_LONGEST_TEXT])
    yes, no = (_longest(folded, words) for words in (true, false))
    if yes == no:
        if yes:
            raise Undecided
        return None
    return yes > no


def fold(text: str) -> str:
    """How words are compared: without case, with single spaces."""
    return " ".join(text.split()).casefold()


def _longest(text: str, words: tuple[str, ...]) -> int:
    """The length of the longest of the words in the text; 0 if it has none."""
    return max((len(word) for word in map(fold, words) if word and _stands_in(text, word)), default=0)


def _stands_in(text: str, word: str) -> bool:
    return any(not _is_denied(text, at) for at in _places(text, word))


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not _joined(text[at - 1 : at], word[0]) and not _joined(word[-1], text[end : end + 1]):
            yield at
        at = text.find(word, at + 1)


def _joined(left: str, right: str) -> bool:
    """Do two neighbours belong to one word?"""
    return _in_a_word(left) and _in_a_word(right)


def _in_a_word(char: str) -> bool:
    # Chinese, Japanese, Thai and similar scripts have no spaces, and Korean appends endings: any position may be a word
    # boundary.
    return char.isalnum() and not (char >= "\u2e80" or "\u0e00" <= char <= "\u0eff" or "\u1000" <= char <= "\u17ff")


def _is_denied(text: str, at: int) -> bool:
    clause = _CLAUSE_END.split(text[max(0, at - _LOOK_BACK) : at])[-1]
    return any(
        word in _NEGATIONS or word.endswith(("n't", "n’t")) or word.startswith(("n'", "n’"))
        for word in _WORD.findall(clause)[-_DENIAL_WORDS:]
    )
