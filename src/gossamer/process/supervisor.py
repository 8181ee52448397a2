"""The supervisor: child processes that are watched, replaced when they die or hang, and stopped together.

What it does: starts the children, hands on the signals it gets, and starts another child when one dies. Every child
writes a byte to a pipe of its own each second, from its event loop (pulse.py); one that is silent for too long hangs
and is killed. Shared memory (black_box.py) names the page whose code killed a child.
`gossamer worker --processes 4` and `gossamer up` have several children, each a program of its own; `gossamer worker`
has one, and `gossamer crawl` one or a crew, which are forks (lone_child.py).
How it fails: a child that says that the project is misconfigured ends them all; one that cannot even be started is
tried again, like one that died, and the others go on.
How it recovers: a child that was killed loses nothing, because its leases come back; the page that killed it gets one
delivery closer to the dead letters each time. No child outlives the supervisor: Linux signals it at once, the pipe says
the same within a second, and a child that hangs by then ends itself.
This module imports next to nothing, so that the fork is cheap and the process that watches stays small.
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
    from ..clock import Backoff  # a value of the callers: clock imports asyncio

TICK = 1.0  # seconds between two looks at the children
ECHO = timedelta(seconds=1)  # a signal this soon after the first is the same one
LAST_WORD = timedelta(seconds=2)  # that a child has to end after a second signal
SILENCE = timedelta(seconds=30)  # a child that is silent for so long hangs
GRACE = timedelta(seconds=20)  # for closing the stores, after the time that pages in hand have
HEALTHY = timedelta(seconds=60)  # a child that lived so long did not die of how it starts

MISCONFIGURED = 2  # exit code of a child that would fail in the same way again
DRAINED = 3  # exit code of a child that somebody wanted to be gone: it is not followed by another
HEEDED = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1

# Starts a process that inherits the box and the pipe: its pid (0 in a forked child), and its exit code once it has one.
Start = Callable[[BlackBox, int], tuple[int, Callable[[], int | None]]]


def silence_under(parse_timeout: timedelta) -> timedelta:
    """How long a child may be silent whose pages may take `parse_timeout`."""
    return max(SILENCE, parse_timeout + MARGIN)


class Death(NamedTuple):
    """How a child ended. `page` is the one whose code ran then; empty when none did."""

    pid: int
    code: int  # negative for a signal
    hung: bool
    page: str
    began: bool  # to work
    in_order: bool  # it said beforehand that it ends
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
    """A process under way, and the end of its pipe that is ours."""

    def __init__(self, pid: int, poll: Callable[[], int | None], pulse: int, box: BlackBox) -> None:
        self.pid = pid
        self.pulse = pulse
        self.box = box
        self.is_listening = True  # to a pipe that the child has not closed
        self.hung = False
        self._poll = poll
        self._silent = 0.0
        self._started_at = time.monotonic()

    def listen(self, elapsed: float, allowed: float | None) -> None:
        """Note a sign of life, or `elapsed` seconds more of silence."""
        felt = b""
        with suppress(BlockingIOError):
            felt = os.read(self.pulse, 4096)
            self.is_listening = bool(felt)  # it closes its end when it dies, and a moment later it can be waited for
        self._silent = 0.0 if felt else self._silent + elapsed
        self.hung = self.hung or (allowed is not None and self._silent >= allowed)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # not waited for yet, so the number is still its own
            os.kill(self.pid, number)

    def ended(self) -> Death | None:
        """How it ended; None while it lives."""
        code = self._poll()
        if code is None:
            return None
        lived = timedelta(seconds=time.monotonic() - self._started_at)
        box = self.box
        death = Death(self.pid, code, self.hung, box.page, began=box.began, in_order=box.ended, lived=lived)
        box.close()
        os.close(self.pulse)
        return death


class ChildSlot:
    """Room for one child: the children that follow each other in it are started in the same way.

    `silence` is how long one may be silent; None: as long as its black box says. `drain_within` is how long the pages
    in hand may take when all stop; None: as long as they like.
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
        self.deaths = 0  # one soon after the other
        self.unexplained = 0  # deaths in a row with no page's code running
        self.fate = ""  # what the next child hears about the last
        self.is_spare = False  # one of those whose number can be changed
        self.retires = False  # its child ends in its own time, and none follows

    def retire(self) -> None:
        """Let the child drain, however long that takes; none follows it."""
        self.retires = True
        if self.child is not None:
            self.child.signal(signal.SIGTERM)

    def pause_after(self, death: Death | None, backoff: Backoff | None) -> timedelta:
        """The pause before the next child; without a `death` the last one could not be started.

        It begins anew when the last child lived well, or died of a page: that is handed out a few times only.
        """
        anew = death is not None and (bool(death.page) or death.lived >= HEALTHY)
        self.deaths = 1 if anew else self.deaths + 1
        return backoff.pause(self.deaths) if backoff is not None else timedelta(0)


class Supervisor:
    """Fills the slots with children, until it is stopped. `tell` gets a line for each turn of events.

    A dead child is followed by another after a pause of `backoff`. Without one it is followed at once, and a child that
    cannot be started raises OSError. A child that ends with 0 is not followed when `until_idle`: it has nothing to do.
    `spare` makes slots beside the given ones; `resize` says how many.
    """

    _hands_on_sigint = False  # as SIGTERM: a program that is still starting ends without a word

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
        self._unstartable = ""  # why the last child could not be started: said once for all slots
        self._wakes, self._wake = os.pipe()
        self._tick = min([TICK, *(slot.silence / 4 for slot in slots if slot.silence is not None)])
        self._looked_at = time.monotonic()
        self.code = 0

    @property
    def pids(self) -> set[int]:
        return {child.pid for child in self._children()}

    def run(self) -> int | None:
        """Until SIGINT or SIGTERM, or until no slot needs a child any more; return the exit code.

        Returns None in a child that was forked: its work is still to be done.
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
                for child in self._children():  # none, unless a fault of ours ends this
                    child.signal(signal.SIGKILL)
                wakes, wake, self._wake = self._wakes, self._wake, -1
                os.close(wakes)
                os.close(wake)

    def resize(self, spares: int) -> None:
        """Have that many spare children from now on. Those that are too many drain, the youngest first. May be called
        by any thread."""
        self._spares = spares
        self._wake_up()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Let the children drain. Those that take too long are killed."""
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
        with suppress(OSError):  # nobody runs it any more
            os.write(self._wake, b".")

    # -- children ----------------------------------------------------------------------------------------------

    def _fit(self) -> None:
        """Make the spare slots as many as are wanted."""
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
        """Start a child. False in the child itself, when it is a fork."""
        try:
            with ExitStack() as unused:  # closed when no child comes of it
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
                self._heeded_at = None  # a signal that came just before was meant for the parent, which hands it on
                return False
            os.close(theirs)
        except OSError as error:  # no memory, no process or file to be had: the children that live are well
            if self._backoff is None:
                raise
            self._tell_unstartable(slot, error)
            slot.start_at = time.monotonic() + slot.pause_after(None, self._backoff).total_seconds()
            return True
        self._unstartable = ""
        slot.child = Child(pid, poll, pulse, box)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)  # a fork blocks them until the child is known here
        if self._stopping:  # it came too late to be signalled with the others
            slot.child.signal(signal.SIGTERM)
        return True

    def _forget_siblings(self) -> None:
        """In a forked child: the other children are the parent's."""
        for slot in self._slots:
            if slot.child is not None:
                slot.child.box.close()
                os.close(slot.child.pulse)
                slot.child = None

    def _wait(self) -> None:
        """Until a child gives a sign of life or closes its pipe, a slot needs a child, or the tick is over."""
        pipes = [child.pulse for child in self._children() if child.is_listening]
        timeout = self._tick if len(pipes) == len(self._children()) else 0.01
        starts = [slot.start_at - time.monotonic() for slot in self._slots if slot.child is None]
        if select.select([self._wakes, *pipes], [], [], max(0.0, min([timeout, *starts])))[0].count(self._wakes):
            os.read(self._wakes, 4096)

    def _look(self) -> None:
        """See which children have died or hang."""
        # A long time between two looks is not counted as silence: then this process was stopped, and did not listen.
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
        """Whether another child takes the place of a dead one."""
        if death.code == 0 and self._until_idle:
            return False
        if death.code == DRAINED:
            self._spares -= slot.is_spare
            self._tell(
                f"{slot.name.capitalize()} {death.pid} was asked to drain and has ended; no other takes its place."
            )
            return False
        if death.code == MISCONFIGURED:
            self.code = 1  # the child has said why
            self.stop()
            return False
        pause = slot.pause_after(death, self._backoff)
        slot.start_at = time.monotonic() + pause.total_seconds()
        doing = f" It was in the code for {death.page}." if death.page else ""
        who = f"{slot.name.capitalize()} {death.pid}"
        self._tell(f"{who} {death.words}. Another one starts in {pause.total_seconds():.0f} s.{doing}")
        return True

    def _close(self, slot: ChildSlot, death: Death) -> None:
        self._slots.remove(slot)

    def _tell_unstartable(self, slot: ChildSlot, error: OSError) -> None:
        if str(error) != self._unstartable:
            self._unstartable = str(error)
            self._tell(f"A {slot.name} could not be started: {error}. It is tried again, with growing pauses.")

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
        """Hand it on. Children on which a second signal has no effect either are killed."""
        now = time.monotonic()
        if self._heeded_at is None:
            self._heeded_at = now
        elif now - self._heeded_at > ECHO.total_seconds():
            self.code = 128 + number
            for slot in self._slots:
                slot.kill_at = min(slot.kill_at, now + LAST_WORD.total_seconds())
        self.stop(number if self._hands_on_sigint else signal.SIGTERM)


def spawn(command: Sequence[str], *, folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Start:
    """Start a program. It finds what it inherits by `PARENT` and `Pulse.inherited`."""

    def start(box: BlackBox, pipe: int) -> tuple[int, Callable[[], int | None]]:
        import subprocess  # not needed for a fork, and not small

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
