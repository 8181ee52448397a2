"""A crawl inside your own program: the arguments of `gossamer.run` and `await gossamer.crawl`, and the latter itself.

The event loop and its signals belong to the program. Cancelling the task stops the crawl; nothing is lost, and the same
call continues it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from ...errors import Misconfigured
from ...model.events import Event, NullSink
from ...parse.seeds import named_addresses
from ...parse.spider import Spider
from ...settings import Settings, load
from ...terms import local_hosts
from ..records.export import outputs_of, try_outputs
from ..spiders.spiders import CrawlTarget, crawl_target
from ..workers.service import run_crawl
from .crawl import Attend, CrawlReport
from .item_stream import ItemStream, streamed

log = logging.getLogger("gossamer.project")
# The terms of the job, and the pages in flight of this process.
FLAGS = {name: f"crawl.{name}" for name in ("depth", "limit", "rate", "site_concurrency", "priority", "concurrency")}


def dotted_settings(function: str, settings: dict[str, Any] | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The settings that the caller passes, by their dotted names. Raises Misconfigured for an unknown option."""
    unknown = [name for name in flags if name not in FLAGS]
    if unknown:
        raise Misconfigured(
            f"{function}() has no option {unknown[0]!r}; there are {', '.join(FLAGS)}, output, arguments, fresh,"
            f" settings{' and quiet' if function == 'run' else ''}."
        )
    return {**(settings or {}), **{FLAGS[name]: value for name, value in flags.items()}}


def refuse_running_loop() -> None:
    """Raises Misconfigured if an event loop is running, as in notebooks and web servers: it could not block on a
    crawl."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Misconfigured(
        "An event loop is running here, as in a notebook or a web server: write `await gossamer.crawl(...)` instead of"
        " `gossamer.run(...)`."
    )


def target_of(settings: Settings, spider: type[Spider] | Spider | str) -> CrawlTarget:
    """What a program wants to crawl: a spider, its class, name or file, or the URL of a site. Raises Misconfigured."""
    if isinstance(spider, str):
        return crawl_target(settings, spider, Path.cwd())
    instance = spider() if isinstance(spider, type) else spider
    if not isinstance(instance, Spider):
        raise Misconfigured(f"{spider!r:.100} is not a spider. Give its class, name or file, or the URL of a site.")
    return CrawlTarget(instance, None, named_addresses(instance))


async def crawl_inside(
    spider: type[Spider] | Spider | str,
    *,
    fresh: bool = False,
    output: str | Path | Sequence[str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    attend: Attend | None = None,
    **flags: Any,
) -> CrawlReport:
    """Crawl in the caller's loop, which keeps its signals. Raises Misconfigured and Transient."""
    read = load(start=Path.cwd(), flags=dotted_settings("crawl", settings, flags))
    target = target_of(read, spider)
    await asyncio.to_thread(try_outputs, outputs_of(output, target.spider), target.spider, read)
    return await run_crawl(
        target.spider,
        _allowing(read, target.urls),
        events=_EventListener(on_event) if on_event is not None else NullSink(),
        name=target.name,
        arguments=arguments,
        fresh=fresh,
        output=output,
        attend=attend,
        heeds_signals=False,
    )


async def stream_inside(spider: type[Spider] | Spider | str, **options: Any) -> AsyncGenerator[dict[str, Any], None]:
    """As `crawl_inside`; yields the items while they are stored."""
    stream = ItemStream()
    crawling = asyncio.create_task(crawl_inside(spider, attend=stream.follow, **options), name="crawl")
    async with aclosing(streamed(crawling, stream)) as items:
        async for item in items:
            yield item


class _EventListener:
    """A function of the program as an event sink. Its first exception is logged, and none stops the crawl."""

    def __init__(self, listen: Callable[[Event], None]) -> None:
        self._listen = listen
        self._told = False

    def emit(self, event: Event) -> None:
        try:
            self._listen(event)
        except Exception:
            if not self._told:
                log.exception("on_event failed for %s; the crawl goes on.", type(event).__name__)
            self._told = True


def _allowing(settings: Settings, urls: list[str]) -> Settings:
    """Allow a local host among the start URLs, because the program names it."""
    hosts = [host for host in local_hosts(urls) if host not in settings.fetch.allow_hosts]
    if settings.fetch.allow_private or not hosts:
        return settings
    fetch = msgspec.structs.replace(settings.fetch, allow_hosts=(*settings.fetch.allow_hosts, *hosts))
    return msgspec.structs.replace(settings, fetch=fetch)
