"""What a store has taken survives a power cut: when it says so, nothing that it wrote still waits for the disk.

A program does each deed below in a folder of its own, under strace, and writes a word when the deed is done. The log
says which files and which names in folders had then been written and not synced. Whatever a store's format is, none may
be left.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from tests.patience import PATIENCE

PROGRAM = """
import asyncio, os, sys
from datetime import timedelta
from pathlib import Path

from gossamer.access.contract import ApiKey
from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import SystemClock
from gossamer.project.upkeep.move.backup_file import BackupHeader, new_backup
from gossamer.store.durable import sync_folder
from gossamer.store.export.destination import destination_at, write_whole
from gossamer.store.part_files import PartFolder
from gossamer.store.spool import Spool
from tests.unit.spooling import snap, visit, waiting

root = Path(sys.argv[1])


def done(name):
    os.write(1, f"done {name}".encode())


async def main():
    async with open_sqlite_records(root / "records" / "records.db", SystemClock()) as records:
        await records.save([visit(1)])
        done("records")

    terms = {"lease_duration": timedelta(seconds=60), "terms_for": lambda job: None}
    async with open_sqlite_state(root / "state" / "state.db", SystemClock(), **terms) as state:
        await state.keys.add(ApiKey(id="1", name="me", digest="0", scopes=("jobs",), created_at=0.0))
        await state.durable()
        done("state")

    async with FolderArchive(root / "archive", level=1, writer="w") as archive:
        await archive.put([snap(1)])
        done("archive")
        await archive.put([snap(2)])  # the file is there already
        done("archive")

    async with FolderArchive(root / "segment", level=1, writer="w") as archive:
        await archive.write_segment("2027-01-15/w-1.zst", b"whole")
        done("segment")

    part = PartFolder(root / "download").open("job", b"fingerprint")
    await part.write(b"all of it")
    finished = part.finish()
    async with FolderArchive(root / "file", level=1, writer="w") as archive:
        await archive.put_file(finished.path, finished.sha256)
        done("file")

    async with Spool(root / "spool", max_bytes=None) as spool:
        await spool.append([waiting(1)])
        done("spool")

    for name in ("export", "backup"):
        (root / name).mkdir()  # by the user
    sync_folder(root)
    async with destination_at(root / "export" / "items.jsonl").opened() as stream:
        stream.write(b"{}")
    write_whole(root / "export" / "cursor.json", b"{}")
    done("export")

    header = BackupHeader(format=1, version="1", project="p", fingerprints=1, made_at=0.0, counts={})
    with new_backup(root / "backup" / "project.backup", header):
        pass
    done("backup")


asyncio.run(main())
"""
DEEDS = ("records", "state", "archive", "segment", "file", "spool", "export", "backup")
_CALLS = "openat,mkdir,rename,unlink,write,pwrite64,writev,ftruncate,fsync,fdatasync"
_LINE = re.compile(r"(?P<thread>\d+) +(?:<\.\.\. \w+ resumed>(?P<rest>.*)|(?P<call>\w+\(.*))")
_PATH = re.compile(r'"([^"]*)"')
_OPEN_FILE = re.compile(r"\w+\(\d+<([^>]*)>")


class Waiting:
    """The files and the names that a power cut would take, as the calls of a program follow each other."""

    def __init__(self) -> None:
        self._bytes: set[str] = set()
        self._names: set[str] = set()
        self._known: set[str] = set()  # they were made before

    def below(self, folder: Path) -> set[str]:
        found = {f"the content of {path}" for path in self._bytes} | {f"the name of {path}" for path in self._names}
        # SQLite makes the file -shm again after a crash.
        return {line for line in found if f"{folder}/" in f"{line}/" and not line.endswith("-shm")}

    def follow(self, call: str) -> None:
        verb, paths, held = call.partition("(")[0], _PATH.findall(call), _OPEN_FILE.match(call)
        if " = -1 " in call:
            return
        if verb == "mkdir" or (verb == "openat" and "O_CREAT" in call and paths[0] not in self._known):
            self._names.add(paths[0])
            self._known.add(paths[0])
        elif verb == "rename":
            old, new = paths
            self._names.add(new)
            self._bytes = self._bytes - {old, new} | ({new} if old in self._bytes else set())
            self._names.discard(old)
        elif verb == "unlink":
            self._bytes.discard(paths[0])
            self._names.discard(paths[0])
            self._known.discard(paths[0])
        elif held is not None and verb in ("fsync", "fdatasync"):
            self._bytes.discard(held[1])
            self._names -= {path for path in self._names if str(PurePath(path).parent) == held[1]}
        elif held is not None and verb != "openat":
            self._bytes.add(held[1])


def calls(log: str) -> Iterator[str]:
    """The calls in the order of their ends. A call that another thread interrupts has two lines."""
    begun: dict[str, str] = {}
    for line in log.splitlines():
        if (found := _LINE.match(line)) is None:
            continue
        call = found["call"] or begun.pop(found["thread"], "") + found["rest"]
        if call.endswith("<unfinished ...>"):
            begun[found["thread"]] = call.removesuffix("<unfinished ...>")
        elif call:
            yield call


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What still waited for the disk when each deed was done."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: apt-get install strace")
    folder = tmp_path_factory.mktemp("stores")
    log = folder / "calls"
    traced = [strace, "-f", "-qq", "-y", "-s", "64", "--seccomp-bpf", "-e", f"trace={_CALLS}", "-o", str(log)]
    subprocess.run(
        [*traced, sys.executable, "-c", PROGRAM, str(folder)], check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL
    )
    waiting, found = Waiting(), dict[str, set[str]]()
    for call in calls(log.read_text()):
        if (word := re.search(r'"done (\w+)"', call)) is not None:
            found[word[1]] = found.get(word[1], set()) | waiting.below(folder / word[1])
        else:
            waiting.follow(call)
    return found


@pytest.mark.parametrize("deed", DEEDS)
def test_nothing_waits_for_the_disk_when_a_store_says_that_it_is_done(left: dict[str, set[str]], deed: str) -> None:
    assert left[deed] == set()
