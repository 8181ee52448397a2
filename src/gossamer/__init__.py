"""Gossamer: a complete web-scraping system. This module holds the public names only."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

    from .crawl.extension import Extension
    from .fetch.contract import Response, TransportRequest
    from .fetch.fetcher import FetchRequest
    from .model.events import Event
    from .model.file import File
    from .model.item import Item
    from .model.money import Money
    from .model.route import Action, Render
    from .model.task import Request
    from .parse.links import Rule
    from .parse.page import Page
    from .parse.page_context import Failure, Session
    from .parse.spider import Results, Spider
    from .pipeline.near_duplicates import NearDuplicates
    from .pipeline.quality_rules import Fault
    from .pipeline.steps import Drop
    from .project.jobs.crawl import CrawlReport
    from .store.outputs.contract import Batch, Change, Output, Refused

# Import the package `crawl` before the function `crawl` below is defined: a later import would rebind the name.
from . import crawl as _room  # noqa: F401

__all__ = [
    "Action",
    "Batch",
    "Change",
    "Drop",
    "Extension",
    "Failure",
    "Fault",
    "FetchRequest",
    "File",
    "Item",
    "Money",
    "NearDuplicates",
    "Output",
    "Page",
    "Refused",
    "Render",
    "Request",
    "Response",
    "Results",
    "Rule",
    "Session",
    "Spider",
    "TransportRequest",
    "__version__",
    "crawl",
    "run",
    "stream",
]

__version__ = "0.1.0"

_ROOMS = {
    "Action": ".model.route",
    "Batch": ".store.outputs.contract",
    "Change": ".store.outputs.contract",
    "Drop": ".pipeline.steps",
    "Extension": ".crawl.extension",
    "Failure": ".parse.page_context",
    "Fault": ".pipeline.quality_rules",
    "FetchRequest": ".fetch.fetcher",
    "File": ".model.file",
    "Item": ".model.item",
    "Money": ".model.money",
    "NearDuplicates": ".pipeline.near_duplicates",
    "Output": ".store.outputs.contract",
    "Page": ".parse.page",
    "Refused": ".store.outputs.contract",
    "Render": ".model.route",
    "Request": ".model.task",
    "Response": ".fetch.contract",
    "Results": ".parse.spider",
    "Rule": ".parse.links",
    "Session": ".parse.page_context",
    "Spider": ".parse.spider",
    "TransportRequest": ".fetch.contract",
}


def __getattr__(name: str) -> object:
    """Import a public name from its package on first use, so that programs start quickly."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})


def run(
    spider: type[Spider] | Spider | str, *, fresh: bool = False, quiet: bool = False, **settings: Any
) -> CrawlReport:
    """Crawl from a plain script, with the progress line of `gossamer crawl`; return the report. `spider` is a spider,
    its class, its name or file, or the URL of a site.

    Settings by name override gossamer.toml: `run(Books, rate="5/s", depth=2, output="books.jsonl")` takes the flags of
    the command line, and dotted settings as a dict: `settings={"fetch.max_body": "1MB"}`.
    """
    from .project.jobs.embedded import refuse_running_loop

    refuse_running_loop()
    from .cli.crawl import run_from_script

    return run_from_script(spider, fresh=fresh, quiet=quiet, **settings)


async def crawl(
    spider: type[Spider] | Spider | str,
    *,
    fresh: bool = False,
    output: str | Path | Sequence[str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    **settings: Any,
) -> CrawlReport:
    """Crawl inside a running event loop: in a notebook, a web server, a scheduler's task. Prints nothing.

    Takes what `run` takes. `on_event` is called with every event (gossamer.model.events); it must be quick and must not
    raise. Signals are left to the program; cancelling the task stops the crawl, and the same call resumes it later.
    """
    from .project.jobs.embedded import crawl_inside

    return await crawl_inside(spider, fresh=fresh, output=output, arguments=arguments, on_event=on_event, **settings)


async def stream(
    spider: type[Spider] | Spider | str,
    *,
    fresh: bool = False,
    arguments: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
    **settings: Any,
) -> AsyncGenerator[dict[str, Any], None]:
    """Crawl inside a running event loop, and yield each item as it is stored:

        async for item in gossamer.stream(Books, limit=100):
            print(item["title"])

    An item is a dict of its fields, as in exports. Takes what `crawl` takes. A program that takes its time delays no
    crawl. Leaving the loop stops the crawl, and the same call resumes it.
    """
    from contextlib import aclosing

    from .project.jobs.embedded import stream_inside

    options = {"fresh": fresh, "arguments": arguments, "on_event": on_event, **settings}
    async with aclosing(stream_inside(spider, **options)) as items:
        async for item in items:
            yield item
