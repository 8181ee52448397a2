"""The item classes of a recipe, made at run time, so that validation, records and exports know the types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import GenericAlias
from typing import Any

import msgspec

from ...model.item import Item, ItemMeta
from ...model.money import Money
from .model import Field, FieldType

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


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The class of an item and, by field, the shapes of the objects in it."""

    item: type[Item]
    inner: Mapping[str, Shape] = {}

    def make(self, values: dict[str, Any]) -> Item:
        """An item. Nothing is checked here: the pipeline does."""
        return self.item(**values)


def shape_of(name: str, fields: Sequence[Field], key: tuple[str, ...] = ()) -> Shape:
    """The shape of an item: a required field has no default, an optional one may be None."""
    hints: dict[str, Any] = {}
    namespace: dict[str, Any] = {"__module__": __name__}
    inner: dict[str, Shape] = {}
    for field in fields:
        if field.fields:
            inner[field.name] = shape_of(f"{name}{_words(field.name)}", field.fields)
            hint: Any = inner[field.name].item
        else:
            hint = _PYTHON[field.reading.single]
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
    return Shape(item=made, inner=inner)


def _listing(default: Any) -> Any:
    return lambda: list(default or [])


def _words(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))
