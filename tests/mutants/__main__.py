"""Change the code in small ways, and see which tests notice: `python -m tests.mutants --sample 120 --seed 1`.

The tree is copied, and the copies are changed: the working tree is only read. A mutant meets the tests that call the
changed function, those of its own file first, as many as fit into a bound of time. What each test calls is noted once,
in build/reach (see reach.py), and again for test files that have changed since.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from .operators import Change, changes
from .reach_map import ReachMap

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src/gossamer")
# The modules that carry promises; without those whose tests take long, of the browser and of MongoDB.
ROOMS = (
    "frontier", "crawl", "store", "backends/*.py", "backends/sqlite", "backends/redis", "backends/postgres",
    "backends/folder", "backends/object", "routing", "fetch/*.py", "fetch/managed", "pipeline",
    "schedule", "process", "model",
)  # fmt: skip
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
ENOUGH = 90.0  # seconds of tests, as noted, for one mutant; the first that fails ends them
SLOWER = 8  # this many times slower than noted: the mutant hangs
KILLED, HUNG, SURVIVED, UNREACHED = "killed", "hung", "survived", "no test"


@dataclass(frozen=True, slots=True)
class Mutant:
    path: Path
    change: Change

    @property
    def room(self) -> str:
        return self.path.relative_to(PACKAGE).parts[0]

    def source(self) -> bytes:
        return (ROOT / self.path).read_bytes()

    def diff(self) -> str:
        before = self.source().decode().splitlines()
        after = self.change.apply(self.source()).decode().splitlines()
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path), n=1, lineterm="")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    word: str
    tests: int
    seconds: float
    by: str = ""  # the test that noticed


def main() -> int:
    options = _options()
    mutants = sample(options.rooms, options.sample, options.seed)
    reach = ReachMap(ROOT, ROOT / "build" / "reach")
    verdicts: list[Verdict] = []
    with copies(options.jobs) as trees:
        if missing := reach.missing():
            print(f"What the tests of {len(missing)} files call must be noted first.", flush=True)
            tree = trees.get()
            reach.note(missing, tree, processes=options.jobs)
            trees.put(tree)
        print(f"{len(mutants)} mutants of seed {options.seed}; {options.seconds:.0f} s for all of them.", flush=True)
        trials = Trials(reach, trees, time.monotonic() + options.seconds)
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                for verdict in pool.map(trials.judge, mutants):
                    if verdict is not None:
                        verdicts.append(verdict)
                        _tell(verdict)
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                trials.stop()
    print(table(verdicts))
    if len(verdicts) < len(mutants):
        print(f"{len(mutants) - len(verdicts)} of them did not get their turn: SECONDS=... gives more time.")
    return 0


def _options() -> argparse.Namespace:
    reader = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    reader.add_argument("rooms", nargs="*", default=ROOMS, help="folders or files below src/gossamer")
    reader.add_argument("--sample", type=int, default=120, help="mutants")
    reader.add_argument("--seed", type=int, default=1, help="the same seed draws the same mutants of the same code")
    reader.add_argument("--seconds", type=float, default=1800, help="no mutant begins after them")
    reader.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    return reader.parse_args()


def sample(rooms: Sequence[str], size: int, seed: int) -> list[Mutant]:
    """Draw from all changes of the rooms, each with the same chance."""
    found = [Mutant(path, change) for path in _files(rooms) for change in changes(path, (ROOT / path).read_bytes())]
    return random.Random(seed).sample(found, min(size, len(found)))


def _files(rooms: Sequence[str]) -> list[Path]:
    paths: set[Path] = set()
    for room in rooms:
        for path in (ROOT / PACKAGE).glob(room):
            paths |= {*path.rglob("*.py"), *path.rglob("*.lua")} if path.is_dir() else {path}
    return sorted(path.relative_to(ROOT) for path in paths)


@contextmanager
def copies(number: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of what git knows or would take, one for each mutant at a time; gone at the end, whatever ends it."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    names = [name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    memory = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM else None
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # PostgreSQL may be another user
        trees: SimpleQueue[Path] = SimpleQueue()
        for index in range(number):
            tree = Path(folder) / f"tree{index}"
            for name in names:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
            trees.put(tree)
        yield trees


class Trials:
    """Mutants meet their tests, each in a copy of the tree that is free. None begins after `deadline`."""

    def __init__(self, reach: ReachMap, trees: SimpleQueue[Path], deadline: float) -> None:
        self._reach = reach
        self._trees = trees
        self._deadline = deadline
        self._running: set[int] = set()

    def stop(self) -> None:
        """End what runs, and begin nothing more."""
        self._deadline = 0.0
        for leader in list(self._running):
            _kill(leader)

    def judge(self, mutant: Mutant) -> Verdict | None:
        """Change a copy, run the tests that reach the change, and change it back. None: the time was over."""
        tests = self._reach.choose(mutant.path.relative_to(PACKAGE), mutant.change, ENOUGH)
        tree = self._trees.get()
        began, source = time.monotonic(), mutant.source()
        try:
            if began > self._deadline:
                return None
            if not tests:
                return Verdict(mutant, UNREACHED, 0, 0.0)
            while True:
                (tree / mutant.path).write_bytes(mutant.change.apply(source))
                word, by = self._run(tree, tests)
                (tree / mutant.path).write_bytes(source)
                culprit = named_in(by, tests)
                if culprit is None or self._run(tree, [culprit])[0] == SURVIVED:
                    break
                tests.remove(culprit)  # it fails without the change, too, and says nothing
        finally:
            (tree / mutant.path).write_bytes(source)
            self._trees.put(tree)
        return Verdict(mutant, word, len(tests), time.monotonic() - began, by)

    def _run(self, tree: Path, tests: Sequence[str]) -> tuple[str, str]:
        noted = sum(self._reach.seconds(test) for test in tests)
        longest = max(self._reach.seconds(test) for test in tests)
        names, temporary = tree / "tests.txt", tree.with_suffix(".tmp")
        names.write_text("\n".join(tests))
        temporary.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-rfE",
             f"--timeout={30 + SLOWER * longest:.0f}", f"@{names}"],
            cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(tree / "src"), "TMPDIR": str(temporary)},
        )  # fmt: skip
        self._running.add(process.pid)
        try:
            said, _ = process.communicate(timeout=60 + SLOWER * noted)
        except subprocess.TimeoutExpired:
            return HUNG, "all tests together"
        finally:
            _kill(process.pid)  # servers of the tests die with their parent; what has stayed in its session goes here
            process.communicate()
            self._running.discard(process.pid)
            shutil.rmtree(temporary, ignore_errors=True)
        if process.returncode == 0:
            return SURVIVED, ""
        culprit = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), said[-300:])
        return (HUNG if "Timeout" in culprit else KILLED), culprit


def named_in(line: str, tests: Sequence[str]) -> str | None:
    """The test that a line of pytest's summary names, if it is one of these."""
    name = line.removeprefix("FAILED ").removeprefix("ERROR ")
    return max((test for test in tests if name == test or name.startswith(f"{test} - ")), key=len, default=None)


def _kill(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _tell(verdict: Verdict) -> None:
    where = f"{verdict.mutant.path}:{verdict.mutant.change.line}"
    print(f"{verdict.word:9} {where}  ({verdict.tests} tests, {verdict.seconds:.0f} s) {verdict.by[:160]}", flush=True)
    if verdict.word in (SURVIVED, UNREACHED):
        print(verdict.mutant.diff(), flush=True)


def table(verdicts: Sequence[Verdict]) -> str:
    """One line per room and one for all; a mutant that hangs a test is noticed, too, if late."""
    lines = [f"{'room':10} {'mutants':>8} {'killed':>8} {'hung':>6} {'survived':>9} {'no test':>8} {'noticed':>8}"]
    rooms = sorted({verdict.mutant.room for verdict in verdicts})
    for room in [*rooms, None]:
        words = Counter(verdict.word for verdict in verdicts if room in (verdict.mutant.room, None))
        noticed = (words[KILLED] + words[HUNG]) / max(1, words.total())
        lines.append(
            f"{room or 'all':10} {words.total():8} {words[KILLED]:8} {words[HUNG]:6} {words[SURVIVED]:9} "
            f"{words[UNREACHED]:8} {noticed:8.1%}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
