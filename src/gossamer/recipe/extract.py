"""Applies the fields of a recipe to one page: `extract` in the HTTP API.

Rules are written like the `fields` of a page kind, as JSON. They come from strangers: a rule may be designed to run
forever, so only a process that can be killed compiles and applies them (project/extraction.py). How it fails: BadRules
with the first faults; ParseFailed for a page without a required field.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ..errors import Misconfigured, ParseFailed
from ..parse.page import Page
from .faults import RecipeFault
from .fields import Note, take_one
from .model import Field
from .rules import read_fields
from .sources import PagePart, PageView, parts_of
from .table import RecipeTable
from .text import RecipeTree

MOST_BYTES = 16 * 1024  # of all rules, as JSON
MOST_FIELDS = 200
MOST_VALUES = 20_000  # of one page
_MOST_TOLD = 5


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
