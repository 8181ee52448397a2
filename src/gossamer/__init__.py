"""Gossamer: a complete web-scraping system. The public names, nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .crawl.extension import Extension
    from .fetch.contract import Response, TransportRequest
    from .fetch.fetcher import FetchRequest
    from .model.file import File
    from .model.item import Item
    from .model.money import Money
    from .model.route import Action, Render
    from .model.task import Request
    from .parse.page import Page
    from .parse.spider import Results, Spider
    from .pipeline.near_duplicates import NearDuplicates
    from .pipeline.quality_rules import Fault
    from .pipeline.steps import Drop
    from .project.crawl import CrawlReport

__all__ = [
    "Action",
    "Drop",
    "Extension",
    "Fault",
    "FetchRequest",
    "File",
    "Item",
    "Money",
    "NearDuplicates",
    "Page",
    "Render",
    "Request",
    "Response",
    "Results",
    "Spider",
    "TransportRequest",
    "__version__",
    "run",
]

__version__ = "0.1.0"

_ROOMS = {
    "Action": ".model.route",
    "Drop": ".pipeline.steps",
    "Extension": ".crawl.extension",
    "Fault": ".pipeline.quality_rules",
    "FetchRequest": ".fetch.fetcher",
    "File": ".model.file",
    "Item": ".model.item",
    "Money": ".model.money",
    "NearDuplicates": ".pipeline.near_duplicates",
    "Page": ".parse.page",
    "Render": ".model.route",
    "Request": ".model.task",
    "Response": ".fetch.contract",
    "Results": ".parse.spider",
    "Spider": ".parse.spider",
    "TransportRequest": ".fetch.contract",
}


def __getattr__(name: str) -> object:
    """A public name is fetched from its room when it is asked for: starting quickly is a feature."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})


def run(spider: type[Spider] | Spider, *, fresh: bool = False, quiet: bool = False, **settings: Any) -> CrawlReport:
    """Crawl with a spider from a plain script, with the progress line of `gossamer crawl`; return what became of it.

    Settings by name override gossamer.toml: `run(Books, rate="5/s", depth=2, output="books.jsonl")` takes the
    flags of the command line, and dotted settings as a dict: `settings={"fetch.max_body": "1MB"}`.
    """
    from .cli.crawl import run_from_script

    return run_from_script(spider, fresh=fresh, quiet=quiet, **settings)
