"""An override: a setting that an admin has set by hand while workers run."""

from __future__ import annotations

import msgspec

OVERRIDE = "override"  # its kind on the shelf


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """`value` is written as in an environment variable. After `until` the row is gone from the shelf."""

    key: str
    value: str
    at: float
    by: str  # the name of the key that set it; "local" on the command line
    until: float | None = None
    reason: str = ""
