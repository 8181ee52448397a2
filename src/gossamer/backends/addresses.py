"""The three connection URLs of a project: which schemes exist, where a local one leads, how one is shown without
secrets.

    state    sqlite:///path         redis://host:6379/0   rediss://   valkey://   valkeys://   redis+unix:///socket
    records  sqlite:///path         postgresql://user@host/database
    archive  folder:///path         s3://bucket/prefix?endpoint=...

Three slashes and a path are relative to the project's folder, four are absolute. open.py opens the backends.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from ..errors import Misconfigured
from ..settings import Settings

REDIS = ("redis", "rediss", "valkey", "valkeys", "redis+unix")
POSTGRES = ("postgresql", "postgres")
KNOWN = {
    "state": ("sqlite", *REDIS),
    "records": ("sqlite", *POSTGRES),
    "archive": ("folder", "s3"),
}
EXAMPLES = {
    "state": "'sqlite:///gossamer-data/state.db' or 'redis://localhost:6379/0'",
    "records": "'sqlite:///gossamer-data/records.db' or 'postgresql://localhost/gossamer'",
    "archive": "'folder:///gossamer-data/archive' or 's3://bucket/prefix'",
}


def scheme_of(settings: Settings, role: str) -> str:
    """The scheme of `state`, `records` or `archive`. Raises Misconfigured for one that no backend supports."""
    scheme, colon, _ = str(getattr(settings, role)).partition("://")
    if not colon:  # it may be anything, and is not repeated: a password, or a whole address that was encoded
        raise Misconfigured(f"{role} is not an address. Write {EXAMPLES[role]}.")
    if scheme not in KNOWN[role]:
        address = redacted(str(getattr(settings, role)))
        mongo = role == "records" and scheme in ("mongodb", "mongodb+srv")
        why = ": MongoDB is not a record store" if mongo else " is not an address that a backend supports"
        raise Misconfigured(f"{role} = {address!r}{why}. Write {EXAMPLES[role]}.")
    return scheme


def is_local(settings: Settings, role: str) -> bool:
    """Whether it is a file or folder of this machine."""
    return scheme_of(settings, role) in ("sqlite", "folder")


def local_path(settings: Settings, role: str) -> Path:
    """The file or folder behind a local address. Raises Misconfigured."""
    rest = str(getattr(settings, role)).partition("://")[2]
    if not rest.startswith("/") or not rest.strip("/"):
        raise Misconfigured(f"{role}: write three slashes and a path, as in {EXAMPLES[role].partition(' or ')[0]}")
    return settings.root / unquote(rest[1:])


def place_of(settings: Settings, role: str) -> str:
    """The place for people: a path, or the address without its secrets."""
    return str(local_path(settings, role)) if is_local(settings, role) else redacted(str(getattr(settings, role)))


def postgres_schema(settings: Settings) -> str:
    """The schema of a project, since several projects may share a database."""
    return re.sub(r"[^a-z0-9]+", "_", f"gossamer_{settings.project}".lower()).strip("_")


def redacted(address: str) -> str:
    """An address without its user name, password and query, for messages."""
    scheme, _, rest = address.partition("://")
    rest = rest.partition("?")[0]
    _, at, tail = rest.rpartition("@")
    return f"{scheme}://***@{tail}" if at else f"{scheme}://{rest}"
