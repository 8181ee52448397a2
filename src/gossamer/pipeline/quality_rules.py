"""Quality rules: what is wrong with an item that is complete and well typed, but still cannot be right.

Built in: a missing title; a price that is not positive, above a ceiling, or far from the record's earlier one; a rating
out of range; a currency without a price; debris of a wrong encoding or of a template; and a field that was nearly
always filled and suddenly is mostly empty. The user's own rules are plain functions.

A fault does not stop an item: it is counted, `gossamer why` shows it, and it lowers the score (quality_guard.py decides
when a score is too low). Everything here is pure; the earlier data of a record is passed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ..errors import ParseFailed
from ..model.item import AnyItem, type_name
from ..model.money import Money
from ..settings.quality_tables import QualityTable

TITLES = frozenset({"title", "name", "headline"})
PRICES = frozenset({"price", "sale_price", "regular_price", "list_price"})
RATINGS = frozenset({"rating", "rating_value", "average_rating", "stars"})
CURRENCIES = frozenset({"currency", "price_currency"})

# UTF-8 that was read as Latin-1 or Windows-1252 shows up as these pairs, which are very rare in real text.
_DEBRIS = re.compile(
    r"\ufffd|Ã[\u0080-\u00bf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€[\u0080-\u00bf™œ\u009d¦“”˜]|Â[\u00a0-\u00bf]"
    r"|&(?:amp;)+(?:[a-z]{2,8}|#\d{1,6});|\[object Object\]"
)
_ESCAPED = re.compile(r"&(?:amp|nbsp|quot|#39|#x27);")  # a fault in text, correct in HTML
_TEMPLATE = re.compile(r"\s*(?:\{\{[^{}\n]{0,80}\}\}|\$\{[^{}\n]{0,80}\})\s*")  # a fault if it is the whole text
_NOTHINGS = frozenset({"undefined", "null", "nan"})
_LONGEST_NOTHING = max(map(len, _NOTHINGS))
_DEBRIS_BEGINS = re.compile("[\ufffdÃâÂ]")
_BEFORE_NUMBERS = frozenset("+-._nNiIsS")  # what a number may begin with besides a digit: sign, point, NaN, infinity
_LOOKED_AT = 20_000  # characters of a text that are searched for debris


class Fault(msgspec.Struct, frozen=True):
    """One fault of an item. `field` "*" means the item as a whole."""

    field: str
    rule: str
    message: str = ""


Rule: TypeAlias = Callable[..., Any]  # rule(item, page) -> None, a text, a Fault, or several of these
Broken: TypeAlias = Callable[[str, str], bool]  # (type, field) -> nearly always filled before, and mostly empty now


def values_of(item: AnyItem) -> Mapping[str, Any]:
    """The fields of an item with their values, without those that were never set."""
    if isinstance(item, dict):
        return item
    values = msgspec.structs.asdict(item)
    if msgspec.UNSET in values.values():
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}
    return values


def is_filled(value: object) -> bool:
    if type(value) is str:
        return value != ""
    return value is not None and value is not msgspec.UNSET and value not in ("", [], {}, ())


def fill_of(values: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """The fields of an item, and which of them are filled."""
    return tuple(values), tuple([value != "" if type(value) is str else is_filled(value) for value in values.values()])


def price_of(values: Mapping[str, Any]) -> Money | None:
    """The price of an item or of its stored data; None without a readable price."""
    return _money(values.get("price"), values)


def faults_of(
    item: AnyItem,
    terms: QualityTable,
    *,
    values: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    broken: Broken = lambda type, field: False,
) -> list[Fault]:
    """The faults that the built-in rules find. `values` are the item's, if known already; `before` is the stored data
    of the same record."""
    if values is None:
        values = values_of(item)
    found: list[Fault] = []
    titles, prices, others = _meanings(tuple(values))
    if titles:
        found += _title_faults(titles, values)
    if prices:
        found += _price_faults(prices, values, terms, before)
    if others:
        found += _other_faults(values, terms)
    for field, value in values.items():
        if isinstance(value, str) and value:
            debris = _debris_in(value)
            if debris:
                found.append(Fault(field, "debris", f"{field} holds {debris!r}"))
        elif not is_filled(value) and broken(type_name(item), field) and not any(one.field == field for one in found):
            found.append(Fault(field, "unusually-empty", f"{field} is empty, as in most recent items"))
    return found


@lru_cache(maxsize=1024)
def _meanings(fields: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Which fields are titles, which are prices, and whether others have a meaning too. Cached, because most items have
    the same fields as the one before."""
    return (
        tuple(field for field in fields if field in TITLES),
        tuple(field for field in fields if field in PRICES),
        not (RATINGS | CURRENCIES).isdisjoint(fields),
    )


def _title_faults(titles: Iterable[str], values: Mapping[str, Any]) -> Iterator[Fault]:
    for field in titles:
        if not is_filled(values[field]):
            yield Fault(field, "missing-title", f"{field} is empty")


def _price_faults(
    prices: Iterable[str], values: Mapping[str, Any], terms: QualityTable, before: Mapping[str, Any] | None
) -> Iterator[Fault]:
    for field in prices:
        money = _money(values[field], values)
        if money is None:
            if isinstance(values[field], str) and values[field]:
                yield Fault(field, "price-unreadable", f"{field} is {values[field]!r:.60}, which is not an amount")
        elif not money.amount.is_finite() or money.amount <= 0:
            yield Fault(field, "price-not-positive", f"{field} is {money}")
        elif terms.price_ceiling is not None and money.amount > _exactly(terms.price_ceiling):
            yield Fault(field, "price-too-high", f"{field} is {money}, beyond {terms.price_ceiling:,.0f}")
        elif field == "price" and before is not None and terms.price_jump is not None:
            yield from _jump(money, price_of(before), terms.price_jump)


@lru_cache(maxsize=16)
def _exactly(setting: float) -> Decimal:
    return Decimal(str(setting))


def _jump(now: Money, before: Money | None, factor: float) -> Iterator[Fault]:
    if before is None or before.amount <= 0 or not before.amount.is_finite() or now.currency != before.currency:
        return
    ratio = float(now.amount / before.amount)
    if ratio >= factor or ratio <= 1 / factor:
        yield Fault("price", "price-jump", f"price is {now}, but was {before} before")


def _other_faults(values: Mapping[str, Any], terms: QualityTable) -> Iterator[Fault]:
    for field in RATINGS & values.keys():
        rating = _number(values[field])
        if rating is not None and not (rating.is_finite() and 0 <= rating <= _exactly(terms.rating_max)):
            yield Fault(field, "rating-range", f"{field} is {rating}, outside 0 to {terms.rating_max:g}")
    for field in CURRENCIES & values.keys():
        prices = PRICES & values.keys()
        if is_filled(values[field]) and prices and not any(is_filled(values[price]) for price in prices):
            yield Fault(field, "currency-without-price", f"{field} is {values[field]!r:.20}, but there is no price")


def _debris_in(text: str) -> str:
    if len(text) <= _LONGEST_NOTHING and text.lower() in _NOTHINGS:
        return text
    # Finding a character is far cheaper than a regular expression.
    entity = "&" in text and ";" in text
    suspect = entity or "[object" in text or (not text.isascii() and _DEBRIS_BEGINS.search(text) is not None)
    match = _DEBRIS.search(text, 0, _LOOKED_AT) if suspect else None
    if match is None and "{" in text:
        match = _TEMPLATE.fullmatch(text)
    if match is None and entity and "<" not in text:
        match = _ESCAPED.search(text, 0, _LOOKED_AT)
    return match[0].strip() if match is not None else ""


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    text = str(value).strip()
    if not text or not (text[0].isdecimal() or text[0] in _BEFORE_NUMBERS):
        return None  # faster than letting Decimal fail
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _money(value: object, values: Mapping[str, Any]) -> Money | None:
    """A price as items hold it (Money, a number, a text), or as stored data does (a dict)."""
    if value is None or isinstance(value, Money):
        return value
    currency = ""
    for name in CURRENCIES & values.keys():
        if isinstance(values[name], str):
            currency = values[name]
            break
    if isinstance(value, dict) and "amount" in value:
        amount = _number(value["amount"])
        return Money(amount, str(value.get("currency") or currency)) if amount is not None else None
    amount = _number(value)
    if amount is not None:
        return Money(amount, currency)
    return Money.parse(value, currency or None) if isinstance(value, str) else None


def own_faults(rules: Iterable[tuple[str, Rule]], item: AnyItem, page: object) -> Iterator[Fault]:
    """The faults that the user's rules find. Raises ParseFailed if a rule returns anything else, and whatever a rule
    raises."""
    for name, rule in rules:
        given = rule(item, page)
        if given is None or given is True or given == "":
            continue
        for entry in [given] if isinstance(given, str | Fault) else given if isinstance(given, Iterable) else [given]:
            if isinstance(entry, Fault):
                if not all(isinstance(text, str) for text in (entry.field, entry.rule, entry.message)):
                    raise ParseFailed(f"The quality rule {name} gave {entry!r:.200}. Its three parts must be texts.")
                yield entry
            elif isinstance(entry, str):
                yield Fault("*", name, entry)
            else:
                raise ParseFailed(
                    f"The quality rule {name} gave a {type(entry).__name__}. It may give None, a text or a Fault."
                )
