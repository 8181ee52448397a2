"""Header bytes of a response that are not UTF-8. Both transports decode them with `surrogateescape`, one character per
byte; no store accepts such text."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ODD_BYTE = re.compile("[\udc80-\udcff]")


def storable(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers as storable text. In the target of a redirect such a byte belongs to another charset, and is
    percent-encoded as browsers do it; elsewhere it becomes a replacement character."""
    return tuple(
        (_replaced(name), _percent_coded(value) if name.lower() == "location" else _replaced(value))
        for name, value in pairs
    )


def _percent_coded(value: str) -> str:
    return _ODD_BYTE.sub(lambda odd: f"%{ord(odd[0]) - 0xDC00:02X}", value)


def _replaced(text: str) -> str:
    return _ODD_BYTE.sub("\ufffd", text)
