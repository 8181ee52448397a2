"""A wait in vain ends, and says for what. And no test waits in any other way."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import patience
from tests.patience import poll_until, unchanged, until

TESTS = Path(__file__).parents[1]


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.02)


@pytest.mark.usefixtures("_impatient")
async def test_a_wait_in_vain_says_for_what():
    with pytest.raises(AssertionError, match=r"Not within 0\.02 s: .*lambda: 1 > 2"):
        await until(lambda: 1 > 2)
    with pytest.raises(AssertionError, match=r"Not within 0\.02 s: the sun"):
        poll_until(lambda: False, "the sun")
    with pytest.raises(AssertionError, match="an answer"):
        await until(asyncio.Event().wait, "an answer")  # the look itself hangs
    with pytest.raises(AssertionError, match="bool"):
        poll_until(bool)


async def test_what_was_seen_is_returned_and_what_fails_is_raised():
    async def fail():
        raise TimeoutError("theirs")

    steps: list[int] = []
    assert await until(lambda: len(steps) == 3 and steps, between=lambda: steps.append(1)) == [1, 1, 1]
    assert poll_until(lambda: "".join("x" for _ in steps)) == "xxx"
    with pytest.raises(TimeoutError, match="theirs"):
        await until(fail)
    with pytest.raises(ZeroDivisionError):
        poll_until(lambda: False, between=lambda: 1 / 0)


def test_a_count_stands_still_when_two_looks_see_the_same():
    counts = iter([1, 2, 3, 3])
    poll_until(unchanged(lambda: next(counts)), every=0)
    assert list(counts) == []


def _naps(tree: ast.AST) -> Iterator[tuple[ast.Call, float]]:
    """The calls to sleep for a number, and the number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "sleep" and node.args:
            (seconds, *_) = node.args
            if isinstance(seconds, ast.Constant):
                yield node, seconds.value


def test_nobody_sleeps_for_a_number_of_seconds_or_polls_without_a_deadline():
    """A site that is slow on purpose sleeps for a time that has a name; whoever waits takes `until` or `poll_until`."""
    found = []
    for file in sorted(TESTS.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "sleep" not in text or file == Path(patience.__file__):
            continue
        tree = ast.parse(text)
        polls = [
            loop for loop in ast.walk(tree) if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant)
        ]
        calls = [call for call, seconds in _naps(tree) if seconds] + [call for loop in polls for call, _ in _naps(loop)]
        found += [f"{file.relative_to(TESTS)}:{call.lineno}: {ast.unparse(call)}" for call in calls]
    assert found == []
