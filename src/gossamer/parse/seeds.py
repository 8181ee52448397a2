"""The first requests of a spider: `start_urls`, or what `start` gives.

How it fails: an entry that is no usable request raises Misconfigured with the entry.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Iterator
from hashlib import blake2b
from types import CodeType

import msgspec

from ..errors import InvalidUrl, Misconfigured, SourceFailed
from ..model.task import Request, fault_of
from ..model.url import parse_url, without_user
from .spider import Spider, errback_fault

PORTS = {"http": "80", "https": "443"}
_AUTHORITY = re.compile(r"(?:[^/?#]*@)?(?P<host>\[[^\]/?#]*\]|[^:/?#]*)(?::(?P<port>[^/?#]*))?")


def start_addresses(spider: Spider) -> list[str]:
    """The valid addresses of `start_urls`; empty if the spider overrides `start`."""
    if type(spider).start is not Spider.start:
        return []
    addresses = []
    for url in spider.start_urls:
        try:
            addresses.append(parse_url(str(url)))
        except InvalidUrl:  # reported when it is seeded
            continue
    return addresses


def named_addresses(spider: Spider) -> list[str]:
    """The addresses that a person wrote for the spider: `start_urls`, and those that stand in the code of `start`. What
    `start` reads or computes is data, and named by nobody: a text that may be only the beginning of an address, or has
    a gap where the port is, is `host:port` instead, with the port that is written, or that of the scheme."""
    written = [
        text
        for function in spider._start_functions()
        if (code := getattr(inspect.unwrap(function), "__code__", None)) is not None
        for text in _texts(code.co_consts)
        if text.startswith(("http://", "https://"))
    ]
    return [*map(str, spider.start_urls), *map(_named_part, written)]


def _named_part(text: str) -> str:
    scheme, _, rest = text.partition("://")
    found = _AUTHORITY.match(rest)
    if found is None:
        return text
    host, port, end = found["host"], found["port"] or "", rest[found.end() :]
    if end and (port.isdecimal() or found["port"] is None):
        return text
    return f"{host}:{port if port.isdecimal() else PORTS[scheme]}"


def _texts(constants: tuple[object, ...]) -> Iterator[str]:
    for one in constants:
        if isinstance(one, str):
            yield one
        elif isinstance(one, tuple):
            yield from _texts(one)
        elif isinstance(one, CodeType):  # a function within the function
            yield from _texts(one.co_consts)


def names_its_seeds(spider: Spider) -> bool:
    """Are its seeds a list that a person wrote? What `start` computes may differ each time that it is called."""
    return spider._has_list or bool(start_addresses(spider))


class SeedDigest:
    """A digest of a set of seeds, independent of their order."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, seed: Request) -> None:
        parts = [
            without_user(seed.url),
            *(getattr(seed, name) for name in ("kind", "data", "method", "params", "form", "json", "body")),
        ]
        packed = msgspec.json.encode(parts, order="deterministic", enc_hook=repr)
        self._sum += int.from_bytes(blake2b(packed, digest_size=12).digest())

    @property
    def text(self) -> str:
        return f"{self._sum % 2**96:024x}"


async def seeds(spider: Spider, digest: SeedDigest | None = None) -> AsyncIterator[Request]:
    """The spider's first requests, one at a time, with absolute addresses; each is added to the digest. Raises
    Misconfigured."""
    async for request in _seeds(spider):
        if digest is not None:
            digest.add(request)
        yield request


async def own_seeds(
    spider: Spider, digest: SeedDigest, failure: type[SourceFailed | Misconfigured]
) -> AsyncIterator[Request]:
    """As `seeds`, for a crawl. Any exception in the spider's code is raised as `failure`."""
    try:
        async for request in seeds(spider, digest):
            yield request
    except (SourceFailed, Misconfigured):
        raise
    except Exception as error:
        raise failure(f"start() of {spider.name} failed: {type(error).__name__}: {error}") from error


async def _seeds(spider: Spider) -> AsyncIterator[Request]:
    start = spider.start()
    if isinstance(start, Awaitable):
        start = await start
    if isinstance(start, AsyncIterable):
        async for entry in start:
            yield _seed(spider, entry)
    elif isinstance(start, Iterable) and not isinstance(start, str):
        for entry in start:
            yield _seed(spider, entry)
    else:
        raise Misconfigured(f"{spider.name}: start() gave {start!r:.100}; it must give requests or addresses.")


def _seed(spider: Spider, entry: object) -> Request:
    request = Request(url=entry) if isinstance(entry, str) else entry
    if not isinstance(request, Request):
        raise Misconfigured(f"{spider.name}: start() gave {entry!r:.100}; it must give requests or addresses.")
    fault = fault_of(request) or errback_fault(spider, request)
    if fault:
        raise Misconfigured(f"{spider.name}: a start request cannot be used: {request.url!a:.200} {fault}.")
    try:
        parse_url(request.url)
    except InvalidUrl as error:
        raise Misconfigured(f"{spider.name}: a start URL cannot be used. {error}") from error
    return request
