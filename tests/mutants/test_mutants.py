"""The changes that `make mutants` makes, and the tests that it chooses for them."""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest

from .operators import changes
from .reach_map import ReachMap


def versions(path: str, text: str) -> list[str]:
    source = text.encode()
    return [change.apply(source).decode() for change in changes(PurePath(path), source)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a):\n    return a < 3", ["a <= 3", "a < 4"]),
        ("def f(a, b):\n    return a is not b and b", ["a is b and b", "a is not b or b"]),
        ("def f(a):\n    return a not in (b'x',)", ["a in (b'x',)"]),
        ("def f(a):\n    return not (a or é)", ["(a or é)", "not (a and é)"]),
    ],
)
def test_each_comparison_bound_and_junction_has_its_change(text: str, expected: list[str]) -> None:
    assert [one.partition("return ")[2] for one in versions("a.py", text)] == expected


def test_statements_and_arguments_are_left_out() -> None:
    text = "async def f(self):\n    await self.sync()\n    self.ready = True\n    g(1, force=True, strict=True)"
    assert [one.partition(":\n    ")[2].replace("\n    ", "; ") for one in versions("a.py", text)] == [
        "pass; self.ready = True; g(1, force=True, strict=True)",
        "await self.sync(); pass; g(1, force=True, strict=True)",
        "await self.sync(); self.ready = False; g(1, force=True, strict=True)",
        "await self.sync(); self.ready = True; pass",
        "await self.sync(); self.ready = True; g(2, force=True, strict=True)",
        "await self.sync(); self.ready = True; g(1,  strict=True)",
        "await self.sync(); self.ready = True; g(1, force=False, strict=True)",
        "await self.sync(); self.ready = True; g(1, force=True, strict=False)",
    ]


def test_text_for_people_is_left_alone() -> None:
    text = '"""Up to 3."""\n\ndef f(n):\n    """Not < 2."""\n    # and 5\n    raise E(f"{n + 1} or more")'
    assert [one.splitlines()[-1].strip() for one in versions("a.py", text)] == ["pass"]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.lua", "if a <= 1 and b ~= 'x < y' then -- or 2", ["a < 1", "a <= 2", "1 or b", "b == 'x"]),
        ("a.py", 'Q = "SELECT a FROM t WHERE a >= 5 AND b = ?1"', ["a > 5", "a >= 6", "5 OR b"]),
        ("a.py", 'Q = "PRAGMA synchronous = FULL"', ["= NORMAL"]),
    ],
)
def test_lua_and_sql_are_changed_by_their_words(path: str, text: str, expected: list[str]) -> None:
    found = versions(path, text)
    assert len(found) == len(expected)
    assert all(part in one for part, one in zip(expected, found, strict=True))


def test_tests_that_call_the_changed_function_are_chosen_the_near_and_quick_ones_first(tmp_path: Path) -> None:
    # given notes of two test files, of which one imports the module
    near, far = "tests/unit/test_near.py", "tests/unit/test_far.py"
    for file, text in {near: "from gossamer.store.sink import Sink", far: ""}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    notes = tmp_path / "reach"
    notes.mkdir()
    for file, tests in {near: [(1.0, [0]), (3.0, [0]), (1.0, [1])], far: [(0.5, [0]), (0.6, [0])]}.items():
        rows = [[f"{file}::test_{number}", seconds, calls] for number, (seconds, calls) in enumerate(tests)]
        note = {"functions": ["store/sink.py:Sink.add", "store/sink.py:limit"], "tests": rows}
        (notes / f"{file.replace('/', '.')}-0.json").write_text(json.dumps(note))
    [change] = changes(PurePath("sink.py"), b"class Sink:\n    def add(self):\n        self.flush()")

    def chosen(enough: float) -> list[str]:
        found = ReachMap(tmp_path, notes).choose(Path("store/sink.py"), change, enough)
        return [test.removeprefix("tests/unit/test_") for test in found]

    assert chosen(9.0) == ["far.py::test_0", "near.py::test_0", "near.py::test_1", "far.py::test_1"]
    assert chosen(2.0) == ["far.py::test_0", "near.py::test_0"]
