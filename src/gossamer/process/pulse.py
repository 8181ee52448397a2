"""The child's side of supervision: a sign of life every second, and noticing when the supervisor is gone."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from .black_box import PARENT, PULSE_VARIABLE
from .supervisor import PR_SET_PDEATHSIG, SILENCE

PULSE = timedelta(seconds=1)
TOUCH = timedelta(seconds=5)  # between two updates of the file


@asynccontextmanager
async def alive(file: Path | None) -> AsyncIterator[None]:
    """Touch the file during the block, as long as the event loop runs: for container probes that start no process of
    ours. None: no file. Raises OSError if it cannot be written."""
    if file is None:
        yield
        return
    _touch(file)

    async def touch() -> None:
        while True:
            await asyncio.sleep(TOUCH.total_seconds())
            with suppress(OSError):  # a file that grows old says the same
                _touch(file)

    task = asyncio.create_task(touch(), name="alive")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        with suppress(OSError):
            os.unlink(file)


def _touch(file: Path) -> None:
    file.touch()


class Pulse:
    """Our end of the supervisor's pipe.

    A process that `dies_with_parent` leaves it to the parent to notice a hang; others end themselves.
    """

    def __init__(self, pipe: int, *, dies_with_parent: bool = False) -> None:
        self._pipe = pipe
        self._dies_with_parent = dies_with_parent

    @classmethod
    def forked(cls) -> Pulse | None:
        """The pulse of a process that its supervisor has forked; None in any other."""
        return None if PARENT.pulse is None else cls(PARENT.pulse, dies_with_parent=True)

    @classmethod
    def inherited(cls) -> Pulse | None:
        """The pulse of a program that a supervisor has started; None in any other.

        Call it once: children of this process have no supervisor.
        """
        text = os.environ.pop(PULSE_VARIABLE, "")
        if not text:
            return None
        PARENT.inherit_box()
        os.set_inheritable(int(text), False)
        if sys.platform == "linux":
            # The pipe says the same within a second; this also works while the loop is blocked.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        return cls(int(text))

    @asynccontextmanager
    async def beating(
        self, orphaned: Callable[[], None] = lambda: None, *, silence: timedelta = SILENCE
    ) -> AsyncIterator[None]:
        """Beat during the block. `orphaned` is called, every second, once the supervisor is gone.

        `silence` is how long the supervisor tolerates without a sign of life.
        """
        task = asyncio.create_task(self._beat(orphaned, 2 * silence), name="pulse")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if not self._dies_with_parent:
                faulthandler.cancel_dump_traceback_later()

    async def _beat(self, orphaned: Callable[[], None], silence: timedelta) -> None:
        while True:
            if not self._dies_with_parent:
                # If the loop stops and no supervisor is left to notice, the process prints where it hangs, and ends.
                faulthandler.dump_traceback_later(silence.total_seconds(), exit=True)
            try:
                os.write(self._pipe, b".")
            except BlockingIOError:
                pass  # a supervisor that does not read is stopped, not gone
            except BrokenPipeError:
                orphaned()
            await asyncio.sleep(PULSE.total_seconds())
