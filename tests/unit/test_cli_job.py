"""`gossamer job`, as a user sees it."""

from __future__ import annotations

import pytest

from gossamer.cli.timetable import Run
from gossamer.frontier.contract import JobTerms
from gossamer.model.job import Job, JobCounts, JobState
from tests.unit.commandline import on_a_terminal
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
        await system.jobs.open_job("books", JobTerms(schedule="prices", due=1.0), fresh=True)

    crawled.fill(start_over)

    head, newest, oldest = crawled.run("job", "list").lines

    assert head.split() == [
        "JOB", "SCHEDULE", "STATE", "STARTED", "TOOK", "TOTAL", "DONE", "UNCHANGED", "DEAD", "DROPPED", "OPEN", "RATE",
    ]  # fmt: skip
    assert newest.split()[:3] == ["books-2", "prices", "unfinished"]
    assert oldest.split()[:3] == ["books-1", "-", "replaced"]
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
    assert "for 6 pages" in said
    parts = ("done", "unchanged", "dead", "dropped", "open")
    assert job["total"] == sum(job[part] for part in parts) == 16
    assert (job["failed"], job["state"], job["paused"], job["ending"]) == (1, "running", False, None)
    assert job["pages_per_second"] > 0
    assert job["eta_seconds"] == pytest.approx(6 / 7 * job["seconds"], abs=0.01)


def test_a_paused_job_hands_out_nothing_until_it_is_resumed(crawled):
    handed: list[int] = []

    async def ask(system):
        batch = await system.frontier.lease("books-1", WORKER, 5)
        handed.append(len(batch.leases))

    said = crawled.run("job", "pause", "books")
    crawled.fill(ask)

    assert said.code == 0
    assert "books-1 is paused. 1 page in hand will be finished, 5 wait." in said.out
    assert handed == [0]
    assert "it is paused" in crawled.run("job", "show", "books").out
    assert the_job(crawled)["paused"] is True
    assert crawled.run("job", "list").lines[1].split()[2] == "paused"
    assert "paused already" in crawled.run("job", "pause", "books").out

    assert "goes on, with 6 open pages" in crawled.run("job", "resume", "books-1").out
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


# -- figures -------------------------------------------------------------------------------------------------------


def run(counts: JobCounts, **fields) -> Run:
    job = Job(id="books-1", name="books", state=JobState.RUNNING, created_at=1000.0)
    now = fields.pop("now", 1100.0)
    for name, value in fields.items():
        job = Job(**{**{key: getattr(job, key) for key in job.__struct_fields__}, name: value})
    return Run(job=job, counts=counts, now=now)


HALF = JobCounts(discovered=110, duplicates=10, done=40, unchanged=8, dead=2, queued=45, leased=5)


def test_the_rest_takes_as_long_as_all_so_far_did():
    half = run(HALF)

    assert (half.total, half.rate, half.remaining, half.eta) == (100, 0.5, 50, 100.0)
    assert half.rate_words == "30.0/m"


def test_a_limit_shortens_the_rest():
    assert run(HALF, limit=60).remaining == 10
    assert run(HALF, limit=60).eta == 20.0
    assert run(HALF, limit=50).remaining == 0


@pytest.mark.parametrize(
    "told",
    [
        run(HALF, paused=True),
        run(HALF, state=JobState.FINISHED, ending="limit", finished_at=1050.0),
        run(JobCounts(discovered=3, queued=3)),
    ],
    ids=["paused", "over", "nothing done yet"],
)
def test_an_end_that_nobody_can_know_is_not_told(told):
    assert told.eta is None


def test_a_job_that_is_over_counts_its_own_time():
    over = run(HALF, state=JobState.FINISHED, ending="done", finished_at=1010.0, now=9999.0)

    assert (over.seconds, over.rate, over.state) == (10.0, 5.0, "done")


def test_a_clock_that_was_put_back_makes_no_negative_time():
    assert (run(HALF, now=900.0).seconds, run(HALF, now=900.0).rate, run(HALF, now=900.0).eta) == (0.0, 0.0, None)
