"""The log of attempts as a user sees it, and the pages of a job that are slow or fail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as changed

from gossamer.model.record import PageResult
from gossamer.project.dead_letters.attempts import hard_pages
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, attempt, crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def test_attempts_are_listed_newest_first_filtered_and_paged(crawled):
    every = crawled.run("attempts", "--json").json
    times = [one["at"] for one in every["attempts"]]
    assert times == sorted(times, reverse=True)
    assert every["next"] is None
    first = crawled.run("attempts", "--limit", "1", "--json").json
    second = crawled.run("attempts", "--limit", "1", "--after", first["next"], "--json").json
    assert [*first["attempts"], *second["attempts"]] == every["attempts"][:2]
    outcome = every["attempts"][0]["outcome"]
    some = crawled.run("attempts", "--outcome", outcome, "--domain", f"{SHOP}/x", "--job", "books", "--json").json
    assert {one["outcome"] for one in some["attempts"]} == {outcome}
    assert crawled.run("attempts", "--since", "2h", "--until", "2027-01-31T12:00Z").code == 0
    assert "No attempt matches." in crawled.run("attempts", "--reason", "moon").out
    assert every["attempts"][0]["url"] in crawled.run("attempts").out


@pytest.mark.parametrize(
    ("flags", "error"),
    [(("--since", "moon"), "is not a time"), (("--after", "x"), "not a cursor"), (("--job", "x"), "There is no job")],
)
def test_a_filter_that_means_nothing_is_refused(crawled, flags, error):
    said = crawled.run("attempts", *flags)

    assert (said.code, error in said.err) == (1, True)


def test_the_slowest_and_most_failing_pages_of_a_job_are_found(crawled):
    found = []

    async def look(system):
        def tries(path, *outcomes, latency=0.1):
            now = system.clock.now()
            return [
                PageResult(attempt=changed(made, at=now + n, outcome=outcome, latency=latency, reason=f"reason-{n}"))
                for n, outcome in enumerate(outcomes)
                for made in [attempt("books-1", f"/{path}", now, outcome)]
            ]

        await system.records.save(
            [
                *tries("slow", "done", latency=99.0),
                *tries("bad", "retry", "retry", "dead"),
                *tries("so", "retry", "done", latency=9.0),
            ]
        )
        found.append(await hard_pages(system, "books", limit=2))

    crawled.fill(look)
    (hard,) = found
    assert (hard.slowest[0].url, hard.slowest[0].latency) == (f"{SHOP}/slow", 99.0)
    assert [(one.url, one.failures, one.attempts) for one in hard.failing] == [
        (f"{SHOP}/bad", 3, 3), (f"{SHOP}/so", 1, 2),
    ]  # fmt: skip
    assert hard.failing[0].reason == "reason-2"
    assert {reason: hard.reasons[reason] for reason in ("reason-0", "reason-1", "reason-2")} == {
        "reason-0": 2, "reason-1": 1, "reason-2": 1,
    }  # fmt: skip
    assert hard.all
