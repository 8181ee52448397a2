"""A time limit for code that is not ours: the callbacks of spiders and the steps of pipelines.

What it does: while such code runs, the process's timer is set. When it fires, TookTooLong is raised in the running
code, even in an endless loop or a backtracking regular expression. Time that a callback awaits counts too, but not time
during which other tasks block the event loop. The timer is off while other code runs.
How it fails: code that swallows TookTooLong gets it again every second; after STUBBORN times the process exits with
STUBBORN_CODE, so that its pages return to the queue. C code that does not check for signals cannot be interrupted: the
supervisor of the process notices its silence. Only the main thread has a timer, because only it handles signals. How it
recovers: the page fails like any page whose callback raises; the next page is not affected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import traceback
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from math import ceil
from time import monotonic
from types import FrameType
from typing import Any, Generic, TypeVar

from ..errors import ParseFailed
from ..process.black_box import BlackBox

T = TypeVar("T")

AGAIN = 1.0  # seconds until the exception is raised again
STUBBORN = 5  # how often code may swallow it
STUBBORN_CODE = 87  # exit code of a process whose code did not stop
TICK, TICKS = 1.0, 10  # awaited time is counted in seconds; a short limit in ten parts
SHORTEST = 0.001  # seconds; zero would turn the timer off
_LONGEST_DETAIL = 20_000  # characters
_FRAMES_SHOWN = 5
DEBUGGERS = frozenset(("bdb", "pdb", "pydevd"))


class TookTooLong(BaseException):
    """Raised in code that runs too long. Not an Exception, so that `except Exception` does not swallow it."""


class _Alarm:
    """The process's timer, of which there is only one. It fires only between `set` and `clear`."""

    def __init__(self) -> None:
        self._armed = False
        self._checked_at = float("-inf")
        self._rung = 0
        self._told = ""
        self._debugged: Callable[[], None] = lambda: None
        self._before: Any = None  # Any: the previous handler may be a function or a constant
        self._ring_as = self._ring  # one bound method, so that it can be compared

    def set(self, now: float, seconds: float, told: str, debugged: Callable[[], None]) -> None:
        """Fire after `seconds` from `now`, and then every second. Main thread only."""
        if now - self._checked_at > AGAIN:  # not each time: it costs more than the timer
            self._checked_at = now
            if signal.getsignal(signal.SIGALRM) is not self._ring_as:
                self._before = signal.signal(signal.SIGALRM, self._ring_as)
        self._rung, self._told, self._debugged = 0, told, debugged
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, max(seconds, SHORTEST), AGAIN)

    def clear(self) -> None:
        self._armed = False  # first, so that a pending signal is ignored
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if not self._armed:
            if callable(self._before):
                self._before(number, frame)
            return
        if _is_debugged(frame):
            self._debugged()
            return
        self._rung += 1
        if self._rung > STUBBORN:
            where = "".join(traceback.format_stack(frame, limit=_FRAMES_SHOWN))
            told = f"gossamer: A page's code cannot be stopped: {self._told}. The process ends.\n{where}"
            os.write(2, told.encode(errors="replace"))
            os._exit(STUBBORN_CODE)
        raise TookTooLong(self._told)


_ALARM = _Alarm()


def _is_debugged(frame: FrameType | None) -> bool:
    """True if the code is stopped at a breakpoint."""
    while frame is not None:
        if frame.f_globals.get("__name__") in DEBUGGERS:
            return True
        frame = frame.f_back
    return False


class TimeLimit:
    """How long the code of one page may take, and which setting says so. `box` records the page being parsed."""

    def __init__(
        self,
        limit: timedelta = timedelta(seconds=30),
        box: BlackBox | None = None,
        setting: str = "crawl.parse_timeout",
    ) -> None:
        self.seconds = limit.total_seconds()
        self.setting = setting
        self.told = f"it took longer than {self.seconds:g} s ({setting})"
        self.box = box
        self._main: int | None = None  # the main thread, once known

    @property
    def has_timer(self) -> bool:
        """Is this the main thread, where signals are handled?"""
        here = threading.get_ident()
        if here != self._main:  # cached, because every page needs it
            if here != threading.main_thread().ident:
                return False
            self._main = here
        return True

    async def run(self, work: Coroutine[Any, Any, T], page: str, *, waits: bool = True) -> T:
        """Await `work`, the code of that page. Raises what it raises, and ParseFailed if it took too long.

        The limit applies to the sum of its synchronous stretches, and to the time that it awaits. With `waits` False
        awaited time is free, for work that waits for our own backends.
        """
        try:
            return await _Stretches(work, self, page, waits)
        except TookTooLong as late:
            detail = "".join(traceback.format_exception(late.__cause__ or late))
            raise ParseFailed(f"The code for {page} failed: {late}", detail=detail[-_LONGEST_DETAIL:]) from late


class _Stretches(Generic[T]):
    """Runs a coroutine in stretches from one await to the next. The timer is set only during stretches, since the loop
    runs other journeys in between."""

    def __init__(self, work: Coroutine[Any, Any, T], limit: TimeLimit, page: str, waits: bool) -> None:
        self._work = work
        self._left = limit.seconds
        self._told = limit.told
        self._box = limit.box
        self._page = page.encode(errors="replace") if limit.box is not None else b""
        self._waits = waits
        self._has_timer = limit.has_timer

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[Any], Any] = steps.send
        given: Any = None
        wait: _Wait | None = None
        try:
            while True:
                try:
                    awaited = self._stretch(step, given)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if wait is None and self._waits:
                    wait = _Wait(self._left)
                try:
                    given = yield awaited
                    step = steps.send
                except asyncio.CancelledError as error:
                    if wait is not None and wait.is_hopeless:
                        raise TookTooLong(self._told) from error
                    step, given = steps.throw, error
                except BaseException as error:
                    step, given = steps.throw, error
        except asyncio.CancelledError as cancelled:
            if wait is not None and wait.ended_it():
                raise TookTooLong(self._told) from cancelled
            raise
        finally:
            if wait is not None:
                wait.over()

    def _stretch(self, step: Callable[[Any], Any], given: Any) -> Any:  # Any: whatever loop and task exchange
        if not self._has_timer:
            return step(given)
        began = monotonic()
        try:
            try:
                if self._box is not None:
                    self._box.enter(self._page)
                _ALARM.set(began, self._left, self._told, self._rest)
                return step(given)
            finally:
                _ALARM.clear()
        except TookTooLong:
            _ALARM.clear()  # it may have been raised just before the line above; the next one comes a second later
            raise
        finally:
            self._left -= monotonic() - began
            if self._box is not None:
                self._box.leave()

    def _rest(self) -> None:
        if self._box is not None:
            self._box.rest()


class _Wait:
    """Counts the time that a callback awaits, in timer ticks: while other tasks block the loop, none passes.

    When the time is over, the task is cancelled; if it swallows that, again with each tick.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._tick = max(min(TICK, seconds / TICKS), SHORTEST)
        self._ticks = ceil(seconds / self._tick)
        self._asked = 0
        self._timer = self._loop.call_later(self._tick, self._count)

    def _count(self) -> None:
        self._ticks -= 1
        if self._ticks <= 0 and self._task is not None:
            self._asked += 1
            self._task.cancel()
        self._timer = self._loop.call_later(self._tick, self._count)

    @property
    def is_hopeless(self) -> bool:
        """True for a task that keeps awaiting after repeated cancellation."""
        return self._asked > STUBBORN

    def ended_it(self) -> bool:
        """True if only this limit cancelled the task."""
        if not self._asked or self._task is None:
            return False
        return self._task.cancelling() - self._asked <= self._cancelling

    def over(self) -> None:
        """Undo the cancellations."""
        self._timer.cancel()
        if self._task is not None:
            for _ in range(self._asked):
                self._task.uncancel()
