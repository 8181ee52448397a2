"""A note of a person on a job, on a site, on an incident, or (without any) on everything."""

from __future__ import annotations

import msgspec

NOTE = "note"  # its kind on the shelf


class Note(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    text: str
    at: str  # ISO 8601: when it happened
    by: str  # the name of the key that wrote it; "local" on the command line
    key: str = ""  # the id of that key
    job: str = ""
    site: str = ""
    incident: str = ""
