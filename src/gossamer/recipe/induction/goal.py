"""A field whose rule is wanted, its known values, and when a found value agrees with a known one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from unicodedata import normalize
from urllib.parse import urlsplit

import msgspec

from ...model.money import Money
from ..model import Field, FieldType, TypeOptions
from ..sources import PagePart

NUMBERS = (FieldType.INT, FieldType.DECIMAL, FieldType.FLOAT)
LONG = 80  # characters of a text that people edit and extend
_SIZES = re.compile(r"(?:[-_@.](?:\d{2,4}x\d{2,4}|\dx|small|medium|large|thumb|scaled|[0-9a-f]{8,}))+$", re.IGNORECASE)
_FORMER = re.compile(r"(?i)old|was|before|former|original|regular|previous|list|retail|rrp|msrp|uvp|strike|struck|full")
_LEFT_OUT = re.compile(r"[\W_]+")


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A field. `change` is the share of its values that change between two visits; None if nothing is known of that."""

    name: str
    options: TypeOptions = TypeOptions()
    required: bool = False
    key: bool = False
    change: float | None = None

    @property
    def type(self) -> FieldType:
        return self.options.single

    @property
    def former(self) -> bool:
        """Does its name say that it is the price before a sale, which stands struck out?"""
        return _FORMER.search(self.name) is not None

    @property
    def many(self) -> bool:
        return self.options.type is FieldType.LIST


def goals_of(fields: Sequence[Field], key: Sequence[str] = ()) -> list[Goal]:
    """What is wanted of the fields that have a value of their own."""
    return [
        Goal(
            name=field.name,
            options=TypeOptions(
                type=field.options.type, of=field.options.of, currency=field.options.currency, zone=field.options.zone
            ),
            required=field.required,
            key=field.name in key,
        )
        for field in fields
        if not field.fields and (field.name != "url" or "url" in key)
    ]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A page, or a part of one, with the values that are known of it; without any, a page that only must look right."""

    part: PagePart
    values: dict[str, Any] | None = None
    name: str = ""  # for evidence: the address, or the key of the record


def known_value(raw: Any, options: TypeOptions) -> Any:
    """A stored value (from the JSON of a record, or as a person types it) as one of the field's type; None for one that
    is not."""
    if raw is None or raw == "" or raw == []:
        return None
    if options.type is FieldType.LIST:
        entries = raw if isinstance(raw, list | tuple) else [raw]
        single = msgspec.structs.replace(options, type=options.single, of=None)
        values = [value for entry in entries if (value := known_value(entry, single)) is not None]
        return values or None
    try:
        return _single(raw, options)
    except (ValueError, InvalidOperation, TypeError, OverflowError):
        return None


def _single(raw: Any, options: TypeOptions) -> Any:
    match options.single:
        case FieldType.MONEY:
            if isinstance(raw, Money):
                return raw
            if isinstance(raw, dict):
                return Money(Decimal(str(raw["amount"])), str(raw.get("currency") or options.currency or ""))
            if isinstance(raw, int | float | Decimal) or re.fullmatch(r"-?\d+(?:\.\d+)?", str(raw).strip()):
                return Money(Decimal(str(raw).strip()), options.currency or "")
            return Money.parse(str(raw), options.currency)
        case FieldType.INT:
            return int(raw)
        case FieldType.DECIMAL:
            return Decimal(str(raw))
        case FieldType.FLOAT:
            return float(raw)
        case FieldType.BOOL:
            return raw if isinstance(raw, bool) else {"true": True, "false": False}.get(str(raw).lower())
        case FieldType.DATE:
            found = raw if isinstance(raw, datetime) else datetime.fromisoformat(str(raw))
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        case FieldType.DAY:
            return raw if isinstance(raw, date) and not isinstance(raw, datetime) else date.fromisoformat(str(raw)[:10])
    return plain(str(raw))


def plain(text: str) -> str:
    """A text as it is compared: composed, with single spaces."""
    text = " ".join(text.split())
    return text if text.isascii() else normalize("NFC", text)


def basename(url: str) -> str:
    """What stays of the address of an image when a site moves it: its name without folders, sizes and endings."""
    try:
        name = urlsplit(url).path.rstrip("/").rpartition("/")[2]
    except ValueError:
        return ""
    stem = name.rpartition(".")[0] or name
    return _SIZES.sub("", stem).lower()


def agrees(found: Any, known: Any, goal: Goal) -> bool:
    """Does a value that a rule found say the same as the known one?"""
    if found is None or known is None:
        return False
    if goal.many:
        if not isinstance(found, list) or not isinstance(known, list) or len(found) != len(known):
            return False
        rest = list(found)
        for value in known:
            at = next((at for at, one in enumerate(rest) if _same(one, value, goal.type)), None)
            if at is None:
                return False
            rest.pop(at)
        return True
    return _same(found, known, goal.type)


def _same(found: Any, known: Any, kind: FieldType) -> bool:
    if kind is FieldType.MONEY:
        return bool(found.amount == known.amount and (not known.currency or found.currency == known.currency))
    if kind in NUMBERS:
        return math.isclose(float(found), float(known), rel_tol=1e-6, abs_tol=1e-9)
    if kind is FieldType.DATE:
        bare = time(0)
        if found.astimezone(UTC) == known.astimezone(UTC):
            return True
        return bool((found.time() == bare or known.time() == bare) and found.date() == known.date())
    if kind is FieldType.URL:
        return bool(found == known or (len(basename(known)) > 2 and basename(found) == basename(known)))
    if kind in (FieldType.HTML, FieldType.MARKDOWN):
        return _LEFT_OUT.sub("", str(found)).casefold() == _LEFT_OUT.sub("", str(known)).casefold()
    if kind is FieldType.TEXT:
        found, known = plain(found), plain(known)
        # A long text that was continued is the same text; its old beginning alone would be a worse match.
        return bool(found == known or (len(known) >= LONG and found.startswith(known)))
    return bool(found == known)


def spelled(value: Any) -> Any:
    """A value as something that can be counted and compared: the same for equal values."""
    if isinstance(value, list):
        return tuple(spelled(one) for one in value)
    if isinstance(value, float | int | Decimal) and not isinstance(value, bool):
        return round(float(value), 6)
    if isinstance(value, Money):
        return (round(float(value.amount), 4), value.currency)
    return plain(value) if isinstance(value, str) else value
