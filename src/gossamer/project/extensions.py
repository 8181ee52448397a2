"""User code that the settings name: extensions, transports, outputs. Nothing is loaded just because it is installed.

A name is `module:Class`, found in the project's folder or among the installed packages, or, for an extension, the name
of an entry point in the group `gossamer.extensions`.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from ..crawl.extension import Extension, Extensions
from ..crawl.parse_page import AroundParse
from ..errors import ExtensionFailed, GossamerError, Misconfigured, TimedOut
from ..fetch.contract import Response, Transport, TransportRequest
from ..fetch.open_route import Opening
from ..model.route import TRANSPORTS
from ..parse.discovery import make_importable
from ..parse.spider import Spider
from ..parse.timelimit import TimeLimit
from ..settings import Settings

GROUP = "gossamer.extensions"


def extensions_of(settings: Settings, spider: Spider | None) -> list[Extension]:
    """New extensions for a job: those of the settings, then the spider's own. Raises Misconfigured."""
    named = [(f"Setting extensions: {name}", _extension_named(settings, name)) for name in settings.extensions]
    own = [(f"Spider {spider.name}: extensions", one) for one in _extensions_of(spider)] if spider is not None else []
    return [_made(where, one) for where, one in (*named, *own)]


def around_parse_of(settings: Settings, spider: Spider) -> AroundParse | None:
    """The extensions that wrap a spider's callbacks outside of a crawl. Raises Misconfigured."""
    return Extensions(extensions_of(settings, spider), TimeLimit(settings.crawl.parse_timeout)).around_parse


def _extensions_of(spider: Spider) -> Sequence[object]:
    if isinstance(spider.extensions, str) or not isinstance(spider.extensions, Sequence):
        raise Misconfigured(f"Spider {spider.name}: extensions must be a list of classes.")
    return spider.extensions


def _made(where: str, one: object) -> Extension:
    if isinstance(one, type):
        try:
            one = one()
        except Exception as error:
            raise Misconfigured(f"{where} cannot be created ({type(error).__name__}: {error}).") from error
    if not isinstance(one, Extension):
        raise Misconfigured(f"{where} is not an extension. Derive its class from gossamer.Extension.")
    return one


def _extension_named(settings: Settings, name: str) -> object:
    if ":" in name:
        return _loaded(settings, name, "Setting extensions")
    found = [one for one in importlib.metadata.entry_points(group=GROUP) if one.name == name]
    if not found:
        known = sorted({one.name for one in importlib.metadata.entry_points(group=GROUP)})
        there = f"There is {', '.join(known)}." if known else "No installed package brings one."
        raise Misconfigured(
            f"Setting extensions: there is no entry point {name!r} in the group {GROUP}. {there} A class of your own "
            f"is written module:Class."
        )
    return _loaded(settings, found[0].value, f"The entry point {name}")


def _loaded(settings: Settings, name: str, where: str) -> object:
    module, _, attribute = name.partition(":")
    make_importable(settings.root)
    try:
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise Misconfigured(
            f"{where}: {name!r} cannot be loaded ({type(error).__name__}: {error}). It is looked for in "
            f"{settings.root} and among the installed packages."
        ) from error
    return found


def openings_of(settings: Settings) -> dict[str, Opening]:
    """The factories of the transports that the settings name, by name. Raises Misconfigured."""
    openings: dict[str, Opening] = {}
    for name, table in settings.transports.items():
        where = f"Transport {name!r} ([transports.{name}])"
        if name in TRANSPORTS:
            raise Misconfigured(f"{where}: that name is reserved; choose another.")
        if not table.use:
            raise Misconfigured(f'{where}: say which class: use = "module:Class".')
        openings[name] = partial(_open_own, settings, where, table.use, options_of(table.options))
    return openings


def options_of(texts: Sequence[str]) -> dict[str, str]:
    """What `name=value` in the settings gives to a class."""
    return dict(text.partition("=")[::2] for text in texts)


def created(settings: Settings, where: str, use: str, options: Mapping[str, str]) -> object:
    """An object of the class that the settings name as module:Class. Raises Misconfigured."""
    made = _loaded(settings, use, where)
    try:
        return made(**options)  # type: ignore[operator]
    except Exception as error:
        raise Misconfigured(f"{where}: {use} cannot be created ({type(error).__name__}: {error}).") from error


@asynccontextmanager
async def _open_own(settings: Settings, where: str, use: str, options: dict[str, str]) -> AsyncIterator[Transport]:
    transport: Any = created(settings, where, use, options)
    if not callable(getattr(transport, "fetch", None)):
        raise Misconfigured(f"{where}: {use} has no method fetch(request); see docs/extensions.md.")
    if isinstance(transport, AbstractAsyncContextManager):
        async with transport as opened:
            yield _Gated(opened, where)
    else:
        yield _Gated(transport, where)


class _Gated:
    """A user's transport, which does not need to know about gates: it is called when the request may leave."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name

    async def fetch(self, request: TransportRequest) -> Response:
        if request.gate is not None:
            await request.gate.enter()
            request.gate.left()
        try:
            async with asyncio.timeout(request.limits.total.total_seconds()):
                response = await self._transport.fetch(request)
        except GossamerError:
            raise
        except TimeoutError as error:
            raise TimedOut(f"{request.url}: {self._name} took longer than fetch.total_timeout.") from error
        except Exception as error:
            words = f"{type(error).__name__}: {error}"[:500]
            raise ExtensionFailed(f"{self._name} failed on {request.url}: {words}") from error
        if not isinstance(response, Response):
            raise ExtensionFailed(f"{self._name} gave a {type(response).__name__}, not a response.")
        return response
