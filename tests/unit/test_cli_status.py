"""`gossamer status` and `gossamer why`, as a user sees them."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.model.record import PageResult, Record
from gossamer.model.task import UrlState
from tests.unit.commandline import candidate
from tests.unit.commandline import project as project
from tests.unit.crawled import SHOP, SLOW, WORKER, attempt, crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def test_status_in_an_empty_folder_says_how_to_begin_and_makes_no_files(project):
    said = project.run("status")

    assert said.code == 0
    assert "Nothing has been crawled" in said.out
    assert "gossamer crawl" in said.out
    assert not (project.folder / "gossamer-data").exists()
    assert project.run("status", "--json").json == []


def test_status_lists_each_job_with_its_counts_in_plain_columns(crawled):
    said = crawled.run("status")

    head, row = said.lines
    assert head.split() == [
        "JOB", "NAME", "STATE", "STARTED", "DONE", "UNCHANGED", "DEAD", "DROPPED", "QUEUE", "RETRIES", "RECORDS",
    ]  # fmt: skip
    cells = row.split()
    assert cells[:3] == ["books-1", "books", "running"]
    assert cells[4:] == ["4", "1", "2", "3", "6", "1", "1"]
    assert "\x1b" not in said.out


def test_status_as_json_holds_the_same_numbers_and_that_they_add_up(crawled):
    (job,) = crawled.run("status", "--json").json

    assert (job["id"], job["state"], job["ending"], job["records"]) == ("books-1", "running", None, 1)
    counts = job["counts"]
    assert (counts["queued"], counts["waiting"], counts["leased"], counts["dead"]) == (3, 2, 1, 2)
    assert job["adds_up"] is True


def test_jobs_are_listed_newest_first_and_a_replaced_one_says_so(crawled):
    async def start_over(system):
        await system.state.jobs.open_job("books", JobTerms(), fresh=True)

    crawled.fill(start_over)

    jobs = crawled.run("status", "--json").json

    assert [(job["id"], job["ending"]) for job in jobs] == [("books-2", None), ("books-1", "replaced")]


@pytest.mark.parametrize("wanted", ["books-1", "books"])
def test_status_of_one_job_shows_sites_reasons_and_where_the_data_is(crawled, wanted):
    said = crawled.run("status", wanted)

    assert "it adds up" in said.out
    assert "shop.example" in said.out
    assert "slow.example" in said.out
    assert "http-404" in said.out
    assert str(crawled.folder / "gossamer-data" / "records.db") in said.out
    detail = crawled.run("status", wanted, "--json").json
    assert detail["dead_reasons"] == {"http-404": 1, "parse": 1}
    assert {site["site"]: site["queued"] for site in detail["sites"]} == {"slow.example": 3, "shop.example": 0}


def test_status_of_one_job_knows_when_its_windows_open(crawled):
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).strftime("%a 00:00-01:00 UTC")
    crawled.write("gossamer.toml", f'[domains."slow.example"]\nwindows = "{tomorrow}"\n')

    said = crawled.run("status", "books").out

    assert "when the site's window opens" in next(line for line in said.splitlines() if "slow.example" in line)
    assert "any time" in next(line for line in said.splitlines() if " shop.example" in line)


def test_why_knows_the_window_of_a_site_also_for_what_is_queued(crawled):
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).strftime("%a 00:00-01:00 UTC")
    crawled.write("gossamer.toml", f'[domains."slow.example"]\nwindows = "{tomorrow}"\n')

    assert "queued: it waits for the window of slow.example, opens at " in crawled.run("why", f"{SLOW}/2").out


def test_why_promises_nothing_for_workers_that_may_have_older_settings(project):
    async def close(system):
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
        await system.state.frontier.add(job.id, [candidate(f"{SHOP}/")])
        (lease,) = (await system.state.frontier.lease(job.id, WORKER, 1)).leases
        await system.state.frontier.release(lease, timedelta(minutes=10), "window")

    project.fill(close)

    said = project.run("why", f"{SHOP}/").out

    assert "waits for its window, which is open by the settings here: it is looked at again at " in said


def test_a_misspelled_job_gets_a_suggestion(crawled):
    said = crawled.run("status", "boks-1")

    assert (said.code, said.out) == (1, "")
    assert said.err == "gossamer: There is no job 'boks-1'. Did you mean books-1?\n"


STANDINGS = {
    f"{SHOP}/": "done: fetched, parsed and stored",
    f"{SHOP}/moved": f"done: redirected to {SHOP}/done",
    f"{SHOP}/same": "unchanged: the server said that the copy we have is still good",
    f"{SHOP}/secret": "dropped: robots.txt forbids it",
    "https://elsewhere.example/": "dropped: outside the scope of the crawl",
    f"{SHOP}/deep": "dropped: deeper than the crawl goes",
    f"{SHOP}/flaky": "waiting: try 1 of 4 failed with timeout, next try at ",
    f"{SHOP}/stopped": "waiting: given back without using up a try (the worker stopped), back in the queue at ",
    f"{SHOP}/held": f"leased: {WORKER} has it until ",
    f"{SHOP}/gone": "dead: http-404, after 1 try",
    f"{SHOP}/broken": "dead: parse, after 1 try",
    f"{SLOW}/1": "queued: it is the next of slow.example; the site's rate allows the next request in ",
    f"{SLOW}/2": "queued: 1 task of slow.example goes first; ",
    f"{SLOW}/3": "queued: 2 tasks of slow.example go first; ",
}


@pytest.mark.parametrize("url", STANDINGS)
def test_why_says_where_a_url_stands_and_why(crawled, url):
    said = crawled.run("why", url)

    assert said.code == 0
    assert STANDINGS[url] in said.out
    (story,) = crawled.run("why", url, "--json").json["jobs"]
    assert story["in_words"].startswith(STANDINGS[url])


def test_every_state_has_words(crawled):
    told = {crawled.run("why", url, "--json").json["jobs"][0]["state"] for url in STANDINGS}

    assert told == {state.value for state in UrlState}


def test_why_knows_who_found_the_page_what_was_tried_and_what_came_of_it(crawled):
    done = crawled.run("why", f"{SHOP}/done").out
    broken = crawled.run("why", f"{SHOP}/broken").out

    assert f"on {SHOP}/, depth 1, priority 2" in done
    assert "as a seed of the crawl" in crawled.run("why", f"{SHOP}/").out
    assert "250 ms" in done
    assert "2.0 KB" in done
    assert "Book" in done.partition("Records")[2]
    assert "KeyError: 'price'" in broken
    assert ".zst#" in broken.partition("Archived copies")[2]


def test_why_finds_a_page_under_any_spelling_of_its_address(crawled):
    said = crawled.run("why", "HTTPS://Shop.Example:443/./done?utm_source=x#part")

    assert said.code == 0
    assert f"compared as  {SHOP}/done" in said.out


def test_why_tells_of_replays(crawled):
    crawled.run("dead", "replay", f"{SHOP}/gone")

    assert "replayed from the dead letters" in crawled.run("why", f"{SHOP}/gone").out


def test_an_expired_lease_is_told_as_such(crawled):
    state = crawled.folder / "gossamer-data" / "state.db"
    with sqlite3.connect(state) as connection:
        connection.execute("UPDATE leases SET until = until - 3600")

    assert "the next worker that asks for work takes it back" in crawled.run("why", f"{SHOP}/held").out


def test_a_url_left_in_the_queue_by_the_limit_is_told_as_such(crawled):
    async def end(system):
        await system.state.jobs.close_job("books-1", "limit")

    crawled.fill(end)

    assert "the job ended (limit) before its turn came" in crawled.run("why", f"{SLOW}/3").out


def test_an_unknown_url_is_said_to_be_unknown_with_its_canonical_form(crawled):
    said = crawled.run("why", f"{SHOP}/never?b=2&a=1")

    assert (said.code, said.out) == (1, "")
    assert f"No job knows {SHOP}/never?b=2&a=1 (compared as {SHOP}/never?a=1&b=2)" in said.err
    as_json = crawled.run("why", f"{SHOP}/never", "--json")
    assert (as_json.code, as_json.json["known"]) == (1, False)


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("shop.example/done", "Did you mean https://shop.example/done ?"),
        ("shop.example:80/done", "Did you mean https://shop.example:80/done ?"),
        ("javascript:alert(1)", "only http and https"),
        ("https://", "is not a URL"),
        ("not a url", "'not a url' is not a URL.\n"),
    ],
)
def test_what_is_no_url_gets_one_line(crawled, typed, answer):
    said = crawled.run("why", typed)

    assert said.code == 1
    assert answer in said.err
    assert said.err.count("\n") == 1


def test_control_characters_from_a_page_do_not_reach_the_terminal(crawled):
    async def bury(system):
        await system.state.frontier.add("books-1", [candidate(f"{SHOP}/evil", priority=9)])
        (lease,) = (await system.state.frontier.lease("books-1", "w", 1)).leases
        await system.state.frontier.bury(lease, "parse", "title \x1b]0;owned\x07 and \u202e more\n\x1b[2Jsecond line")

    crawled.fill(bury)

    said = crawled.run("why", f"{SHOP}/evil")
    assert "\x1b" not in said.out
    assert "\u202e" not in said.out
    assert "\\x1b]0;owned\\x07" in said.out
    assert "second line" in said.out


def test_a_state_file_that_is_not_sqlite_is_named_in_one_line(crawled):
    (crawled.folder / "gossamer-data" / "state.db").write_bytes(b"this is a letter to my aunt, not a database" * 50)

    for verb in (["status"], ["why", SHOP], ["dead", "list"], ["export"]):
        said = crawled.run(*verb)
        assert (said.code, said.out) == (1, "")
        assert "state.db is damaged or not a SQLite file" in said.err
        assert said.err.count("\n") == 1


def test_a_state_file_of_a_newer_version_asks_for_an_upgrade(crawled):
    with sqlite3.connect(crawled.folder / "gossamer-data" / "state.db") as connection:
        connection.execute("PRAGMA user_version = 999")

    said = crawled.run("status")

    assert said.code == 1
    assert "written by a newer Gossamer (schema 999" in said.err
    assert "Upgrade Gossamer" in said.err


def test_why_tells_of_the_newest_ten_jobs_and_how_many_more_there_are(project):
    async def crawl_often(system):
        for _ in range(12):
            job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=True)
            await system.state.frontier.add(job.id, [candidate(f"{SHOP}/")])

    project.fill(crawl_often)

    said = project.run("why", f"{SHOP}/")

    told = [line for line in said.lines if line.startswith("Job ")]
    assert told == [f"Job books-{number}" for number in range(12, 2, -1)]
    assert "... and 2 older jobs know it as well; --json lists all." in said.lines
    assert len(project.run("why", f"{SHOP}/", "--json").json["jobs"]) == 12


def test_records_without_a_job_are_not_nothing(project):
    async def keep(system):
        at = system.clock.now()
        record = Record(
            type="Book", site="shop.example", key="1", url=f"{SHOP}/", job="reparse-1", spider="books", data="{}",
            content_hash=b"1" * 16, scraped_at=at,
        )  # fmt: skip
        await system.records.save([PageResult(attempt=attempt("reparse-1", "/", at, "done"), records=(record,))])

    project.fill(keep)

    said = project.run("status").out
    assert "No job has run in" in said
    assert "1 record from another source" in said
