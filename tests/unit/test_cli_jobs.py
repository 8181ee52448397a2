"""`gossamer job`, as a user sees it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.schedule.sources import SitemapSource
from tests.unit.commandline import candidate, on_a_terminal
from tests.unit.commandline import project as project
from tests.unit.crawled import WORKER, crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def the_job(project, name: str = "books"):
    return project.run("job", "show", name, "--json").json


def test_no_jobs_are_no_error_and_no_files(project):
    said = project.run("job", "list")

    assert said.code == 0
    assert "Nothing has been crawled" in said.out
    assert project.run("job", "list", "--json").json == []
    assert not (project.folder / "gossamer-data").exists()


def test_jobs_are_listed_with_their_counts_newest_first(crawled):
    async def start_over(system):
        await system.state.jobs.open_job("books", JobTerms(schedule="prices", due=1.0), fresh=True)

    crawled.fill(start_over)

    head, newest, oldest = crawled.run("job", "list").lines

    assert head.split() == [
        "JOB", "SCHEDULE", "STATE", "STARTED", "TOOK", "TOTAL", "DONE", "UNCHANGED", "DEAD", "DROPPED", "OPEN", "RATE",
        "RECORDS",
    ]  # fmt: skip
    assert newest.split()[:4] == ["books-2", "prices", "no", "worker"]
    assert oldest.split()[:3] == ["books-1", "-", "incomplete"]
    # What was open when it was replaced is dropped, and all of it adds up.
    assert oldest.split()[5:11] == ["16", "4", "1", "2", "9", "0"]
    of_schedule = crawled.run("job", "list", "--schedule", "prices", "--json").json
    assert [job["id"] for job in of_schedule] == ["books-2"]
    assert "No job of schedule 'other'" in crawled.run("job", "list", "--schedule", "other").out
    assert len(crawled.run("job", "list", "--limit", "1", "--json").json) == 1


def test_a_job_shows_counts_that_add_up_and_what_its_rate_is(crawled):
    said = crawled.run("job", "show", "books-1").out
    job = the_job(crawled)

    assert "16 total = 4 done + 1 unchanged + 2 dead + 3 dropped + 6 open" in said
    assert "on average since it began" in said
    assert "no page was done in the last minute" in said
    parts = ("done", "unchanged", "dead", "dropped", "open")
    assert job["total"] == sum(job[part] for part in parts) == 16
    assert (job["retries"], job["state"], job["paused"], job["ending"]) == (1, "running", False, None)
    assert "1 failed try was repeated" in said
    assert job["pages_per_second"] > 0
    assert job["eta_seconds"] is None


def test_a_paused_job_hands_out_nothing_until_it_is_resumed(crawled):
    handed: list[int] = []

    async def ask(system):
        batch = await system.state.frontier.lease("books-1", WORKER, 5)
        handed.append(len(batch.leases))

    said = crawled.run("job", "pause", "books")
    crawled.fill(ask)

    assert said.code == 0
    assert "books-1 is paused. 1 page in flight will be finished, 5 wait." in said.out
    assert handed == [0]
    assert "it is paused" in crawled.run("job", "show", "books").out
    assert the_job(crawled)["paused"] is True
    assert crawled.run("job", "list").lines[1].split()[2] == "paused"
    assert "paused already" in crawled.run("job", "pause", "books").out

    assert "is resumed, with 6 open pages" in crawled.run("job", "resume", "books-1").out
    assert the_job(crawled)["paused"] is False
    assert "is not paused" in crawled.run("job", "resume", "books-1").out


def test_a_cancelled_job_drops_what_is_open_and_is_over(crawled):
    said = crawled.run("job", "cancel", "books", "--yes")

    assert said.code == 0
    assert "7 of 16 pages had been settled, the others are dropped" in said.out
    job = the_job(crawled)
    assert (job["state"], job["ending"], job["open"], job["dropped"]) == ("cancelled", "cancelled", 0, 9)
    assert job["eta_seconds"] is None


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_a_job_that_has_ended_is_beyond_control(crawled, verb):
    crawled.run("job", "cancel", "books-1", "--yes")

    said = crawled.run("job", verb, "books-1")

    assert (said.code, said.out) == (1, "")
    assert f"Job books-1 has ended (cancelled): there is nothing to {verb}." in said.err


def test_on_a_terminal_cancelling_is_asked_for(crawled):
    said = on_a_terminal(crawled.folder, "job", "cancel", "books-1", columns=100, typed="n\n", code=1)

    assert "Cancel books-1, with 6 open pages?" in said
    assert "Nothing was changed." in said
    assert the_job(crawled)["state"] == "running"


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "cancel"])
def test_a_misspelled_job_gets_a_suggestion(crawled, verb):
    said = crawled.run("job", verb, "boks-1")

    assert (said.code, said.out) == (1, "")
    assert said.err == "gossamer: There is no job 'boks-1'. Did you mean books-1?\n"


def test_the_counts_of_a_narrow_table_add_up(crawled):
    narrow = on_a_terminal(crawled.folder, "job", "list", columns=70)

    assert "SCHEDULE" not in narrow
    assert all(title in narrow for title in ("TOTAL", "DONE", "UNCHANGED", "DEAD", "DROPPED", "OPEN"))


def test_why_the_source_of_a_job_failed_is_told_afterwards(project):
    async def fail(system):
        await system.state.jobs.open_job("prices", JobTerms(schedule="prices", due=1.0), fresh=False)
        await system.state.jobs.close_job("prices-1", "source failed: there is no file urls.csv")

    project.fill(fail)

    assert project.run("job", "list").lines[1].split()[2] == "failed"
    for verb in (["job", "show"], ["status"]):
        assert "there is no file urls.csv" in project.run(*verb, "prices-1").out
    assert the_job(project, "prices")["ending"] == "source failed: there is no file urls.csv"


def shut_windows() -> str:
    """Windows that are closed now, and open the day after tomorrow."""
    return (datetime.now(UTC) + timedelta(days=2)).strftime("%a 00:00-01:00 UTC")


def test_a_job_waits_while_the_windows_of_all_its_sites_are_closed(project):
    closed = f'[domains."*.example"]\nwindows = "{shut_windows()}"\n'

    async def begin(system):
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
        await system.state.frontier.add(job.id, [candidate("https://a.example/"), candidate("https://b.example/")])
        await system.state.jobs.seal_seeds(job.id)

    project.fill(begin)
    project.write("gossamer.toml", closed)

    assert project.run("job", "list").lines[1].split()[2] == "waiting"
    for verb in (["job", "show"], ["status"]):
        assert "waiting for the windows of 2 sites, the first opens at " in project.run(*verb, "books").out
    assert the_job(project)["opens"].endswith("T00:00:00.000Z")
    # but not when one of them may be visited
    project.write("gossamer.toml", closed + '[domains."b.example"]\nrate = "1/s"\n')
    assert (the_job(project)["phase"], the_job(project)["opens"]) == ("no worker", None)


def test_a_job_waits_while_the_window_of_the_site_of_its_source_is_closed(project):
    source = msgspec.json.encode(SitemapSource(url="https://shop.example/sitemap.xml")).decode()

    async def begin(system):
        terms = JobTerms(schedule="prices", due=1.0, source=source)
        await system.state.jobs.open_job("prices", terms, fresh=False)

    project.fill(begin)
    project.write("gossamer.toml", f'[domains."shop.example"]\nwindows = "{shut_windows()}"\n')

    said = project.run("job", "show", "prices").out

    assert "waiting: its source waits for the window of shop.example, opens at " in said


@pytest.mark.parametrize("verb", [["job", "list"], ["status"]])
def test_programs_get_all_jobs_and_people_the_newest_twenty(project, verb):
    async def begin_many(system):
        for number in range(22):
            await system.state.jobs.open_job(f"books{number}", JobTerms(), fresh=False)

    project.fill(begin_many)

    assert len(project.run(*verb, "--json").json) == 22
    assert len(project.run(*verb, "--json", "--limit", "3").json) == 3
    said = project.run(*verb)
    assert (len(said.lines), said.err) == (21, "... and 2 older jobs; --limit shows more.\n")
