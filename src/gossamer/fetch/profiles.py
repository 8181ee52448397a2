"""The browser profiles: TLS, HTTP/2 settings, user agent and header order, which belong together.

Lives here: the table, as plain values, so that settings can be checked without wreq. wreq knows what a profile sends;
`order` is how that browser orders and spells headers over HTTP/1.1: by default wreq writes them in lower case, with the
host last.
"""

from __future__ import annotations

from difflib import get_close_matches

import msgspec

from ..errors import Misconfigured

_CHROMIUM = (
    "Host", "Connection", "sec-ch-ua", "sec-ch-ua-mobile", "sec-ch-ua-platform", "Upgrade-Insecure-Requests",
    "User-Agent", "Accept", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-User", "Sec-Fetch-Dest", "Referer",
    "Accept-Encoding", "Accept-Language", "Cookie", "If-None-Match", "If-Modified-Since",
)  # fmt: skip
_FIREFOX = (
    "Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "Referer", "Connection", "Cookie",
    "Upgrade-Insecure-Requests", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User",
    "If-Modified-Since", "If-None-Match", "Priority", "TE",
)  # fmt: skip
_SAFARI = (
    "Host", "Sec-Fetch-Dest", "User-Agent", "Accept", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Cookie",
    "If-None-Match", "If-Modified-Since", "Accept-Language", "Priority", "Accept-Encoding", "Connection",
)  # fmt: skip


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """`emulation` and `platform` are wreq's names."""

    name: str
    emulation: str
    platform: str
    order: tuple[str, ...]


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(name="chrome", emulation="Chrome154", platform="Windows", order=_CHROMIUM),
        Profile(name="chrome-mac", emulation="Chrome154", platform="MacOS", order=_CHROMIUM),
        Profile(name="chrome-android", emulation="Chrome154", platform="Android", order=_CHROMIUM),
        Profile(name="edge", emulation="Edge148", platform="Windows", order=_CHROMIUM),
        Profile(name="firefox", emulation="Firefox152", platform="Windows", order=_FIREFOX),
        Profile(name="safari", emulation="Safari26_4", platform="MacOS", order=_SAFARI),
        Profile(name="safari-ios", emulation="SafariIos26_2", platform="IOS", order=_SAFARI),
    )
}

# Headers that a profile sets itself; other values would give the disguise away.
OWN_HEADERS = frozenset({"user-agent", "accept", "accept-language", "accept-encoding"})


def profile_named(name: str) -> Profile:
    """Raises Misconfigured, which lists the profiles."""
    found = PROFILES.get(name)
    if found is None:
        close = get_close_matches(name, PROFILES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise Misconfigured(f"There is no profile {name!r}.{hint} Known are: {', '.join(PROFILES)}.")
    return found
