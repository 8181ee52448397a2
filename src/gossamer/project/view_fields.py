"""How values become views, as people and programs see them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ..clock import iso_time

V = TypeVar("V", bound=msgspec.Struct)


def view_of(kind: type[V], value: msgspec.Struct, /, *times: str, **others: Any) -> V:
    """A view of a value: its fields of the same names, those in `times` as ISO 8601, and `others`.

    `view_of(AlertChangeView, change, "at", message=change.words)`. Raises TypeError for a field that neither has, if
    the view has no default for it.
    """
    fields = {**view_fields(value, *times), **others}
    return kind(**{name: fields[name] for name in kind.__struct_fields__ if name in fields})


def view_fields(value: msgspec.Struct, *times: str) -> dict[str, Any]:
    """The fields of a value as they are shown: those in `times` as ISO 8601, bytes as hex."""
    fields: dict[str, Any] = msgspec.structs.asdict(value)
    for name, field in fields.items():
        if isinstance(field, bytes):
            fields[name] = field.hex()
        elif name in times and field is not None:
            fields[name] = iso_time(field)
    return fields
