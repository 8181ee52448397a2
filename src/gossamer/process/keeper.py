"""The keeper: the command runs in a child process, which is started again when a page kills it.

What it does: forks, hands on the signals it gets, and ends as the child ends: same exit code, same signal. A child that
crashed at work (os._exit in a callback, a fault in C code, the kernel's memory killer), or that is silent for longer
than any page may take and is killed for it, is followed by another one, which goes on with the same job; the page gets
one delivery closer to the dead letters each time. How it fails: a child that crashes before it begins to work, or
SPURIOUS times in a row with no page's code running, is not replaced. How it recovers: it has nothing to lose; when the
keeper itself is killed, Linux kills the child with it. On other systems there is no keeper, and the command runs as it
is. This module imports next to nothing, so that the keeper is small and its fork is cheap.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from .black_box import PULSE_VARIABLE, TIES, BlackBox

TICK = 1.0  # seconds
ECHO = 1.0  # seconds; a signal this soon after the first is the same one
LAST_WORD = 2.0  # seconds that a child has to end after it was told to end at once
SPURIOUS = 3  # deaths in a row that no page explains
KEPT = ("crawl", "worker")
HEEDED = (signal.SIGINT, signal.SIGTERM)
ON_PURPOSE = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE))
SHOWN_AGAIN = b"\r\x1b[2K\x1b[?25h"  # clears a progress line that nobody continues, and shows the cursor
PR_SET_PDEATHSIG = 1


def is_kept(arguments: list[str]) -> bool:
    """Whether the command is one that works through pages in this process. Children of a supervisor have theirs."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    supervises = any(word.startswith("--processes") for word in arguments)
    asks_for_help = "--help" in arguments
    return (
        sys.platform == "linux"
        and verb in KEPT
        and not supervises
        and not asks_for_help
        and PULSE_VARIABLE not in os.environ
        and threading.active_count() == 1  # a fork has but one
    )


def keep(command: Callable[[], None]) -> None:
    """Run `command` in a child, again if need be. Returns in the child alone; this process ends as the last one did."""
    try:
        box = BlackBox.new()
    except OSError:  # no place for it: then nobody would know why a child died
        command()
        return
    spurious = 0
    while True:
        child = Child(command, box)
        if child.pid == 0:
            return
        code = child.watch()
        if box.ended or child.told or not box.began or (code < 0 and -code in ON_PURPOSE):
            end_like(code)
        if os.isatty(2):
            os.write(2, SHOWN_AGAIN)
        page = box.page
        spurious = 0 if page else spurious + 1
        fate = _fate(code, page, hung=child.hung)
        if spurious > SPURIOUS:
            os.write(2, f"gossamer: The process {fate}, {spurious} times in a row. That is no page's doing.\n".encode())
            end_like(code)
        box.renew(f"The process {fate}. Another one goes on; the pages in hand are tried apart from the others.")


class Child:
    """A process under way. `pid` is 0 in the child itself, when its work is over."""

    def __init__(self, command: Callable[[], None], box: BlackBox) -> None:
        self._box = box
        self.told = False  # to end, by a signal
        self.hung = False
        self._told_at = 0.0
        self._kill_at = float("inf")
        keeper = os.getpid()
        pulse, theirs = os.pipe()
        os.set_blocking(theirs, False)
        sys.stdout.flush()
        sys.stderr.flush()
        # Between the fork and the moment at which both know what to do, signals wait.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
        self.pid = os.fork()
        if self.pid:
            os.close(theirs)
            self._pulse = pulse
            for number in HEEDED:
                signal.signal(number, self._hand_on)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return
        os.close(pulse)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        TIES.box, TIES.pulse = box, theirs
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            command()
        finally:
            box.end()

    def watch(self) -> int:
        """Until the child ends; return its exit code, negative for a signal."""
        silent, listening = 0.0, True
        while True:
            felt = b""
            if select.select([self._pulse] if listening else [], [], [], TICK if listening else 0.01)[0]:
                felt = os.read(self._pulse, 4096)
                listening = bool(felt)  # it closes its end when it dies, and a moment later it can be waited for
            # Counted in turns of our own: when this process was stopped, nobody listened, and that is no silence.
            silent = 0.0 if felt or not listening else silent + TICK
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                os.close(self._pulse)
                return os.waitstatus_to_exitcode(status)
            allowed = self._box.silence
            self.hung = self.hung or (allowed is not None and silent >= allowed)
            if self.hung or time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)

    def _hand_on(self, number: int, _: object) -> None:
        """To the child. When the second one has no effect either, the child is beyond hearing."""
        now = time.monotonic()
        if self.told and now - self._told_at > ECHO:
            self._kill_at = min(self._kill_at, now + LAST_WORD)
        elif not self.told:
            self.told, self._told_at = True, now
        self._signal(signal.Signals(number))

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _fate(code: int, page: str, *, hung: bool) -> str:
    if hung:
        how = "did not respond and was killed"
    elif code >= 0:
        how = f"died with exit code {code}"
    else:
        known = -code in set(signal.Signals)
        how = f"was ended by {signal.Signals(-code).name if known else f'signal {-code}'}"
    return f"{how} in the code for {page}" if page else how


def end_like(code: int) -> NoReturn:
    """End this process with that exit code, or by that signal when it is negative. Ctrl-C always ends it with 130.

    At once: there is nothing to tidy up here, and a further signal must not change what is said.
    """
    if code < 0 and -code != signal.SIGINT:
        with suppress(OSError, ValueError):  # SIGKILL needs no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
