"""Translates the errors of aiohttp, sockets and TLS into ours: `translated` is the whole list."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Iterator

import aiohttp
from aiohttp import hdrs
from aiohttp.http_exceptions import ContentLengthError, HttpProcessingError, LineTooLong

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
    StaleConnection,
    TimedOut,
    TlsFailed,
)
from ..model.payload import SAFE_METHODS
from ..model.route import Proxy
from ..process.limits import USED_UP
from .addresses import no_file_left
from .contract import Limits
from .proxies import masked_url, proxy_failed, refused_credentials, without_login

UNROUTABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)
OUTDATED = (9, 10)  # OpenSSL's codes for a certificate that is not valid yet, and for an expired one


def is_stale(error: Exception, method: str) -> bool:
    """Did the server close a reused connection without a response, and may the request be repeated?"""
    return method in SAFE_METHODS and isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)


def stale(href: str) -> StaleConnection:
    return StaleConnection(f"{masked_url(href)}: the server closed a reused connection without a response.")


def translated(error: Exception, href: str, limits: Limits) -> FetchFailed | FetchRefused:
    """Translate an error of aiohttp, the socket or TLS into ours. The order matters: special cases come first."""
    where = masked_url(href)
    said = " ".join(without_login(f"{type(error).__name__}: {error}").split())[:300]
    match error:
        case TimeoutError() if isinstance(error, aiohttp.ConnectionTimeoutError):
            return ConnectTimedOut(f"{where}: no connection within {limits.connect.total_seconds():g} s.")
        case TimeoutError() if isinstance(error, aiohttp.SocketTimeoutError):
            return TimedOut(f"{where}: silence for {limits.read.total_seconds():g} s (fetch.read_timeout).")
        case TimeoutError():
            return TimedOut(f"{where}: not finished within {limits.total.total_seconds():g} s ({limits.total_from}).")
        case aiohttp.ClientSSLError() | ssl.SSLError() | ssl.CertificateError() | aiohttp.ServerFingerprintMismatch():
            kind = CertificateOutdated if _is_outdated(error) else TlsFailed
            return kind(f"{where}: no secure connection ({_inner_words(error)}). Check the site's certificate.")
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return DnsFailed(f"{where}: the name does not resolve ({said}).")
        case aiohttp.ClientConnectorError():
            return no_connection(where, error.os_error)
        case aiohttp.ClientPayloadError():
            return _broken_payload(where, error, said)
        case aiohttp.ClientConnectionError():
            return ConnectionDropped(f"{where}: the server closed the connection ({said}).")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return FetchRefused(f"{where} cannot be requested ({said}).")
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return _bad_head(where, error, limits)
        case aiohttp.ClientError():
            return BadResponse(f"{where}: the request broke off ({said}).")
        case ConnectionError():
            return ConnectionDropped(f"{where}: the connection broke ({said}).")
        case OSError():
            return no_connection(where, error)
        case ValueError() | TypeError():
            # A header or an address that aiohttp refuses to write: nothing was sent.
            return FetchRefused(f"{where} cannot be requested ({said}).")
        case _:
            return ConnectionDropped(f"{where}: the request failed ({said}).")


def translated_on_proxy(error: Exception, href: str, limits: Limits, proxy: Proxy) -> FetchFailed | FetchRefused:
    """The same for requests through a proxy: a failure that may be the proxy's is ProxyFailed, in words without
    secrets."""
    if any(isinstance(one, OSError) and one.errno in USED_UP for one in _causes(error)):
        return no_file_left(masked_url(href))
    match error:
        case aiohttp.ClientHttpProxyError() if error.status == 407:
            return refused_credentials(proxy)
        case aiohttp.ClientHttpProxyError():
            return proxy_failed(proxy, f"it answered CONNECT with status {error.status}", status=error.status)
        case aiohttp.ClientResponseError() if error.request_info.method == hdrs.METH_CONNECT:
            return proxy_failed(proxy, "it does not answer CONNECT as an HTTP proxy does")
        case aiohttp.ConnectionTimeoutError():
            return proxy_failed(proxy, f"no connection through it within {limits.connect.total_seconds():g} s")
        case aiohttp.ClientConnectorSSLError() | aiohttp.ClientConnectorCertificateError():
            if (error.host, error.port) == (proxy.host, proxy.port):
                return proxy_failed(proxy, f"no secure connection to it ({_inner_words(error)})")
        case aiohttp.ClientConnectionError() if isinstance(error.__cause__, TypeError):
            # Some versions of asyncio fail on a bad certificate in TLS inside TLS; the certificate is the site's.
            for one in _causes(error):
                if isinstance(one, ssl.SSLCertVerificationError):
                    return translated(one, href, limits)
        case aiohttp.ClientConnectorError():
            return proxy_failed(proxy, f"no connection to it ({_os_words(error.os_error)})")
    ours = translated(error, href, limits)
    if isinstance(ours, BadResponse) and proxy.password:  # the proxy's words, and the proxy knows our password
        return BadResponse(f"{masked_url(href)}: what came back through the proxy {proxy.address} is not HTTP.")
    if isinstance(ours, ConnectFailed | ConnectionDropped | DnsFailed):
        # Nobody can tell whether the proxy or the site hung up.
        return proxy_failed(proxy, "the connection through it broke")
    return ours


def no_connection(where: str, error: OSError) -> FetchFailed:
    if error.errno in USED_UP:
        return no_file_left(where)
    kind = HostUnroutable if error.errno in UNROUTABLE else ConnectFailed
    return kind(f"{where}: no connection ({_os_words(error)}). Is the server running, and the port right?")


def _os_words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)  # asyncio's own text is about its calls


def _bad_head(where: str, error: aiohttp.ClientResponseError | HttpProcessingError, limits: Limits) -> BadResponse:
    if any(isinstance(one, LineTooLong) for one in _causes(error)):
        return BadResponse(f"{where}: a response header is longer than {limits.max_header} bytes (fetch.max_header).")
    if "too many headers" in str(error.message).lower():
        return BadResponse(f"{where}: the response has too many headers.")
    return BadResponse(f"{where}: what came back is not HTTP ({' '.join(str(error.message).split())[:200]}).")


def _broken_payload(where: str, error: Exception, said: str) -> FetchFailed | FetchRefused:
    for one in _causes(error):
        if isinstance(one, ContentLengthError | OSError):
            break
        if isinstance(one, HttpProcessingError) and "Not enough data" not in str(one):
            return BadResponse(f"{where}: the body is not valid HTTP ({said}).")
    return ConnectionDropped(f"{where}: the connection ended before the body did ({said}).")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_outdated(error: Exception) -> bool:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return getattr(inner, "verify_code", None) in OUTDATED


def _inner_words(error: Exception) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return " ".join(str(inner).split())[:200]
