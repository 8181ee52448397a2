"""Translates wreq's errors into ours; none of its own escape.

wreq has few error classes and puts the rest into a text for developers. The words below are its names for kinds of
errors; if none matches, the class decides. Its text is not shown: it is long, and about the inside of the driver.
"""

from __future__ import annotations

import re

from ..errors import (
    BadResponse,
    CertificateOutdated,
    ConnectFailed,
    ConnectionDropped,
    ConnectTimedOut,
    DnsFailed,
    FetchFailed,
    FetchRefused,
    HostUnroutable,
    TimedOut,
    TlsFailed,
)
from ..model.route import Proxy
from .addresses import no_file_left
from .contract import Limits
from .proxies import masked_url, proxy_failed, refused_credentials
from .socks import CONNECTION_REFUSED, HOST_UNREACHABLE, NETWORK_UNREACHABLE, TTL_EXPIRED, target_failed

_OS_WORDS = re.compile(r'code: \d+, kind: \w+, message: "([^"]{1,100})"')
_TLS_WORDS = re.compile(r'reason: "([^"]{1,100})"')
_HTTP2_WORDS = re.compile(r"[A-Z_]+, Library\)")  # found by wreq, not by the server
# No URL contains a space, so a page cannot put this into the text through its URL.
_SOCKS_WORDS = re.compile(r"source: Some\(Socks\((\w+)\)\)")
_SOCKS_ON_THE_TARGET = {
    "NetworkUnreachable": NETWORK_UNREACHABLE,
    "HostUnreachable": HOST_UNREACHABLE,
    "ConnectionRefused": CONNECTION_REFUSED,
    "TtlExpired": TTL_EXPIRED,
}
_HUNG_UP = ("(IncompleteMessage)", "stream closed because of a broken pipe")  # HTTP/1.1 and HTTP/2
_OUR_END = re.compile(r"remote_addr: [^ ]+, local_addr: ([^ ,}]+)")
_PARSE_WORDS = re.compile(r"Parse\((\w{1,40})")
OUTDATED = ("certificate has expired", "certificate is not yet valid")
UNROUTABLE = ("Network is unreachable", "No route to host", "Host is unreachable", "Network is down")


def translated(
    error: BaseException, href: str, limits: Limits, proxy: Proxy | None = None
) -> FetchFailed | FetchRefused | None:
    """Translate the error into ours; None if it is not a failure of the request (an interrupt, say)."""
    ours = _site_failure(error, masked_url(href), limits) if _is_known(error) else None
    if proxy is None or ours is None:
        return ours
    said = str(error)
    if isinstance(ours, ConnectFailed) and ours.is_not_the_sites_fault:
        return ours
    if type(error).__name__ == "ProxyConnectionError":
        if "ProxyAuthRequired" in said or "PasswordAuthFailure" in said or "AuthMethodUnacceptable" in said:
            return refused_credentials(proxy)
        socks = _SOCKS_WORDS.search(said)
        if socks is not None and socks[1] in _SOCKS_ON_THE_TARGET:
            return target_failed(proxy, masked_url(href), _SOCKS_ON_THE_TARGET[socks[1]])
        return proxy_failed(proxy, _proxy_words(said))
    if type(error).__name__ == "ConnectionError" and isinstance(ours, TimedOut):
        return proxy_failed(proxy, f"no connection through it within {limits.connect.total_seconds():g} s")
    if isinstance(ours, ConnectFailed | ConnectionDropped | DnsFailed):
        # Nobody can tell whether the proxy or the site hung up.
        return proxy_failed(proxy, "the connection through it broke")
    return ours


def hung_up_on(error: BaseException) -> str | None:
    """The local end of a connection that the server closed without a response; empty if wreq does not report it, None
    for any other error."""
    said = str(error)
    if type(error).__name__ != "ConnectionResetError" and not any(words in said for words in _HUNG_UP):
        return None
    found = _OUR_END.search(said)
    return found[1] if found else ""


def _is_known(error: BaseException) -> bool:
    # A panic of the driver is not an Exception, and must not end a worker.
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _site_failure(error: BaseException, where: str, limits: Limits) -> FetchFailed | FetchRefused:
    said = str(error)
    match type(error).__name__:
        case "TimeoutError":
            return TimedOut(f"{where}: not finished in time.")
        case "TlsError":
            return _not_safe(where, said)
        case "ConnectionError" | "ProxyConnectionError":
            return _no_connection(where, said, limits)
        case "ConnectionResetError":
            return ConnectionDropped(f"{where}: the connection was reset.")
        case "BodyError" | "DecodingError" | "RequestError":
            return _broken(where, said, limits)
        case "BuilderError" | "ValueError" | "TypeError" | "OverflowError":
            return FetchRefused(f"{where} cannot be requested: wreq does not take it.")
        case "StatusError" | "RedirectError" | "UpgradeError" | "WebSocketError":
            return BadResponse(f"{where}: the request broke off ({type(error).__name__}).")
        case name:
            return ConnectionDropped(f"{where}: the request failed ({name}).")


def _no_connection(where: str, said: str, limits: Limits) -> FetchFailed | FetchRefused:
    if "TimedOut" in said:
        return ConnectTimedOut(f"{where}: no connection within {limits.connect.total_seconds():g} s.")
    if "dns error" in said:
        return DnsFailed(f"{where}: the name does not resolve.")
    if "Ssl(" in said:
        return _not_safe(where, said)
    words = _OS_WORDS.search(said)
    if words is None:
        return ConnectionDropped(f"{where}: the server hung up before the connection was made.")
    if "Too many open files" in words[1]:
        return no_file_left(where)
    kind = HostUnroutable if any(one in words[1] for one in UNROUTABLE) else ConnectFailed
    return kind(f"{where}: no connection ({words[1]}). Is the server running, and the port right?")


def _not_safe(where: str, said: str) -> TlsFailed:
    words = _TLS_WORDS.search(said)
    what = words[1].lower().replace("_", " ") if words else "TLS"
    kind = CertificateOutdated if any(words in what for words in OUTDATED) else TlsFailed
    return kind(f"{where}: no secure connection ({what}). Check the site's certificate.")


def _broken(where: str, said: str, limits: Limits) -> FetchFailed | FetchRefused:
    if "TimedOut" in said:
        return TimedOut(f"{where}: not finished in time.")
    if "Parse(TooLarge)" in said:
        return BadResponse(
            f"{where}: the response headers are longer than {limits.max_header} bytes (fetch.max_header)."
        )
    if words := _PARSE_WORDS.search(said):
        return BadResponse(f"{where}: what came back is not HTTP ({words[1]}).")
    if "InvalidInput" in said or "InvalidData" in said:
        return BadResponse(f"{where}: the body is not valid HTTP.")
    if _HTTP2_WORDS.search(said):
        return BadResponse(f"{where}: what came back is not valid HTTP/2.")
    return ConnectionDropped(f"{where}: the connection ended before the response did.")


def _proxy_words(said: str) -> str:
    if "Ssl(" in said:
        words = _TLS_WORDS.search(said)
        return f"no secure connection to it ({words[1].lower().replace('_', ' ') if words else 'TLS'})"
    if "TunnelUnsuccessful" in said:
        return "it did not make the connection that it was asked for"
    if "Socks(" in said:
        return "it did not make the connection that it was asked for, or hung up"
    words = _OS_WORDS.search(said)
    return f"no connection to it ({words[1]})" if words else "it hung up"
