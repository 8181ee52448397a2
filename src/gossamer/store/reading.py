"""Stored text read back as a record, for every record store alike."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from ..errors import Permanent
from ..model.record import StoredRecord
from .verdict import mend


def stored_record(data: str, /, **fields: Any) -> StoredRecord:  # Any: the other fields, as they are
    """The record with its data read. Raises Permanent when that is not JSON."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        value = _lenient_json(data, f"{fields['type']} {fields['key']!r} of {fields['site']}")
    return StoredRecord(data=value, **fields)


def _lenient_json(text: str, what: str) -> Any:
    """Read what other writers call JSON: escaped lone surrogates, NaN."""
    try:
        return json.loads(mend(json.dumps(json.loads(text), ensure_ascii=False)))
    except ValueError as error:
        raise Permanent(f"The stored {what} is not JSON. Correct or delete its row in the table records.") from error
