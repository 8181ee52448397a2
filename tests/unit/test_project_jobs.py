"""The jobs of a project, without a command line: where each stands, its figures, pause and cancel."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gossamer.errors import Misconfigured
from gossamer.frontier.contract import WorkerCard
from gossamer.model.job import Job, JobCounts, JobPace, JobState, JobTerms
from gossamer.project.jobs.forecast import JobForecast, JobWait
from gossamer.project.jobs.jobs import (
    ClosedSites,
    JobView,
    cancel_job,
    is_served,
    job_view,
    list_jobs,
    pause_job,
    resume_job,
    show_job,
)
from gossamer.project.jobs.status import job_status, project_status
from gossamer.project.open import open_project
from gossamer.project.upkeep.retention import PruneAges, count_prunable_jobs, prune
from gossamer.settings import load
from tests.conformance.frontiers import candidate
from tests.journey.crawling import settings_for
from tests.unit.commandline import TOML
from tests.unit.crawled import crawl_half


@pytest.fixture
async def project(tmp_path):
    (tmp_path / "gossamer.toml").write_text(TOML)
    async with open_project(load(start=tmp_path)) as opened:
        await crawl_half(opened)
        yield opened


async def test_a_job_is_paused_resumed_and_cancelled_once(project):
    paused = await pause_job(project, "books")
    again = await pause_job(project, "books-1")

    assert (paused.id, paused.changed, again.changed) == ("books-1", True, False)
    assert (await show_job(project, "books")).phase == "paused"
    assert (await resume_job(project, "books")).changed
    cancelled = await cancel_job(project, "books")
    assert (cancelled.counts.open, cancelled.counts.settled) == (0, 7)
    with pytest.raises(Misconfigured, match="has ended"):
        await pause_job(project, "books")


async def test_lists_are_cut_and_say_how_many_there_are(project):
    await project.state.jobs.open_job("lamps", (await project.state.jobs.terms("books-1")), fresh=False)

    page = await list_jobs(project, limit=1)
    status = await project_status(project, limit=1)

    assert ([job.id for job in page.jobs], page.total) == (["lamps-2"], 2)
    assert ([job.id for job in status.jobs], status.total) == (["lamps-2"], 2)


async def test_the_values_are_what_json_shows(project):
    detail = msgspec.json.decode(msgspec.json.encode(await job_status(project, "books")))
    shown = msgspec.json.decode(msgspec.json.encode(await show_job(project, "books")))

    assert (detail["state"], detail["adds_up"], detail["records"]) == ("running", True, 1)
    assert set(detail["data"]) == {"state", "records", "archive"}
    assert shown["started"] == detail["started"]
    assert shown["started"].endswith("Z")


async def test_what_would_be_pruned_is_counted_first(project):
    await cancel_job(project, "books")
    await project.state.jobs.open_job("books", (await project.state.jobs.terms("books-1")), fresh=False)
    ages = PruneAges(dead=timedelta(0))

    assert await count_prunable_jobs(project, ages) == 1
    assert (await prune(project, ages)).jobs.jobs == 1
    assert await count_prunable_jobs(project, ages) == 0


# -- figures -------------------------------------------------------------------------------------------------------


BOOKS = Job(id="books-1", name="books", state=JobState.RUNNING, created_at=1000.0)


def view(counts: JobCounts, **fields) -> JobView:
    now = fields.pop("now", 1100.0)
    known = {name: fields.pop(name) for name in ("sealed", "served", "closed", "lost", "forecast") if name in fields}
    return job_view(msgspec.structs.replace(BOOKS, **fields), counts, now, **known)


HALF = JobCounts(discovered=110, duplicates=10, done=40, unchanged=8, dead=2, queued=45, leased=5)
IDLE = JobCounts(discovered=3, queued=3)
ONE = ClosedSites(sites=("shop.example",), opens=7200.0)
TWO = ClosedSites(sites=("shop.example", "other.example"), opens=7200.0)
CLOSED = "Thu 03:00-04:00 UTC"  # the epoch began on a Thursday, at midnight


@pytest.mark.parametrize(
    ("told", "state", "story"),
    [
        (view(HALF), "running", "running"),
        (view(IDLE), "running", "running"),
        (view(IDLE, served=False), "no worker", "no worker: none works on it"),
        (view(HALF, served=False), "running", "running"),  # pages are in progress, whatever the cards say
        (view(HALF, served=False, lost=True), "not responding", "not responding: its process is dead or silent"),
        (view(JobCounts(), sealed=False), "reading", "reading its source"),
        (view(IDLE, sealed=False), "running", "running"),
        (view(IDLE, windows=CLOSED), "waiting", "waiting for its window, opens at 1970-01-01 "),
        (view(IDLE, windows=CLOSED, served=False), "waiting", "waiting for its window, opens at 1970-01-01 "),
        (view(IDLE, windows="Thu 00:00-01:00 UTC"), "running", "running"),
        (view(IDLE, closed=ONE), "waiting", "waiting for the window of shop.example, opens at 1970-01-01 "),
        (view(IDLE, closed=TWO), "waiting", "waiting for the windows of 2 sites, the first opens at 1970-01-01 "),
        (view(HALF, closed=ONE), "running", "running"),  # what is in progress is finished
        (view(IDLE, closed=ONE, paused=True), "paused", "paused"),
        (
            view(JobCounts(), sealed=False, closed=ClosedSites(sites=("shop.example",), opens=None, source=True)),
            "waiting",
            "waiting: its source waits for the window of shop.example, which never opens again",
        ),
        (view(IDLE, windows=CLOSED, paused=True), "paused", "paused"),
        (view(IDLE, windows=CLOSED, state=JobState.FINISHED, ending="limit"), "limit", "limit"),
        (view(IDLE, state=JobState.FINISHED, ending="source failed: gone"), "source failed", "source failed"),
    ],
)
def test_where_a_run_stands_is_one_word(told, state, story):
    assert told.phase == state
    assert told.in_words.startswith(story)


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
    assert is_served(BOOKS, cards, now) is served


def test_a_forecast_is_told_as_it_is():
    assert view(HALF, forecast=JobForecast(seconds=100.0)).eta_seconds == 100.0
    still = view(HALF, forecast=JobForecast(found=JobPace(60, 412, 60.0)))
    assert (still.eta_seconds, still.found_last_minute, still.phase) == (None, 412, "running")


def test_a_job_whose_pages_all_wait_is_not_running():
    wait = JobForecast(wait=JobWait("30 pages wait for credits", 1400.0))
    idle = view(IDLE, forecast=wait)
    assert (idle.phase, idle.waits_for, idle.waits_until) == (
        "waiting", "30 pages wait for credits", "1970-01-01T00:23:20.000Z",
    )  # fmt: skip
    assert idle.in_words.startswith("waiting: 30 pages wait for credits; next try ")
    assert view(IDLE, served=False, forecast=wait).phase == "no worker"


def test_a_limit_shortens_the_rest():
    assert view(HALF, limit=60).remaining == 10
    assert view(HALF, limit=50).remaining == 0


async def test_a_running_job_says_what_its_pages_wait_for_and_how_fast_its_queue_shrinks(tmp_path):
    async with open_project(settings_for(tmp_path)) as project:
        state, now = project.state, project.clock.now()
        job, _ = await state.jobs.open_job("wares", JobTerms(), fresh=False)
        await state.frontier.add(job.id, [candidate(f"https://shop{n}.example/{n}") for n in range(40)])
        await state.jobs.seal_seeds(job.id)
        here = f"{socket.gethostname()}/{os.getpid()}/1"
        card = WorkerCard(name=here, host="h", pid=os.getpid(), version="1", started_at=now, seen_at=now, job=job.id)
        leases = (await state.frontier.lease(job.id, here, 10)).leases

        await state.workers.beat(msgspec.structs.replace(card, paces={job.id: JobPace(120, 0, 60.0)}))
        assert (await show_job(project, job.id)).eta_seconds == 20.0
        await state.workers.beat(msgspec.structs.replace(card, paces={job.id: JobPace(120, 110, 60.0)}))
        told = await show_job(project, job.id)
        assert (told.eta_seconds, told.found_last_minute) == (None, 110)

        for lease in (*leases, *(await state.frontier.lease(job.id, here, 40)).leases):
            await state.frontier.release(lease, timedelta(hours=1), "budget")
        told = await show_job(project, job.id)
        assert (told.phase, told.eta_seconds) == ("waiting", None)
        assert told.waits_for is not None
        assert told.waits_for.startswith("40 pages wait for credits")
        assert told.waits_until is not None
        wait = datetime.fromisoformat(told.waits_until) - datetime.fromtimestamp(now, UTC)
        assert timedelta(minutes=59) < wait < timedelta(minutes=90)


@pytest.mark.parametrize(
    "told",
    [
        view(IDLE, windows=CLOSED),
        view(HALF, paused=True),
        view(HALF, state=JobState.FINISHED, ending="limit", finished_at=1050.0),
        view(JobCounts(discovered=3, queued=3)),
    ],
    ids=["outside of its window", "paused", "over", "nothing done yet"],
)
def test_an_end_that_nobody_can_know_is_not_told(told):
    assert told.eta_seconds is None


def test_a_job_that_is_over_counts_its_own_time():
    over = view(HALF, state=JobState.FINISHED, ending="done", finished_at=1010.0, now=9999.0)

    assert (over.seconds, over.pages_per_second, over.phase) == (10.0, 5.0, "done")


def test_a_clock_that_was_put_back_makes_no_negative_time():
    early = view(HALF, now=900.0)

    assert (early.seconds, early.pages_per_second, early.eta_seconds) == (0.0, 0.0, None)
