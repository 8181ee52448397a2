"""Names of worker processes, and how to tell that a process is dead. Same machine only."""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path

from ..frontier.contract import Fate


def worker_name() -> str:
    """Unique per process: host, process id, start time, and the namespace in which the process id is valid."""
    pid = os.getpid()
    return f"{socket.gethostname()}/{pid}/{_born(pid) or 0}-{_world()}"


def numbered_name(worker: str, number: int) -> str:
    """The name of one of several workers in the process `worker`: `host/pid/start.2`."""
    return f"{worker}.{number}"


def is_gone(worker: str) -> bool:
    """True only if it is certain: the name is from this machine, and no such process is alive."""
    host, _, rest = worker.rpartition("/")[0].rpartition("/")
    born, _, world = worker.rpartition("/")[2].partition(".")[0].partition("-")
    if host != socket.gethostname() or world != _world() or not rest.isdigit() or not born.isdigit():
        return False
    pid = int(rest)
    if Path("/proc/self").exists():
        return _born(pid) != int(born)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def fate_of(worker: str) -> Fate:
    """What this machine knows of a worker's process."""
    if is_gone(worker):
        return Fate.GONE
    host, _, world = worker.partition("/")[0], "", worker.rpartition("-")[2].partition(".")[0]
    return Fate.ALIVE if host == socket.gethostname() and world == _world() else Fate.UNKNOWN


@cache
def _world() -> str:
    """Identifies where process ids are valid: this boot of this kernel, and the namespace of this container.

    Machines and containers may share a host name; none may mistake another's processes for dead.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return "0"
    return blake2b(f"{boot} {namespace}".encode(), digest_size=4).hexdigest()


def _born(pid: int) -> int | None:
    """Start time of a living process in clock ticks since boot; None for a zombie or an unknown process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
