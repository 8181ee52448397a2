"""How the text of a spot reads as a known value: as it is, as the k-th number, scaled, between constant words, as a
date in one of several orders. A reading is what a recipe writes beside its source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, TypeAlias

from ...extract.dates import page_date, shown_dates
from ...extract.numbers import nth_number
from ...model.money import Money, can_mean, prices_in
from ..model import FieldType
from .goal import LONG, NUMBERS, Goal, agrees, basename, plain
from .spots import Spot

Reading: TypeAlias = tuple[tuple[str, Any], ...]

_LONGEST_NUMBER = 200  # characters of a text in which a number is looked for
_LONGEST_BARE = 24  # characters of a text with a price that has no currency
_MOST_NUMBERS = 4
_LONGEST_WORDS = 60  # characters of constant words
_SCALES = tuple(map(Decimal, ("0.01", "0.05", "0.1", "0.5", "2", "10", "20", "100", "1000", "0.001")))
_DIGIT = re.compile(r"\d")
_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y", "%d/%m/%y",
            "%m/%d/%y", "%Y年%m月%d日", "%Y%m%d")  # fmt: skip
_NUMERIC_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}|\d{4}年\d{1,2}月\d{1,2}日|(?<!\d)(?:19|20)\d{6}(?!\d)")
_ADDRESSES = (
    "href",
    "src",
    "content",
    "data-src",
    "data-lazy-src",
    "data-original",
    "data-image",
    "poster",
    "data",
    "value",
    "image",
    "url",
)
# Addresses with other words around them: a background, and a picture in several sizes.
_ADDRESS_IN = {
    "::attr(style)": re.compile(r"url\(['\"]?([^'\")]+)"),
    "::attr(srcset)": re.compile(r"^\s*([^\s,]+)"),
    "::attr(data-srcset)": re.compile(r"^\s*([^\s,]+)"),
}


class Wanted:
    """The known values of one sample, arranged so that most spots cost a few look-ups."""

    def __init__(self, goals: list[Goal], values: dict[str, Any]) -> None:
        self.texts: dict[str, list[int]] = {}
        self.parts: list[tuple[int, str]] = []
        self.numbers: list[tuple[int, Goal, Any]] = []
        self.dates: list[tuple[int, Goal, Any]] = []
        self.addresses: dict[str, list[int]] = {}
        self.long: list[tuple[int, str]] = []
        self.bare: list[tuple[int, Goal, Any]] = []
        for at, goal in enumerate(goals):
            value = values.get(goal.name)
            if value is None:
                continue
            for one in value if goal.many else (value,):
                self._add(at, goal, one)

    def _add(self, at: int, goal: Goal, value: Any) -> None:
        kind = goal.type
        if kind is FieldType.TEXT:
            text = plain(value)
            self.texts.setdefault(text, []).append(at)
            if len(text) >= LONG:
                self.long.append((at, text))
            elif not goal.many and len(text) >= 2:
                self.parts.append((at, text))
        elif kind in NUMBERS or kind is FieldType.MONEY:
            self.numbers.append((at, goal, value))
        elif kind in (FieldType.DATE, FieldType.DAY):
            self.dates.append((at, goal, value))
        elif kind is FieldType.URL:
            self.addresses.setdefault(basename(value) or value, []).append(at)
        elif kind in (FieldType.MARKDOWN, FieldType.HTML):
            self.bare.append((at, goal, value))

    def readings(self, spot: Spot, language: str) -> Iterator[tuple[int, Reading]]:
        """The goals whose value the spot holds, by their index, and how it is read."""
        text, raw = spot.text, spot.raw
        for at in self.texts.get(text, ()):
            yield at, ()
        for at, value in self.long:
            if len(text) > len(value) and text.startswith(value):
                yield at, ()
        if len(text) <= 300:
            for at, value in self.parts:
                if len(value) < len(text) and value in text:
                    yield from ((at, reading) for reading in _parts(text, value))
        if self.numbers and len(text) <= _LONGEST_NUMBER and _DIGIT.search(text):
            for at, goal, value in self.numbers:
                for reading in numbers(raw, text, goal, value):
                    if spot.cents is None or not {"nth", "scale"} & {*dict(reading)}:  # two elements are one number
                        yield at, reading
        if self.dates and len(text) <= 120 and _DIGIT.search(text):
            for at, goal, value in self.dates:
                yield from ((at, reading) for reading in _dates(raw, text, goal, value, language))
        pattern = _ADDRESS_IN.get(spot.take) if self.addresses else None
        if pattern is not None and (found := pattern.search(raw)):
            for at in self.addresses.get(basename(found[1]) or found[1], ()):
                yield at, (("regex", pattern.pattern),)
        address = isinstance(raw, str) and len(raw) <= 1000 and ("/" in raw or "." in raw)
        if self.addresses and address and (not spot.take or spot.take[7:-1] in _ADDRESSES or "data-" in spot.take):
            for at in self.addresses.get(basename(raw) or raw, ()):
                yield at, ()
        for at, goal, value in self.bare:
            if abs(len(text) - len(value)) < 0.5 * len(value) and agrees(text, value, goal):
                yield at, ()


def _parts(text: str, value: str) -> Iterator[Reading]:
    """The words around the value, whole and the nearest ones only."""
    at = text.find(value)
    end = at + len(value)
    if _joined(text[at - 1 : at], value[0]) or _joined(value[-1], text[end : end + 1]):
        return
    before, after = text[:at], text[end:]
    lefts = {before, _last_word(before)} if before else {""}
    rights = {after, _first_word(after)} if after else {""}
    for left in lefts:
        for right in rights:
            if len(left) <= _LONGEST_WORDS and len(right) <= _LONGEST_WORDS and (left.strip() or right.strip()):
                # `after` is found at its first place, so a lone common sign may find another one.
                yield (*((("after", left),) if left.strip() else ()), *((("before", right),) if right.strip() else ()))


def _joined(left: str, right: str) -> bool:
    return left.isalnum() and right.isalnum()


def _last_word(text: str) -> str:
    words = text.rstrip()
    at = max(words.rfind(" "), -1)
    return text[at + 1 :]


def _first_word(text: str) -> str:
    lead = len(text) - len(text.lstrip())
    at = text.find(" ", lead)
    return text[: at + 1] if at > 0 else text


def numbers(raw: Any, text: str, goal: Goal, value: Any) -> Iterator[Reading]:
    """How a text reads as a number or a price."""
    if goal.type is FieldType.MONEY:
        yield from _prices(raw, text, value)
        return
    target = Decimal(str(value))
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        yield from (_scale(scale) for scale in scales(Decimal(str(raw)), target))
        return
    for decimal in (".", ","):
        if decimal == "," and not ("," in text or "." in text):
            return
        for nth in range(1, _MOST_NUMBERS + 1):
            try:
                number = nth_number(text, nth, decimal)
            except ValueError:
                continue
            if number is None:
                break
            for scale in scales(Decimal(number), target):
                yield (
                    *((("decimal", decimal),) if decimal == "," else ()),
                    *((("nth", nth),) if nth > 1 else ()),
                    *_scale(scale),
                )


def scales(number: Decimal, target: Decimal) -> Iterator[Decimal]:
    """1 if the number is the wanted one, or what makes it so."""
    if number == target:
        yield Decimal(1)
    elif number and target:
        yield from (scale for scale in _SCALES if number * scale == target)


def _scale(scale: Decimal) -> Reading:
    return (("scale", float(scale)),) if scale != 1 else ()


def _prices(raw: Any, text: str, value: Money) -> Iterator[Reading]:
    currency: Reading = (("currency", value.currency),) if value.currency else ()
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        yield from ((*currency, *_scale(scale)) for scale in scales(Decimal(str(raw)), value.amount) if scale <= 1)
        return
    prices = list(islice(prices_in(text), _MOST_NUMBERS))
    if value.currency and any(one.sign and not can_mean(one.sign, value.currency) for one in prices):
        return
    if len(text) > _LONGEST_BARE and not any(one.currency for one in prices):
        return  # a number among words is no price
    for nth, found in enumerate(prices, 1):
        # A sign of another currency is another price, whatever its amount.
        if not value.currency or found.currency == value.currency:
            currency = ()
        if found.amount == value.amount:
            yield (*currency, *((("nth", nth),) if nth > 1 else ()))
        elif found.amount * Decimal("0.01") == value.amount and not found.currency:
            yield (*currency, *((("nth", nth),) if nth > 1 else ()), ("scale", 0.01))


def _dates(raw: Any, text: str, goal: Goal, value: Any, language: str) -> Iterator[Reading]:
    wanted = value.date() if isinstance(value, datetime) else value
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        if (found := page_date(int(raw))) is not None and found.date() == wanted:
            yield ()
        return
    whole = page_date(text) if len(text) <= 40 else None
    if whole is not None and _day(whole) == wanted:
        yield ()
        return
    for match in _NUMERIC_DATE.finditer(text):
        left, right = text[: match.start()], text[match.end() :]
        around = next(_parts(text, match[0]), None) if left.strip() or right.strip() else ()
        if around is None:
            continue
        for form in _FORMATS:
            try:
                if datetime.strptime(match[0], form).date() == wanted:
                    yield (*around, ("format", form))
            except ValueError:
                continue
        if (iso := page_date(match[0])) is not None and _day(iso) == wanted:
            yield around
    for shown in shown_dates(text, language):
        if shown.day.date() == wanted and not _NUMERIC_DATE.search(text):
            yield ()


def _day(moment: datetime) -> date:
    return (moment.astimezone(UTC) if moment.tzinfo is not None else moment).date()
