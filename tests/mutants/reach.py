"""Which functions each test calls, and how long it takes. plugin.py has pytest call `start` and `write` around a test.

Each process writes a file of JSON lines into the folder `GOSSAMER_REACH`, one line per test. A function is named
`store/sink.py:Sink.write`, so that the map survives edits elsewhere in its file. Programs that a test starts are
followed, too, by the `sitecustomize` that `follow_children` writes; a program that was killed is missing.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

FOLDER = "GOSSAMER_REACH"
_PACKAGE = f"{os.sep}src{os.sep}gossamer{os.sep}"
_CHILD = "import sys; sys.path.append({root!r})\nfrom tests.mutants import reach; reach.note_child()\n"

_seen: dict[int, CodeType] = {}


def follow_children(folder: Path, root: Path) -> None:
    """Write what every Python with `folder` in its PYTHONPATH runs at start."""
    (folder / "sitecustomize.py").write_text(_CHILD.format(root=str(root)))


def note_child() -> None:
    """Begin to note in a program that a test has started."""
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if FOLDER in os.environ and test is not None:
        start()
        atexit.register(lambda: write(test.rpartition(" ")[0], 0.0))


def start() -> None:
    _seen.clear()
    threading.settrace(_note)
    sys.settrace(_note)


def _note(frame: FrameType, event: str, arg: object) -> None:
    _seen[id(frame.f_code)] = frame.f_code


def write(test: str, seconds: float, *, failed: bool = False) -> None:
    found = sorted({name for code in _seen.values() if (name := _function(code)) is not None})
    with (Path(os.environ[FOLDER]) / f"{os.getpid()}.jsonl").open("a") as out:
        out.write(json.dumps({"test": test, "seconds": round(seconds, 3), "failed": failed, "functions": found}) + "\n")


def _function(code: CodeType) -> str | None:
    _, _, path = code.co_filename.rpartition(_PACKAGE)
    is_ours = path != code.co_filename and not code.co_name.startswith("<module")
    return f"{path}:{code.co_qualname.partition('.<locals>')[0]}" if is_ours else None
