"""Headers of Scrapy's requests, as they may be sent.

Headers of the connection (`Host`, `Connection`, `Content-Length` ...) are made by the transport. One that a spider sets
to what is sent anyhow is left out in silence, another one with a warning, and so is one that no request can carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from scrapy.http import Headers

from ...model.payload import OF_THE_CONNECTION, BadPayload, check_header

Warn = Callable[[str], None]
_USUAL = {
    "connection": ("keep-alive", "close"),
    "keep-alive": None,  # None: any value
    "te": None,
    "content-length": None,  # of the body that is sent
    "upgrade": None,
    "proxy-connection": None,
}
COOKIE = "cookie"


def sendable(headers: Headers, url: str, warn: Warn) -> Iterator[tuple[str, str]]:
    """The headers that a request can carry, `Cookie` among them."""
    for raw, values in headers.items():
        if not values:
            continue
        name, value = raw.decode("latin-1"), b", ".join(values).decode("utf-8", "replace").strip()
        if name.lower() in OF_THE_CONNECTION:
            if not _is_usual(name.lower(), value, url):
                warn(f"The header {name}: {value:.60} is left out: it belongs to the connection.")
            continue
        try:
            check_header(name, value)
        except BadPayload as error:
            warn(f"The header {name!a:.60} is left out: a request with it {error}.")
            continue
        yield name, value


def cookies_in(value: str) -> dict[str, str]:
    """The cookies of a header that a spider wrote itself."""
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(value).items()}
    except CookieError:
        return {}


def _is_usual(name: str, value: str, url: str) -> bool:
    if name == "host":
        return value.lower() == urlsplit(url).netloc.rpartition("@")[2].lower()
    usual = _USUAL.get(name, ())
    return usual is None or value.lower() in usual
