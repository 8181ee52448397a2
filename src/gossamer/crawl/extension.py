"""Extensions: the user's own code around each step of a crawl, one method per step.

    around_fetch(request, next)    around each request for a page; `next` sends it when the site's pace allows
    around_parse(page, next)       around the callback; `next` calls it
    on_event(event)                receives events, on a separate thread

The first extension listed is the outermost. A method that no extension overrides costs nothing.

How it fails: an extension that raises, hangs or returns a wrong type fails only its page, with the reason `extension`
(or `parse`). An `on_event` that raises or hangs loses events, which is reported once.
What it cannot do: send a request past the pacer, the address guard or robots.txt. `next` checks all three each time,
and refuses a URL on another site: that has its own pace, so the spider must yield a request for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TypeAlias

from ..clock import Clock
from ..errors import ExtensionFailed, GossamerError, ParseFailed
from ..fetch.contract import Response
from ..fetch.fetcher import FetchRequest
from ..model.events import Event, EventHub, EventSink, Trouble
from ..model.item import safe_text
from ..model.task import Request
from ..parse.callbacks import ParsedPage, checked_results
from ..parse.page import Page
from ..parse.page_context import ask_here, asking_by
from ..parse.timelimit import TimeLimit, TookTooLong
from ..process.signals import is_cancellation

EVENTS_WAITING = 10_000  # per extension; beyond that, events are dropped and counted
LAST_WORDS = 5.0  # seconds that the end of a job waits for an extension to finish its events

NextFetch: TypeAlias = Callable[[FetchRequest], Awaitable[Response]]
NextParse: TypeAlias = Callable[[Page], Awaitable[ParsedPage]]


class Extension:
    """Base class of extensions. Override what you need; each job has one instance per process."""

    async def around_fetch(self, request: FetchRequest, next: NextFetch) -> Response:
        """Return a response: that of `next(request)`, or your own. Raise FetchFailed to have the page retried later."""
        return await next(request)

    async def around_parse(self, page: Page, next: NextParse) -> ParsedPage:
        """Return items and requests: those of `next(page)`, or your own."""
        return await next(page)

    def on_event(self, event: Event) -> None:
        """Receive an event. Runs beside the crawl and cannot change it."""


class Extensions:
    """The extensions of one job in one process, in order. `around_fetch` and `around_parse` are None if none overrides
    them."""

    def __init__(self, ones: Sequence[Extension], limit: TimeLimit) -> None:
        self._limit = limit
        self._fetchers = [one for one in ones if type(one).around_fetch is not Extension.around_fetch]
        self._parsers = [one for one in ones if type(one).around_parse is not Extension.around_parse]
        self.around_fetch = self._fetch if self._fetchers else None
        self.around_parse = self._parse if self._parsers else None

    async def _fetch(self, request: FetchRequest, send: NextFetch) -> Response:
        try:
            # Stretches of code without an await are timed here, for all extensions together.
            return await self._limit.run(self._fetch_from(0, request, send), request.url, waits=False)
        except ParseFailed as failure:
            raise ExtensionFailed(f"An extension failed on {request.url}: {failure}") from failure

    async def _fetch_from(self, place: int, request: FetchRequest, send: NextFetch) -> Response:
        if place == len(self._fetchers):
            return await send(request)
        one = self._fetchers[place]
        name = type(one).__name__
        waiting = _OwnTime(self._limit.seconds)

        async def next(given: FetchRequest) -> Response:
            if not isinstance(given, FetchRequest):
                raise ExtensionFailed(f"{name}.around_fetch passed on a {type(given).__name__}, not a request.")
            with waiting.paused():
                return await self._fetch_from(place + 1, given, send)

        ask = ask_here()

        async def patient(asked: Request) -> Page:
            assert ask is not None
            with waiting.paused():
                return await ask(asked)

        try:
            with asking_by(patient) if ask is not None else nullcontext():
                async with asyncio.timeout(self._limit.seconds) as waiting.timeout:
                    response = await one.around_fetch(request, next)
        except (KeyboardInterrupt, GossamerError):
            raise
        except TimeoutError as error:
            words = f"it took longer than {self._limit.seconds:g} s (crawl.parse_timeout)"
            raise ExtensionFailed(f"{name}.around_fetch failed on {request.url}: {words}") from error
        except BaseException as error:
            if is_cancellation(error):
                raise
            raise ExtensionFailed(f"{name}.around_fetch failed on {request.url}: {_words(error)}") from error
        if not isinstance(response, Response):
            raise ExtensionFailed(f"{name}.around_fetch gave a {type(response).__name__}, not a response.")
        return response

    async def _parse(self, page: Page, parse: NextParse) -> ParsedPage:
        """The caller applies the time limit, as it does for the callback."""
        return checked_results(await self._parse_from(0, page, parse), "an extension")

    async def _parse_from(self, place: int, page: Page, parse: NextParse) -> ParsedPage:
        if place == len(self._parsers):
            return await parse(page)
        one = self._parsers[place]
        name = type(one).__name__

        async def next(given: Page) -> ParsedPage:
            if not isinstance(given, Page):
                raise ParseFailed(f"{name}.around_parse passed on a {type(given).__name__}, not a page.")
            return await self._parse_from(place + 1, given, parse)

        try:
            parsed = await one.around_parse(page, next)
        except (KeyboardInterrupt, GossamerError, TookTooLong):
            raise
        except BaseException as error:  # SystemExit must not end the worker
            if is_cancellation(error):
                raise
            detail = safe_text("".join(traceback.format_exception(error))[-20_000:])
            raise ParseFailed(f"{name}.around_parse failed on {page.url}: {_words(error)}", detail=detail) from error
        if not isinstance(parsed, ParsedPage):
            raise ParseFailed(f"{name}.around_parse gave a {type(parsed).__name__}; return what `next` returned.")
        return parsed


class _OwnTime:
    """The time an extension itself takes: the clock stops while `next` runs."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._since = asyncio.get_running_loop().time()
        self.timeout: asyncio.Timeout | None = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        if self.timeout is None or self.timeout.when() is None:
            yield  # `next` was called twice concurrently: the first call has already stopped the clock
            return
        self._left -= loop.time() - self._since
        self.timeout.reschedule(None)
        try:
            yield
        finally:
            self._since = loop.time()
            if not self.timeout.expired():
                self.timeout.reschedule(self._since + max(self._left, 0.0))


class _Listener(threading.Thread):
    """Passes events to one extension, one at a time, on a thread, so that a slow extension holds up no page."""

    def __init__(self, extension: Extension, trouble: Callable[[str], None]) -> None:
        super().__init__(name=f"events for {type(extension).__name__}", daemon=True)
        self._extension = extension
        self._trouble = trouble
        self._waiting: queue.Queue[Event | None] = queue.Queue(EVENTS_WAITING)
        self.lost = 0

    def emit(self, event: Event) -> None:
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self.lost += 1

    def run(self) -> None:
        failed = False
        while (event := self._waiting.get()) is not None:
            try:
                self._extension.on_event(event)
            except BaseException as error:
                if not failed:
                    failed = True
                    self._trouble(f"{type(self._extension).__name__}.on_event failed: {_words(error)}")

    async def close(self) -> str:
        """Let the extension receive its remaining events; return a message if some were lost."""
        left = self._waiting.qsize()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            pass
        else:
            await asyncio.to_thread(self.join, LAST_WORDS)
        if not self.is_alive() and not self.lost:
            return ""
        missed = self.lost + (left if self.is_alive() else 0)
        return f"{type(self._extension).__name__}.on_event is too slow, or hangs: {missed:,} events were lost."


@asynccontextmanager
async def listening(ones: Sequence[Extension], events: EventSink, clock: Clock) -> AsyncIterator[EventSink]:
    """The event sink of a job: passes each event to `events` and to the extensions that override `on_event`."""
    loop = asyncio.get_running_loop()

    def tell(message: str) -> None:
        events.emit(Trouble(at=clock.now(), stage="extension", message=message))

    listeners = [
        _Listener(one, lambda message: _from_thread(loop, tell, message))
        for one in ones
        if type(one).on_event is not Extension.on_event
    ]
    if not listeners:
        yield events
        return
    for listener in listeners:
        listener.start()
    try:
        yield EventHub(events, *listeners)
    finally:
        for listener in listeners:
            if words := await listener.close():
                tell(words)


def _from_thread(loop: asyncio.AbstractEventLoop, tell: Callable[[str], None], message: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(tell, message)


def _words(error: BaseException) -> str:
    return safe_text("".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2][:500])
