"""[managed.NAME]: a scraping API of a vendor, described so that no code is needed for another one."""

from __future__ import annotations

import msgspec

from ..measures import Secret


class Managed(msgspec.Struct, frozen=True, kw_only=True):
    preset: str = ""  # the vendor's shape: "scraperapi" or "finedata"
    url: str = ""  # where its API is
    key: Secret = Secret("")
    allow_private: bool = False  # may it be in a private network?
