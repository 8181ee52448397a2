"""`gossamer dead`, as a user sees it."""

from __future__ import annotations

import os

import pytest

from gossamer.frontier.contract import WorkerCard
from gossamer.store.contract import Retirement
from tests.unit.commandline import on_a_terminal
from tests.unit.commandline import project as project
from tests.unit.crawled import BODY, SHOP, crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def dead_urls(project) -> list[str]:
    return sorted(letter["url"] for letter in project.run("dead", "list", "--json").json["dead_letters"])


def test_list_shows_each_letter_and_the_totals(crawled):
    said = crawled.run("dead", "list")

    assert said.lines[0].split() == ["ID", "DIED", "JOB", "REASON", "TRIES", "URL", "MESSAGE"]
    assert f"{SHOP}/gone" in said.out
    assert f"{SHOP}/broken" in said.out
    assert said.lines[-1].split() == ["all", "2"]
    assert "\x1b" not in said.out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--reason", "http"], ["gone"]),
        (["--reason", "http-404"], ["gone"]),
        (["--reason", "parse"], ["broken"]),
        (["--domain", "www.shop.example"], ["broken", "gone"]),
        (["--domain", "slow.example"], []),
        (["--job", "books", "--reason", "parse"], ["broken"]),
    ],
)
def test_list_is_narrowed_by_reason_domain_and_job(crawled, words, found):
    listed = crawled.run("dead", "list", *words, "--json").json

    assert sorted(letter["url"].removeprefix(f"{SHOP}/") for letter in listed["dead_letters"]) == found
    assert listed["total"] == len(found)


def test_a_limit_is_told_together_with_the_true_total(crawled):
    said = crawled.run("dead", "list", "--limit", "1")

    assert "The latest 1 of 2" in said.out
    assert said.lines[-1].split() == ["all", "2"]


def test_where_nothing_was_crawled_there_are_no_dead_letters(project):
    said = project.run("dead", "list")

    assert (said.code, said.out) == (0, "No dead letters.\n")
    assert not (project.folder / "gossamer-data").exists()


def test_show_by_url_and_by_id_tells_the_same(crawled):
    number = crawled.run("dead", "list", "--reason", "parse", "--json").json["dead_letters"][0]["id"]

    by_url, by_id = crawled.run("dead", "show", f"{SHOP}/broken#x"), crawled.run("dead", "show", str(number))

    assert by_url.code == by_id.code == 0
    for said in (by_url, by_id):
        assert "KeyError: 'price'" in said.out
        assert "after 1 try" in said.out
        assert f"{SHOP}/" in said.out
        assert ".zst#" in said.out
    (letter,) = crawled.run("dead", "show", str(number), "--json").json
    assert (letter["reason"], len(letter["attempts_log"])) == ("parse", 1)


def test_show_raw_writes_the_page_byte_for_byte(crawled):
    said = crawled.run("dead", "show", f"{SHOP}/broken", "--raw")

    assert (said.code, said.raw, said.err) == (0, BODY, "")


def test_show_raw_says_so_where_no_page_was_received(crawled):
    said = crawled.run("dead", "show", f"{SHOP}/gone", "--raw")

    assert (said.code, said.out) == (1, "")
    assert "no raw page" in said.err


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        (f"{SHOP}/done", "is not among the dead letters. It is done in books-1."),
        (f"{SHOP}/never", "is not among the dead letters."),
        ("99999", "There is no dead letter 99999."),
        ("9" * 40, "There is no dead letter"),
        ("nonsense", "Give a URL, or an id"),
    ],
)
def test_what_is_no_dead_letter_gets_one_line(crawled, target, answer):
    said = crawled.run("dead", "show", target)

    assert said.code == 1
    assert answer in said.err
    assert said.err.count("\n") == 1


def test_why_says_that_a_record_of_the_page_is_gone(crawled):
    async def retire(project):
        now = project.clock.now()
        wanted = Retirement(job="books-2", spider="books", at=now, records=[("Book", "shop.example", "1")])
        assert await project.records.retire(wanted) == 1

    assert "by books-2" not in crawled.run("why", f"{SHOP}/done").out
    crawled.fill(retire)
    row = next(line for line in crawled.run("why", f"{SHOP}/done").lines if line.startswith("  Book"))
    assert row.endswith(", by books-2")


def test_replay_puts_the_letters_back_and_says_how_to_go_on(crawled):
    said = crawled.run("dead", "replay", "--reason", "http")

    assert said.code == 0
    assert "1 URL is back in the queue of books-1." in said.out
    assert "gossamer crawl books" in said.out
    assert dead_urls(crawled) == [f"{SHOP}/broken"]
    assert crawled.run("why", f"{SHOP}/gone", "--json").json["jobs"][0]["state"] == "queued"


def test_replay_asks_for_no_command_where_workers_are(crawled):
    async def work(project):
        now = project.clock.now()
        card = WorkerCard(name=f"host/{os.getpid()}/1", host="host", pid=1, version="1", started_at=now, seen_at=now)
        await project.state.workers.beat(card)

    crawled.fill(work)
    said = crawled.run("dead", "replay", "--reason", "http")

    assert "books-1 runs again. Workers pick it up." in said.out.replace("\n", " ")
    assert "gossamer crawl" not in said.out


def test_replay_of_one_letter_by_id_leaves_the_others(crawled):
    number = crawled.run("dead", "list", "--reason", "parse", "--json").json["dead_letters"][0]["id"]

    assert "no spider 'books' is here" in crawled.run("dead", "replay", str(number)).err
    crawled.run("dead", "replay", str(number), "--fetch")

    assert dead_urls(crawled) == [f"{SHOP}/gone"]


def test_replay_of_all_opens_a_finished_job_again(crawled):
    async def end(system):
        await system.state.jobs.close_job("books-1", "done")

    crawled.fill(end)

    assert "2 URLs are back" in crawled.run("dead", "replay", "--all", "--fetch").out
    assert crawled.run("status", "--json").json[0]["state"] == "running"


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_without_a_choice_nothing_happens(crawled, verb):
    said = crawled.run("dead", verb)

    assert (said.code, said.out) == (1, "")
    assert "or --all" in said.err
    assert len(dead_urls(crawled)) == 2
    assert crawled.run("dead", verb, "--all", "--reason", "parse").code == 1
    assert len(dead_urls(crawled)) == 2


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_a_choice_that_matches_nothing_is_an_error(crawled, verb):
    said = crawled.run("dead", verb, "--reason", "timeout")

    assert said.code == 1
    assert "No dead letter matches" in said.err


def test_purge_forgets_for_good_and_why_remembers_that(crawled):
    said = crawled.run("dead", "purge", "--reason", "parse")

    assert (said.code, said.out) == (0, "1 dead letter purged.\n")
    assert dead_urls(crawled) == [f"{SHOP}/gone"]
    assert "dropped: purged: parse" in crawled.run("why", f"{SHOP}/broken").out
    assert crawled.run("status", "--json").json[0]["adds_up"] is True


def test_at_a_terminal_purge_asks_first(crawled):
    words = ("dead", "purge", "--all")

    assert "Nothing was changed" in on_a_terminal(crawled.folder, *words, columns=80, typed="n\n", code=1)
    assert len(dead_urls(crawled)) == 2
    assert "2 dead letters purged" in on_a_terminal(crawled.folder, *words, columns=80, typed="y\n")
    assert dead_urls(crawled) == []
