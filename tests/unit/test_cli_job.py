"""`gossamer job`, as a user sees it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gossamer.cli.runs import Run, Shut, is_served
from gossamer.frontier.contract import JobTerms, WorkerCard
from gossamer.model.job import Job, JobCounts, JobState
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
    ]  # fmt: skip
    assert newest.split()[:3] == ["books-2", "prices", "unserved"]
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
    assert (job["retries"], job["state"], job["paused"], job["ending"]) == (1, "running", False, None)
    assert "1 failed try was repeated" in said
    assert job["pages_per_second"] > 0
    assert job["eta_seconds"] == pytest.approx(6 / 7 * job["seconds"], abs=0.01)


def test_a_paused_job_hands_out_nothing_until_it_is_resumed(crawled):
    handed: list[int] = []

    async def ask(system):
        batch = await system.state.frontier.lease("books-1", WORKER, 5)
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


def test_the_counts_of_a_narrow_table_add_up(crawled):
    narrow = on_a_terminal(crawled.folder, "job", "list", columns=70)

    assert "SCHEDULE" not in narrow
    assert all(title in narrow for title in ("TOTAL", "DONE", "UNCHANGED", "DEAD", "DROPPED", "OPEN"))


def test_why_the_source_of_a_job_failed_is_told_afterwards(project):
    async def fail(system):
        await system.state.jobs.open_job("prices", JobTerms(schedule="prices", due=1.0), fresh=False)
        await system.state.jobs.close_job("prices-1", "source failed: there is no file urls.csv")

    project.fill(fail)

    assert project.run("job", "list").lines[1].split()[2:4] == ["source", "failed"]
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
    assert (the_job(project)["standing"], the_job(project)["opens"]) == ("unserved", None)


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


# -- figures -------------------------------------------------------------------------------------------------------


def run(counts: JobCounts, **fields) -> Run:
    job = Job(id="books-1", name="books", state=JobState.RUNNING, created_at=1000.0)
    now = fields.pop("now", 1100.0)
    known = {name: fields.pop(name) for name in ("sealed", "served", "shut") if name in fields}
    return Run(job=msgspec.structs.replace(job, **fields), counts=counts, now=now, **known)


HALF = JobCounts(discovered=110, duplicates=10, done=40, unchanged=8, dead=2, queued=45, leased=5)
IDLE = JobCounts(discovered=3, queued=3)
ONE = Shut(sites=("shop.example",), opens=7200.0)
TWO = Shut(sites=("shop.example", "other.example"), opens=7200.0)
CLOSED = "Thu 03:00-04:00 UTC"  # the epoch began on a Thursday, at midnight


@pytest.mark.parametrize(
    ("told", "state", "story"),
    [
        (run(HALF), "running", "running"),
        (run(IDLE), "running", "running"),
        (run(IDLE, served=False), "unserved", "unserved: no worker works on it"),
        (run(HALF, served=False), "running", "running"),  # pages are in hand, whatever the cards say
        (run(JobCounts(), sealed=False), "reading", "reading its source"),
        (run(IDLE, sealed=False), "running", "running"),
        (run(IDLE, windows=CLOSED), "waiting", "waiting for its window, opens at 1970-01-01 "),
        (run(IDLE, windows=CLOSED, served=False), "waiting", "waiting for its window, opens at 1970-01-01 "),
        (run(IDLE, windows="Thu 00:00-01:00 UTC"), "running", "running"),
        (run(IDLE, shut=ONE), "waiting", "waiting for the window of shop.example, opens at 1970-01-01 "),
        (run(IDLE, shut=TWO), "waiting", "waiting for the windows of 2 sites, the first opens at 1970-01-01 "),
        (run(HALF, shut=ONE), "running", "running"),  # what is in hand is finished
        (run(IDLE, shut=ONE, paused=True), "paused", "paused"),
        (
            run(JobCounts(), sealed=False, shut=Shut(sites=("shop.example",), opens=None, source=True)),
            "waiting",
            "waiting: its source waits for the window of shop.example, which opens no more",
        ),
        (run(IDLE, windows=CLOSED, paused=True), "paused", "paused"),
        (run(IDLE, windows=CLOSED, state=JobState.FINISHED, ending="limit"), "limit", "limit"),
        (run(IDLE, state=JobState.FINISHED, ending="source failed: gone"), "source failed", "source failed"),
    ],
)
def test_where_a_run_stands_is_one_word(told, state, story):
    assert told.state == state
    assert told.story.startswith(story)


def card(job: str, seen_at: float) -> WorkerCard:
    return WorkerCard(name="w", host="h", pid=1, version="1", started_at=0.0, seen_at=seen_at, job=job)


@pytest.mark.parametrize(
    ("cards", "now", "served"),
    [
        ([card("shop-1, books-1", 1095.0)], 1100.0, True),
        ([card("books-11", 1095.0)], 1100.0, False),
        ([card("books-1", 1000.0)], 1100.0, False),  # it has died since
        ([card("", 1003.0)], 1003.0, True),  # it has not looked for jobs yet, perhaps
        ([], 1003.0, False),
    ],
    ids=["named", "another one", "dead", "about to be", "nobody"],
)
def test_a_job_is_served_when_a_worker_that_lives_says_so(cards, now, served):
    assert is_served(run(IDLE).job, cards, now) is served


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
        run(IDLE, windows=CLOSED),
        run(HALF, paused=True),
        run(HALF, state=JobState.FINISHED, ending="limit", finished_at=1050.0),
        run(JobCounts(discovered=3, queued=3)),
    ],
    ids=["outside of its window", "paused", "over", "nothing done yet"],
)
def test_an_end_that_nobody_can_know_is_not_told(told):
    assert told.eta is None


def test_a_job_that_is_over_counts_its_own_time():
    over = run(HALF, state=JobState.FINISHED, ending="done", finished_at=1010.0, now=9999.0)

    assert (over.seconds, over.rate, over.state) == (10.0, 5.0, "done")


def test_a_clock_that_was_put_back_makes_no_negative_time():
    assert (run(HALF, now=900.0).seconds, run(HALF, now=900.0).rate, run(HALF, now=900.0).eta) == (0.0, 0.0, None)
