"""The address of a record store, `postgresql://user:password@host:5432/database?schema=gossamer`, parsed."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode

import msgspec

from ...errors import Misconfigured

SCHEMES = ("postgresql", "postgres")
EXAMPLE = "postgresql://user:password@host:5432/database"
MAX_PORT = 65535
MAX_NAME = 63  # bytes of an identifier; PostgreSQL would truncate a longer one silently

_NAME = re.compile(f"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}")


class Address(msgspec.Struct, frozen=True):
    """Where the records are. `dsn` is for the driver and holds the password; `place` is for people and does not."""

    dsn: str
    schema: str
    place: str

    def __repr__(self) -> str:
        return f"Address({self.place!r}, schema={self.schema!r})"


def read_address(address: str, schema: str) -> Address:
    """Parse an address; `schema` applies if it names none. Raises Misconfigured, never quoting a password."""
    parts = _split(address)
    if parts is None or parts.scheme not in SCHEMES:
        raise Misconfigured(f"The address in `records` is not one of PostgreSQL. Write it like {EXAMPLE}.")
    _, _, hosts = parts.netloc.rpartition("@")
    if "@" in parts.path + parts.query + parts.fragment or not all(map(_is_host, hosts.split(","))):
        # Half of a password would be taken for the host and shown.
        raise Misconfigured(
            f"The address in `records` cannot be read. Write it like {EXAMPLE}; special characters of a password are "
            f"written percent-encoded: / as %2F, @ as %40, # as %23, ? as %3F, : as %3A."
        )
    options = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for name, value in options if name == "schema"]
    rest = urlencode([(name, value) for name, value in options if name != "schema"])
    chosen = named[-1] if named else schema
    if not _NAME.fullmatch(chosen) or chosen.startswith("pg_"):
        raise Misconfigured(
            f"schema={chosen[:100]!r} in `records` cannot be the name of a schema. Use up to {MAX_NAME} letters, "
            f"digits and underscores; pg_ is PostgreSQL's own."
        )
    database = unquote(parts.path.lstrip("/"))
    place = f"PostgreSQL at {hosts or 'the place that PGHOST names'}" + (f", database {database!r}" if database else "")
    return Address(dsn=parts._replace(query=rest).geturl(), schema=chosen, place=place)


def quoted(schema: str) -> str:
    """The name of a schema as quoted SQL, preserving capitals. `read_address` accepts no quotes."""
    return f'"{schema}"'


def _split(address: str) -> SplitResult | None:
    """By hand: `urlsplit` in some Python versions refuses several hosts if one is in brackets."""
    scheme, found, rest = address.partition("://")
    if not found:
        return None
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    hosts, slash, path = rest.partition("/")
    return SplitResult(scheme.lower(), hosts, slash + path, query, fragment)


def _is_host(text: str) -> bool:
    """A host with or without a port: `db`, `db:5432`, `[::1]:5432`; empty means the driver's default."""
    host, _, port = text.rpartition(":") if not text.endswith("]") and ":" in text else (text, "", "")
    return (port == "" or (port.isdecimal() and int(port) <= MAX_PORT)) and (
        ":" not in host or (host.startswith("[") and host.endswith("]"))
    )
