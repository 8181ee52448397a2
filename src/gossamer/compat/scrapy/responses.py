"""Our pages as Scrapy's responses, and our failures in the form that an errback expects."""

from __future__ import annotations

from typing import Any

import scrapy
from scrapy import exceptions
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.http.headers import Headers as ScrapyHeaders
from scrapy.responsetypes import responsetypes
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.internet import error as network
from twisted.python.failure import Failure as TwistedFailure

from ...model.page import Headers
from ...parse.page import Page
from ...parse.page_context import Failure
from .requests import ANSWERED_AT, request_of, restored

_UNPACKED = frozenset({"content-encoding", "transfer-encoding"})  # they no longer hold for a decoded body


def _error(name: str, of_twisted: type[Exception]) -> type[Exception]:
    """Newer versions of Scrapy raise errors of their own. Errbacks check for these or, as before, for Twisted's."""
    own = getattr(exceptions, name, None)
    return of_twisted if own is None else type(name, (own, of_twisted), {})


_ERRORS: dict[str, type[Exception]] = {
    "timeout": _error("DownloadTimeoutError", network.TimeoutError),
    "dns": _error("CannotResolveHostError", network.DNSLookupError),
    "connect": _error("DownloadConnectionRefusedError", network.ConnectionRefusedError),
    "dropped-connection": _error("DownloadFailedError", network.ConnectionLost),
    "network": _error("DownloadFailedError", network.ConnectionLost),
}


def response_of(page: Page, spider: scrapy.Spider) -> Response:
    """The page as Scrapy's callbacks receive it. Raises ParseFailed."""
    url = page.data.get(ANSWERED_AT) or page.url
    return made_response(url, page.status, page.headers, page.body, restored(page, spider))


def made_response(url: str, status: int, headers: Headers, body: bytes, request: scrapy.Request) -> Response:
    lines = ScrapyHeaders()
    for name, value in headers:
        if name.lower() not in _UNPACKED:
            lines.appendlist(name, value)
    kind: Any = responsetypes.from_args(headers=lines, url=url, body=body)
    response: Response = kind(url=url, status=status, headers=lines, body=body, request=request)
    return response


def network_error(reason: str, message: str) -> Exception:
    return _ERRORS.get(reason, IgnoreRequest)(message)


def failure_of(failure: Failure, spider: scrapy.Spider) -> TwistedFailure:
    """What an errback receives: `failure.value` with Scrapy's and Twisted's classes, and `failure.request`."""
    if failure.page is not None and failure.status is not None and failure.status >= 300:
        response = response_of(failure.page, spider)
        error: Exception = HttpError(response, "Ignoring non-200 response")
    elif failure.reason == "robots":
        error = IgnoreRequest(failure.message)
    else:
        error = network_error(failure.reason, failure.message)
    told = TwistedFailure(error)  # type: ignore[no-untyped-call]
    told.request = request_of(failure.url, failure.data, spider, kind=failure.kind)  # type: ignore[attr-defined]
    return told
