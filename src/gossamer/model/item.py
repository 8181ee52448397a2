"""Items: what spiders extract. Here are the typed base class, the key of an item, its validation, its JSON form and the
schema of its declared fields. Money is in money.py.

    class Book(Item, key="url"):
        title: str
        price: Money | None = None

`key` names the field, or fields, that identify an item. Without one the key is the item's `url`, or its page if that is
not set, and its place among the items of the page that have the same (pipeline/steps.py). Plain dicts are items too: of
type "item", with the same default key.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, StructMeta, UnsetType

from ..errors import Misconfigured, ParseFailed
from .item_account import ON_FAULT, ON_FAULT_WORDS, OnFault
from .money import Money as Money
from .record import ItemSchema

DICT_TYPE = "item"
_KEY_ATTRIBUTE = "__item_key__"
_ON_FAULT_ATTRIBUTE = "__on_fault__"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Values of these types are accepted as they are; a str is never converted to one of them.
_NATIVE = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID)


class ItemMeta(StructMeta):
    """Reads `key=` and `on_fault=` from the class line and checks them. Raises Misconfigured."""

    def __new__(
        mcls: type[ItemMeta],
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: str | tuple[str, ...] | None = None,
        on_fault: OnFault | None = None,
        **options: Any,  # options of msgspec.Struct: frozen, rename ...
    ) -> ItemMeta:
        options.setdefault("kw_only", True)
        cls = super().__new__(mcls, name, bases, namespace, **options)
        if key is not None:
            names = (key,) if isinstance(key, str) else tuple(key)
            for field in names:
                if field not in cls.__struct_fields__:
                    near = difflib.get_close_matches(field, cls.__struct_fields__, n=1)
                    hint = f" Did you mean {near[0]!r}?" if near else f" Declare `{field}: str` in the class."
                    raise Misconfigured(f"Item {name}: the key {field!r} is not one of its fields.{hint}")
            setattr(cls, _KEY_ATTRIBUTE, names)
        if on_fault is not None:
            if on_fault not in ON_FAULT:
                raise Misconfigured(f"Item {name}: on_fault = {on_fault!r:.40} must be {ON_FAULT_WORDS}.")
            setattr(cls, _ON_FAULT_ATTRIBUTE, on_fault)
        return cls


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Item(Struct, metaclass=ItemMeta):
    """Base class of typed items. Fields are passed by name; nothing is checked until the pipeline validates the item.
    Every item has a `url`, which is left out of the data unless it is set."""

    __item_key__: ClassVar[tuple[str, ...]] = ()
    __on_fault__: ClassVar[OnFault | None] = None
    __healed__: ClassVar[Mapping[str, int]] = {}  # fields that healed rules gave, with the version of these rules

    url: str | UnsetType = UNSET


class KeyedDict(dict[str, Any]):
    """A dict with its own type and key: an item of another framework. Without a key, `place` stands for its page."""

    __slots__ = ("key", "place", "type")

    def __init__(self, values: Mapping[str, Any], *, type: str, key: str = "", place: str = "") -> None:
        super().__init__(values)
        self.type = type
        self.key = key
        self.place = place


AnyItem: TypeAlias = Item | dict[str, Any]  # a dict may hold any values
_ItemT = TypeVar("_ItemT", bound=AnyItem)


def type_name(item: AnyItem | type[Item]) -> str:
    """The name under which such items are stored: the class name, or "item" for a dict."""
    if isinstance(item, dict):
        return item.type if isinstance(item, KeyedDict) else DICT_TYPE
    return item.__name__ if isinstance(item, type) else type(item).__name__


def on_fault_of(item: AnyItem, default: OnFault) -> OnFault:
    """What its type says about faulty items; `default` if it says nothing."""
    return default if isinstance(item, dict) else item.__on_fault__ or default


def validate(item: _ItemT) -> _ItemT:
    """Return the item unchanged if it is complete and well typed.

    Missing: None where None is not allowed, "" in a str field without a default, an unset key. Types are not
    converted: "12" is not an int. Nested items are checked too. Raises ParseFailed naming every fault.
    """
    if not isinstance(item, dict) and _is_plain(item):
        return item
    faults = list(_faults(item, ""))
    if faults:
        count = "1 field is" if len(faults) == 1 else f"{len(faults)} fields are"
        raise ParseFailed(f"{type_name(item)}: {count} not as declared: {'; '.join(faults)}", detail="\n".join(faults))
    return item


def _is_plain(item: Struct) -> bool:
    """Does every field have a value of a type that needs no closer check, and is no text empty?"""
    values = msgspec.structs.astuple(item)
    return "" not in values and all(map(frozenset.__contains__, _plain_fields(type(item)), map(type, values)))


@lru_cache(maxsize=1024)
def _plain_fields(cls: type[Struct]) -> tuple[frozenset[type], ...]:
    return tuple(field.plain for field in _fields(cls))


class _Field(msgspec.Struct, frozen=True):
    name: str
    type: Any  # a type annotation, of any form
    expected: str
    required: bool
    checkable: bool
    plain: frozenset[type]  # values of exactly these types need no closer check


@lru_cache(maxsize=1024)
def _fields(cls: type[Struct]) -> tuple[_Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    key = getattr(cls, _KEY_ATTRIBUTE, ())
    fields = []
    for info in msgspec.structs.fields(cls) if _known_to_msgspec(cls) else _bare_fields(cls):
        hint = hints[info.name]
        fields.append(
            _Field(
                name=info.name,
                type=hint,
                expected=_spell(hint),
                required=info.required or info.name in key,
                checkable=_known_to_msgspec(hint),
                plain=_plain_types(hint),
            )
        )
    return tuple(fields)


class _Bare(msgspec.Struct, frozen=True):
    name: str
    required: bool


def _bare_fields(cls: type[Struct]) -> list[_Bare]:
    """The fields of a class whose annotations msgspec cannot check (a union of str and datetime, say)."""
    first_default = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    return [
        _Bare(name, position < first_default or cls.__struct_defaults__[position - first_default] is msgspec.NODEFAULT)
        for position, name in enumerate(cls.__struct_fields__)
    ]


def _known_to_msgspec(hint: Any) -> bool:
    try:
        msgspec.convert(None, hint, builtin_types=_NATIVE)
    except msgspec.ValidationError:
        return True
    except (TypeError, RuntimeError):
        return False
    return True


_PLAIN = frozenset({str, int, bool, float, bytes, Decimal, datetime, date, NoneType})


def _plain_types(hint: Any) -> frozenset[type]:
    arms = _arms(hint)
    if len(arms) > 1:
        return frozenset[type]().union(*map(_plain_types, arms))
    if hint is float:
        return frozenset({float, int})
    return frozenset({hint}) & _PLAIN if isinstance(hint, type) else frozenset()


def _spell(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    return text.replace("typing.", "").replace(" | msgspec.UnsetType", "").rpartition("__main__.")[2]


def _faults(value: object, path: str) -> Iterator[str]:
    """Yield one sentence per field at or below `value` that is missing or of the wrong type."""
    if isinstance(value, Struct):
        yield from _struct_faults(value, path)
    elif isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                yield f"{path or 'item'} has the key {key!r:.60}, which is not a str"
            elif isinstance(entry, Struct | dict | list | tuple | set):
                yield from _faults(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, list | tuple | set):
        for index, entry in enumerate(value):
            if isinstance(entry, Struct | dict | list | tuple | set):
                yield from _faults(entry, f"{path}[{index}]")


def _struct_faults(item: Struct, path: str) -> Iterator[str]:
    for field in _fields(type(item)):
        value = getattr(item, field.name, UNSET)
        empty = value is UNSET or (isinstance(value, str) and not value)
        if not empty and type(value) in field.plain:
            continue
        where = f"{path}.{field.name}" if path else field.name
        if empty:
            if field.required:
                yield f"{where} is missing ({field.expected})"
                continue
            if value is UNSET:
                continue
        if field.checkable:
            try:
                msgspec.convert(value, field.type, builtin_types=_NATIVE)
            except msgspec.ValidationError as error:
                if value is None:
                    yield f"{where} is missing ({field.expected})"
                else:
                    yield f"{where} should be {field.expected} but is {value!r:.60} ({_inner(str(error))})"
                continue
        if isinstance(value, Struct | dict | list | tuple | set):
            yield from _faults(value, where)


def _inner(message: str) -> str:
    return message[:1].lower() + message[1:].replace("`null`", "nothing").replace("`", "")


def item_key(item: AnyItem) -> str:
    """The declared key: items of one type and site with the same key are the same record. Otherwise what tells the item
    from others in this process: its `url`, or 32 hex digits of its content.

    One key field: the text of that field; several: a JSON list of them. Raises ParseFailed if a key field is empty.
    """
    return declared_key(item) or own_url(item) or content_hash(item_content(item)).hex()


def own_url(item: AnyItem) -> str:
    """The `url` of an item; "" if it has none."""
    url = item.get("url") if isinstance(item, dict) else item.url
    return safe_text(_plain_text(url)) if isinstance(url, str) else ""


def declared_key(item: AnyItem) -> str:
    """The key that the item's type declares; "" if it declares none. Raises ParseFailed if a key field is empty."""
    if isinstance(item, dict):
        return safe_text(item.key) if isinstance(item, KeyedDict) else ""
    names = item.__item_key__
    if not names:
        return ""
    values = [getattr(item, name) for name in names]
    for name, value in zip(names, values, strict=True):
        # NaN and infinities are null in JSON: all such items would share one key.
        if value is None or value is UNSET or value == "" or (isinstance(value, float) and not isfinite(value)):
            raise ParseFailed(f"{type_name(item)}: {name} is empty, but it is the item's key. Fill it in.")
    if len(values) == 1:
        only = values[0]
        return safe_text(_plain_text(only)) if isinstance(only, str) else _json(item, only).strip('"')
    return _json(item, values)


def item_data(item: AnyItem) -> str:
    """The item as a compact JSON object, with its fields in the order in which it has them, and sorted keys within.

    The text is valid UTF-8 that every store takes: lone surrogates and NUL, which some refuse, become U+FFFD.
    NaN and infinities become null, Decimal a string. Raises ParseFailed for values that JSON cannot hold.
    """
    return in_own_order(item, item_content(item))


def item_content(item: AnyItem) -> str:
    """As `item_data`, but equal for equal items: the keys of a dict are sorted. Its hash is the content hash."""
    return _json(item, item)


def in_own_order(item: AnyItem, content: str) -> str:
    """The data of an item with this content."""
    if not isinstance(item, dict) or (names := [str(name) for name in item]) == sorted(names):
        return content
    fields = {safe_text(str(name)): _json(item, {name: value})[1:-1] for name, value in item.items()}
    return f"{{{','.join(fields.values())}}}"


def _plain_text(value: Any) -> str:
    """A subclass of str, as other HTML parsers return, as a plain str. Raises TypeError for other values."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


_encoder = msgspec.json.Encoder(order="deterministic", enc_hook=_plain_text)


def _json(item: AnyItem, value: Any) -> str:
    try:
        try:
            text = _encoder.encode(value).decode()
        except UnicodeEncodeError:
            return _safe_json(value)
        # A rare false alarm (a backslash before u0000) only costs time.
        return _safe_json(value) if "\\u0000" in text else text
    except (TypeError, ValueError, RecursionError) as error:
        raise ParseFailed(
            f"{type_name(item)} cannot be written as JSON: {error}. Use str, numbers, dates, lists, dicts with str"
            f" keys, or items (is there a Selector without .get()?)."
        ) from error


def _safe_json(value: Any) -> str:
    return _encoder.encode(_safe_value(value)).decode()


def _safe_value(value: Any) -> Any:
    """A copy of the value with every text in it made safe."""
    if isinstance(value, Enum):
        return _safe_value(value.value)
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, Struct):
        return msgspec.structs.replace(
            value, **{name: _safe_value(getattr(value, name)) for name in value.__struct_fields__}
        )
    if isinstance(value, dict):
        return {_safe_value(key): _safe_value(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_safe_value(entry) for entry in value]
    if isinstance(value, tuple):
        return tuple(_safe_value(entry) for entry in value)
    if isinstance(value, set | frozenset):
        return {_safe_value(entry) for entry in value}
    if is_dataclass(value) or hasattr(value, "__attrs_attrs__"):
        return _safe_value(msgspec.to_builtins(value, builtin_types=_NATIVE, enc_hook=_plain_text))
    return value


def safe_text(text: str) -> str:
    """The text with lone surrogates and NUL replaced by U+FFFD; the same object if it has none."""
    if "\x00" in text:
        text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        # A pair of surrogates is one character; a lone one is not.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def content_hash(content: str) -> bytes:
    """16 bytes that change when the content of an item changes (`item_content`)."""
    return blake2b(content.encode(), digest_size=16).digest()


# A JSON object: {"type": "list", "of": {"type": "text"}, "optional": true}
FieldSchema: TypeAlias = dict[str, Any]

_TYPE_WORDS: dict[Any, str] = {
    str: "text", bool: "bool", int: "int", float: "float", Decimal: "decimal", datetime: "datetime", date: "date",
    time: "time", timedelta: "duration", bytes: "bytes", UUID: "text", Money: "money",
}  # fmt: skip
_DEEPEST = 4  # levels of nested items that are described; deeper ones are "object"


def schema_of(item: AnyItem) -> ItemSchema | None:
    """The declared fields of an item's type; None for a dict, which declares nothing.

    Each record names the schema it was made with, and the schemas are stored beside the records: exports know the type
    of every column, and people see when a field was added or removed, even after the spider has changed.
    """
    return _schema(type(item)) if isinstance(item, Item) else None


@lru_cache(maxsize=1024)
def _schema(cls: type[Item]) -> ItemSchema:
    fields = _field_schemas(cls, 0)
    for name, version in cls.__healed__.items():
        if name in fields:
            fields[name] = {**fields[name], "healed": version}
    definition = msgspec.json.encode({"key": list(cls.__item_key__), "fields": fields}).decode()
    digest = blake2b(f"{type_name(cls)}\n{definition}".encode(), digest_size=6).hexdigest()
    return ItemSchema(id=digest, type=type_name(cls), definition=definition)


def healed_fields(definition: str) -> dict[str, int]:
    """The fields of a schema that healed rules gave, with the version of these rules."""
    try:
        fields = msgspec.json.decode(definition)["fields"]
        return {name: one["healed"] for name, one in fields.items() if "healed" in one}
    except (msgspec.MsgspecError, KeyError, TypeError, AttributeError):  # of another version, or damaged
        return {}


def _field_schemas(cls: type[Struct], level: int) -> dict[str, FieldSchema]:
    hints = get_type_hints(cls)
    names = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)  # in Python, and in the data
    return {written: _field_schema(hints[name], level) for name, written in names}


def _field_schema(hint: Any, level: int) -> FieldSchema:
    """Describe one annotation."""
    arms = _arms(hint)
    kinds = [arm for arm in arms if arm not in (NoneType, UnsetType)]
    schema: FieldSchema = _type_schema(kinds[0], level) if len(kinds) == 1 else {"type": "any"}
    if len(kinds) < len(arms):
        schema["optional"] = True
    return schema


def _arms(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _type_schema(hint: Any, level: int) -> FieldSchema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        kinds = {type(value) for value in args}
        return {"type": _TYPE_WORDS.get(kinds.pop(), "any") if len(kinds) == 1 else "any"}
    if origin in (list, tuple, set, frozenset):
        inner = [arg for arg in args if arg is not Ellipsis]
        return {"type": "list", "of": _field_schema(inner[0], level) if len(set(inner)) == 1 else {"type": "any"}}
    if hint in (list, tuple, set, frozenset):
        return {"type": "list", "of": {"type": "any"}}
    if hint in _TYPE_WORDS:
        return {"type": _TYPE_WORDS[hint]}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return {"type": "object", "fields": _field_schemas(hint, level + 1)} if level < _DEEPEST else {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, str):
        return {"type": "text"}
    return {"type": "object"} if origin is dict or hint is dict else {"type": "any"}
