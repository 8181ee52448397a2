"""The supervisor: child processes that are watched, replaced when they die or hang, and stopped together.

What it does: starts the children, passes on the signals it gets, and starts another child when one dies. Every child
writes a byte to its own pipe each second, from its event loop (pulse.py); one that is silent for too long hangs and is
killed. Shared memory (black_box.py) names the page whose code killed a child.
`gossamer worker --processes 4` and `gossamer up` have several children, each a separate program; `gossamer worker` has
one, and `gossamer crawl` one or a crew, which are forks (lone_child.py).
How it fails: a child that exits because the project is misconfigured is retried, like one that died or cannot even be
started, and the others go on. Only when all of them are misconfigured, the supervisor ends, with exit code 1.
How it recovers: a child that was killed loses nothing, because its leases come back; the page that killed it gets one
delivery closer to the dead letters each time. No child outlives the supervisor: Linux signals it at once, the pipe says
the same within a second, and a child that hangs by then ends itself.
This module imports next to nothing, so that the fork is cheap and the watching process stays small.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .black_box import BOX_VARIABLE, MARGIN, PULSE_VARIABLE, BlackBox

if TYPE_CHECKING:
    from ..clock import Backoff  # only for callers' types: clock imports asyncio

TICK = 1.0  # seconds between two checks of the children
ECHO = timedelta(seconds=1)  # a signal this soon after the first is the same one
LAST_WORD = timedelta(seconds=2)  # how long a child has to end after a second signal
SILENCE = timedelta(seconds=30)  # a child that is silent for this long hangs
GRACE = timedelta(seconds=20)  # for closing the stores, after the time for pages in progress
HEALTHY = timedelta(seconds=60)  # a child that lived this long did not die of a failed start

MISCONFIGURED = 2  # exit code of a child that fails in the same way until somebody changes something
DRAINED = 3  # exit code of a child that was asked to go: it is not replaced
RESTARTED = 75  # exit code of a child that was asked to make way for a new one; no outcome of a crawl has it
HEEDED = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1

# Starts a process that inherits the box and the pipe: returns its pid (0 in a forked child), and a poll for its exit
# code.
Start = Callable[[BlackBox, int], tuple[int, Callable[[], int | None]]]


def silence_under(parse_timeout: timedelta) -> timedelta:
    """How long a child may be silent if a page may take `parse_timeout`."""
    return max(SILENCE, parse_timeout + MARGIN)


class Death(NamedTuple):
    """How a child ended. `page` is the page whose code was running; empty if none was."""

    pid: int
    code: int  # negative for a signal
    hung: bool
    page: str
    began: bool  # to work
    in_order: bool  # it announced its end
    lived: timedelta

    @property
    def words(self) -> str:
        if self.hung:
            return "did not respond and was killed"
        if self.code >= 0:
            return f"died with exit code {self.code}"
        known = -self.code in set(signal.Signals)
        return f"was ended by {signal.Signals(-self.code).name if known else f'signal {-self.code}'}"


class Child:
    """A running process, and our end of its pipe."""

    def __init__(self, pid: int, poll: Callable[[], int | None], pulse: int, box: BlackBox) -> None:
        self.pid = pid
        self.pulse = pulse
        self.box = box
        self.is_listening = True  # the child has not closed its end of the pipe
        self.hung = False
        self._poll = poll
        self._silent = 0.0
        self._started_at = time.monotonic()

    def listen(self, elapsed: float, allowed: float | None) -> None:
        """Note a sign of life, or `elapsed` seconds more of silence."""
        felt = b""
        with suppress(BlockingIOError):
            felt = os.read(self.pulse, 4096)
            self.is_listening = bool(felt)  # its end closes when it dies; a moment later its exit code is available
        self._silent = 0.0 if felt else self._silent + elapsed
        self.hung = self.hung or (allowed is not None and self._silent >= allowed)

    @property
    def lived(self) -> timedelta:
        return timedelta(seconds=time.monotonic() - self._started_at)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # not reaped yet, so the pid is still its own
            os.kill(self.pid, number)

    def ended(self) -> Death | None:
        """How it ended; None while it lives."""
        code = self._poll()
        if code is None:
            return None
        box = self.box
        death = Death(self.pid, code, self.hung, box.page, began=box.began, in_order=box.ended, lived=self.lived)
        box.close()
        os.close(self.pulse)
        return death


class ChildSlot:
    """A slot for one child and its successors, which are all started in the same way.

    `silence` is how long one may be silent; None: as long as its black box says. `drain_within` is how long the pages
    in progress may take when all stop; None: unlimited.
    """

    def __init__(
        self,
        start: Start,
        *,
        name: str = "worker",
        silence: timedelta | None = SILENCE,
        drain_within: timedelta | None = timedelta(0),
    ) -> None:
        self.start = start
        self.name = name
        self.silence = silence.total_seconds() if silence is not None else None
        self.stop_within = (drain_within + GRACE).total_seconds() if drain_within is not None else float("inf")
        self.child: Child | None = None
        self.start_at = 0.0
        self.kill_at = float("inf")
        self.deaths = 0  # in quick succession
        self.unexplained = 0  # deaths in a row with no page's code running
        self.fate = ""  # what happened to the last child, for the next one
        self.is_spare = False  # counts towards `resize`
        self.is_misconfigured = False  # its last child said so
        self.retires = False  # its child may drain without a time limit, and is not replaced

    def retire(self) -> None:
        """Let the child drain, however long that takes; it is not replaced."""
        self.retires = True
        if self.child is not None:
            self.child.signal(signal.SIGTERM)

    def works(self) -> bool:
        """False if its child was misconfigured, and no successor is at work."""
        child = self.child
        return not self.is_misconfigured or (child is not None and (child.box.began or child.lived >= HEALTHY))

    def pause_after(self, death: Death | None, backoff: Backoff | None) -> timedelta:
        """The pause before the next child; without a `death` the last one could not be started.

        It starts again at the shortest if the last child lived long, or was killed by a page, which is delivered only
        a few times.
        """
        anew = death is not None and (bool(death.page) or death.lived >= HEALTHY)
        self.deaths = 1 if anew else self.deaths + 1
        return backoff.pause(self.deaths) if backoff is not None else timedelta(0)


class Supervisor:
    """Fills the slots with children, until it is stopped. `tell` is called with a line for each incident.

    A dead child is replaced after a pause of `backoff`. Without one it is replaced at once, and a child that cannot be
    started raises OSError. With `until_idle`, a child that exits with 0 is not replaced: it has nothing to do. `spare`
    makes slots besides the given ones; `resize` says how many.
    """

    _hands_on_sigint = False  # it becomes SIGTERM, on which a program that is still starting ends silently

    def __init__(
        self,
        slots: Sequence[ChildSlot],
        *,
        tell: Callable[[str], None],
        backoff: Backoff | None = None,
        until_idle: bool = False,
        spare: Callable[[], ChildSlot] | None = None,
    ) -> None:
        self._spare = spare
        self._spares = 0  # that are wanted
        self._slots = list(slots)
        self._tell = tell
        self._backoff = backoff
        self._until_idle = until_idle
        self._stopping = False
        self._heeded_at: float | None = None  # the first signal
        self._unstartable = ""  # why the last child could not be started: reported once for all slots
        self._wakes, self._wake = os.pipe()
        self._tick = min([TICK, *(slot.silence / 4 for slot in slots if slot.silence is not None)])
        self._looked_at = time.monotonic()
        self.code = 0

    @property
    def pids(self) -> set[int]:
        return {child.pid for child in self._children()}

    def run(self) -> int | None:
        """Run until SIGINT or SIGTERM, or until no slot needs a child any more; return the exit code.

        Returns None in a forked child: its work is still to be done.
        """
        with self._heeding():
            try:
                while self._slots:
                    self._fit()
                    for slot in [slot for slot in self._slots if slot.child is None]:
                        if self._stopping or slot.retires:
                            self._slots.remove(slot)
                        elif time.monotonic() >= slot.start_at and not self._fill(slot):
                            return None
                    self._wait()
                    self._look()
                return self.code
            finally:
                for child in self._children():  # none, unless a bug of ours ends this
                    child.signal(signal.SIGKILL)
                wakes, wake, self._wake = self._wakes, self._wake, -1
                os.close(wakes)
                os.close(wake)

    def resize(self, spares: int) -> None:
        """Have that many spare children from now on. Surplus ones drain, the youngest first. May be called from any
        thread."""
        self._spares = spares
        self._wake_up()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Let the children drain. Children that take too long are killed."""
        draining: list[Child | None] = []
        if not self._stopping:
            self._stopping = True
            now = time.monotonic()
            for slot in self._slots:
                slot.kill_at = now + slot.stop_within
            draining = [slot.child for slot in self._slots if slot.retires]  # a second signal would end them at once
        for child in self._children():
            if child not in draining:
                child.signal(number)
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(OSError):  # `run` has ended
            os.write(self._wake, b".")

    # -- children ----------------------------------------------------------------------------------------------

    def _fit(self) -> None:
        """Adjust the number of spare slots."""
        if self._spare is None or self._stopping:
            return
        spares = [slot for slot in self._slots if slot.is_spare and not slot.retires]
        for _ in range(self._spares - len(spares)):
            slot = self._spare()
            slot.is_spare = True
            self._slots.append(slot)
        for slot in spares[self._spares :]:
            slot.retire()

    def _fill(self, slot: ChildSlot) -> bool:
        """Start a child. False in the child itself, if it is a fork."""
        try:
            with ExitStack() as unused:  # closed if no child is started
                box = BlackBox.new(slot.fate)
                unused.callback(box.close)
                pulse, theirs = os.pipe()  # neither is inherited by accident
                unused.callback(os.close, pulse)
                unused.callback(os.close, theirs)
                os.set_blocking(pulse, False)
                os.set_blocking(theirs, False)
                pid, poll = slot.start(box, theirs)
                unused.pop_all()
            if pid == 0:
                os.close(pulse)
                self._forget_siblings()
                self._heeded_at = None  # a signal that came just before was for the parent, which passes it on
                return False
            os.close(theirs)
        except OSError as error:  # no memory, process or file available: the living children are fine
            if self._backoff is None:
                raise
            self._tell_unstartable(slot, error)
            slot.start_at = time.monotonic() + slot.pause_after(None, self._backoff).total_seconds()
            return True
        self._unstartable = ""
        # A signal is passed on once, by its handler or here: a second one would end a child that drains. A fork has
        # blocked the signals already.
        signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
        too_late = self._stopping  # to be signalled with the others
        slot.child = Child(pid, poll, pulse, box)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)
        if too_late:
            slot.child.signal(signal.SIGTERM)
        return True

    def _forget_siblings(self) -> None:
        """In a forked child: the other children belong to the parent."""
        for slot in self._slots:
            if slot.child is not None:
                slot.child.box.close()
                os.close(slot.child.pulse)
                slot.child = None

    def _wait(self) -> None:
        """Wait until a child beats or closes its pipe, a slot needs a child, or the tick is over."""
        pipes = [child.pulse for child in self._children() if child.is_listening]
        timeout = self._tick if len(pipes) == len(self._children()) else 0.01
        starts = [slot.start_at - time.monotonic() for slot in self._slots if slot.child is None]
        if select.select([self._wakes, *pipes], [], [], max(0.0, min([timeout, *starts])))[0].count(self._wakes):
            os.read(self._wakes, 4096)

    def _look(self) -> None:
        """Check which children have died or hang."""
        # A long time between two checks is not counted as silence: then this process itself was stopped.
        now = time.monotonic()
        elapsed, self._looked_at = min(now - self._looked_at, self._tick), now
        for slot in [slot for slot in self._slots if slot.child is not None]:
            child = slot.child
            assert child is not None
            death = child.ended()
            if death is not None:
                slot.child = None
                if self._stopping or slot.retires or not self._follows(slot, death):
                    self._close(slot, death)
                continue
            child.listen(elapsed, slot.silence if slot.silence is not None else child.box.silence)
            if child.hung or now >= slot.kill_at:
                child.signal(signal.SIGKILL)

    def _follows(self, slot: ChildSlot, death: Death) -> bool:
        """Is the dead child to be replaced?"""
        if death.code == 0 and self._until_idle:
            return False
        if death.code == DRAINED:
            self._spares -= slot.is_spare
            self._tell(f"{slot.name.capitalize()} {death.pid} was asked to drain and has ended; it is not replaced.")
            return False
        if death.code == RESTARTED:
            self._tell(f"{slot.name.capitalize()} {death.pid} was asked to restart: another one starts in its place.")
            return True
        slot.is_misconfigured = death.code == MISCONFIGURED  # the child has said why
        if slot.is_misconfigured and not any(one.works() for one in self._slots):
            self.code = 1
            self.stop()
            return False
        pause = slot.pause_after(death, self._backoff)
        slot.start_at = time.monotonic() + pause.total_seconds()
        doing = f" It was in the code for {death.page}." if death.page else ""
        who = f"{slot.name.capitalize()} {death.pid}"
        how = "cannot work with these settings; the others go on" if slot.is_misconfigured else death.words
        self._tell(f"{who} {how}. Another one starts in {pause.total_seconds():.0f} s.{doing}")
        return True

    def _close(self, slot: ChildSlot, death: Death) -> None:
        self._slots.remove(slot)

    def _tell_unstartable(self, slot: ChildSlot, error: OSError) -> None:
        if str(error) != self._unstartable:
            self._unstartable = str(error)
            self._tell(f"A {slot.name} could not be started: {error}. It is retried, with growing pauses.")

    def _children(self) -> list[Child]:
        return [slot.child for slot in self._slots if slot.child is not None]

    # -- signals -----------------------------------------------------------------------------------------------

    @contextmanager
    def _heeding(self) -> Iterator[None]:
        before: list[tuple[signal.Signals, object]] = []
        with suppress(ValueError):  # not the main thread: the caller stops us
            before = [(number, signal.signal(number, self._heed)) for number in HEEDED]
        try:
            yield
        finally:
            for number, handler in before:
                # After a signal this process ends, and a further one must not change its exit code.
                heeded = self._heeded_at is not None
                signal.signal(number, signal.SIG_IGN if heeded else handler)  # type: ignore[arg-type]

    def _heed(self, number: int, _: object) -> None:
        """Pass the signal on. Children that ignore a second signal too are killed."""
        now = time.monotonic()
        if self._heeded_at is None:
            self._heeded_at = now
        elif now - self._heeded_at > ECHO.total_seconds():
            self.code = 128 + number
            for slot in self._slots:
                slot.kill_at = min(slot.kill_at, now + LAST_WORD.total_seconds())
        self.stop(number if self._hands_on_sigint else signal.SIGTERM)


def spawn(command: Sequence[str], *, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Start:
    """Start a program. It gets what it inherits through `PARENT` and `Pulse.inherited`."""

    def start(box: BlackBox, pipe: int) -> tuple[int, Callable[[], int | None]]:
        import subprocess  # not needed for a fork, and slow to import

        process = subprocess.Popen(  # noqa: S603  # our own command
            command,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={
                **(os.environ if environ is None else environ),
                PULSE_VARIABLE: str(pipe),
                BOX_VARIABLE: str(box.file),
            },
            pass_fds=(pipe, box.file),
        )
        return process.pid, process.poll

    return start
