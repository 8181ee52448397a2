"""How much of each disk a project takes, as it was measured by the leading scheduler."""

from __future__ import annotations

import msgspec

DISK = "disk"  # samples, on the shelf
UPKEEP = "upkeep"  # when the retention was carried out last, and the files written anew


class DiskSample(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` by role: state, records, archive, spool. Stores on servers have no size here, except the archive."""

    at: float
    bytes: dict[str, int]


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """When the retention was last carried out, and when the SQLite files were last written anew."""

    kept_at: float = 0.0
    shrunk_at: float = 0.0
    words: str = ""  # what was deleted
