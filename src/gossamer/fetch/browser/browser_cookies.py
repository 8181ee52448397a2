"""Converts cookies between the jar and a browser, both ways, with all their flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...model.session import Cookie


def browser_cookie(cookie: Cookie) -> dict[str, Any]:  # Any: the library does not export the type of a cookie
    """A cookie in the form that the browser accepts."""
    host = f"[{cookie.domain}]" if ":" in cookie.domain else cookie.domain
    told: dict[str, Any] = {
        "name": cookie.name,
        "value": cookie.value,
        "domain": host if cookie.host_only else f".{host}",
        "path": cookie.path,
        "secure": cookie.secure,
        "httpOnly": cookie.http_only,
    }
    if cookie.expires is not None:
        told["expires"] = cookie.expires
    if cookie.same_site and (cookie.secure or cookie.same_site != "None"):  # SameSite=None requires Secure
        told["sameSite"] = cookie.same_site
    return told


def cookie_changes(
    given: Iterable[Cookie], found: Iterable[Mapping[str, Any]], *, lent: Iterable[tuple[str, str]] = ()
) -> tuple[Cookie, ...]:
    """What a page did to cookies: those it added or changed, by script or header, and those it deleted, as expired
    ones.

    `given` are the cookies that we gave the browser; `lent` are names and values meant for this page alone; `found` are
    the browser's cookies afterwards.
    """
    before = {cookie.key: cookie for cookie in given}
    only_lent = frozenset(lent)
    left = [_read(one) for one in found]
    changes = [
        cookie
        for cookie in left
        if not _alike(cookie, before.get(cookie.key)) and (cookie.name, cookie.value) not in only_lent
    ]
    gone = before.keys() - {cookie.key for cookie in left}
    return (*changes, *(msgspec.structs.replace(before[key], expires=0.0) for key in sorted(gone)))


def _read(cookie: Mapping[str, Any]) -> Cookie:
    domain = str(cookie["domain"])
    return Cookie(
        name=cookie["name"],
        value=cookie["value"],
        domain=domain.removeprefix(".").strip("[]").lower(),
        path=cookie["path"],
        host_only=not domain.startswith("."),
        secure=bool(cookie["secure"]),
        expires=float(cookie["expires"]) if cookie["expires"] >= 0 else None,
        http_only=bool(cookie["httpOnly"]),
        same_site=cookie.get("sameSite") or "",
    )


def _alike(found: Cookie, given: Cookie | None) -> bool:
    """Equal, ignoring fractions of a second, and the SameSite that the browser reports for a cookie without one."""
    if given is None or (found.expires is None) != (given.expires is None):
        return False
    near = found.expires is None or given.expires is None or abs(found.expires - given.expires) < 2
    same_site = found.same_site if given.same_site else ""
    return near and msgspec.structs.replace(found, expires=given.expires, same_site=same_site) == given
