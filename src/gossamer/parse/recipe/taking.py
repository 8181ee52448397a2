"""Taking the fields of an item from a place on a page, with a note of what every rule found.

What it does: for each field the sources are asked in order; the first one whose value can be read as the field's type
gives it. How it fails: a required field that no source gives is a Missing in the notes, and the item has no value for
it; the caller decides. An optional one is None, or its default, with the fault noted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...model.item import Item
from ..page import Page
from ..selectors import Selector
from .items import Shape
from .model import Field, FieldType, Source
from .sources import Place, find, places
from .transforms import transformed
from .values import Unreadable, read, shown, taken_as_is, text_of


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
    spots = places(spot, place) if spot is not None else [place]
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
    for source in field.sources:
        found = [raw for raw in find(source, place) if not _is_empty(raw)]
        if not found:
            continue
        try:
            value = _converted(found, field, page)
        except Unreadable as error:
            passed = passed or _note(field, path, source, found, None, str(error))
            continue
        if value is None or value == [] or value == "":
            if field.transforms:  # else it was an element without text: nothing
                passed = passed or _note(field, path, source, found, None, "of which the transforms leave nothing")
            continue
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


def _converted(found: list[Any], field: Field, page: Page) -> Any:
    """What was found as the field's type: a list, one value, or None when there is nothing in it. Raises Unreadable."""
    reading = field.reading
    kind = reading.single
    if field.many:
        found = [entry for raw in found for entry in (raw if isinstance(raw, list) else [raw])]
    if not field.transforms:
        values = []
        for raw in found:
            if taken_as_is(raw, kind):
                values.append(float(raw) if kind is FieldType.FLOAT else raw)
            elif text := text_of(raw, reading, page).strip():
                values.append(read(text, reading, page))
            if values and not field.many:
                break
    else:
        texts = transformed([text_of(raw, reading, page) for raw in found], field.transforms)
        texts = [text for text in texts if text.strip()]
        values = [read(text, reading, page) for text in (texts if field.many else texts[:1])]
    if field.many:
        return values
    return values[0] if values else None
