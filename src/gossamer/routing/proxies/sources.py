"""The proxies of a pool that lists them: from the settings, a file, a variable or a secret file.

One address per line; # begins a comment. These forms are accepted:

    http://user:password@host:port    https://...    socks5://...
    user:password@host:port           host:port      host:port:user:password

In forms with an @, special characters are percent-encoded (%40); the last form is taken literally. An IPv6 address is
in brackets. How it fails: Misconfigured, with the pool and the line but never the address itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from ipaddress import IPv6Address
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

import msgspec

from ...errors import Misconfigured
from ...model.route import Proxy
from ...settings import ProxyPool

SCHEMES = {"http": "http", "https": "https", "socks5": "socks5", "socks5h": "socks5"}
MAX_FILE = 16 * 1024 * 1024
MAX_PROXIES = 100_000
_EXAMPLE = "http://user:password@host:port"
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?")
_COMMENT = re.compile(r"(^|\s)#.*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class SourceLine(msgspec.Struct, frozen=True):
    """An address as written, and a description of where. The address is secret."""

    text: str
    where: str

    def __repr__(self) -> str:
        return f"Line({self.where!r})"


def listed_proxies(pool: str, terms: ProxyPool, root: Path, environ: Mapping[str, str]) -> tuple[Proxy, ...]:
    """All proxies of the pool, each once, in the order in which they are written. Raises Misconfigured."""
    found: dict[str, Proxy] = {}
    for line in _lines(pool, terms, root, environ):
        one = parse_proxy(line.text, pool=pool, where=line.where, allow_private=terms.allow_private)
        found.setdefault(one.identity, one)
        if len(found) > MAX_PROXIES:
            raise Misconfigured(f"Pool {pool} has more than {MAX_PROXIES:,} proxies. Split it into several pools.")
    if not found:
        _refuse_empty(pool, terms)
    return _named(list(found.values()))


def watched_files(terms: ProxyPool, root: Path) -> tuple[Path, ...]:
    """Files that the proxies come from; they are read again when they change."""
    return tuple(root / name for name in (terms.file, terms.secret) if name)


def parse_proxy(text: str, *, pool: str, where: str, allow_private: bool = False) -> Proxy:
    """Read one address. Raises Misconfigured, which names only the place."""
    matched = _SCHEME.fullmatch(text)
    scheme, rest = (matched[1].lower(), matched[2]) if matched else ("http", text)
    if scheme not in SCHEMES:
        _refuse_scheme(scheme, pool, where)
    rest = rest.removesuffix("/")
    if "@" in rest:
        credentials, _, place = rest.rpartition("@")
        username, _, password = (unquote(part) for part in credentials.partition(":"))
    elif matched:
        place, username, password = rest, "", ""
    else:
        place, username, password = _colons(rest)
    host, port = _host_and_port(place, pool, where)
    for word, part in (("user name", username), ("password", password)):
        if not part.isprintable():
            _refuse(pool, where, f"the {word} has a character that cannot be sent.")
    return Proxy(
        pool=pool,
        name="",
        scheme=SCHEMES[scheme],
        host=host,
        port=port,
        username=username,
        password=password,
        allow_private=allow_private,
    )


def _lines(pool: str, terms: ProxyPool, root: Path, environ: Mapping[str, str]) -> Iterator[SourceLine]:
    for number, secret in enumerate(terms.urls, 1):
        yield SourceLine(secret.reveal().strip(), f"proxies.{pool}.urls, number {number}")
    for key in ("file", "secret"):
        name = getattr(terms, key)
        if name:
            yield from file_lines(root / name, pool, key)
    if terms.env:
        words = re.split(r"[\s,]+", variable(terms.env, pool, environ))
        for number, word in enumerate((word for word in words if word), 1):
            yield SourceLine(word, f"variable {terms.env}, number {number}")


def file_lines(path: Path, pool: str, key: str) -> Iterator[SourceLine]:
    """The lines of a file, without comments and blank lines. Raises Misconfigured."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise Misconfigured(
            f"Pool {pool}: {path} cannot be read ({error.strerror}). Create it, or fix proxies.{pool}.{key}."
        ) from error
    except UnicodeDecodeError:
        raise Misconfigured(f"Pool {pool}: {path} is not UTF-8 text. Save it as UTF-8.") from None
    if len(content) > MAX_FILE:
        raise Misconfigured(f"Pool {pool}: {path} is larger than 16 MiB. Is it a list of proxies?")
    for number, line in enumerate(text.splitlines(), 1):
        written = _COMMENT.sub("", line).strip()
        if written:
            yield SourceLine(written, f"{path.name} line {number}")


def variable(name: str, pool: str, environ: Mapping[str, str]) -> str:
    """The value of a variable. Raises Misconfigured if it is not set."""
    if name not in environ:
        raise Misconfigured(
            f"Pool {pool}: the variable {name} is not set. Set it before you start, or fix proxies.{pool}.env."
        )
    return environ[name]


def _colons(text: str) -> tuple[str, str, str]:
    """Host and port, user name and password of `host:port` and `host:port:user:password`."""
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        parts = rest.removeprefix(":").split(":", 2)
        place = f"{host}{bracket}:{parts[0]}"
    else:
        host, _, rest = text.partition(":")
        parts = rest.split(":", 2)
        place = f"{host}:{parts[0]}"
    if len(parts) == 1:
        return place, "", ""
    if len(parts) == 2:
        return text, "", ""  # three parts are not a valid form: refused as a host
    return place, parts[1], parts[2]


def _host_and_port(place: str, pool: str, where: str) -> tuple[str, int]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        try:
            host = IPv6Address(host.partition("%")[0]).compressed
        except ValueError:
            _refuse(pool, where, "the part in brackets is not an IPv6 address.")
        colon, port = rest[:1], rest[1:]
        if rest and colon != ":":
            _refuse(pool, where, "a colon and the port must follow the brackets.")
    else:
        host, _, port = place.rpartition(":") if ":" in place else (place, "", "")
        host = host.lower()
        if ":" in host:
            _refuse(pool, where, f"it has too many colons. Write it as {_EXAMPLE}, and an IPv6 address in brackets.")
        if not _HOST.fullmatch(host):
            _refuse(pool, where, f"it has no valid host name. Write it as {_EXAMPLE}.")
    if not port:
        _refuse(pool, where, f"the port is missing. Write it as {_EXAMPLE}.")
    if not port.isascii() or not port.isdecimal() or not 1 <= int(port) <= 65_535:
        _refuse(pool, where, f"the port must be a number from 1 to 65535. Write it as {_EXAMPLE}.")
    return host, int(port)


def _named(proxies: Sequence[Proxy]) -> tuple[Proxy, ...]:
    """Names for people: the address. If several share one, with a few letters that tell their credentials apart."""
    shared = Counter(one.address for one in proxies)
    return tuple(
        msgspec.structs.replace(one, name=one.address if shared[one.address] == 1 else f"{one.address}~{_letters(one)}")
        for one in proxies
    )


def _letters(one: Proxy) -> str:
    # Too few to find out the password; equal ones share their health, which does no harm.
    return blake2b(one.identity.encode(), digest_size=3, person=b"gossamer-proxy").hexdigest()


def _refuse_scheme(scheme: str, pool: str, where: str) -> NoReturn:
    if scheme.startswith("socks4"):
        _refuse(pool, where, "SOCKS4 is not supported, because it has no passwords. Use SOCKS5 or HTTP.")
    if scheme == "socks":
        _refuse(pool, where, "write socks5:// for a SOCKS proxy.")
    _refuse(pool, where, "its scheme is unknown. Write http://, https:// or socks5://.")


def _refuse_empty(pool: str, terms: ProxyPool) -> NoReturn:
    if terms.urls or terms.file or terms.env or terms.secret:
        raise Misconfigured(f"Pool {pool} lists no proxies: its source is empty. Write one address per line.")
    raise Misconfigured(
        f"Pool {pool} has no source of proxies. Set one of urls, file, env, secret or gateway in [proxies.{pool}]."
    )


def _refuse(pool: str, where: str, words: str) -> NoReturn:
    raise Misconfigured(f"Pool {pool}, {where}: {words}")
