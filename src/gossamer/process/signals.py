"""How work is stopped: SIGINT and SIGTERM for commands that finish the pages in progress, signals to our own processes,
and cancellation of tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .supervisor import ECHO


def send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a process that may have ended just now.

    (The process's own `send_signal` polls first, and may take the exit code away from the task that waits for it. Here,
    for an instant, the pid could belong to a new process: pids are reused only after all others.)
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


@contextmanager
def stopping(drain: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call `drain`. A further one, later than ECHO, ends the process.

    The echo: `timeout` signals its command and then the command's whole group; a terminal signals a whole group at
    once, and its first process passes the signal on.
    """
    loop = asyncio.get_running_loop()
    asked_at: float | None = None
    installed: list[signal.Signals] = []

    def heed(number: signal.Signals) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = loop.time()
            drain()
        elif loop.time() - asked_at > ECHO.total_seconds():
            while installed:
                loop.remove_signal_handler(installed.pop())
            signal.raise_signal(number)  # as it would have ended without us

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError, NotImplementedError, RuntimeError):  # not the main thread: the caller stops us
            loop.add_signal_handler(number, heed, number)
            installed.append(number)
    try:
        yield
    finally:
        while installed:
            loop.remove_signal_handler(installed.pop())


def is_cancellation(error: BaseException) -> bool:
    """Is the running task being cancelled? False if it merely awaited something that was.

    Users' code may raise CancelledError as well, and must not stop anything by it.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
