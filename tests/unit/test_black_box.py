"""What a process and its supervisor tell each other through shared memory, and how many processes a command wants."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gossamer.process.black_box import MARGIN, BlackBox
from gossamer.process.lone_child import processes_of


@pytest.fixture
def box() -> Iterator[BlackBox]:
    box = BlackBox.new()
    yield box
    box.close()


def test_silence_is_limited_while_there_is_work_and_no_longer(box: BlackBox) -> None:
    assert box.silence is None
    box.begin(timedelta(seconds=30))
    assert box.silence == 30 + MARGIN.total_seconds()
    box.rest()
    assert box.silence is None
    assert box.began


@pytest.mark.parametrize(
    ("words", "processes"),
    [
        ("crawl shop", 1),
        ("crawl shop --processes 3", 3),
        ("crawl --processes=4 shop", 4),
        ("crawl shop --processes", 1),  # the command itself says what is wrong
        ("crawl shop --processes many", 1),
        ("crawl shop --processes 0", 1),
    ],
)
def test_a_crawl_has_as_many_processes_as_it_says(words: str, processes: int) -> None:
    assert processes_of(words.split()) == processes
