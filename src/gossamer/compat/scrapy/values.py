"""The values in `meta` and `cb_kwargs`, as JSON and back. Queued requests outlive the process, so live objects cannot
travel.

Texts, numbers, lists and dicts are JSON already. Tuples, sets, bytes, dates, Decimal and items (Scrapy's own and data
classes) are written with their type. Only classes that the project has loaded are used to rebuild items.
How it fails: NotQueueable for anything else, with the place of the value.
"""

from __future__ import annotations

import dataclasses
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from scrapy import Item

TYPE = "__type__"
VALUE = "value"
_DEEPEST = 50

_WRITTEN: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: b64encode(value).decode(),
    datetime: datetime.isoformat,
    date: date.isoformat,
    Decimal: str,
}
_READ: dict[str, Callable[[Any], Any]] = {
    "bytes": b64decode,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "Decimal": Decimal,
}
_GROUPS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class NotQueueable(ValueError):
    """A value that cannot be queued."""


def written(value: Any, place: str, depth: int = 0) -> Any:
    """The value in a form that JSON can hold. Raises NotQueueable."""
    if depth > _DEEPEST:
        raise NotQueueable(f"{place} is nested too deeply")
    if value is None or isinstance(value, str | bool | int):
        return value if type(value) in (str, bool, int) or value is None else _plain(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise NotQueueable(f"{place} is {value!r}, which JSON cannot represent")
        return float(value)
    if type(value) is list:
        return [written(one, f"{place}[{index}]", depth + 1) for index, one in enumerate(value)]
    if type(value) is dict:
        return _dict(value, place, depth)
    if type(value).__name__ in _GROUPS and type(value) in (tuple, set, frozenset):
        ordered = value if isinstance(value, tuple) else sorted(value, key=repr)
        return {TYPE: type(value).__name__, VALUE: written(list(ordered), place, depth + 1)}
    if type(value) in _WRITTEN:
        return {TYPE: type(value).__name__, VALUE: _WRITTEN[type(value)](value)}
    if isinstance(value, Item):
        return _item(value, dict(value), place, depth)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return _item(value, fields, place, depth)
    raise NotQueueable(f"{place} is a {type(value).__name__}, which lives in one process only")


def read(value: Any) -> Any:
    """The value that was written. Raises NotQueueable for a class that no longer exists."""
    if isinstance(value, list):
        return [read(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TYPE)
    if kind is None:
        return {name: read(one) for name, one in value.items()}
    inner: Any = value.get(VALUE)
    if kind in _GROUPS:
        return _GROUPS[kind](read(inner))
    if kind in _READ:
        return _READ[kind](inner)
    if kind == "dict":
        return {read(name): read(one) for name, one in inner}
    return _item_class(kind)(**read(inner))


def _plain(value: Any) -> Any:
    """The plain value of a subclass, such as a text of an enumeration."""
    return str.__str__(value) if isinstance(value, str) else int(value)


def _dict(value: Mapping[Any, Any], place: str, depth: int) -> Any:
    if all(type(name) is str for name in value) and TYPE not in value:
        return {name: written(one, f"{place}[{name!r}]", depth + 1) for name, one in value.items()}
    pairs = [
        [written(name, place, depth + 1), written(one, f"{place}[{name!r}]", depth + 1)] for name, one in value.items()
    ]
    return {TYPE: "dict", VALUE: pairs}


def _item(value: object, fields: dict[str, Any], place: str, depth: int) -> Any:
    cls = type(value)
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        raise NotQueueable(f"{place} is a {cls.__qualname__}, a class that other processes cannot import")
    return {TYPE: f"{cls.__module__}:{cls.__qualname__}", VALUE: _dict(fields, place, depth + 1)}


def _item_class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    found = getattr(sys.modules.get(module), attribute, None)
    if isinstance(found, type) and (issubclass(found, Item) or dataclasses.is_dataclass(found)):
        return found
    raise NotQueueable(f"the class {name} of an item cannot be found (any more)")
