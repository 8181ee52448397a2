"""GET and HEAD on aiohttp's connections and with its parser, but without its client.

The client builds a request, a response and a chain of calls for every page, which cost more than the page's own bytes;
a page only needs a head to write and a response to read. A request with a body, with a login in its URL, or through an
proxy uses the client.
How it fails: as the client does, so that http_errors.py translates both. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_writer import _serialize_headers
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from .http_connector import Connector, GatedRequest, Leaving
from .open_route import Pairs

METHODS = frozenset({"GET", "HEAD"})
MAX_HEADERS = 128
_ADDRESS = re.compile(r"(https?://[^/?#@\\\s]+)(/[!-\"$-~]*)(?:#.*)?")  # other URLs use the client
_MOST_ORIGINS = 1024  # origins kept; beyond that the cache is cleared
_BUFFER = 64 * 1024


class Answer:
    """The head of a response, and its body as it arrives. The connection returns to the pool at the end of the body."""

    __slots__ = ("_connection", "content", "headers", "status", "wire")

    def __init__(
        self, status: int, headers: CIMultiDictProxy[str], content: StreamReader, wire: Any, connection: Connection
    ) -> None:
        self.status = status
        self.headers = headers
        self.content = content
        self.wire = wire  # AnswerReader; aiohttp has no public class for it
        self._connection: Connection | None = connection
        content.on_eof(self._ended)

    @property
    def peer(self) -> str:
        return str(self.wire.peer)

    def close(self) -> None:
        """Discard the rest of the body; if there is any, the connection cannot be reused."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ended(self) -> None:
        if self._connection is not None and not self.wire.upgraded:
            self._connection.release()
            self._connection = None


class Getter:
    """Makes requests on the connections of one connector."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._origins: dict[str, GatedRequest] = {}
        # Per origin, the headers of the last request and their encoded form: most requests have the same headers.
        self._heads: dict[str, tuple[Pairs, bytes]] = {}

    def split(self, href: str) -> tuple[GatedRequest, str] | None:
        """The origin of a URL, as the connector expects it, and the rest; None for a URL that only the client can
        handle."""
        match = _ADDRESS.fullmatch(href)
        if match is None:
            return None
        origin = self._origins.get(match[1])
        if origin is None:
            url = URL(match[1], encoded=True)
            if not url.raw_host:
                return None
            if len(self._origins) >= _MOST_ORIGINS:
                self._origins.clear()
                self._heads.clear()
            origin = self._origins[match[1]] = GatedRequest("GET", url, loop=self._loop)
        return origin, match[2]

    async def ask(
        self,
        method: str,
        origin: GatedRequest,
        path: str,
        headers: Pairs,
        way: Leaving,
        timeout: aiohttp.ClientTimeout,
        max_header: int,
    ) -> Answer:
        """Send the request and read the head of the response. Raises what aiohttp and the gate raise."""
        head = b"%s %s HTTP/1.1\r\n%s" % (method.encode(), path.encode(), self._fields(origin, headers))
        try:
            connection = await self._connector.connect(origin, [], timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {origin.url}") from error
        protocol = connection.protocol
        assert protocol is not None
        try:
            protocol.set_response_params(
                skip_payload=method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                read_timeout=timeout.sock_read,
                read_bufsize=_BUFFER,
                max_line_size=max_header,
                max_field_size=max_header,
                max_headers=MAX_HEADERS,
            )
            transport = protocol.transport
            if transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            protocol.start_timeout()
            transport.write(head)
            if way.gate is not None:
                # uvloop passes written data to the kernel at the end of the current loop iteration.
                self._loop.call_soon(way.gate.left)
            message, content = await _final(protocol, origin)
        except BaseException:
            connection.close()
            raise
        return Answer(message.code, message.headers, content, protocol, connection)

    def _fields(self, origin: GatedRequest, headers: Pairs) -> bytes:
        """The header lines of a request, with the empty line at the end. Raises ValueError for a header that would
        break into several lines."""
        host = origin.headers[hdrs.HOST]
        known = self._heads.get(host)
        if known is not None and known[0] is headers:
            return known[1]
        text = _serialize_headers("", _fields(origin, headers)).removeprefix(b"\r\n")
        self._heads[host] = (headers, text)
        return text


async def _final(protocol: ResponseHandler, origin: GatedRequest) -> tuple[Any, StreamReader]:
    """The final response, after any interim ones; AnswerReader limits their number."""
    try:
        while True:
            message, content = await protocol.read()
            if not 100 <= message.code <= 199 or message.code == 101:
                return message, content
    except HttpProcessingError as error:
        raise aiohttp.ClientResponseError(
            origin.request_info, (), status=error.code, message=error.message, headers=error.headers
        ) from error


def _fields(origin: GatedRequest, headers: Pairs) -> CIMultiDict[str]:
    """The headers as the client would send them: Host first, then ours, then the mandatory ones."""
    fields = CIMultiDict({hdrs.HOST: origin.headers[hdrs.HOST]})
    for name, value in headers:
        if name in hdrs.HOST_ALL:
            fields[name] = value
        else:
            fields.add(name, value)
    for name, value in origin.headers.items():
        if name not in fields:
            fields[name] = value
    return fields
