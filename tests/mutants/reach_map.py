"""The map from functions to the tests that call them, one JSON file per test file, and the choice among these tests."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from . import reach
from .operators import Change

# They judge other things than the modules that are changed.
LEFT_OUT = ("tests/deploy/", "tests/docs/", "tests/fuzz/", "tests/mutants/", "tests/browser/")
LUA = Path("backends/redis/lua")
CONTRACTS = "tests/conformance/"
PORTION = 60  # test files


class ReachMap:
    """Which tests call a function. `folder` keeps what was noted; a test file that has changed since is noted again."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._seconds: dict[str, float] = {}
        self._tests: dict[str, set[str]] = defaultdict(set)  # of each function
        for file in self._files():
            if (
                note := self._note(file)
            ).exists():  # that of a file that has changed since may name tests that are gone
                self._read(json.loads(note.read_bytes()))

    @property
    def tests(self) -> Iterable[str]:
        return self._seconds.keys()

    def seconds(self, test: str) -> float:
        return self._seconds[test]

    def _read(self, noted: Mapping[str, list[list[object]]]) -> None:
        names = noted["functions"]
        for test, seconds, indices in noted["tests"]:
            self._seconds[test] = seconds
            for index in indices:
                self._tests[names[index]].add(test)

    def missing(self) -> list[str]:
        """The test files of which nothing is known, or that have changed."""
        return [file for file in self._files() if not self._note(file).exists()]

    def _files(self) -> list[str]:
        files = sorted(str(path.relative_to(self._root)) for path in (self._root / "tests").rglob("test_*.py"))
        return [file for file in files if not file.startswith(LEFT_OUT)]

    def _note(self, file: str) -> Path:
        digest = hashlib.sha256((self._root / file).read_bytes()).hexdigest()[:12]
        return self._folder / f"{file.removesuffix('.py').replace('/', '.')}-{digest}.json"

    def note(self, files: Sequence[str], tree: Path, *, processes: int) -> None:
        """Run the short tests of these files in a copy of the tree, and note what they call: a portion of the
        files after the other, so that little is lost when somebody ends this."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(files), PORTION):
            self._note_portion(files[start : start + PORTION], tree, processes)

    def _note_portion(self, files: Sequence[str], tree: Path, processes: int) -> None:
        with tempfile.TemporaryDirectory(prefix="gossamer-reach-") as folder:
            reach.follow_children(Path(folder), tree)
            paths = os.pathsep.join((folder, str(tree / "src")))
            subprocess.run(
                [sys.executable, "-m", "pytest", "-p", "tests.mutants.plugin", "-m", "not long", "--tb=no",
                 "-n", str(processes), "--dist", "loadfile", *files],
                cwd=tree, env={**os.environ, reach.FOLDER: folder, "PYTHONPATH": paths}, check=False,
            )  # fmt: skip
            self.keep(files, Path(folder))

    def keep(self, files: Sequence[str], lines: Path) -> None:
        """Write the notes of some files from the JSON lines of a run. A test that failed then can judge nothing."""
        functions: dict[str, set[str]] = defaultdict(set)
        seconds: dict[str, float] = defaultdict(float)
        failed: set[str] = set()
        for path in lines.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                noted = json.loads(line)
                functions[noted["test"]] |= set(noted["functions"])
                seconds[noted["test"]] += noted["seconds"]
                if noted["failed"]:
                    failed.add(noted["test"])
        for file in files:
            tests = [test for test in functions if test.startswith(f"{file}::") and test not in failed]
            names = sorted(set().union(*(functions[test] for test in tests)))
            index = {name: number for number, name in enumerate(names)}
            rows = [[test, round(seconds[test], 3), sorted(index[name] for name in functions[test])] for test in tests]
            note = {"functions": names, "tests": rows}
            for old in self._folder.glob(f"{file.removesuffix('.py').replace('/', '.')}-*.json"):
                old.unlink()
            self._note(file).write_text(json.dumps(note))
            self._read(note)

    def choose(self, path: Path, change: Change, enough: float) -> list[str]:
        """Return tests that call what has changed, for `enough` seconds: of every file the quickest, more of near."""
        found = set().union(*(self._tests.get(name, ()) for name in self._callers(path, change)))
        module = ".".join(("gossamer", *path.with_suffix("").parts))
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in sorted(found, key=lambda test: (self._seconds[test], test)):
            by_file[test.partition("::")[0]].append(test)
        ranked: list[tuple[int, float, str]] = []
        for file, tests in by_file.items():
            is_near = module in self._text(file) or path.stem in Path(file).stem
            is_near |= path.parts[0] == "backends" and file.startswith(CONTRACTS)  # which name no backend's module
            ranked += [(place // (8 if is_near else 1), self._seconds[test], test) for place, test in enumerate(tests)]
        chosen: list[str] = []
        spent = 0.0
        for _, seconds, test in sorted(ranked):
            if spent + seconds <= enough or not chosen:
                chosen.append(test)
                spent += seconds
        return chosen

    def _text(self, file: str) -> str:
        path = self._root / file
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _callers(self, path: Path, change: Change) -> set[str]:
        if change.owner is not None:
            return {f"{path}:{change.owner}"}
        if path.suffix == ".lua":
            users = [path.stem, *(script for script in self._scripts if path.stem in self._scripts[script])]
            return {
                name for user in users for name in self._mentions.get(user, ()) if name.startswith("backends/redis/")
            }
        mentions = self._mentions.get(change.name or "", set())
        return mentions or {name for name in self._tests if name.startswith(f"{path}:")}

    @cached_property
    def _scripts(self) -> dict[str, tuple[str, ...]]:
        """The parts that each Lua script is put together from."""
        from gossamer.backends.redis.connection import SHARED_PARTS

        names = [path.stem for path in (self._root / "src/gossamer" / LUA).glob("*.lua")]
        return {name: SHARED_PARTS.get(name, ("clock", "prelude")) for name in names}

    @cached_property
    def _mentions(self) -> dict[str, set[str]]:
        """The functions that use a name, or have it as a text."""
        found: dict[str, set[str]] = defaultdict(set)
        package = self._root / "src/gossamer"
        for path in package.rglob("*.py"):
            _collect(ast.parse(path.read_bytes()), f"{path.relative_to(package)}:", None, found)
        return found


def _collect(node: ast.AST, scope: str, owner: str | None, found: dict[str, set[str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}{child.name}"
            is_class = isinstance(child, ast.ClassDef)
            _collect(child, f"{inner}.", owner if is_class else owner or inner, found)
            continue
        if owner is not None:
            for word in _words(child):
                found[word].add(owner)
        _collect(child, scope, owner, found)


def _words(node: ast.AST) -> Iterable[str]:
    match node:
        case (
            ast.Name(id=word)
            | ast.Attribute(attr=word)
            | ast.keyword(arg=str() as word)
            | ast.Constant(value=str() as word)
        ):
            yield word
