"""What is left of browsers whose keepers were killed: processes without a watchdog, folders without a worker.

What it does: a folder says which worker it belongs to. When that worker is gone, whoever starts next ends the
processes that live in the folder, and removes it. A worker that lost a watchdog ends that browser's family itself.
How it fails: it does not. What is not ours, or cannot be told for sure, is left alone. Linux only.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from .watchdog import descendants

PREFIX = "gossamer-browser-"
_OWNER = "worker"
_KILL_PATIENCE = 5.0  # seconds for the kernel to bury what was killed
Family = dict[int, int]  # processes, each with the moment it was born: ids are used again


def born_at(pid: int) -> int | None:
    """In ticks since the machine started; None for a process that is not there, or only waits to be buried."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def family_of(root: int) -> Family:
    """The descendants of a process."""
    return {pid: born for pid in descendants(root) if (born := born_at(pid)) is not None}


def new_folder() -> Path:
    """A folder for one browser of this process."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    own = os.getpid()
    (folder / _OWNER).write_text(f"{own} {born_at(own)} {_namespace()}", encoding="ascii")
    return folder


def kill(known: Family) -> None:
    """Those that are still the same processes."""
    for pid, born in known.items():
        if born_at(pid) == born:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def clear(folder: Path, known: Family) -> None:
    """End `known` and all that lives in the folder, then remove it. Takes a moment: not for the loop's own thread."""
    deadline = time.monotonic() + _KILL_PATIENCE
    while left := _alive(known) | living_in(folder):
        kill(left)
        if time.monotonic() > deadline:
            break  # the kernel holds them, in a system call that does not end
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Clear the folders of workers that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and _is_orphan(folder):
            clear(folder, {})


def living_in(folder: Path) -> Family:
    """Processes of ours that were given the folder for their files, and what descends from them."""
    place = os.fsencode(folder)
    found: Family = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        pid = int(name)
        try:
            ours = os.stat(f"/proc/{name}").st_uid == os.geteuid()
            if not ours or pid == os.getpid() or not _carries(name, place):
                continue
        except OSError:
            continue  # gone, or not to be looked at
        born = born_at(pid)
        if born is not None:
            found[pid] = born
            found |= family_of(pid)
    return found


def _carries(name: str, place: bytes) -> bool:
    words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
    if any(word == place or b"=" + place + b"/" in word for word in words):
        return True
    return b"TMPDIR=" + place in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")


def _alive(known: Family) -> Family:
    return {pid: born for pid, born in known.items() if born_at(pid) == born}


def _is_ours(folder: Path) -> bool:
    try:
        return folder.lstat().st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink()
    except OSError:
        return False


def _is_orphan(folder: Path) -> bool:
    """Is its worker gone? Where it does not say, or says it of another container's process, nobody knows."""
    try:
        pid, born, namespace = (folder / _OWNER).read_text(encoding="ascii").split()
        return namespace == _namespace() and born_at(int(pid)) != int(born)
    except (OSError, ValueError):
        return False


def _namespace() -> str:
    """Process ids mean something within one namespace only."""
    return os.readlink("/proc/self/ns/pid")
