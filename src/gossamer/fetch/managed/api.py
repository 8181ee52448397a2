"""One call of a vendor's API: builds the request (pure), adds the key, applies the address guard and the limits,
translates every error."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from aiohttp import hdrs
from yarl import URL

from ...clock import Clock
from ...errors import AddressRefused, ApiFailed, BadResponse, FetchFailed, FetchRefused, GossamerError
from ...model.page import Headers
from ...model.url import host_of
from ..addresses import AddressGuard, GuardedResolver
from ..body import BodyDecoder, layers_of
from ..contract import Limits, TransportRequest
from ..http import translated
from ..http_connector import SentOnce
from .answers import DOWN_WAIT, KEY_WAIT, ODD_WAIT, VendorAnswer, failure_of, garbage
from .vendor import BODY, Parameter, Vendor

_ENVELOPE = 64 * 1024  # what JSON adds to a page, apart from escapes
_GONE = frozenset({401, 402, 403, 404, 407, 410})  # asking for the job again is useless


def question(vendor: Vendor, request: TransportRequest, path: str) -> VendorCall:
    """The call for one page, at once or as a job."""
    limits = request.limits
    parameters = item_of(vendor, request)
    in_query = vendor.table.send == "query"
    return VendorCall(
        method=vendor.table.method,
        path=path,
        parameters=parameters if in_query else (),
        body=None if in_query else dict(parameters),
        limit=limits.max_body if vendor.body.kind == BODY else answer_limit(limits),
        timeout=min(vendor.table.timeout, limits.total),
        connect=limits.connect,
        on_sent=request.gate.left if request.gate is not None else None,
    )


def item_of(vendor: Vendor, request: TransportRequest) -> tuple[Parameter, ...]:
    """The parameters that describe one page to the vendor."""
    table = vendor.table
    found: list[Parameter] = [(table.url_param, request.url)]
    if vendor.render is not None and (table.render or request.render is not None):
        found.append(vendor.render)
        if table.wait_for_param and request.render is not None and request.render.wait_for:
            found.append((table.wait_for_param, request.render.wait_for))
    if vendor.residential is not None and table.residential:
        found.append(vendor.residential)
    country = request.country or table.country
    if country and table.country_param:
        found.append((table.country_param, country.lower()))
    return (*found, *vendor.extra)


def job_id_of(vendor: Vendor, told: str | None) -> str:
    """The id as part of a path. Raises ApiFailed if it is not usable."""
    if not told or len(told) > 256 or told in (".", ".."):
        raise garbage(vendor, "it contains no job id")
    return quote(told, safe="")


def look_at(vendor: Vendor, path: str, job: str, limits: Limits, *, limit: int, within: timedelta) -> VendorCall:
    """The call for the state of a job. Its timeout is at most the time left for the job."""
    return VendorCall(
        method="GET",
        path=path.replace("{id}", job),
        limit=limit,
        timeout=min(vendor.table.timeout, max(within, timedelta(seconds=1))),
        connect=limits.connect,
        asks=False,
    )


def patience(failure: ApiFailed, wait: timedelta) -> timedelta:
    """How long to wait after a failed look at a job. Raises the failure if another look is useless."""
    if failure.status in _GONE:
        raise failure
    return max(wait, failure.wait) if failure.status == 429 else wait


def never_finished(vendor: Vendor) -> ApiFailed:
    within = vendor.table.deadline.total_seconds()
    return ApiFailed(
        f"Managed API {vendor.name}: the job was not finished within {within:g} s ({vendor.setting('deadline')}), and "
        "was abandoned.",
        wait=ODD_WAIT,
    )


def answer_limit(limits: Limits) -> int:
    """The size of a page of the longest permitted size, written as JSON or in base64."""
    return 3 * limits.max_body + _ENVELOPE


_RESTING = frozenset({401, 402, 403, 407, 429})
_HEADER_LIMIT = 64 * 1024
_MAX_HEADERS = 128


class VendorCall(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask. `parameters` go into the query, `body` is sent as JSON."""

    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: object = None
    limit: int  # bytes of the response
    timeout: timedelta
    connect: timedelta
    on_sent: Callable[[], None] | None = None
    asks: bool = True  # it asks for a page: not sent while the vendor wants no requests


class Api:
    """The connections to one vendor; open while entered with `async with`."""

    def __init__(self, vendor: Vendor, clock: Clock, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._vendor = vendor
        self._clock = clock
        self._ssl = ssl_context
        self._host = host_of(vendor.base)
        # A separate guard: the crawl's permissions have nothing to do with where the key may go.
        allowed = frozenset({self._host}) if vendor.table.allow_private else frozenset[str]()
        self._guard = AddressGuard(allow_hosts=allowed)
        self._resolver: GuardedResolver | None = None
        self._session: aiohttp.ClientSession | None = None
        self._rest_until = 0.0
        self._rest_words = ""

    async def __aenter__(self) -> Self:
        self._resolver = GuardedResolver(self._guard, threads=4)
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_tell_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                socket_factory=self._checked_socket,
                limit=0,
                ssl=self._ssl or True,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            trace_configs=[trace],
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        session, resolver = self._session, self._resolver
        self._session = self._resolver = None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def ask(self, call: VendorCall) -> VendorAnswer:
        """Make the call. Raises ApiFailed, or FetchFailed if the vendor cannot get the page."""
        if call.asks:
            self._check_rest()
        answer = await self._request(call)
        failure = failure_of(self._vendor, answer, self._clock.now())
        if failure is None:
            return answer
        if isinstance(failure, ApiFailed) and failure.status in _RESTING:
            self._rest_until = self._clock.monotonic() + failure.wait.total_seconds()
            self._rest_words = str(failure)
        raise failure

    def _check_rest(self) -> None:
        left = self._rest_until - self._clock.monotonic()
        if left > 0:
            raise ApiFailed(self._rest_words, wait=timedelta(seconds=left))

    async def _request(self, call: VendorCall) -> VendorAnswer:
        """The raw response, of any status. Raises ApiFailed, without its cause, which would contain the URL."""
        try:
            return await self._raw(call)
        except Exception as error:  # everything that aiohttp, the socket, TLS and the guard can raise
            failure = self._in_our_words(error, call)
        raise failure

    async def _raw(self, call: VendorCall) -> VendorAnswer:
        session = self._session
        if session is None:
            raise RuntimeError("The transport is not open; use it inside `async with`.")
        vendor = self._vendor
        headers = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "User-Agent": "Gossamer"}
        query = [(name, _in_query(value)) for name, value in call.parameters]
        key = vendor.table.key_prefix + vendor.key.reveal()
        if vendor.key_in == "header":
            headers[vendor.key_name] = key
        else:
            query.insert(0, (vendor.key_name, key))
        data = None
        if call.body is not None:
            data = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        href = vendor.base + call.path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        async with session.request(
            call.method,
            URL(href, encoded=True),
            headers=headers,
            data=data,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=call.timeout.total_seconds(), connect=min(call.connect, call.timeout).total_seconds()
            ),
            max_line_size=_HEADER_LIMIT,
            max_field_size=_HEADER_LIMIT,
            max_headers=_MAX_HEADERS,
            trace_request_ctx=call.on_sent,
            middlewares=(SentOnce(),),  # the vendor may charge for a repeated request, too
        ) as answer:
            pairs = [(_clean(str(name)), _clean(value)) for name, value in answer.headers.items()]
            if sum(len(name) + len(value) for name, value in pairs) > _HEADER_LIMIT:
                answer.close()
                raise BadResponse(f"the response headers are longer than {_HEADER_LIMIT} bytes")
            body, cut, wire, note = await _read(answer, call.limit)
            return VendorAnswer(status=answer.status, headers=Headers(pairs), body=body, cut=cut, wire=wire, note=note)

    def _checked_socket(self, info: tuple[Any, ...]) -> socket.socket:  # aiohttp's AddrInfoType, not public
        """The last check before dialling. These connections go to one host only."""
        family, kind, protocol, _, address = info
        self._guard.check(self._host, str(address[0]))
        return socket.socket(family=family, type=kind, proto=protocol)

    def _in_our_words(self, error: Exception, call: VendorCall) -> GossamerError | RuntimeError:
        vendor = self._vendor
        if isinstance(error, RuntimeError) and self._session is None:
            return error
        who = f"Managed API {vendor.name}"
        if isinstance(error, AddressRefused):
            return ApiFailed(
                f"{who}: {vendor.setting('url')} leads to a private or reserved address. If it is intended, set "
                f"{vendor.setting('allow_private')} = true.",
                wait=KEY_WAIT,
            )
        if isinstance(error, FetchFailed | FetchRefused):
            found: Exception = error
        elif isinstance(error, TimeoutError):
            timeout = call.timeout.total_seconds()
            found = FetchFailed(f"no answer within {timeout:g} s ({vendor.setting('timeout')})")
        else:
            limits = Limits(connect=call.connect, read=call.timeout, total=call.timeout, max_header=_HEADER_LIMIT)
            found = translated(error, vendor.base + call.path, limits)
        wait = KEY_WAIT if isinstance(found, FetchRefused) and not isinstance(found, BadResponse) else DOWN_WAIT
        return ApiFailed(vendor.hide(f"{who}: {found}"), wait=wait)


async def _tell_sent(session: aiohttp.ClientSession, context: SimpleNamespace, _: object) -> None:
    told = context.trace_request_ctx
    if told is not None:
        told()


def _in_query(value: object) -> str:
    return "true" if value is True else str(value)


def _clean(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _read(answer: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool, int, str]:
    """Return the decoded body up to the limit, whether it was cut, the bytes on the wire, and a note on anything
    odd."""
    names, note = layers_of(answer.headers.getall(hdrs.CONTENT_ENCODING, []))
    decoder = BodyDecoder(names, limit, note) if names else None
    chunks: list[bytes] = []
    size = 0
    while chunk := await answer.content.readany():
        size += len(chunk)
        if decoder is not None:
            if not decoder.feed(chunk) or size > limit + _HEADER_LIMIT:
                answer.close()
                break
            continue
        chunks.append(chunk)
        if size > limit:
            answer.close()
            break
    if decoder is not None:
        found = decoder.finish()
        return found.data, found.cut or size > limit + _HEADER_LIMIT, size, found.note
    body = b"".join(chunks)
    return body[:limit], len(body) > limit, size, note
