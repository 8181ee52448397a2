"""The address of a record store, `mongodb://user:password@host:27017/database`, parsed."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from ...errors import Misconfigured

SCHEMES = ("mongodb", "mongodb+srv")
EXAMPLE = "mongodb://user:password@host:27017/database"
DATABASE = "gossamer"  # if the address names none
MAX_PORT = 65535
MAX_DATABASE = 63  # bytes
MAX_PREFIX = 120  # bytes; MongoDB allows 255 for the database, our prefix and the longest of our names together

_NOT_IN_NAMES = re.compile(r'[/\\. "$*<>:|?\0]')


class Address(msgspec.Struct, frozen=True):
    """Where the records are. `uri` is for the driver and holds the password; `place` is for people and does not."""

    uri: str
    database: str
    prefix: str
    place: str

    def __repr__(self) -> str:
        return f"Address({self.place!r}, prefix={self.prefix!r})"


def read_address(address: str, prefix: str) -> Address:
    """Parse an address; `prefix` starts the names of all collections. Raises Misconfigured, without passwords."""
    parts = _split(address)
    if parts is None or parts.scheme not in SCHEMES:
        raise Misconfigured(f"The address in `records` is not one of MongoDB. Write it like {EXAMPLE}.")
    _, _, hosts = parts.netloc.rpartition("@")
    # A user name from a certificate may have an @ in the options; in the path it is half of a password.
    if not hosts or "@" in parts.path + parts.fragment or not all(map(_is_host, hosts.split(","))):
        raise Misconfigured(
            f"The address in `records` cannot be read. Write it like {EXAMPLE}; special characters of a password are "
            f"written percent-encoded: / as %2F, @ as %40, # as %23, ? as %3F, : as %3A."
        )
    database = unquote(parts.path.lstrip("/")) or DATABASE
    if _NOT_IN_NAMES.search(database) or len(database.encode("utf-8", "replace")) > MAX_DATABASE:
        raise Misconfigured(
            f"{database[:100]!r} in `records` cannot be the name of a database. Use up to {MAX_DATABASE} letters, "
            f"digits, - and _."
        )
    if not re.fullmatch(r"[a-z0-9_]+", prefix) or len(prefix) > MAX_PREFIX:
        raise Misconfigured(
            f"The project's name makes {prefix[:150]!r}, which cannot begin the names of collections. Set `project` to "
            f"a shorter one, of letters and digits."
        )
    return Address(uri=address, database=database, prefix=prefix, place=f"MongoDB at {hosts}, database {database!r}")


def _split(address: str) -> SplitResult | None:
    try:
        return urlsplit(address)
    except ValueError:
        return None


def _is_host(text: str) -> bool:
    """A host with or without a port: `db`, `db:27017`, `[::1]:27017`, or a percent-encoded path of a socket."""
    host, _, port = text.rpartition(":") if not text.endswith("]") and ":" in text else (text, "", "")
    return (
        host != ""
        and (port == "" or (port.isdecimal() and len(port) <= 5 and int(port) <= MAX_PORT))
        and (":" not in host or (host.startswith("[") and host.endswith("]")))
    )
