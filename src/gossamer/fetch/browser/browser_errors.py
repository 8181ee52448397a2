"""Translates the errors of a browser that could not show a page into ours."""

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

# What Playwright says if neither another page nor waiting would help: a checkbox cannot be filled.
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
    ("ERR_CONTENT_DECODING", BadResponse, "the body cannot be decompressed"),
    ("ERR_HTTP2_", ConnectionDropped, "the connection broke"),
    ("ERR_UNSAFE_PORT", FetchRefused, "browsers refuse that port"),
    ("ERR_UNKNOWN_URL_SCHEME", FetchRefused, "browsers cannot open this address"),
    ("ERR_DISALLOWED_URL_SCHEME", FetchRefused, "browsers cannot open this address"),
    ("ERR_INVALID_URL", FetchRefused, "browsers cannot open this address"),
    ("ERR_BLOCKED_BY_RESPONSE", FetchRefused, "the site forbids showing it"),
    ("ERR_", ConnectionDropped, "the connection broke"),
)


def translated(said: str, url: str, gate_pass: Pass, at: str = "") -> GossamerError:
    """Our error for a page at `url` that failed. The guard proxy's knowledge takes precedence over the browser's text.
    `at` is the spider's action or wait that was in progress, if any."""
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
