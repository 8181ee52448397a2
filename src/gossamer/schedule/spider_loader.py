"""Loads the spiders of due runs. Their code runs beside the event loop, and nothing waits for it for long.

What it does: `Spiders` finds a spider, recipe or site by its name. `SpiderLoader` does that in a thread, for one name
after the other. If a file or a constructor takes longer than PATIENCE, another thread goes on with the rest, and the
slow spider is requested again at the next check.
How it fails: what a spider's code raises is returned as the result for that spider. Code that is not done within
DEADLINE is an error, which names the line it is at.
How it recovers: code that hangs cannot be killed. Its thread is left behind and does not keep the process from ending.
As long as it lives, no other thread runs the same file or constructor; when it has ended, that is tried again.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from ..errors import Misconfigured
from ..parse.discovery import SpiderCatalogue, file_of, is_file_ref, list_spiders, load_spider, spider_named
from ..parse.site import SiteSpider
from ..parse.spider import Spider
from ..settings import Settings
from .authority import demand_own_spider

PATIENCE = timedelta(milliseconds=500)
DEADLINE = timedelta(seconds=30)

Loaded = Spider | BaseException  # a spider, or why there is none


class Spiders:
    """The spiders of a project as they are now: the folder is read once, however many are requested.

    `refuse` is called before code of the project runs, with the file or the name of the spider to be loaded. If it
    returns a reason, the code does not run.
    """

    def __init__(self, settings: Settings, refuse: Callable[[Path | str], str] = lambda code: "") -> None:
        self._settings = settings
        self._refuse = refuse
        self._catalogue: SpiderCatalogue | None = None

    def find(self, ref: str) -> Spider:
        """The spider, recipe or site of that name. Raises Misconfigured, and whatever its constructor raises."""
        if "://" in ref:
            return SiteSpider([ref])
        spider = self._from_file(ref) if is_file_ref(ref) else self._from_folder(ref)
        self._demand(ref)
        return spider()

    def _from_file(self, ref: str) -> type[Spider]:
        demand_own_spider(self._settings, ref)
        self._demand(self._settings.root / file_of(ref))
        return load_spider(ref, self._settings.root, self._settings.spiders)

    def _from_folder(self, name: str) -> type[Spider]:
        root, folder = self._settings.root, self._settings.spiders
        if self._catalogue is None:
            self._catalogue = list_spiders(root, folder, refuse=self._refuse)
        return spider_named(name, self._catalogue, root / folder)

    def _demand(self, code: Path | str) -> None:
        if why := self._refuse(code):
            raise Misconfigured(f"{code}: {why}.")


class SpiderLoader:
    """Loads spiders in threads. For one caller at a time."""

    def __init__(self, settings: Settings, *, patience: timedelta = PATIENCE, deadline: timedelta = DEADLINE) -> None:
        self._settings = settings
        self._patience = patience.total_seconds()
        self._deadline = deadline.total_seconds()
        self._loaded: dict[str, tuple[float, Loaded]] = {}  # with the time at which it was loaded
        self._left: list[_LoaderThread] = []  # threads that were overtaken
        self._news = asyncio.Event()

    async def load(self, refs: Iterable[str]) -> dict[str, Loaded]:
        """The result for each. A missing one is still being loaded: call again."""
        wanted = dict.fromkeys(refs)
        if not wanted:
            return {}
        fresh = time.monotonic() - self._deadline
        self._loaded = {ref: loaded for ref, loaded in self._loaded.items() if loaded[0] > fresh}
        rest = deque(ref for ref in wanted if ref not in self._loaded)
        thread = self._start(rest)
        while not thread.done:
            self._news.clear()
            if (left := thread.began + self._patience - time.monotonic()) > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._news.wait()
            elif thread.overtake():
                self._left.append(thread)
                thread = self._start(rest)
        return {ref: self._loaded.pop(ref)[1] for ref in wanted if ref in self._loaded}

    @property
    def busy(self) -> bool:
        """Is a requested spider still being loaded?"""
        return any(thread.is_alive() for thread in self._left)

    def _start(self, rest: deque[str]) -> _LoaderThread:
        self._left = [thread for thread in self._left if thread.is_alive()]
        thread = _LoaderThread(self, self._settings, rest, tuple(self._left), self._deadline)
        thread.start()
        return thread

    def enter(self, ref: str, loaded: Loaded) -> None:
        """Called by its threads, through the event loop."""
        self._loaded[ref] = (time.monotonic(), loaded)
        self._news.set()

    def end(self, thread: _LoaderThread) -> None:
        """Like `enter`: the thread has nothing left to do, and all that it loaded has been entered."""
        thread.done = True
        self._news.set()


class _Overtaken(BaseException):
    """Ends a thread whose work another one has taken over. Not an Exception, so that no code catches it on the way."""


class _LoaderThread(threading.Thread):
    """A thread that takes names from `rest` and loads these spiders, but runs no code that one of `others` hangs in."""

    def __init__(
        self,
        loader: SpiderLoader,
        settings: Settings,
        rest: deque[str],
        others: tuple[_LoaderThread, ...],
        deadline: float,
    ) -> None:
        super().__init__(name="spider loader", daemon=True)
        self._loader = loader
        self._settings = settings
        self._rest = rest
        self._others = others
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._overtaken = False
        self._ref = ""
        self._avoided = -math.inf  # when the youngest code began that is left to another thread
        self.code: Path | str = ""  # the running code: a file, or the constructor of the spider of that name
        self.began = time.monotonic()
        self.done = False

    def run(self) -> None:
        spiders = Spiders(self._settings, self._refuse)
        with suppress(_Overtaken):
            while self._take():
                self._load(spiders)
        self._tell(self._loader.end, self)

    def overtake(self) -> bool:
        """Leave the thread alone with the code that it runs. If that is a file, another thread tries the spider again.
        False if the thread has nothing left to do."""
        with self._lock:
            if not self._ref:
                return False
            self._overtaken = True
            if isinstance(self.code, Path):
                self._rest.appendleft(self._ref)
        return True

    def excuse(self) -> str:
        """Why other threads do not run the same code."""
        frame, place = sys._current_frames().get(self.ident or 0), ""
        root = self._settings.root.resolve()
        while frame is not None and not place:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(root):
                place = f", and is at line {frame.f_lineno} of {file.relative_to(root)}"
            frame = frame.f_back
        return f"its code has been running for {time.monotonic() - self.began:.0f} s{place}"

    def _take(self) -> bool:
        with self._lock:
            self._ref = "" if self._overtaken or not self._rest else self._rest.popleft()
            self.code, self.began = self._ref, time.monotonic()
        return bool(self._ref)

    def _load(self, spiders: Spiders) -> None:
        loaded: Loaded
        try:
            loaded = spiders.find(self._ref)
        except _Overtaken:
            raise
        except BaseException as error:  # a spider's code may raise anything, even SystemExit
            loaded = error
            if time.monotonic() - self._avoided < self._deadline:
                return  # it may depend on the code that still runs
        if time.monotonic() - self.began < self._deadline:
            self._tell(self._loader.enter, self._ref, loaded)

    def _refuse(self, code: Path | str) -> str:
        """Called by `Spiders` before it runs code."""
        code = code.resolve() if isinstance(code, Path) else code
        with self._lock:
            if self._overtaken:
                raise _Overtaken
            for other in self._others:
                if other.code == code and other.is_alive():
                    self._avoided = max(self._avoided, other.began)
                    return other.excuse()
            self.code, self.began = code, time.monotonic()
        return ""

    def _tell(self, listener: Callable[..., None], *words: object) -> None:
        with suppress(RuntimeError):  # the loop has ended, and no caller waits any more
            self._loop.call_soon_threadsafe(listener, *words)
