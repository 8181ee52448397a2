"""The watchdog: stands between a worker and its browser, and lets no process of the browser outlive either.

    python -I -S watchdog.py WORKER FOLDER NODE CLI ...

It starts the driver (NODE CLI ...), which starts the browser. It ends when the driver ends, when the worker with the
process id WORKER ends in any way, or on SIGTERM; before that it kills all its descendants and removes FOLDER. The
kernel makes it the parent of every orphan among its descendants (it is a "subreaper"), so that none can escape, not
even one that started a new session. If the watchdog itself is killed, the kernel kills the driver, and a browser whose
driver is gone ends by itself. chromium.py deals with a browser that hangs, and with FOLDER.

Run as a program, with the standard library alone: it must start fast and must not fail. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

_SET_PARENT_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_TICK = 500  # milliseconds between two checks, if the kernel cannot report the worker's end
_KEPT = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "XDG_CACHE_HOME", "FONTCONFIG_PATH", "FONTCONFIG_FILE")
_KEPT_FAMILIES = ("PW_", "PLAYWRIGHT_", "LC_")


def main(worker: int, folder: str, command: list[str]) -> int:
    kernel = ctypes.CDLL(None)
    kernel.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.setsid()  # a Ctrl-C in the terminal is for the worker, which decides what happens to its pages
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    told = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: told.append(True))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    own = os.getpid()

    def tie() -> None:
        kernel.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != own:
            os._exit(1)

    # No variable of the worker that might be a secret reaches a browser.
    environment = {
        name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_FAMILIES)
    }
    environment.pop("PLAYWRIGHT_NODEJS_PATH", None)
    environment["TMPDIR"] = folder
    driver = subprocess.Popen(command, env=environment, preexec_fn=tie)  # noqa: S603
    nowhere = os.open(os.devnull, os.O_RDWR)
    for used in (0, 1):  # the driver owns these now; a copy here would keep them open
        os.dup2(nowhere, used)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    patience: int | None = None
    try:
        poll.register(os.pidfd_open(worker), select.POLLIN)
    except OSError:
        patience = _TICK
    status: int | None = None
    while status is None and not told and os.getppid() == worker:
        poll.poll(patience)
        with suppress(BlockingIOError):
            os.read(wake, 4096)
        status = reap(driver.pid)
    kill_all(own)
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if status is None else os.waitstatus_to_exitcode(status)


def reap(wanted: int) -> int | None:
    """Reap children that ended. Return the exit status of `wanted`, if it ended."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == wanted:
            found = status


def kill_all(root: int) -> None:
    """Kill every descendant, repeatedly until none is left: one may start while another is killed."""
    while True:
        for pid in descendants(root):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return  # no process is left
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
