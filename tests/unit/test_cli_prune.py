"""`gossamer prune`, as a user sees it."""

from __future__ import annotations

import pytest

from tests.unit.commandline import Project
from tests.unit.commandline import project as project
from tests.unit.crawled import crawl_half


@pytest.fixture
def crawled(project: Project) -> Project:
    project.fill(crawl_half)
    return project


def test_everything_of_that_age_goes_but_records(crawled: Project) -> None:
    said = crawled.run("prune", "--attempts", "0s", "--pages", "30d")

    assert said.code == 0
    assert said.lines == [
        "attempts  3 attempts and visits older than 0s deleted",
        "pages     0 B of raw pages older than 30d deleted",
    ]
    assert len(crawled.run("export").lines) == 1
    assert crawled.run("prune", "--attempts", "0s").lines == ["attempts  0 attempts and visits older than 0s deleted"]


def test_what_is_younger_stays(crawled: Project) -> None:
    said = crawled.run("prune", "--attempts", "90d")

    assert said.lines == ["attempts  0 attempts and visits older than 90d deleted"]
    assert crawled.run("prune", "--attempts", "0s").out.startswith("attempts  3 ")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], "Say what may go: gossamer prune --attempts 90d --pages 30d"),
        (["--attempts", "soon"], "--attempts 'soon' is no age. Write it like 90d"),
        (["--pages", "9" * 400 + "d"], "is no age"),
    ],
)
def test_bad_input_gets_one_line_and_deletes_nothing(crawled: Project, words: list[str], answer: str) -> None:
    said = crawled.run("prune", *words)

    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1
    assert crawled.run("prune", "--attempts", "0s").out.startswith("attempts  3 ")


def test_prune_where_nothing_was_crawled_says_so(project: Project) -> None:
    said = project.run("prune", "--attempts", "90d")

    assert said.code == 1
    assert "Nothing has been crawled" in said.err
    assert not (project.folder / "gossamer-data").exists()
