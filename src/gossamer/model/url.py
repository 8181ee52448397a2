"""URLs: parsed as browsers do (WHATWG), compared in canonical form, grouped by site.

Three forms of one address:
- `href`: absolute, what is fetched. Made by `parse_url`.
- canonical: what is compared. Made by `UrlRules.canonical` in the order of its docstring; idempotent.
- fingerprint: 16 bytes of the canonical form, what is stored in sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from urllib.parse import unquote

import ada_url
import msgspec
import publicsuffixlist
from url import URL, URLError

from ..errors import InvalidUrl
from ..units import visible
from .route import FetchOptions

MAX_HOST = 253  # characters that a name can have in DNS; longer ones are not remembered


@cache
def _suffixes() -> publicsuffixlist.PublicSuffixList:
    """Loaded when the first URL is parsed, not at start-up, because the list is long."""
    return publicsuffixlist.PublicSuffixList()


def parse_url(text: str, base: str | None = None) -> str:
    """Return the absolute http(s) address that a browser would open. Raises InvalidUrl."""
    try:
        parsed = URL.parse(text, URL.parse(base)) if base is not None else URL.parse(text)
        href, scheme = str(parsed), parsed.scheme
    except URLError:
        # The fast parser refuses a few addresses that the standard allows ("///host", odd punycode).
        href = _reference_parse(text, base)
        scheme = href.partition(":")[0]
    except UnicodeError:
        raise InvalidUrl(f"{text[:200]!a} is not a URL: it contains a lone surrogate.") from None
    if scheme not in ("http", "https"):
        raise InvalidUrl(f"{text[:200]!r} is a {scheme}: address; only http and https can be crawled.")
    return href


# Known schemes without "//"; before any other colon stands a host name: shop.example:8080
_SCHEMES = frozenset({"about", "blob", "data", "file", "ftp", "javascript", "mailto", "tel", "ws", "wss"})


def typed_url(text: str) -> str:
    """The absolute address that the user means. Raises InvalidUrl."""
    scheme, colon, _ = text.strip().partition(":")
    if "://" not in text and (not colon or scheme.lower() not in _SCHEMES):
        blank = len(text.split()) != 1  # then it is not a URL without its scheme
        hint = "" if blank else f" Did you mean https://{visible(text[:200]).strip('/ ')} ?"
        raise InvalidUrl(f"{visible(text[:200])!r} is not a URL.{hint}")
    return parse_url(text.strip())


def _reference_parse(text: str, base: str | None) -> str:
    try:
        parsed = ada_url.URL(text, base) if base is not None else ada_url.URL(text)
    except (ValueError, UnicodeError):
        blank = len(text.split()) != 1  # then it is not a URL without its scheme
        hint = "" if "//" in text or blank else f" Did you mean https://{text[:200].strip()} ?"
        raise InvalidUrl(f"{text[:200]!r} is not a URL.{hint}") from None
    href: str = parsed.href
    return href


class UrlRules:
    """Decides whether two addresses are the same page. Immutable; shared by all parts of a crawl.

    In this order: the fragment, any user name and password, and a final dot of the host are removed; percent codes of
    plain characters are decoded and the others written in capitals; tracking parameters and empty ones are removed; the
    rest is sorted by name (equal names keep their order); `trailing_slash="strip"` drops a final slash. `parse_url` has
    already lowered the case of scheme and host, and resolved default ports and dot segments.
    """

    def __init__(
        self,
        *,
        tracking: Iterable[str] = (),
        trailing_slash: str = "keep",
        sort_query: bool = True,
        identity_headers: Iterable[str] = (),
    ) -> None:
        names = [name.lower() for name in tracking]
        self._exact = frozenset(name for name in names if "*" not in name)
        self._prefixes = tuple(name.rstrip("*") for name in names if name.endswith("*"))
        self._strip_slash = trailing_slash == "strip"
        self._sort = sort_query
        self._identity_headers = frozenset(name.lower() for name in identity_headers)

    def canonical(self, href: str) -> str:
        """The canonical form of an absolute address made by `parse_url`."""
        head, _, _ = href.partition("#")
        head, mark, query = head.partition("?")
        scheme, _, rest = head.partition("://")
        authority, slash, path = rest.partition("/")
        if "@" in authority:
            authority = authority.rpartition("@")[2]
        if "." in authority and (authority.endswith(".") or ".:" in authority):
            host, colon, port = authority.partition(":")
            authority = f"{host.rstrip('.')}{colon}{port}"
        if "%" in path:
            path = _CODES.sub(_plain_code, path)
        if self._strip_slash:
            path = path.rstrip("/")
        result = f"{scheme}://{authority}{slash}{path}"
        if mark and query:
            query = self._query(query)
            if query:
                return f"{result}?{query}"
        return result

    def _query(self, query: str) -> str:
        if "%" in query:
            query = _CODES.sub(_plain_code, query)
        kept = [part for part in query.split("&") if part and not self._is_tracking(part)]
        if self._sort and len(kept) > 1:
            kept.sort(key=_parameter_name)
        return "&".join(kept)

    def _is_tracking(self, part: str) -> bool:
        name = part.partition("=")[0].lower()
        return name in self._exact or (bool(self._prefixes) and name.startswith(self._prefixes))

    def fingerprint(self, href: str, how: FetchOptions | None = None) -> bytes:
        """16 bytes that are equal for equal pages. The fingerprint of a request that is more than a GET also covers its
        method, its body, the headers in `identity_headers` and `apart`; that of a file, or of an `unlinked` page,
        differs from that of a page."""
        canonical = self.canonical(href)
        told = self._told(how) if how is not None else ""
        return fingerprint(f"{canonical}\n{told}" if told else canonical)

    def _told(self, how: FetchOptions) -> str:
        headers = sorted((name.lower(), value) for name, value in how.headers if name.lower() in self._identity_headers)
        if how.method == "GET" and not headers and how.file is None and not how.apart:
            return "unlinked" if how.unlinked else ""
        told = (how.method, how.body.digest if how.body is not None else "", headers)
        if how.apart:
            return msgspec.json.encode((*told, "apart", how.apart)).decode()
        if how.file is not None:  # the same URL may be wanted as a page and as a file
            return msgspec.json.encode((*told, "file")).decode()
        return msgspec.json.encode(told).decode()


# The version of the fingerprints that `UrlRules` makes by default. Raise it with any change that gives a known URL
# another canonical form or fingerprint: states written with another version are then refused, because a crawl would not
# recognise pages it has seen.
FINGERPRINT_VERSION = 1


def fingerprint(canonical: str) -> bytes:
    """BLAKE2b cut to 128 bits: nobody can craft a URL that hides another one."""
    return blake2b(canonical.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_CODES = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _plain_code(match: re.Match[str]) -> str:
    code = match[0]
    char = chr(int(code[1:], 16))
    return char if char in _UNRESERVED else code.upper()


def _parameter_name(part: str) -> str:
    return part.partition("=")[0]


def authority_of(href: str) -> str:
    """Host and port as written in an absolute address: `example.com:8080`."""
    if (plain := _PLAIN_AUTHORITY.match(href)) is not None:
        return plain[1]
    rest = href.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    return authority.rpartition("@")[2]


_PLAIN_AUTHORITY = re.compile(r"https?://([^/?#@]*)(?![^/?#])")  # nearly every URL: no user name before the host


# Before the host, and not in a path or query that quotes another URL.
_USER = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)@")


def without_user(href: str) -> str:
    """An absolute address without the user name and the password in it."""
    return _USER.sub(r"\1", href) if "@" in href else href


def user_in(href: str) -> tuple[str, str] | None:
    """The user name and the password in an absolute address."""
    found = _USER.search(href) if "@" in href else None
    if found is None:
        return None
    name, _, password = found[2].partition(":")
    return unquote(name), unquote(password)


def origin_of(href: str) -> str:
    """Scheme, host and port: what robots.txt and connections belong to."""
    return f"{href.partition('://')[0]}://{authority_of(href)}"


# Ports that browsers refuse, because no web server uses them (https://fetch.spec.whatwg.org/#port-blocking).
_BAD_PORTS = frozenset((
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530,
    531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190,
    5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
))  # fmt: skip


def bad_port_of(href: str) -> int | None:
    """The port of an absolute address, if it is one that browsers refuse."""
    port = authority_of(href).rpartition(":")[2]
    return int(port) if port.isdecimal() and int(port) in _BAD_PORTS else None


def port_of(href: str) -> int:
    """The port of an absolute address, or that of its scheme."""
    port = authority_of(href).rpartition(":")[2]
    return int(port) if port.isdecimal() else 443 if href.startswith("https:") else 80


def host_of(href: str) -> str:
    """The host name or address alone, without brackets and final dot."""
    authority = authority_of(href)
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].rstrip(".")


def is_literal(host: str) -> bool:
    """Is it an IP address and not a name?"""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def site_of_host(host: str) -> str:
    """The registrable domain (`shop.example.co.uk` gives `example.co.uk`), or the host if there is none."""
    return _site_of_host(host) if len(host) <= MAX_HOST else _site_of_host.__wrapped__(host)


@lru_cache(maxsize=65_536)
def _site_of_host(host: str) -> str:
    if is_literal(host):
        return host
    found: str | None = _suffixes().privatesuffix(host)
    return found or host


def site_of_authority(authority: str) -> str:
    """Like `site_of_host`, from `host:port`."""
    kept = len(authority) <= MAX_HOST + 6
    return _site_of_authority(authority) if kept else _site_of_authority.__wrapped__(authority)


@lru_cache(maxsize=65_536)
def _site_of_authority(authority: str) -> str:
    return site_of_host(host_of(f"http://{authority}/"))


def site_of(href: str) -> str:
    """The site of an absolute URL: limits, cookies and queues are kept per site."""
    return site_of_authority(authority_of(href))


_DIGITS = re.compile(r"\d+")


def shape_of(href: str) -> str:
    """The address with numbers blanked and parameter values gone: `/p/{n}?page`. Equal shapes share a trap budget."""
    path, _, query = href.partition("://")[2].partition("#")[0].partition("?")
    shape = _DIGITS.sub("{n}", path[path.find("/") :] if "/" in path else "/")
    if query:
        names = sorted({_DIGITS.sub("{n}", _parameter_name(part)) for part in query.split("&") if part})
        shape = f"{shape}?{'&'.join(names)}"
    return shape


def looks_endless(href: str, *, max_segments: int) -> bool:
    """True for paths that a loop made: too deep, or with the same run of segments three times in a row."""
    path = href.partition("://")[2].partition("?")[0]
    segments = path.split("/")[1:]
    if len(segments) > max_segments:
        return True
    if len(segments) < 3:
        return False
    for width in range(1, len(segments) // 3 + 1):
        for start in range(len(segments) - 3 * width + 1):
            first = segments[start : start + width]
            if (
                any(first)
                and first == segments[start + width : start + 2 * width]
                and first == segments[start + 2 * width : start + 3 * width]
            ):
                return True
    return False
