"""How values become views, as people and programs see them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..clock import iso_time


def view_fields(value: msgspec.Struct, *times: str) -> dict[str, Any]:
    """The fields of a value as they are shown: those in `times` as ISO 8601, bytes as hex."""
    fields: dict[str, Any] = msgspec.structs.asdict(value)
    for name, field in fields.items():
        if isinstance(field, bytes):
            fields[name] = field.hex()
        elif name in times and field is not None:
            fields[name] = iso_time(field)
    return fields
