"""The page that a spider's code is currently working on; its stats (`self.stats`) and log lines (`self.log`) belong to
it.

One spider serves many pages concurrently, so this is stored per task, not on the spider.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..errors import ParseFailed
from ..model.item import safe_text
from ..model.job import MOST_STATS
from ..model.task import Request

if TYPE_CHECKING:
    from .page import Page

LOGGER = "gossamer.spider"
LONGEST_NAME = 100  # characters of a counter's name
LARGEST = 10**12  # amount added in one call


class PageContext:
    """The current page. `stats` is None outside of callbacks, where nothing can be counted."""

    __slots__ = ("job", "stats", "url")

    def __init__(self, job: str, url: str = "", stats: dict[str, int] | None = None) -> None:
        self.job = job
        self.url = url
        self.stats = stats


_NOWHERE = PageContext("")
_current: ContextVar[PageContext] = ContextVar("gossamer_page", default=_NOWHERE)


class working_on:
    """Makes a page the current one inside the block."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: PageContext) -> None:
        self._context = context

    def __enter__(self) -> PageContext:
        self._token = _current.set(self._context)
        return self._context

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


def counted_here() -> bool:
    """Can the running code add a new counter?"""
    counted = _current.get().stats
    return counted is not None and len(counted) < MOST_STATS


Ask = Callable[[Request], Awaitable["Page"]]
_ask: ContextVar[Ask | None] = ContextVar("gossamer_ask", default=None)


@contextmanager
def asking_by(ask: Ask) -> Iterator[None]:
    """Let code inside the block make side requests."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def ask_here() -> Ask | None:
    """The function that makes side requests for the current page; None outside of callbacks."""
    return _ask.get()


class Stats:
    """A spider's own counters. The counts of a page are added to its job when the page is settled, so that each page
    counts once despite crashes; counts of a callback that raised are discarded."""

    def add(self, name: str, n: int = 1) -> None:
        """Add `n` to the counter with that name. Raises ParseFailed."""
        counted = _current.get().stats
        if counted is None:
            raise ParseFailed("self.stats counts what happens on a page: use it only in callbacks.")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or safe_text(name) != name:
            raise ParseFailed(f"self.stats: {name!r:.120} is not a name of 1 to {LONGEST_NAME} characters.")
        if isinstance(n, bool) or not isinstance(n, int) or abs(n) > LARGEST:
            raise ParseFailed(f"self.stats: {n!r:.80} is not an integer up to {LARGEST:,} to add to {name!r}.")
        if name not in counted and len(counted) >= MOST_STATS:
            raise ParseFailed(f"self.stats can have {MOST_STATS} names, and {name!r} would be one more.")
        counted[name] = counted.get(name, 0) + n


class SpiderLog(logging.LoggerAdapter[logging.Logger]):
    """The log of a spider: its lines name the spider, the job and the page."""

    def __init__(self, spider: str) -> None:
        super().__init__(logging.getLogger(f"{LOGGER}.{spider}"), {})
        self._spider = spider

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        page = _current.get()
        extra = {"spider": self._spider, "job": page.job, "page": page.url, **(kwargs.get("extra") or {})}
        return msg, {**kwargs, "extra": extra}
