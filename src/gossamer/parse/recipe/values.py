"""From what was found to a value of the field's type. A value that cannot be read is an Unreadable, never a guess."""

from __future__ import annotations

import json
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

MAX_DIGITS = 18  # of a whole number; every store holds these exactly
_TRUE = frozenset({"true", "yes", "y", "1", "on"})
_FALSE = frozenset({"false", "no", "n", "0", "off"})
_LINK_ATTRIBUTES = ("href", "src", "content", "data-src", "value")


class Unreadable(Exception):
    """A found value that is not of the field's type; the text says why, to follow "found '...'"."""


def text_of(raw: Any, reading: Reading, page: Page) -> str:
    """A found value as text, as the field's type wants it: addresses from links, HTML from elements. Raises
    Unreadable for an object or a list."""
    kind = reading.single
    if isinstance(raw, Selector):
        root = raw.root
        if isinstance(root, str):
            return raw.text if kind is FieldType.TEXT else root
        if kind is FieldType.HTML:
            return str(raw.get())
        if kind is FieldType.MARKDOWN:
            return _markdown(root, page)
        if kind is FieldType.URL and isinstance(root, turbohtml.Element):
            return next((value for name in _LINK_ATTRIBUTES if (value := root.attr(name))), "")
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
        raise Unreadable(f"which is {'an object' if isinstance(raw, dict) else 'a list'}, not a {kind}")
    return str(raw)


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
            return float(_number(text, reading))
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
            return isinstance(raw, int | float)
        case FieldType.DECIMAL:
            return isinstance(raw, Decimal)
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
    folded = " ".join(text.split()).casefold()
    if any(word.casefold() in folded for word in reading.true):
        return True
    if any(word.casefold() in folded for word in reading.false):
        return False
    if reading.true or reading.false:
        if reading.true and reading.false:
            raise Unreadable("in which stands none of the words of `true` and `false`")
        return not reading.true
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
            now=page.fetched_at if page is not None else 0.0,
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
