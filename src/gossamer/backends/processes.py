"""Names of worker processes, and how to tell that one is gone for good. Same machine only."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def worker_name() -> str:
    """Unique per process life: host, process id and the moment the process began."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}/{_born(pid) or 0}"


def hand_name(worker: str, number: int) -> str:
    """One of several workers in the process `worker`: `host/pid/start.2`."""
    return f"{worker}.{number}"


def is_gone(worker: str) -> bool:
    """True only when it is certain: the name is of this machine, and no such process lives."""
    host, _, rest = worker.rpartition("/")[0].rpartition("/")
    born = worker.rpartition("/")[2].partition(".")[0]
    if host != socket.gethostname() or not rest.isdigit():
        return False
    pid = int(rest)
    if Path("/proc/self").exists():
        return _born(pid) != int(born or 0)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _born(pid: int) -> int | None:
    """Start time of a living process in clock ticks since boot; None when there is none (a zombie is none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
