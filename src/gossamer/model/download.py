"""The request for a file, as it travels with its task. The facts of a fetched file are in file.py."""

from __future__ import annotations

import re

import msgspec

MAX_TYPES = 50
_PATTERN = re.compile(r"[a-z0-9][a-z0-9.+-]*/(\*|[a-z0-9][a-z0-9.+-]*)")


class Download(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request for a file asks beyond its URL: accepted types (`image/*`; empty: all), its maximum size in bytes
    (None: as the settings say), and the page it was found on."""

    types: tuple[str, ...] = ()
    max_size: int | None = None
    page: str = ""

    def __post_init__(self) -> None:
        if len(self.types) > MAX_TYPES:
            raise ValueError(f"A request for a file may name {MAX_TYPES} types at most.")
        for one in self.types:
            if not isinstance(one, str) or not _PATTERN.fullmatch(one):
                raise ValueError(f"{one!r:.60} is not a media type. Write it like image/* or application/pdf.")
        if self.max_size is not None and self.max_size < 1:
            raise ValueError("max_size must be 1 byte or more.")
