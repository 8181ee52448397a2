"""The cookies that a page leaves in the browser, as the `Set-Cookie` lines a server would have sent for them.

So what scripts set is kept like what servers set. A jar of the fetcher's own kind decides what is new, and what the
address may set at all: cookies of other sites, and of other hosts of the site alone, are left out. It cannot fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from email.utils import formatdate
from typing import Any

from ...clock import SystemClock
from ...model.page import Headers
from ...model.url import host_of
from ..cookies import CookieJar


def set_cookie_lines(
    url: str,
    cookies: Iterable[Mapping[str, Any]],  # Any: the library does not export the type of a cookie
    *,
    given: Iterable[tuple[str, str]],
    told: Iterable[str],
    max_size: int,
) -> list[str]:
    """Lines for those of the browser's `cookies` that a page at `url` may set and that nobody knows yet.

    `given` are names and values that the browser had from us, `told` the lines that are known already. The lines are
    `max_size` characters long at most, all together.
    """
    host = host_of(url)
    from_us = frozenset(given)
    jar = CookieJar(SystemClock())
    jar.absorb(url, Headers(("Set-Cookie", line) for line in told))
    lines: list[str] = []
    for cookie in cookies:
        domain = str(cookie["domain"])
        whole_domain = domain.startswith(".")
        if not whole_domain and domain.strip("[]") != host:
            continue  # without a domain the line would speak for `host`
        if not whole_domain and _unchanged(cookie, from_us):
            continue  # its path and domain were lost on the way here; whoever gave it knows better
        line = _line(cookie)
        if max_size < len(line):
            continue
        if jar.absorb(url, Headers((("Set-Cookie", line),))):
            lines.append(line)
            max_size -= len(line)
    return lines


def _unchanged(cookie: Mapping[str, Any], from_us: frozenset[tuple[str, str]]) -> bool:
    plain = cookie["path"] == "/" and cookie["expires"] < 0
    return plain and (cookie["name"], cookie["value"]) in from_us


def _line(cookie: Mapping[str, Any]) -> str:
    parts = [f"{cookie['name']}={cookie['value']}"]
    if cookie["domain"].startswith("."):
        parts.append(f"Domain={cookie['domain'][1:]}")
    parts.append(f"Path={cookie['path']}")
    if cookie["expires"] >= 0:
        parts.append(f"Expires={formatdate(cookie['expires'], usegmt=True)}")
    if cookie["secure"]:
        parts.append("Secure")
    if cookie["httpOnly"]:
        parts.append("HttpOnly")
    return "; ".join(parts)
