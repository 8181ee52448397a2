"""One child under a supervisor: `gossamer crawl` and `gossamer worker` run in a fork of their own process; and a crew,
`gossamer crawl --processes 4`, whose first child stands for the command while the others help.

What it does: forks before anything heavy is loaded, watches the child, and ends as the child ends, with the same exit
code or signal. How it fails: a child that ends before it begins to work, or dies SPURIOUS times in a row with no page's
code running, is not replaced; one of a crew that was killed before it began is. How it recovers: like every supervisor
(supervisor.py).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NoReturn

from .black_box import PARENT, PULSE_VARIABLE, BlackBox, Crew
from .supervisor import HEEDED, PR_SET_PDEATHSIG, RESTARTED, ChildSlot, Death, Start, Supervisor

ON_PURPOSE = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE))
SHOWN_AGAIN = b"\r\x1b[2K\x1b[?25h"  # clears an abandoned progress line, and shows the cursor
SPURIOUS = 3  # deaths of an only child in a row that no page explains
MOST_PROCESSES = 64


class _LoneSupervisor(Supervisor):
    """Supervises one child, which stands for this process, and its helpers, which end with it. A child is replaced only
    if it died at work, and not on purpose."""

    _hands_on_sigint = True

    def __init__(self, slots: Sequence[ChildSlot], *, tell: Callable[[str], None]) -> None:
        super().__init__(slots, tell=tell)
        self._first = slots[0]

    def _follows(self, slot: ChildSlot, death: Death) -> bool:
        if death.code == RESTARTED:
            slot.fate, slot.unexplained = "", 0
            return True
        began = death.began or (PARENT.crew is not None and PARENT.crew.job != "")  # another one of the crew began
        killed = PARENT.crew is not None and death.code < 0  # while the others wait for it, or go on without it
        if death.in_order or not (began or killed) or (death.code < 0 and -death.code in ON_PURPOSE):
            return False
        if slot is self._first and os.isatty(2):
            os.write(2, SHOWN_AGAIN)
        slot.unexplained = 0 if death.page else slot.unexplained + 1
        fate = f"{death.words} in the code for {death.page}" if death.page else death.words
        if slot.unexplained > SPURIOUS:
            self._tell(f"The process {fate}, {slot.unexplained} times in a row. No page is to blame.")
            return False
        if not began:  # without a fate: the next one begins the crawl, and does not continue it
            self._tell(f"Process {death.pid} {fate} before it began to work. Another one starts.")
            return True
        slot.fate = (
            f"The process {fate}. Another one goes on; the pages it had in progress are tried apart from others."
        )
        return True

    def _close(self, slot: ChildSlot, death: Death) -> None:
        super()._close(slot, death)
        if slot is self._first:
            self.code = death.code
            if not self._stopping:  # a second signal would not let them drain
                self.stop()


def is_watched(arguments: list[str], verbs: Collection[str]) -> bool:
    """Does the command, one of these verbs, work on pages in this process? Children of a supervisor have theirs."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    supervises = verb == "worker" and any(word.startswith("--processes") for word in arguments)
    return (
        sys.platform == "linux"
        and verb in verbs
        and not supervises
        and "--help" not in arguments
        and PULSE_VARIABLE not in os.environ
        and threading.active_count() == 1  # a fork has only one thread
    )


def processes_of(arguments: list[str]) -> int:
    """How many processes a crawl is to have; 1 for invalid input: the command itself reports it."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == "--processes" or word.startswith("--processes="):
            return process_count(word.partition("=")[2] or following) or 1
    return 1


def process_count(text: str) -> int | None:
    """A number of processes as typed: 1 to 64, or `auto` for the number of cores; None for anything else."""
    if text == "auto":
        return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    return int(text) if text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_PROCESSES else None


def run_watched(command: Callable[[], None], processes: int = 1) -> None:
    """Run `command` in a child, again if need be, and in helpers beside it. Returns only in the children; this process
    ends as the first one did."""
    PARENT.crew = Crew(processes) if processes > 1 else None
    starts: list[Start] = [fork, *(partial(_fork_helper, rank) for rank in range(1, processes))]
    supervisor = _LoneSupervisor([ChildSlot(start, silence=None, drain_within=None) for start in starts], tell=_say)
    with suppress(OSError):  # no room for another process, or for its black box: then this one does the work
        code = supervisor.run()
        if code is not None:
            end_like(code)
    try:
        command()
    finally:
        if PARENT.box is not None:
            PARENT.box.end()


def _fork_helper(rank: int, box: BlackBox, pipe: int) -> tuple[int, Callable[[], int | None]]:
    pid, poll = fork(box, pipe)
    if pid == 0 and PARENT.crew is not None:
        PARENT.crew.rank = rank
    return pid, poll


def fork(box: BlackBox, pipe: int) -> tuple[int, Callable[[], int | None]]:
    """Start a copy of this process; it dies with this one. The signals in HEEDED stay blocked here, not in the copy."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    # Between the fork and the moment at which both have their handlers, signals wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
    try:
        pid = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise
    if pid:

        def poll() -> int | None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if ended else None

        return pid, poll
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    PARENT.box, PARENT.pulse = box, pipe
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0, lambda: None


def _say(words: str) -> None:
    os.write(2, f"gossamer: {words}\n".encode())


def end_like(code: int) -> NoReturn:
    """End this process with that exit code, or by that signal if it is negative. Ctrl-C always ends it with 130.

    At once: there is nothing to clean up here, and a further signal must not change the result.
    """
    if code < 0 and -code != signal.SIGINT:
        with suppress(OSError, ValueError):  # SIGKILL needs no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
