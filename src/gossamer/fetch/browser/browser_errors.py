"""What a browser says of a page that it could not show, in our words."""

from __future__ import annotations

import re

from ...errors import (
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    DnsFailed,
    FetchFailed,
    FetchRefused,
    GossamerError,
    TimedOut,
    TlsFailed,
)
from .guard import Pass
from .main_frame import with_port

# What Playwright says where no page and no patience would help: a checkbox cannot be filled.
_NOT_TO_BE_DONE = re.compile(
    r"(?:Locator\.(?:fill|select_option|press|type|press_sequentially): Error: |\.press: (?=Unknown key))([^\n]{1,160})"
)
_NET_ERROR = re.compile(r"net::(ERR_[A-Z0-9_]+)")
_WORDS: tuple[tuple[str, type[FetchFailed] | type[FetchRefused], str], ...] = (
    ("ERR_CERT_", TlsFailed, "no secure connection"),
    ("ERR_SSL_", TlsFailed, "no secure connection"),
    ("ERR_BAD_SSL_", TlsFailed, "no secure connection"),
    ("ERR_NAME_", DnsFailed, "the name does not resolve"),
    ("ERR_TIMED_OUT", TimedOut, "no answer in time"),
    ("ERR_CONNECTION_TIMED_OUT", TimedOut, "no answer in time"),
    ("ERR_CONNECTION_REFUSED", ConnectFailed, "no connection"),
    ("ERR_CONNECTION_FAILED", ConnectFailed, "no connection"),
    ("ERR_ADDRESS_", ConnectFailed, "no connection"),
    ("ERR_TUNNEL_", ConnectFailed, "no connection"),
    ("ERR_PROXY_", ConnectFailed, "no connection"),
    ("ERR_INVALID_HTTP", BadResponse, "what came back is not HTTP"),
    ("ERR_RESPONSE_HEADERS", BadResponse, "the response headers are not valid"),
    ("ERR_INVALID_RESPONSE", BadResponse, "what came back is not HTTP"),
    ("ERR_INVALID_CHUNKED", BadResponse, "the body is not valid HTTP"),
    ("ERR_INVALID_REDIRECT", BadResponse, "the redirect leads nowhere"),
    ("ERR_CONTENT_DECODING", BadResponse, "the body cannot be unpacked"),
    ("ERR_HTTP2_", ConnectionDropped, "the connection broke"),
    ("ERR_UNSAFE_PORT", FetchRefused, "no browser opens that port"),
    ("ERR_UNKNOWN_URL_SCHEME", FetchRefused, "no browser opens that"),
    ("ERR_DISALLOWED_URL_SCHEME", FetchRefused, "no browser opens that"),
    ("ERR_INVALID_URL", FetchRefused, "no browser opens that"),
    ("ERR_BLOCKED_BY_RESPONSE", FetchRefused, "the site forbids to show it"),
    ("ERR_", ConnectionDropped, "the connection broke"),
)


def translated(said: str, url: str, gate_pass: Pass, at: str = "") -> GossamerError:
    """Our error for a page at `url` that failed. What the guard proxy knows goes before what the browser says. `at` is
    what was done or waited for just then, where the spider wished for it."""
    known = gate_pass.trouble(with_port(url))
    if known is not None:
        return known
    where = url[:200]
    if "Download is starting" in said:
        return FetchRefused(
            f"{where} is a download, and the browser takes none. Fetch it by a route without a browser."
        )
    found = _NET_ERROR.search(said)
    code = found[1] if found else ""
    for prefix, kind, words in _WORDS:
        if code.startswith(prefix):
            return kind(f"{where}: {words} ({code}).")
    if "is not a valid selector" in said or "parsing css selector" in said:
        return FetchRefused(f"{where}: the selector of {at or 'render'} is not valid CSS.")
    if refused := _NOT_TO_BE_DONE.search(said):
        return FetchRefused(f"{where}: {at} cannot be done ({refused[1].rstrip('.')}).")
    first = said.strip().splitlines()[0][:200] if said.strip() else "it does not say why"
    return ConnectionDropped(f"{where}: the browser could not show the page ({first}).")
