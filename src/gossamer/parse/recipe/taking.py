"""Taking the fields of an item from a place on a page, with a note of what every rule found.

What it does: for each field the sources are asked in order; the first one whose value can be read as the field's type
gives it. How it fails: a required field that no source gives is a Missing in the notes, and the item has no value for
it; the caller decides. An optional one is None, or its default, with the fault noted. A list has the entries that can
be read; each of the others is noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model.item import Item
from ..page import Page
from ..selectors import Selector
from .items import Shape
from .model import Field, Source
from .sources import MOST, Place, find, places, too_many
from .transforms import AMONG_ALL, NEED_ALL, transformed
from .values import Unreadable, shown, text_of, value_of

_MOST_TOLD = 20  # entries of one list that are noted one by one


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule found for a field. `fault` says why it has no value, or why an earlier source was passed over."""

    field: str  # its path: `reviews[0].author`
    rule: str
    found: str | None  # the raw text, cut; None when there was nothing
    value: Any
    fault: str = ""
    missing: bool = False  # it is required, and there is no value

    def sentence(self) -> str:
        """Why there is no value, in words."""
        what = f"found {self.found!r}, {self.fault}" if self.found is not None else "found nothing"
        return f"{self.field}: {self.rule} {what}"


class Taking(msgspec.Struct, frozen=True, kw_only=True):
    """An item, and what every rule for it found."""

    item: Item
    notes: list[Note]

    def faults(self) -> list[str]:
        """The values that stand on the page and could not be read."""
        return [note.sentence() for note in self.notes if note.fault]


def take(shape: Shape, fields: Sequence[Field], place: Place, notes: list[Note], path: str = "") -> Item:
    """The item of that shape at the place; a missing required field is left None and noted."""
    values: dict[str, Any] = {}
    for field in fields:
        values[field.name] = _value(shape, field, place, notes, f"{path}.{field.name}" if path else field.name)
    return shape.make(values)


def _value(shape: Shape, field: Field, place: Place, notes: list[Note], path: str) -> Any:
    if not field.fields:
        return take_one(field, place, notes, path)
    inner = shape.inner[field.name]
    spot = field.each or field.within
    spots = places(spot, place, all_count=field.each is not None) if spot is not None else [place]
    if field.each is not None:
        missing = field.required and not spots
        note = f"{len(spots)} of them" if spots else None
        notes.append(Note(field=path, rule=field.rule(), found=note, value=None, missing=missing))
        return [take(inner, field.fields, one, notes, f"{path}[{index}]") for index, one in enumerate(spots)]
    if not spots:
        notes.append(Note(field=path, rule=field.rule(), found=None, value=None, missing=field.required))
        return None
    return take(inner, field.fields, spots[0], notes, path)


def take_one(field: Field, place: Place, notes: list[Note], path: str) -> Any:
    """The value of a field that is no object: of its type, or its default."""
    page = place.look.page
    passed: Note | None = None
    all_count = field.many or any(step.name in NEED_ALL for step in field.transforms)
    for source in field.sources:
        found = _entries(find(source, place, all_count=all_count), field, source, page)
        if not found:
            continue
        values, refused = _converted(found, field, page)
        if not values:
            if refused:
                passed = passed or _note(field, path, source, found, None, refused[0].why)
            elif field.transforms:  # else it was an element without text: nothing
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


def _note(field: Field, path: str, source: Source, found: list[Any], value: Any, fault: str) -> Note:
    more = f" (+{len(found) - 1})" if field.many and len(found) > 1 else ""
    return Note(field=path, rule=str(source), found=f"{shown(found[0])}{more}", value=value, fault=fault)


def _is_empty(raw: Any) -> bool:
    if raw is None:
        return True
    if isinstance(raw, Selector):
        return isinstance(raw.root, str) and not raw.root.strip()
    return isinstance(raw, str) and not raw.strip()


class _Refused(msgspec.Struct, frozen=True):
    """One of the things that were found, by its number among them, and why it is not of the field's type."""

    index: int
    raw: Any
    why: str


def _entries(found: list[Any], field: Field, source: Source, page: Page) -> list[Any]:
    """What was found, without what is empty. In a list, a list in JSON stands for its entries."""
    if field.many:
        found = [entry for raw in found for entry in (raw if isinstance(raw, list) else [raw])]
        if len(found) > MOST:
            raise too_many(source, page)
    return [raw for raw in found if not _is_empty(raw)]


def _entry_notes(path: str, source: Source, refused: list[_Refused]) -> list[Note]:
    told = [
        Note(field=f"{path}[{one.index}]", rule=str(source), found=shown(one.raw), value=None, fault=one.why)
        for one in refused[:_MOST_TOLD]
    ]
    rest = len(refused) - len(told)
    if rest > 0:
        fault = f"and {rest:,} more entries cannot be read"
        told.append(Note(field=path, rule=str(source), found=told[-1].found, value=None, fault=fault))
    return told


def _converted(found: list[Any], field: Field, page: Page) -> tuple[list[Any], list[_Refused]]:
    """What was found as values of the field's type, and what cannot be read. Where one value is wanted, it is the
    first that has a text; when that cannot be read, there is none."""
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
            value = value_of(raw, field.reading, page)
        except Unreadable as error:
            refused.append(_Refused(index, raw, str(error)))
            continue
        if value is not None and value != "":
            values.append(value)
            if not field.many:
                break
    return values, refused


def _changed(found: list[Any], field: Field, page: Page, refused: list[_Refused]) -> list[Any]:
    """What the transforms make of it. A number that comes through as it was is still that number."""
    texts: list[str] = []
    numbers: dict[str, Any] = {}
    for index, raw in enumerate(found):
        try:
            texts.append(text_of(raw, field.reading, page))
        except Unreadable as error:
            refused.append(_Refused(index, raw, str(error)))
            continue
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            numbers[texts[-1]] = raw
    changed, left_out = transformed(texts, field.transforms)
    places = {text: index for index, text in enumerate(texts)} if left_out else {}
    refused += [_Refused(places.get(text, 0), text, why) for text, why in left_out]
    return [numbers.get(text, text) for text in changed]
