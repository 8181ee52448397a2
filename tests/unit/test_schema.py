"""The shape of an item: stable while its declaration is, and different when that changes."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

from gossamer import Item, Money
from gossamer.model.item import schema_of


class Maker(Item):
    name: str


class Thing(Item, key="sku"):
    sku: str
    price: Money | None = None
    weight: Decimal | None = None
    tags: list[str] = []  # noqa: RUF012 - as users write it
    makers: tuple[Maker, ...] = ()
    seen: datetime | None = None
    day: date | None = None
    stock: Literal["yes", "no"] = "no"
    extra: dict[str, Any] | None = None
    mixed: int | str = 0


def test_every_declared_type_has_a_word() -> None:
    schema = schema_of(Thing(sku="1"))
    assert schema is not None
    shape = json.loads(schema.definition)
    assert shape["key"] == ["sku"]
    assert {name: one["type"] for name, one in shape["fields"].items()} == {
        "url": "text", "sku": "text", "price": "money", "weight": "decimal", "tags": "list", "makers": "list",
        "seen": "datetime", "day": "date", "stock": "text", "extra": "object", "mixed": "any",
    }  # fmt: skip
    assert shape["fields"]["price"]["optional"] is True
    assert "optional" not in shape["fields"]["sku"]
    assert shape["fields"]["tags"]["of"] == {"type": "text"}
    assert shape["fields"]["makers"]["of"]["fields"]["name"] == {"type": "text"}


def test_the_id_changes_with_the_declaration_and_not_with_the_values() -> None:
    one = schema_of(Thing(sku="1"))
    assert one == schema_of(Thing(sku="2", tags=["a"]))

    class Thing2(Item, key="sku"):
        sku: str

    Thing2.__name__ = "Thing"
    other = schema_of(Thing2(sku="1"))
    assert one is not None
    assert other is not None
    assert (one.type, other.type) == ("Thing", "Thing")
    assert one.id != other.id


def test_a_dict_declares_nothing() -> None:
    assert schema_of({"a": 1}) is None
