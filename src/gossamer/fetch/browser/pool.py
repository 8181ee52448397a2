"""Browsers and the pages in them: M browsers with N pages each, started on demand.

What it does: gives a request a page in a browser; replaces worn browsers (by pages shown or memory used) after their
last page, and browsers that died or hang at once. `BrowserProcess` is one browser with all its parts: a folder, a
watchdog, a driver, Chromium. They start and end together.
How it fails: BrowserFailed when no browser starts, or when no page becomes free for minutes. When a browser dies later,
`gone` informs the requests in it.
How it recovers: all processes of a broken browser are killed, and the next request gets a new one. On start the pool
clears what killed workers left behind.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from ...errors import BrowserFailed, GossamerError, Misconfigured
from ...settings.tables import Browser as BrowserSettings
from . import chromium

if TYPE_CHECKING:
    from playwright.async_api import Browser, CDPSession, Playwright

_START_PATIENCE = 60.0  # seconds; busy machines are slow
_STOP_PATIENCE = 5.0
_KILL_PATIENCE = 10.0
_LEAST_BOUND = 512 * 1024 * 1024  # bytes; no browser works with less
_NO_NEW_START = timedelta(seconds=10)  # after a failed start
# The driver's path is passed in an environment variable, so two browsers must not start at once.
_variable = threading.Lock()
_DRIVER_VARIABLE = "PLAYWRIGHT_NODEJS_PATH"


class Watch(NamedTuple):
    """How closely a browser is watched. Seconds."""

    every: float = 1.0  # between two memory checks
    asks: int = 5  # memory checks per liveness check
    patience: float = 30.0  # for the response; on a busy machine a healthy browser may take a while


USUAL = Watch()


class BrowserProcess:
    """Use `BrowserProcess.start`; then `close`, or `kill` for one that hangs. Both leave no process behind."""

    def __init__(self, settings: BrowserSettings, flags: tuple[str, ...] = (), watch: Watch = USUAL) -> None:
        self._settings = settings
        self._flags = flags
        self.watch = watch
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._session: CDPSession | None = None
        self._watch: asyncio.Task[None] | None = None
        self._pidfd: int | None = None
        self._family: chromium.Family = {}  # at the last check
        self.folder = chromium.new_folder()
        self.watchdog = 0  # its process id
        self.gone: asyncio.Event = asyncio.Event()
        self.why_gone = ""
        self.overfull = 0  # pages in progress when it was killed for its memory
        self.worn = False  # takes no more pages
        self.pages = 0  # pages shown
        self.in_progress = 0
        self.memory = 0  # bytes, at the last check

    @property
    def browser(self) -> Browser:
        assert self._browser is not None
        return self._browser

    @property
    def usable(self) -> bool:
        return not (self.worn or self.gone.is_set())

    @property
    def _most_memory(self) -> int:
        """Above this a browser is killed at once. Below, a worn one may finish its pages."""
        return max(self._settings.recycle_memory.bytes * 3 // 2, _LEAST_BOUND)

    @classmethod
    async def start(
        cls, settings: BrowserSettings, proxy: str, flags: tuple[str, ...] = (), watch: Watch = USUAL
    ) -> BrowserProcess:
        """Start a browser that sends all its traffic to `proxy`. Raises BrowserFailed, Misconfigured."""
        process = cls(settings, flags, watch)
        try:
            async with asyncio.timeout(_START_PATIENCE):
                await process._start(proxy)
        except BaseException as error:
            await process.kill("it did not start")
            if isinstance(error, GossamerError) or not isinstance(error, Exception):
                raise
            raise _not_started(error) from error
        return process

    async def _start(self, proxy: str) -> None:
        from playwright.async_api import async_playwright

        while not _variable.acquire(blocking=False):  # noqa: ASYNC110  # its owner may be of another loop
            await asyncio.sleep(0.01)
        before = os.environ.get(_DRIVER_VARIABLE)
        try:
            os.environ[_DRIVER_VARIABLE] = str(self._starter())
            manager = async_playwright()
            self._playwright = await manager.start()
            _read_errors_of(manager)
        finally:
            if before is None:
                os.environ.pop(_DRIVER_VARIABLE, None)
            else:
                os.environ[_DRIVER_VARIABLE] = before
            _variable.release()
            self._follow_watchdog()
        heap = max(64, self._settings.page_memory.bytes * 2 // 3 >> 20)
        self._browser = await self._playwright.chromium.launch(
            executable_path=chromium.find_executable(self._settings.executable),
            headless=True,
            chromium_sandbox=chromium.wants_sandbox(),
            args=[*chromium.flags(heap_megabytes=heap), *self._flags],
            # Block popups, as for any user: they would be fetched without regard to robots.txt and to the limits of
            # this page.
            ignore_default_args=["--disable-popup-blocking"],
            env=dict(chromium.environment(self.folder)),
            proxy={"server": proxy, "bypass": "<-loopback>"},  # use the proxy for loopback as well
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=_START_PATIENCE * 1000,
        )
        self._family = await asyncio.to_thread(chromium.family_of, self.watchdog)
        self._browser.on("disconnected", lambda _: self._went("the browser died"))
        self._session = await self._browser.new_browser_cdp_session()
        self._watch = asyncio.create_task(self._look_after(), name="gossamer-browser-watch")

    def _starter(self) -> Path:
        """Write a program that Playwright takes for its driver: it puts the watchdog in between."""
        import playwright

        node = os.environ.get(_DRIVER_VARIABLE) or str(Path(playwright.__file__).parent / "driver" / "node")
        watchdog = str(Path(__file__).with_name("watchdog.py"))
        command = shlex.join([sys.executable, "-I", "-S", watchdog, str(os.getpid()), str(self.folder), node])
        starter = self.folder / "driver"
        pid = shlex.quote(str(self.folder / "watchdog.pid"))
        starter.write_text(f'#!/bin/sh\necho $$ > {pid}\nexec {command} "$@"\n', encoding="utf-8")
        starter.chmod(0o700)
        return starter

    def _follow_watchdog(self) -> None:
        """Get notified by the kernel when the watchdog ends, which ends everything."""
        try:
            self.watchdog = int((self.folder / "watchdog.pid").read_text(encoding="ascii"))
            self._pidfd = os.pidfd_open(self.watchdog)
        except (OSError, ValueError):
            self._went("the driver did not start")
            return
        asyncio.get_running_loop().add_reader(self._pidfd, self._lost_watchdog)

    def _lost_watchdog(self) -> None:
        """Without the watchdog nothing else would end a hanging browser."""
        self._went("its driver died")
        chromium.kill(self._family)

    def _went(self, why: str) -> None:
        if not self.gone.is_set():
            self.why_gone = why
            self.gone.set()
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)

    async def _look_after(self) -> None:
        """Check the memory every second, and now and then whether the browser responds."""
        looks = 0
        while not self.gone.is_set():
            await asyncio.sleep(self.watch.every)
            looks += 1
            family = await asyncio.to_thread(chromium.family_of, self.watchdog)
            self._family = family or self._family
            self.memory, renderers = await asyncio.to_thread(chromium.family_memory, family)
            for pid, held in renderers.items():
                if held > self._settings.page_memory.bytes:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)  # its page gets a crash; the others are not affected
            if self.memory > self._settings.recycle_memory.bytes:
                self.worn = True
            if self.memory > self._most_memory:
                self.overfull = self.in_progress
                self._went(f"its processes held {self.memory >> 20} MB")
                chromium.kill(self._family)  # at once: further growth would take the machine down
                return
            if looks % self.watch.asks == 0 and not await self._answers():
                self._went(f"the browser did not answer for {self.watch.patience:g} s")

    async def _answers(self) -> bool:
        assert self._session is not None
        try:
            async with asyncio.timeout(self.watch.patience):
                await self._session.send("Browser.getVersion")
        except TimeoutError:
            return False
        except Exception:  # the driver's own errors: the connection is over, and `gone` will soon be set
            return self.gone.is_set()
        return True

    def take_page(self) -> None:
        self.pages += 1
        self.in_progress += 1
        if self.pages >= self._settings.recycle_pages:
            self.worn = True

    def give_back_page(self) -> None:
        self.in_progress -= 1

    async def close(self) -> None:
        """Shut the browser down gracefully if possible, else by force."""
        if not self.gone.is_set() and self._browser is not None and self._playwright is not None:
            self.why_gone = "it was closed"
            with suppress(Exception):  # whatever happens, it is killed next
                async with asyncio.timeout(_STOP_PATIENCE):
                    await self._browser.close()
                    await self._playwright.stop()
        await self.kill(self.why_gone or "it was closed")

    async def kill(self, why: str) -> None:
        """Kill all its processes now, and wait until they are gone."""
        self._went(why)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._pidfd is not None:
            fd, self._pidfd = self._pidfd, None
            await _end_process(fd)
        if self._playwright is not None:
            playwright, self._playwright = self._playwright, None
            with suppress(Exception):  # its peer is already dead
                async with asyncio.timeout(_STOP_PATIENCE):
                    await playwright.stop()
        await asyncio.to_thread(chromium.clear, self.folder, self._family)


_NO_PROXY = "http://127.0.0.1:9"  # of a browser that opens no page


def _read_errors_of(manager: object) -> None:
    """Playwright stores in a future why its driver hung up, and reads it only during start: asyncio would log an
    unretrieved error each time a browser is killed. `gone` reports it instead."""
    transport = getattr(getattr(manager, "_client", None), "_transport", None)
    broken: asyncio.Future[None] | None = getattr(transport, "on_error_future", None)
    if broken is not None:
        broken.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def _end_process(pidfd: int) -> None:
    """Tell a watchdog to end; if it does not, kill it: then the kernel kills the driver."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        for number, patience in ((signal.SIGTERM, _KILL_PATIENCE), (signal.SIGKILL, _KILL_PATIENCE)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await ended.wait()
                return
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)


# What Chromium logs, by version, where it may not make its sandbox.
_NO_SANDBOX = ("No usable sandbox", "Zygote process exited", "hello message from zygote", "sys_chroot")


def _not_started(error: Exception) -> GossamerError:
    said = str(error)
    if "Executable doesn't exist" in said:
        return Misconfigured(f"No Chromium was found. {chromium.HOW_TO_GET_IT}")
    if any(sign in said for sign in _NO_SANDBOX):
        return Misconfigured(
            "Chromium cannot use its sandbox here: user namespaces or chroot are forbidden. On a machine, allow them "
            "(sysctl kernel.unprivileged_userns_clone=1); in a container, run it under the seccomp profile "
            "deploy/image/chromium-seccomp.json."
        )
    first = said.strip().splitlines()[0][:300] if said.strip() else type(error).__name__
    return BrowserFailed(f"The browser could not be started ({first}).", wait=_NO_NEW_START)


async def start_fault(settings: BrowserSettings) -> str:
    """Start a browser and close it again. "" if that went well, else why it cannot start. It visits nothing."""
    try:
        process = await BrowserProcess.start(settings, _NO_PROXY)
    except GossamerError as error:
        return str(error)
    await process.close()
    return ""


_SEAT_PATIENCE = 300.0  # seconds


class BrowserPool:
    """Open while entered. Bounded: pages without a free seat wait for one. `watch` applies to browsers that start
    later."""

    def __init__(self, settings: BrowserSettings, proxy: str, flags: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._proxy = proxy
        self._flags = flags
        self.watch = USUAL
        self._browsers: list[BrowserProcess] = []
        self._starting = 0
        self._changed = asyncio.Condition()
        self._closings: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        chromium.check_playwright()
        chromium.find_executable(self._settings.executable)
        await asyncio.to_thread(chromium.sweep)
        return self

    async def __aexit__(self, *exc: object) -> None:
        processes, self._browsers = self._browsers, []
        await asyncio.gather(*(process.close() for process in processes), *self._closings, return_exceptions=True)

    @property
    def processes(self) -> tuple[BrowserProcess, ...]:
        """All browsers, including those that only finish their last pages."""
        return tuple(self._browsers)

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[BrowserProcess]:
        """A seat for one page. Raises BrowserFailed, Misconfigured."""
        try:
            async with asyncio.timeout(_SEAT_PATIENCE):
                process = await self._take()
        except TimeoutError as error:
            raise BrowserFailed(
                f"Every browser was busy for {_SEAT_PATIENCE:g} s. Raise browser.contexts or browser.browsers, "
                "or lower crawl.concurrency."
            ) from error
        try:
            yield process
        finally:
            process.give_back_page()
            await self._sweep()

    async def _take(self) -> BrowserProcess:
        while True:
            async with self._changed:
                while (process := self._free()) is None and not self._may_start():
                    await self._changed.wait()
                if process is not None:
                    process.take_page()
                    return process
                self._starting += 1
            started: BrowserProcess | None = None
            try:
                started = await BrowserProcess.start(self._settings, self._proxy, self._flags, self.watch)
            finally:
                self._starting -= 1
                if started is not None:
                    self._browsers.append(started)
                await self._sweep()

    def _free(self) -> BrowserProcess | None:
        """The browser with the fewest pages in progress, if it has a free seat."""
        found = [
            process for process in self._browsers if process.usable and process.in_progress < self._settings.contexts
        ]
        return min(found, key=lambda process: process.in_progress, default=None)

    def _may_start(self) -> bool:
        return self._starting + sum(process.usable for process in self._browsers) < self._settings.browsers

    async def _sweep(self) -> None:
        """Close browsers that are dead, or worn and empty, and wake the pages that wait for a seat."""
        for process in tuple(self._browsers):
            if not process.usable and (process.in_progress == 0 or process.gone.is_set()):
                self._browsers.remove(process)
                closing = asyncio.create_task(process.close(), name="gossamer-browser-closing")
                self._closings.add(closing)
                closing.add_done_callback(self._closings.discard)
        async with self._changed:
            self._changed.notify_all()
