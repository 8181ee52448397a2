"""A site that wants more than GET: JSON and GraphQL lists paged by POST, logins by HTTP itself, redirects of every
kind. Its log, in the order of arrival, is the witness of what was sent."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from urllib.parse import parse_qs, urlsplit

import msgspec

USER, PASSWORD = "reader", "se:cret"
PER_PAGE, PAGES = 3, 4
_NONCE = "nonce-of-the-day"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


class ApiSite:
    """`hang`: paths whose requests are read and then dropped with the connection, without an answer. `fail`: statuses
    that a path answers with, one after the other, before it works."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.log: list[Asked] = []
        self.hang: set[str] = set()
        self.fail: dict[str, list[int]] = {}
        self.pause = 0.0  # seconds before an answer
        self.close_idle = False  # close each connection after its answer, without saying so

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def lines(self) -> list[str]:
        return [asked.line for asked in self.log if asked.path != "/robots.txt"]

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        parts = urlsplit(asked.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if self.fail.get(parts.path):
            return self.fail[parts.path].pop(0), {}, b"not now"
        match parts.path:
            case "/offers":
                page = json.loads(asked.body)["page"]
                return _json(
                    {"items": [page * PER_PAGE + n for n in range(PER_PAGE)], "more": page + 1 < PAGES, "pages": PAGES}
                )
            case "/graphql":
                page = json.loads(asked.body)["variables"]["after"]
                return _json({"data": {"list": {"nodes": [page], "next": page + 1 if page + 1 < PAGES else None}}})
            case "/basic":
                right = "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode()
                if asked.headers.get("authorization") == right:
                    return _page("in")
                return 401, {"WWW-Authenticate": 'Basic realm="club"'}, b"who?"
            case "/digest":
                return self._digest(asked)
            case "/move":
                return int(query["status"]), {"Location": query["to"]}, b""
            case "/echo":
                return _json({"method": asked.method, "headers": asked.headers, "body": asked.body.decode("latin-1")})
            case "/robots.txt":
                return 404, {}, b""
            case "/nothing":
                return 404, {}, b"no"
            case _:
                return _page(asked.line)

    def _digest(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        given = asked.headers.get("authorization", "")
        if given.startswith("Digest "):
            words = dict(part.strip().split("=", 1) for part in given.removeprefix("Digest ").split(","))
            fields = {name: value.strip('"') for name, value in words.items()}
            secret = _hash(f"{USER}:club:{PASSWORD}")
            asked_for = _hash(f"{asked.method}:{asked.path}")
            right = _hash(f"{secret}:{_NONCE}:{fields['nc']}:{fields['cnonce']}:auth:{asked_for}")
            if fields["response"] == right and fields["uri"] == asked.path:
                return _page("in")
        challenge = f'Digest realm="club", qop="auth", algorithm=SHA-256, nonce="{_NONCE}"'
        return 401, {"WWW-Authenticate": challenge}, b"who?"


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _page(title: str) -> tuple[int, dict[str, str], bytes]:
    text = f"<html><head><title>{title}</title></head><body><p>{'A calm page. ' * 20}</p></body></html>"
    return 200, {"Content-Type": "text/html"}, text.encode()


@asynccontextmanager
async def api_site() -> AsyncIterator[ApiSite]:
    connections = 0
    site = ApiSite(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        try:
            while await _one(site, reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


async def _one(site: ApiSite, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    path = target if target.startswith("/") else f"/{target.split('/', 3)[3]}"  # a proxy is told the whole address
    asked = Asked(method=method, path=path, headers=headers, body=body, connection=number)
    site.log.append(asked)
    if urlsplit(path).path in site.hang:
        return False
    if site.pause:
        await asyncio.sleep(site.pause)
    status, own, content = site.answer(asked)
    told = {"Content-Length": str(len(content)), **own}
    text = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode() + (b"" if method == "HEAD" else content))
    await writer.drain()
    return not site.close_idle
