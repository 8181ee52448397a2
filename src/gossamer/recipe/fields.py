"""Extracts the item of a page: each field from its part of the page, with a note on what every rule found.

What it does: the sources of a field are tried in order; the first value that can be converted to the field's type
counts. Item classes are created at run time, so that validation, records and exports know the types.
How it fails: a required field without a value is noted as missing; the caller decides what follows. An optional one is
None, or its default, with the fault noted. A list has the entries that can be converted; each of the others is noted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from types import GenericAlias
from typing import Any

import msgspec

from ..errors import Misconfigured, ParseFailed
from ..model.item import Item, ItemMeta
from ..model.money import Money
from ..parse.page import Page
from ..parse.selectors import Selector
from .model import Field, FieldType, RecipeSource, type_name
from .rules import read_fields
from .sources import MOST, PagePart, PageView, find, parts_of, too_many
from .table import RecipeFault, RecipeTable, RecipeTree
from .transforms import AMONG_ALL, NEED_ALL, apply_transforms
from .values import UnreadableValue, excerpt, text_of, value_of

_MOST_NOTED = 20  # entries of a list that are noted individually


_PYTHON: dict[FieldType, type] = {
    FieldType.TEXT: str,
    FieldType.INT: int,
    FieldType.DECIMAL: Decimal,
    FieldType.FLOAT: float,
    FieldType.MONEY: Money,
    FieldType.DATE: datetime,
    FieldType.DAY: date,
    FieldType.URL: str,
    FieldType.BOOL: bool,
    FieldType.HTML: str,
    FieldType.MARKDOWN: str,
}

MOST_BYTES = 16 * 1024  # of all rules, as JSON
MOST_FIELDS = 200
MOST_VALUES = 20_000  # of one page
_MOST_TOLD = 5


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The class of an item and, by field, the shapes of the objects in it."""

    item: type[Item]
    inner: Mapping[str, Shape] = {}

    def make(self, values: dict[str, Any]) -> Item:
        """An item. Nothing is checked here: the pipeline does."""
        return self.item(**values)


def shape_of(
    name: str, fields: Sequence[Field], key: tuple[str, ...] = (), healed: Mapping[str, int] | None = None
) -> Shape:
    """The shape of an item: a required field has no default, an optional one may be None. `healed` are the fields with
    healed rules, which its schema marks with their version."""
    hints: dict[str, Any] = {}
    namespace: dict[str, Any] = {"__module__": __name__}
    inner: dict[str, Shape] = {}
    for field in fields:
        if field.fields:
            inner[field.name] = shape_of(f"{name}{type_name(field.name)}", field.fields)
            hint: Any = inner[field.name].item
        else:
            hint = _PYTHON[field.options.single]
        if field.many:
            hint = GenericAlias(list, (hint,))
            namespace |= {} if field.required else {field.name: msgspec.field(default_factory=_listing(field.default))}
        elif not field.required:
            hint = hint if field.default is not None else hint | None
            namespace[field.name] = field.default
        hints[field.name] = hint
    namespace["__annotations__"] = hints
    made = ItemMeta(name, (Item,), namespace, key=key or None)
    assert issubclass(made, Item)
    if healed:
        made.__healed__ = dict(healed)
    return Shape(item=made, inner=inner)


def _listing(default: Any) -> Any:
    return lambda: list(default or [])


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found for a field. `fault` says why it has no value, or why an earlier source was skipped."""

    field: str  # its path: `reviews[0].author`
    rule: str
    found: str | None  # the raw text, shortened; None if nothing was found
    value: Any
    fault: str = ""
    missing: bool = False  # required, but without a value

    def sentence(self) -> str:
        """The note in words, for a message about a field without a value."""
        what = f"found {self.found!r}, {self.fault}" if self.found is not None else "found nothing"
        return f"{self.field}: {self.rule} {what}"


class TakenItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item, and what every rule for it found."""

    item: Item
    notes: list[Note]

    def faults(self) -> list[str]:
        """The values that are on the page but could not be converted."""
        return [note.sentence() for note in self.notes if note.fault]


def take(shape: Shape, fields: Sequence[Field], part: PagePart, notes: list[Note], path: str = "") -> Item:
    """The item of that shape from the part of the page; a missing required field is left None and noted."""
    values: dict[str, Any] = {}
    for field in fields:
        values[field.name] = _value(shape, field, part, notes, f"{path}.{field.name}" if path else field.name)
    return shape.make(values)


def _value(shape: Shape, field: Field, part: PagePart, notes: list[Note], path: str) -> Any:
    if not field.fields:
        return take_one(field, part, notes, path)
    inner = shape.inner[field.name]
    place = field.each or field.within
    parts = parts_of(place, part, all_count=field.each is not None) if place is not None else [part]
    if field.each is not None:
        missing = field.required and not parts
        note = f"{len(parts)} of them" if parts else None
        notes.append(Note(field=path, rule=field.rule(), found=note, value=None, missing=missing))
        return [take(inner, field.fields, one, notes, f"{path}[{index}]") for index, one in enumerate(parts)]
    if not parts:
        notes.append(Note(field=path, rule=field.rule(), found=None, value=None, missing=field.required))
        return None
    return take(inner, field.fields, parts[0], notes, path)


def take_one(field: Field, part: PagePart, notes: list[Note], path: str) -> Any:
    """The value of a field that is not an object: of its type, or its default."""
    page = part.view.page
    passed: Note | None = None
    all_count = field.many or any(step.name in NEED_ALL for step in field.transforms)
    for source in field.sources:
        found = _entries(find(source, part, all_count=all_count), field, source, page)
        if not found:
            continue
        values, refused = _converted(found, field, source, page)
        if not values:
            if refused:
                passed = passed or _note(field, path, source, found, None, refused[0].why)
            elif field.transforms:  # otherwise it was an element without text
                passed = passed or _note(field, path, source, found, None, "of which the transforms leave nothing")
            continue
        value = values if field.many else values[0]
        if field.many:
            notes += _entry_notes(path, source, refused)
        notes.append(_note(field, path, source, found, value, ""))
        return value
    if passed is None:
        passed = Note(field=path, rule=field.rule(), found=None, value=None)
    notes.append(msgspec.structs.replace(passed, value=field.default, missing=field.required))
    return list(field.default or ()) if field.many else field.default


def _note(field: Field, path: str, source: RecipeSource, found: list[Any], value: Any, fault: str) -> Note:
    more = f" (+{len(found) - 1})" if field.many and len(found) > 1 else ""
    return Note(field=path, rule=str(source), found=f"{excerpt(found[0])}{more}", value=value, fault=fault)


def _is_empty(raw: Any) -> bool:
    if raw is None:
        return True
    if isinstance(raw, Selector):
        return isinstance(raw.root, str) and not raw.root.strip()
    return isinstance(raw, str) and not raw.strip()


class _Refused(msgspec.Struct, frozen=True):
    """One of the found values, by its index, and why it is not of the field's type."""

    index: int
    raw: Any
    why: str


def _entries(found: list[Any], field: Field, source: RecipeSource, page: Page) -> list[Any]:
    """The found values that are not empty. For a list field, a list in JSON counts as its entries."""
    if field.many:
        found = [entry for raw in found for entry in (raw if isinstance(raw, list) else [raw])]
        if len(found) > MOST:
            raise too_many(source, page)
    return [raw for raw in found if not _is_empty(raw)]


def _entry_notes(path: str, source: RecipeSource, refused: list[_Refused]) -> list[Note]:
    noted = [
        Note(field=f"{path}[{one.index}]", rule=str(source), found=excerpt(one.raw), value=None, fault=one.why)
        for one in refused[:_MOST_NOTED]
    ]
    rest = len(refused) - len(noted)
    if rest > 0:
        fault = f"and {rest:,} more entries cannot be read"
        noted.append(Note(field=path, rule=str(source), found=noted[-1].found, value=None, fault=fault))
    return noted


def _converted(found: list[Any], field: Field, source: RecipeSource, page: Page) -> tuple[list[Any], list[_Refused]]:
    """The found values converted to the field's type, and those that cannot be. For a single value only the first
    non-empty one is tried."""
    if source.options is not None:
        field = msgspec.structs.replace(field, options=source.options)
    if field.many:
        return _read_all(found, field, page)
    one_by_one = not any(step.name in AMONG_ALL for step in field.transforms)
    for some in ([raw] for raw in found) if one_by_one else [found]:
        values, refused = _read_all(some, field, page)
        if values or refused:
            return ([] if refused else values[:1]), refused
    return [], []


def _read_all(found: list[Any], field: Field, page: Page) -> tuple[list[Any], list[_Refused]]:
    values: list[Any] = []
    refused: list[_Refused] = []
    if field.transforms:
        found = _changed(found, field, page, refused)
    for index, raw in enumerate(found):
        try:
            value = value_of(raw, field.options, page)
        except UnreadableValue as error:
            refused.append(_Refused(index, raw, str(error)))
            continue
        if value is not None and value != "":
            values.append(value)
            if not field.many:
                break
    return values, refused


def _changed(found: list[Any], field: Field, page: Page, refused: list[_Refused]) -> list[Any]:
    """The values after the transforms. A number that they leave unchanged is still a number."""
    texts: list[str] = []
    numbers: dict[str, Any] = {}
    for index, raw in enumerate(found):
        try:
            texts.append(text_of(raw, field.options, page))
        except UnreadableValue as error:
            refused.append(_Refused(index, raw, str(error)))
            continue
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            numbers[texts[-1]] = raw
    changed, left_out = apply_transforms(texts, field.transforms)
    parts_of = {text: index for index, text in enumerate(texts)} if left_out else {}
    refused += [_Refused(parts_of.get(text, 0), text, why) for text, why in left_out]
    return [numbers.get(text, text) for text in changed]


class BadRules(Misconfigured):
    """Invalid rules. The message says what is allowed."""


@lru_cache(maxsize=64)
def read_rules(text: bytes) -> tuple[Field, ...]:
    """The fields in a JSON object. Raises BadRules."""
    if len(text) > MOST_BYTES:
        raise BadRules(f"extract has {len(text):,} bytes; {MOST_BYTES:,} are allowed.")
    values = msgspec.json.decode(text)
    if not isinstance(values, dict) or not values:
        raise BadRules('extract is an object of fields, like {"price": {"css": ".price", "type": "money"}}.')
    faults: list[RecipeFault] = []
    tree = RecipeTree(file="extract", text="", values=values, lines={})
    fields = read_fields(RecipeTable(tree, faults, ("extract",), values))
    if faults:
        rest = len(faults) - _MOST_TOLD
        told = " ".join(fault.message for fault in faults[:_MOST_TOLD])
        raise BadRules(f"{told} And {rest} more." if rest > 0 else told)
    if _count(fields) > MOST_FIELDS:
        raise BadRules(f"extract has more than {MOST_FIELDS} fields.")
    return fields


def _count(fields: Sequence[Field]) -> int:
    return sum(1 + _count(field.fields) for field in fields)


def extract(fields: Sequence[Field], page: Page) -> dict[str, Any]:
    """The values of the fields, by name. Raises ParseFailed if a required one is missing, or if there are too many
    values."""
    notes: list[Note] = []
    values = _values(fields, PagePart(PageView(page)), notes, "")
    missing = [note.sentence() for note in notes if note.missing]
    if missing:
        rest = len(missing) - _MOST_TOLD
        more = f"; and {rest} more" if rest > 0 else ""
        raise ParseFailed(f"A required field is missing on {page.url}: {'; '.join(missing[:_MOST_TOLD])}{more}.")
    return values


def _values(fields: Sequence[Field], part: PagePart, notes: list[Note], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in fields:
        where = f"{path}.{field.name}" if path else field.name
        found[field.name] = _object(field, part, notes, where) if field.fields else take_one(field, part, notes, where)
        if len(notes) > MOST_VALUES:
            raise ParseFailed(f"extract finds more than {MOST_VALUES:,} values on {part.view.page.url}. Narrow it.")
    return found


def _object(field: Field, part: PagePart, notes: list[Note], path: str) -> Any:
    place = field.each or field.within
    parts = parts_of(place, part, all_count=field.each is not None) if place is not None else [part]
    if not parts:
        notes.append(Note(field=path, rule=field.rule(), found=None, value=None, missing=field.required))
    if field.each is not None:
        return [_values(field.fields, one, notes, f"{path}[{number}]") for number, one in enumerate(parts)]
    return _values(field.fields, parts[0], notes, path) if parts else None
