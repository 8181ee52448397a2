"""The supervisor: several worker processes on one machine, kept alive, watched, and stopped together.

What it does: starts the children, and starts another one when one dies. Every child writes a byte to a pipe of its own
each second, from its event loop; one that is silent for too long hangs, and is killed. How it fails: a child that says
that the project is misconfigured ends them all; one that cannot even be started is tried again, like one that died,
and the others go on. How it recovers: a child that was killed loses nothing, because its leases come back. No child
outlives the supervisor: one whose pipe has no reader any more drains and ends; Linux tells it at once; and one that
hangs by then ends itself. The child's side is `Pulse`.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

from ..clock import Backoff
from .black_box import BOX_VARIABLE, MARGIN, PULSE_VARIABLE, TIES, BlackBox
from .signals import send, stopping

PULSE = timedelta(seconds=1)
SILENCE = timedelta(seconds=30)  # a child that is silent for so long hangs
GRACE = timedelta(seconds=20)  # for closing the stores, after the time that pages in hand have
BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))
HEALTHY = timedelta(seconds=60)  # a child that lived so long did not die of how it starts

MISCONFIGURED = 2  # exit code of a child that would fail in the same way again
PR_SET_PDEATHSIG = 1


def silence_under(parse_timeout: timedelta) -> timedelta:
    """How long a child may be silent whose pages may take so long."""
    return max(SILENCE, parse_timeout + MARGIN)


class RestartPauses:
    """How long to wait before the next child: twice as long as the last time, unless that one lived well."""

    def __init__(self) -> None:
        self._deaths = 0  # one soon after the other

    def after(self, lived: timedelta, *, at_work: bool = False) -> timedelta:
        """`at_work`: it died in the code for a page. That page is handed out a few times only."""
        self._deaths = 1 if at_work or lived >= HEALTHY else self._deaths + 1
        return BACKOFF.pause(self._deaths)


class Child:
    """A process under way, and the end of its pipe that is ours."""

    def __init__(self, process: asyncio.subprocess.Process, pulse: int, box: BlackBox, started_at: float) -> None:
        self.process = process
        self.started_at = started_at
        self.page = ""  # whose code ran when it died
        self._box = box
        self.hung = False
        self._pulse = pulse

    def was_felt(self) -> bool:
        """Did it give a sign of life since the last call?"""
        try:
            return bool(os.read(self._pulse, 4096))
        except BlockingIOError:
            return False

    def signal(self, number: signal.Signals) -> None:
        send(self.process, number)

    async def end(self) -> None:
        if self.process.returncode is None:
            self.signal(signal.SIGKILL)
            await self.process.wait()
        self.page = self._box.page
        self._box.close()
        os.close(self._pulse)


class Supervisor:
    """Runs `command` in so many processes. `tell` gets a line for each turn of events.

    A child that ends with 0 is not replaced when `until_idle`: it has nothing to do.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        processes: int,
        drain_within: timedelta,
        tell: Callable[[str], None],
        until_idle: bool = False,
        silence: timedelta = SILENCE,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self._processes = processes
        self._stop_within = drain_within + GRACE
        self._tell = tell
        self._until_idle = until_idle
        self._silence = silence.total_seconds()
        self._folder = folder
        self._environ = os.environ if environ is None else environ
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._deadline = float("inf")
        self._code = 0
        self._unstartable = ""  # why the last child could not be started: told once for all places

    @property
    def pids(self) -> set[int]:
        return {child.process.pid for child in self._children}

    async def run(self) -> int:
        """Until SIGINT or SIGTERM, or until all children are idle; return the exit code."""
        with stopping(lambda: self.stop(signal.SIGTERM), self._kill):
            async with asyncio.TaskGroup() as places:
                for _ in range(self._processes):
                    places.create_task(self._tend())
        return self._code

    def stop(self, number: signal.Signals) -> None:
        """Let the children drain. Those that take too long are killed."""
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + self._stop_within.total_seconds())
        self._stopping.set()
        for child in self._children:
            child.signal(number)

    def _kill(self, number: signal.Signals) -> None:
        self._code = 128 + number
        for child in self._children:
            child.signal(signal.SIGKILL)

    async def _tend(self) -> None:
        """One place for a child, and the children that take it one after the other."""
        loop, backoff = asyncio.get_running_loop(), RestartPauses()
        while not self._stopping.is_set():
            try:
                child = await self._start()
            except OSError as error:  # no memory, no process or file to be had: the children that live are well
                self._tell_unstartable(error)
                await self._rest(backoff.after(timedelta(0)))
                continue
            self._unstartable = ""
            code = await self._watch(child)
            if self._stopping.is_set() or (code == 0 and self._until_idle):
                return
            if code == MISCONFIGURED:
                self._code = 1  # the child has said why
                self.stop(signal.SIGTERM)
                return
            pause = backoff.after(timedelta(seconds=loop.time() - child.started_at), at_work=bool(child.page))
            fate = _fate(child, code)
            doing = f" It was in the code for {child.page}." if child.page else ""
            self._tell(
                f"Worker {child.process.pid} {fate}. Another one starts in {pause.total_seconds():.0f} s.{doing}"
            )
            await self._rest(pause)

    async def _rest(self, pause: timedelta) -> None:
        """For so long, or until all stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause.total_seconds()):
                await self._stopping.wait()

    def _tell_unstartable(self, error: OSError) -> None:
        words = str(error)
        if words != self._unstartable:
            self._unstartable = words
            self._tell(f"A worker could not be started: {words}. It is tried again, with growing pauses.")

    async def _start(self) -> Child:
        box = BlackBox.new()
        try:
            ours, theirs = os.pipe()  # neither is inherited by accident
        except BaseException:
            box.close()
            raise
        os.set_blocking(ours, False)
        os.set_blocking(theirs, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                cwd=self._folder,
                env={**self._environ, PULSE_VARIABLE: str(theirs), BOX_VARIABLE: str(box.file)},
                pass_fds=(theirs, box.file),
            )
        except BaseException:
            box.close()
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        child = Child(process, ours, box, asyncio.get_running_loop().time())
        self._children.add(child)
        if self._stopping.is_set():  # it came too late to be told with the others
            child.signal(signal.SIGTERM)
        return child

    async def _watch(self, child: Child) -> int:
        """Until the child ends; return its exit code, negative for a signal."""
        loop = asyncio.get_running_loop()
        tick = min(PULSE.total_seconds(), self._silence / 4)
        exited = asyncio.create_task(child.process.wait(), name=f"child {child.process.pid}")
        silent = 0.0
        try:
            while not exited.done():
                await asyncio.wait({exited}, timeout=tick)
                # Counted in turns of our own: when this process was stopped, nobody listened, and that is no silence.
                silent = 0.0 if child.was_felt() else silent + tick
                child.hung = silent >= self._silence
                if child.hung or loop.time() >= self._deadline:
                    child.signal(signal.SIGKILL)
                    await exited
            return exited.result()
        finally:
            self._children.discard(child)
            exited.cancel()
            await child.end()


def _fate(child: Child, code: int) -> str:
    if child.hung:
        return "did not respond and was killed"
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}"


class Pulse:
    """The child's side: a sign of life every second, and the knowledge whether anybody listens.

    One that `may_hang` is watched for it by somebody who does not go before it; others end themselves.
    """

    def __init__(self, pipe: int, *, may_hang: bool = False) -> None:
        self._pipe = pipe
        self._may_hang = may_hang

    @classmethod
    def for_keeper(cls) -> Pulse | None:
        """None in a process that has no keeper. A keeper takes its child with it."""
        return None if TIES.pulse is None else cls(TIES.pulse, may_hang=True)

    @classmethod
    def inherited(cls) -> Pulse | None:
        """None in a process that has no supervisor. To be called once: children of this process have none either."""
        text = os.environ.pop(PULSE_VARIABLE, "")
        if not text:
            return None
        TIES.inherit_box()
        os.set_inheritable(int(text), False)
        if sys.platform == "linux":
            # The pipe says the same within a second; this also holds while the loop does not turn.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        return cls(int(text))

    @asynccontextmanager
    async def beating(
        self, orphaned: Callable[[], None] = lambda: None, *, silence: timedelta | None = None
    ) -> AsyncIterator[None]:
        """Beat for the time of the block. `orphaned` is called, every second, once the supervisor is gone.

        `silence` is how long the supervisor bears none.
        """
        task = asyncio.create_task(self._beat(orphaned, 2 * (silence or SILENCE)), name="pulse")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if not self._may_hang:
                faulthandler.cancel_dump_traceback_later()

    async def _beat(self, orphaned: Callable[[], None], silence: timedelta) -> None:
        while True:
            if not self._may_hang:
                # Should the loop stop turning and nobody be left to notice, the process says where it hangs, and ends.
                faulthandler.dump_traceback_later(silence.total_seconds(), exit=True)
            try:
                os.write(self._pipe, b".")
            except BlockingIOError:
                pass  # a supervisor that does not read is stopped, not gone
            except BrokenPipeError:
                orphaned()
            await asyncio.sleep(PULSE.total_seconds())
