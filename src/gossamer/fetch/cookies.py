"""Cookies of one job, kept in memory (RFC 6265). A site's cookies go to that site only."""

from __future__ import annotations

import re
from collections import OrderedDict
from email.utils import mktime_tz, parsedate_tz

import msgspec

from ..clock import Clock
from ..model.page import Headers
from ..model.url import host_of, site_of_host

_MAX_COOKIE = 4096
_MAX_HEADER = 16 * 1024  # servers refuse requests whose headers are longer
_LONGEST_AGE = 400 * 86_400.0
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_AGE = re.compile(r"-?\d+")


class Cookie(msgspec.Struct, frozen=True):
    """`expires` None means until the job ends. `domain` without `host_only` covers its subdomains."""

    name: str
    value: str
    domain: str
    path: str
    host_only: bool
    secure: bool
    expires: float | None


_Key = tuple[str, str, str]  # domain, path, name


class CookieJar:
    """What the sites asked us to remember.

    Bounded: a site that sets more than `max_per_site` loses its oldest, and beyond `max_total` the site that was
    used longest ago loses all of its cookies.
    """

    def __init__(self, clock: Clock, *, max_per_site: int = 100, max_total: int = 20_000) -> None:
        self._clock = clock
        self._max_per_site = max_per_site
        self._max_total = max_total
        self._sites: OrderedDict[str, dict[_Key, Cookie]] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def header_for(self, url: str) -> str | None:
        """The value of `Cookie` for a request to `url`, or None."""
        if not self._sites:
            return None  # most crawls never see a cookie
        host = host_of(url)
        site = site_of_host(host)
        cookies = self._sites.get(site)
        if cookies is None:
            return None
        self._sites.move_to_end(site)
        now = self._clock.now()
        for key in [key for key, cookie in cookies.items() if cookie.expires is not None and cookie.expires <= now]:
            self._forget(site, key)
        path, safe = _path_of(url), url.startswith("https:")
        fitting = [
            cookie
            for cookie in cookies.values()
            if (cookie.domain == host or (not cookie.host_only and host.endswith(f".{cookie.domain}")))
            and _path_covers(cookie.path, path)
            and (safe or not cookie.secure)
        ]
        fitting.sort(key=lambda cookie: -len(cookie.path))
        parts, size = [], 0
        for cookie in fitting:
            part = f"{cookie.name}={cookie.value}" if cookie.name else cookie.value
            size += len(part) + 2
            if size > _MAX_HEADER:
                break
            parts.append(part)
        return "; ".join(parts) or None

    def absorb(self, url: str, headers: Headers) -> bool:
        """Take in the `Set-Cookie` lines of a response from `url`. True when a value came, changed or went."""
        if "set-cookie" not in headers:
            return False
        changed = False
        for line in headers.getall("set-cookie")[: self._max_per_site]:
            cookie = self._read(url, line)
            if cookie is not None:
                changed |= self._keep(cookie)
        return changed

    def _read(self, url: str, line: str) -> Cookie | None:
        if len(line) > 2 * _MAX_COOKIE or _CONTROL.search(line):
            return None
        first, *rest = line.split(";")
        name, equals, value = first.partition("=")
        if not equals:
            name, value = "", first
        name, value = name.strip(), value.strip()
        if not (name or value) or len(name) + len(value) > _MAX_COOKIE:
            return None
        host = host_of(url)
        domain, host_only = host, True
        path = _default_path(_path_of(url))
        secure, expires, by_age = False, None, False
        now = self._clock.now()
        for attribute in rest:
            key, _, given = attribute.partition("=")
            key, given = key.strip().lower(), given.strip()
            if key == "domain" and given.lstrip("."):
                wanted = given.lstrip(".").rstrip(".").lower()
                if not _may_set(host, wanted):
                    return None
                domain, host_only = wanted, _is_address(host)
            elif key == "path":
                path = given if given.startswith("/") else _default_path(_path_of(url))
            elif key == "secure":
                secure = True
            elif key == "max-age" and _AGE.fullmatch(given):
                age = float(given[:18])
                expires, by_age = now + min(age, _LONGEST_AGE) if age > 0 else 0.0, True
            elif key == "expires" and not by_age:
                at = _date(given)
                expires = expires if at is None else min(at, now + _LONGEST_AGE)
        if secure and not url.startswith("https:"):
            return None  # else a plain-text answer could overwrite what was set in safety
        return Cookie(name, value, domain, path, host_only, secure, expires)

    def _keep(self, cookie: Cookie) -> bool:
        site = site_of_host(cookie.domain)
        key = (cookie.domain, cookie.path, cookie.name)
        cookies = self._sites.get(site)
        old = cookies.get(key) if cookies is not None else None
        if cookie.expires is not None and cookie.expires <= self._clock.now():
            if old is not None:
                self._forget(site, key)
            return old is not None
        if cookies is None:
            cookies = self._sites[site] = {}
        if old is None:
            self._total += 1
            if len(cookies) >= self._max_per_site:
                self._forget(site, next(iter(cookies)))
        cookies[key] = cookie
        self._sites.setdefault(site, cookies)
        self._sites.move_to_end(site)
        while self._total > self._max_total and len(self._sites) > 1:
            self._total -= len(self._sites.popitem(last=False)[1])
        return old is None or old.value != cookie.value

    def _forget(self, site: str, key: _Key) -> None:
        cookies = self._sites[site]
        del cookies[key]
        self._total -= 1
        if not cookies:
            del self._sites[site]


def _may_set(host: str, domain: str) -> bool:
    """A host may set cookies for itself and for the domains above it, down to its registrable domain."""
    if domain == host:
        return True
    site = site_of_host(host)
    return host.endswith(f".{domain}") and (domain == site or domain.endswith(f".{site}"))


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def _path_of(url: str) -> str:
    rest = url.partition("://")[2].partition("#")[0].partition("?")[0]
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


def _default_path(path: str) -> str:
    return path[: path.rfind("/")] or "/"


def _path_covers(covering: str, path: str) -> bool:
    if not path.startswith(covering):
        return False
    return len(path) == len(covering) or covering.endswith("/") or path[len(covering)] == "/"


def _date(text: str) -> float | None:
    try:
        parts = parsedate_tz(text[:64])
        return None if parts is None else float(mktime_tz(parts))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
