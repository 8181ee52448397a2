"""The shape of an item: its declared fields, as a value that is stored beside the records made with it.

A spider changes, its old records stay: each record names the shape it was made with, and the shapes are kept, so that
exports know the type of every column and a person can see when a field came or went. Plain dicts declare nothing and
have no shape.

    {"key": ["url"], "fields": {"title": {"type": "text"}, "tags": {"type": "list", "of": {"type": "text"}}}}
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from .item import AnyItem, Item, type_name
from .money import Money
from .record import ItemSchema

Shape: TypeAlias = dict[str, Any]  # a JSON object, as above

_WORDS: dict[Any, str] = {
    str: "text",
    bool: "bool",
    int: "int",
    float: "float",
    Decimal: "decimal",
    datetime: "datetime",
    date: "date",
    time: "time",
    timedelta: "duration",
    bytes: "bytes",
    UUID: "text",
    Money: "money",
}
_DEEPEST = 4  # levels of nested items that are described; deeper ones are "object"


def schema_of(item: AnyItem) -> ItemSchema | None:
    """The shape of an item's type; None for a dict."""
    return _schema(type(item)) if isinstance(item, Item) else None


@lru_cache(maxsize=1024)
def _schema(cls: type[Item]) -> ItemSchema:
    definition = msgspec.json.encode({"key": list(cls.__item_key__), "fields": _fields(cls, 0)}).decode()
    digest = blake2b(f"{type_name(cls)}\n{definition}".encode(), digest_size=6).hexdigest()
    return ItemSchema(id=digest, type=type_name(cls), definition=definition)


def _fields(cls: type[msgspec.Struct], level: int) -> dict[str, Shape]:
    hints = get_type_hints(cls)
    return {name: _shape(hints[name], level) for name in cls.__struct_fields__}


def _shape(hint: Any, level: int) -> Shape:
    """The description of one annotation."""
    arms = [arm for arm in _arms(hint) if arm is not msgspec.UnsetType]
    optional = NoneType in arms or msgspec.UnsetType in _arms(hint)
    kinds = [arm for arm in arms if arm is not NoneType]
    shape: Shape = _plain(kinds[0], level) if len(kinds) == 1 else {"type": "any"}
    if optional:
        shape["optional"] = True
    return shape


def _arms(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _plain(hint: Any, level: int) -> Shape:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        kinds = {type(value) for value in args}
        return {"type": _WORDS.get(kinds.pop(), "any") if len(kinds) == 1 else "any"}
    if origin in (list, tuple, set, frozenset):
        inner = [arg for arg in args if arg is not Ellipsis]
        return {"type": "list", "of": _shape(inner[0], level) if len(set(inner)) == 1 else {"type": "any"}}
    if hint in (list, tuple, set, frozenset):
        return {"type": "list", "of": {"type": "any"}}
    if hint in _WORDS:
        return {"type": _WORDS[hint]}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {"type": "object", "fields": _fields(hint, level + 1)} if level < _DEEPEST else {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, str):
        return {"type": "text"}
    return {"type": "object"} if origin is dict or hint is dict else {"type": "any"}
