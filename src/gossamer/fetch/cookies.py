"""A cookie jar by RFC 6265bis. A site's cookies go to that site only.

Every page is requested as if a user had typed its address, so `SameSite` is recorded (for browsers that get our
cookies) but withholds no cookie. Values never print.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections import OrderedDict
from collections.abc import Iterable
from datetime import date

from ..clock import Clock
from ..model.page import Headers
from ..model.session import Cookie, CookieKey
from ..model.url import host_of, site_of_host

_MAX_COOKIE = 4096  # bytes of name and value
_MAX_ATTRIBUTE = 1024
_MAX_HEADER = 16 * 1024  # servers refuse requests with longer headers
_LONGEST_AGE = 400 * 86_400.0
_BLANKS = " \t"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_AGE = re.compile(r"-?[0-9]+")
_SAME_SITE = {"strict": "Strict", "lax": "Lax", "none": "None"}

CookieChanges = dict[CookieKey, Cookie | None]  # None: it was deleted


class CookieJar:
    """The cookies of all sites.

    Bounded: a site that sets more than `max_per_site` loses its oldest, and beyond `max_total` cookies or `max_bytes`
    the least recently used site loses all of its cookies. With `notes_changes`, `take_changes` returns the changes
    since its last call.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_per_site: int = 100,
        max_total: int = 20_000,
        max_bytes: int = 4 << 20,
        notes_changes: bool = False,
    ) -> None:
        self._clock = clock
        self._max_per_site = max_per_site
        self._max_total = max_total
        self._max_bytes = max_bytes
        self._sites: OrderedDict[str, dict[CookieKey, Cookie]] = OrderedDict()
        self._total = 0
        self._bytes = 0
        self._changes: CookieChanges | None = {} if notes_changes else None

    def __len__(self) -> int:
        return self._total

    def header_for(self, url: str) -> str | None:
        """The value of the `Cookie` header for a request to `url`, or None."""
        if not self._sites:
            return None  # most crawls never see a cookie
        host = host_of(url)
        path, safe = _path_of(url), url.startswith("https:")
        fitting = [
            cookie
            for cookie in self.of_site(url)
            if cookie.covers(host) and _path_covers(cookie.path, path) and (safe or not cookie.secure)
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

    def of_site(self, url: str) -> tuple[Cookie, ...]:
        """Every unexpired cookie of the site of `url`, the oldest first."""
        site = site_of_host(host_of(url))
        cookies = self._sites.get(site)
        if cookies is None:
            return ()
        self._sites.move_to_end(site)
        now = self._clock.now()
        for key in [key for key, cookie in cookies.items() if cookie.expires is not None and cookie.expires <= now]:
            self._forget(site, key)
        return tuple(cookies.values())

    def all(self) -> tuple[Cookie, ...]:
        """Every cookie, including any that expired since its last use."""
        return tuple(cookie for cookies in self._sites.values() for cookie in cookies.values())

    def absorb(self, url: str, headers: Headers) -> bool:
        """Store the `Set-Cookie` lines of a response from `url`. True if a value was added, changed or deleted."""
        if "set-cookie" not in headers:
            return False
        changed = False
        for line in headers.getall("set-cookie")[: self._max_per_site]:
            cookie = read_cookie(url, line, self._clock.now())
            if cookie is not None and not self._is_shielded(url, cookie):
                changed |= self.keep(cookie)
        return changed

    def take_in(self, url: str, cookies: Iterable[Cookie]) -> bool:
        """Store what a browser did to cookies while it showed `url`; an expired one is deleted. Only cookies of the
        site of `url` count. True if a value was added, changed or deleted."""
        site = site_of_host(host_of(url))
        fitting = [cookie for cookie in cookies if site_of_host(cookie.domain) == site and _fits(cookie)]
        changed = False
        for cookie in fitting[: self._max_per_site]:
            changed |= self.keep(cookie)
        return changed

    def keep(self, cookie: Cookie) -> bool:
        """Store a cookie, replacing one with the same key. True if a value was added, changed or deleted."""
        site = site_of_host(cookie.domain)
        key = cookie.key
        cookies = self._sites.get(site)
        old = cookies.get(key) if cookies is not None else None
        if cookie.expires is not None and cookie.expires <= self._clock.now():
            if old is not None:
                self._forget(site, key)
                self._note(key, None)
            return old is not None
        if cookies is None:
            cookies = self._sites[site] = {}
        if old is None:
            self._total += 1
            if len(cookies) >= self._max_per_site:
                self._forget(site, next(iter(cookies)))
        else:
            self._bytes -= old.size
        self._bytes += cookie.size
        cookies[key] = cookie
        self._sites.setdefault(site, cookies)
        self._sites.move_to_end(site)
        while (self._total > self._max_total or self._bytes > self._max_bytes) and len(self._sites) > 1:
            for lost in self._sites.popitem(last=False)[1].values():
                self._total, self._bytes = self._total - 1, self._bytes - lost.size
        if cookie != old:
            self._note(key, cookie)
        return old is None or old.value != cookie.value

    def replace(self, cookies: Iterable[Cookie]) -> None:
        """Hold these cookies, plus the changes made here since the last `take_changes`. What no site can have set is
        left out: the state that has them may have been written by others."""
        self._sites.clear()
        self._total = self._bytes = 0
        waiting, self._changes = self._changes, None
        for cookie in filter(_fits, cookies):
            self.keep(cookie)
        for key, change in (waiting or {}).items():
            if change is not None:
                self.keep(change)
            elif key in self._sites.get(site_of_host(key[0]), {}):
                self._forget(site_of_host(key[0]), key)
        self._changes = waiting

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def take_changes(self) -> CookieChanges:
        """The changes since the last call."""
        taken = self._changes or {}
        if taken:
            self._changes = {}
        return taken

    def give_back(self, changes: CookieChanges) -> None:
        """These changes were taken but could not be stored: they count as changes again, unless there are newer
        ones."""
        if self._changes is not None:
            self._changes = {**changes, **self._changes}

    def _note(self, key: CookieKey, cookie: Cookie | None) -> None:
        if self._changes is not None:
            self._changes[key] = cookie

    def _is_shielded(self, url: str, cookie: Cookie) -> bool:
        """Would a response over plain http overwrite or shadow a cookie that was set over https?"""
        if url.startswith("https:"):
            return False
        known = self._sites.get(site_of_host(cookie.domain), {}).values()
        return cookie.secure or any(
            one.secure
            and one.name == cookie.name
            and (one.covers(cookie.domain) or cookie.covers(one.domain))
            and _path_covers(one.path, cookie.path)
            for one in known
        )

    def _forget(self, site: str, key: CookieKey) -> None:
        cookies = self._sites[site]
        self._bytes -= cookies.pop(key).size
        self._total -= 1
        if not cookies:
            del self._sites[site]


def read_cookie(url: str, line: str, now: float) -> Cookie | None:
    """The cookie that a `Set-Cookie` line of a response from `url` sets; None if it must be ignored."""
    if len(line) > 4 * _MAX_COOKIE or _CONTROL.search(line):
        return None
    first, *rest = line.split(";")
    name, equals, value = first.partition("=")
    if not equals:
        name, value = "", first
    name, value = name.strip(_BLANKS), value.strip(_BLANKS)
    if not (name or value) or len(f"{name}{value}".encode("utf-8", "surrogatepass")) > _MAX_COOKIE:
        return None
    host = host_of(url)
    wanted, path, expires, age = "", "", None, None
    secure = http_only = False
    same_site = ""
    for attribute in rest:
        key, _, given = attribute.partition("=")
        key, given = key.strip(_BLANKS).lower(), given.strip(_BLANKS)
        if len(given) > _MAX_ATTRIBUTE:
            continue
        if key == "domain":
            wanted = given.removeprefix(".").lower()
        elif key == "path":
            path = given if given.startswith("/") else ""
        elif key == "secure":
            secure = True
        elif key == "httponly":
            http_only = True
        elif key == "samesite":
            same_site = _SAME_SITE.get(given.lower(), "")
        elif key == "max-age" and _AGE.fullmatch(given):
            seconds = float(given[:18])
            age = now + min(seconds, _LONGEST_AGE) if seconds > 0 else 0.0
        elif key == "expires" and (at := read_date(given)) is not None:
            expires = min(at, now + _LONGEST_AGE)
    if (wanted and not _may_set(host, wanted)) or _breaks_its_prefix(name, value, secure, wanted, path):
        return None
    return Cookie(
        name=name,
        value=value,
        domain=wanted or host,
        path=path or _default_path(_path_of(url)),
        host_only=not wanted or _is_address(host),
        secure=secure,
        expires=expires if age is None else age,
        http_only=http_only,
        same_site=same_site,
    )


def _breaks_its_prefix(name: str, value: str, secure: bool, wanted: str, path: str) -> bool:
    """Does the name claim, by a `__Secure-` or `__Host-` prefix, what the attributes of the cookie do not fulfil?"""
    named = (name or value).lower()
    if not named.startswith(("__secure-", "__host-")):
        return False
    if not name or not secure:
        return True
    return named.startswith("__host-") and (bool(wanted) or path != "/")


def _fits(cookie: Cookie) -> bool:
    size = len(f"{cookie.name}{cookie.value}".encode("utf-8", "surrogatepass"))
    return 0 < size <= _MAX_COOKIE and not _CONTROL.search(f"{cookie.name}{cookie.value}{cookie.path}")


def _may_set(host: str, domain: str) -> bool:
    """A host may set cookies for itself and for its parent domains, up to its registrable domain."""
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


# -- dates, by the algorithm of the RFC: any order, any separators ---------------------------------------------------

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE_TOKEN = re.compile(r"[^\x00-/;-@\[-`{-~]+")
_TIME = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[^0-9].*)?", re.DOTALL)
_DAY = re.compile(r"([0-9]{1,2})(?:[^0-9].*)?", re.DOTALL)
_YEAR = re.compile(r"([0-9]{2,4})(?:[^0-9].*)?", re.DOTALL)


def read_date(text: str) -> float | None:
    """The time that `Expires` states, in any spelling; None if it is not a date."""
    time: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _DATE_TOKEN.findall(text[:_MAX_ATTRIBUTE]):
        if time is None and (found := _TIME.fullmatch(token)):
            time = (int(found[1]), int(found[2]), int(found[3]))
        elif day is None and (found := _DAY.fullmatch(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _YEAR.fullmatch(token)):
            year = int(found[1])
            year += 1900 if 70 <= year <= 99 else 2000 if year <= 69 else 0
    if time is None or day is None or month is None or year is None or year < 1601:
        return None
    if time[0] > 23 or time[1] > 59 or time[2] > 59:
        return None
    try:
        date(year, month, day)
    except ValueError:
        return None
    return float(timegm((year, month, day, *time)))
