"""`gossamer prune`, as a user sees it."""

from __future__ import annotations

import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.model.task import UrlState
from gossamer.project.open import Project
from tests.conformance.frontiers import candidate
from tests.unit.commandline import ProjectFolder, on_a_terminal
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, crawl_half


@pytest.fixture
def crawled(project: ProjectFolder) -> ProjectFolder:
    project.fill(crawl_half)
    return project


def test_everything_of_that_age_goes_but_records(crawled: ProjectFolder) -> None:
    said = crawled.run("prune", "--attempts", "0s", "--pages", "30d")

    assert said.code == 0
    assert said.lines == [
        "attempts  3 attempts and visits older than 0s deleted",
        "pages     0 B of raw pages older than 30d deleted",
    ]
    assert len(crawled.run("export").lines) == 1
    assert crawled.run("prune", "--attempts", "0s").lines == ["attempts  0 attempts and visits older than 0s deleted"]


async def end_some(system: Project) -> None:
    """Jobs of the name books: one that is done, one with a dead letter, one more that is done."""
    for outcome in (UrlState.DONE, UrlState.DEAD, UrlState.DONE):
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=True)
        await system.state.frontier.add(job.id, [candidate(f"{SHOP}/done")])
        (lease,) = (await system.state.frontier.lease(job.id, "w", 1)).leases
        if outcome is UrlState.DEAD:
            await system.state.frontier.bury(lease, "http-404", "gone")
        else:
            await system.state.frontier.complete(lease, outcome)
        await system.state.jobs.close_job(job.id, "done")


def test_old_jobs_are_forgotten_but_for_the_newest_and_those_with_dead_letters(crawled: ProjectFolder) -> None:
    crawled.fill(end_some)  # and books-1 is replaced, and has dead letters

    assert crawled.run("prune", "--jobs", "30d").lines == ["jobs      0 jobs forgotten"]
    said = crawled.run("prune", "--jobs", "0s")
    assert said.lines == ["jobs      1 job forgotten; 2 with dead letters kept (see --dead)"]
    assert crawled.run("prune", "--dead", "0s").lines == ["jobs      2 jobs forgotten"]

    listed = crawled.run("job", "list").out
    assert "books-4" in listed
    assert not any(f"books-{number} " in listed for number in (1, 2, 3))
    assert len(crawled.run("export").lines) == 1
    why = crawled.run("why", f"{SHOP}/broken").out
    assert "No job knows it any more" in why


def test_on_a_terminal_the_forgetting_of_jobs_is_asked_for(crawled: ProjectFolder) -> None:
    crawled.fill(end_some)

    said = on_a_terminal(crawled.folder, "prune", "--jobs", "0s", columns=100, typed="n\n", code=1)

    assert "Forget 1 job for good? Records stay." in said
    assert "Nothing was changed." in said
    assert "1 job forgotten" in crawled.run("prune", "--jobs", "0s", "--yes").out


def test_what_is_younger_stays(crawled: ProjectFolder) -> None:
    said = crawled.run("prune", "--attempts", "90d")

    assert said.lines == ["attempts  0 attempts and visits older than 90d deleted"]
    assert crawled.run("prune", "--attempts", "0s").out.startswith("attempts  3 ")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], "Name what to delete: gossamer prune --attempts 90d --pages 30d --jobs 30d"),
        (["--attempts", "soon"], "--attempts 'soon' is not an age. Write it like 90d"),
        (["--pages", "9" * 400 + "d"], "is not an age"),
    ],
)
def test_bad_input_gets_one_line_and_deletes_nothing(crawled: ProjectFolder, words: list[str], answer: str) -> None:
    said = crawled.run("prune", *words)

    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1
    assert crawled.run("prune", "--attempts", "0s").out.startswith("attempts  3 ")


def test_prune_where_nothing_was_crawled_says_so(project: ProjectFolder) -> None:
    said = project.run("prune", "--attempts", "90d")

    assert said.code == 1
    assert "Nothing has been crawled" in said.err
    assert not (project.folder / "gossamer-data").exists()
