"""The changes that `make mutants` makes, and the tests that it chooses for them."""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import pytest

from .__main__ import named_in
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
        ("def f(a):\n    return 0.0, 1.5", ["1.0, 1.5", "0.0, 3.0"]),
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
    ]


@pytest.mark.parametrize(
    "text",
    [
        "if TYPE_CHECKING:\n    MOST = 3",
        "def f(a, b):\n    return zip(a, b, strict=True)",
        'Q = "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)"',
    ],
)
def test_what_nobody_could_notice_is_left_alone(text: str) -> None:
    assert versions("a.py", text) == []


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


NEAR, FAR = "tests/unit/test_near.py", "tests/unit/test_far.py"
CHANGES = changes(PurePath("sink.py"), b"class Sink:\n    def add(self):\n        self.flush()")


@pytest.fixture
def reach(tmp_path: Path) -> ReachMap:
    """The notes of two test files, of which one imports the module."""
    for file, text in {NEAR: "from gossamer.store.sink import Sink", FAR: ""}.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    lines, notes = tmp_path / "lines", tmp_path / "notes"
    for folder in (lines, notes):
        folder.mkdir()
    calls, other = ["store/sink.py:Sink.add"], ["store/sink.py:limit"]
    noted = [
        {"test": f"{NEAR}::test_0", "seconds": 1.0, "failed": False, "functions": calls},
        {"test": f"{NEAR}::test_1", "seconds": 3.0, "failed": False, "functions": [*calls, *other]},
        {"test": f"{NEAR}::test_2", "seconds": 1.0, "failed": False, "functions": other},
        {"test": f"{NEAR}::test_3", "seconds": 1.0, "failed": True, "functions": calls},
        {"test": f"{FAR}::test_0", "seconds": 0.5, "failed": False, "functions": calls},
        {"test": f"{FAR}::test_1", "seconds": 0.6, "failed": False, "functions": calls},
    ]
    (lines / "1.jsonl").write_text("\n".join(map(json.dumps, noted)))
    ReachMap(tmp_path, notes).keep([NEAR, FAR], lines)
    return ReachMap(tmp_path, notes)


@pytest.mark.parametrize(
    ("enough", "chosen"), [(9.0, ["far_0", "near_0", "near_1", "far_1"]), (2.0, ["far_0", "near_0"]), (0.1, ["far_0"])]
)
def test_tests_that_pass_and_call_the_changed_function_are_chosen(
    reach: ReachMap, enough: float, chosen: list[str]
) -> None:
    found = reach.choose(Path("store/sink.py"), CHANGES[0], enough)
    assert [test.removeprefix("tests/unit/test_").replace(".py::test", "") for test in found] == chosen


def test_the_test_that_noticed_is_known_by_its_line() -> None:
    tests = ["tests/a.py::test_x", "tests/a.py::test_x[a - b]", "tests/a.py::test_x[1]"]
    assert named_in("FAILED tests/a.py::test_x[a - b] - assert 1 == 2", tests) == tests[1]
    assert named_in("ERROR tests/a.py::test_x - Failed: Timeout", tests) == tests[0]
    assert named_in("FAILED tests/a.py::test_x[1]", tests) == tests[2]
    assert named_in("INTERNALERROR> no such option", tests) is None


def test_a_test_file_that_has_changed_is_noted_again(reach: ReachMap, tmp_path: Path) -> None:
    assert reach.missing() == []
    (tmp_path / FAR).write_text("import gossamer")

    again = ReachMap(tmp_path, tmp_path / "notes")

    assert again.missing() == [FAR]
    assert all(test.startswith(NEAR) for test in again.tests)
