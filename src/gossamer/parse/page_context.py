"""What a spider's code is given besides pages: `self.stats` and `self.log` of the page that it is working on, the
`Failure` of an errback, the `Session` of `login`.

One spider serves many pages concurrently, so the current page is stored per task, not on the spider.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ..errors import ParseFailed
from ..model.item import safe_text
from ..model.job import MOST_STATS
from ..model.task import Request
from .page import Page

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..model.task import Sending
    from .forms import Form, Press, Value

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


def can_count() -> bool:
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


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a page becomes a dead letter. `page` is the last response, if there was one."""

    url: str
    reason: str  # as `gossamer dead list` shows it: "http-404", "timeout", "parse" ...
    message: str
    attempts: int
    kind: str  # the callback that the page was meant for
    job: str
    data: dict[str, Any] = {}  # of the request
    status: int | None = None
    page: Page | None = None
    detail: str = ""  # the traceback, if the spider's code failed


class Session(Protocol):
    """A visitor that logs in. Each request is paced, checked and logged like any other, follows redirects, and returns
    the final page, whatever its status. Raises FetchFailed, FetchRefused.

    `name` is the session's name in requests. login() may fill `headers`: from then on they are sent with the session's
    requests to those sites of the crawl that login() visited, or, if it visited none, to the site of the waiting page.
    """

    name: str
    headers: dict[str, str]

    @property
    def cookies(self) -> Mapping[str, str]:
        """Names and values of the current cookies; of two with the same name, the newer one."""

    async def get(self, url: str, **sending: Unpack[Sending]) -> Page: ...

    async def post(self, url: str, **sending: Unpack[Sending]) -> Page:
        """With `form`, `json`, `body` or `files`, as in Request."""

    async def submit(
        self, form: Form, values: Mapping[str, Value] | None = None, *, press: Press = None, **fields: Any
    ) -> Page:
        """Submit a form of a page, filled in with `values` or with `fields` by name."""

    async def fetch(self, request: Request) -> Page: ...
