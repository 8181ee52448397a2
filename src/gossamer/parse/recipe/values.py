"""From what was found to a value of the field's type. A value that cannot be read is an Unreadable, never a guess.

A number in JSON, or in the recipe, is that number. Only texts are read as people write numbers and prices.
"""

from __future__ import annotations

import json
import math
from copy import deepcopy
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import turbohtml

from ...errors import InvalidUrl
from ...model.money import Money
from ...model.url import parse_url
from ..page import Page
from ..selectors import Selector
from .dates import moment_of
from .model import FieldType, Reading
from .numbers import first_number
from .yes_no import Torn, decided, fold

MAX_DIGITS = 18  # of a whole number; every store holds these exactly
_MAX_EXPONENT = 5000  # JSON can name numbers that fill the memory when they are written out
_TRUE = frozenset({"true", "yes", "y", "1", "on"})
_FALSE = frozenset({"false", "no", "n", "0", "off"})
_LINK_ATTRIBUTES = ("href", "src", "content", "data-src", "data-lazy-src", "data-original", "value")
_NO_ADDRESS = ("data:", "javascript:", "about:", "#")  # what stands there until a script has put the address in


class Unreadable(Exception):
    """A found value that is not of the field's type; the text says why, to follow "found '...'"."""


def named(kind: FieldType) -> str:
    """`an int`, `a date`"""
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def value_of(raw: Any, reading: Reading, page: Page | None) -> Any:
    """What was found as a value of the type; None when there is no text in it. Raises Unreadable."""
    kind = reading.single
    if taken_as_is(raw, kind):
        return raw
    if isinstance(raw, int | float | Decimal) and not isinstance(raw, bool):
        number = _exact(raw)
        match kind:
            case FieldType.INT:
                return _whole(format(number, "f"))
            case FieldType.DECIMAL:
                return number
            case FieldType.FLOAT:
                return _finite(number)
            case FieldType.MONEY:
                return Money(number, reading.currency or "")
            case FieldType.BOOL if number in (0, 1):
                return number == 1
    text = text_of(raw, reading, page).strip()
    return read(text, reading, page) if text else None


def _exact(raw: int | float | Decimal) -> Decimal:
    """The number with the digits that it is written with. Raises Unreadable for what is no number at all."""
    number = raw if isinstance(raw, Decimal) else Decimal(str(raw))
    if not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
        raise Unreadable("which is no number that can be stored")
    return Decimal(format(number, "f"))  # 1e21 with all its digits


def _finite(number: Decimal) -> float:
    found = float(number)
    if not math.isfinite(found):
        raise Unreadable("which is too large; use text")
    return found


def text_of(raw: Any, reading: Reading, page: Page | None) -> str:
    """A found value as text, as the field's type wants it: addresses from links, HTML from elements. Raises
    Unreadable for an object or a list. Elements need the page that they stand on."""
    kind = reading.single
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
        raise Unreadable(f"which is {'an object' if isinstance(raw, dict) else 'a list'}, not {named(kind)}")
    return str(raw)


def _address_in(element: turbohtml.Element) -> str:
    """What the element leads to or shows. An image that is loaded late has a stand-in first."""
    given = [value for name in _LINK_ATTRIBUTES if (value := element.attr(name))]
    real = (value for value in given if not value.lstrip()[:20].lower().startswith(_NO_ADDRESS))
    return next(real, given[0] if given else "")


def _markdown(root: turbohtml.Node, page: Page) -> str:
    # A copy: links become absolute in the text, not in the page.
    content = deepcopy(root)
    if isinstance(content, turbohtml.Element):
        content.resolve_links(page.urljoin(""))
        return str(content.to_markdown())
    return " ".join(root.text.split())


def read(text: str, reading: Reading, page: Page | None) -> Any:
    """The text as a value of the type. Addresses need a page that they stand on. Raises Unreadable."""
    match reading.single:
        case FieldType.TEXT:
            return " ".join(text.split()) if "\n" not in text.strip() else text.strip()
        case FieldType.HTML:
            return text.strip()
        case FieldType.MARKDOWN:
            return (_markdown_of(text) if "<" in text and ">" in text else text).strip()
        case FieldType.INT:
            return _whole(_number(text, reading))
        case FieldType.DECIMAL:
            return Decimal(_number(text, reading))
        case FieldType.FLOAT:
            return _finite(Decimal(_number(text, reading)))
        case FieldType.MONEY:
            return _money(text, reading)
        case FieldType.URL:
            return _url(text, page)
        case FieldType.BOOL:
            return _bool(text, reading)
        case FieldType.DATE | FieldType.DAY:
            return _moment(text, reading, page)
    raise Unreadable(f"which cannot be read as {reading.single}")


def taken_as_is(raw: Any, kind: FieldType) -> bool:
    """Is the found value one of the type already?"""
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


def _number(text: str, reading: Reading) -> str:
    try:
        number = first_number(text, reading.decimal)
    except ValueError as error:
        raise Unreadable(f"and {error}") from error
    if number is None:
        raise Unreadable(f"in which there is no {reading.single}")
    return number


def _whole(number: str) -> int:
    whole, _, part = number.partition(".")
    if part.strip("0"):
        raise Unreadable(f"and {number} is no whole number; use float or decimal")
    if len(whole) > MAX_DIGITS:
        raise Unreadable(f"which has more than {MAX_DIGITS} digits; use text")
    return int(whole)


def _money(text: str, reading: Reading) -> Money:
    found = Money.parse(text, reading.currency)
    if found is None:
        raise Unreadable("in which there is no price")
    return found


def _url(text: str, page: Page | None) -> str:
    try:
        return page.urljoin(text.strip()) if page is not None else parse_url(text.strip())
    except InvalidUrl as error:
        raise Unreadable("which is no web address") from error


def _bool(text: str, reading: Reading) -> bool:
    if reading.true or reading.false:
        try:
            found = decided(text, reading.true, reading.false)
        except Torn:
            raise Unreadable("in which stand words of both `true` and `false`") from None
        if found is None and reading.true and reading.false:
            raise Unreadable("in which stands none of the words of `true` and `false`")
        return found if found is not None else not reading.true
    folded = fold(text)
    if folded in _TRUE or folded in _FALSE:
        return folded in _TRUE
    raise Unreadable("which is neither yes nor no; name the words with true = [...]")


def _moment(text: str, reading: Reading, page: Page | None) -> datetime | date:
    try:
        found = moment_of(
            text,
            zone=reading.zone,
            formats=reading.formats,
            languages=reading.languages,
            now=page.fetched_at if page is not None else None,
        )
    except ValueError as error:
        raise Unreadable(f"which is no date ({error})") from error
    return found if reading.type is not FieldType.DAY and reading.of is not FieldType.DAY else found.date()


def shown(raw: Any, room: int = 200) -> str:
    """A found value for a message: on one line, cut."""
    if isinstance(raw, Selector):
        text = raw.text or str(raw.get())
    elif isinstance(raw, dict | list):
        text = json.dumps(raw, ensure_ascii=False, default=str)
    else:
        text = str(raw)
    text = " ".join(text[: room * 5].split())
    return text if len(text) <= room else f"{text[: room - 1]}…"
