"""`gossamer routes`, as a user sees it."""

from __future__ import annotations

import pytest

from gossamer.clock import iso_time
from gossamer.frontier.contract import JobTerms
from gossamer.model.record import day_of
from gossamer.project.open import Project
from gossamer.routing.contract import Bound, LearnedRoute
from tests.unit.commandline import ProjectFolder, on_a_terminal
from tests.unit.commandline import project as project

SETTINGS = """
[router]
budget_job = 100
budget_day = 500
budget_domain = 20

[domains."dear.example"]
route = "hard"
ladder = ["direct", "browser"]
budget = 250
"""
HOUR = 3600.0
CHEAPEST = (
    "No dearer route was learned for any site: every page starts at its cheapest route.\n"
    "There is one route, direct. docs/routes.md says how to add others.\n"
)


async def crawl_through(system: Project) -> None:
    """Three sites have blocked; a job has spent 32.5003 credits today, and some on another day."""
    now = system.clock.now()
    for site, route, reason, since, again in (
        ("shop.example", "residential", "challenge", now - 3 * HOUR, now + HOUR),
        ("market.example", "browser", "an empty shell\x1b[31m", now - 60, now + 2 * HOUR),
        ("news.example", "managed", "login", now - 70 * HOUR, now - 5),
    ):
        await system.state.routes.learn(
            LearnedRoute(
                site=site, route=route, since=since, reason=reason, blocks=14, recheck_at=again, patience=HOUR
            ),
            instead_of=None,
        )
    job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
    today = day_of(now)
    wide = [Bound(f"job/{job.id}", 100), Bound(f"day/{today}", 500)]
    assert await system.state.budgets.take(12.5003, [*wide, Bound(f"domain/{today}/shop.example", 20)]) is None
    assert await system.state.budgets.take(20, [*wide, Bound(f"domain/{today}/news.example", 20)]) is None
    assert (
        await system.state.budgets.take(9, [Bound("day/2020-01-01", 500), Bound("domain/2020-01-01/old.example", 9)])
        is None
    )


@pytest.fixture
def learned(project: ProjectFolder) -> ProjectFolder:
    project.write("gossamer.toml", SETTINGS)
    project.fill(crawl_through)
    return project


def test_sites_are_listed_latest_first_with_their_routes_and_the_reason(learned: ProjectFolder) -> None:
    said = learned.run("routes")

    assert said.code == 0
    assert said.lines[0].split() == ["SITE", "PAGES", "ROUTE", "SINCE", "BECAUSE", "BLOCKS", "CHEAPER", "AGAIN"]
    assert [line.split()[:4] for line in said.lines[1:4]] == [
        ["market.example", "all", "others", "browser"],
        ["shop.example", "all", "others", "residential"],
        ["news.example", "all", "others", "managed"],
    ]
    assert "an empty shell\\x1b[31m" in said.lines[1]
    assert "\x1b" not in said.out


def test_budgets_of_today_and_of_jobs_stand_below(learned: ProjectFolder) -> None:
    said = learned.run("routes")

    assert said.lines[5] == "Budgets  in credits; when one is spent, tasks wait"
    assert [line.split() for line in said.lines[6:]] == [
        ["FOR", "SPENT", "LIMIT", "REMAINING"],
        ["all", "of", "today", "32.5003", "500", "467.4997"],
        ["job", "books-1", "32.5003", "100", "67.4997"],
        ["news.example,", "today", "20", "20", "0"],
        ["shop.example,", "today", "12.5003", "20", "7.4997"],
    ]


def test_programs_get_all_of_it_as_json(learned: ProjectFolder) -> None:
    found = learned.run("routes", "--json").json

    assert (found["learn"], found["when_spent"]) == (True, "wait")
    assert [one["site"] for one in found["learned"]] == ["market.example", "shop.example", "news.example"]
    first = found["learned"][0]
    assert sorted(first) == ["blocks", "patience", "pattern", "reason", "recheck_at", "route", "since", "site"]
    assert first["since"] < first["recheck_at"] < iso_time(4e9)
    assert found["budgets"][1] == {
        "budget": "job/books-1", "for": "job books-1", "spent": 32.5003, "limit": 100, "left": 67.4997,
        "setting": "router.budget_job",
    }  # fmt: skip


def test_a_limit_leaves_out_the_older_sites(learned: ProjectFolder) -> None:
    listed = learned.run("routes", "--limit", "1", "--json").json

    assert [one["site"] for one in listed["learned"]] == ["market.example"]


def test_one_site_is_told_in_full_with_its_own_budget(learned: ProjectFolder) -> None:
    said = learned.run("routes", "https://www.shop.example/page")

    assert said.lines[0] == "shop.example"
    facts = dict(line.strip().split("  ", 1) for line in said.lines[1:6])
    assert facts["route"].strip() == "residential"
    assert facts["because"].strip() == "challenge"
    assert facts["cheaper again"].endswith("(in 1 h); if that fails, once more after 1 h")
    assert said.lines[-1].split() == ["shop.example,", "today", "12.5003", "20", "7.4997"]
    assert "job books-1" not in said.out


def test_what_the_settings_say_about_a_site_is_told(learned: ProjectFolder) -> None:
    said = learned.run("routes", "dear.example")

    assert said.lines[:2] == [
        "Nothing was learned about dear.example.",
        "  by the settings  route = hard, ladder = direct, browser",
    ]
    assert said.lines[-1].split() == ["dear.example,", "today", "0", "250", "250"]


def test_a_reset_forgets_one_site_and_leaves_the_budgets(learned: ProjectFolder) -> None:
    before = learned.run("routes", "--json").json

    said = learned.run("routes", "reset", "shop.example")

    assert (said.code, said.out) == (
        0,
        "shop.example forgotten: the next pages start at the cheapest route again.\n",
    )
    after = learned.run("routes", "--json").json
    assert [one["site"] for one in after["learned"]] == ["market.example", "news.example"]
    assert after["budgets"] == before["budgets"]


def test_a_reset_of_all_forgets_every_site(learned: ProjectFolder) -> None:
    said = learned.run("routes", "reset", "--all")

    assert said.out == "3 sites forgotten: the next pages start at the cheapest route again.\n"
    assert learned.run("routes").out.startswith(CHEAPEST)
    again = learned.run("routes", "reset", "--all")
    assert (again.code, again.out) == (1, "")
    assert again.err == "Nothing was learned about any site. See `gossamer routes`.\n"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["reset"], "Name the site: gossamer routes reset SITE, or --all for every site."),
        (["reset", "shop.example", "--all"], "Name the site: gossamer routes reset SITE, or --all for every site."),
        (["reset", "other.example"], "Nothing was learned about other.example."),
        (["two words"], "'two words' is not a site. Write it like shop.example."),
    ],
)
def test_bad_input_gets_one_line_and_forgets_nothing(learned: ProjectFolder, words: list[str], answer: str) -> None:
    said = learned.run("routes", *words)

    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1
    assert len(learned.run("routes", "--json").json["learned"]) == 3


def test_where_nothing_was_crawled_one_line_says_so_and_no_file_is_made(project: ProjectFolder) -> None:
    said = project.run("routes")

    assert (said.code, said.out) == (0, CHEAPEST)
    assert project.run("routes", "--json").json["learned"] == []
    assert project.run("routes", "shop.example").out == (
        "Nothing was learned about shop.example: its pages start at the cheapest route.\n"
    )
    assert not (project.folder / "gossamer-data").exists()


def test_learning_that_is_off_is_told(learned: ProjectFolder) -> None:
    learned.write("gossamer.toml", "[router]\nlearn = false\nwhen_spent = 'bury'\nbudget_day = 1")

    said = learned.run("routes")

    assert "router.learn is off" in said.out
    assert "Budgets  in credits; when one is spent, tasks are buried" in said.lines


def test_on_a_narrow_terminal_what_matters_stays(learned: ProjectFolder) -> None:
    wide = on_a_terminal(learned.folder, "routes", columns=120)
    narrow = on_a_terminal(learned.folder, "routes", columns=80)

    assert "BLOCKS" in wide
    assert "in 1 h" in wide
    assert "BLOCKS" not in narrow
    for word in ("shop.example", "residential", "CHEAPER AGAIN", "next page", "gossamer routes reset SITE"):
        assert word in narrow


def test_help_names_both_verbs(project: ProjectFolder) -> None:
    said = project.run("routes", "--help")

    assert said.code == 0
    assert "show" in said.out
    assert "reset" in said.out
