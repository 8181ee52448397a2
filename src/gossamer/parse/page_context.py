"""Which page the code of a spider works on just now: what it counts (`self.stats`) and logs (`self.log`) belongs there.

One spider serves many pages at once, so this is kept by task and not on the spider.
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
LONGEST_NAME = 100  # characters of a name to count under
LARGEST = 10**12  # that is added at once


class PageContext:
    """The page that is worked on. `stats` is None where nothing can be counted: outside of callbacks."""

    __slots__ = ("job", "stats", "url")

    def __init__(self, job: str, url: str = "", stats: dict[str, int] | None = None) -> None:
        self.job = job
        self.url = url
        self.stats = stats


_NOWHERE = PageContext("")
_current: ContextVar[PageContext] = ContextVar("gossamer_page", default=_NOWHERE)


class working_on:
    """The block works on that page."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: PageContext) -> None:
        self._context = context

    def __enter__(self) -> PageContext:
        self._token = _current.set(self._context)
        return self._context

    def __exit__(self, *exc: object) -> None:
        _current.reset(self._token)


def counted_here() -> bool:
    """Can the code that runs just now count something?"""
    counted = _current.get().stats
    return counted is not None and len(counted) < MOST_STATS


Ask = Callable[[Request], Awaitable["Page"]]
_ask: ContextVar[Ask | None] = ContextVar("gossamer_ask", default=None)


@contextmanager
def asking_by(ask: Ask) -> Iterator[None]:
    """Let the code that runs inside make requests by the way."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)


def ask_here() -> Ask | None:
    """What makes a request by the way for the code that runs just now; None where there is no page in hand."""
    return _ask.get()


class Stats:
    """What a spider counts itself. The counts of a page are added to those of its job when the page is settled, so that
    each page counts once, whatever crashes in between; those of a callback that raised are not."""

    def add(self, name: str, n: int = 1) -> None:
        """Add `n` to what is counted under that name. Raises ParseFailed."""
        counted = _current.get().stats
        if counted is None:
            raise ParseFailed("self.stats counts what happens on a page: it can be used in callbacks only.")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or safe_text(name) != name:
            raise ParseFailed(f"self.stats: {name!r:.120} is no name of 1 to {LONGEST_NAME} characters.")
        if isinstance(n, bool) or not isinstance(n, int) or abs(n) > LARGEST:
            raise ParseFailed(f"self.stats: {n!r:.80} is no whole number up to {LARGEST:,}, to be added to {name!r}.")
        if name not in counted and len(counted) >= MOST_STATS:
            raise ParseFailed(f"self.stats has {MOST_STATS} names at most, and {name!r} would be one more.")
        counted[name] = counted.get(name, 0) + n


class SpiderLog(logging.LoggerAdapter[logging.Logger]):
    """The log of a spider: its lines name the spider, and the job and page that they were written for."""

    def __init__(self, spider: str) -> None:
        super().__init__(logging.getLogger(f"{LOGGER}.{spider}"), {})
        self._spider = spider

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        page = _current.get()
        extra = {"spider": self._spider, "job": page.job, "page": page.url, **(kwargs.get("extra") or {})}
        return msg, {**kwargs, "extra": extra}
